//! Each call of cells and convergence during a replacement.

use super::*;

/// A call about a slot whose container `old` is being replaced by `mine`.
type ReplacementCall = fn(&mut Slot) -> Result<(), SlotError>;

/// Slots whose current definition is [`NEW`]: the new instance waits, is claimed, is not routable,
/// fails, or has replaced the old one; and the container of a cancelled replacement in the last.
fn replacements() -> [Slot; 6] {
    let with = |mut slot: Slot, change: fn(&mut ActualLrp)| {
        change(slot.ordinary.as_mut().unwrap());
        slot
    };
    [
        replaced(OLD, NEW, State::Unclaimed),
        with(replaced(OLD, NEW, State::Claimed), |row| {
            row.routable = false
        }),
        with(replaced(OLD, NEW, State::Running), |row| {
            row.routable = false
        }),
        with(replaced(OLD, NEW, State::Crashed), |row| {
            row.crash_count = 3
        }),
        replaced(OLD, NEW, State::Running),
        with(replaced(NEW, OLD, State::Running), |row| {
            row.routable = false
        }),
    ]
}

/// The phase, the state of the managed row, the evacuating container, and whether there is a
/// suspect one.
fn described(slot: &Slot) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let state = slot
        .ordinary
        .as_ref()
        .map_or("-".into(), |row| text(&row.state));
    let evacuating = slot.evacuating.as_ref().map_or(String::new(), |row| {
        format!(" +{}", text(&row.instance_guid))
    });
    let suspect = slot.suspect.as_ref().map_or("", |_| " +suspect");
    format!("{:?} {state}{evacuating}{suspect}", slot.phase(NEW, NOW_NS))
}

fn evacuate_running(slot: &mut Slot, name: &str) -> Result<(), SlotError> {
    slot.evacuate_running(&container(name), Several, ROLLING, NOW_NS)
        .map(drop)
}

const WAITS: &str = "Pending UNCLAIMED +old";
const FAILS: &str = "Failing UNCLAIMED +old";
const REVERTS: &str = "Reverting UNCLAIMED +old";
const GONE: &str = "Empty - +old";

fn no(refusal: SlotError) -> String {
    format!("{refusal:?}")
}

fn yes(result: &str) -> String {
    result.to_owned()
}

fn all(result: &str) -> [String; 6] {
    [(); 6].map(|()| yes(result))
}

/// The slots without the old container.
fn old_gone() -> [String; 6] {
    [
        "Pending UNCLAIMED",
        "Pending CLAIMED",
        "Pending RUNNING",
        "Failing CRASHED",
        "Current RUNNING",
        "Old RUNNING",
    ]
    .map(yes)
}

/// The results of a call about the new container: the waiting and the crashed instance have none.
fn of_new(result: &str, last: &str) -> [String; 6] {
    [
        no(SlotError::NotFound),
        yes(result),
        yes(result),
        no(SlotError::NotFound),
        yes(result),
        yes(last),
    ]
}

/// A call with its name, and its result for each of [`replacements`].
type CallDuringAReplacement = (&'static str, ReplacementCall, [String; 6]);

fn calls_about_instances() -> [CallDuringAReplacement; 6] {
    let fail = no(SlotError::CannotBeFailed);
    let [_, claimed, unroutable, _, up, reverting] = replacements().map(|slot| described(&slot));
    [
        (
            "fail",
            |slot| slot.fail(b"no room", NOW_NS),
            [
                yes(FAILS),
                fail.clone(),
                fail.clone(),
                fail.clone(),
                fail.clone(),
                fail,
            ],
        ),
        ("remove", |slot| slot.remove(None), all(GONE)),
        (
            "remove old",
            |slot| slot.remove(Some(&instance("old"))),
            old_gone(),
        ),
        (
            "remove new",
            |slot| slot.remove(Some(&instance("mine"))),
            of_new(GONE, GONE),
        ),
        (
            "retire",
            |slot| slot.retire().map(drop),
            [yes(GONE), claimed, unroutable, yes(GONE), up, reverting],
        ),
        (
            "unclaim",
            |slot| slot.unclaim(Unclaim::Any, NOW_NS),
            [
                no(SlotError::CannotBeUnclaimed),
                yes(WAITS),
                yes(WAITS),
                yes(FAILS),
                yes(WAITS),
                yes(REVERTS),
            ],
        ),
    ]
}

fn calls_of_evacuating_cells() -> [CallDuringAReplacement; 8] {
    let old_stays = replacements().map(|slot| described(&slot));
    let [waiting, _, _, failing, _, _] = old_stays.clone();
    // Only a routable one is kept, in place of the old container.
    let new_moves = [
        &waiting,
        WAITS,
        WAITS,
        &failing,
        "Pending UNCLAIMED +mine",
        REVERTS,
    ]
    .map(yes);
    [
        (
            "evacuate claimed old",
            |slot| slot.evacuate_claimed(&instance("old"), NOW_NS).map(drop),
            old_gone(),
        ),
        (
            "evacuate claimed new",
            |slot| slot.evacuate_claimed(&instance("mine"), NOW_NS).map(drop),
            of_new(WAITS, REVERTS),
        ),
        (
            "evacuate crashed old",
            |slot| {
                slot.evacuate_crashed(&instance("old"), b"why", NOW_NS)
                    .map(drop)
            },
            old_gone(),
        ),
        (
            "evacuate crashed new",
            |slot| {
                slot.evacuate_crashed(&instance("mine"), b"why", NOW_NS)
                    .map(drop)
            },
            of_new(WAITS, REVERTS),
        ),
        (
            "evacuate stopped old",
            |slot| slot.evacuate_stopped(&instance("old")).map(drop),
            old_gone(),
        ),
        (
            "evacuate stopped new",
            |slot| slot.evacuate_stopped(&instance("mine")).map(drop),
            of_new(GONE, GONE),
        ),
        (
            "evacuate running old",
            |slot| evacuate_running(slot, "old"),
            old_stays,
        ),
        (
            "evacuate running new",
            |slot| evacuate_running(slot, "mine"),
            new_moves,
        ),
    ]
}

#[test]
fn calls_during_a_replacement_change_its_phase_or_are_refused() {
    let suspect: CallDuringAReplacement = ("suspect", Slot::suspect, all("Empty - +old +suspect"));
    for (name, call, expected) in calls_about_instances()
        .into_iter()
        .chain(calls_of_evacuating_cells())
        .chain([suspect])
    {
        let found = replacements().map(|slot| match after(&slot, call) {
            (slot, Ok(())) => described(&slot),
            (unchanged, Err(refusal)) => {
                assert_eq!(unchanged, slot, "{name}");
                format!("{refusal:?}")
            }
        });
        assert_eq!(found, expected, "{name}");
    }
}
