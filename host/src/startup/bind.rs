//! The sockets on which a host listens for HTTP. As in Go, which Diego's BBS is written in, an
//! address that names no interface is that of both families: `0.0.0.0` accepts IPv6, too.

use std::io;
use std::net::{Ipv6Addr, SocketAddr};

use rustix::io::Errno;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket};

use super::StartupError;

/// Connections that wait to be accepted: as many as Linux allows by default, like Go. All cells
/// connect at once to a new master.
const BACKLOG: u32 = 4096;

/// Listens on the address that a key of the configuration has.
///
/// # Errors
/// The address is in use, or not one of this machine.
pub(super) fn bind(key: &'static str, address: SocketAddr) -> Result<TcpListener, StartupError> {
    in_both_families(address, listen).map_err(|source| StartupError::Listen {
        key,
        address,
        source,
    })
}

/// The address of a socket that was to listen on `configured`, whose port may be 0.
///
/// # Errors
/// The socket is not usable.
pub(super) fn bound_address(
    key: &'static str,
    configured: SocketAddr,
    listener: &TcpListener,
) -> Result<SocketAddr, StartupError> {
    listener
        .local_addr()
        .map_err(|source| StartupError::Listen {
            key,
            address: configured,
            source,
        })
}

/// Calls `listen` for an address; for one that names no interface, with that of both families.
fn in_both_families<T>(
    address: SocketAddr,
    listen: impl Fn(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    if !address.ip().is_unspecified() {
        return listen(address);
    }
    let both = SocketAddr::from((Ipv6Addr::UNSPECIFIED, address.port()));
    match listen(both) {
        Err(error) if address.is_ipv4() && is_without_ipv6(&error) => listen(address),
        listening => listening,
    }
}

fn is_without_ipv6(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL)
    )
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    // A host that is started again does not wait for the connections of the previous one.
    socket.set_reuseaddr(true)?;
    if address.ip().is_unspecified() && address.is_ipv6() {
        // The default is a setting of the machine, `net.ipv6.bindv6only`.
        SockRef::from(&socket).set_only_v6(false)?;
    }
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, TcpStream};
    use std::time::Duration;

    use super::*;

    const KEY: &str = "listen_address";

    fn has_ipv6() -> bool {
        std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok()
    }

    #[tokio::test]
    async fn address_of_no_interface_accepts_both_families() {
        for address in ["0.0.0.0:0", "[::]:0"] {
            let address: SocketAddr = address.parse().unwrap();
            if address.is_ipv6() && !has_ipv6() {
                continue;
            }
            let listener = bind(KEY, address).unwrap();
            let port = listener.local_addr().unwrap().port();
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
            if has_ipv6() {
                TcpStream::connect((Ipv6Addr::LOCALHOST, port)).unwrap();
            }
        }
    }

    #[tokio::test]
    async fn address_of_an_interface_is_bound_as_it_is() {
        let listener = bind(KEY, SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(address.ip(), IpAddr::from(Ipv4Addr::LOCALHOST));
        let failure = bind(KEY, address).unwrap_err();
        assert!(
            matches!(&failure, StartupError::Listen { address: named, .. } if *named == address),
            "{failure:?}"
        );
    }

    #[test]
    fn machine_without_ipv6_listens_on_ipv4() {
        let everywhere: SocketAddr = "0.0.0.0:8889".parse().unwrap();
        let both: SocketAddr = "[::]:8889".parse().unwrap();
        let listen_without = |errno: Errno| {
            move |address: SocketAddr| -> io::Result<SocketAddr> {
                if address.is_ipv6() {
                    Err(io::Error::from(errno))
                } else {
                    Ok(address)
                }
            }
        };
        for errno in [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL] {
            let listening = in_both_families(everywhere, listen_without(errno));
            assert_eq!(listening.unwrap(), everywhere);
            assert!(in_both_families(both, listen_without(errno)).is_err());
        }
        assert!(in_both_families(everywhere, listen_without(Errno::ADDRINUSE)).is_err());
    }

    /// Method: the connection of a client that has closed it still waits, so that few files are
    /// open.
    #[tokio::test]
    async fn connections_of_many_cells_wait_to_be_accepted() {
        /// More than the default of the libraries, 128.
        const CELLS: usize = 2000;
        /// Linux drops the attempts to connect for which the queue has no place.
        const PATIENCE: Duration = Duration::from_secs(10);
        let listener = bind(KEY, SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let allowed = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
        let allowed: usize = allowed.trim().parse().unwrap();
        assert!(allowed > 128, "net.core.somaxconn is {allowed}");
        for cell in 0..CELLS.min(allowed) {
            let connected = TcpStream::connect_timeout(&address, PATIENCE);
            assert!(connected.is_ok(), "cell {cell}: {connected:?}");
        }
    }
}
