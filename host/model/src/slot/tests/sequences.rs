//! Invariants after any sequence of transitions.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Transition {
    Claim(&'static str),
    Start(&'static str),
    Crash(&'static str),
    Fail,
    Remove(Option<&'static str>),
    Retire,
    Unclaim(Unclaim),
    Create,
    Suspect,
    Promote,
    EvacuateClaimed(&'static str),
    EvacuateCrashed(&'static str),
    EvacuateStopped(&'static str),
    EvacuateRunning(&'static str, Option<Desired>),
    RemoveEvacuating(&'static str),
}

impl Transition {
    fn on(&self, slot: &mut Slot, now_ns: i64) -> Result<(), SlotError> {
        match self {
            Self::Claim(name) => slot.claim(&instance(name), now_ns),
            Self::Start(name) => slot.start(&container(name), Several, now_ns),
            Self::Crash(name) => slot.crash(&instance(name), b"why", now_ns).map(drop),
            Self::Fail => slot.fail(b"no room", now_ns),
            Self::Remove(name) => slot.remove(name.map(instance).as_ref()),
            Self::Retire => slot.retire().map(drop),
            Self::Unclaim(which) => slot.unclaim(*which, now_ns),
            Self::Create => slot.create_unclaimed(&key(), now_ns),
            Self::Suspect => slot.suspect(),
            Self::Promote => slot.promote(),
            Self::EvacuateClaimed(name) => slot.evacuate_claimed(&instance(name), now_ns).map(drop),
            Self::EvacuateCrashed(name) => slot
                .evacuate_crashed(&instance(name), b"why", now_ns)
                .map(drop),
            Self::EvacuateStopped(name) => slot.evacuate_stopped(&instance(name)).map(drop),
            Self::EvacuateRunning(name, desired) => slot
                .evacuate_running(&container(name), Several, *desired, now_ns)
                .map(drop),
            Self::RemoveEvacuating(name) => slot.remove_evacuating(&instance(name)),
        }
    }
}

fn calls() -> impl proptest::strategy::Strategy<Value = Vec<Transition>> {
    let name = || prop::sample::select(vec!["a", "b", "c"]);
    let replacement = prop::sample::select(vec![Replacement::Rolling, Replacement::Recreate]);
    let desired = prop::option::of((replacement, 0..3, 0..3_usize).prop_map(
        |(replacement, instances, running)| Desired {
            replacement,
            instances,
            running,
        },
    ));
    let call = prop_oneof![
        3 => name().prop_map(Transition::Claim),
        3 => name().prop_map(Transition::Start),
        2 => name().prop_map(Transition::Crash),
        1 => Just(Transition::Fail),
        1 => prop::option::of(name()).prop_map(Transition::Remove),
        1 => Just(Transition::Retire),
        1 => prop::sample::select(vec![Unclaim::Any, Unclaim::Stale]).prop_map(Transition::Unclaim),
        3 => Just(Transition::Create),
        2 => Just(Transition::Suspect),
        2 => Just(Transition::Promote),
        1 => name().prop_map(Transition::EvacuateClaimed),
        1 => name().prop_map(Transition::EvacuateCrashed),
        1 => name().prop_map(Transition::EvacuateStopped),
        3 => (name(), desired).prop_map(|(name, desired)| Transition::EvacuateRunning(name, desired)),
        1 => name().prop_map(Transition::RemoveEvacuating),
    ];
    prop::collection::vec(call, 1..60)
}

/// Invariants of every row.
fn assert_consistent(slot: &Slot) {
    for presence in Presence::ALL {
        let Some(row) = slot.at(presence) else {
            continue;
        };
        assert_eq!((row.presence(), row.key()), (Some(presence), key()));
        let has_container = match row.state().expect("a known state") {
            State::Unclaimed | State::Crashed => false,
            State::Claimed | State::Running => true,
        };
        assert_eq!(!row.instance_key().is_empty(), has_container, "{row:?}");
        assert!(
            has_container || row.net_info == ActualLrpNetInfo::default(),
            "{row:?}"
        );
        assert!(
            presence != Presence::Evacuating || row.state() == Some(State::Running),
            "{row:?}"
        );
    }
}

proptest! {
    #[test]
    fn rows_stay_consistent_refusals_change_nothing_and_tags_only_grow(calls in calls()) {
        let mut slot = Slot::default();
        let mut newest = BTreeMap::new();
        for (at, call) in calls.iter().enumerate() {
            let before = slot.clone();
            let now_ns = NOW_NS + at as i64;
            let result = call.on(&mut slot, now_ns);
            if result.is_err() {
                prop_assert_eq!(&slot, &before, "{:?} was rejected and changed the slot", call);
            }
            assert_consistent(&slot);
            for row in slot.rows() {
                let known = newest.entry(row.tag.epoch.clone()).or_insert_with(|| row.clone());
                prop_assert!(row.tag.index >= known.tag.index, "{:?} decreased a tag", call);
                let same_image = ActualLrp { presence: row.presence, ..known.clone() } == *row;
                prop_assert!(row.tag.index > known.tag.index || same_image, "{:?} changed a row without a new revision", call);
                *known = row.clone();
            }
        }
    }

    /// A client that gets no answer repeats its call: the second call has the same result.
    #[test]
    fn repeated_claims_and_starts_change_nothing(calls in calls()) {
        let mut slot = Slot::default();
        for call in &calls {
            let result = call.on(&mut slot, NOW_NS);
            let repeats = matches!(call, Transition::Claim(_) | Transition::Start(_));
            if repeats && result.is_ok() {
                let done = slot.clone();
                prop_assert_eq!(call.on(&mut slot, NOW_NS + 1), Ok(()));
                prop_assert_eq!(&slot, &done, "{:?}", call);
            }
        }
    }
}
