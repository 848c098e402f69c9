//! Keys for migrations: whether the API is served meanwhile, how fast they run, and how records
//! that cannot be transformed are treated. All of them are this project's own; Diego's BBS ignores
//! them.

use std::time::Duration;

use serde::Deserialize;

use super::ConfigError;
use super::duration::GoDuration;
use super::keys::Keys;

/// Whether the API is served while a migration copies records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MigrationMode {
    /// Answers 503 with the progress until the migration is complete.
    #[default]
    Offline,
    /// Reads and writes go to the original tables, through the lens; the units that a write changes
    /// are copied again.
    Online,
}

/// How a record that cannot be transformed is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum OnUnreadable {
    /// Ends the migration or the import with an error that names the record.
    #[default]
    Stop,
    /// Moves the whole unit, or the record that is imported, into quarantine, with the reason, and
    /// continues.
    Quarantine,
}

/// How this host migrates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MigrationConfig {
    pub mode: MigrationMode,
    pub on_unreadable: OnUnreadable,
    /// The data version to roll the database back to before the host ends.
    pub rollback_on_drain_to: Option<u64>,
    /// Records of one kind that cannot be read and go into quarantine at once while the host
    /// serves or imports, and units of a group of tables that a migration moves there:
    /// [`is_too_many`](bbs_model::quarantine::is_too_many) has the rule.
    pub quarantine_limit: Option<u64>,
    /// Upper bound of the rate; no bound if absent.
    pub units_per_second: Option<u64>,
    /// Target duration of writing one batch; batches grow and shrink towards it.
    pub batch_time: Option<Duration>,
    /// How long a change of the schema is tried again while other clients hold locks.
    pub lock_timeout: Option<Duration>,
}

impl MigrationConfig {
    pub(super) fn read(keys: &mut Keys) -> Self {
        let units_per_second = keys.take("migration_units_per_second");
        if units_per_second == Some(0) {
            keys.fault(ConfigError::Refused {
                key: "migration_units_per_second",
                why: "a migration at 0 units a second would never end; leave it out for no bound",
            });
        }
        let batch_time = keys
            .take::<GoDuration>("migration_batch_time")
            .map(|time| time.0);
        if batch_time.is_some_and(|time| time.is_zero()) {
            keys.fault(ConfigError::Refused {
                key: "migration_batch_time",
                why: "a batch takes some time; give one such as \"250ms\"",
            });
        }
        let lock_timeout = keys
            .take::<GoDuration>("migration_lock_timeout")
            .map(|time| time.0);
        Self {
            mode: keys.take("migration_mode").unwrap_or_default(),
            on_unreadable: keys.take("on_unreadable").unwrap_or_default(),
            rollback_on_drain_to: keys.take("rollback_on_drain_to_version"),
            quarantine_limit: keys.take("quarantine_limit"),
            units_per_second,
            batch_time,
            lock_timeout,
        }
    }
}
