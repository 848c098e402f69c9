//! The version of the store, and the layout that it stands for.

use super::RecordError;
use super::json::JsonObject;

/// Where the desired LRPs of a store are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredAs {
    /// At `/v1/desired`.
    Whole,
    /// In two parts, at `/v1/desired_lrp`.
    Halves,
}

/// A version of the store, by what an import may do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreVersion {
    /// A version that Diego's BBS used.
    Readable {
        /// If whole desired LRPs are absent, the split has ended and its number was not written.
        /// `None` if the version is absent, because the store is older than versions, or empty, or
        /// the node was lost. The form of each record decides.
        stored_as: Option<StoredAs>,
    },
    /// Diego's BBS has imported the store into a database and has not written to it since.
    AlreadyImported { current: i64 },
    /// No release of Diego wrote this number.
    Unknown { current: i64 },
}

/// The etcd migration that split desired LRPs in two.
const SPLIT_DESIRED_LRP: i64 = 1_442_529_338;
/// Its successors, the last ones of etcd.
const ADD_CACHED_DEPENDENCIES: i64 = 1_450_292_094;
const TIMEOUTS_TO_MILLISECONDS: i64 = 1_451_635_200;
/// The version that v0.1475 and later releases wrote after an import.
const IMPORTED: i64 = TIMEOUTS_TO_MILLISECONDS + 1;
/// The version that v0.1470 to v0.1474 wrote: the number of the import among the migrations of the
/// database.
const FIRST_OF_DATABASE: i64 = 1_461_790_966;

/// Parses the value of `/version`: the number of the last etcd migration that has ended.
///
/// # Errors
/// If it is not a JSON object that has a number as `CurrentVersion`.
pub(super) fn parse(value: &str) -> Result<i64, RecordError> {
    const CURRENT: &str = "CurrentVersion";
    let node = JsonObject::parse(value.as_bytes())?;
    // A node without it is damaged, although Go's decoder would read zero.
    if node.get(CURRENT).is_none() {
        return Err(RecordError::JsonMember {
            key: CURRENT,
            expected: "a number",
        });
    }
    let current = node.field(CURRENT)?;
    // Only checked: the form of each record shows whether a migration has rewritten it.
    node.field::<i64>("TargetVersion")?;
    Ok(current)
}

/// Classifies the version of a store. `None` is an absent node.
pub fn judge(version: Option<i64>) -> StoreVersion {
    let stored_as = match version {
        None => None,
        Some(0..SPLIT_DESIRED_LRP) => Some(StoredAs::Whole),
        Some(SPLIT_DESIRED_LRP | ADD_CACHED_DEPENDENCIES | TIMEOUTS_TO_MILLISECONDS) => {
            Some(StoredAs::Halves)
        }
        Some(current @ (IMPORTED | FIRST_OF_DATABASE..)) => {
            return StoreVersion::AlreadyImported { current };
        }
        Some(current) => return StoreVersion::Unknown { current },
    };
    StoreVersion::Readable { stored_as }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_that_a_release_wrote_has_its_meaning() {
        use StoredAs::{Halves, Whole};
        for (current, stored_as) in [
            (0, Whole),
            (1, Whole),
            (1_441_411_196, Whole),
            (1_442_529_337, Whole),
            (1_442_529_338, Halves),
            (1_450_292_094, Halves),
            (1_451_635_200, Halves),
        ] {
            let stored_as = Some(stored_as);
            let expected = StoreVersion::Readable { stored_as };
            assert_eq!(judge(Some(current)), expected, "{current}");
        }
        for current in [
            1_451_635_201,
            1_461_790_966,
            1_461_790_967,
            1_481_761_088,
            i64::MAX,
        ] {
            let expected = StoreVersion::AlreadyImported { current };
            assert_eq!(judge(Some(current)), expected, "{current}");
        }
    }

    #[test]
    fn number_that_no_release_wrote_is_unknown() {
        for current in [
            i64::MIN,
            -1,
            1_442_529_339,
            1_450_292_093,
            1_450_292_095,
            1_451_635_199,
            1_451_635_202,
            1_461_790_965,
        ] {
            let expected = StoreVersion::Unknown { current };
            assert_eq!(judge(Some(current)), expected, "{current}");
        }
    }

    #[test]
    fn absent_version_leaves_the_layout_to_the_records() {
        assert_eq!(judge(None), StoreVersion::Readable { stored_as: None });
    }

    #[test]
    fn version_is_parsed_as_go_does() {
        for (value, current) in [
            (r#"{"CurrentVersion":5,"TargetVersion":7}"#, 5),
            (
                r#" { "targetversion":7,"CURRENTVERSION":5,"Other":[{}]} "#,
                5,
            ),
            (r#"{"CurrentVersion":0}"#, 0),
            (
                r#"{"CurrentVersion":9223372036854775807,"TargetVersion":null}"#,
                i64::MAX,
            ),
        ] {
            assert_eq!(parse(value), Ok(current), "{value}");
        }
    }

    #[test]
    fn damaged_version_is_an_error() {
        let member = |key| RecordError::JsonMember {
            key,
            expected: "a number",
        };
        for (value, error) in [
            ("", RecordError::Json { at: 0 }),
            ("1451635200", RecordError::Json { at: 0 }),
            ("[]", RecordError::Json { at: 0 }),
            (r#"{"CurrentVersion":5"#, RecordError::Json { at: 19 }),
            ("null", member("CurrentVersion")),
            ("{}", member("CurrentVersion")),
            (r#"{"CurrentVersion":null}"#, member("CurrentVersion")),
            (r#"{"CurrentVersion":"5"}"#, member("CurrentVersion")),
            (
                r#"{"CurrentVersion":9223372036854775808}"#,
                member("CurrentVersion"),
            ),
            (
                r#"{"CurrentVersion":5,"TargetVersion":1.0}"#,
                member("TargetVersion"),
            ),
        ] {
            assert_eq!(parse(value), Err(error), "{value}");
        }
    }
}
