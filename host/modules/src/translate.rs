//! The interface between the translator chain and an implementation of a translator, which in
//! production is a sandboxed component. Owns the types; independent of sandbox and HTTP.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

/// A semantic API version, `major.minor`, or a side shape of one, `major.minor-name`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ApiVersion {
    pub major: u32,
    pub minor: u32,
    /// `None` for a version of the chain.
    pub side: Option<SideName>,
}

/// The name of a side shape, such as `acme` in `1.1-acme`: lower-case letters and digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SideName([u8; Self::MAX_BYTES]);

impl SideName {
    const MAX_BYTES: usize = 16;

    /// `None` for a name that is empty, too long or of other characters.
    pub fn parse(text: &str) -> Option<Self> {
        let is_name = text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        if text.is_empty() || text.len() > Self::MAX_BYTES || !is_name {
            return None;
        }
        let mut padded = [0; Self::MAX_BYTES];
        padded[..text.len()].copy_from_slice(text.as_bytes());
        Some(Self(padded))
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0)
            .expect("a name is ASCII")
            .trim_end_matches('\0')
    }
}

impl std::fmt::Debug for SideName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl ApiVersion {
    /// The version `major.minor` of the chain.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self {
            major,
            minor,
            side: None,
        }
    }

    /// The version of the chain that a side shape is one of.
    pub const fn without_side(self) -> Self {
        Self::new(self.major, self.minor)
    }

    /// Parses `major.minor`, each in plain decimal digits without leading zeros, or
    /// `major.minor-name`.
    pub fn parse(text: &str) -> Option<Self> {
        let (version, side) = side_of(text)?;
        let (major, minor) = version.split_once('.')?;
        Some(Self {
            major: number(major)?,
            minor: number(minor)?,
            side,
        })
    }

    /// Parses what a client sends: a version, or one with a patch part such as `0.9.3`, which is
    /// dropped, since all patches of a minor version have the same API.
    pub fn parse_semantic(text: &str) -> Option<Self> {
        let (version, side) = side_of(text)?;
        let Some((version, patch)) = version
            .rsplit_once('.')
            .filter(|(version, _)| version.contains('.'))
        else {
            return Self::parse(text);
        };
        number(patch)?;
        Some(Self {
            side,
            ..Self::parse(version)?
        })
    }
}

/// A version without the name of its side shape, and that name.
fn side_of(text: &str) -> Option<(&str, Option<SideName>)> {
    match text.split_once('-') {
        Some((version, side)) => Some((version, Some(SideName::parse(side)?))),
        None => Some((text, None)),
    }
}

fn number(digits: &str) -> Option<u32> {
    let plain =
        digits == "0" || !digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

impl From<ApiVersion> for String {
    fn from(version: ApiVersion) -> Self {
        version.to_string()
    }
}

impl TryFrom<String> for ApiVersion {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| {
            format!("{text:?} is not an API version, such as \"0.10\" or \"1.1-acme\"")
        })
    }
}

impl std::fmt::Display for ApiVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        self.side.iter().try_for_each(|side| write!(f, "-{side:?}"))
    }
}

/// The description that a translator returns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TranslatorManifest {
    /// The version that its clients use.
    pub serves: ApiVersion,
    /// The version in terms of which it is written: a newer one or, for a side shape, the one that
    /// it is a shape of.
    pub onto: ApiVersion,
    /// Lower-case words and digits joined by `-`; at most 64 bytes.
    pub name: String,
    /// One line for operators, of 1 to 200 bytes.
    pub summary: String,
    /// The methods that it answers, each name once. Others are answered by the newer version,
    /// unless hidden.
    pub methods: Vec<Method>,
    /// Methods of the newer version that clients of the older one do not have.
    pub hides: Vec<String>,
}

/// The HTTP verb of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verb {
    Get,
    Post,
}

impl Verb {
    /// All verbs that a method may have.
    pub const ALL: [Self; 2] = [Self::Get, Self::Post];

    /// As in an HTTP request.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
        }
    }
}

/// The form of the answer of a method.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerForm {
    /// One message.
    Message,
    /// A list, which the host requests page by page.
    Pages,
    /// Server-sent events: those of this method of the newer version, translated.
    Events(String),
}

/// A method of the older API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Method {
    /// The name, with the revision if there is one, such as `ListDesiredLRPs_0_9`.
    pub name: String,
    /// The verb of its requests.
    pub verb: Verb,
    /// The path below the root of the version, such as `desired_lrps/list`. With `/v1/` in front,
    /// it is answered without a version too, as Diego's clients call it.
    pub path: String,
    /// The form of its answer.
    pub answer: AnswerForm,
}

impl Method {
    /// Diego's root, whose paths carry no version.
    const DIEGO_ROOT: &str = "/v1/";

    /// The path below the root of the version.
    pub fn path_in_version(&self) -> &str {
        self.path_of_diego().unwrap_or(&self.path)
    }

    /// The path below Diego's root, if it is answered without a version.
    pub fn path_of_diego(&self) -> Option<&str> {
        self.path.strip_prefix(Self::DIEGO_ROOT)
    }
}

/// An event as a subscriber receives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranslatedEvent {
    /// The event's name.
    pub name: String,
    /// The encoded message.
    pub payload: Vec<u8>,
    /// The ids of the cells that it concerns; `None` if it concerns every subscriber.
    pub cells: Option<Vec<Vec<u8>>>,
}

/// A record before and after an operation, as messages of the native version of the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedRecord {
    /// The message's name.
    pub message: &'static str,
    pub before: Option<Vec<u8>>,
    pub after: Option<Vec<u8>>,
}

/// A call failed without an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct TranslateError {
    /// The cause; names the module and its digest if the module is at fault.
    pub reason: String,
    /// Whether the input or the answer is too large for the limits of a module: a smaller page of a
    /// list may succeed.
    pub exceeds_limits: bool,
}

impl TranslateError {
    /// An error whatever the size of the input.
    pub fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            exceeds_limits: false,
        }
    }
}

/// A translator's call of the next newer version of the API: the next translator, or the host's own
/// handlers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextCall {
    /// The method's name.
    pub method: String,
    /// The encoded request.
    pub request: Vec<u8>,
}

/// The encoded answer to a call.
pub type NextAnswer = Result<Vec<u8>, TranslateError>;

/// The state at which a running call has stopped.
#[derive(Debug)]
pub enum CallProgress {
    /// It waits for the answer to a call of the next newer version.
    Next(NextCall),
    /// It has ended.
    Answered(NextAnswer),
}

/// A call that runs in a translator. Dropping it ends it.
pub trait TranslatedCall: Send {
    /// Runs the translator until it calls the next newer version or ends. `answer` is that to its
    /// last call; `None` at the beginning. The time between two runs does not count against the
    /// translator's deadline.
    ///
    /// The call fails if the translator returns a fault, traps or exceeds a limit.
    fn resume(&mut self, answer: Option<NextAnswer>) -> BoxFuture<'_, CallProgress>;
}

/// A translator that is ready to run.
pub trait Translate: Send + Sync {
    /// The translator's manifest.
    fn manifest(&self) -> &TranslatorManifest;

    /// The number of calls that it can answer concurrently; further calls fail.
    fn instances(&self) -> usize;

    /// Begins a call of a method of the older API.
    fn call(&self, method: &str, request: Bytes) -> Box<dyn TranslatedCall + '_>;

    /// The events that subscribers of `method`, one of its event streams, receive for an operation:
    /// for its changes, and the newer version's events of them.
    ///
    /// # Errors
    /// If the translator returns a fault or an event that cannot be sent, traps or exceeds a limit.
    fn events(
        &self,
        method: &str,
        changes: &Arc<[ChangedRecord]>,
        newer: Vec<TranslatedEvent>,
    ) -> BoxFuture<'_, Result<Vec<TranslatedEvent>, TranslateError>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_two_plain_numbers() {
        let version = |major, minor| Some(ApiVersion::new(major, minor));
        assert_eq!(ApiVersion::parse("0.9"), version(0, 9));
        assert_eq!(ApiVersion::parse("1.10"), version(1, 10));
        for wrong in [
            "",
            "1",
            "1.",
            ".1",
            "1.2.3",
            "v1.2",
            "+1.2",
            "01.2",
            "1.02",
            "1.-2",
            "1. 2",
            "1.4294967296",
        ] {
            assert_eq!(ApiVersion::parse(wrong), None, "{wrong}");
        }
        assert!(version(0, 9) < version(0, 10), "numbers, not text");
    }

    #[test]
    fn side_shape_of_a_version_has_a_name() {
        let acme = ApiVersion {
            side: SideName::parse("acme"),
            ..ApiVersion::new(1, 1)
        };
        for text in ["1.1-acme", "1.1.7-acme"] {
            assert_eq!(ApiVersion::parse_semantic(text), Some(acme), "{text}");
        }
        assert_eq!(
            (acme.to_string(), acme.without_side()),
            ("1.1-acme".to_owned(), ApiVersion::new(1, 1))
        );
        assert!(ApiVersion::parse("1.1-a234567890123456").is_some());
        for wrong in [
            "1.1-",
            "1.1-Acme",
            "1.1-a-b",
            "1.1-a.b",
            "1.1-a2345678901234567",
            "-acme",
            "1-acme",
        ] {
            assert_eq!(ApiVersion::parse_semantic(wrong), None, "{wrong}");
        }
        assert_eq!(ApiVersion::parse("1.1.7-acme"), None);
    }

    #[test]
    fn patch_part_of_a_semantic_version_is_dropped() {
        let version = |major, minor| Some(ApiVersion::new(major, minor));
        for (text, parsed) in [
            ("0.9", version(0, 9)),
            ("0.9.3", version(0, 9)),
            ("1.10.0", version(1, 10)),
        ] {
            assert_eq!(ApiVersion::parse_semantic(text), parsed, "{text}");
        }
        for wrong in [
            "",
            "1",
            "0.9.",
            ".9.3",
            "0.9.x",
            "0.9.03",
            "0.9.3.1",
            "0.9.3-",
            "0..3",
            "0.9.4294967296",
        ] {
            assert_eq!(ApiVersion::parse_semantic(wrong), None, "{wrong}");
        }
    }
}
