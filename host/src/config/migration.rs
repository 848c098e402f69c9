//! The keys that say how this host migrates: when it serves meanwhile, how fast, and what becomes of records that will
//! not go. All of them are ours; Diego's BBS ignores them.

use std::time::Duration;

use serde::Deserialize;

use super::ConfigError;
use super::duration::GoDuration;
use super::keys::Keys;

/// Whether the API is served while records are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MigrationMode {
    /// 503 with progress until the migration is done.
    #[default]
    Offline,
    /// Reads come through the migrations, and writes go to both sides.
    Online,
}

/// What becomes of a record that cannot be transformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum OnUnreadable {
    /// The migration ends with an error that names it.
    #[default]
    Stop,
    /// It is set aside whole, with the reason, and the migration goes on.
    Quarantine,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Migration {
    pub mode: MigrationMode,
    pub on_unreadable: OnUnreadable,
    /// The version to take the database back to when the host is told to end.
    pub rollback_on_drain_to: Option<u64>,
    /// The greatest number of units a second; no bound where absent.
    pub units_per_second: Option<u64>,
    /// How long writing a batch should take; the batches grow and shrink towards it.
    pub batch_time: Option<Duration>,
}

impl Migration {
    pub(super) fn read(keys: &mut Keys) -> Result<Self, ConfigError> {
        let units_per_second = keys.take("migration_units_per_second")?;
        if units_per_second == Some(0) {
            return Err(ConfigError::Refused {
                key: "migration_units_per_second",
                why: "a migration at 0 units a second would never end; leave it out for no bound",
            });
        }
        let batch_time = keys.take::<GoDuration>("migration_batch_time")?.map(|time| time.0);
        if batch_time.is_some_and(|time| time.is_zero()) {
            return Err(ConfigError::Refused {
                key: "migration_batch_time",
                why: "a batch takes some time; give one such as \"250ms\"",
            });
        }
        Ok(Self {
            mode: keys.take("migration_mode")?.unwrap_or_default(),
            on_unreadable: keys.take("on_unreadable")?.unwrap_or_default(),
            rollback_on_drain_to: keys.take("rollback_on_drain_to_version")?,
            units_per_second,
            batch_time,
        })
    }
}
