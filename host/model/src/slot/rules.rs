//! The allowed state transitions, and the instance key that each requires.

use crate::actual_lrp::{ActualLrp, InstanceKey, LrpKey, State};

/// The instance key that a transition requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// Any key.
    Nothing,
    /// The empty key.
    NoContainer,
    /// The key of the row.
    SameContainer,
    /// The transition is not allowed.
    Impossible,
}

const fn needs(stored: State, new: State) -> Needs {
    match (stored, new) {
        (State::Unclaimed, State::Unclaimed | State::Claimed | State::Running)
        // The cell that starts first wins over the one that claimed.
        | (State::Claimed, State::Running) => Needs::Nothing,
        (State::Claimed | State::Running | State::Crashed, State::Unclaimed) => Needs::NoContainer,
        (State::Claimed, State::Claimed | State::Crashed)
        | (State::Running, State::Claimed | State::Running | State::Crashed)
        | (State::Crashed, State::Claimed | State::Running) => Needs::SameContainer,
        (State::Unclaimed | State::Crashed, State::Crashed) => Needs::Impossible,
    }
}

/// Whether a request with these keys may move a row into a state. No transition leaves an unknown
/// state.
pub(super) fn may_enter(row: &ActualLrp, key: &LrpKey, instance: &InstanceKey, new: State) -> bool {
    let Some(stored) = row.state().filter(|_| row.is_at(key)) else {
        return false;
    };
    match needs(stored, new) {
        Needs::Nothing => true,
        Needs::NoContainer => instance.is_empty(),
        Needs::SameContainer => row.is_instance(instance),
        Needs::Impossible => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By stored and new state, in the order of `State::ALL`: allowed with no, the same and another
    /// container's key.
    const TABLE: [[[bool; 3]; 4]; 4] = {
        const ANY: [bool; 3] = [true, true, true];
        const NONE: [bool; 3] = [true, false, false];
        const SAME: [bool; 3] = [false, true, false];
        const NEVER: [bool; 3] = [false, false, false];
        [
            [ANY, ANY, ANY, NEVER],
            [NONE, SAME, ANY, SAME],
            [NONE, SAME, SAME, SAME],
            [NONE, SAME, SAME, NEVER],
        ]
    };

    #[test]
    fn transitions_are_allowed_as_in_the_table() {
        let key = LrpKey {
            process_guid: b"guid".to_vec(),
            index: 1,
            domain: b"domain".to_vec(),
        };
        let instance = |guid: &str| InstanceKey {
            instance_guid: guid.into(),
            cell_id: b"cell".to_vec(),
        };
        for (at, stored) in State::ALL.into_iter().enumerate() {
            let mut row = ActualLrp::unclaimed(&key, 0);
            row.state = stored.at_rest();
            row.set_instance(instance("same"));
            for (to, new) in State::ALL.into_iter().enumerate() {
                let given = [InstanceKey::default(), instance("same"), instance("other")];
                let found = given
                    .clone()
                    .map(|instance| may_enter(&row, &key, &instance, new));
                assert_eq!(found, TABLE[at][to], "{stored:?} to {new:?}");
                for other in [
                    LrpKey {
                        domain: b"other".to_vec(),
                        ..key.clone()
                    },
                    LrpKey {
                        index: 2,
                        ..key.clone()
                    },
                    LrpKey {
                        process_guid: b"other".to_vec(),
                        ..key.clone()
                    },
                ] {
                    assert!(
                        given
                            .iter()
                            .all(|instance| !may_enter(&row, &other, instance, new)),
                        "{other:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn crashed_row_has_no_container_so_the_empty_key_is_the_same() {
        let key = LrpKey::default();
        let mut row = ActualLrp::unclaimed(&key, 0);
        row.state = State::Crashed.at_rest();
        assert!(may_enter(
            &row,
            &key,
            &InstanceKey::default(),
            State::Running
        ));
    }

    #[test]
    fn unknown_state_allows_no_transition() {
        let key = LrpKey::default();
        let row = ActualLrp {
            state: b"LATER".to_vec(),
            ..ActualLrp::default()
        };
        for new in State::ALL {
            assert!(
                !may_enter(&row, &key, &InstanceKey::default(), new),
                "{new:?}"
            );
        }
    }
}
