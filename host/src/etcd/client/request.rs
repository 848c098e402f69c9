//! Requests to the members of a cluster: one after the other until one answers. Owns how long a
//! member is waited for; the time in which its answer is not read does not count.

use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, Method, Response, StatusCode, Url};
use tokio::time::timeout;

use super::EtcdError;
use crate::config::EtcdConfig;
use crate::tls;

/// Rounds over all members before a request fails.
const ROUNDS: usize = 2;
/// Pause after an answer without a majority: an election takes about a second.
const ELECTION_PAUSE: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) struct Members {
    client: Client,
    urls: Vec<String>,
    answer_timeout: Duration,
}

impl Members {
    pub(super) fn new(config: &EtcdConfig) -> Result<Self, EtcdError> {
        tls::choose_cryptography();
        let client = || {
            Client::builder()
                .http1_only()
                .redirect(Policy::none())
                // As Diego's client of etcd.
                .no_proxy()
                .connect_timeout(config.connect_timeout)
        };
        let client = match &config.tls {
            Some(files) => client()
                .tls_backend_preconfigured(tls::client::config(files, None)?)
                .build(),
            None => tls::client::of_system(client),
        };
        let client = client.map_err(EtcdError::Client)?;
        Ok(Self {
            client,
            urls: config.urls.clone(),
            answer_timeout: config.answer_timeout,
        })
    }

    /// Sends a request to each member in turn until one answers and has a majority. Any other
    /// answer is returned.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        form: Option<(&str, &str)>,
    ) -> Result<MemberAnswer, EtcdError> {
        let mut last = None;
        for base in self.urls.iter().cycle().take(ROUNDS * self.urls.len()) {
            let url = format!("{}/{path}", base.trim_end_matches('/'));
            let request = self.client.request(method.clone(), url);
            let request = match form {
                Some((name, value)) => {
                    let body = url_encoded(name, value);
                    request
                        .header(
                            reqwest::header::CONTENT_TYPE,
                            "application/x-www-form-urlencoded",
                        )
                        .body(body)
                }
                None => request,
            };
            let Ok(sent) = timeout(self.answer_timeout, request.send()).await else {
                last = Some(EtcdError::Silent {
                    member: base.clone(),
                    limit: self.answer_timeout,
                });
                continue;
            };
            match sent {
                Ok(response) => {
                    let mut answer = MemberAnswer {
                        response,
                        longest_pause: self.answer_timeout,
                    };
                    if answer.status() != StatusCode::INTERNAL_SERVER_ERROR {
                        return Ok(answer);
                    }
                    last = Some(super::failed(&mut answer).await);
                    tokio::time::sleep(ELECTION_PAUSE).await;
                }
                Err(source) => last = Some(EtcdError::of_connection(base, source)),
            }
        }
        Err(last.expect("the configuration names a member"))
    }
}

/// An answer whose head has arrived.
#[derive(Debug)]
pub(super) struct MemberAnswer {
    response: Response,
    longest_pause: Duration,
}

impl MemberAnswer {
    pub(super) fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// The member that it is of.
    pub(super) fn member(&self) -> String {
        self.response.url().origin().ascii_serialization()
    }

    /// A header that every answer of etcd has.
    pub(super) fn header(&self, name: &'static str) -> Result<String, EtcdError> {
        let value = self.response.headers().get(name);
        value
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned)
            .ok_or(EtcdError::Header { name })
    }

    /// The store's index at the time of the answer.
    pub(super) fn index(&self) -> Result<u64, EtcdError> {
        let name = "X-Etcd-Index";
        let index = self.header(name)?.parse();
        index.map_err(|_| EtcdError::Header { name })
    }

    /// The next part of the body; `None` at its end.
    ///
    /// # Errors
    /// The connection ends before the body, or nothing arrives within the longest pause. A timeout
    /// of the client would also count the time between two calls, in which an import may be paused.
    pub(super) async fn chunk(&mut self) -> Result<Option<Vec<u8>>, EtcdError> {
        match timeout(self.longest_pause, self.response.chunk()).await {
            Ok(Ok(chunk)) => Ok(chunk.map(|bytes| bytes.to_vec())),
            Ok(Err(source)) => Err(EtcdError::Broken {
                member: self.member(),
                source,
            }),
            Err(_) => Err(EtcdError::Stalled {
                member: self.member(),
                limit: self.longest_pause,
            }),
        }
    }
}

fn url_encoded(name: &str, value: &str) -> String {
    let mut url = Url::parse("http://form").expect("a URL");
    url.query_pairs_mut().append_pair(name, value);
    url.query().unwrap_or_default().to_owned()
}
