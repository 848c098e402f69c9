//! A stub of Locket with locks and presences, on a free port, with the certificates of
//! `tests/fixtures/certificates`. A test may give the lock to another owner, or make Locket
//! unavailable.

use std::collections::BTreeMap;
use std::future::ready;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bbs::testing::config;
use bbs::testing::locket::messages::{
    FetchAllRequest, FetchAllResponse, FetchRequest, FetchResponse, LockRequest, LockResponse,
    ReleaseRequest, ReleaseResponse, Resource, TypeCode,
};
use bbs_proto::prost::Message;
use serde_json::{Value, json};
use tokio::sync::watch;
use tonic::body::Body;
use tonic::codegen::http::{Request as HttpRequest, Response as HttpResponse};
use tonic::codegen::{Context, Pin, Poll, Service};
use tonic::server::{Grpc, NamedService};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

/// The path of a certificate or key of the repository.
pub fn certificate(name: &str) -> PathBuf {
    super::workspace()
        .join("tests/fixtures/certificates")
        .join(name)
}

fn read(name: &str) -> Vec<u8> {
    std::fs::read(certificate(name)).expect("a file of the repository")
}

/// A shared handle.
#[derive(Clone)]
pub struct Locket {
    address: SocketAddr,
    state: Arc<Mutex<LocketState>>,
}

#[derive(Default)]
struct LocketState {
    held: BTreeMap<String, (Resource, Instant)>,
    /// The presence of each cell, which should be JSON.
    presences: BTreeMap<String, String>,
    /// The `uuid` metadata of each request.
    callers: Vec<String>,
    unavailable: bool,
    /// Whether look-ups of one presence wait. Each that waits subscribes.
    held_lookups: watch::Sender<bool>,
}

impl Locket {
    /// Serves until the test's runtime ends.
    pub fn start() -> Self {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into())
    }

    /// [`Self::start`] at a fixed address.
    pub fn start_at(address: SocketAddr) -> Self {
        let incoming = TcpIncoming::bind(address).expect("there are free ports");
        let address = incoming.local_addr().expect("a listener has an address");
        let locket = Self {
            address,
            state: Arc::default(),
        };
        let tls = ServerTlsConfig::new()
            .identity(Identity::from_pem(read("server.crt"), read("server.key")))
            .client_ca_root(Certificate::from_pem(read("ca.crt")));
        let server = Server::builder()
            .tls_config(tls)
            .expect("the certificates are valid")
            .add_service(locket.clone());
        tokio::spawn(server.serve_with_incoming(incoming));
        locket
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The host's configuration keys for this Locket.
    pub fn configuration(&self) -> Value {
        json!({
            "locket_address": self.address.to_string(),
            "locket_ca_cert_file": certificate("ca.crt"),
            "locket_client_cert_file": certificate("client.crt"),
            "locket_client_key_file": certificate("client.key"),
        })
    }

    /// The configuration with which the host looks up cells in this Locket.
    pub fn lookup_config(&self) -> config::LocketConfig {
        config::LocketConfig {
            address: self.address.to_string(),
            tls: config::CertificateFiles {
                ca_file: certificate("ca.crt"),
                cert_file: certificate("client.crt"),
                key_file: certificate("client.key"),
            },
            keepalive_time: None,
            keepalive_timeout: None,
            lookup_timeout: Duration::from_secs(30),
        }
    }

    fn state(&self) -> MutexGuard<'_, LocketState> {
        self.state.lock().expect("no request panics")
    }

    /// The owner of the lock; `None` if it is free or expired.
    pub fn holder(&self) -> Option<String> {
        let state = self.state();
        let (resource, until) = state.held.get("bbs")?;
        (*until > Instant::now()).then(|| resource.owner.clone())
    }

    /// The `uuid` metadata of all requests so far.
    pub fn callers(&self) -> Vec<String> {
        self.state().callers.clone()
    }

    /// Gives the lock to an owner for an hour, even if another one holds it.
    pub fn grant_to(&self, owner: &str) {
        let resource = Resource {
            key: "bbs".to_owned(),
            owner: owner.to_owned(),
            ..Resource::default()
        };
        self.state().held.insert(
            "bbs".to_owned(),
            (resource, Instant::now() + Duration::from_secs(3600)),
        );
    }

    /// Sets whether every request fails.
    pub fn set_unavailable(&self, unavailable: bool) {
        self.state().unavailable = unavailable;
    }

    /// Holds the look-ups of single cells until [`Self::release_lookups`].
    pub fn hold_lookups(&self) {
        self.state().held_lookups.send_replace(true);
    }

    pub fn release_lookups(&self) {
        self.state().held_lookups.send_replace(false);
    }

    /// Waits until a look-up is held.
    pub async fn wait_for_lookup(&self) {
        super::until(|| self.state().held_lookups.receiver_count() > 0).await;
    }

    async fn pass_lookup(&self) {
        let mut held = self.state().held_lookups.subscribe();
        held.wait_for(|held| !*held)
            .await
            .expect("this handle keeps the sender");
    }

    /// Adds or replaces the presence of a cell. `presence` may be invalid JSON.
    pub fn add_presence(&self, cell_id: &str, presence: &str) {
        self.state()
            .presences
            .insert(cell_id.to_owned(), presence.to_owned());
    }

    /// Removes the presence of a cell.
    pub fn remove_presence(&self, cell_id: &str) {
        self.state().presences.remove(cell_id);
    }

    fn fetch_all(&self, request: &FetchAllRequest) -> Result<FetchAllResponse, Status> {
        if request.type_code() != TypeCode::Presence || request.r#type != "presence" {
            return Err(Status::invalid_argument("only presences can be fetched"));
        }
        let resources = self
            .state()
            .presences
            .iter()
            .map(|(key, value)| presence(key, value))
            .collect();
        Ok(FetchAllResponse { resources })
    }

    fn fetch(&self, request: &FetchRequest) -> Result<FetchResponse, Status> {
        let state = self.state();
        if let Some((resource, _)) = state
            .held
            .get(&request.key)
            .filter(|(_, until)| *until > Instant::now())
        {
            return Ok(FetchResponse {
                resource: Some(resource.clone()),
            });
        }
        let value = state
            .presences
            .get(&request.key)
            .ok_or_else(|| Status::not_found("resource-not-found"))?;
        Ok(FetchResponse {
            resource: Some(presence(&request.key, value)),
        })
    }

    /// Answers a call with a method, unless every request fails.
    async fn answer<Q, A>(
        self,
        method: fn(&Self, &Q) -> Result<A, Status>,
        request: HttpRequest<Body>,
    ) -> HttpResponse<Body>
    where
        Q: Message + Default + 'static,
        A: Message + 'static,
    {
        let method = tower::service_fn(move |request: Request<Q>| {
            let answer = self
                .record_request(&request)
                .and_then(|()| method(&self, request.get_ref()));
            ready(answer.map(Response::new))
        });
        Grpc::new(ProstCodec::<A, Q>::default())
            .unary(method, request)
            .await
    }

    fn record_request<T>(&self, request: &Request<T>) -> Result<(), Status> {
        let uuid = request
            .metadata()
            .get("uuid")
            .and_then(|uuid| uuid.to_str().ok())
            .unwrap_or_default();
        let mut state = self.state();
        state.callers.push(uuid.to_owned());
        if state.unavailable {
            Err(Status::unavailable("the database is away"))
        } else {
            Ok(())
        }
    }

    fn lock(&self, request: &LockRequest) -> Result<LockResponse, Status> {
        let resource = request
            .resource
            .clone()
            .ok_or_else(|| Status::invalid_argument("no resource"))?;
        if request.ttl_in_seconds <= 0 || resource.owner.is_empty() || resource.r#type != "lock" {
            return Err(Status::invalid_argument(
                "not a lock with an owner and a TTL",
            ));
        }
        let ttl = Duration::from_secs(request.ttl_in_seconds.unsigned_abs());
        let mut state = self.state();
        match state.held.get(&resource.key) {
            Some((held, until)) if held.owner != resource.owner && *until > Instant::now() => {
                Err(Status::already_exists("lock-collision"))
            }
            _ => {
                state
                    .held
                    .insert(resource.key.clone(), (resource, Instant::now() + ttl));
                Ok(LockResponse {})
            }
        }
    }

    fn release(&self, request: &ReleaseRequest) -> Result<ReleaseResponse, Status> {
        let Some(resource) = &request.resource else {
            return Ok(ReleaseResponse {});
        };
        let mut state = self.state();
        if state
            .held
            .get(&resource.key)
            .is_some_and(|(held, _)| held.owner == resource.owner)
        {
            state.held.remove(&resource.key);
        }
        Ok(ReleaseResponse {})
    }
}

fn presence(key: &str, value: &str) -> Resource {
    Resource {
        key: key.to_owned(),
        owner: key.to_owned(),
        value: value.to_owned(),
        r#type: "presence".to_owned(),
        type_code: TypeCode::Presence.into(),
    }
}

impl NamedService for Locket {
    const NAME: &'static str = "models.Locket";
}

impl Service<HttpRequest<Body>> for Locket {
    type Response = HttpResponse<Body>;
    type Error = std::convert::Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequest<Body>) -> Self::Future {
        let locket = self.clone();
        Box::pin(async move {
            Ok(match request.uri().path() {
                "/models.Locket/Lock" => locket.answer(Self::lock, request).await,
                "/models.Locket/Release" => locket.answer(Self::release, request).await,
                "/models.Locket/Fetch" => {
                    locket.pass_lookup().await;
                    locket.answer(Self::fetch, request).await
                }
                "/models.Locket/FetchAll" => locket.answer(Self::fetch_all, request).await,
                _ => Status::unimplemented("no such method").into_http(),
            })
        })
    }
}
