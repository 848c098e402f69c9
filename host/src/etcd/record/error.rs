//! Why a leaf is not the record that its path names.

use bbs_encryption::EncryptionError;
use bbs_proto::prost::DecodeError;

/// The reason for which a value is not the record of its path. Contains no content of the record
/// but guids.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// No release wrote an empty record, but a failed etcd migration may have left one.
    #[error("the value is empty")]
    Empty,
    /// Values begin with `00`, `01` or `02`, or with no digit.
    #[error("unknown encoding {found:?}: no release of Diego wrote it")]
    Encoding { found: String },
    /// The value begins with `01`.
    #[error("the value is not base64: it is damaged")]
    Base64,
    /// The value begins with `02`.
    #[error(transparent)]
    Sealed(#[from] EncryptionError),
    /// Submessages and texts of protobuf, values of JSON; counted before decoding.
    #[error("the record has more than {limit} elements")]
    Elements { limit: usize },
    /// The value has no protobuf envelope.
    #[error("the value is not JSON: the error is at byte {at}")]
    Json { at: usize },
    /// The value is valid JSON.
    #[error("the JSON member {key:?} is not {expected}")]
    JsonMember {
        key: &'static str,
        expected: &'static str,
    },
    /// Scheduling infos and run infos were protobuf from the first.
    #[error("the value is JSON, which no release of Diego wrote for this kind of record")]
    UnexpectedJson,
    /// The value has a protobuf envelope.
    #[error("the value is not the message that belongs here: {0}")]
    Protobuf(DecodeError),
    /// An object that stands for an action.
    #[error("an action has no kind, an unknown one or several")]
    ActionKind,
    /// A deeper message could be stored, but not decoded again.
    #[error("actions are nested more than {limit} deep")]
    ActionDepth { limit: usize },
    /// The form of releases v0.1462 to v0.1481 has only these two.
    #[error("a volume mount has mode {mode}, which is neither read-only (0) nor read-write (1)")]
    VolumeMode { mode: i32 },
    /// The guid is part of the path.
    #[error("the guid {guid:?} in the path has other characters than letters, digits, `-` and `_`")]
    Guid { guid: String },
    /// The guid or the index.
    #[error("the path has {path:?}, but the record has {found:?}")]
    KeyMismatch { path: String, found: String },
    /// Every release wrote one into a task.
    #[error("the task has no definition")]
    MissingDefinition,
}
