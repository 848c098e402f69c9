//! Random damage of the vectors: any change of a value gives a record or an error, never a panic.

use proptest::prelude::*;
use proptest::sample::Index;

use super::vectors::vectors;
use super::{base64, decoded, keyring};
use crate::etcd::record::value::plain;
use crate::etcd::record::{RecordKey, label};

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
        (place(), prop::collection::vec(any::<u8>(), 1..8)).prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_value_is_a_record_or_an_error(
        vector in any::<Index>(),
        other in any::<Index>(),
        damages in prop::collection::vec(damage(), 0..4),
    ) {
        let vectors = vectors();
        let (value, path) = (&vector.get(&vectors).value, &other.get(&vectors).path);
        let mut bytes = value.clone().into_bytes();
        damages.iter().for_each(|damage| apply(damage, &mut bytes));
        let value = String::from_utf8_lossy(&bytes).into_owned();
        for path in [path, &vector.get(&vectors).path] {
            let _ = decoded(path, &value);
        }
        let _ = label(&value);
    }

    /// Behind the encryption, where damage of the sealed value does not get.
    #[test]
    fn damaged_payload_is_a_record_or_an_error(
        vector in any::<Index>(),
        other in any::<Index>(),
        damages in prop::collection::vec(damage(), 0..4),
    ) {
        let vectors = vectors();
        let Ok(mut bytes) = plain(&vector.get(&vectors).value, &keyring()) else { return Ok(()) };
        damages.iter().for_each(|damage| apply(damage, &mut bytes));
        for path in [&vector.get(&vectors).path, &other.get(&vectors).path] {
            let _ = decoded(path, &base64(&bytes));
        }
    }

    #[test]
    fn any_path_has_a_kind(path in "(/|v1|domain|desired|desired_lrp|run|actual|task|instance|[a-z0-9.+-]{0,3}|\\PC){0,12}") {
        let _ = RecordKey::of(&path).kind().name();
        let _ = decoded(&path, "");
    }
}
