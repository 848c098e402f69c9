//! The errors of a client and of its calls. Owns which failures may pass, so that a call is tried
//! again.

use std::time::Duration;

use bbs_proto::models;
use bbs_proto::prost::DecodeError;

use crate::tls::TlsFilesError;

/// Why a client cannot be set up.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum ConnectError {
    /// The address is no URL of a server.
    #[error("{url:?} is not the URL of a BBS; write it as in https://bbs.example.com:8889")]
    Url { url: String },
    /// A server with TLS, and no authority to verify it with.
    #[error(
        "{url} has TLS, and there is no authority to verify it with; name the file of its certificate authority"
    )]
    NoAuthority { url: String },
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsFilesError),
    /// The process cannot make connections.
    #[error("no connections can be made in this process")]
    Client(#[source] reqwest::Error),
}

/// An error that the BBS answered with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} ({})", .message.escape_debug(), .kind.as_str_name())]
pub struct Refusal {
    /// The type; `UnknownError` for one that this client does not know.
    pub kind: models::error::Type,
    /// The text.
    pub message: String,
}

impl From<models::Error> for Refusal {
    fn from(error: models::Error) -> Self {
        Self {
            kind: error.r#type(),
            message: String::from_utf8_lossy(&error.message).into_owned(),
        }
    }
}

/// Why a call has no result. `url` is the address of the method or stream.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum CallError {
    /// The BBS answered with an error.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// There was no answer, or not all of it; the call may have been carried out.
    #[error("no answer from {url}")]
    NoAnswer { url: String, source: reqwest::Error },
    /// The answer did not come in time; the call may have been carried out.
    #[error("no answer from {url} in time")]
    TimedOut {
        url: String,
        source: Option<reqwest::Error>,
    },
    /// The BBS does not take the call at the moment: it migrates its database, is no longer the
    /// master, or has too much to do.
    #[error("{url} does not serve at the moment{}", in_parentheses(.reason))]
    NotReady {
        url: String,
        /// The time after which the BBS wishes to receive the next request.
        retry_after: Option<Duration>,
        /// The body of the answer, such as the progress of a migration as JSON.
        reason: String,
    },
    /// The BBS does not have the method, or not its version of the API.
    #[error("{url} is not served by this BBS{}", in_parentheses(.reason))]
    NotServed { url: String, reason: String },
    /// Cloud Foundry's router answered instead of the BBS.
    #[error("the router in front of {url} answered: {reason}")]
    Router { url: String, reason: String },
    /// Any other answer that is none of the API.
    #[error("{url} was answered with status {status}{}", in_parentheses(.reason))]
    Status {
        url: String,
        status: u16,
        reason: String,
    },
    /// The answer to a subscription is no event stream.
    #[error(
        "{url} was answered with status {status} and {}, and not with an event stream",
        or_none(.media_type)
    )]
    NotAStream {
        url: String,
        status: u16,
        /// The media type of the answer; empty if it has none.
        media_type: String,
    },
    /// The answer is not the expected message.
    #[error("the answer of {url} cannot be decoded")]
    Undecodable { url: String, source: DecodeError },
    /// An event stream has an event that cannot be read.
    #[error("the event stream {url} has an event that cannot be read: {reason}")]
    Event { url: String, reason: String },
}

impl CallError {
    /// The type of the error that the BBS answered with; `None` if there was no answer of the API.
    #[must_use]
    pub fn kind(&self) -> Option<models::error::Type> {
        if let Self::Refused(refusal) = self {
            Some(refusal.kind)
        } else {
            None
        }
    }

    /// Whether the failure may pass, so that the next attempt may have an answer.
    pub(crate) fn is_transient(&self) -> bool {
        !matches!(self, Self::Refused(_) | Self::NotServed { .. })
    }
}

fn or_none(media_type: &str) -> &str {
    if media_type.is_empty() {
        "no media type"
    } else {
        media_type
    }
}

fn in_parentheses(reason: &str) -> String {
    if reason.is_empty() {
        String::new()
    } else {
        format!(" ({})", reason.trim_end())
    }
}
