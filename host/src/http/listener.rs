//! The ports: accepts connections in tasks of their own, so that a slow or stalled one delays no
//! other, shakes hands, and serves HTTP/1.1 on them. The limits of connections are `connections`'.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use bbs_work::log_sampling::LineLimit;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustix::io::Errno;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::io::InspectReader;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use super::connections::{Admitted, ClientWait, Connection, ConnectionHandle, Connections};
use super::in_flight::{counted, guarded};
use super::peer::Peer;
use super::timed::TimedStream;
use crate::tls::{Certificates, ServerTls, handshake_failure};

/// TCP keep-alive time: a peer that vanished is detected after about this long.
const KEEP_ALIVE: Duration = Duration::from_secs(180);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const LINGER: Duration = Duration::from_secs(2);
/// Pause after a connection could not be accepted, such as without a file descriptor.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// The largest head of a request, in bytes, and what a connection reads ahead. Diego's clients send
/// less than 2 KiB. A connection keeps as much memory as it has read ahead until it ends.
const LARGEST_HEAD: usize = 16 << 10;

/// The mode of the open connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Serve,
    /// Finish the request in flight.
    Drain,
    End,
}

/// A port and its limits.
#[derive(Debug)]
pub struct Port {
    /// Its name in the log.
    pub name: &'static str,
    /// Its socket.
    pub listener: TcpListener,
    /// The most connections. When there are more, some that wait longest for their clients are
    /// closed.
    pub most_connections: usize,
}

/// Serves until `stop` returns the longest time that requests in flight may take to finish. Plain
/// HTTP without certificates.
///
/// # Errors
/// The listener's socket cannot be configured, or accepts no connection any more; requests in
/// flight are then cut off.
pub async fn serve_clients(
    port: Port,
    certificates: Option<Certificates>,
    router: Router,
    stop: impl Future<Output = Duration> + Send + 'static,
) -> io::Result<()> {
    let Port {
        name,
        listener,
        most_connections,
    } = port;
    // Accepted connections inherit both options.
    let socket = SockRef::from(&listener);
    socket.set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(KEEP_ALIVE)
            .with_interval(KEEP_ALIVE / 4),
    )?;
    socket.set_tcp_nodelay(true)?;
    let in_flight = TaskTracker::new();
    let connections = Connections::new(name, most_connections);
    let (stage, stages) = watch::channel(Stage::Serve);
    let acceptor = Acceptor {
        router: counted(router, in_flight.clone()),
        certificates: certificates.map(|certificates| certificates.config()),
        connections: Arc::clone(&connections),
        failures: Arc::default(),
        stages,
    };
    let drain = tokio::select! {
        error = acceptor.accept_all(&listener) => return Err(error),
        never = connections.sweep() => match never {},
        drain = stop => drain,
    };
    // New connections are refused from now on.
    drop(listener);
    stage.send_replace(Stage::Drain);
    let ended = async {
        tokio::select! {
            never = connections.sweep() => match never {},
            () = connections.all_ended() => {}
            () = drained(&in_flight) => {}
        }
    };
    let is_too_late = tokio::time::timeout(drain, ended).await.is_err();
    let requests = in_flight.len();
    if is_too_late && requests > 0 {
        tracing::warn!(name: "requests.cut-off", port = name, after = ?drain, requests,
            "requests were still in flight when this host had to end, and are cut off; their clients may send them again");
    }
    stage.send_replace(Stage::End);
    connections.all_ended().await;
    Ok(())
}

/// Waits for requests in flight. Event streams are not waited for: one that its client no longer
/// reads would take the whole time.
async fn drained(in_flight: &TaskTracker) {
    in_flight.close();
    loop {
        in_flight.wait().await;
        // The last answers may still be in socket buffers, and the head of a request may arrive.
        tokio::time::sleep(LINGER).await;
        if in_flight.is_empty() {
            return;
        }
    }
}

/// Accepts the connections of a port. Clones share its limits.
#[derive(Clone)]
struct Acceptor {
    router: Router,
    /// Clients need a certificate of the configured authority.
    certificates: Option<watch::Receiver<ServerTls>>,
    connections: Arc<Connections>,
    failures: Arc<Failures>,
    stages: watch::Receiver<Stage>,
}

/// Limits of the lines about failures.
#[derive(Debug, Default)]
struct Failures {
    accepts: LineLimit,
    handshakes: LineLimit,
}

impl Acceptor {
    /// Accepts connections until the socket cannot be used any more.
    async fn accept_all(&self, listener: &TcpListener) -> io::Error {
        loop {
            match listener.accept().await {
                Ok((stream, mut address)) => {
                    // A client of IPv4 has a mapped address on a socket of both families.
                    address.set_ip(address.ip().to_canonical());
                    if let Some(admitted) = self.connections.admit().await {
                        tokio::spawn(self.clone().serve(stream, address, admitted));
                    }
                }
                // The client has gone again.
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) if is_of_the_socket(&error) => return error,
                Err(error) => {
                    self.log_accept_failure(&error);
                    self.connections.make_room();
                    tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
                }
            }
        }
    }

    /// Serves a connection until it ends, waits too long for its client, or makes room for another.
    async fn serve(mut self, stream: TcpStream, address: SocketAddr, admitted: Admitted) {
        let mut stages = self.stages.clone();
        tokio::select! {
            () = self.shake_and_serve(stream, address, &admitted) => {}
            () = admitted.connection.closed() => {
                if admitted.connection.exceeds_encrypted() {
                    let error = "the client sends much and neither completes a handshake nor begins a request";
                    self.log_rejection(address, &io::Error::other(error));
                }
            }
            // An error means that the port has ended.
            _ = stages.wait_for(|stage| *stage == Stage::End) => {}
        }
    }

    async fn shake_and_serve(
        &mut self,
        stream: TcpStream,
        address: SocketAddr,
        admitted: &Admitted,
    ) {
        let Some(tls) = self.certificates.as_ref().map(|tls| tls.borrow().clone()) else {
            return self
                .serve_requests(stream, Peer::new(address, None), admitted)
                .await;
        };
        let shaking = async {
            // A load balancer's probe opens a connection, and closes or resets it.
            if matches!(stream.peek(&mut [0]).await, Ok(0) | Err(_)) {
                return Ok(None);
            }
            let connection = Arc::clone(&admitted.connection);
            let stream = InspectReader::new(stream, move |received: &[u8]| {
                connection.count_encrypted(received.len());
            });
            tls.accept(stream).await.map(Some)
        };
        let shaken = tokio::time::timeout(HANDSHAKE_TIMEOUT, shaking).await;
        match shaken.unwrap_or_else(|late| Err(io::Error::new(io::ErrorKind::TimedOut, late))) {
            Ok(None) => {}
            Ok(Some(stream)) => {
                admitted.connection.decrypted();
                let chain = stream.get_ref().1.peer_certificates();
                let peer = Peer::new(
                    address,
                    chain.and_then(|chain| chain.first()).map(|first| &**first),
                );
                self.serve_requests(stream, peer, admitted).await;
            }
            Err(error) => self.log_rejection(address, &error),
        }
    }

    async fn serve_requests<S>(&mut self, stream: S, peer: Peer, admitted: &Admitted)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        admitted.connection.wait_for(ClientWait::Request);
        let service = service_fn(|request: hyper::Request<Incoming>| {
            answer(
                self.router.clone(),
                request,
                peer.clone(),
                admitted.handle(),
            )
        });
        let stream = TokioIo::new(TimedStream::new(stream, Arc::clone(&admitted.connection)));
        let mut http = http1::Builder::new();
        // The time for a head is among those of `connections`: hyper's includes the time between
        // requests.
        http.header_read_timeout(None)
            .max_header_size(LARGEST_HEAD)
            .max_buf_size(LARGEST_HEAD);
        let mut connection = std::pin::pin!(http.serve_connection(stream, service));
        // Errors are the client's: what it sent is not HTTP, or it has gone.
        tokio::select! {
            _ = connection.as_mut() => return,
            _ = self.stages.wait_for(|stage| *stage != Stage::Serve) => {}
        }
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }

    /// Any client that reaches the port can cause failures, so the log is sampled.
    fn log_rejection(&self, address: SocketAddr, error: &io::Error) {
        if let Some(left_out) = self.failures.handshakes.admit() {
            let error = handshake_failure(error);
            tracing::warn!(name: "tls.handshake-failed", %address, error, left_out,
                "a TLS handshake failed, so the client was rejected; the log is sampled");
        }
    }

    fn log_accept_failure(&self, error: &io::Error) {
        if let Some(left_out) = self.failures.accepts.admit() {
            tracing::error!(name: "connections.not-accepted", %error, left_out,
                "a connection cannot be accepted; if there are too many open files, raise their limit; the log is sampled");
        }
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    )
}

/// Whether no later attempt can succeed. Others can, such as without a file descriptor, or where
/// Linux returns an error of the network (accept(2)).
fn is_of_the_socket(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::BADF | Errno::INVAL | Errno::NOTSOCK)
    )
}

/// Answers a request, and keeps the connection's account of what it waits for.
async fn answer(
    router: Router,
    request: hyper::Request<Incoming>,
    peer: Peer,
    handle: ConnectionHandle,
) -> Result<Response, std::convert::Infallible> {
    let connection = Arc::clone(&handle.connection);
    let answering = AnsweringConnection(Arc::clone(&connection));
    if request.body().is_end_stream() {
        connection.work()
    } else {
        connection.wait_for(ClientWait::Body)
    }
    let mut request = request.map(|body| Body::new(AwaitedBody { body, connection }));
    request.extensions_mut().insert(peer);
    request.extensions_mut().insert(handle);
    let response = router.oneshot(request).await?;
    Ok(guarded(response, answering))
}

/// A request in flight. When its answer has been sent, the connection waits for the next one.
struct AnsweringConnection(Arc<Connection>);

impl Drop for AnsweringConnection {
    fn drop(&mut self) {
        self.0.answered();
    }
}

/// A body after whose end the connection waits for its client no longer.
struct AwaitedBody {
    body: Incoming,
    connection: Arc<Connection>,
}

impl HttpBody for AwaitedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if matches!(frame, Poll::Ready(None)) || (frame.is_ready() && self.body.is_end_stream()) {
            self.connection.work();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn head_above_the_limit_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let port = Port {
            name: "test",
            listener,
            most_connections: 2,
        };
        let served = serve_clients(port, None, Router::new(), std::future::pending());
        tokio::spawn(served);
        let begin = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nLong: ";
        let rest = LARGEST_HEAD - begin.len();
        let largest = format!("{begin}{}\r\n\r\n", "x".repeat(rest - 4));
        let larger = format!("{begin}{}", "x".repeat(rest));
        for (head, status) in [(largest, "404"), (larger, "431")] {
            let mut client = TcpStream::connect(address).await.unwrap();
            client.write_all(head.as_bytes()).await.unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            let expected = format!("HTTP/1.1 {status} ");
            assert!(answer.starts_with(&expected), "{answer}");
        }
    }

    #[tokio::test]
    async fn socket_that_accepts_no_more_ends_the_port() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        SockRef::from(&listener)
            .shutdown(std::net::Shutdown::Both)
            .unwrap();
        let port = Port {
            name: "test",
            listener,
            most_connections: 1,
        };
        let served = serve_clients(port, None, Router::new(), std::future::pending());
        let ended = tokio::time::timeout(HANDSHAKE_TIMEOUT, served).await;
        let error = ended.expect("it does not try again").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
