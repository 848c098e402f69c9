//! The requests to a registry. Reads each answer up to a limit: a registry is another machine, which
//! may send without end. Owns the login, which is that of Docker's registries: the registry names a
//! service that gives out a token, or requires the account itself, at the first request or at any.

use std::time::Duration;

use http_auth::ChallengeParser;
use reqwest::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, LOCATION, WWW_AUTHENTICATE};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, Url};
use serde::Deserialize;

use super::{
    ArtifactReference, CONNECT_TIMEOUT, READ_TIMEOUT, RegistryAuth, RegistryConnection,
    RegistryError,
};
use crate::text::ModuleText;

/// The largest answer with a token, in bytes.
const TOKEN_BYTES: u64 = 1 << 20;
/// The bytes that are read of an answer with an error.
const ERROR_BYTES: u64 = 64 << 10;
/// The bytes of an upload that take a second at most.
const UPLOAD_BYTES_PER_SECOND: u64 = 8 << 10;

/// A registry, with the authorisation that it has required last.
#[derive(Debug)]
pub(super) struct RegistryClient<'a> {
    http: Client,
    /// For requests with a file, which have a timeout of their own.
    uploads: Client,
    reference: &'a ArtifactReference,
    scheme: &'static str,
    scope: Scope,
    account: RegistryAuth,
    /// The authorisation of requests: none, the account or a token.
    auth: RegistryAuth,
}

/// The access to a repository that a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    Pull,
    PushAndPull,
}

/// The authorisation that a registry requires.
enum Challenge {
    /// A token of the service at `realm`, which knows the registry as `service`.
    Token {
        realm: String,
        service: Option<String>,
    },
    /// The account itself.
    Account,
}

/// An answer of the service that gives out tokens.
#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
}

/// Why an answer was not read.
#[derive(Debug)]
pub(super) enum AnswerError {
    TooLarge { limit: u64 },
    Interrupted(reqwest::Error),
}

impl<'a> RegistryClient<'a> {
    /// Logs in.
    ///
    /// # Errors
    /// The registry cannot be reached, or denies access.
    pub(super) async fn log_in(
        reference: &'a ArtifactReference,
        connection: &RegistryConnection,
        scope: Scope,
    ) -> Result<Self, RegistryError> {
        let builder = || {
            Client::builder()
                .connect_timeout(CONNECT_TIMEOUT)
                .user_agent(connection.user_agent)
        };
        let failed = |error: reqwest::Error| unanswered(reference, &error);
        let http = builder().read_timeout(READ_TIMEOUT).build();
        let scheme = if connection.insecure_http {
            "http"
        } else {
            "https"
        };
        let mut client = Self {
            http: http.map_err(failed)?,
            uploads: builder().build().map_err(failed)?,
            reference,
            scheme,
            scope,
            account: connection.auth.clone(),
            auth: RegistryAuth::Anonymous,
        };
        let answer = client.sent(client.http.get(client.url(""))).await?;
        // A server that a redirect has led to has no claim to the account.
        let challenge = Challenge::of(&answer).filter(|_| client.is_own(answer.url()));
        if let Some(challenge) = challenge {
            client.auth = client.exchanged(challenge).await?;
        }
        Ok(client)
    }

    /// The authorisation that a challenge requires.
    async fn exchanged(&self, challenge: Challenge) -> Result<RegistryAuth, RegistryError> {
        let Challenge::Token { realm, service } = challenge else {
            return Ok(self.account.clone());
        };
        let actions = match self.scope {
            Scope::Pull => "pull",
            Scope::PushAndPull => "pull,push",
        };
        let scope = format!("repository:{}:{actions}", self.reference.0.repository());
        let mut query = vec![("scope", scope)];
        query.extend(service.map(|service| ("service", service)));
        let request = authenticated(self.http.get(realm).query(&query), &self.account);
        let answer = self.sent(request).await?;
        let status = answer.status();
        if !status.is_success() {
            let text = error_text(answer).await;
            // The service may answer a wrong password with any other status.
            let is_failure = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
            return Err(if is_failure {
                self.failed(&format!("its token service answers {text}"))
            } else {
                self.denied(&text)
            });
        }
        let bytes = self.whole(answer, "a token", TOKEN_BYTES).await?;
        let answer: TokenAnswer = serde_json::from_slice(&bytes)
            .map_err(|error| self.failed(&format!("its token is not readable: {error}")))?;
        let token = answer
            .token
            .or(answer.access_token)
            .ok_or_else(|| self.failed("its answer has no token"))?;
        Ok(RegistryAuth::Bearer(token))
    }

    /// The manifest that the reference names, at most `limit` bytes, as the registry sends it.
    ///
    /// # Errors
    /// The registry does not have it, denies access, fails, or sends more.
    pub(super) async fn manifest(
        &mut self,
        media_type: &str,
        limit: u64,
    ) -> Result<Vec<u8>, RegistryError> {
        let request = self
            .request(Method::GET, "manifests", self.named())
            .header(ACCEPT, media_type);
        let answer = self.succeeded(request).await?;
        self.whole(answer, "a manifest", limit).await
    }

    /// The content with a digest, at most `limit` bytes.
    ///
    /// # Errors
    /// As an inner error, that it has more bytes or the transfer broke off; otherwise, that the
    /// registry does not have it, denies access or fails.
    pub(super) async fn blob(
        &mut self,
        digest: &str,
        limit: u64,
    ) -> Result<Result<Vec<u8>, AnswerError>, RegistryError> {
        let request = self.request(Method::GET, "blobs", digest);
        Ok(read(self.succeeded(request).await?, limit).await)
    }

    /// Uploads a content, unless the registry has it.
    ///
    /// # Errors
    /// The registry denies access or fails.
    pub(super) async fn push_blob(
        &mut self,
        digest: &str,
        content: Vec<u8>,
    ) -> Result<(), RegistryError> {
        let request = self.request(Method::HEAD, "blobs", digest);
        match self.succeeded(request).await {
            Err(RegistryError::NotFound { .. }) => {}
            known => return known.map(drop),
        }
        let request = self.request(Method::POST, "blobs", "uploads/");
        // Some registries require the length of any body.
        let begun = self.succeeded(request.header(CONTENT_LENGTH, 0)).await?;
        let location = begun.headers().get(LOCATION);
        let mut location = location
            .and_then(|location| begun.url().join(location.to_str().ok()?).ok())
            .ok_or_else(|| self.failed("it names no place for an upload"))?;
        location.query_pairs_mut().append_pair("digest", digest);
        let is_own = self.is_own(&location);
        // One request for each file: every registry supports it, and no file is large.
        let request = self
            .uploads
            .put(location)
            .timeout(upload_timeout(content.len()))
            .header(CONTENT_TYPE, "application/octet-stream")
            .body(content);
        if is_own {
            return self.succeeded(request).await.map(drop);
        }
        // The account is for the registry alone. Other storage has its authorisation in its URL,
        // and a redirect may have led to it.
        let answer = self.sent(request).await?;
        self.success(answer).await.map(drop)
    }

    /// Uploads the manifest that the reference is to name. Its contents are there already.
    ///
    /// # Errors
    /// The registry denies access or fails.
    pub(super) async fn push_manifest(
        &mut self,
        media_type: &str,
        manifest: Vec<u8>,
    ) -> Result<(), RegistryError> {
        let request = self
            .request(Method::PUT, "manifests", self.named())
            .header(CONTENT_TYPE, media_type)
            .body(manifest);
        self.succeeded(request).await.map(drop)
    }

    /// The digest or the tag of the reference.
    fn named(&self) -> &str {
        let reference = &self.reference.0;
        reference.digest().or(reference.tag()).unwrap_or_default()
    }

    fn url(&self, path: &str) -> String {
        let registry = self.reference.0.resolve_registry();
        format!("{}://{registry}/v2/{path}", self.scheme)
    }

    /// Whether an address is one of the registry itself.
    fn is_own(&self, url: &Url) -> bool {
        Url::parse(&self.url("")).is_ok_and(|registry| registry.origin() == url.origin())
    }

    /// A request without an authorisation.
    fn request(&self, method: Method, kind: &str, name: &str) -> RequestBuilder {
        let repository = self.reference.0.repository();
        let url = self.url(&format!("{repository}/{kind}/{name}"));
        self.http.request(method, url)
    }

    async fn sent(&self, request: RequestBuilder) -> Result<Response, RegistryError> {
        request
            .send()
            .await
            .map_err(|error| unanswered(self.reference, &error))
    }

    /// The successful answer of the registry to a request, which is sent with the authorisation. If
    /// the registry requires another one, such as the account for writes alone, or a token in the
    /// place of one that has expired, the request is sent once more with that.
    async fn succeeded(&mut self, request: RequestBuilder) -> Result<Response, RegistryError> {
        let repeated = request.try_clone();
        let mut answer = self.sent(authenticated(request, &self.auth)).await?;
        // Not where a redirect has led to: that server has no claim to the account.
        let is_refused = answer.status() == StatusCode::UNAUTHORIZED && self.is_own(answer.url());
        let challenge = Challenge::of(&answer).filter(|_| is_refused);
        if let Some(challenge) = challenge
            && let Some(repeated) = repeated
        {
            let auth = self.exchanged(challenge).await?;
            if auth != self.auth {
                self.auth = auth;
                answer = self.sent(authenticated(repeated, &self.auth)).await?;
            }
        }
        self.success(answer).await
    }

    /// The answer, if it is a success.
    async fn success(&self, answer: Response) -> Result<Response, RegistryError> {
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let text = error_text(answer).await;
        Err(match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => self.denied(&text),
            StatusCode::NOT_FOUND => RegistryError::NotFound {
                reference: self.reference.clone(),
                reason: ModuleText::reason(&text),
            },
            _ => self.failed(&text),
        })
    }

    fn failed(&self, reason: &str) -> RegistryError {
        RegistryError::Failed {
            reference: self.reference.clone(),
            reason: ModuleText::reason(reason),
        }
    }

    fn denied(&self, reason: &str) -> RegistryError {
        let reference = &self.reference.0;
        let registry = reference.registry().to_owned();
        let repository = reference.repository().to_owned();
        RegistryError::Denied {
            registry,
            repository,
            reason: ModuleText::reason(reason),
        }
    }

    /// The content of an answer, which is `what`.
    async fn whole(
        &self,
        answer: Response,
        what: &'static str,
        limit: u64,
    ) -> Result<Vec<u8>, RegistryError> {
        read(answer, limit).await.map_err(|error| match error {
            AnswerError::TooLarge { limit } => RegistryError::Answer {
                registry: self.reference.0.registry().to_owned(),
                what,
                limit,
            },
            AnswerError::Interrupted(error) => unanswered(self.reference, &error),
        })
    }
}

impl Challenge {
    /// The challenge of an answer; a token is preferred.
    fn of(answer: &Response) -> Option<Self> {
        let headers = answer.headers().get_all(WWW_AUTHENTICATE);
        let mut texts = headers.iter().filter_map(|header| header.to_str().ok());
        let is_challenged = answer.headers().contains_key(WWW_AUTHENTICATE);
        texts
            .find_map(token_challenge)
            .or(is_challenged.then_some(Self::Account))
    }
}

/// The challenge of a header, if it requires a token.
fn token_challenge(header: &str) -> Option<Challenge> {
    let mut challenges = ChallengeParser::new(header).filter_map(Result::ok);
    let challenge = challenges.find(|challenge| challenge.scheme.eq_ignore_ascii_case("bearer"))?;
    let param = |name: &str| {
        let found = challenge
            .params
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.to_unescaped())
    };
    Some(Challenge::Token {
        realm: param("realm")?,
        service: param("service"),
    })
}

fn authenticated(request: RequestBuilder, auth: &RegistryAuth) -> RequestBuilder {
    match auth {
        RegistryAuth::Anonymous => request,
        RegistryAuth::Basic(user, password) => request.basic_auth(user, Some(password)),
        RegistryAuth::Bearer(token) => request.bearer_auth(token),
    }
}

async fn read(mut answer: Response, limit: u64) -> Result<Vec<u8>, AnswerError> {
    if answer.content_length().is_some_and(|length| length > limit) {
        return Err(AnswerError::TooLarge { limit });
    }
    let mut content = Vec::new();
    while let Some(part) = answer.chunk().await.map_err(AnswerError::Interrupted)? {
        if (content.len() + part.len()) as u64 > limit {
            return Err(AnswerError::TooLarge { limit });
        }
        content.extend_from_slice(&part);
    }
    Ok(content)
}

/// The status of an answer with an error, and its text if that is short. An answer to HEAD has no
/// text.
async fn error_text(answer: Response) -> String {
    let status = answer.status();
    match read(answer, ERROR_BYTES).await {
        Ok(text) if !text.is_empty() => format!("{status}: {}", String::from_utf8_lossy(&text)),
        Ok(_) | Err(_) => status.to_string(),
    }
}

/// The longest time of a request with a file. Not a read timeout: that begins with the request, and
/// bytes that are sent do not extend it.
fn upload_timeout(bytes: usize) -> Duration {
    READ_TIMEOUT + Duration::from_secs(bytes as u64 / UPLOAD_BYTES_PER_SECOND)
}

fn unanswered(reference: &ArtifactReference, error: &reqwest::Error) -> RegistryError {
    let registry = reference.0.registry().to_owned();
    let reason = ModuleText::of_error(error);
    if error.is_timeout() && !error.is_connect() {
        RegistryError::TooSlow { registry, reason }
    } else {
        RegistryError::Unreachable { registry, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upload_may_take_longer_than_a_read_by_its_length() {
        assert_eq!(upload_timeout(0), READ_TIMEOUT);
        let largest = upload_timeout(4 << 20);
        assert_eq!(largest, READ_TIMEOUT + Duration::from_secs(512));
    }
}
