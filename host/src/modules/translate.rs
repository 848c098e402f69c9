//! The seam between the translator chain and whatever runs a translator: in production a
//! sandboxed component. Owns the shapes; knows no sandbox and no HTTP.

use serde::{Deserialize, Serialize};

/// `major.minor`, semantic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ApiVersion {
    pub major: u32,
    pub minor: u32,
}

impl ApiVersion {
    /// Reads `major.minor`, each in plain decimal digits without leading zeros.
    pub fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once('.')?;
        Some(Self { major: number(major)?, minor: number(minor)? })
    }

    /// Reads what a client sends: `major.minor`, or a whole semantic version such as `0.9.3`. Its patch part is dropped,
    /// since an API is the same in every patch of a minor version.
    pub fn parse_semantic(text: &str) -> Option<Self> {
        let Some((version, patch)) = text.rsplit_once('.').filter(|(version, _)| version.contains('.')) else {
            return Self::parse(text);
        };
        number(patch)?;
        Self::parse(version)
    }
}

fn number(digits: &str) -> Option<u32> {
    let plain = digits == "0" || !digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit());
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
        Self::parse(&text).ok_or_else(|| format!("{text:?} is not an API version, such as \"0.10\""))
    }
}

impl std::fmt::Display for ApiVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// What a translator says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TranslatorManifest {
    /// The version that clients of this translator speak.
    pub serves: ApiVersion,
    /// The version it is written in terms of.
    pub onto: ApiVersion,
    pub name: String,
    pub summary: String,
    pub methods: Vec<Method>,
    /// Methods of the newer version that a client of the older one does not have.
    pub hides: Vec<String>,
    /// Whether event batches are to be passed to it.
    pub events: bool,
}

/// A method of the older API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Method {
    /// Named with its revision where it has one, such as `ListDesiredLRPs_0_9`.
    pub name: String,
    /// Below the API root, such as `desired_lrps/list`.
    pub path: String,
    /// Whether the host runs it page by page.
    pub paged: bool,
}

/// Why a call was not answered at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct TranslateError {
    /// What went wrong, naming the module and its digest where a module is at fault.
    pub reason: String,
}

/// The next newer version of the API, ending in the host's own handlers.
pub type Next<'a> = &'a mut dyn FnMut(&str, &[u8]) -> Result<Vec<u8>, TranslateError>;

/// One translator, ready to run. Blocking: the chain runs off the async threads.
pub trait Translate: Send + Sync {
    fn manifest(&self) -> &TranslatorManifest;

    /// How many calls it can answer at once; one more waits for one of them.
    fn instances(&self) -> usize;

    /// Answers one method of the older API by calling the next newer one through `next`.
    /// The time spent inside `next` does not count against the translator's deadline.
    fn call(&self, method: &str, request: &[u8], next: Next<'_>) -> Result<Vec<u8>, TranslateError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_two_plain_numbers() {
        let version = |major, minor| Some(ApiVersion { major, minor });
        assert_eq!(ApiVersion::parse("0.9"), version(0, 9));
        assert_eq!(ApiVersion::parse("1.10"), version(1, 10));
        for wrong in ["", "1", "1.", ".1", "1.2.3", "v1.2", "+1.2", "01.2", "1.02", "1.-2", "1. 2", "1.4294967296"] {
            assert_eq!(ApiVersion::parse(wrong), None, "{wrong}");
        }
        assert!(version(0, 9) < version(0, 10), "numbers, not text");
    }

    #[test]
    fn patch_part_of_a_semantic_version_is_dropped() {
        let version = |major, minor| Some(ApiVersion { major, minor });
        for (text, parsed) in [("0.9", version(0, 9)), ("0.9.3", version(0, 9)), ("1.10.0", version(1, 10))] {
            assert_eq!(ApiVersion::parse_semantic(text), parsed, "{text}");
        }
        for wrong in ["", "1", "0.9.", ".9.3", "0.9.x", "0.9.03", "0.9.3.1", "0.9.3-rc1", "0..3", "0.9.4294967296"] {
            assert_eq!(ApiVersion::parse_semantic(wrong), None, "{wrong}");
        }
    }
}
