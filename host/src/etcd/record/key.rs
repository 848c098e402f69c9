//! The names of paths.

use super::RecordError;

/// The record that a path names, whatever its value is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the fields are parts of the path")]
pub enum RecordKey {
    /// `/version`.
    Version,
    /// `/encryption-key`.
    KeyLabel,
    /// `/v1/domain/<name>`; the name may contain `/`.
    Domain { name: String },
    /// `/v1/desired/<guid>`.
    DesiredLrp { process_guid: String },
    /// `/v1/desired_lrp/schedule/<guid>`.
    SchedulingInfo { process_guid: String },
    /// `/v1/desired_lrp/run/<guid>`.
    RunInfo { process_guid: String },
    /// `/v1/actual/<guid>/<index>/instance` or `.../evacuating`.
    ActualLrp {
        process_guid: String,
        index: i32,
        evacuating: bool,
    },
    /// `/v1/task/<guid>`.
    Task { guid: String },
    /// Every other path.
    Foreign,
}

/// The kind of a record. Its order is that of reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the kinds are those of `RecordKey`")]
pub enum RecordKind {
    Version,
    KeyLabel,
    Domain,
    DesiredLrp,
    SchedulingInfo,
    RunInfo,
    ActualLrp,
    EvacuatingActualLrp,
    Task,
    Foreign,
}

impl RecordKey {
    /// Parses a whole path. An instance index is written as Diego wrote it, in decimal without sign
    /// or leading zero.
    pub fn of(path: &str) -> Self {
        let Some(path) = path.strip_prefix('/') else {
            return Self::Foreign;
        };
        if let Some(name) = path
            .strip_prefix("v1/domain/")
            .filter(|name| !name.is_empty())
        {
            return Self::Domain {
                name: name.to_owned(),
            };
        }
        match path.split('/').collect::<Vec<_>>()[..] {
            ["version"] => Self::Version,
            ["encryption-key"] => Self::KeyLabel,
            ["v1", "desired", guid] => Self::DesiredLrp {
                process_guid: guid.to_owned(),
            },
            ["v1", "desired_lrp", "schedule", guid] => Self::SchedulingInfo {
                process_guid: guid.to_owned(),
            },
            ["v1", "desired_lrp", "run", guid] => Self::RunInfo {
                process_guid: guid.to_owned(),
            },
            [
                "v1",
                "actual",
                guid,
                index,
                slot @ ("instance" | "evacuating"),
            ] => match parse_index(index) {
                Some(index) => Self::ActualLrp {
                    process_guid: guid.to_owned(),
                    index,
                    evacuating: slot == "evacuating",
                },
                None => Self::Foreign,
            },
            ["v1", "task", guid] => Self::Task {
                guid: guid.to_owned(),
            },
            _ => Self::Foreign,
        }
    }

    /// The kind.
    pub fn kind(&self) -> RecordKind {
        match self {
            Self::Version => RecordKind::Version,
            Self::KeyLabel => RecordKind::KeyLabel,
            Self::Domain { .. } => RecordKind::Domain,
            Self::DesiredLrp { .. } => RecordKind::DesiredLrp,
            Self::SchedulingInfo { .. } => RecordKind::SchedulingInfo,
            Self::RunInfo { .. } => RecordKind::RunInfo,
            Self::ActualLrp {
                evacuating: false, ..
            } => RecordKind::ActualLrp,
            Self::ActualLrp {
                evacuating: true, ..
            } => RecordKind::EvacuatingActualLrp,
            Self::Task { .. } => RecordKind::Task,
            Self::Foreign => RecordKind::Foreign,
        }
    }

    /// The guid of the process or the task.
    pub fn guid(&self) -> Option<&str> {
        match self {
            Self::DesiredLrp { process_guid }
            | Self::SchedulingInfo { process_guid }
            | Self::RunInfo { process_guid }
            | Self::ActualLrp { process_guid, .. } => Some(process_guid),
            Self::Task { guid } => Some(guid),
            Self::Version | Self::KeyLabel | Self::Domain { .. } | Self::Foreign => None,
        }
    }
}

impl RecordKind {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Version => "version",
            Self::KeyLabel => "encryption key label",
            Self::Domain => "domain",
            Self::DesiredLrp => "desired LRP",
            Self::SchedulingInfo => "scheduling info",
            Self::RunInfo => "run info",
            Self::ActualLrp => "actual LRP",
            Self::EvacuatingActualLrp => "evacuating actual LRP",
            Self::Task => "task",
            Self::Foreign => "foreign",
        }
    }
}

fn parse_index(text: &str) -> Option<i32> {
    let index: i32 = text.parse().ok()?;
    (index >= 0 && index.to_string() == text).then_some(index)
}

/// Checks a guid of the path by Diego's pattern.
pub(super) fn check_guid(guid: &str) -> Result<(), RecordError> {
    let is_valid = !guid.is_empty()
        && guid
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if is_valid {
        Ok(())
    } else {
        Err(RecordError::Guid {
            guid: guid.to_owned(),
        })
    }
}

/// Checks that the record has the guid or index of its path.
pub(super) fn check_same(path: &str, found: &[u8]) -> Result<(), RecordError> {
    if path.as_bytes() == found {
        return Ok(());
    }
    // A field of another kind of record may be here, of any length.
    let found = String::from_utf8_lossy(found)
        .chars()
        .take(LONGEST_SHOWN)
        .collect();
    Err(RecordError::KeyMismatch {
        path: path.to_owned(),
        found,
    })
}

const LONGEST_SHOWN: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_records() {
        let lrp = |index, evacuating| RecordKey::ActualLrp {
            process_guid: "g".into(),
            index,
            evacuating,
        };
        for (path, expected) in [
            ("/version", RecordKey::Version),
            ("/encryption-key", RecordKey::KeyLabel),
            (
                "/v1/domain/cf-apps",
                RecordKey::Domain {
                    name: "cf-apps".into(),
                },
            ),
            (
                "/v1/domain/a/b/c",
                RecordKey::Domain {
                    name: "a/b/c".into(),
                },
            ),
            (
                "/v1/desired/g",
                RecordKey::DesiredLrp {
                    process_guid: "g".into(),
                },
            ),
            (
                "/v1/desired_lrp/schedule/g",
                RecordKey::SchedulingInfo {
                    process_guid: "g".into(),
                },
            ),
            (
                "/v1/desired_lrp/run/g",
                RecordKey::RunInfo {
                    process_guid: "g".into(),
                },
            ),
            ("/v1/actual/g/0/instance", lrp(0, false)),
            ("/v1/actual/g/2147483647/evacuating", lrp(i32::MAX, true)),
            ("/v1/task/g", RecordKey::Task { guid: "g".into() }),
        ] {
            assert_eq!(RecordKey::of(path), expected, "{path}");
        }
    }

    #[test]
    fn other_paths_are_foreign() {
        for path in [
            "",
            "/",
            "version",
            "/version/x",
            "/Version",
            "/v1",
            "/v1/domain",
            "/v1/domain/",
            "/v1/desired",
            "/v1/desired/a/b",
            "/v1/desired_lrp/g",
            "/v1/desired_lrp/other/g",
            "/v1/desired_lrp/run/a/b",
            "/v1/actual/g",
            "/v1/actual/g/0",
            "/v1/actual/g/0/other",
            "/v1/actual/g/x/instance",
            "/v1/actual/g/-1/instance",
            "/v1/actual/g/+1/instance",
            "/v1/actual/g/01/instance",
            "/v1/actual/g/2147483648/instance",
            "/v1/task/a/b",
            "/v1/start/x",
            "/v1/locks/bbs_lock",
            "/v2/task/g",
        ] {
            assert_eq!(RecordKey::of(path), RecordKey::Foreign, "{path}");
        }
    }

    #[test]
    fn guid_has_letters_digits_hyphens_and_underscores() {
        for guid in ["a", "A-b_9", "0"] {
            assert_eq!(check_guid(guid), Ok(()));
        }
        for guid in ["", "a.b", "a b", "é", "a\n"] {
            assert_eq!(
                check_guid(guid),
                Err(RecordError::Guid { guid: guid.into() })
            );
        }
    }
}
