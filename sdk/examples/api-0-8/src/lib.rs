//! Serves clients of API 0.8 in terms of API 0.9. Replace what it converts with what differs
//! between the two; a method that is not declared passes through unchanged.

use bbs_sdk::wire::{self, WireError};
use bbs_sdk::{ApiVersion, Event, Fault, Translator, TranslatorManifest, export_translator};

/// Field numbers: of the instances in the answer of a list, and of the zone of an instance.
const LISTED: u32 = 2;
const ZONE: u32 = 14;
/// Field numbers: of the instance in an event, of it before and after a change, and of the zone in
/// these two.
const INSTANCE: u32 = 1;
const CHANGED: [u32; 2] = [3, 4];
const CHANGED_ZONE: u32 = 12;

#[derive(Debug)]
pub struct Older;

impl Translator for Older {
    fn manifest() -> TranslatorManifest {
        TranslatorManifest::new(ApiVersion::new(0, 8), ApiVersion::new(0, 9), "api-0-8")
            .summary("Serves API 0.8: instances without availability zones")
            .paged_method("ListInstances_0_8", "instances/list")
            // A `handler` would call several methods of the newer version, or none.
            .calls("ActualLRPs")
            .answer(|list| Ok(without_zones(list, &[LISTED], ZONE)?))
            .event_stream(
                "InstanceEvents_0_8",
                "instances/events",
                "LRPInstanceEventStream_r1",
            )
            .events(|operation| operation.events.into_iter().map(older_event).collect())
    }
}

fn older_event(event: Event) -> Result<Event, Fault> {
    let payload = match &*event.name {
        "actual_lrp_instance_created" | "actual_lrp_instance_removed" => {
            without_zones(event.payload, &[INSTANCE], ZONE)?
        }
        "actual_lrp_instance_changed" => without_zones(event.payload, &CHANGED, CHANGED_ZONE)?,
        _ => event.payload,
    };
    Ok(Event { payload, ..event })
}

/// Removes field `zone` from the embedded messages in `fields`; every other byte stays in place.
fn without_zones(message: Vec<u8>, fields: &[u32], zone: u32) -> Result<Vec<u8>, WireError> {
    let edited = wire::edit(&message, |field| {
        if fields.contains(&field.number) {
            wire::remove(field.bytes()?, zone).map(Some)
        } else {
            Ok(None)
        }
    })?;
    Ok(edited.unwrap_or(message))
}

export_translator!(Older);

#[cfg(test)]
mod tests {
    use bbs_sdk::Operation;
    use bbs_sdk::wire::Value;

    use super::*;

    /// A message with one field.
    fn message(number: u32, value: &[u8]) -> Vec<u8> {
        let mut message = Vec::new();
        wire::append(&mut message, number, Value::Bytes(value));
        message
    }

    #[test]
    fn list_is_the_newer_one_without_zones() {
        let (state, zone) = (message(6, b"RUNNING"), message(ZONE, b"z1"));
        let next = |method: &str, request: &[u8]| {
            assert_eq!((method, request), ("ActualLRPs", &b"request"[..]));
            Ok(message(LISTED, &[&*state, &zone].concat()))
        };
        assert_eq!(
            Older::call("ListInstances_0_8", b"request", &next),
            Ok(message(LISTED, &state))
        );
    }

    #[test]
    fn events_are_the_newer_ones_without_zones() {
        let events = |zone: &[u8], changed_zone: &[u8]| {
            let event = |name: &str, payload| Event {
                name: name.to_owned(),
                payload,
                cells: None,
            };
            vec![
                event("actual_lrp_instance_created", message(INSTANCE, zone)),
                event(
                    "actual_lrp_instance_changed",
                    message(CHANGED[1], changed_zone),
                ),
                event("desired_lrp_removed", message(INSTANCE, zone)),
            ]
        };
        let (zone, changed_zone) = (message(ZONE, b"z1"), message(CHANGED_ZONE, b"z1"));
        let operation = Operation {
            changes: Vec::new(),
            events: events(&zone, &changed_zone),
        };
        let mut expected = events(b"", b"");
        expected[2].payload = message(INSTANCE, &zone);
        assert_eq!(Older::events("InstanceEvents_0_8", operation), Ok(expected));
    }
}
