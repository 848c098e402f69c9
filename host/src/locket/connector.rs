//! Connections to Locket, with TLS. Its name may have several addresses, of which one that hangs
//! keeps no host from the others: such a machine accepts connections, and answers nothing.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::Uri;
use tower::Service;

const HTTP_2: &[u8] = b"h2";
/// The port of an address without one, as in gRPC.
const PORT: u16 = 443;
/// Time of an address alone, after which the next one is tried beside it. A handshake takes
/// milliseconds.
const HEAD_START: Duration = Duration::from_secs(1);

/// Makes the connections to one Locket. The caller limits their time.
#[derive(Clone)]
pub(super) struct Connector {
    host: String,
    port: u16,
    tls: TlsConnector,
}

impl Connector {
    /// A connector to the host and port of `uri`.
    pub(super) fn new(uri: &Uri, mut tls: ClientConfig) -> Self {
        tls.alpn_protocols = vec![HTTP_2.to_vec()];
        let host = uri.host().unwrap_or_default();
        Self {
            // An address of IPv6 is in brackets.
            host: host.trim_matches(['[', ']']).to_owned(),
            port: uri.port_u16().unwrap_or(PORT),
            tls: TlsConnector::from(Arc::new(tls)),
        }
    }

    async fn connect(self) -> io::Result<TlsStream<TcpStream>> {
        let addresses: Vec<_> = lookup_host((self.host.as_str(), self.port))
            .await?
            .collect();
        first_to_connect(addresses, |address| self.shake_hands(address)).await
    }

    async fn shake_hands(&self, address: SocketAddr) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(self.host.clone()).map_err(io::Error::other)?;
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let stream = self.tls.connect(name, stream).await?;
        if stream.get_ref().1.alpn_protocol() != Some(HTTP_2) {
            return Err(io::Error::other("the server does not offer HTTP/2"));
        }
        Ok(stream)
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TlsStream<TcpStream>>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move { connector.connect().await.map(TokioIo::new) })
    }
}

/// Connects to the first address that answers. Each is tried once the one before it has failed, or
/// has had its head start.
///
/// # Errors
/// The last failure of an address.
async fn first_to_connect<T, F>(
    addresses: Vec<SocketAddr>,
    connect: impl Fn(SocketAddr) -> F,
) -> io::Result<T>
where
    F: Future<Output = io::Result<T>>,
{
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    let mut attempts = FuturesUnordered::new();
    for address in addresses {
        attempts.push(connect(address));
        match timeout(HEAD_START, attempts.next()).await {
            Ok(Some(Ok(connected))) => return Ok(connected),
            Ok(Some(Err(error))) => failure = error,
            Ok(None) | Err(_) => {}
        }
    }
    while let Some(connected) = attempts.next().await {
        match connected {
            Ok(connected) => return Ok(connected),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;

    #[derive(Clone, Copy)]
    enum Machine {
        Hangs,
        Refuses,
        AnswersAfter(Duration),
    }
    use Machine::{AnswersAfter, Hangs, Refuses};

    const SOON: Duration = Duration::from_millis(10);

    /// The machine that is connected to, and after how long.
    async fn connected_to(machines: &[Machine]) -> io::Result<(usize, Duration)> {
        let begin = Instant::now();
        let addresses = (0..machines.len()).map(|index| {
            let port = u16::try_from(index).expect("there are few");
            SocketAddr::from(([127, 0, 0, 1], port))
        });
        let connect = |address: SocketAddr| async move {
            let index = usize::from(address.port());
            match machines[index] {
                Hangs => std::future::pending().await,
                Refuses => Err(io::Error::from(io::ErrorKind::ConnectionRefused)),
                AnswersAfter(time) => {
                    sleep(time).await;
                    Ok(index)
                }
            }
        };
        let index = first_to_connect(addresses.collect(), connect).await?;
        Ok((index, begin.elapsed()))
    }

    #[tokio::test(start_paused = true)]
    async fn address_that_hangs_delays_the_next_one_by_its_head_start() {
        let connected = connected_to(&[Hangs, Hangs, AnswersAfter(SOON)]).await;
        assert_eq!(connected.unwrap(), (2, HEAD_START * 2 + SOON));
    }

    #[tokio::test(start_paused = true)]
    async fn address_that_refuses_delays_the_next_one_by_nothing() {
        let connected = connected_to(&[Refuses, AnswersAfter(SOON)]).await;
        assert_eq!(connected.unwrap(), (1, SOON));
    }

    #[tokio::test(start_paused = true)]
    async fn slow_address_is_used_if_the_next_one_fails_or_is_slower() {
        let slow = HEAD_START * 2;
        for next in [Hangs, Refuses, AnswersAfter(slow)] {
            let connected = connected_to(&[AnswersAfter(slow), next]).await;
            assert_eq!(connected.unwrap(), (0, slow));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failure_of_every_address_is_an_error() {
        for (machines, expected) in [
            (&[][..], io::ErrorKind::NotFound),
            (&[Refuses, Refuses], io::ErrorKind::ConnectionRefused),
        ] {
            let error = connected_to(machines).await.unwrap_err();
            assert_eq!(error.kind(), expected);
        }
    }
}
