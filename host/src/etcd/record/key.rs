//! The names of paths.

use super::RecordError;

/// The record that a path names, whatever its value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordKey<'a> {
    pub kind: RecordKind,
    /// The guid of the process or the task, or the name of the domain; empty for other kinds.
    pub name: &'a str,
    /// The index of the instance; 0 for other kinds.
    pub index: i32,
}

/// The kind of a record. Its order is that of reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordKind {
    /// `/version`.
    Version,
    /// `/encryption-key`.
    KeyLabel,
    /// `/v1/domain/<name>`; the name may contain `/`.
    Domain,
    /// `/v1/desired/<guid>`.
    DesiredLrp,
    /// `/v1/desired_lrp/schedule/<guid>`.
    SchedulingInfo,
    /// `/v1/desired_lrp/run/<guid>`.
    RunInfo,
    /// `/v1/actual/<guid>/<index>/instance`.
    ActualLrp,
    /// `/v1/actual/<guid>/<index>/evacuating`.
    EvacuatingActualLrp,
    /// `/v1/task/<guid>`.
    Task,
    /// Every other path.
    Foreign,
}

impl<'a> RecordKey<'a> {
    /// Parses a whole path. An instance index is written as Diego wrote it, in decimal without sign
    /// or leading zero.
    pub fn of(path: &'a str) -> Self {
        let key = |kind, name| Self {
            kind,
            name,
            index: 0,
        };
        let foreign = key(RecordKind::Foreign, "");
        let Some(path) = path.strip_prefix('/') else {
            return foreign;
        };
        if let Some(name) = path
            .strip_prefix("v1/domain/")
            .filter(|name| !name.is_empty())
        {
            return key(RecordKind::Domain, name);
        }
        match path.split('/').collect::<Vec<_>>()[..] {
            ["version"] => key(RecordKind::Version, ""),
            ["encryption-key"] => key(RecordKind::KeyLabel, ""),
            ["v1", "desired", guid] => key(RecordKind::DesiredLrp, guid),
            ["v1", "desired_lrp", "schedule", guid] => key(RecordKind::SchedulingInfo, guid),
            ["v1", "desired_lrp", "run", guid] => key(RecordKind::RunInfo, guid),
            [
                "v1",
                "actual",
                guid,
                index,
                slot @ ("instance" | "evacuating"),
            ] => {
                let kind = if slot == "evacuating" {
                    RecordKind::EvacuatingActualLrp
                } else {
                    RecordKind::ActualLrp
                };
                parse_index(index).map_or(foreign, |index| Self {
                    index,
                    ..key(kind, guid)
                })
            }
            ["v1", "task", guid] => key(RecordKind::Task, guid),
            _ => foreign,
        }
    }

    /// The guid of the process or the task. Records with one have content, which may be sealed.
    pub fn guid(&self) -> Option<&'a str> {
        match self.kind {
            RecordKind::DesiredLrp
            | RecordKind::SchedulingInfo
            | RecordKind::RunInfo
            | RecordKind::ActualLrp
            | RecordKind::EvacuatingActualLrp
            | RecordKind::Task => Some(self.name),
            RecordKind::Version
            | RecordKind::KeyLabel
            | RecordKind::Domain
            | RecordKind::Foreign => None,
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
        for (path, kind, name, index) in [
            ("/version", RecordKind::Version, "", 0),
            ("/encryption-key", RecordKind::KeyLabel, "", 0),
            ("/v1/domain/cf-apps", RecordKind::Domain, "cf-apps", 0),
            ("/v1/domain/a/b/c", RecordKind::Domain, "a/b/c", 0),
            ("/v1/desired/g", RecordKind::DesiredLrp, "g", 0),
            (
                "/v1/desired_lrp/schedule/g",
                RecordKind::SchedulingInfo,
                "g",
                0,
            ),
            ("/v1/desired_lrp/run/g", RecordKind::RunInfo, "g", 0),
            ("/v1/actual/g/0/instance", RecordKind::ActualLrp, "g", 0),
            (
                "/v1/actual/g/2147483647/evacuating",
                RecordKind::EvacuatingActualLrp,
                "g",
                i32::MAX,
            ),
            ("/v1/task/g", RecordKind::Task, "g", 0),
        ] {
            let expected = RecordKey { kind, name, index };
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
            assert_eq!(RecordKey::of(path).kind, RecordKind::Foreign, "{path}");
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
