//! Each call of a cell that is being emptied, for every row that its container may have.

use super::*;

const ROLLING: Option<Desired> = Some(Desired { replacement: Replacement::Rolling, instances: 2, running: 0 });
const RECREATE: Desired = Desired { replacement: Replacement::Recreate, instances: 2, running: 2 };

type Call = fn(&mut Slot, &InstanceKey) -> Result<Evacuated, Refusal>;

fn gone() -> Result<Evacuated, Refusal> {
    Ok(Evacuated { keeps_container: false, needs_cell: false })
}

fn stays() -> Result<Evacuated, Refusal> {
    Ok(Evacuated { keeps_container: true, needs_cell: false })
}

fn crash(name: &'static str) -> impl Fn(&mut Slot) -> Result<Evacuated, Refusal> {
    move |slot| slot.evacuate_crashed(&key(), &instance(name), b"why", NOW_NS)
}

fn running(name: &'static str, desired: Option<Desired>) -> impl Fn(&mut Slot) -> Result<Evacuated, Refusal> {
    move |slot| slot.evacuate_running(&container(name), desired, NOW_NS)
}

#[test]
fn a_container_that_stood_in_goes_with_its_row() {
    let slot = crowded(State::Unclaimed);
    let calls: [(&str, Call); 3] = [
        ("claimed", |slot, instance| slot.evacuate_claimed(instance, NOW_NS)),
        ("crashed", |slot, instance| slot.evacuate_crashed(&key(), instance, b"why", NOW_NS)),
        ("stopped", Slot::evacuate_stopped),
    ];
    for (name, call) in calls {
        let old = after(&slot, |slot| call(slot, &instance("old")));
        assert_eq!(old, (Slot { evacuating: None, ..slot.clone() }, gone()), "{name}");
        let lost = after(&slot, |slot| call(slot, &instance("lost")));
        assert_eq!(lost, (Slot { suspect: None, ..slot.clone() }, gone()), "{name}");
        for slot in [&slot, &Slot::default()] {
            refused(slot, Refusal::NotFound, |slot| call(slot, &instance("unknown")));
        }
    }
}

#[test]
fn only_an_old_container_is_removed_as_one() {
    let slot = crowded(State::Running);
    let (removed, said) = after(&slot, |slot| slot.remove_evacuating(&instance("old")));
    assert_eq!((removed, said), (Slot { evacuating: None, ..slot.clone() }, Ok(())));
    for name in ["mine", "lost", "unknown"] {
        refused(&slot, Refusal::NotFound, |slot| slot.remove_evacuating(&instance(name)));
    }
    refused(&Slot::default(), Refusal::NotFound, |slot| slot.remove_evacuating(&instance("old")));
}

#[test]
fn what_was_claimed_waits_for_another_cell() {
    for state in [State::Claimed, State::Running] {
        let slot = crowded(state);
        let (unclaimed, _) = after(&slot, |slot| slot.unclaim(Unclaim::Any, NOW_NS));
        let (found, said) = after(&slot, |slot| slot.evacuate_claimed(&instance("mine"), NOW_NS));
        assert_eq!((found, said), (unclaimed, Ok(Evacuated { keeps_container: false, needs_cell: true })));
    }
    let mut odd = ordinary(State::Claimed);
    odd.ordinary.as_mut().unwrap().state = State::Unclaimed.at_rest();
    refused(&odd, Refusal::CannotBeUnclaimed, |slot| slot.evacuate_claimed(&instance("mine"), NOW_NS));
}

#[test]
fn what_crashed_crashes_as_ever_without_a_new_cell() {
    for state in [State::Claimed, State::Running] {
        let slot = crowded(state);
        let (crashed, _) = after(&slot, |slot| slot.crash(&key(), &instance("mine"), b"why", NOW_NS));
        assert_eq!(after(&slot, crash("mine")), (crashed, gone()), "{state:?}");
    }
    let mut odd = ordinary(State::Claimed);
    odd.ordinary.as_mut().unwrap().state = State::Crashed.at_rest();
    refused(&odd, Refusal::CannotBeCrashed, crash("mine"));
}

#[test]
fn what_was_stopped_is_gone() {
    for state in [State::Claimed, State::Running] {
        let slot = crowded(state);
        let found = after(&slot, |slot| slot.evacuate_stopped(&instance("mine")));
        assert_eq!(found, (Slot { ordinary: None, ..slot }, gone()), "{state:?}");
    }
}

#[test]
fn an_empty_slot_keeps_nothing() {
    for desired in [None, ROLLING, Some(RECREATE)] {
        assert_eq!(after(&Slot::default(), running("mine", desired)), (Slot::default(), gone()));
    }
}

#[test]
fn what_is_replaced_or_not_desired_goes() {
    // By another container that runs, by one that crashed, or by nothing at all.
    let replaced =
        [crowded(State::Running), crowded(State::Crashed), Slot { ordinary: None, ..crowded(State::Running) }];
    for slot in replaced {
        for desired in [None, ROLLING, Some(RECREATE)] {
            let old = after(&slot, running("old", desired));
            assert_eq!(old, (Slot { evacuating: None, ..slot.clone() }, gone()));
            for name in ["lost", "unknown"] {
                assert_eq!(after(&slot, running(name, desired)), (slot.clone(), gone()), "{name}");
            }
        }
    }
    for state in [State::Unclaimed, State::Claimed, State::Running] {
        let slot = crowded(state);
        assert_eq!(after(&slot, running("old", None)), (Slot { evacuating: None, ..slot.clone() }, gone()));
        assert_eq!(after(&slot, running("mine", None)), (slot.clone(), gone()), "{state:?}");
    }
}

#[test]
fn what_is_recreated_goes_once_all_others_run() {
    for state in [State::Claimed, State::Running] {
        let slot = ordinary(state);
        let (unclaimed, _) = after(&slot, |slot| slot.unclaim(Unclaim::Any, NOW_NS));
        let now = Ok(Evacuated { keeps_container: false, needs_cell: true });
        for running_instances in [2, 3] {
            let all = Desired { running: running_instances, ..RECREATE };
            assert_eq!(after(&slot, running("mine", Some(all))), (unclaimed.clone(), now), "{state:?}");
        }
        let none_wanted = Desired { instances: 0, running: 0, ..RECREATE };
        assert_eq!(after(&slot, running("mine", Some(none_wanted))), (unclaimed, now));
        let too_few = Desired { running: 1, ..RECREATE };
        assert_eq!(after(&slot, running("mine", Some(too_few))), (slot.clone(), stays()));
    }
    let slot = crowded(State::Unclaimed);
    assert_eq!(after(&slot, running("old", Some(RECREATE))), (Slot { evacuating: None, ..slot.clone() }, gone()));
    assert_eq!(after(&slot, running("lost", Some(RECREATE))), (Slot { suspect: None, ..slot.clone() }, gone()));
    assert_eq!(after(&slot, running("unknown", Some(RECREATE))), (slot, gone()));
}

#[test]
fn what_is_replaced_in_passing_is_set_aside_and_waits_for_another_cell() {
    for state in [State::Claimed, State::Running] {
        let lost = row(State::Running, Presence::Suspect, "lost");
        let slot = Slot { suspect: Some(lost), ..ordinary(state) };
        let (aside, said) = after(&slot, running("mine", ROLLING));
        assert_eq!(said, Ok(Evacuated { keeps_container: true, needs_cell: true }));
        let (mut expected, _) = after(&slot, |slot| slot.unclaim(Unclaim::Any, NOW_NS));
        let tag = aside.evacuating.as_ref().unwrap().tag.clone();
        let old = ActualLrp { tag, ..container("mine").recorded(Presence::Evacuating, NOW_NS) };
        expected.evacuating = Some(old);
        assert_eq!(aside, expected, "{state:?}");
        assert_eq!(aside.evacuating.unwrap().crash_count, 0);
    }
}

#[test]
fn the_stored_container_is_set_aside_not_the_one_that_the_request_describes() {
    let mut told = container("mine");
    told.net_info = ActualLrpNetInfo::default();
    told.routable = false;
    let (aside, _) = after(&ordinary(State::Running), |slot| slot.evacuate_running(&told, ROLLING, NOW_NS));
    assert_eq!(Container::of(&aside.evacuating.unwrap()), container("mine"));
}

#[test]
fn a_suspect_container_that_turns_up_is_set_aside() {
    for state in [State::Unclaimed, State::Claimed] {
        let slot = Slot { evacuating: None, ..crowded(state) };
        let (aside, said) = after(&slot, running("lost", ROLLING));
        assert_eq!((said, &aside.suspect, &aside.ordinary), (stays(), &None, &slot.ordinary), "{state:?}");
        assert_eq!(Container::of(&aside.evacuating.unwrap()), container("lost"));
    }
}

#[test]
fn a_container_that_no_row_has_is_set_aside_unless_another_one_is() {
    for state in [State::Unclaimed, State::Claimed] {
        let slot = ordinary(state);
        let (aside, said) = after(&slot, running("unknown", ROLLING));
        assert_eq!((said, &aside.ordinary), (stays(), &slot.ordinary));
        let old = aside.evacuating.as_ref().unwrap();
        assert_eq!((Container::of(old), old.tag.index), (container("unknown"), 0));
        assert_eq!(after(&aside, running("unknown", ROLLING)), (aside.clone(), stays()), "asked again");
        let slot = crowded(state);
        assert_eq!(after(&slot, running("unknown", ROLLING)), (slot.clone(), gone()));
    }
}

#[test]
fn an_old_container_that_changed_is_described_anew() {
    let slot = crowded(State::Unclaimed);
    let told = Container {
        key: LrpKey { domain: b"new".to_vec(), ..key() },
        net_info: ActualLrpNetInfo::default(),
        internal_routes: Vec::new(),
        metric_tags: Default::default(),
        routable: false,
        availability_zone: Vec::new(),
        ..container("old")
    };
    let (found, said) = after(&slot, |slot| slot.evacuate_running(&told, ROLLING, NOW_NS));
    let before = slot.evacuating.clone().unwrap();
    let expected = ActualLrp {
        domain: b"new".to_vec(),
        net_info: ActualLrpNetInfo::default(),
        internal_routes: Vec::new(),
        metric_tags: Default::default(),
        since_ns: NOW_NS,
        tag: ModificationTag { epoch: before.tag.epoch.clone(), index: 8 },
        ..before
    };
    assert_eq!((found, said), (Slot { evacuating: Some(expected), ..slot.clone() }, stays()));
    // Tags and routes alone are no reason.
    let told = Container { metric_tags: Default::default(), routable: false, ..container("old") };
    assert_eq!(after(&slot, |slot| slot.evacuate_running(&told, ROLLING, NOW_NS)), (slot, stays()));
}
