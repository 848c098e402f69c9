//! Requests to the members of a cluster: one after the other until one answers.

use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, Method, Response, StatusCode, Url};

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
                .read_timeout(config.answer_timeout)
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
    ) -> Result<Response, EtcdError> {
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
            match request.send().await {
                Ok(answer) if answer.status() == StatusCode::INTERNAL_SERVER_ERROR => {
                    last = Some(super::failed(answer).await);
                    tokio::time::sleep(ELECTION_PAUSE).await;
                }
                Ok(answer) => return Ok(answer),
                Err(source) if source.is_timeout() && !source.is_connect() => {
                    last = Some(EtcdError::Silent {
                        member: base.clone(),
                        limit: self.answer_timeout,
                        source,
                    });
                }
                Err(source) => last = Some(EtcdError::of_connection(base, source)),
            }
        }
        Err(last.expect("the configuration names a member"))
    }
}

fn url_encoded(name: &str, value: &str) -> String {
    let mut url = Url::parse("http://form").expect("a URL");
    url.query_pairs_mut().append_pair(name, value);
    url.query().unwrap_or_default().to_owned()
}

/// The member that a URL is of.
pub(super) fn shown(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// A header that every answer of etcd has.
pub(super) fn header(answer: &Response, name: &'static str) -> Result<String, EtcdError> {
    let value = answer
        .headers()
        .get(name)
        .and_then(|value| value.to_str().ok());
    value.map(str::to_owned).ok_or(EtcdError::Header { name })
}
