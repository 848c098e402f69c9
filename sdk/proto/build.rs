//! Compiles the .proto files, with every `string` as `bytes`: Go's clients neither check nor
//! guarantee UTF-8, and one invalid field must not make a whole message unreadable. Generates also
//! the shapes of the messages, and the numbers of their fields.

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
    let out = std::env::var("OUT_DIR")?;
    let messages = messages_of(&descriptors);
    std::fs::write(Path::new(&out).join("shapes.rs"), shapes_of(&messages))?;
    std::fs::write(Path::new(&out).join("fields.rs"), fields_of(&messages))?;
    prost_build::Config::new()
        .enable_type_names()
        .compile_fds(descriptors)?;
    Ok(())
}

/// Messages by their full names, such as `.models.Task`.
type Messages<'a> = BTreeMap<String, &'a DescriptorProto>;

fn messages_of(descriptors: &FileDescriptorSet) -> Messages<'_> {
    let mut messages = BTreeMap::new();
    for file in &descriptors.file {
        file.message_type
            .iter()
            .for_each(|message| collect(message, &format!(".{}", file.package()), &mut messages));
    }
    messages
}

/// The source of a shape for each message: a static, and its entry in a list that is sorted by the
/// full names.
fn shapes_of(messages: &Messages<'_>) -> String {
    let numbers: BTreeMap<&String, usize> = messages.keys().zip(0..).collect();
    let mut statics = String::new();
    let mut list = String::new();
    for (name, message) in messages {
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

/// The source of a constant for each field, in a module for each message: those of Diego's at the
/// root, others in a module for their package.
fn fields_of(messages: &Messages<'_>) -> String {
    let mut packages = BTreeMap::<&str, String>::new();
    for (name, message) in messages {
        let (package, name) = name[1..].split_once('.').expect("a message in a package");
        let constants = message.field.iter().map(|field| {
            let name = field.name().to_uppercase();
            format!("    pub const {name}: u32 = {};\n", field.number())
        });
        *packages.entry(package).or_default() += &format!(
            "pub mod {} {{\n{}}}\n",
            snake_case(name),
            constants.collect::<String>()
        );
    }
    let modules = packages
        .into_iter()
        .map(|(package, modules)| match package {
            "models" => modules,
            _ => format!("pub mod {package} {{\n{modules}}}\n"),
        });
    modules.collect()
}

/// The name of a message as that of a module: `desired_lrps_request` for `DesiredLRPsRequest`.
fn snake_case(name: &str) -> String {
    let letters: Vec<char> = name.chars().filter(|letter| *letter != '.').collect();
    let mut snake = String::new();
    for (at, letter) in letters.iter().enumerate() {
        let ends_abbreviation = match letters[at + 1..] {
            // The plural of an abbreviation.
            ['s'] => false,
            ['s', next, ..] | [next, ..] => next.is_lowercase(),
            [] => false,
        };
        let begins_word = at > 0
            && letter.is_uppercase()
            && (letters[at - 1].is_lowercase() || ends_abbreviation);
        if begins_word {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

fn collect<'a>(message: &'a DescriptorProto, outer: &str, messages: &mut Messages<'a>) {
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
