//! Why etcd could not be read or written, and what to do about it.

use std::time::Duration;

use crate::tls::TlsError;

/// Why etcd could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    #[error(
        "the certificates for etcd cannot be used; correct `etcd_cert_file`, `etcd_key_file` or `etcd_ca_file`"
    )]
    Tls(#[from] TlsError),
    #[error("no connections can be made in this process")]
    Client(#[source] reqwest::Error),
    #[error(
        "cannot connect to etcd at {member}; check that it runs and that `etcd_cluster_urls` has its address"
    )]
    Unreachable {
        member: String,
        source: reqwest::Error,
    },
    #[error(
        "no connection to etcd at {member} can be secured: {reason}. Check the dates of the certificates of both, that `etcd_ca_file` signed \
         etcd's, and that the URL has a name that etcd's is for"
    )]
    Handshake {
        member: String,
        reason: String,
        source: reqwest::Error,
    },
    #[error(
        "etcd at {member} sent no answer within {limit:?}; check the member's log; a read of the whole store may take up to \
         `etcd_answer_timeout`"
    )]
    Silent { member: String, limit: Duration },
    #[error(
        "the answer of etcd at {member} stalled for {limit:?}; start again. Check the member's log, and raise `etcd_answer_timeout` \
         if it is slow"
    )]
    Stalled { member: String, limit: Duration },
    #[error(
        "the connection to etcd at {member} ended before the answer did; start again, and check the member's log"
    )]
    Broken {
        member: String,
        source: reqwest::Error,
    },
    #[error(
        "the answer of etcd at {member} is damaged or incomplete; start again, with the address of a member and not of a proxy"
    )]
    Damaged {
        member: String,
        source: serde_json::Error,
    },
    #[error(
        "the answer of etcd at {member} has more than {most_bytes} bytes; raise `etcd_max_answer_bytes` if the store is that large"
    )]
    TooLarge { member: String, most_bytes: u64 },
    #[error(
        "the answer has no header {name}, as etcd's have; name the members of etcd in `etcd_cluster_urls`"
    )]
    Header { name: &'static str },
    #[error(
        "{member} has no second API of etcd: turn it on with `--enable-v2=true`, which releases 3.4 and 3.5 need and later ones do not \
         have, or correct `etcd_cluster_urls`"
    )]
    NotEtcd { member: String },
    #[error(
        "{member} answers with the status {status}, and redirects are not followed; name the members of etcd in `etcd_cluster_urls`"
    )]
    Redirect { member: String, status: u16 },
    #[error(
        "{member} answers with the status {status}; name the members of etcd in `etcd_cluster_urls`, and see their logs"
    )]
    Status { member: String, status: u16 },
    #[error(
        "etcd at {member} has no majority ({message}); start the other members, then start again"
    )]
    NoQuorum { member: String, message: String },
    #[error(
        "etcd at {member} demands a user and password, which Diego's never did; turn its authentication off (`etcdctl auth disable`)"
    )]
    Unauthorized { member: String },
    #[error("etcd at {member} answers with error {code}: {message}; see its log, then start again")]
    Answer {
        member: String,
        code: u64,
        message: String,
        index: u64,
    },
    #[error(
        "etcd at {member} is of cluster {found}, and the store that was read before is of {known}; name the members of that cluster"
    )]
    OtherCluster {
        member: String,
        found: String,
        known: String,
    },
    #[error("{key} of etcd was changed by another client")]
    Compare { key: String },
    #[error("the work was interrupted; start again")]
    Interrupted,
}

impl EtcdError {
    pub(super) fn of_connection(member: &str, source: reqwest::Error) -> Self {
        let member = member.to_owned();
        let mut causes =
            std::iter::successors(std::error::Error::source(&source), |cause| cause.source());
        let handshake = causes.find_map(|cause| {
            let inner = cause
                .downcast_ref::<std::io::Error>()
                .and_then(std::io::Error::get_ref);
            let inner = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
            cause
                .downcast_ref::<rustls::Error>()
                .or(inner)
                .map(ToString::to_string)
        });
        match handshake {
            Some(reason) => Self::Handshake {
                member,
                reason,
                source,
            },
            None if source.is_connect() => Self::Unreachable { member, source },
            None => Self::Broken { member, source },
        }
    }
}
