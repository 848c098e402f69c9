//! Requests to the members of a cluster: one after the other until one answers, beginning with the
//! one that answered last. Owns how long a member is waited for; the time in which its answer is not
//! read does not count.

use std::sync::atomic::{AtomicUsize, Ordering};
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
    /// The member that the next request begins with, so that one which never answers is waited for
    /// once and not with each request.
    first: AtomicUsize,
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
            first: AtomicUsize::new(0),
            answer_timeout: config.answer_timeout,
        })
    }

    /// Sends a request to each member in turn until one answers and has a majority. Any other
    /// answer is returned. Waits for a member no longer than `longest_wait`, and no longer than the
    /// configuration permits.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        form: Option<(&str, &str)>,
        longest_wait: Duration,
    ) -> Result<MemberAnswer, EtcdError> {
        let limit = self.answer_timeout.min(longest_wait);
        let first = self.first.load(Ordering::Relaxed);
        let mut last = None;
        for number in first..first + ROUNDS * self.urls.len() {
            let member = number % self.urls.len();
            let base = &self.urls[member];
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
            let Ok(sent) = timeout(limit, request.send()).await else {
                last = Some(EtcdError::Silent {
                    member: base.clone(),
                    limit,
                });
                continue;
            };
            match sent {
                Ok(response) => {
                    let mut answer = MemberAnswer {
                        response,
                        longest_pause: limit,
                    };
                    if answer.status() != StatusCode::INTERNAL_SERVER_ERROR {
                        // An answer such as a proxy's 503 must not make it the first for later requests.
                        if answer.status().is_success() {
                            self.first.store(member, Ordering::Relaxed);
                        }
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

    fn listener() -> (TcpListener, String) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        (listener, url)
    }

    #[tokio::test]
    async fn member_that_never_answers_is_waited_for_once() {
        let (silent, first) = listener();
        let (answering, second) = listener();
        std::thread::spawn(move || {
            for mut stream in answering.incoming().map_while(Result::ok) {
                // A request without a body arrives in one piece.
                assert!(stream.read(&mut [0; 4096]).is_ok_and(|read| read > 0));
                stream.write_all(ANSWER).unwrap();
            }
        });
        let members = Members::new(&EtcdConfig {
            urls: vec![first, second.clone()],
            tls: None,
            connect_timeout: Duration::from_secs(10),
            answer_timeout: Duration::from_secs(300),
            most_bytes: 1,
        })
        .unwrap();
        for _ in 0..3 {
            let sent = members.send(Method::GET, "", None, Duration::from_secs(1));
            assert_eq!(sent.await.unwrap().member(), second);
        }
        silent.set_nonblocking(true).unwrap();
        let connections = silent.incoming().map_while(Result::ok).count();
        assert_eq!(connections, 1);
    }
}
