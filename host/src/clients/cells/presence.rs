//! A cell's presence in Locket: JSON with Diego's names, written by its rep.

use std::collections::BTreeMap;

use bbs_proto::models as proto;
use serde::{Deserialize, Deserializer};

/// Every field may be absent or null.
#[derive(Default, Deserialize)]
#[serde(default)]
struct PresenceJson {
    #[serde(deserialize_with = "or_default")]
    cell_id: String,
    #[serde(deserialize_with = "or_default")]
    rep_address: String,
    #[serde(deserialize_with = "or_default")]
    zone: String,
    capacity: Option<CapacityJson>,
    #[serde(deserialize_with = "or_default")]
    rootfs_provider_list: Vec<Provider>,
    #[serde(deserialize_with = "or_default")]
    placement_tags: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    optional_placement_tags: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    rep_url: String,
    #[serde(deserialize_with = "or_default")]
    annotations: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct CapacityJson {
    memory_mb: i32,
    disk_mb: i32,
    containers: i32,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Provider {
    name: String,
    #[serde(deserialize_with = "or_default")]
    properties: Vec<String>,
}

fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

pub(super) fn read(text: &str) -> Result<proto::CellPresence, serde_json::Error> {
    let presence: PresenceJson = serde_json::from_str(text)?;
    let texts = |texts: Vec<String>| texts.into_iter().map(String::into_bytes).collect();
    let capacity = |capacity: CapacityJson| proto::CellCapacity {
        memory_mb: capacity.memory_mb,
        disk_mb: capacity.disk_mb,
        containers: capacity.containers,
    };
    Ok(proto::CellPresence {
        cell_id: presence.cell_id.into(),
        rep_address: presence.rep_address.into(),
        zone: presence.zone.into(),
        capacity: presence.capacity.map(capacity),
        rootfs_providers: presence
            .rootfs_provider_list
            .into_iter()
            .map(|provider| proto::Provider {
                name: provider.name.into(),
                properties: texts(provider.properties),
            })
            .collect(),
        placement_tags: texts(presence.placement_tags),
        optional_placement_tags: texts(presence.optional_placement_tags),
        rep_url: presence.rep_url.into(),
        annotations: presence
            .annotations
            .into_iter()
            .map(|(key, value)| proto::TextEntry {
                key: key.into(),
                value: value.into(),
            })
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presence_is_parsed_completely() {
        let read = read(
            r#"{"cell_id":"c","rep_address":"http://..","zone":"z1",
                "capacity":{"memory_mb":1,"disk_mb":2,"containers":3},
                "rootfs_provider_list":[{"name":"preloaded","properties":["cflinuxfs4"]},{"name":"docker"}],
                "placement_tags":["t"],"optional_placement_tags":["o"],"rep_url":"https://..",
                "annotations":{"a":"b"},"unknown":7}"#,
        )
        .unwrap();
        let provider = |name: &str, properties: Vec<Vec<u8>>| proto::Provider {
            name: name.into(),
            properties,
        };
        let expected = proto::CellPresence {
            cell_id: b"c".to_vec(),
            rep_address: b"http://..".to_vec(),
            zone: b"z1".to_vec(),
            capacity: Some(proto::CellCapacity {
                memory_mb: 1,
                disk_mb: 2,
                containers: 3,
            }),
            rootfs_providers: vec![
                provider("preloaded", vec![b"cflinuxfs4".to_vec()]),
                provider("docker", vec![]),
            ],
            placement_tags: vec![b"t".to_vec()],
            optional_placement_tags: vec![b"o".to_vec()],
            rep_url: b"https://..".to_vec(),
            annotations: vec![proto::TextEntry {
                key: b"a".to_vec(),
                value: b"b".to_vec(),
            }],
        };
        assert_eq!(read, expected);
    }

    #[test]
    fn null_and_absent_fields_are_empty_and_other_types_are_rejected() {
        let read_null =
            read(r#"{"cell_id":"c","annotations":null,"placement_tags":null,"capacity":null}"#)
                .unwrap();
        assert_eq!(
            read_null,
            proto::CellPresence {
                cell_id: b"c".to_vec(),
                ..Default::default()
            }
        );
        for bad in [
            "",
            "null",
            "[]x",
            r#"{"cell_id":7}"#,
            r#"{"capacity":{"containers":3000000000}}"#,
        ] {
            assert!(read(bad).is_err(), "{bad:?} was parsed");
        }
    }
}
