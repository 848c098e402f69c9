//! What holds after any sequence of calls, whoever makes them in whichever order.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Call {
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

impl Call {
    fn on(&self, slot: &mut Slot, now_ns: i64) -> Result<(), Refusal> {
        match self {
            Self::Claim(name) => slot.claim(&instance(name), now_ns),
            Self::Start(name) => slot.start(&container(name), now_ns),
            Self::Crash(name) => slot.crash(&key(), &instance(name), b"why", now_ns).map(drop),
            Self::Fail => slot.fail(b"no room", now_ns),
            Self::Remove(name) => slot.remove(name.map(instance).as_ref()),
            Self::Retire => slot.retire().map(drop),
            Self::Unclaim(which) => slot.unclaim(*which, now_ns),
            Self::Create => slot.create_unclaimed(&key(), now_ns),
            Self::Suspect => slot.suspect(),
            Self::Promote => slot.promote(),
            Self::EvacuateClaimed(name) => slot.evacuate_claimed(&instance(name), now_ns).map(drop),
            Self::EvacuateCrashed(name) => slot.evacuate_crashed(&key(), &instance(name), b"why", now_ns).map(drop),
            Self::EvacuateStopped(name) => slot.evacuate_stopped(&instance(name)).map(drop),
            Self::EvacuateRunning(name, desired) => slot.evacuate_running(&container(name), *desired, now_ns).map(drop),
            Self::RemoveEvacuating(name) => slot.remove_evacuating(&instance(name)),
        }
    }
}

fn calls() -> impl proptest::strategy::Strategy<Value = Vec<Call>> {
    let name = || prop::sample::select(vec!["a", "b", "c"]);
    let replacement = prop::sample::select(vec![Replacement::Rolling, Replacement::Recreate]);
    let desired =
        prop::option::of((replacement, 0..3, 0..3_usize).prop_map(|(replacement, instances, running)| Desired {
            replacement,
            instances,
            running,
        }));
    let call = prop_oneof![
        3 => name().prop_map(Call::Claim),
        3 => name().prop_map(Call::Start),
        2 => name().prop_map(Call::Crash),
        1 => Just(Call::Fail),
        1 => prop::option::of(name()).prop_map(Call::Remove),
        1 => Just(Call::Retire),
        1 => prop::sample::select(vec![Unclaim::Any, Unclaim::Stale]).prop_map(Call::Unclaim),
        3 => Just(Call::Create),
        2 => Just(Call::Suspect),
        2 => Just(Call::Promote),
        1 => name().prop_map(Call::EvacuateClaimed),
        1 => name().prop_map(Call::EvacuateCrashed),
        1 => name().prop_map(Call::EvacuateStopped),
        3 => (name(), desired).prop_map(|(name, desired)| Call::EvacuateRunning(name, desired)),
        1 => name().prop_map(Call::RemoveEvacuating),
    ];
    prop::collection::vec(call, 1..60)
}

/// What a row must be like, whatever happened.
fn assert_consistent(slot: &Slot) {
    for presence in Presence::ALL {
        let Some(row) = slot.at(presence) else { continue };
        assert_eq!((row.presence(), row.key()), (Some(presence), key()));
        let has_container = match row.state().expect("a known state") {
            State::Unclaimed | State::Crashed => false,
            State::Claimed | State::Running => true,
        };
        assert_eq!(!row.instance_key().is_empty(), has_container, "{row:?}");
        assert!(has_container || row.net_info == ActualLrpNetInfo::default(), "{row:?}");
        assert!(presence != Presence::Evacuating || row.state() == Some(State::Running), "{row:?}");
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
            let said = call.on(&mut slot, now_ns);
            if said.is_err() {
                prop_assert_eq!(&slot, &before, "{:?} was refused and did something", call);
            }
            assert_consistent(&slot);
            for row in slot.rows() {
                let known = newest.entry(row.tag.epoch.clone()).or_insert_with(|| row.clone());
                prop_assert!(row.tag.index >= known.tag.index, "{:?} took a tag back", call);
                let same_image = ActualLrp { presence: row.presence, ..known.clone() } == *row;
                prop_assert!(row.tag.index > known.tag.index || same_image, "{:?} made another image of a tag", call);
                *known = row.clone();
            }
        }
    }

    /// Whoever hears nothing asks again: the second time is the same as the first.
    #[test]
    fn what_was_done_may_be_asked_for_again(calls in calls()) {
        let mut slot = Slot::default();
        for call in &calls {
            let said = call.on(&mut slot, NOW_NS);
            let repeats = matches!(call, Call::Claim(_) | Call::Start(_));
            if repeats && said.is_ok() {
                let done = slot.clone();
                prop_assert_eq!(call.on(&mut slot, NOW_NS + 1), Ok(()));
                prop_assert_eq!(&slot, &done, "{:?}", call);
            }
        }
    }
}
