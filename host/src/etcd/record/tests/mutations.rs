//! Random damage of the vectors: a damaged value is the record of its path or an error, never a
//! panic; a damaged sealed value does not open.

use proptest::prelude::*;
use proptest::sample::Index;

use super::vectors::{Vector, vectors};
use super::{base64, decoded, keyring};
use crate::etcd::record::value::plain;
use crate::etcd::record::{EtcdRecord, RecordError, RecordKey, RecordKind, label};

/// A change of bytes at a place.
#[derive(Debug, Clone)]
enum Damage {
    Replace(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    Truncate(Index),
    /// A piece is written twice.
    Repeat(Index, usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    let place = any::<Index>;
    prop_oneof![
        (place(), any::<u8>()).prop_map(|(at, byte)| Damage::Replace(at, byte)),
        (place(), prop::collection::vec(any::<u8>(), 1..8))
            .prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        (place(), 1..8_usize).prop_map(|(at, count)| Damage::Remove(at, count)),
        place().prop_map(Damage::Truncate),
        (place(), 1..64_usize).prop_map(|(at, count)| Damage::Repeat(at, count)),
    ]
}

fn apply(damage: &Damage, bytes: &mut Vec<u8>) {
    // A position in the text, or its end.
    let at = |index: &Index| index.index(bytes.len() + 1);
    match damage {
        Damage::Replace(index, byte) => {
            let at = at(index);
            bytes.splice(at..bytes.len().min(at + 1), [*byte]);
        }
        Damage::Insert(index, inserted) => {
            let at = at(index);
            bytes.splice(at..at, inserted.iter().copied());
        }
        Damage::Remove(index, count) => {
            let at = at(index);
            bytes.drain(at..bytes.len().min(at + count));
        }
        Damage::Truncate(index) => bytes.truncate(at(index)),
        Damage::Repeat(index, count) => {
            let at = at(index);
            let piece = bytes[at..bytes.len().min(at + count)].to_vec();
            bytes.splice(at..at, piece);
        }
    }
}

/// Whether a record is of the kind that its path names, and has the guid, index or name that the
/// path has.
fn belongs_to(record: &EtcdRecord, path: &str) -> bool {
    let RecordKey { kind, name, index } = RecordKey::of(path);
    let is_of = |found: &[u8]| found == name.as_bytes();
    match (record, kind) {
        (EtcdRecord::Version(_), RecordKind::Version)
        | (EtcdRecord::KeyLabel(_), RecordKind::KeyLabel)
        | (EtcdRecord::Foreign, RecordKind::Foreign) => true,
        (EtcdRecord::Domain { name: found }, RecordKind::Domain) => found == name,
        (EtcdRecord::DesiredLrp(lrp), RecordKind::DesiredLrp) => is_of(&lrp.process_guid),
        (EtcdRecord::SchedulingInfo(info), RecordKind::SchedulingInfo) => info
            .desired_lrp_key
            .as_ref()
            .is_some_and(|key| is_of(&key.process_guid)),
        (EtcdRecord::RunInfo(info), RecordKind::RunInfo) => info
            .desired_lrp_key
            .as_ref()
            .is_some_and(|key| is_of(&key.process_guid)),
        (
            EtcdRecord::ActualLrp { lrp, evacuating },
            RecordKind::ActualLrp | RecordKind::EvacuatingActualLrp,
        ) => {
            let key = lrp.actual_lrp_key.clone().unwrap_or_default();
            let is_evacuating = kind == RecordKind::EvacuatingActualLrp;
            *evacuating == is_evacuating && is_of(&key.process_guid) && key.index == index
        }
        (EtcdRecord::Task(task), RecordKind::Task) => is_of(&task.task_guid),
        _ => false,
    }
}

/// Decodes a value at each path, and checks that each record belongs to its path.
fn check_decoding(value: &str, paths: [&str; 2]) -> Result<(), TestCaseError> {
    for path in paths {
        if let Ok(record) = decoded(path, value) {
            prop_assert!(belongs_to(&record, path), "{path}: {record:?}");
        }
    }
    Ok(())
}

fn damaged(mut bytes: Vec<u8>, damages: &[Damage]) -> Vec<u8> {
    damages.iter().for_each(|damage| apply(damage, &mut bytes));
    bytes
}

fn is_sealed(value: &str) -> bool {
    value.starts_with("02")
}

/// The vectors whose values the keyring opens.
fn readable() -> Vec<Vector> {
    vectors()
        .into_iter()
        .filter(|vector| vector.decoded_hex != "unreadable")
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_value_is_a_record_of_its_path_or_an_error(
        vector in any::<Index>(),
        other in any::<Index>(),
        damages in prop::collection::vec(damage(), 0..4),
    ) {
        let vectors = vectors();
        let vector = vector.get(&vectors);
        let other = other.get(&vectors);
        let bytes = damaged(vector.value.clone().into_bytes(), &damages);
        let value = String::from_utf8_lossy(&bytes).into_owned();
        check_decoding(&value, [&vector.path, &other.path])?;
        prop_assert!(is_sealed(&value) || label(&value) == Ok(None), "{value:?} is not sealed");
    }

    #[test]
    fn damaged_sealed_value_does_not_open(vector in any::<Index>(), damages in prop::collection::vec(damage(), 1..4)) {
        let sealed: Vec<_> = readable().into_iter().filter(|vector| is_sealed(&vector.value)).collect();
        let sealed = &vector.get(&sealed).value;
        let bytes = damaged(sealed.clone().into_bytes(), &damages);
        let value = String::from_utf8_lossy(&bytes).into_owned();
        prop_assume!(value != *sealed && is_sealed(&value));
        let opened = plain(&value, &keyring());
        prop_assert!(matches!(opened, Err(RecordError::Sealed(_))), "{value:?}: {opened:?}");
    }

    /// Behind the encryption, where damage of the sealed value does not get.
    #[test]
    fn damaged_payload_is_a_record_of_its_path_or_an_error(
        vector in any::<Index>(),
        other in any::<Index>(),
        damages in prop::collection::vec(damage(), 0..4),
    ) {
        let vectors = readable();
        let vector = vector.get(&vectors);
        let other = other.get(&vectors);
        let payload = plain(&vector.value, &keyring()).expect("the keyring opens the vector");
        check_decoding(&base64(&damaged(payload, &damages)), [&vector.path, &other.path])?;
    }

    #[test]
    fn empty_value_is_an_error_at_every_path_of_a_record_with_content(
        path in "(/|v1|domain|desired|desired_lrp|run|actual|task|instance|[a-z0-9.+-]{0,3}|\\PC){0,12}",
    ) {
        let key = RecordKey::of(&path);
        let found = decoded(&path, "");
        let is_expected = match (key.kind, &found) {
            (RecordKind::Domain | RecordKind::KeyLabel | RecordKind::Foreign, Ok(record)) => belongs_to(record, &path),
            (RecordKind::Version, Err(_)) => true,
            (_, Err(RecordError::Empty)) => key.guid().is_some(),
            (_, Err(RecordError::Guid { guid })) => key.guid() == Some(guid),
            _ => false,
        };
        prop_assert!(is_expected, "{path:?} is {key:?}: {found:?}");
    }
}
