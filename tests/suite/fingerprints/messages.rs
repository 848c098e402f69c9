//! The protobuf messages and enumerations that the methods of each version use, directly or in
//! fields.

use std::collections::{BTreeMap, BTreeSet};

use bbs::testing::modules::translate::ApiVersion;
use protox::prost_reflect::{
    DescriptorPool, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor,
};

use super::methods::messages_of;
use super::{FingerprintKind, Subject, fingerprint};
use crate::harness::once::files_of;
use crate::harness::workspace;

/// Fields and values from this number on are this project's own, so that they never meet a number
/// that Diego takes later.
const FIRST_OF_OURS: u32 = 1000;

/// The version of the API that has the first of them. Clients of earlier versions skip them.
const WITH_OURS: ApiVersion = ApiVersion::new(1, 2);

/// The numbers that clients of a version know.
fn known_at(version: ApiVersion) -> u32 {
    if version >= WITH_OURS {
        u32::MAX
    } else {
        FIRST_OF_OURS
    }
}

pub(super) fn descriptions() -> BTreeMap<Subject, String> {
    let pool = pool();
    let mut descriptions = BTreeMap::new();
    for (version, names) in messages_of() {
        let roots = names.iter().map(|name| {
            pool.get_message_by_name(name)
                .unwrap_or_else(|| panic!("{name} is not a message of sdk/proto/proto"))
        });
        let below = known_at(version);
        let found = reachable(roots.collect(), below);
        let mut insert = |kind, name: &str, description| {
            let subject = Subject {
                kind,
                version: version.to_string(),
                name: name.to_owned(),
            };
            descriptions.insert(subject, description);
        };
        for message in &found.messages {
            insert(
                FingerprintKind::Message,
                message.full_name(),
                described(message, below),
            );
        }
        for enumeration in &found.enumerations {
            insert(
                FingerprintKind::Enumeration,
                enumeration.full_name(),
                described_enumeration(enumeration, below),
            );
        }
    }
    descriptions
}

fn pool() -> DescriptorPool {
    let root = workspace().join("sdk/proto/proto");
    let mut compiler = protox::Compiler::new([&root]).unwrap();
    for file in files_of(&root) {
        compiler.open_file(file).unwrap();
    }
    resolved(&compiler)
}

/// The compiler's own pool has fields that were read before their options.
fn resolved(compiler: &protox::Compiler) -> DescriptorPool {
    DescriptorPool::from_file_descriptor_set(compiler.file_descriptor_set()).unwrap()
}

#[derive(Default)]
struct Reachable {
    messages: Vec<MessageDescriptor>,
    enumerations: Vec<EnumDescriptor>,
}

/// The messages, those in their fields, and so on.
fn reachable(roots: Vec<MessageDescriptor>, below: u32) -> Reachable {
    let mut found = Reachable::default();
    let mut seen = BTreeSet::new();
    let mut open = roots;
    while let Some(message) = open.pop() {
        if !seen.insert(message.full_name().to_owned()) {
            continue;
        }
        for field in message.fields().filter(|field| field.number() < below) {
            match field.kind() {
                Kind::Message(inner) => open.push(inner),
                Kind::Enum(enumeration) if seen.insert(enumeration.full_name().to_owned()) => {
                    found.enumerations.push(enumeration);
                }
                _ => {}
            }
        }
        found.messages.push(message);
    }
    found
}

fn described(message: &MessageDescriptor, below: u32) -> String {
    // In the order of their numbers, whatever their order in the file is.
    message
        .fields()
        .filter(|field| field.number() < below)
        .map(|field| described_field(&field))
        .collect()
}

/// Without the packages of types, so that a message that moves keeps its fingerprint.
fn described_field(field: &FieldDescriptor) -> String {
    let kind = match field.kind() {
        Kind::Message(message) => format!("message {}", message.name()),
        Kind::Enum(enumeration) => format!("enumeration {}", enumeration.name()),
        scalar => format!("{scalar:?}"),
    };
    let choice = field
        .containing_oneof()
        .map(|choice| choice.name().to_owned());
    format!(
        "{} {} {:?} {kind} packed: {} presence: {} choice: {choice:?}\n",
        field.number(),
        field.name(),
        field.cardinality(),
        field.is_packed(),
        field.supports_presence(),
    )
}

fn described_enumeration(enumeration: &EnumDescriptor, below: u32) -> String {
    let values = enumeration
        .values()
        .filter(|value| value.number().cast_unsigned() < below);
    values
        .map(|value| format!("{} {}\n", value.number(), value.name()))
        .collect()
}

/// Goal: a changed field or value is noticed, and a changed order or package is not.
/// Method: compares a small file with variants of it.
#[test]
fn each_property_of_a_message_changes_its_fingerprint() {
    let fingerprints = |package: &str, fields: &str| {
        let enumeration = "enum E { A = 0; B = 1; } enum F { C = 0; }";
        let text = format!(
            "syntax = \"proto3\"; package {package}; {enumeration} message N {{}} message M {{ {fields} }}"
        );
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("m.proto"), text).unwrap();
        let mut compiler = protox::Compiler::new([folder.path()]).unwrap();
        let pool = resolved(compiler.open_file("m.proto").unwrap());
        fingerprint(&described(
            &pool.get_message_by_name(&format!("{package}.M")).unwrap(),
            u32::MAX,
        ))
    };
    let original = fingerprints("p", "string a = 1; repeated uint32 b = 2; E e = 3;");
    assert_eq!(
        fingerprints("q", "E e = 3; repeated uint32 b = 2; string a = 1;"),
        original
    );
    let variants = [
        "string a = 4; repeated uint32 b = 2; E e = 3;",
        "string x = 1; repeated uint32 b = 2; E e = 3;",
        "bytes a = 1; repeated uint32 b = 2; E e = 3;",
        "N a = 1; repeated uint32 b = 2; E e = 3;",
        "optional string a = 1; repeated uint32 b = 2; E e = 3;",
        "oneof o { string a = 1; } repeated uint32 b = 2; E e = 3;",
        "repeated string a = 1; repeated uint32 b = 2; E e = 3;",
        "string a = 1; repeated uint32 b = 2 [packed = false]; E e = 3;",
        "string a = 1; repeated uint32 b = 2; F e = 3;",
        "string a = 1; repeated uint32 b = 2;",
        "string a = 1; repeated uint32 b = 2; E e = 3; bool c = 4;",
    ];
    let mut seen = BTreeSet::from([original]);
    for fields in variants {
        assert!(
            seen.insert(fingerprints("p", fields)),
            "{fields} has the fingerprint of another variant"
        );
    }
}
