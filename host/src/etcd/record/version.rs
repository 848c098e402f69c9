//! The version of the store, and the layout that it stands for.

use super::RecordError;
use super::json::JsonObject;

/// The content of `/version`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionNode {
    /// The number of the last etcd migration that has ended, 0 before the first.
    pub current: i64,
    /// The number of the last migration that was to run.
    pub target: i64,
}

/// Where the desired LRPs of the store are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreLayout {
    /// Whole, at `/v1/desired`. If that is absent, the split has ended and its number was not
    /// written.
    Whole,
    /// In two parts, at `/v1/desired_lrp`.
    Split,
    /// Not known: the version is absent, because the store is older than versions, or empty, or the
    /// node was lost. The form of each record decides.
    ByRecord,
}

/// A version of the store, by what an import may do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreVersion {
    /// A layout that Diego's BBS used.
    Readable {
        /// Where the desired LRPs are.
        layout: StoreLayout,
        /// Whether a migration was under way, so that some records may already be rewritten.
        is_interrupted: bool,
    },
    /// Diego's BBS has imported the store into a database and has not written to it since.
    AlreadyImported {
        /// `CurrentVersion`.
        current: i64,
    },
    /// No release of Diego wrote this number.
    Unknown {
        /// `CurrentVersion`.
        current: i64,
    },
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

impl VersionNode {
    /// Parses the value of `/version`.
    ///
    /// # Errors
    /// If it is not a JSON object that has a number as `CurrentVersion`.
    pub fn parse(value: &str) -> Result<Self, RecordError> {
        const CURRENT: &str = "CurrentVersion";
        let node = JsonObject::parse(value.as_bytes())?;
        // A node without it is damaged, although Go's decoder would read zero.
        if node.get(CURRENT).is_none() {
            return Err(RecordError::JsonMember {
                key: CURRENT,
                expected: "a number",
            });
        }
        Ok(Self {
            current: node.number(CURRENT)?,
            target: node.number("TargetVersion")?,
        })
    }
}

/// Classifies the version of a store. `None` is an absent node.
pub fn judge(version: Option<&VersionNode>) -> StoreVersion {
    let Some(&VersionNode { current, target }) = version else {
        return StoreVersion::Readable {
            layout: StoreLayout::ByRecord,
            is_interrupted: false,
        };
    };
    let layout = match current {
        0..SPLIT_DESIRED_LRP => StoreLayout::Whole,
        SPLIT_DESIRED_LRP | ADD_CACHED_DEPENDENCIES | TIMEOUTS_TO_MILLISECONDS => {
            StoreLayout::Split
        }
        IMPORTED | FIRST_OF_DATABASE.. => return StoreVersion::AlreadyImported { current },
        _ => return StoreVersion::Unknown { current },
    };
    StoreVersion::Readable {
        layout,
        is_interrupted: current < target,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readable(layout: StoreLayout, is_interrupted: bool) -> StoreVersion {
        StoreVersion::Readable {
            layout,
            is_interrupted,
        }
    }

    #[test]
    fn each_number_that_a_release_wrote_has_its_meaning() {
        use StoreLayout::{Split, Whole};
        for (current, layout) in [
            (0, Whole),
            (1, Whole),
            (1_441_411_196, Whole),
            (1_442_529_337, Whole),
            (1_442_529_338, Split),
            (1_450_292_094, Split),
            (1_451_635_200, Split),
        ] {
            for target in [
                i64::MIN,
                0,
                current - 1,
                current,
                current + 1,
                1_451_635_200,
                i64::MAX,
            ] {
                let found = judge(Some(&VersionNode { current, target }));
                assert_eq!(
                    found,
                    readable(layout, target > current),
                    "{current}, {target}"
                );
            }
        }
        for current in [
            1_451_635_201,
            1_461_790_966,
            1_461_790_967,
            1_481_761_088,
            i64::MAX,
        ] {
            for target in [0, current, i64::MAX] {
                let found = judge(Some(&VersionNode { current, target }));
                assert_eq!(
                    found,
                    StoreVersion::AlreadyImported { current },
                    "{current}, {target}"
                );
            }
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
            for target in [0, current, i64::MAX] {
                let found = judge(Some(&VersionNode { current, target }));
                assert_eq!(
                    found,
                    StoreVersion::Unknown { current },
                    "{current}, {target}"
                );
            }
        }
    }

    #[test]
    fn absent_version_leaves_the_layout_to_the_records() {
        assert_eq!(judge(None), readable(StoreLayout::ByRecord, false));
    }

    #[test]
    fn version_is_parsed_as_go_does() {
        let parse = |value| VersionNode::parse(value).map(|node| (node.current, node.target));
        assert_eq!(
            parse(r#"{"CurrentVersion":5,"TargetVersion":7}"#),
            Ok((5, 7))
        );
        assert_eq!(
            parse(r#" { "targetversion":7,"CURRENTVERSION":5,"Other":[{}]} "#),
            Ok((5, 7))
        );
        assert_eq!(parse(r#"{"CurrentVersion":0}"#), Ok((0, 0)));
        assert_eq!(
            parse(r#"{"CurrentVersion":9223372036854775807,"TargetVersion":null}"#),
            Ok((i64::MAX, 0))
        );
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
            assert_eq!(VersionNode::parse(value), Err(error), "{value}");
        }
    }
}
