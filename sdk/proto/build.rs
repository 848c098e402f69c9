//! Compiles the .proto files, with every `string` as `bytes`: Go's clients neither check nor
//! guarantee UTF-8, and one invalid field must not make a whole message unreadable. Generates also
//! the shapes of the messages.

use std::collections::BTreeMap;
use std::path::Path;

use prost_types::field_descriptor_proto::Type;
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let mut files = Vec::new();
    for folder in ["models", "v0_9", "v0_10"] {
        for entry in std::fs::read_dir(Path::new("proto").join(folder))? {
            files.push(entry?.path());
        }
    }
    // `read_dir` returns files in an order of the file system's choice; the output must not depend
    // on it.
    files.sort();
    let mut descriptors: FileDescriptorSet = protox::compile(&files, ["proto"])?;
    for file in &mut descriptors.file {
        file.message_type.iter_mut().for_each(strings_as_bytes);
    }
    let shapes = Path::new(&std::env::var("OUT_DIR")?).join("shapes.rs");
    std::fs::write(shapes, shapes_of(&descriptors))?;
    prost_build::Config::new()
        .enable_type_names()
        .compile_fds(descriptors)?;
    Ok(())
}

/// The source of a shape for each message: a static, and its entry in a list that is sorted by the
/// full names.
fn shapes_of(descriptors: &FileDescriptorSet) -> String {
    let mut messages = BTreeMap::new();
    for file in &descriptors.file {
        file.message_type
            .iter()
            .for_each(|message| collect(message, &format!(".{}", file.package()), &mut messages));
    }
    let numbers: BTreeMap<&String, usize> = messages.keys().zip(0..).collect();
    let (mut statics, mut list) = (String::new(), String::new());
    for (name, message) in &messages {
        let number = numbers[name];
        let field = |field: &FieldDescriptorProto| match field.r#type() {
            Type::Bytes => Some(format!("({}, FieldShape::Text)", field.number())),
            Type::Message => Some(format!(
                "({}, FieldShape::Message(&SHAPE_{}))",
                field.number(),
                numbers[&field.type_name().to_owned()]
            )),
            _ => None,
        };
        let fields = message
            .field
            .iter()
            .filter_map(field)
            .collect::<Vec<_>>()
            .join(", ");
        statics +=
            &format!("static SHAPE_{number}: MessageShape = MessageShape::new(&[{fields}]);\n");
        list += &format!("    ({:?}, &SHAPE_{number}),\n", &name[1..]);
    }
    format!(
        "{statics}static SHAPES: [(&str, &MessageShape); {}] = [\n{list}];\n",
        messages.len()
    )
}

fn collect<'a>(
    message: &'a DescriptorProto,
    outer: &str,
    messages: &mut BTreeMap<String, &'a DescriptorProto>,
) {
    let name = format!("{outer}.{}", message.name());
    message
        .nested_type
        .iter()
        .for_each(|nested| collect(nested, &name, messages));
    messages.insert(name, message);
}

fn strings_as_bytes(message: &mut DescriptorProto) {
    for field in &mut message.field {
        if field.r#type() == Type::String {
            field.set_type(Type::Bytes);
        }
    }
    message.nested_type.iter_mut().for_each(strings_as_bytes);
}
