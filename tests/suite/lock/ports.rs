//! Ports that accept no connection any more: their host ends, so that another one serves.

use std::net::Shutdown;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use socket2::SockRef;

use super::host;
use super::locket::under;
use crate::harness::database::{Kind, TestDatabase};
use crate::harness::locket::Locket;
use crate::harness::ports::free_address;

/// The socket of a child process that listens on a port of IPv4.
fn listening_socket(pid: u32, port: u16) -> OwnedFd {
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).expect("it is there");
    let end_of_address = format!(":{port:04X}");
    // The columns are in proc_pid_net(5); 0A is the state of a socket that listens.
    let inode = table.lines().find_map(|line| {
        let columns: Vec<_> = line.split_whitespace().collect();
        let is_it = columns[1].ends_with(&end_of_address) && columns[3] == "0A";
        is_it.then(|| columns[9].to_owned())
    });
    let target = format!("socket:[{}]", inode.expect("it listens"));
    let mut files = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it is there");
    let number = files.find_map(|file| {
        let path = file.ok()?.path();
        let link = std::fs::read_link(&path).ok()?;
        let name = path.file_name()?.to_str()?;
        (link.to_str()? == target).then(|| name.parse::<i32>().expect("a number"))
    });
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let process = pidfd_open(pid.expect("a process"), PidfdFlags::empty()).expect("it lives");
    let number = number.expect("an open file");
    pidfd_getfd(&process, number, PidfdGetfdFlags::empty()).expect("a parent may use it")
}

#[tokio::test(flavor = "multi_thread")]
async fn master_whose_port_accepts_no_more_ends_and_releases_the_lock() {
    let locket = Locket::start();
    let database = TestDatabase::new(Kind::Sqlite);
    let health = free_address();
    for is_api in [true, false] {
        let installation = under(&locket, host(&database, "one"));
        let installation = installation.set("health_address", health.to_string());
        let served = tokio::task::spawn_blocking(move || installation.serve());
        let host = served.await.unwrap();
        assert_eq!(locket.holder().as_deref(), Some("one"));
        let port = if is_api {
            host.address.port()
        } else {
            health.port()
        };
        let socket = listening_socket(host.pid(), port);
        SockRef::from(&socket).shutdown(Shutdown::Both).unwrap();
        let ended = tokio::task::spawn_blocking(move || host.wait_for_end());
        let (status, log) = ended.await.unwrap();
        let named = if is_api {
            "the port of the API ended"
        } else {
            "the health port ended"
        };
        assert!(status.code() == Some(1) && log.contains(named), "{log}");
        assert_eq!(locket.holder(), None);
    }
}
