//! Keys of updates of desired LRPs to another definition, and of the archive of definitions. All
//! are this project's own.

use std::time::Duration;

use bbs_model::lrp_update::Pace;

use super::keys::Keys;

/// The longest interval of Diego's route emitters: one that has missed an event registers the new
/// instance within this time.
const OVERLAP: Duration = Duration::from_secs(60);

/// Pace of updates, and size of the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Updates {
    /// The limits of each update.
    pub pace: Pace,
    /// Archived definitions of one LRP; 0 keeps none.
    pub definitions_kept: usize,
    /// An archived definition that was last active longer ago is deleted.
    pub definitions_max_age: Duration,
}

impl Default for Updates {
    fn default() -> Self {
        Self {
            pace: Pace {
                overlap: OVERLAP,
                ..Pace::default()
            },
            definitions_kept: 10,
            definitions_max_age: Duration::from_secs(30 * 24 * 60 * 60),
        }
    }
}

impl Updates {
    pub(super) fn read(keys: &mut Keys) -> Self {
        let default = Self::default();
        Self {
            pace: Pace {
                max_in_flight: keys
                    .take("update_max_in_flight")
                    .unwrap_or(default.pace.max_in_flight),
                max_in_flight_total: keys
                    .take("update_max_in_flight_total")
                    .unwrap_or(default.pace.max_in_flight_total),
                routable_timeout: keys
                    .duration("update_routable_timeout")
                    .unwrap_or(default.pace.routable_timeout),
                overlap: keys.duration_or("update_overlap", default.pace.overlap),
            },
            definitions_kept: keys
                .take("definitions_kept")
                .unwrap_or(default.definitions_kept),
            definitions_max_age: keys
                .duration("definitions_max_age")
                .unwrap_or(default.definitions_max_age),
        }
    }
}

#[cfg(test)]
mod tests {
    use bbs_model::lrp_update::MaxInFlight;

    fn max_in_flight(json: &str) -> Result<MaxInFlight, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn most_instances_in_flight_are_a_number_or_a_percentage() {
        assert_eq!(max_in_flight("3"), Ok(MaxInFlight::Instances(3)));
        assert_eq!(max_in_flight("\"25%\""), Ok(MaxInFlight::Percent(25)));
        for wrong in [
            "0", "-1", "\"3\"", "\"0%\"", "\"101%\"", "\"%\"", "\"-5%\"", "true", "1.5",
        ] {
            let message = max_in_flight(wrong).unwrap_err();
            assert!(
                message.contains("a number of instances above 0, or a percentage from"),
                "{wrong}: {message}"
            );
        }
    }
}
