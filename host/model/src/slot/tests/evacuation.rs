//! Each evacuation call, for every row that its container may have.

use super::*;

const ROLLING: Option<Desired> = Some(Desired {
    replacement: Replacement::Rolling,
    instances: 2,
    running: 0,
});
const RECREATE: Desired = Desired {
    replacement: Replacement::Recreate,
    instances: 2,
    running: 2,
};

type EvacuationFn = fn(&mut Slot, &InstanceKey) -> Result<Evacuated, SlotError>;

fn gone() -> Result<Evacuated, SlotError> {
    Ok(Evacuated {
        keeps_container: false,
        needs_cell: false,
        given_up: None,
    })
}

fn stays() -> Result<Evacuated, SlotError> {
    Ok(Evacuated {
        keeps_container: true,
        needs_cell: false,
        given_up: None,
    })
}

fn crash(name: &'static str) -> impl Fn(&mut Slot) -> Result<Evacuated, SlotError> {
    move |slot| slot.evacuate_crashed(&instance(name), b"why", NOW_NS)
}

fn running(
    name: &'static str,
    desired: Option<Desired>,
) -> impl Fn(&mut Slot) -> Result<Evacuated, SlotError> {
    move |slot| slot.evacuate_running(&container(name), Several, desired, NOW_NS)
}

#[test]
fn evacuating_and_suspect_containers_go_with_their_row() {
    let slot = crowded(State::Unclaimed);
    let calls: [(&str, EvacuationFn); 3] = [
        ("claimed", |slot, instance| {
            slot.evacuate_claimed(instance, NOW_NS)
        }),
        ("crashed", |slot, instance| {
            slot.evacuate_crashed(instance, b"why", NOW_NS)
        }),
        ("stopped", Slot::evacuate_stopped),
    ];
    for (name, call) in calls {
        let old = after(&slot, |slot| call(slot, &instance("old")));
        assert_eq!(
            old,
            (
                Slot {
                    evacuating: None,
                    ..slot.clone()
                },
                gone()
            ),
            "{name}"
        );
        let lost = after(&slot, |slot| call(slot, &instance("lost")));
        assert_eq!(
            lost,
            (
                Slot {
                    suspect: None,
                    ..slot.clone()
                },
                gone()
            ),
            "{name}"
        );
        for slot in [&slot, &Slot::default()] {
            rejected(slot, SlotError::NotFound, |slot| {
                call(slot, &instance("unknown"))
            });
        }
    }
}

#[test]
fn remove_evacuating_removes_evacuating_rows_only() {
    let slot = crowded(State::Running);
    let (removed, result) = after(&slot, |slot| slot.remove_evacuating(&instance("old")));
    assert_eq!(
        (removed, result),
        (
            Slot {
                evacuating: None,
                ..slot.clone()
            },
            Ok(())
        )
    );
    for name in ["mine", "lost", "unknown"] {
        rejected(&slot, SlotError::NotFound, |slot| {
            slot.remove_evacuating(&instance(name))
        });
    }
    rejected(&Slot::default(), SlotError::NotFound, |slot| {
        slot.remove_evacuating(&instance("old"))
    });
}

#[test]
fn claimed_container_is_unclaimed_and_needs_a_cell() {
    for state in [State::Claimed, State::Running] {
        let slot = crowded(state);
        let (unclaimed, _) = after(&slot, |slot| slot.unclaim(Unclaim::Any, NOW_NS));
        let (found, result) = after(&slot, |slot| {
            slot.evacuate_claimed(&instance("mine"), NOW_NS)
        });
        assert_eq!(
            (found, result),
            (
                unclaimed,
                Ok(Evacuated {
                    keeps_container: false,
                    needs_cell: true,
                    given_up: None,
                })
            )
        );
    }
    let mut odd = ordinary(State::Claimed);
    odd.ordinary.as_mut().unwrap().state = State::Unclaimed.at_rest();
    rejected(&odd, SlotError::CannotBeUnclaimed, |slot| {
        slot.evacuate_claimed(&instance("mine"), NOW_NS)
    });
}

#[test]
fn crashed_container_crashes_as_usual_without_a_new_cell() {
    for state in [State::Claimed, State::Running] {
        let slot = crowded(state);
        let (crashed, _) = after(&slot, |slot| slot.crash(&instance("mine"), b"why", NOW_NS));
        assert_eq!(after(&slot, crash("mine")), (crashed, gone()), "{state:?}");
    }
    let mut odd = ordinary(State::Claimed);
    odd.ordinary.as_mut().unwrap().state = State::Crashed.at_rest();
    rejected(&odd, SlotError::CannotBeCrashed, crash("mine"));
}

#[test]
fn stopped_container_is_removed() {
    for state in [State::Claimed, State::Running] {
        let slot = crowded(state);
        let found = after(&slot, |slot| slot.evacuate_stopped(&instance("mine")));
        assert_eq!(
            found,
            (
                Slot {
                    ordinary: None,
                    ..slot
                },
                gone()
            ),
            "{state:?}"
        );
    }
}

#[test]
fn empty_slot_keeps_no_container() {
    for desired in [None, ROLLING, Some(RECREATE)] {
        assert_eq!(
            after(&Slot::default(), running("mine", desired)),
            (Slot::default(), gone())
        );
    }
}

#[test]
fn replaced_or_undesired_container_is_not_kept() {
    // Replaced by a running container or a crashed one, or without a managed row.
    let replaced = [
        crowded(State::Running),
        crowded(State::Crashed),
        Slot {
            ordinary: None,
            ..crowded(State::Running)
        },
    ];
    for slot in replaced {
        for desired in [None, ROLLING, Some(RECREATE)] {
            let old = after(&slot, running("old", desired));
            assert_eq!(
                old,
                (
                    Slot {
                        evacuating: None,
                        ..slot.clone()
                    },
                    gone()
                )
            );
            for name in ["lost", "unknown"] {
                assert_eq!(
                    after(&slot, running(name, desired)),
                    (slot.clone(), gone()),
                    "{name}"
                );
            }
        }
    }
    for state in [State::Unclaimed, State::Claimed, State::Running] {
        let slot = crowded(state);
        assert_eq!(
            after(&slot, running("old", None)),
            (
                Slot {
                    evacuating: None,
                    ..slot.clone()
                },
                gone()
            )
        );
        assert_eq!(
            after(&slot, running("mine", None)),
            (slot.clone(), gone()),
            "{state:?}"
        );
    }
}

#[test]
fn recreated_container_goes_once_all_others_run() {
    for state in [State::Claimed, State::Running] {
        let slot = ordinary(state);
        let (unclaimed, _) = after(&slot, |slot| slot.unclaim(Unclaim::Any, NOW_NS));
        let now = Ok(Evacuated {
            keeps_container: false,
            needs_cell: true,
            given_up: None,
        });
        for running_instances in [2, 3] {
            let all = Desired {
                running: running_instances,
                ..RECREATE
            };
            assert_eq!(
                after(&slot, running("mine", Some(all))),
                (unclaimed.clone(), now.clone()),
                "{state:?}"
            );
        }
        let none_wanted = Desired {
            instances: 0,
            running: 0,
            ..RECREATE
        };
        assert_eq!(
            after(&slot, running("mine", Some(none_wanted))),
            (unclaimed, now)
        );
        let too_few = Desired {
            running: 1,
            ..RECREATE
        };
        assert_eq!(
            after(&slot, running("mine", Some(too_few))),
            (slot.clone(), stays())
        );
    }
    let slot = crowded(State::Unclaimed);
    assert_eq!(
        after(&slot, running("old", Some(RECREATE))),
        (
            Slot {
                evacuating: None,
                ..slot.clone()
            },
            gone()
        )
    );
    assert_eq!(
        after(&slot, running("lost", Some(RECREATE))),
        (
            Slot {
                suspect: None,
                ..slot.clone()
            },
            gone()
        )
    );
    assert_eq!(
        after(&slot, running("unknown", Some(RECREATE))),
        (slot, gone())
    );
}

#[test]
fn rolling_container_becomes_evacuating_and_its_instance_needs_a_cell() {
    for state in [State::Claimed, State::Running] {
        let lost = row(State::Running, Presence::Suspect, "lost");
        let slot = Slot {
            suspect: Some(lost),
            ..ordinary(state)
        };
        let (evacuated, result) = after(&slot, running("mine", ROLLING));
        assert_eq!(
            result,
            Ok(Evacuated {
                keeps_container: true,
                needs_cell: true,
                given_up: None,
            })
        );
        let (mut expected, _) = after(&slot, |slot| slot.unclaim(Unclaim::Any, NOW_NS + 1));
        let tag = evacuated.evacuating.as_ref().unwrap().tag.clone();
        let recorded = container("mine").recorded(Presence::Evacuating, Several, NOW_NS);
        let old = ActualLrp {
            tag,
            definition_uncertain: false,
            ..recorded
        };
        expected.evacuating = Some(old);
        assert_eq!(evacuated, expected, "{state:?}");
        assert_eq!(evacuated.evacuating.unwrap().crash_count, 0);
    }
}

/// The Cloud Controller takes the later row of an index for its state.
#[test]
fn instance_that_waits_is_newer_than_its_evacuating_container() {
    let slot = ordinary(State::Running);
    let another = Slot {
        evacuating: Some(row(State::Running, Presence::Evacuating, "old")),
        ..slot.clone()
    };
    for slot in [slot, another] {
        let (evacuated, _) = after(&slot, running("mine", ROLLING));
        let [waits, old] = [evacuated.ordinary, evacuated.evacuating].map(Option::unwrap);
        assert_eq!(
            (old.instance_guid, old.since_ns),
            (b"mine".to_vec(), NOW_NS)
        );
        assert!(waits.since_ns > NOW_NS);
    }
}

#[test]
fn evacuating_row_describes_the_stored_container_not_the_request() {
    let mut requested = container("mine");
    requested.net_info = ActualLrpNetInfo::default();
    requested.routable = false;
    let (evacuated, _) = after(&ordinary(State::Running), |slot| {
        slot.evacuate_running(&requested, Several, ROLLING, NOW_NS)
    });
    assert_eq!(
        Container::of(&evacuated.evacuating.unwrap()),
        container("mine")
    );
}

#[test]
fn suspect_container_becomes_evacuating() {
    for state in [State::Unclaimed, State::Claimed] {
        let slot = Slot {
            evacuating: None,
            ..crowded(state)
        };
        let (evacuated, result) = after(&slot, running("lost", ROLLING));
        assert_eq!(
            (result, &evacuated.suspect, &evacuated.ordinary),
            (stays(), &None, &slot.ordinary),
            "{state:?}"
        );
        assert_eq!(
            Container::of(&evacuated.evacuating.unwrap()),
            container("lost")
        );
    }
}

#[test]
fn container_without_a_row_becomes_evacuating_unless_another_is() {
    for state in [State::Unclaimed, State::Claimed] {
        let slot = ordinary(state);
        let (evacuated, result) = after(&slot, running("unknown", ROLLING));
        assert_eq!((result, &evacuated.ordinary), (stays(), &slot.ordinary));
        let old = evacuated.evacuating.as_ref().unwrap();
        assert_eq!(
            (Container::of(old), old.tag.index),
            (container("unknown"), 0)
        );
        assert_eq!(
            after(&evacuated, running("unknown", ROLLING)),
            (evacuated.clone(), stays()),
            "repeated"
        );
        let slot = crowded(state);
        assert_eq!(
            after(&slot, running("unknown", ROLLING)),
            (slot.clone(), gone())
        );
    }
}

#[test]
fn changed_evacuating_container_is_updated_from_the_request() {
    let slot = crowded(State::Unclaimed);
    let requested = Container {
        key: LrpKey {
            domain: b"new".to_vec(),
            ..key()
        },
        net_info: ActualLrpNetInfo::default(),
        internal_routes: Vec::new(),
        metric_tags: Default::default(),
        routable: false,
        availability_zone: Vec::new(),
        ..container("old")
    };
    let (found, result) = after(&slot, |slot| {
        slot.evacuate_running(&requested, Several, ROLLING, NOW_NS)
    });
    let before = slot.evacuating.clone().unwrap();
    let expected = ActualLrp {
        domain: b"new".to_vec(),
        net_info: ActualLrpNetInfo::default(),
        internal_routes: Vec::new(),
        metric_tags: Default::default(),
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
                evacuating: Some(expected),
                ..slot.clone()
            },
            stays()
        )
    );
    // Tags and routability alone make no new revision.
    let requested = Container {
        metric_tags: Default::default(),
        routable: false,
        ..container("old")
    };
    assert_eq!(
        after(&slot, |slot| slot
            .evacuate_running(&requested, Several, ROLLING, NOW_NS)),
        (slot, stays())
    );
}
