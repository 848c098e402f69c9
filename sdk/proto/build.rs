//! Compiles the .proto files, with every `string` as `bytes`: Go's clients neither check nor guarantee UTF-8, and one invalid
//! field must not make a whole message unreadable.

use std::path::Path;

use prost_types::field_descriptor_proto::Type;
use prost_types::{DescriptorProto, FileDescriptorSet};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let mut files = Vec::new();
    for folder in ["models", "v0_9", "v0_10"] {
        for entry in std::fs::read_dir(Path::new("proto").join(folder))? {
            files.push(entry?.path());
        }
    }
    // `read_dir` returns files in an order of the file system's choice; the output must not depend on it.
    files.sort();
    let mut descriptors: FileDescriptorSet = protox::compile(&files, ["proto"])?;
    for file in &mut descriptors.file {
        file.message_type.iter_mut().for_each(strings_as_bytes);
    }
    prost_build::Config::new().compile_fds(descriptors)?;
    Ok(())
}

fn strings_as_bytes(message: &mut DescriptorProto) {
    for field in &mut message.field {
        if field.r#type() == Type::String {
            field.set_type(Type::Bytes);
        }
    }
    message.nested_type.iter_mut().for_each(strings_as_bytes);
}
