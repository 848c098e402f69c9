//! The phases of a replacement, and its transitions in each of them.

mod calls;

use super::*;

const OLD: &[u8] = b"version-1";
const NEW: &[u8] = b"version-2";
const OTHER: &[u8] = b"version-3";
const ROLLING: Option<Desired> = Some(Desired {
    replacement: Replacement::Rolling,
    instances: 1,
    running: 1,
});

fn of(definition: &[u8], state: State, presence: Presence, name: &str) -> ActualLrp {
    let mut row = row(state, presence, name);
    row.definition_id = definition.to_vec();
    row.placement_error.clear();
    row.crash_count = 0;
    row
}

fn ordinary_of(definition: &[u8], state: State) -> Slot {
    Slot {
        ordinary: Some(of(definition, state, Presence::Ordinary, "mine")),
        ..Slot::default()
    }
}

/// The container of one definition, and an instance of another one that replaces it.
fn replaced(old: &[u8], new: &[u8], state: State) -> Slot {
    Slot {
        evacuating: Some(of(old, State::Running, Presence::Evacuating, "old")),
        ..ordinary_of(new, state)
    }
}

#[test]
fn phase_follows_from_the_rows() {
    assert_eq!(Slot::default().phase(NEW, NOW_NS), ReplacementPhase::Empty);
    for (state, phase) in [
        (State::Unclaimed, ReplacementPhase::Pending),
        (State::Claimed, ReplacementPhase::Pending),
        (State::Running, ReplacementPhase::Current),
        (State::Crashed, ReplacementPhase::Failing),
    ] {
        assert_eq!(
            ordinary_of(NEW, state).phase(NEW, NOW_NS),
            phase,
            "{state:?}"
        );
    }
    assert_eq!(
        ordinary_of(OLD, State::Running).phase(NEW, NOW_NS),
        ReplacementPhase::Old
    );
    assert_eq!(
        replaced(OLD, NEW, State::Running).phase(NEW, NOW_NS),
        ReplacementPhase::Replaced
    );
    assert_eq!(
        replaced(NEW, NEW, State::Running).phase(NEW, NOW_NS),
        ReplacementPhase::Current,
        "a cell's own evacuation"
    );
    for state in [State::Unclaimed, State::Claimed, State::Crashed] {
        let phase = replaced(NEW, OLD, state).phase(NEW, NOW_NS);
        assert_eq!(phase, ReplacementPhase::Reverting, "{state:?}");
    }
    let up = replaced(NEW, OLD, State::Running);
    assert_eq!(
        up.phase(NEW, NOW_NS),
        ReplacementPhase::Old,
        "the container in the evacuating row may be stopping"
    );
    for change in [
        |row: &mut ActualLrp| row.routable = false,
        |row: &mut ActualLrp| row.crash_count = 3,
    ] {
        let mut reverting = up.clone();
        change(reverting.ordinary.as_mut().unwrap());
        assert_eq!(reverting.phase(NEW, NOW_NS), ReplacementPhase::Reverting);
    }
}

#[test]
fn instance_that_is_not_routable_or_placed_or_certain_is_not_current() {
    let with = |state, change: fn(&mut ActualLrp)| {
        let mut slot = ordinary_of(NEW, state);
        change(slot.ordinary.as_mut().unwrap());
        slot.phase(NEW, NOW_NS)
    };
    assert_eq!(
        with(State::Running, |row| row.routable = false),
        ReplacementPhase::Pending
    );
    assert_eq!(
        with(State::Unclaimed, |row| row.placement_error =
            b"no room".to_vec()),
        ReplacementPhase::Failing
    );
    assert_eq!(
        with(State::Unclaimed, |row| row.crash_count = 3),
        ReplacementPhase::Failing
    );
    assert_eq!(
        with(State::Claimed, |row| row.crash_count = 3),
        ReplacementPhase::Failing
    );
    assert_eq!(
        with(State::Running, |row| row.crash_count = 3),
        ReplacementPhase::Failing
    );
    assert_eq!(
        with(State::Running, |row| (row.crash_count, row.since_ns) =
            (3, 0)),
        ReplacementPhase::Current
    );
    assert_eq!(
        with(State::Running, |row| row.definition_uncertain = true),
        ReplacementPhase::Old
    );
    assert_eq!(
        with(State::Running, |row| row.state = b"LATER".to_vec()),
        ReplacementPhase::Old
    );
}

#[test]
fn waiting_instances_take_a_new_definition_at_once_and_claimed_ones_become_uncertain() {
    for state in [State::Unclaimed, State::Crashed] {
        let (slot, ()) = after(&ordinary_of(OLD, state), |slot| {
            drop(slot.switch_definition(&OLD.to_vec(), &NEW.to_vec(), NOW_NS))
        });
        let row = slot.ordinary.unwrap();
        assert_eq!(
            (&row.definition_id[..], row.state(), row.crash_count),
            (NEW, Some(State::Unclaimed), 0),
            "{state:?}"
        );
        assert_eq!((row.since_ns, row.tag.index), (NOW_NS, 8));
    }
    for definition in [OLD, NEW] {
        let (slot, ()) = after(&ordinary_of(definition, State::Claimed), |slot| {
            drop(slot.switch_definition(&OLD.to_vec(), &NEW.to_vec(), NOW_NS))
        });
        let row = slot.ordinary.unwrap();
        assert_eq!(
            (&row.definition_id[..], row.definition_uncertain),
            (definition, true)
        );
    }
    let running = replaced(OLD, NEW, State::Running);
    let (slot, ()) = after(&running, |slot| {
        drop(slot.switch_definition(&NEW.to_vec(), &OLD.to_vec(), NOW_NS))
    });
    assert_eq!(slot, running, "what runs is what was claimed");
}

#[test]
fn crashes_before_a_claim_that_a_new_definition_follows_are_not_those_of_the_new_one() {
    let mut claimed = ordinary_of(OLD, State::Claimed);
    claimed.ordinary.as_mut().unwrap().crash_count = 3;
    assert_eq!(claimed.phase(OLD, NOW_NS), ReplacementPhase::Failing);
    let (slot, _) = after(&claimed, |slot| {
        slot.switch_definition(&OLD.to_vec(), &NEW.to_vec(), NOW_NS)
    });
    assert_eq!(slot.phase(NEW, NOW_NS), ReplacementPhase::Pending);
}

/// A cancelled update to the definition `OTHER` is followed by one from `OLD` to `NEW`.
#[test]
fn containers_of_a_third_definition_become_uncertain_ones_of_the_previous_definition() {
    for state in [State::Claimed, State::Running] {
        for presence in Presence::ALL {
            let mut slot = ordinary_of(OLD, State::Running);
            *slot.at_mut(presence) = Some(of(OTHER, state, presence, "other"));
            let (switched, given_up) = after(&slot, |slot| {
                slot.switch_definition(&OLD.to_vec(), &NEW.to_vec(), NOW_NS)
            });
            assert_eq!(given_up, None, "{state:?} {presence:?}");
            let row = switched.at(presence).unwrap();
            assert_eq!(
                (&row.definition_id[..], row.definition_uncertain),
                (OLD, true),
                "{state:?} {presence:?}"
            );
            assert_eq!(
                (row.tag.index, row.since_ns),
                (8, BEFORE_NS),
                "a new revision of a container that goes on"
            );
            assert!(row.is_old(NEW) && row.is_old(OLD) && row.is_old(OTHER));
        }
    }
}

#[test]
fn replaced_container_stays_one_if_its_successor_has_a_third_definition() {
    let slot = replaced(OLD, OTHER, State::Running);
    let old = slot.evacuating.as_ref().unwrap().instance_key();
    assert!(slot.is_replaced(&old));
    let (switched, given_up) = after(&slot, |slot| {
        slot.switch_definition(&OLD.to_vec(), &NEW.to_vec(), NOW_NS)
    });
    assert_eq!(given_up, None);
    assert!(switched.is_replaced(&old));
    for row in switched.rows() {
        assert_eq!(&row.definition_id[..], OLD);
        assert!(row.is_old(NEW) && row.tag.index == 8, "{row:?}");
    }
}

#[test]
fn instance_of_the_current_definition_keeps_its_crashes() {
    let waiting = ordinary_of(NEW, State::Crashed);
    let (slot, ()) = after(&waiting, |slot| slot.take_definition(&NEW.to_vec(), NOW_NS));
    assert_eq!(slot, waiting);
}

#[test]
fn old_container_becomes_the_evacuating_one_and_its_successor_waits() {
    let (slot, began) = after(&ordinary_of(OLD, State::Running), |slot| {
        slot.begin_replacement(&NEW.to_vec(), NOW_NS)
    });
    assert_eq!(began, Ok(()));
    let old = slot.evacuating.clone().unwrap();
    let new = slot.ordinary.clone().unwrap();
    assert_eq!(
        (old.presence(), old.state(), &old.definition_id[..]),
        (Some(Presence::Evacuating), Some(State::Running), OLD)
    );
    assert_eq!(
        (new.state(), &new.definition_id[..], new.crash_count),
        (Some(State::Unclaimed), NEW, 0)
    );
    assert!(new.since_ns > old.since_ns, "as in an evacuation");
    assert!(slot.is_replaced(&instance("mine")) && !slot.is_replaced(&instance("other")));
    assert_eq!(slot.phase(NEW, NOW_NS), ReplacementPhase::Pending);
}

#[test]
fn repeated_calls_of_the_cell_of_a_replaced_container_change_nothing() {
    let pending = replaced(OLD, NEW, State::Unclaimed);
    assert_eq!(
        after(&pending, |slot| slot.claim(&instance("old"), NOW_NS)),
        (pending.clone(), Ok(()))
    );
    assert_eq!(
        after(&pending, |slot| slot.start(
            &container("old"),
            Several,
            NOW_NS
        )),
        (pending.clone(), Ok(()))
    );
}

/// It receives the traffic until its successor does.
#[test]
fn heartbeat_of_a_replaced_container_changes_its_row_alone() {
    let pending = replaced(OLD, NEW, State::Unclaimed);
    for routable in [false, true] {
        let heartbeat = Container {
            routable,
            ..container("old")
        };
        let (slot, started) = after(&pending, |slot| slot.start(&heartbeat, Several, NOW_NS));
        assert_eq!((started, slot.ordinary), (Ok(()), pending.ordinary.clone()));
        assert_eq!(slot.evacuating.map(|row| row.routable), Some(routable));
    }
}

/// Its successor was removed by a call.
#[test]
fn heartbeat_of_a_replaced_container_without_a_successor_makes_it_the_managed_one() {
    for (is_uncertain, routable) in [(false, true), (true, true), (true, false)] {
        let heartbeat = Container {
            routable,
            ..container("old")
        };
        let mut alone = replaced(OLD, NEW, State::Unclaimed);
        alone.ordinary = None;
        alone.evacuating.as_mut().unwrap().definition_uncertain = is_uncertain;
        let (slot, started) = after(&alone, |slot| slot.start(&heartbeat, Several, NOW_NS));
        let row = slot.ordinary.unwrap();
        assert_eq!(
            (started, &row.definition_id[..], row.definition_uncertain),
            (Ok(()), OLD, is_uncertain)
        );
        assert_eq!(slot.evacuating, None, "the same container");
    }
}

#[test]
fn replaced_container_is_the_managed_one_once_its_waiting_successor_is_not_desired() {
    for state in [State::Unclaimed, State::Crashed] {
        let (slot, ()) = after(&replaced(OLD, NEW, state), Slot::delete_waiting);
        let row = slot.ordinary.unwrap();
        assert_eq!(
            (row.presence(), row.instance_key(), row.tag.index),
            (Some(Presence::Ordinary), instance("old"), 8),
            "{state:?}"
        );
        assert_eq!(slot.evacuating, None);
    }
    for state in [State::Claimed, State::Running] {
        let slot = replaced(OLD, NEW, state);
        assert_eq!(after(&slot, Slot::delete_waiting), (slot, ()));
    }
    // A cell evacuates its container by itself.
    let evacuated = replaced(NEW, NEW, State::Unclaimed);
    let (slot, ()) = after(&evacuated, Slot::delete_waiting);
    assert_eq!(
        (slot.ordinary, slot.evacuating),
        (None, evacuated.evacuating)
    );
}

#[test]
fn replaced_container_without_a_successor_is_removed_and_an_evacuated_one_is_not() {
    let alone = |definition| Slot {
        ordinary: None,
        ..replaced(definition, NEW, State::Unclaimed)
    };
    let remove = |slot: &mut Slot| slot.remove_without_successor(&instance("old"), NEW);
    assert_eq!(after(&alone(OLD), remove), (Slot::default(), Ok(())));
    for definition in [NEW, b""] {
        rejected(&alone(definition), SlotError::NotFound, remove);
    }
    rejected(
        &replaced(OLD, NEW, State::Running),
        SlotError::NotFound,
        remove,
    );
    rejected(&alone(OLD), SlotError::NotFound, |slot| {
        slot.remove_without_successor(&instance("other"), NEW)
    });
}

#[test]
fn containers_are_those_that_no_cell_evacuates_by_itself() {
    let names = |slot: &Slot| {
        let guids = slot.containers().map(|row| row.instance_guid.clone());
        guids.collect::<Vec<_>>()
    };
    assert_eq!(names(&replaced(OLD, NEW, State::Unclaimed)), [b"old"]);
    let running = replaced(OLD, NEW, State::Running);
    assert_eq!(names(&running), [&b"mine"[..], b"old"]);
    assert_eq!(names(&replaced(NEW, NEW, State::Running)), [b"mine"]);
}

/// It may be one of a cancelled update, whose cell has not stopped it yet.
#[test]
fn container_that_claimed_nothing_takes_over_once_it_is_routable() {
    let mut slot = replaced(OLD, OLD, State::Claimed);
    slot.suspect = Some(of(OLD, State::Running, Presence::Suspect, "lost"));
    let other = Container {
        routable: false,
        ..container("other")
    };
    let (started, result) = after(&slot, |slot| slot.start(&other, Several, NOW_NS));
    assert_eq!(
        (result, &started.evacuating, &started.suspect),
        (Ok(()), &slot.evacuating, &slot.suspect)
    );
    assert_eq!(
        started.ordinary.as_ref().unwrap().instance_key(),
        instance("other")
    );

    let (_, evacuated) = after(&started, |slot| {
        slot.evacuate_running(&container("old"), Several, ROLLING, NOW_NS)
    });
    assert!(evacuated.unwrap().keeps_container);
    assert_eq!(
        Slot {
            suspect: None,
            ..started.clone()
        }
        .phase(OLD, NOW_NS),
        ReplacementPhase::Reverting
    );

    let routable = Container {
        routable: true,
        ..other
    };
    let (slot, _) = after(&started, |slot| slot.start(&routable, Several, NOW_NS));
    assert_eq!((slot.evacuating, slot.suspect), (None, None));

    let mine = Container {
        routable: false,
        ..container("mine")
    };
    let (slot, _) = after(&replaced(OLD, OLD, State::Claimed), |slot| {
        slot.start(&mine, Several, NOW_NS)
    });
    assert_eq!(slot.evacuating, None, "it claimed the instance");
}

/// They may be in different zones, and only one of them may receive traffic.
#[test]
fn successor_whose_cell_is_evacuated_gets_a_row_of_its_own_and_the_replaced_container_goes() {
    for presence in [Presence::Ordinary, Presence::Suspect] {
        let mut slot = replaced(OLD, NEW, State::Unclaimed);
        *slot.at_mut(presence) = Some(of(NEW, State::Running, presence, "mine"));
        let old = slot.evacuating.as_mut().unwrap();
        (old.routable, old.availability_zone) = (false, b"other".to_vec());
        let (evacuated, result) = after(&slot, |slot| {
            slot.evacuate_running(&container("mine"), Several, ROLLING, NOW_NS)
        });
        let expected = Evacuated {
            keeps_container: true,
            needs_cell: presence == Presence::Ordinary,
            given_up: slot.evacuating,
        };
        assert_eq!(result, Ok(expected), "{presence:?}");
        let row = evacuated.evacuating.unwrap();
        assert_eq!(Container::of(&row), container("mine"), "{presence:?}");
        assert_eq!(
            (&row.definition_id[..], row.definition_uncertain),
            (NEW, false)
        );
        assert_eq!(evacuated.suspect, None);
        let waits = evacuated.ordinary.unwrap();
        assert_eq!(
            (waits.state(), &waits.definition_id[..]),
            (Some(State::Unclaimed), NEW)
        );
    }
}

/// The replaced container has the traffic. A claimed instance may have been routable in an earlier
/// container.
#[test]
fn successor_without_traffic_goes_if_its_cell_is_evacuated() {
    for (state, routable) in [(State::Running, false), (State::Claimed, true)] {
        for presence in [Presence::Ordinary, Presence::Suspect] {
            let mut successor = of(NEW, state, presence, "mine");
            successor.routable = routable;
            let mut slot = replaced(OLD, NEW, State::Unclaimed);
            *slot.at_mut(presence) = Some(successor);
            let (evacuated, result) = after(&slot, |slot| {
                slot.evacuate_running(&container("mine"), Several, ROLLING, NOW_NS)
            });
            let expected = Evacuated {
                keeps_container: false,
                needs_cell: presence == Presence::Ordinary,
                given_up: None,
            };
            assert_eq!(result, Ok(expected), "{state:?} {presence:?}");
            assert_eq!(evacuated.evacuating, slot.evacuating);
            assert_eq!(evacuated.suspect, None);
            assert_eq!(evacuated.ordinary.unwrap().state(), Some(State::Unclaimed));
        }
    }
}

#[test]
fn only_an_old_container_that_runs_is_replaced() {
    for state in [State::Unclaimed, State::Claimed, State::Crashed] {
        rejected(&ordinary_of(OLD, state), SlotError::NotFound, |slot| {
            slot.begin_replacement(&NEW.to_vec(), NOW_NS)
        });
    }
    rejected(
        &ordinary_of(NEW, State::Running),
        SlotError::NotFound,
        |slot| slot.begin_replacement(&NEW.to_vec(), NOW_NS),
    );
    rejected(
        &replaced(OLD, OLD, State::Running),
        SlotError::Exists,
        |slot| slot.begin_replacement(&NEW.to_vec(), NOW_NS),
    );
}

#[test]
fn cancelled_replacement_puts_the_container_back_and_gives_up_its_successor() {
    for state in State::ALL {
        let mut pending = replaced(NEW, OLD, state);
        pending.ordinary.as_mut().unwrap().routable = false;
        let (slot, given_up) = after(&pending, |slot| {
            slot.revert_replacement(&NEW.to_vec(), NOW_NS)
        });
        let has_container = matches!(state, State::Claimed | State::Running);
        assert_eq!(given_up.unwrap().is_some(), has_container, "{state:?}");
        let row = slot.ordinary.as_ref().unwrap();
        assert_eq!(
            (row.presence(), &row.definition_id[..]),
            (Some(Presence::Ordinary), NEW)
        );
        assert_eq!(
            (slot.evacuating.is_none(), slot.phase(NEW, NOW_NS)),
            (true, ReplacementPhase::Current),
            "{state:?}"
        );
    }
    let up = replaced(NEW, OLD, State::Running);
    rejected(&up, SlotError::NotFound, |slot| {
        slot.revert_replacement(&NEW.to_vec(), NOW_NS)
    });
}

/// A crash counts as the first one after it has run for long enough.
#[test]
fn container_that_goes_on_keeps_its_time_while_it_is_replaced_and_put_back() {
    let mut running = ordinary_of(OLD, State::Running);
    let row = running.ordinary.as_mut().unwrap();
    (row.crash_count, row.since_ns) = (3, 0);
    let (pending, began) = after(&running, |slot| {
        slot.begin_replacement(&NEW.to_vec(), NOW_NS)
    });
    assert_eq!(began, Ok(()));
    let (reverted, _) = after(&pending, |slot| {
        slot.revert_replacement(&OLD.to_vec(), NOW_NS).unwrap()
    });
    let (kept, ()) = after(&pending, Slot::delete_waiting);
    for slot in [reverted, kept] {
        assert_eq!(slot.phase(OLD, NOW_NS), ReplacementPhase::Current);
        let row = slot.ordinary.unwrap();
        assert_eq!((row.since_ns, row.tag.index), (0, 9));
    }
}

#[test]
fn successor_is_newer_than_the_replaced_container_also_if_the_clock_went_back() {
    let running = ordinary_of(OLD, State::Running);
    for now_ns in [NOW_NS, BEFORE_NS, BEFORE_NS - 1] {
        let (slot, _) = after(&running, |slot| {
            slot.begin_replacement(&NEW.to_vec(), now_ns)
        });
        let [new, old] = [slot.ordinary, slot.evacuating].map(Option::unwrap);
        assert!(new.since_ns > old.since_ns, "{now_ns}");
    }
}

/// The cell of a successor is gone before the replacement is cancelled, and returns.
#[test]
fn successor_on_a_cell_that_is_gone_does_not_displace_the_container_that_was_put_back() {
    for state in [State::Claimed, State::Running] {
        let lost = of(OLD, state, Presence::Suspect, "lost");
        let pending = Slot {
            suspect: Some(lost),
            ..replaced(NEW, OLD, State::Unclaimed)
        };
        let (slot, _) = after(&pending, |slot| {
            slot.revert_replacement(&NEW.to_vec(), NOW_NS).unwrap()
        });
        assert_eq!(slot.suspect, None, "{state:?}");
        rejected(&slot, SlotError::NotFound, Slot::promote);
    }
}
