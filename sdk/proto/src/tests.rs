//! Messages against the bytes that Diego's encoder writes for the same values.

use crate::fields;
use crate::models::*;
use prost::Message;

fn bytes(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

#[test]
fn required_empty_messages_are_encoded_as_in_diego() {
    let lrp = ActualLrp {
        actual_lrp_key: Some(ActualLrpKey::default()),
        actual_lrp_instance_key: Some(ActualLrpInstanceKey::default()),
        actual_lrp_net_info: Some(ActualLrpNetInfo::default()),
        modification_tag: Some(ModificationTag::default()),
        ..Default::default()
    };
    assert_eq!(lrp.encode_to_vec(), [0x0a, 0, 0x12, 0, 0x1a, 0, 0x4a, 0]);

    let info = DesiredLrpSchedulingInfo {
        desired_lrp_key: Some(DesiredLrpKey::default()),
        desired_lrp_resource: Some(DesiredLrpResource::default()),
        routes: Some(ProtoRoutes::default()),
        modification_tag: Some(ModificationTag::default()),
        ..Default::default()
    };
    assert_eq!(info.encode_to_vec(), [0x0a, 0, 0x22, 0, 0x2a, 0, 0x32, 0]);

    let run_info = DesiredLrpRunInfo {
        desired_lrp_key: Some(DesiredLrpKey::default()),
        ..Default::default()
    };
    assert_eq!(run_info.encode_to_vec(), [0x0a, 0]);

    let changed = ActualLrpInstanceChangedEvent {
        actual_lrp_key: Some(ActualLrpKey::default()),
        actual_lrp_instance_key: Some(ActualLrpInstanceKey::default()),
        before: Some(ActualLrpInfo {
            actual_lrp_net_info: Some(ActualLrpNetInfo::default()),
            modification_tag: Some(ModificationTag::default()),
            ..Default::default()
        }),
        ..Default::default()
    };
    assert_eq!(
        changed.encode_to_vec(),
        [0x0a, 0, 0x12, 0, 0x1a, 4, 0x1a, 0, 0x4a, 0]
    );

    let crashed = ActualLrpCrashedEvent {
        actual_lrp_key: Some(ActualLrpKey::default()),
        actual_lrp_instance_key: Some(ActualLrpInstanceKey::default()),
        ..Default::default()
    };
    assert_eq!(crashed.encode_to_vec(), [0x0a, 0, 0x12, 0]);
}

#[test]
fn task_event_is_encoded_as_in_diegos_stream() {
    let event = TaskRemovedEvent {
        task: Some(Task {
            task_definition: Some(TaskDefinition::default()),
            task_guid: bytes("g"),
            domain: bytes("d"),
            state: task::State::Resolving.into(),
            ..Default::default()
        }),
    };
    let expected = [0x0a, 0x0a, 0x0a, 0, 0x12, 1, b'g', 0x1a, 1, b'd', 0x38, 4];
    assert_eq!(event.encode_to_vec(), expected);
}

#[test]
fn repeated_numbers_are_encoded_unpacked_and_decoded_either_way() {
    let lrp = DesiredLrp {
        ports: vec![8080, 0],
        ..Default::default()
    };
    assert_eq!(lrp.encode_to_vec(), [0x70, 0x90, 0x3f, 0x70, 0]);
    let packed = [0x72, 3, 0x90, 0x3f, 0];
    assert_eq!(DesiredLrp::decode(&packed[..]).unwrap().ports, [8080, 0]);
}

#[test]
fn presence_of_zero_valued_fields_round_trips() {
    let update = DesiredLrpUpdate {
        instances: Some(0),
        routes: Some(ProtoRoutes::default()),
        annotation: Some(Vec::new()),
        ..Default::default()
    };
    let encoded = update.encode_to_vec();
    assert_eq!(encoded, [0x08, 0, 0x12, 0, 0x1a, 0]);
    assert_eq!(DesiredLrpUpdate::decode(&encoded[..]).unwrap(), update);
}

#[test]
fn invalid_utf8_round_trips_in_fields_and_map_keys() {
    let broken = vec![0xff, b'x', 0xc3];
    let lrp = DesiredLrp {
        annotation: broken.clone(),
        metric_tags: vec![MetricTagEntry {
            key: broken.clone(),
            value: Some(MetricTagValue {
                r#static: broken,
                ..Default::default()
            }),
        }],
        ..Default::default()
    };
    assert_eq!(DesiredLrp::decode(&lrp.encode_to_vec()[..]).unwrap(), lrp);
}

#[test]
fn unknown_enum_values_round_trip() {
    let tag = MetricTagValue {
        dynamic: 77,
        ..Default::default()
    };
    assert_eq!(
        MetricTagValue::decode(&tag.encode_to_vec()[..])
            .unwrap()
            .dynamic,
        77
    );
}

#[test]
fn field_numbers_are_those_of_the_descriptors() {
    assert_eq!(fields::desired_lrp::VOLUME_MOUNTS, 25);
    assert_eq!(fields::desired_lrps_response::DESIRED_LRPS, 2);
    assert_eq!(fields::actual_lrp_instance_changed_event::AFTER, 4);
    assert_eq!(fields::tcp_check::PORT, 1);
    assert_eq!(fields::v0_10::mutable_desired_lrp::ANNOTATION, 4);
}
