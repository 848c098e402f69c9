//! The TLS sessions that clients resume, which saves them full handshakes. Owns their end: rustls
//! compares no dates when a client resumes a session, so its certificate may have expired since.
//! Go's server, and so Diego's, makes a full handshake with such a client.

use std::sync::Arc;

use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use rustls::server::{ServerSessionMemoryCache, StoresServerSessions};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::NS_PER_S;
use crate::clock::Clock;

/// The most sessions, as many as rustls keeps by default.
const MOST_SESSIONS: usize = 256;

/// The sessions of the clients of one configuration.
#[derive(Debug)]
pub(super) struct ResumableSessions {
    clock: Arc<dyn Clock>,
    valid: Mutex<ValidSessions>,
}

/// Sessions of clients whose certificates are valid up to a time.
#[derive(Debug)]
struct ValidSessions {
    cache: Arc<ServerSessionMemoryCache>,
    /// When the first of these certificates expires, in seconds since 1970.
    until_s: i64,
}

impl ValidSessions {
    fn none() -> Self {
        Self {
            cache: ServerSessionMemoryCache::new(MOST_SESSIONS),
            until_s: i64::MAX,
        }
    }
}

impl ResumableSessions {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            valid: Mutex::new(ValidSessions::none()),
        }
    }

    /// The time, in seconds since 1970.
    pub(super) fn now_s(&self) -> i64 {
        self.clock.now_ns() / NS_PER_S
    }

    /// Ends the sessions when a certificate of this chain expires. To be called after each
    /// handshake, also of a client that has resumed a session: it gets further ones. `began_s` is
    /// the time at which the handshake began.
    pub(super) fn end_with(&self, chain: &[CertificateDer<'_>], began_s: i64) {
        let expiry_s = |certificate: &CertificateDer<'_>| {
            X509Certificate::from_der(certificate).map_or(i64::MIN, |(_, parsed)| {
                parsed.validity().not_after.timestamp()
            })
        };
        let Some((own, others)) = chain.split_first() else {
            return;
        };
        // One of the others that had expired before the handshake was not needed.
        let others = others.iter().map(expiry_s).filter(|at_s| *at_s >= began_s);
        let first_s = others.fold(expiry_s(own), i64::min);
        let mut valid = self.valid.lock();
        valid.until_s = valid.until_s.min(first_s);
    }

    /// The cache. Empty once a certificate has expired, since the client of a session in it is not
    /// known; the other clients make one full handshake.
    fn cache(&self) -> Arc<ServerSessionMemoryCache> {
        let now_s = self.now_s();
        let mut valid = self.valid.lock();
        if now_s > valid.until_s {
            *valid = ValidSessions::none();
        }
        Arc::clone(&valid.cache)
    }
}

impl StoresServerSessions for ResumableSessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.cache().put(key, value)
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.cache().get(key)
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.cache().take(key)
    }

    fn can_cache(&self) -> bool {
        true
    }
}
