//! Decides what happens to a running container on a cell that is being evacuated. A pure function
//! of the slot.

use crate::actual_lrp::Presence;

/// The row of the container in question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContainerRow {
    None,
    Evacuating,
    /// A claimed or running row.
    Container(Presence),
    /// A row that, by its state, has no container.
    Other(Presence),
}

/// The managed row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ordinary {
    Absent,
    /// The row of the container in question.
    SameContainer,
    /// Another container runs or has crashed.
    Settled,
    /// Waits for a cell, or for another container to run; or replaces, in an update, the container
    /// in the evacuating row.
    Pending,
}

/// How the instance is to be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplacementChoice {
    /// Not at all: it is not desired.
    No,
    Rolling,
    RecreateNow,
    /// Too few other instances run.
    RecreateLater,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Situation {
    pub(super) target: ContainerRow,
    pub(super) ordinary: Ordinary,
    /// Whether there is an evacuating row, for this container or another.
    pub(super) has_evacuating: bool,
    pub(super) desired: ReplacementChoice,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EvacuationStep {
    /// The container is stopped; nothing is written.
    Leave,
    /// The cell keeps the container and retries.
    Later,
    /// The container is stopped, and this row removed.
    Remove(Presence),
    /// The container is stopped, and the instance waits for another cell.
    Unclaim,
    /// The container is kept, and its evacuating row updated from the request.
    Describe,
    /// The container of this row is kept: the row becomes the evacuating one.
    MoveToEvacuating(Presence),
}

pub(super) fn decide(situation: Situation) -> EvacuationStep {
    let Situation {
        target,
        ordinary,
        has_evacuating,
        desired,
    } = situation;
    match (ordinary, desired) {
        (Ordinary::Absent | Ordinary::Settled, _) | (_, ReplacementChoice::No) => match target {
            ContainerRow::Evacuating => EvacuationStep::Remove(Presence::Evacuating),
            ContainerRow::None | ContainerRow::Container(_) | ContainerRow::Other(_) => {
                EvacuationStep::Leave
            }
        },
        (
            Ordinary::SameContainer | Ordinary::Pending,
            ReplacementChoice::RecreateNow | ReplacementChoice::RecreateLater,
        ) => match target {
            ContainerRow::Evacuating => EvacuationStep::Remove(Presence::Evacuating),
            ContainerRow::Container(Presence::Suspect) | ContainerRow::Other(Presence::Suspect) => {
                EvacuationStep::Remove(Presence::Suspect)
            }
            ContainerRow::Container(_) if desired == ReplacementChoice::RecreateNow => {
                EvacuationStep::Unclaim
            }
            ContainerRow::Container(_) => EvacuationStep::Later,
            ContainerRow::None | ContainerRow::Other(_) => EvacuationStep::Leave,
        },
        (Ordinary::SameContainer | Ordinary::Pending, ReplacementChoice::Rolling) => match target {
            ContainerRow::None if has_evacuating => EvacuationStep::Leave,
            ContainerRow::None | ContainerRow::Evacuating => EvacuationStep::Describe,
            ContainerRow::Container(presence) => EvacuationStep::MoveToEvacuating(presence),
            ContainerRow::Other(_) => EvacuationStep::Leave,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGETS: [ContainerRow; 6] = [
        ContainerRow::None,
        ContainerRow::Evacuating,
        ContainerRow::Container(Presence::Ordinary),
        ContainerRow::Container(Presence::Suspect),
        ContainerRow::Other(Presence::Ordinary),
        ContainerRow::Other(Presence::Suspect),
    ];
    const WANTED: [ReplacementChoice; 4] = [
        ReplacementChoice::No,
        ReplacementChoice::Rolling,
        ReplacementChoice::RecreateNow,
        ReplacementChoice::RecreateLater,
    ];

    /// By target, in the order of `TARGETS`.
    fn steps(
        ordinary: Ordinary,
        has_evacuating: bool,
        desired: ReplacementChoice,
    ) -> [EvacuationStep; 6] {
        TARGETS.map(|target| {
            decide(Situation {
                target,
                ordinary,
                has_evacuating,
                desired,
            })
        })
    }

    const EVACUATING_GOES: [EvacuationStep; 6] = [
        EvacuationStep::Leave,
        EvacuationStep::Remove(Presence::Evacuating),
        EvacuationStep::Leave,
        EvacuationStep::Leave,
        EvacuationStep::Leave,
        EvacuationStep::Leave,
    ];

    #[test]
    fn replaced_or_unmanaged_instance_keeps_only_its_evacuating_row_to_remove() {
        for ordinary in [Ordinary::Absent, Ordinary::Settled] {
            for desired in WANTED {
                for has_evacuating in [false, true] {
                    assert_eq!(
                        steps(ordinary, has_evacuating, desired),
                        EVACUATING_GOES,
                        "{ordinary:?} {desired:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn undesired_instance_keeps_only_its_evacuating_row_to_remove() {
        for ordinary in [Ordinary::SameContainer, Ordinary::Pending] {
            for has_evacuating in [false, true] {
                assert_eq!(
                    steps(ordinary, has_evacuating, ReplacementChoice::No),
                    EVACUATING_GOES,
                    "{ordinary:?}"
                );
            }
        }
    }

    #[test]
    fn recreated_instance_is_stopped_at_once_or_once_all_others_run() {
        for (desired, step) in [
            (ReplacementChoice::RecreateNow, EvacuationStep::Unclaim),
            (ReplacementChoice::RecreateLater, EvacuationStep::Later),
        ] {
            for ordinary in [Ordinary::SameContainer, Ordinary::Pending] {
                for has_evacuating in [false, true] {
                    let suspect_goes = EvacuationStep::Remove(Presence::Suspect);
                    let expected = [
                        EvacuationStep::Leave,
                        EvacuationStep::Remove(Presence::Evacuating),
                        step,
                        suspect_goes,
                        EvacuationStep::Leave,
                        suspect_goes,
                    ];
                    assert_eq!(
                        steps(ordinary, has_evacuating, desired),
                        expected,
                        "{desired:?} {ordinary:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn rolling_instance_is_kept_until_another_runs() {
        let evacuating = EvacuationStep::MoveToEvacuating;
        for ordinary in [Ordinary::SameContainer, Ordinary::Pending] {
            for (has_evacuating, unknown) in [
                (false, EvacuationStep::Describe),
                (true, EvacuationStep::Leave),
            ] {
                let expected = [
                    unknown,
                    EvacuationStep::Describe,
                    evacuating(Presence::Ordinary),
                    evacuating(Presence::Suspect),
                    EvacuationStep::Leave,
                    EvacuationStep::Leave,
                ];
                assert_eq!(
                    steps(ordinary, has_evacuating, ReplacementChoice::Rolling),
                    expected,
                    "{ordinary:?} {has_evacuating}"
                );
            }
        }
    }
}
