//! The table of messages against the descriptors that OTLP publishes.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};

use crate::decode::Payload;
use crate::decode::json::schema::{Field, Kind, Message, Scalar, request};

type Descriptors = BTreeMap<String, DescriptorProto>;

fn descriptors() -> Descriptors {
    let files = FileDescriptorSet::decode(opentelemetry_proto::DESCRIPTORS).unwrap();
    let mut found = Descriptors::new();
    for file in files.file {
        let package = format!(".{}", file.package());
        file.message_type
            .into_iter()
            .for_each(|message| add(&package, message, &mut found));
    }
    found
}

fn add(around: &str, message: DescriptorProto, found: &mut Descriptors) {
    let name = format!("{around}.{}", message.name());
    for inner in &message.nested_type {
        add(&name, inner.clone(), found);
    }
    found.insert(name, message);
}

fn scalar(field: &FieldDescriptorProto) -> Scalar {
    match field.r#type() {
        Type::Bool => Scalar::Bool,
        Type::Int32 | Type::Enum => Scalar::Int32,
        Type::Sint32 => Scalar::Sint32,
        Type::Int64 => Scalar::Int64,
        Type::Uint32 => Scalar::Uint32,
        Type::Uint64 => Scalar::Uint64,
        Type::Fixed32 => Scalar::Fixed32,
        Type::Fixed64 => Scalar::Fixed64,
        Type::Sfixed64 => Scalar::Sfixed64,
        Type::Double => Scalar::Double,
        Type::String => Scalar::Text,
        Type::Bytes if field.name().ends_with("_id") => Scalar::Hex,
        Type::Bytes => Scalar::Base64,
        other => panic!("{other:?}"),
    }
}

fn compare(name: &str, ours: &'static Message, all: &Descriptors, seen: &mut BTreeSet<String>) {
    if !seen.insert(name.to_owned()) {
        return;
    }
    let official = &all[name].field;
    let key = |field: &&Field| (field.number, field.name, field.repeated);
    let mut found: Vec<_> = ours.fields.iter().map(|field| key(&field)).collect();
    let mut expected: Vec<_> = official
        .iter()
        .map(|field| {
            let repeated = field.label() == Label::Repeated;
            let number = u32::try_from(field.number()).unwrap();
            (number, field.json_name(), repeated)
        })
        .collect();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected, "{name}");
    for theirs in official {
        let mut fields = ours.fields.iter();
        let ours = fields.find(|field| field.name == theirs.json_name());
        match ours.unwrap().kind {
            Kind::Message(inner) => compare(theirs.type_name(), inner, all, seen),
            Kind::Scalar(kind) => assert_eq!(kind, scalar(theirs), "{name}.{}", theirs.name()),
        }
    }
}

#[test]
fn every_field_of_otlp_is_known_by_its_name_number_and_type() {
    let all = descriptors();
    let mut seen = BTreeSet::new();
    for payload in [Payload::Metrics, Payload::Logs, Payload::Traces] {
        let message = payload.message();
        let mut names = all.keys();
        let name = names.find(|name| name.rsplit('.').next() == Some(message));
        compare(name.unwrap(), request(payload), &all, &mut seen);
    }
    assert!(seen.len() > 30, "{seen:?}");
}
