//! The decision of a start, given the state of the database and the intent of the host: the seed's
//! `Version` table as a pure function. Reads and writes nothing.

use std::cmp::Ordering::{Equal, Greater, Less};

use serde::Serialize;

use bbs_lens::layout::manifest::DataVersion;

/// The intent of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the variants' texts describe their fields")]
pub enum Intent {
    /// Serve at `wanted`, after migrating up to it.
    Up { wanted: DataVersion },
    /// Serve at `wanted`, as with [`Self::Up`], and take the database down to `back_to` when the
    /// host ends. A database that such a host has already taken down stays there.
    UpUntilDrained {
        wanted: DataVersion,
        back_to: DataVersion,
    },
    /// Take the database down to a version and stop.
    Down { to: DataVersion },
}

impl Intent {
    /// The version that the database is to have next.
    pub fn to(self) -> DataVersion {
        match self {
            Self::Up { wanted } | Self::UpUntilDrained { wanted, .. } => wanted,
            Self::Down { to } => to,
        }
    }
}

/// The state of the database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Found {
    /// No version, and no table that holds a row.
    Fresh,
    /// No version, but rows in these tables.
    Unversioned { tables: Vec<String> },
    Versioned {
        current: DataVersion,
        target: DataVersion,
        /// The target of a `down` that has begun and not ended.
        going_down: Option<DataVersion>,
        /// Whether the last completed migration was a `down`, according to the history.
        came_down: bool,
    },
}

/// The decision of a start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the variants' texts describe their fields")]
pub enum Decision {
    /// Nothing to migrate.
    Serve,
    /// Serve the database where a rollback left it, below the wanted version, through the lens.
    Stay { at: DataVersion },
    /// Migrate `from` the version found (0 for an empty database) to another.
    Begin { from: DataVersion, to: DataVersion },
    /// Complete a migration that has begun.
    Continue { from: DataVersion, to: DataVersion },
    /// Release the lock, write nothing.
    ShutDown(Reason),
}

/// Why a host shuts down instead of migrating or serving.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    #[error(
        "the database has rows in {} but no version: it was not written by a BBS that keeps one. \
         Empty these tables to start afresh, or write the row `version` of `configurations`",
        .tables.join(", ")
    )]
    Unversioned { tables: Vec<String> },
    #[error(
        "the database is at {current}, newer than the {wanted} of this host: a newer host migrated it, or one with an add-on \
         that is missing here. Put those modules back (`modules_dirs`), or take the database back with them first: \
         `bbs migrate down --to {wanted}`"
    )]
    Newer {
        current: DataVersion,
        wanted: DataVersion,
    },
    #[error(
        "the database is at {current}, above {wanted}, which `pin_data_version`, `pin_release` or `--to` names. Remove the pin \
         or name a newer version, or take the database back with `bbs migrate down --to {wanted}`"
    )]
    Above {
        current: DataVersion,
        wanted: DataVersion,
    },
    #[error(
        "the database is at {current} but says it was on its way down to {target}, and no `down` of this host began it. \
         Find out what wrote that; then stop every BBS of this database and correct it: UPDATE configurations SET value = \
         '{{\"CurrentVersion\":{current},\"TargetVersion\":{current}}}' WHERE id = 'version'"
    )]
    Botched {
        current: DataVersion,
        target: DataVersion,
    },
    #[error(
        "a migration down to {to} began and has not ended; finish it with `bbs migrate down --to {to}`, or give it up with \
         `bbs migrate abort`"
    )]
    GoingDown { to: DataVersion },
    #[error(
        "the database is at {current}, below {to}: there is nothing to take down; use `bbs migrate up`"
    )]
    NothingBelow {
        current: DataVersion,
        to: DataVersion,
    },
    #[error("the database is empty: there is nothing to take down")]
    NothingThere,
}

impl Decision {
    /// Distinguishes a database that is newer than the whole catalog from one that is above the
    /// version asked for.
    pub(super) fn explained(self, is_known: impl Fn(DataVersion) -> bool) -> Self {
        match self {
            Self::ShutDown(Reason::Newer { current, wanted }) if is_known(current) => {
                Self::ShutDown(Reason::Above { current, wanted })
            }
            decision => decision,
        }
    }

    /// Distinguishes the completion of a migration from the beginning of one to the same version: a
    /// target that was abandoned is only a number. `resumed_to` is the target of the migration that
    /// is under way.
    pub fn resuming(self, resumed_to: Option<DataVersion>) -> Self {
        match self {
            Self::Continue { from, to } if resumed_to != Some(to) => Self::Begin { from, to },
            decision => decision,
        }
    }
}

/// Decides what a start does in a state of the database.
pub fn decide(found: &Found, intent: Intent) -> Decision {
    match (found, intent) {
        (Found::Unversioned { tables }, _) => Decision::ShutDown(Reason::Unversioned {
            tables: tables.clone(),
        }),
        (Found::Fresh, Intent::Up { wanted } | Intent::UpUntilDrained { wanted, .. }) => {
            Decision::Begin {
                from: 0,
                to: wanted,
            }
        }
        (Found::Fresh, Intent::Down { .. }) => Decision::ShutDown(Reason::NothingThere),
        (
            &Found::Versioned {
                current,
                target,
                going_down,
                came_down,
            },
            intent,
        ) => match intent {
            Intent::Up { wanted } => decide_up(current, target, going_down, wanted),
            Intent::UpUntilDrained { wanted, back_to } => {
                // A later `up` that has begun is the later intent.
                let stays =
                    came_down && current == back_to && current < wanted && target == current;
                match decide_up(current, target, going_down, wanted) {
                    Decision::Begin { from, .. } if stays => Decision::Stay { at: from },
                    decision => decision,
                }
            }
            Intent::Down { to } => decide_down(current, target, going_down, to),
        },
    }
}

/// The `Version` table of the specification, cell by cell. Only a host with the same `down`
/// completes an unfinished one.
fn decide_up(
    current: DataVersion,
    target: DataVersion,
    going_down: Option<DataVersion>,
    wanted: DataVersion,
) -> Decision {
    if let Some(to) = going_down {
        return Decision::ShutDown(Reason::GoingDown { to });
    }
    match (current.cmp(&wanted), target.cmp(&wanted)) {
        (Less, Less) => Decision::Begin {
            from: current,
            to: wanted,
        },
        (Less, Equal | Greater) => Decision::Continue {
            from: current,
            to: wanted,
        },
        (Equal, Less) => Decision::ShutDown(Reason::Botched { current, target }),
        (Equal, Equal | Greater) => Decision::Serve,
        (Greater, Less | Equal | Greater) => Decision::ShutDown(Reason::Newer { current, wanted }),
    }
}

fn decide_down(
    current: DataVersion,
    target: DataVersion,
    going_down: Option<DataVersion>,
    to: DataVersion,
) -> Decision {
    if let Some(began) = going_down {
        return match (began == to, current.cmp(&to)) {
            (false, _) => Decision::ShutDown(Reason::GoingDown { to: began }),
            (true, Less) => Decision::ShutDown(Reason::NothingBelow { current, to }),
            (true, Equal | Greater) => Decision::Continue { from: current, to },
        };
    }
    match (current.cmp(&to), target.cmp(&current)) {
        (Less, _) => Decision::ShutDown(Reason::NothingBelow { current, to }),
        (Equal | Greater, Less) => Decision::ShutDown(Reason::Botched { current, target }),
        (Equal, Equal | Greater) => Decision::Serve,
        // An unfinished `up` has not changed the served tables; the way down undoes its additions.
        (Greater, Equal | Greater) => Decision::Begin { from: current, to },
    }
}

#[cfg(test)]
mod tests;
