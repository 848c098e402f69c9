//! Free ports for servers that need the number before they start.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

/// Below the ports that Linux assigns to connections and to listeners on port 0, any of which could
/// get a free port before the server that it was chosen for.
const PORTS: Range<u16> = 12_000..31_000;
/// Ports for child test processes: a child does not know the ports that its parent has chosen.
const PORTS_OF_CHILDREN: Range<u16> = 31_000..32_000;
/// Environment variable of such a process.
pub const IS_CHILD: &str = "BBS_TEST_IS_CHILD";
/// The distance between the first ports of two processes with successive ids.
const PORTS_OF_A_PROCESS: u32 = 50;

/// The address of a port on which nothing listens. Later calls in this process return other ones.
pub fn free_address() -> SocketAddr {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let ports = match std::env::var_os(IS_CHILD) {
        Some(_) => PORTS_OF_CHILDREN,
        None => PORTS,
    };
    let first = std::process::id().wrapping_mul(PORTS_OF_A_PROCESS);
    for _ in ports.clone() {
        let number = first.wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed))
            % u32::from(ports.end - ports.start);
        let port = ports.start + u16::try_from(number).expect("it is below the number of ports");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
    panic!("no port of {ports:?} is free");
}
