//! A client and its calls: sends a request, tries again, and finds out what answered. Owns the
//! rules by which an answer is one of the BBS, those of Diego's own client.

use std::net::SocketAddr;
use std::time::Duration;

use backon::{ConstantBuilder, Retryable};
use bbs_proto::prost::Message;
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Response, Url};

use crate::error::{CallError, ConnectError};
use crate::method::{Answer, Method, Version};
use crate::tls::{self, TlsFiles};

/// The media type of messages.
const PROTOBUF: &str = "application/x-protobuf";
/// The media type of event streams.
const EVENT_STREAM: &str = "text/event-stream";
/// The header of Cloud Foundry's router when it answers itself.
const ROUTER_ERROR: &str = "X-Cf-Routererror";
/// The header with the id that a request has in logs and events.
const TRACE_ID: &str = "X-Vcap-Request-Id";
/// The longest time until a connection is open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of an answer that is none of the API that an error has.
const REASON_BYTES: usize = 2048;

/// The settings of a client.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Certificates, for a server with TLS.
    pub tls: TlsFiles,
    /// The attempts of each call.
    pub retries: Retries,
    /// The longest time of an attempt, with its answer; of [`Client::send`] and an event stream,
    /// without the body of the answer. Without one, none, as for Diego's client: a list may be
    /// large.
    pub timeout: Option<Duration>,
    /// The address to connect to instead of that of the URL's host, whose name the server's
    /// certificate then has to have.
    pub connect_to: Option<SocketAddr>,
}

/// The attempts of each call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// All of them, with the first; 0 counts as 1.
    pub attempts: u16,
    /// The time between two.
    pub pause: Duration,
}

impl Default for Retries {
    /// The attempts of Diego's client.
    fn default() -> Self {
        Self {
            attempts: 3,
            pause: Duration::from_millis(500),
        }
    }
}

impl Retries {
    /// A single attempt.
    pub const NONE: Self = Self {
        attempts: 1,
        pause: Duration::ZERO,
    };

    fn builder(self) -> ConstantBuilder {
        let retries = usize::from(self.attempts.saturating_sub(1));
        ConstantBuilder::new()
            .with_delay(self.pause)
            .with_max_times(retries)
    }
}

/// A client of a BBS. Clones share their connections.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    /// Ends with a slash.
    root: Url,
    retries: Retries,
    timeout: Option<Duration>,
    version: Version,
    trace_id: Option<String>,
}

impl Client {
    /// A client of the BBS at an address, such as `https://bbs.service.cf.internal:8889`. Opens no
    /// connection yet.
    ///
    /// # Errors
    /// The address is no URL, or the certificates cannot be used.
    pub fn new(url: &str, options: Options) -> Result<Self, ConnectError> {
        let root = root(url)?;
        if root.scheme() == "https" && options.tls.ca_file.is_none() {
            return Err(ConnectError::NoAuthority {
                url: url.to_owned(),
            });
        }
        let mut builder = reqwest::Client::builder()
            .http1_only()
            // A BBS is reached within its deployment.
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .tls_backend_preconfigured(tls::config(&options.tls)?);
        if let Some(address) = options.connect_to {
            builder = builder.resolve(root.host_str().unwrap_or_default(), address);
        }
        let http = builder.build().map_err(ConnectError::Client)?;
        Ok(Self {
            timeout: options.timeout,
            ..Self::over(http, url, options.retries)?
        })
    }

    /// A client over connections that the caller has set up, with its certificates and timeouts.
    ///
    /// # Errors
    /// The address is no URL.
    pub fn over(http: reqwest::Client, url: &str, retries: Retries) -> Result<Self, ConnectError> {
        Ok(Self {
            http,
            root: root(url)?,
            retries,
            timeout: None,
            version: Version::Diego,
            trace_id: None,
        })
    }

    /// A copy of this client that calls a version of the API where it has the method.
    #[must_use]
    pub fn speaking(&self, version: Version) -> Self {
        Self {
            version,
            ..self.clone()
        }
    }

    /// A copy of this client that names its requests in the logs and events of the BBS
    /// (`X-Vcap-Request-Id`).
    #[must_use]
    pub fn traced(&self, id: impl Into<String>) -> Self {
        Self {
            trace_id: Some(id.into()),
            ..self.clone()
        }
    }

    /// A copy of this client with other attempts.
    #[must_use]
    pub fn with_retries(&self, retries: Retries) -> Self {
        Self {
            retries,
            ..self.clone()
        }
    }

    /// The address of the BBS, which ends with a slash.
    #[must_use]
    pub fn url(&self) -> &str {
        self.root.as_str()
    }

    /// Calls a method.
    ///
    /// # Errors
    /// The BBS answers with an error, which wins over what is beside it: a list with an error is
    /// not complete. Or there is no answer of the API at any attempt.
    pub async fn call<Q: Message, A: Answer>(
        &self,
        method: Method<Q, A>,
        request: &Q,
    ) -> Result<A, CallError> {
        let mut answer = self.exchange(method, request).await?;
        answer
            .take_error()
            .map_or(Ok(answer), |error| Err(CallError::Refused(error.into())))
    }

    /// [`Self::call`] for an answer whose error is a part of it: that of an evacuation says whether
    /// to keep the container in either case.
    ///
    /// # Errors
    /// There is no answer of the API at any attempt.
    pub async fn exchange<Q: Message, A: Answer>(
        &self,
        method: Method<Q, A>,
        request: &Q,
    ) -> Result<A, CallError> {
        let version = method.route.only.unwrap_or(self.version);
        let path = format!("{}/{}", version.root(), method.route.path);
        let body = request.encode_to_vec();
        let attempt = || self.attempt(&path, &body);
        attempt
            .retry(self.retries.builder())
            .when(CallError::is_transient)
            .await
    }

    async fn attempt<A: Answer>(&self, path: &str, body: &[u8]) -> Result<A, CallError> {
        let url = self.join(path);
        let response = self.post(path, body.to_vec(), self.timeout).await?;
        let content = media_type(&response);
        if content != PROTOBUF {
            // Diego's answers without content have no type.
            return if content.is_empty() {
                Ok(A::default())
            } else {
                Err(refused_by_status(url, response).await)
            };
        }
        let bytes = response
            .bytes()
            .await
            .map_err(|source| no_answer(url.clone(), source))?;
        A::decode(bytes).map_err(|source| CallError::Undecodable { url, source })
    }

    /// Sends bytes to a path, such as `v1/desired_lrps/list.r3`, and returns the answer, whose body
    /// is not read yet. Does not try again.
    ///
    /// # Errors
    /// There is no answer in time, or one with another status than one of success.
    pub async fn send(&self, path: &str, body: Vec<u8>) -> Result<Response, CallError> {
        let sending = self.post(path, body, None);
        let Some(limit) = self.timeout else {
            return sending.await;
        };
        // A limit of the request would include the body of the answer.
        let sent = tokio::time::timeout(limit, sending).await;
        sent.unwrap_or_else(|_| {
            Err(CallError::TimedOut {
                url: self.join(path),
                source: None,
            })
        })
    }

    /// Opens an event stream, with the attempts of a call.
    pub(crate) async fn subscribe(&self, path: &str, body: &[u8]) -> Result<Response, CallError> {
        let path = format!("{}/{path}", self.version.root());
        let attempt = || self.open_stream(&path, body);
        attempt
            .retry(self.retries.builder())
            .when(CallError::is_transient)
            .await
    }

    async fn open_stream(&self, path: &str, body: &[u8]) -> Result<Response, CallError> {
        let response = self.send(path, body.to_vec()).await?;
        let media_type = media_type(&response);
        if media_type == EVENT_STREAM {
            return Ok(response);
        }
        Err(CallError::NotAStream {
            url: self.join(path),
            status: response.status().as_u16(),
            media_type,
        })
    }

    async fn post(
        &self,
        path: &str,
        body: Vec<u8>,
        timeout: Option<Duration>,
    ) -> Result<Response, CallError> {
        let url = self.join(path);
        let mut request = self
            .http
            .post(&url)
            .header(CONTENT_TYPE, PROTOBUF)
            .body(body);
        if let Some(timeout) = timeout {
            request = request.timeout(timeout);
        }
        if let Some(id) = &self.trace_id {
            request = request.header(TRACE_ID, id);
        }
        let response = request
            .send()
            .await
            .map_err(|source| no_answer(url.clone(), source))?;
        let router = response
            .headers()
            .get(ROUTER_ERROR)
            .map(|value| String::from_utf8_lossy(value.as_bytes()));
        if let Some(reason) = router {
            return Err(CallError::Router {
                url,
                reason: reason.into_owned(),
            });
        }
        // Messages are answers at any status.
        if response.status().is_success() || media_type(&response) == PROTOBUF {
            Ok(response)
        } else {
            Err(refused_by_status(url, response).await)
        }
    }

    fn join(&self, path: &str) -> String {
        format!("{}{}", self.root, path.trim_start_matches('/'))
    }
}

fn root(url: &str) -> Result<Url, ConnectError> {
    let invalid = || ConnectError::Url {
        url: url.to_owned(),
    };
    let mut root = Url::parse(url).map_err(|_| invalid())?;
    if !["http", "https"].contains(&root.scheme())
        || root.host_str().is_none()
        || root.query().is_some()
        || root.fragment().is_some()
    {
        return Err(invalid());
    }
    if !root.path().ends_with('/') {
        root.set_path(&format!("{}/", root.path()));
    }
    Ok(root)
}

/// The type of an answer without its parameters; empty if it has none.
fn media_type(response: &Response) -> String {
    let value = response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    value
        .and_then(|value| value.split(';').next())
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase()
}

fn no_answer(url: String, source: reqwest::Error) -> CallError {
    if source.is_timeout() {
        CallError::TimedOut {
            url,
            source: Some(source),
        }
    } else {
        CallError::NoAnswer { url, source }
    }
}

/// The error of an answer that is no message.
async fn refused_by_status(url: String, mut response: Response) -> CallError {
    let status = response.status().as_u16();
    let retry_after = response
        .headers()
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.parse().ok());
    let mut body = Vec::new();
    while body.len() < REASON_BYTES
        && let Ok(Some(chunk)) = response.chunk().await
    {
        body.extend_from_slice(&chunk);
    }
    body.truncate(REASON_BYTES);
    let reason = String::from_utf8_lossy(&body).into_owned();
    match status {
        503 => CallError::NotReady {
            url,
            retry_after: retry_after.map(Duration::from_secs),
            reason,
        },
        404 | 406 => CallError::NotServed { url, reason },
        _ => CallError::Status {
            url,
            status,
            reason,
        },
    }
}
