//! Each transition of one instance, in every state.

use super::*;

const STATES: [State; 4] = State::ALL;
const FIVE_MINUTES_NS: i64 = 5 * 60 * 1_000_000_000;

/// Asserts by state, in the order of `State::ALL`, whether a transition is allowed.
#[track_caller]
fn allowed<T: std::fmt::Debug + PartialEq>(
    expected: [bool; 4],
    refusal: SlotError,
    call: impl Fn(&mut Slot) -> Result<T, SlotError>,
) {
    for (state, expected) in STATES.into_iter().zip(expected) {
        for slot in [ordinary(state), crowded(state)] {
            if expected {
                let (_, result) = after(&slot, &call);
                assert!(result.is_ok(), "{state:?}: {result:?}");
            } else {
                rejected(&slot, refusal, &call);
            }
        }
    }
}

#[test]
fn claim_is_allowed_by_state_and_key() {
    allowed(
        [true, true, true, false],
        SlotError::CannotBeClaimed,
        |slot| slot.claim(&instance("mine"), NOW_NS),
    );
    allowed(
        [true, false, false, false],
        SlotError::CannotBeClaimed,
        |slot| slot.claim(&instance("other"), NOW_NS),
    );
    rejected(&Slot::default(), SlotError::NotFound, |slot| {
        slot.claim(&instance("mine"), NOW_NS)
    });
}

#[test]
fn repeated_claim_makes_no_new_revision() {
    let (claimed, result) = after(&ordinary(State::Claimed), |slot| {
        slot.claim(&instance("mine"), NOW_NS)
    });
    assert_eq!((claimed, result), (ordinary(State::Claimed), Ok(())));
}

#[test]
fn claim_sets_the_container_and_clears_the_placement_error() {
    for state in [State::Unclaimed, State::Running] {
        let slot = crowded(state);
        let (claimed, result) = after(&slot, |slot| slot.claim(&instance("mine"), NOW_NS));
        let mut expected = slot.clone();
        let before = slot.ordinary.unwrap();
        expected.ordinary = Some(ActualLrp {
            state: b"CLAIMED".to_vec(),
            instance_guid: b"mine".to_vec(),
            cell_id: b"cell-of-mine".to_vec(),
            placement_error: Vec::new(),
            net_info: ActualLrpNetInfo::default(),
            since_ns: NOW_NS,
            tag: ModificationTag {
                epoch: before.tag.epoch.clone(),
                index: 8,
            },
            ..before
        });
        assert_eq!((claimed, result), (expected, Ok(())), "{state:?}");
    }
}

#[test]
fn start_is_allowed_by_state_and_key() {
    let start = |name| move |slot: &mut Slot| slot.start(&container(name), Several, NOW_NS);
    allowed(
        [true, true, true, false],
        SlotError::CannotBeStarted,
        start("mine"),
    );
    allowed(
        [true, true, false, false],
        SlotError::CannotBeStarted,
        start("other"),
    );
    let elsewhere = Container {
        key: LrpKey {
            domain: b"other".to_vec(),
            ..key()
        },
        ..container("mine")
    };
    allowed([false; 4], SlotError::CannotBeStarted, |slot| {
        slot.start(&elsewhere, Several, NOW_NS)
    });
}

#[test]
fn start_removes_evacuating_and_suspect_rows() {
    for state in [State::Unclaimed, State::Claimed] {
        let slot = crowded(state);
        let (started, result) = after(&slot, |slot| {
            slot.start(&container("mine"), Several, NOW_NS)
        });
        let before = slot.ordinary.unwrap();
        let expected = ActualLrp {
            state: b"RUNNING".to_vec(),
            placement_error: Vec::new(),
            since_ns: NOW_NS,
            tag: ModificationTag {
                epoch: before.tag.epoch.clone(),
                index: 8,
            },
            crash_count: 4,
            crash_reason: b"earlier".to_vec(),
            definition_uncertain: state == State::Unclaimed,
            ..container("mine").recorded(Presence::Ordinary, Several, NOW_NS)
        };
        assert_eq!(
            (started, result),
            (
                Slot {
                    ordinary: Some(expected),
                    ..Slot::default()
                },
                Ok(())
            ),
            "{state:?}"
        );
    }
}

#[test]
fn start_without_a_row_creates_one() {
    let stand_ins = Slot {
        ordinary: None,
        ..crowded(State::Running)
    };
    for slot in [Slot::default(), stand_ins] {
        let (started, result) = after(&slot, |slot| {
            slot.start(&container("mine"), Several, NOW_NS)
        });
        let row = started.ordinary.clone().unwrap();
        let expected = ActualLrp {
            tag: row.tag.clone(),
            ..container("mine").recorded(Presence::Ordinary, Several, NOW_NS)
        };
        assert_eq!(
            (started, result),
            (
                Slot {
                    ordinary: Some(expected),
                    ..Slot::default()
                },
                Ok(())
            )
        );
        assert_eq!(
            (row.tag.index, row.tag.epoch.len(), row.crash_count),
            (0, 36, 0)
        );
    }
}

#[test]
fn heartbeat_changes_nothing_and_each_difference_makes_a_revision() {
    let slot = ordinary(State::Running);
    assert_eq!(
        after(&slot, |slot| slot.start(
            &container("mine"),
            Several,
            NOW_NS
        )),
        (slot.clone(), Ok(()))
    );
    // The evacuating and the suspect row are removed all the same.
    let (cleared, _) = after(&crowded(State::Running), |slot| {
        slot.start(&container("mine"), Several, NOW_NS)
    });
    assert_eq!(cleared, slot);
    let different = [
        Container {
            net_info: ActualLrpNetInfo::default(),
            ..container("mine")
        },
        Container {
            internal_routes: Vec::new(),
            ..container("mine")
        },
        Container {
            metric_tags: Default::default(),
            ..container("mine")
        },
        Container {
            routable: false,
            ..container("mine")
        },
        Container {
            availability_zone: b"z2".to_vec(),
            ..container("mine")
        },
    ];
    for container in different {
        let (changed, result) = after(&slot, |slot| slot.start(&container, Several, NOW_NS));
        let row = changed.ordinary.unwrap();
        assert_eq!(
            (result, row.tag.index, row.since_ns),
            (Ok(()), 8, NOW_NS),
            "{container:?}"
        );
        assert_eq!(Container::of(&row), container);
    }
}

#[test]
fn crash_is_allowed_by_state_and_key() {
    let crash = |name| move |slot: &mut Slot| slot.crash(&instance(name), b"why", NOW_NS);
    allowed(
        [false, true, true, false],
        SlotError::CannotBeCrashed,
        crash("mine"),
    );
    allowed([false; 4], SlotError::CannotBeCrashed, crash("other"));
    rejected(&Slot::default(), SlotError::NotFound, crash("mine"));
    rejected(
        &Slot {
            ordinary: None,
            ..crowded(State::Running)
        },
        SlotError::NotFound,
        crash("old"),
    );
}

#[test]
fn crashes_are_counted_and_the_first_two_restart_at_once() {
    // State, count and duration before; count and effect after.
    let cases = [
        (State::Running, 0, 1, 1, Crashed::Unclaimed),
        (State::Running, 1, 1, 2, Crashed::Unclaimed),
        (State::Running, 2, 1, 3, Crashed::Waits),
        (State::Running, 199, FIVE_MINUTES_NS, 200, Crashed::Waits),
        (
            State::Running,
            199,
            FIVE_MINUTES_NS + 1,
            1,
            Crashed::Unclaimed,
        ),
        (
            State::Claimed,
            1,
            FIVE_MINUTES_NS + 1,
            2,
            Crashed::Unclaimed,
        ),
        (State::Claimed, 2, FIVE_MINUTES_NS + 1, 3, Crashed::Waits),
        (State::Running, i32::MAX, 1, i32::MAX, Crashed::Waits),
    ];
    for (state, before, lasted_ns, count, crashed) in cases {
        let mut slot = crowded(state);
        let row = slot.ordinary.as_mut().unwrap();
        (row.crash_count, row.since_ns) = (before, NOW_NS - lasted_ns);
        let before = row.clone();
        let (found, result) = after(&slot, |slot| slot.crash(&instance("mine"), b"why", NOW_NS));
        let state = if crashed == Crashed::Waits {
            State::Crashed
        } else {
            State::Unclaimed
        };
        let expected = ActualLrp {
            state: state.at_rest(),
            instance_guid: Vec::new(),
            cell_id: Vec::new(),
            net_info: ActualLrpNetInfo::default(),
            crash_count: count,
            crash_reason: b"why".to_vec(),
            since_ns: NOW_NS,
            tag: ModificationTag {
                epoch: before.tag.epoch.clone(),
                index: 8,
            },
            ..before
        };
        assert_eq!(
            (found, result),
            (
                Slot {
                    ordinary: Some(expected),
                    ..slot
                },
                Ok(crashed)
            )
        );
    }
}

#[test]
fn calls_of_a_suspect_container_do_not_touch_the_managed_row() {
    for state in STATES {
        let slot = crowded(state);
        assert_eq!(
            after(&slot, |slot| slot.claim(&instance("lost"), NOW_NS)),
            (slot.clone(), Ok(()))
        );
        assert_eq!(
            after(&slot, |slot| slot.start(
                &container("lost"),
                Several,
                NOW_NS
            )),
            (slot.clone(), Ok(()))
        );
        let (crashed, result) = after(&slot, |slot| slot.crash(&instance("lost"), b"why", NOW_NS));
        assert_eq!(
            (crashed, result),
            (
                Slot {
                    suspect: None,
                    ..slot
                },
                Ok(Crashed::Gone)
            )
        );
    }
}

#[test]
fn only_a_waiting_instance_can_fail_to_be_placed() {
    allowed(
        [true, false, false, false],
        SlotError::CannotBeFailed,
        |slot| slot.fail(b"no room", NOW_NS),
    );
    assert_eq!(
        after(&Slot::default(), |slot| slot.fail(b"no room", NOW_NS)),
        (Slot::default(), Ok(()))
    );
    let slot = crowded(State::Unclaimed);
    let (failed, _) = after(&slot, |slot| slot.fail(b"no zone", NOW_NS));
    let before = slot.ordinary.clone().unwrap();
    let tag = ModificationTag {
        epoch: before.tag.epoch.clone(),
        index: 8,
    };
    let expected = ActualLrp {
        placement_error: b"no zone".to_vec(),
        since_ns: NOW_NS,
        tag,
        ..before
    };
    assert_eq!(
        failed,
        Slot {
            ordinary: Some(expected),
            ..slot
        }
    );
}

#[test]
fn remove_is_allowed_by_instance_key() {
    let gone = |slot: &Slot| Slot {
        ordinary: None,
        ..slot.clone()
    };
    for state in STATES {
        let slot = crowded(state);
        let mine = instance("mine");
        let none = InstanceKey::default();
        let other = instance("other");
        let has_container = matches!(state, State::Claimed | State::Running);
        assert_eq!(
            after(&slot, |slot| slot.remove(None)),
            (gone(&slot), Ok(()))
        );
        let (meant, not_meant) = if has_container {
            (&mine, &none)
        } else {
            (&none, &mine)
        };
        assert_eq!(
            after(&slot, |slot| slot.remove(Some(meant))),
            (gone(&slot), Ok(()))
        );
        for instance in [not_meant, &other, &instance("old"), &instance("lost")] {
            rejected(&slot, SlotError::NotFound, |slot| {
                slot.remove(Some(instance))
            });
        }
        let half = InstanceKey {
            cell_id: b"cell-of-other".to_vec(),
            ..mine
        };
        rejected(&slot, SlotError::NotFound, |slot| slot.remove(Some(&half)));
        rejected(&gone(&slot), SlotError::NotFound, |slot| slot.remove(None));
    }
}

#[test]
fn retire_leaves_an_instance_with_a_container_to_its_cell() {
    for state in STATES {
        let slot = crowded(state);
        let (retired, result) = after(&slot, Slot::retire);
        if matches!(state, State::Unclaimed | State::Crashed) {
            assert_eq!(
                (retired, result),
                (
                    Slot {
                        ordinary: None,
                        ..slot
                    },
                    Ok(Retired::Removed)
                )
            );
        } else {
            let row = slot.ordinary.clone().unwrap();
            assert_eq!(
                (retired, result),
                (slot, Ok(Retired::HasContainer(Box::new(row))))
            );
        }
    }
    rejected(&Slot::default(), SlotError::NotFound, Slot::retire);
}

#[test]
fn unclaim_is_allowed_by_state() {
    allowed(
        [false, true, true, true],
        SlotError::CannotBeUnclaimed,
        |slot| slot.unclaim(Unclaim::Any, NOW_NS),
    );
    allowed(
        [false, false, true, true],
        SlotError::CannotBeUnclaimed,
        |slot| slot.unclaim(Unclaim::Stale, NOW_NS),
    );
    rejected(&Slot::default(), SlotError::NotFound, |slot| {
        slot.unclaim(Unclaim::Any, NOW_NS)
    });
    let slot = crowded(State::Running);
    let (unclaimed, _) = after(&slot, |slot| slot.unclaim(Unclaim::Any, NOW_NS));
    let before = slot.ordinary.clone().unwrap();
    let expected = ActualLrp {
        state: b"UNCLAIMED".to_vec(),
        instance_guid: Vec::new(),
        cell_id: Vec::new(),
        net_info: ActualLrpNetInfo::default(),
        since_ns: NOW_NS,
        tag: ModificationTag {
            epoch: before.tag.epoch.clone(),
            index: 8,
        },
        ..before
    };
    assert_eq!(
        unclaimed,
        Slot {
            ordinary: Some(expected),
            ..slot
        }
    );
}

#[test]
fn create_needs_a_slot_without_a_managed_row() {
    allowed([false; 4], SlotError::Exists, |slot| {
        slot.create_unclaimed(&key(), NOW_NS)
    });
    let slot = Slot {
        ordinary: None,
        ..crowded(State::Running)
    };
    let (created, result) = after(&slot, |slot| slot.create_unclaimed(&key(), NOW_NS));
    let row = created.ordinary.clone().unwrap();
    assert_eq!(
        (row.state(), row.tag.index, row.since_ns, row.key()),
        (Some(State::Unclaimed), 0, NOW_NS, key())
    );
    assert_eq!(
        (created, result),
        (
            Slot {
                ordinary: Some(row),
                ..slot
            },
            Ok(())
        )
    );
}

#[test]
fn suspect_container_is_promoted_to_the_row_that_it_was() {
    for state in STATES {
        let slot = ordinary(state);
        let (suspect, result) = after(&slot, Slot::suspect);
        let row = slot.ordinary.clone().unwrap();
        let expected = ActualLrp {
            presence: Presence::Suspect as i32,
            ..row.clone()
        };
        assert_eq!(
            (&suspect, result),
            (
                &Slot {
                    suspect: Some(expected),
                    ..Slot::default()
                },
                Ok(())
            )
        );
        assert_eq!(after(&suspect, Slot::promote), (slot, Ok(())));
        rejected(&crowded(state), SlotError::Exists, Slot::suspect);
        // Its replacement is dropped.
        let (promoted, _) = after(&crowded(state), Slot::promote);
        let lost = ActualLrp {
            presence: 0,
            ..crowded(state).suspect.unwrap()
        };
        assert_eq!(
            promoted,
            Slot {
                ordinary: Some(lost),
                suspect: None,
                ..crowded(state)
            }
        );
        rejected(&ordinary(state), SlotError::NotFound, Slot::promote);
    }
    rejected(&Slot::default(), SlotError::NotFound, Slot::suspect);
}

#[test]
fn unknown_state_allows_no_transition() {
    let mut slot = ordinary(State::Running);
    slot.ordinary.as_mut().unwrap().state = b"LATER".to_vec();
    rejected(&slot, SlotError::CannotBeClaimed, |slot| {
        slot.claim(&instance("mine"), NOW_NS)
    });
    rejected(&slot, SlotError::CannotBeStarted, |slot| {
        slot.start(&container("mine"), Several, NOW_NS)
    });
    rejected(&slot, SlotError::CannotBeCrashed, |slot| {
        slot.crash(&instance("mine"), b"", NOW_NS)
    });
    rejected(&slot, SlotError::CannotBeFailed, |slot| {
        slot.fail(b"", NOW_NS)
    });
    rejected(&slot, SlotError::CannotBeUnclaimed, |slot| {
        slot.unclaim(Unclaim::Any, NOW_NS)
    });
    assert!(matches!(
        slot.clone().retire(),
        Ok(Retired::HasContainer(_))
    ));
}

#[test]
fn rows_are_grouped_into_slots_by_index() {
    let mut other = row(State::Running, Presence::Ordinary, "other");
    other.index = 5;
    let unknown = ActualLrp {
        presence: 9,
        ..other.clone()
    };
    let whole = crowded(State::Claimed);
    let rows = whole
        .rows()
        .cloned()
        .chain([other.clone(), unknown.clone()]);
    let slots = Slot::by_index(rows);
    assert_eq!(slots.keys().collect::<Vec<_>>(), [&3, &5]);
    assert_eq!((&*slots[&3], &slots[&5].ordinary), (&whole, &Some(other)));
    assert!(Slot::of([unknown]).is_empty());
    assert_eq!(
        whole.presence_of(&instance("old")),
        Some(Presence::Evacuating)
    );
    assert_eq!(whole.presence_of(&instance("none")), None);
}
