//! The requests to a registry. Reads each answer up to a limit: a registry is another machine, which
//! may send without end. Owns the login, which is that of Docker's registries: the registry names a
//! service that gives out a token.

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

/// A registry that has let this machine in.
#[derive(Debug)]
pub(super) struct RegistryClient<'a> {
    http: Client,
    reference: &'a ArtifactReference,
    scheme: &'static str,
    auth: RegistryAuth,
}

/// The access to a repository that a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    Pull,
    PushAndPull,
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
        let http = Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .user_agent(connection.user_agent)
            .build();
        let scheme = if connection.insecure_http {
            "http"
        } else {
            "https"
        };
        let http = http.map_err(|error| unreachable(reference, &error))?;
        let mut client = Self {
            http,
            reference,
            scheme,
            auth: connection.auth.clone(),
        };
        if !matches!(connection.auth, RegistryAuth::Bearer(_)) {
            client.auth = client.exchanged(scope).await?;
        }
        Ok(client)
    }

    /// The token of the service that the registry names, or the account itself.
    async fn exchanged(&self, scope: Scope) -> Result<RegistryAuth, RegistryError> {
        let registry = self.reference.0.resolve_registry();
        let answer = self
            .sent(self.http.get(format!("{}://{registry}/v2/", self.scheme)))
            .await?;
        let challenges = answer
            .headers()
            .get_all(WWW_AUTHENTICATE)
            .iter()
            .filter_map(|header| header.to_str().ok());
        let Some((realm, service)) = challenges.filter_map(bearer).next() else {
            let is_challenged = answer.headers().contains_key(WWW_AUTHENTICATE);
            return Ok(if is_challenged {
                self.auth.clone()
            } else {
                RegistryAuth::Anonymous
            });
        };
        let actions = match scope {
            Scope::Pull => "pull",
            Scope::PushAndPull => "pull,push",
        };
        let scope = format!("repository:{}:{actions}", self.reference.0.repository());
        let mut query = vec![("scope", scope)];
        query.extend(service.map(|service| ("service", service)));
        let request = authenticated(self.http.get(realm).query(&query), &self.auth);
        let answer = self.sent(request).await?;
        if !answer.status().is_success() {
            // The service may answer a wrong password with any status.
            return Err(self.denied(error_text(answer).await));
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
        &self,
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
        &self,
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
        &self,
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
        // The account is for the registry alone. Other storage has its authorisation in its URL, and
        // a redirect may have led to it.
        let registry = self.reference.0.resolve_registry();
        let registry = Url::parse(&format!("{}://{registry}", self.scheme));
        let is_own = registry.is_ok_and(|registry| registry.origin() == location.origin());
        let auth = if is_own {
            &self.auth
        } else {
            &RegistryAuth::Anonymous
        };
        // One request for each file: every registry supports it, and no file is large.
        let request = authenticated(self.http.put(location), auth)
            .header(CONTENT_TYPE, "application/octet-stream")
            .body(content);
        self.succeeded(request).await.map(drop)
    }

    /// Uploads the manifest that the reference is to name. Its contents are there already.
    ///
    /// # Errors
    /// The registry denies access or fails.
    pub(super) async fn push_manifest(
        &self,
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

    fn request(&self, method: Method, kind: &str, name: &str) -> RequestBuilder {
        let registry = self.reference.0.resolve_registry();
        let repository = self.reference.0.repository();
        let url = format!("{}://{registry}/v2/{repository}/{kind}/{name}", self.scheme);
        authenticated(self.http.request(method, url), &self.auth)
    }

    async fn sent(&self, request: RequestBuilder) -> Result<Response, RegistryError> {
        request
            .send()
            .await
            .map_err(|error| unreachable(self.reference, &error))
    }

    async fn succeeded(&self, request: RequestBuilder) -> Result<Response, RegistryError> {
        let answer = self.sent(request).await?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let text = error_text(answer).await;
        let reference = self.reference.clone();
        let reason = ModuleText::reason(&format!("{status}: {text}"));
        Err(match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => self.denied(text),
            StatusCode::NOT_FOUND => RegistryError::NotFound { reference, reason },
            _ => RegistryError::Failed { reference, reason },
        })
    }

    fn failed(&self, reason: &str) -> RegistryError {
        RegistryError::Failed {
            reference: self.reference.clone(),
            reason: ModuleText::reason(reason),
        }
    }

    fn denied(&self, reason: String) -> RegistryError {
        let reference = &self.reference.0;
        let registry = reference.registry().to_owned();
        let repository = reference.repository().to_owned();
        RegistryError::Denied {
            registry,
            repository,
            reason: ModuleText::reason(&reason),
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
            AnswerError::Interrupted(error) => unreachable(self.reference, &error),
        })
    }
}

/// The address of the service that gives out tokens, and the name of this registry there.
fn bearer(header: &str) -> Option<(String, Option<String>)> {
    let mut challenges = ChallengeParser::new(header).filter_map(Result::ok);
    let challenge = challenges.find(|challenge| challenge.scheme.eq_ignore_ascii_case("bearer"))?;
    let param = |name: &str| {
        let found = challenge
            .params
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.to_unescaped())
    };
    Some((param("realm")?, param("service")))
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

/// The text of an answer with an error, as far as it is short.
async fn error_text(answer: Response) -> String {
    read(answer, ERROR_BYTES)
        .await
        .map(|text| String::from_utf8_lossy(&text).into_owned())
        .unwrap_or_default()
}

fn unreachable(reference: &ArtifactReference, error: &reqwest::Error) -> RegistryError {
    RegistryError::Unreachable {
        registry: reference.0.registry().to_owned(),
        reason: ModuleText::of_error(error),
    }
}
