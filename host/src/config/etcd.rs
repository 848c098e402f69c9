//! The etcd cluster to import from, under the keys that Diego's BBS had for it, and this project's
//! limits of its answers.

use std::time::Duration;

use reqwest::Url;

use super::keys::{FileKeys, Keys};
use super::{CertificateFiles, ConfigError};

/// As in Diego's BBS, which has no key for it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// etcd builds a large answer in memory before it sends the first byte of it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(300);
/// Far above the stores that etcd's second version could serve.
const MOST_BYTES: u64 = 16 << 30;
/// The beginning of URLs that TLS secures.
const SECURE: &str = "https://";
const FILES: FileKeys = [
    (
        "etcd_cert_file",
        "the certificate that this host shows to etcd, which has https URLs",
    ),
    (
        "etcd_key_file",
        "the key of the certificate that this host shows to etcd",
    ),
    (
        "etcd_ca_file",
        "the authority that signed the certificates of etcd's members",
    ),
];

/// An etcd cluster and how it is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdConfig {
    /// The URLs of its members, of one scheme: nothing but scheme, host and port.
    pub urls: Vec<String>,
    /// The certificate of this host and the authority of the members; absent for `http`.
    pub tls: Option<CertificateFiles>,
    /// The time that a connection may take.
    pub connect_timeout: Duration,
    /// Longest time until an answer begins, and longest pause within it. A request for one leaf waits
    /// no longer than 30 s for each member.
    pub answer_timeout: Duration,
    /// The most bytes of one answer.
    pub most_bytes: u64,
}

impl EtcdConfig {
    /// Returns `None` without URLs.
    pub(super) fn read(keys: &mut Keys) -> Option<Self> {
        const URLS: &str = "etcd_cluster_urls";
        let urls = keys.texts(URLS);
        let files = FILES.map(|(key, _)| keys.file(key));
        let connect_timeout = keys
            .duration("etcd_connect_timeout")
            .unwrap_or(CONNECT_TIMEOUT);
        let answer_timeout = keys
            .duration("etcd_answer_timeout")
            .unwrap_or(ANSWER_TIMEOUT);
        let most_bytes = keys
            .take("etcd_max_answer_bytes")
            .filter(|bytes: &u64| *bytes > 0)
            .unwrap_or(MOST_BYTES);
        let first = urls.first()?;
        let is_secure = first.starts_with(SECURE);
        if let Some(why) = refusal_of_urls(&urls, is_secure) {
            keys.fault(ConfigError::Refused { key: URLS, why });
        }
        let tls = is_secure.then(|| CertificateFiles::required(keys, files, FILES));
        Some(Self {
            urls,
            tls,
            connect_timeout,
            answer_timeout,
            most_bytes,
        })
    }
}

/// The reason for which these are no URLs of one cluster's members.
fn refusal_of_urls(urls: &[String], is_secure: bool) -> Option<&'static str> {
    let parsed: Result<Vec<Url>, _> = urls.iter().map(|url| Url::parse(url)).collect();
    let is_of_member = |url: &Url| url.host_str().is_some() && url.path() == "/";
    let Some(parsed) = parsed.ok().filter(|urls| urls.iter().all(is_of_member)) else {
        return Some(
            "it is a list of URLs without a path, such as [\"https://etcd.service.cf.internal:4001\"]",
        );
    };
    // Messages about a member show its URL, and a path is appended to it.
    if parsed.iter().any(has_more_than_a_member) {
        return Some(
            "its URLs have no user, password, query or fragment, and Diego's etcd has no users; write scheme, host and port alone, \
             such as \"https://etcd.service.cf.internal:4001\"",
        );
    }
    let scheme = if is_secure { SECURE } else { "http://" };
    let is_of_scheme = |url: &String| url.starts_with(scheme);
    (!urls.iter().all(is_of_scheme))
        .then_some("its URLs begin with https:// or with http://, all of them with the same")
}

fn has_more_than_a_member(url: &Url) -> bool {
    !url.username().is_empty()
        || url.password().is_some()
        || url.query().is_some()
        || url.fragment().is_some()
}
