//! From any state of a slot and any present cells, convergence with an auctioneer that always
//! places reaches a fixed point with exactly what is desired.

use proptest::prelude::*;

use super::*;
use crate::actual_lrp::InstanceKey;

const CELLS: [&str; 3] = ["a", "b", "c"];
/// Runs after which the fixed point is reached.
const RUNS: usize = 8;

fn maybe_row(presence: Presence) -> impl Strategy<Value = Option<ActualLrp>> {
    let states: &[State] = match presence {
        Presence::Ordinary => &State::ALL,
        Presence::Evacuating => &[State::Running],
        Presence::Suspect => &[State::Claimed, State::Running],
    };
    let parts = (
        proptest::sample::select(states),
        proptest::sample::select(&CELLS[..]),
        0..250,
        0..200_i64,
    );
    let some = parts.prop_map(move |(state, cell, crash_count, ago_s)| {
        let since_ns = NOW_NS - ago_s * SECOND_NS;
        ActualLrp {
            crash_count,
            since_ns,
            ..row(state, presence, cell)
        }
    });
    proptest::option::of(some)
}

fn any_slot() -> impl Strategy<Value = Slot> {
    (
        maybe_row(Presence::Ordinary),
        maybe_row(Presence::Evacuating),
        maybe_row(Presence::Suspect),
    )
        .prop_map(|(ordinary, evacuating, suspect)| Slot {
            ordinary,
            evacuating,
            suspect,
        })
}

/// One run on a slot, with what cells and the auctioneer do in answer.
fn run(slot: &mut Slot, actions: &[SlotAction], present: &[&str], now_ns: i64) {
    for action in actions {
        action.apply(slot, &key(0), now_ns).unwrap();
        if *action == SlotAction::Retire {
            slot.ordinary = None;
        }
    }
    let place = actions.iter().any(|action| action.is_auctioned());
    if let (true, Some(cell), Some(row)) = (place, present.first(), slot.ordinary.as_mut()) {
        row.set_instance(InstanceKey {
            instance_guid: b"new".to_vec(),
            cell_id: (*cell).into(),
        });
        row.enter(State::Running, now_ns);
        slot.suspect = None;
        slot.evacuating = None;
    }
}

proptest! {
    #[test]
    fn convergence_reaches_a_fixed_point(
        slot in any_slot(),
        there in 0..=CELLS.len(),
        instances in proptest::option::of(0..2),
    ) {
        let present = &CELLS[..there];
        let cells = cells(present);
        let domains = BTreeSet::from([b"domain".to_vec()]);
        let target = instances.map(target);
        let mut slot = slot;
        for at in 0..RUNS {
            // Late enough to restart anything that may restart.
            let now_ns = NOW_NS + i64::try_from(at).unwrap() * 3_600 * SECOND_NS;
            let input = ConvergenceInput { now_ns, cells: &cells, fresh: &domains, known: &domains };
            let actions = decide(0, &slot, target.as_ref(), &input);
            run(&mut slot, &actions, present, now_ns);
        }
        let now_ns = NOW_NS + 100 * 3_600 * SECOND_NS;
        let input = ConvergenceInput { now_ns, cells: &cells, fresh: &domains, known: &domains };
        let given_up = slot.ordinary.as_ref().is_some_and(|row| row.state() == Some(State::Crashed));
        let actions = decide(0, &slot, target.as_ref(), &input);
        if present.is_empty() && instances == Some(1) && !given_up {
            // No cell can run it, so it is auctioned again in each run.
            prop_assert_eq!(actions, [SlotAction::Start]);
        } else {
            prop_assert_eq!(actions, [], "{:?}", slot);
        }
        prop_assert_eq!(slot.ordinary.is_some(), instances == Some(1));
        prop_assert!(slot.evacuating.iter().all(|row| cells.has(&row.cell_id)));
        if let (false, false, Some(row)) = (present.is_empty(), given_up, &slot.ordinary) {
            prop_assert!(cells.has(&row.cell_id) && matches!(row.state(), Some(State::Claimed | State::Running)));
        }
    }
}
