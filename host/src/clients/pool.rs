//! Requests over HTTP and their connections, which are kept and used again. Owns certificates, deadlines and what is said
//! of an answer that is not what it should be; knows nobody at the other end.

use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, Method, Response, Url};

use super::ClientError;
use super::fresh::Fresh;
use crate::model::TraceId;
use crate::tls::client::{Files, FilesError};

/// What Diego's components call a request.
const TRACE_ID: &str = "X-Vcap-Request-Id";
/// What it takes for others to have begun with what they were asked to do.
const ACCEPTED: u16 = 202;
const JSON: &str = "application/json";

/// Clones share their connections.
#[derive(Debug, Clone)]
pub(super) struct Pool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    client: Fresh<Client, PoolError>,
    timeout: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    #[error(transparent)]
    Files(#[from] FilesError),
    #[error("no connections can be made in this process")]
    Client(#[source] reqwest::Error),
}

/// One request.
#[derive(Debug)]
pub(super) struct Ask<'a> {
    /// What is said where it fails: cannot …
    pub(super) what: &'static str,
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) body: Vec<u8>,
    /// Sent where present, empty or not.
    pub(super) trace_id: Option<&'a TraceId>,
}

impl Pool {
    /// Each request has so long for everything. Without files, others see no certificate of this host.
    pub(super) fn new(files: Option<Files>, sessions: Option<usize>, timeout: Duration) -> Result<Self, PoolError> {
        crate::tls::choose_cryptography();
        let paths = files.iter().flat_map(Files::paths).map(ToOwned::to_owned).collect();
        let client = Fresh::new(paths, move || {
            let client = Client::builder().http1_only();
            let client = match &files {
                Some(files) => client.tls_backend_preconfigured(files.config(sessions)?),
                None => client,
            };
            client.build().map_err(PoolError::Client)
        })?;
        Ok(Self(Arc::new(Inner { client, timeout })))
    }

    /// Whatever the answer is.
    pub(super) async fn send(&self, ask: &Ask<'_>) -> Result<Response, ClientError> {
        let mut request = self.0.client.get().request(ask.method.clone(), ask.url.clone()).timeout(self.0.timeout);
        if let Some(TraceId(id)) = ask.trace_id {
            // What cannot be a header was none when it came in.
            if let Ok(id) = reqwest::header::HeaderValue::from_str(id) {
                request = request.header(TRACE_ID, id);
            }
        }
        let request = request.header(reqwest::header::CONTENT_TYPE, JSON).body(ask.body.clone());
        request.send().await.map_err(|source| ClientError::Unreachable { what: ask.what, source })
    }

    /// Nothing but the promise to do it is good enough.
    pub(super) async fn ask(&self, ask: &Ask<'_>) -> Result<(), ClientError> {
        let answer = self.send(ask).await?;
        match answer.status().as_u16() {
            ACCEPTED => {
                // To the end, so that the connection can be used again; nothing in it changes what was promised.
                let _ = answer.bytes().await;
                Ok(())
            }
            status => Err(ClientError::Status { what: ask.what, status }),
        }
    }
}
