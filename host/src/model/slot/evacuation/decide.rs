//! What becomes of a running container on a cell that is being emptied: a decision over what is known, and nothing else.

use crate::model::actual_lrp::Presence;

/// Which row the container that is asked about has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    None,
    Evacuating,
    /// One that is claimed or running.
    Container(Presence),
    /// One that, by its record, has no container.
    Other(Presence),
}

/// The managed row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ordinary {
    Absent,
    /// That of the container that is asked about.
    Target,
    /// Another container runs, or crashed.
    Settled,
    /// Waits for a cell, or for another container to run.
    OnItsWay,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    No,
    Rolling,
    RecreateNow,
    /// Too few instances run to take one away.
    RecreateLater,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Situation {
    pub(super) target: Target,
    pub(super) ordinary: Ordinary,
    /// Whether a container, this one or another, is kept as the old one.
    pub(super) is_set_aside: bool,
    pub(super) desired: Wanted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The container goes; nothing is written.
    Leave,
    /// The cell asks again.
    Later,
    /// The container goes with its row.
    Remove(Presence),
    /// The container goes, and its instance looks for another cell.
    Unclaim,
    /// The container stays, as the cell describes it.
    Describe,
    /// The container of this row stays as the old one.
    SetAside(Presence),
}

pub(super) fn decide(situation: Situation) -> Step {
    let Situation { target, ordinary, is_set_aside, desired } = situation;
    match (ordinary, desired) {
        (Ordinary::Absent | Ordinary::Settled, _) | (_, Wanted::No) => match target {
            Target::Evacuating => Step::Remove(Presence::Evacuating),
            Target::None | Target::Container(_) | Target::Other(_) => Step::Leave,
        },
        (Ordinary::Target | Ordinary::OnItsWay, Wanted::RecreateNow | Wanted::RecreateLater) => match target {
            Target::Evacuating => Step::Remove(Presence::Evacuating),
            Target::Container(Presence::Suspect) | Target::Other(Presence::Suspect) => Step::Remove(Presence::Suspect),
            Target::Container(_) if desired == Wanted::RecreateNow => Step::Unclaim,
            Target::Container(_) => Step::Later,
            Target::None | Target::Other(_) => Step::Leave,
        },
        (Ordinary::Target | Ordinary::OnItsWay, Wanted::Rolling) => match target {
            Target::None if is_set_aside => Step::Leave,
            Target::None | Target::Evacuating => Step::Describe,
            Target::Container(presence) => Step::SetAside(presence),
            Target::Other(_) => Step::Leave,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGETS: [Target; 6] = [
        Target::None,
        Target::Evacuating,
        Target::Container(Presence::Ordinary),
        Target::Container(Presence::Suspect),
        Target::Other(Presence::Ordinary),
        Target::Other(Presence::Suspect),
    ];
    const WANTED: [Wanted; 4] = [Wanted::No, Wanted::Rolling, Wanted::RecreateNow, Wanted::RecreateLater];

    /// By target, in the order of `TARGETS`.
    fn steps(ordinary: Ordinary, is_set_aside: bool, desired: Wanted) -> [Step; 6] {
        TARGETS.map(|target| decide(Situation { target, ordinary, is_set_aside, desired }))
    }

    const EVACUATING_GOES: [Step; 6] =
        [Step::Leave, Step::Remove(Presence::Evacuating), Step::Leave, Step::Leave, Step::Leave, Step::Leave];

    #[test]
    fn where_it_is_replaced_or_not_managed_only_the_old_container_has_a_row_to_remove() {
        for ordinary in [Ordinary::Absent, Ordinary::Settled] {
            for desired in WANTED {
                for is_set_aside in [false, true] {
                    assert_eq!(steps(ordinary, is_set_aside, desired), EVACUATING_GOES, "{ordinary:?} {desired:?}");
                }
            }
        }
    }

    #[test]
    fn where_nothing_is_desired_it_is_the_same() {
        for ordinary in [Ordinary::Target, Ordinary::OnItsWay] {
            for is_set_aside in [false, true] {
                assert_eq!(steps(ordinary, is_set_aside, Wanted::No), EVACUATING_GOES, "{ordinary:?}");
            }
        }
    }

    #[test]
    fn what_is_to_be_recreated_goes_at_once_or_once_all_others_run() {
        for (desired, step) in [(Wanted::RecreateNow, Step::Unclaim), (Wanted::RecreateLater, Step::Later)] {
            for ordinary in [Ordinary::Target, Ordinary::OnItsWay] {
                for is_set_aside in [false, true] {
                    let suspect_goes = Step::Remove(Presence::Suspect);
                    let expected = [
                        Step::Leave,
                        Step::Remove(Presence::Evacuating),
                        step,
                        suspect_goes,
                        Step::Leave,
                        suspect_goes,
                    ];
                    assert_eq!(steps(ordinary, is_set_aside, desired), expected, "{desired:?} {ordinary:?}");
                }
            }
        }
    }

    #[test]
    fn what_is_replaced_in_passing_stays_until_another_one_runs() {
        let aside = Step::SetAside;
        for ordinary in [Ordinary::Target, Ordinary::OnItsWay] {
            for (is_set_aside, unknown) in [(false, Step::Describe), (true, Step::Leave)] {
                let expected = [
                    unknown,
                    Step::Describe,
                    aside(Presence::Ordinary),
                    aside(Presence::Suspect),
                    Step::Leave,
                    Step::Leave,
                ];
                assert_eq!(steps(ordinary, is_set_aside, Wanted::Rolling), expected, "{ordinary:?} {is_set_aside}");
            }
        }
    }
}
