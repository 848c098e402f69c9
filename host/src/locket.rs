//! Connection to Locket, Diego's lock and presence service. Owns addresses and calls; the lock is
//! `lock`'s, and presences are `clients`'.

mod connector;
pub mod messages;

use std::marker::PhantomData;
use std::time::Duration;

use backon::Retryable;
use bbs_work::pauses;
use bytes::Buf;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Status};
use tonic_prost::{ProstDecoder, ProstEncoder};

use crate::tls::{TlsError, client};

use crate::{config, protobuf};
use connector::Connector;
use messages::LocketAnswer;

/// Retries of a host that starts while Locket does not accept connections yet: about ten seconds.
pub const CONNECT_RETRIES: usize = 40;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest answer, in bytes, which is gRPC's default: the presences of some thousand cells.
const LARGEST_ANSWER: usize = 4 << 20;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("the files that the `locket_*` keys name cannot be used; correct them")]
    Files(#[from] TlsError),
    #[error("`locket_address` {address:?} is not an address; write it as host:port")]
    Address {
        address: String,
        source: tonic::transport::Error,
    },
    #[error(
        "cannot connect to Locket at {address}; check that it runs, and that the `locket_*` certificates belong together"
    )]
    Connect {
        address: String,
        source: tonic::transport::Error,
    },
}

/// Connects to Locket, at any of its addresses. Retries while the connection is refused.
///
/// # Errors
/// Files cannot be read, the address is malformed, or the connection fails.
pub async fn connect(
    locket: &config::LocketConfig,
    retries: usize,
) -> Result<Channel, ConnectError> {
    let LocketServer {
        endpoint,
        connector,
    } = LocketServer::new(locket)?;
    let connected = (|| endpoint.connect_with_connector(connector.clone()))
        .retry(pauses::of_locket(retries))
        .when(is_refused)
        .await;
    connected.map_err(|source| ConnectError::Connect {
        address: locket.address.clone(),
        source,
    })
}

/// Whether nothing listens at the address, or not yet.
fn is_refused(error: &tonic::transport::Error) -> bool {
    let sources = std::iter::successors(Some(error as &dyn std::error::Error), |error| {
        error.source()
    });
    let mut kinds = sources
        .filter_map(|error| error.downcast_ref::<std::io::Error>())
        .map(std::io::Error::kind);
    kinds.any(|kind| kind == std::io::ErrorKind::ConnectionRefused)
}

/// Prepares a connection that is established when it is first used.
///
/// # Errors
/// Files cannot be read, or the address is malformed.
pub fn connect_later(locket: &config::LocketConfig) -> Result<Channel, ConnectError> {
    let LocketServer {
        endpoint,
        connector,
    } = LocketServer::new(locket)?;
    Ok(endpoint.connect_with_connector_lazy(connector))
}

/// The server at the configured address.
struct LocketServer {
    endpoint: Endpoint,
    connector: Connector,
}

impl LocketServer {
    fn new(locket: &config::LocketConfig) -> Result<Self, ConnectError> {
        let tls = client::config(&locket.tls, None)?;
        let malformed = |source| ConnectError::Address {
            address: locket.address.clone(),
            source,
        };
        let address = host_and_port(&locket.address);
        // Without TLS, which the connector adds.
        let mut endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(malformed)?;
        let connector = Connector::new(endpoint.uri(), tls);
        let origin: Result<Uri, _> = format!("https://{address}").parse();
        endpoint = endpoint
            .origin(origin.expect("it differs in the scheme alone"))
            .connect_timeout(CONNECT_TIMEOUT);
        if let Some(time) = locket.keepalive_time {
            // Not while the connection is idle: Locket closes one with such pings.
            endpoint = endpoint.http2_keep_alive_interval(time);
        }
        if let Some(timeout) = locket.keepalive_timeout {
            endpoint = endpoint.keep_alive_timeout(timeout);
        }
        Ok(Self {
            endpoint,
            connector,
        })
    }
}

/// The host and port of an address in the notation of gRPC, which may begin with the scheme of a
/// resolver, such as `dns:///locket:8891`. Names are always resolved by the system.
fn host_and_port(address: &str) -> &str {
    let schemes = ["dns:///", "passthrough:///", "dns:", "passthrough:"];
    schemes
        .iter()
        .find_map(|scheme| address.strip_prefix(scheme))
        .unwrap_or(address)
}

/// Makes a unary call.
///
/// # Errors
/// The status of the call, also for a connection that fails.
pub async fn call<Q, A>(
    channel: &Channel,
    method: &'static str,
    request: Request<Q>,
) -> Result<A, Status>
where
    Q: prost::Message + Send + Sync + 'static,
    A: LocketAnswer + Send + Sync + 'static,
{
    let mut grpc = Grpc::new(channel.clone()).max_decoding_message_size(LARGEST_ANSWER);
    grpc.ready()
        .await
        .map_err(|fault| Status::from_error(fault.into()))?;
    let answer = grpc
        .unary(
            request,
            PathAndQuery::from_static(method),
            CountingCodec(PhantomData),
        )
        .await?;
    Ok(answer.into_inner())
}

/// Counts the elements of an answer before it is decoded.
struct CountingCodec<Q, A>(PhantomData<(Q, A)>);

/// The decoder of [`CountingCodec`].
struct CountingDecoder<A>(ProstDecoder<A>);

impl<Q, A> Codec for CountingCodec<Q, A>
where
    Q: prost::Message + Send + 'static,
    A: LocketAnswer + Send + 'static,
{
    type Encode = Q;
    type Decode = A;
    type Encoder = ProstEncoder<Q>;
    type Decoder = CountingDecoder<A>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> Self::Decoder {
        CountingDecoder(ProstDecoder::default())
    }
}

impl<A: LocketAnswer> Decoder for CountingDecoder<A> {
    type Item = A;
    type Error = Status;

    fn decode(&mut self, source: &mut DecodeBuf<'_>) -> Result<Option<A>, Status> {
        // The buffer of a message is in one piece.
        if protobuf::elements_in(A::SHAPE, source.chunk()).is_none() {
            let reason = format!(
                "Locket's answer has more than {} elements",
                protobuf::MOST_ELEMENTS
            );
            return Err(Status::resource_exhausted(reason));
        }
        self.0.decode(source)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};
    use std::path::Path;

    use tokio::time::timeout;

    use super::*;

    /// Method: a listener whose connections wait, so that no handshake begins, and a clock that
    /// passes each wait at once.
    #[tokio::test(start_paused = true)]
    async fn locket_that_does_not_answer_the_handshake_is_given_up() {
        let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/certificates");
        let locket = config::LocketConfig {
            address: silent.local_addr().unwrap().to_string(),
            tls: config::CertificateFiles {
                ca_file: folder.join("ca.crt"),
                cert_file: folder.join("client.crt"),
                key_file: folder.join("client.key"),
            },
            keepalive_time: None,
            keepalive_timeout: None,
            lookup_timeout: CONNECT_TIMEOUT,
        };
        let connected = timeout(CONNECT_TIMEOUT * 2, connect(&locket, CONNECT_RETRIES)).await;
        let error = connected.expect("it is given up").unwrap_err();
        assert!(matches!(error, ConnectError::Connect { .. }), "{error}");
    }

    #[test]
    fn address_may_begin_with_a_scheme_of_grpc() {
        for address in [
            "locket:8891",
            "dns:///locket:8891",
            "dns:locket:8891",
            "passthrough:///locket:8891",
        ] {
            assert_eq!(host_and_port(address), "locket:8891", "{address}");
        }
    }

    #[test]
    fn presence_with_any_text_is_within_the_limit_of_elements() {
        let resource = messages::Resource {
            value: "z".repeat(200_000),
            ..messages::Resource::default()
        };
        let answer = prost::Message::encode_to_vec(&messages::FetchAllResponse {
            resources: vec![resource; 2],
        });
        assert_eq!(
            protobuf::elements_in(messages::FetchAllResponse::SHAPE, &answer),
            Some(4)
        );
        let many = [0x0a, 0].repeat(protobuf::MOST_ELEMENTS + 1);
        assert_eq!(
            protobuf::elements_in(messages::FetchAllResponse::SHAPE, &many),
            None
        );
    }
}
