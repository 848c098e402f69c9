//! HTTP connection pool with TLS for requests to other components. Owns certificates, timeouts and
//! the check of the answer's status.

use std::sync::Arc;
use std::time::Duration;

use bbs_model::TraceId;
use bytes::Bytes;
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Method, Response, Url};

use super::resolver::Resolver;
use super::{ClientError, ClientsError};
use crate::config::CertificateFiles;
use crate::tls::reloading::Reloading;
use crate::tls::{self, TlsError};

/// Diego's header for the trace id.
const TRACE_ID: &str = "X-Vcap-Request-Id";
/// Diego's components answer a request that they started to process with this status.
const ACCEPTED: u16 = 202;
const JSON: &str = "application/json";

/// Bytes of a body that are read. Diego's components send fewer; receivers of callbacks may send
/// anything.
const DRAINED: usize = 16 << 10;
/// Redirects that are followed, as many as Go's client follows.
const REDIRECTS: usize = 10;
/// Time limit of a connection to be made, the wait for its address and TLS included. That of a dial
/// in Diego.
const DIAL_TIMEOUT: Duration = Duration::from_secs(5);
/// Threads in which a pool resolves names, of the 512 for blocking work in the process. Where DNS
/// answers, each resolves hundreds of names in a second.
const RESOLVER_THREADS: usize = 32;

/// Clones share their connections.
#[derive(Debug, Clone)]
pub(super) struct Pool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    client: Reloading<Client, PoolError>,
    timeout: Duration,
}

/// Why a pool cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    #[error(transparent)]
    Files(#[from] TlsError),
    #[error("no connections can be made in this process")]
    Client(#[source] reqwest::Error),
}

/// A request to send.
#[derive(Debug)]
pub(super) struct RequestToSend<'a> {
    /// Completes the error message "cannot …".
    pub(super) what: &'static str,
    pub(super) method: Method,
    pub(super) url: Url,
    /// Shared by all attempts.
    pub(super) body: Bytes,
    /// Sent as a header if present, also when empty.
    pub(super) trace_id: Option<&'a TraceId>,
}

impl Pool {
    /// `timeout` covers a whole request. Without files, no client certificate is presented. `keys`
    /// are those of the configuration that name the files, for an error.
    pub(super) fn new(
        keys: &'static str,
        files: Option<CertificateFiles>,
        sessions: Option<usize>,
        timeout: Duration,
    ) -> Result<Self, ClientsError> {
        tls::choose_cryptography();
        let paths = files.iter().flat_map(tls::client::paths).collect();
        let resolver = Resolver::new(RESOLVER_THREADS);
        let client = Reloading::new(paths, move || {
            let client = match &files {
                Some(files) => builder(&resolver)
                    .tls_backend_preconfigured(tls::client::config(files, sessions)?)
                    .build(),
                None => tls::client::of_system(|| builder(&resolver)),
            };
            client.map_err(PoolError::Client)
        });
        let client = client.map_err(|source| ClientsError::Pool {
            keys,
            source: Box::new(source),
        })?;
        Ok(Self(Arc::new(Inner { client, timeout })))
    }

    /// Sends a request; any status is a success.
    pub(super) async fn send(&self, outgoing: &RequestToSend<'_>) -> Result<Response, ClientError> {
        let mut request = self
            .0
            .client
            .get()
            .request(outgoing.method.clone(), outgoing.url.clone())
            .timeout(self.0.timeout);
        if let Some(TraceId(id)) = outgoing.trace_id {
            // An id that is not valid in a header was not valid when it came in.
            if let Ok(id) = reqwest::header::HeaderValue::from_str(id) {
                request = request.header(TRACE_ID, id);
            }
        }
        let request = request
            .header(reqwest::header::CONTENT_TYPE, JSON)
            .body(outgoing.body.clone());
        request
            .send()
            .await
            .map_err(|source| ClientError::Unreachable {
                what: outgoing.what,
                source,
            })
    }

    /// Sends a request; any status but 202 Accepted is an error.
    pub(super) async fn send_for_acceptance(
        &self,
        outgoing: &RequestToSend<'_>,
    ) -> Result<(), ClientError> {
        let answer = self.send(outgoing).await?;
        match answer.status().as_u16() {
            ACCEPTED => {
                drain(answer).await;
                Ok(())
            }
            status => {
                let address = outgoing.url.authority().to_owned();
                Err(ClientError::Status {
                    what: outgoing.what,
                    address,
                    status,
                })
            }
        }
    }
}

/// The settings that do not depend on certificates.
fn builder(resolver: &Resolver) -> ClientBuilder {
    Client::builder()
        .dns_resolver(resolver.clone())
        .http1_only()
        .redirect(Policy::limited(REDIRECTS))
        // Diego's components are reached within their deployment; its clients ignore `HTTPS_PROXY`
        // and the like, too.
        .no_proxy()
        .connect_timeout(DIAL_TIMEOUT)
}

/// Reads an unused body to its end, so that the connection can be reused; gives up a large one,
/// which closes the connection. The timeout of the request applies.
pub(super) async fn drain(mut answer: Response) {
    let mut read = 0;
    while let Ok(Some(chunk)) = answer.chunk().await {
        read += chunk.len();
        if read > DRAINED {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    const SHORT: Duration = Duration::from_millis(50);

    /// Method: reads the library's description of the client, because the variables of the
    /// environment are those of all tests.
    #[test]
    fn client_has_a_dial_timeout_and_ignores_the_proxies_of_the_environment() {
        let pool = Pool::new("rep_*", None, None, Duration::from_secs(1)).unwrap();
        let client = format!("{:?}", pool.0.client.get());
        assert!(!client.contains("proxies"), "{client}");
        let builder = format!("{:?}", builder(&Resolver::new(1)));
        assert!(builder.contains("connect_timeout: 5s"), "{builder}");
    }

    /// Method: a listener whose connections wait, so that neither TLS nor an answer begins.
    #[tokio::test]
    async fn timeout_of_a_dial_is_not_that_of_a_request() {
        tls::choose_cryptography();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let failed = async |scheme: &str, limited: fn(ClientBuilder) -> ClientBuilder| {
            let builder = || limited(builder(&Resolver::new(1)));
            let client = tls::client::of_system(builder).unwrap();
            let sent = client.get(format!("{scheme}://{address}/")).send().await;
            let source = sent.unwrap_err();
            assert!(source.is_timeout(), "{source:?}");
            let what = "send a request";
            ClientError::Unreachable { what, source }
        };
        let dial = failed("https", |builder| builder.connect_timeout(SHORT)).await;
        assert!(!dial.is_request_timeout(), "{dial:?}");
        let request = failed("http", |builder| builder.timeout(SHORT)).await;
        assert!(request.is_request_timeout(), "{request:?}");
    }

    /// Method: a resolver without a thread, and a server that answers one request.
    #[tokio::test]
    async fn names_wait_for_a_resolution_until_the_dial_timeout_and_addresses_do_not() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let (mut connection, _) = listener.accept().unwrap();
            assert_ne!(connection.read(&mut [0; 1024]).unwrap(), 0);
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
            connection.write_all(answer).unwrap();
        });
        tls::choose_cryptography();
        let builder = builder(&Resolver::new(0)).connect_timeout(SHORT);
        let client = tls::client::plain(builder).unwrap();
        let sent = async |host: &str| client.get(format!("http://{host}:{port}/")).send().await;
        let error = sent("localhost").await.unwrap_err();
        assert!(error.is_connect() && error.is_timeout(), "{error:?}");
        assert_eq!(sent("127.0.0.1").await.unwrap().status().as_u16(), 200);
    }
}
