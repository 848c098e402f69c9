//! The server side: creates the socket for the host's own user, executes commands, and removes the
//! socket at the end.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bbs_work::progress::Snapshot;
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio_util::task::TaskTracker;

use super::{Command, Host, Reply, Report};

const WATCH_INTERVAL: Duration = Duration::from_millis(500);
/// How long a client may take to send its command after it has connected.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the last reply of a host that ends may take; more than [`WATCH_INTERVAL`].
const LAST_REPLY: Duration = Duration::from_secs(2);

/// Why the admin socket could not be created.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    #[error(
        "another host answers at the admin socket {}, and commands with this configuration reach that one; give each host its \
         own with `admin_socket` or `data_dir`", .path.display()
    )]
    InUse { path: PathBuf },
    #[error("there is a file at {} that is not a socket; remove it, or name another path with `admin_socket`", .path.display())]
    InTheWay { path: PathBuf },
    #[error(
        "cannot make the admin socket {}; check that its folder can be made and written to, and that the path has fewer than \
         100 letters, or name another with `admin_socket`", .path.display()
    )]
    Bind { path: PathBuf, source: io::Error },
}

/// The listening socket. Dropping it closes and removes it.
#[derive(Debug)]
pub struct Socket {
    path: PathBuf,
    server: tokio::task::JoinHandle<()>,
    /// The clients that are being answered.
    answering: TaskTracker,
}

/// The clients that are still being answered after the socket was closed.
#[derive(Debug)]
pub struct RemainingClients(TaskTracker);

impl RemainingClients {
    /// Waits until they have their last reply; not long for one that does not read it.
    pub async fn served(self) {
        self.0.close();
        let _ = tokio::time::timeout(LAST_REPLY, self.0.wait()).await;
    }
}

impl Socket {
    /// Checks that the socket may be created at a path, as far as that is known without making
    /// anything.
    ///
    /// # Errors
    /// [`AdminError::InTheWay`] and [`AdminError::Bind`], as [`Socket::open`].
    pub fn check_place(path: &Path) -> Result<(), AdminError> {
        let failed = |source| AdminError::Bind {
            path: path.to_owned(),
            source,
        };
        SocketAddr::from_pathname(path).map_err(failed)?;
        let existing = path.ancestors().skip(1).find(|folder| folder.exists());
        if existing.is_some_and(|folder| !folder.is_dir()) {
            return Err(failed(io::ErrorKind::NotADirectory.into()));
        }
        match std::fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => Err(AdminError::InTheWay {
                path: path.to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// Creates the socket for the user that this host runs as, and its folder if that is absent.
    /// Replaces the socket of a host that was killed.
    ///
    /// # Errors
    /// [`AdminError::InUse`] if another host listens there, [`AdminError::InTheWay`] if the path is
    /// a file of another kind, [`AdminError::Bind`] if the socket cannot be created.
    pub async fn open(path: &Path, host: Host) -> Result<Self, AdminError> {
        if UnixStream::connect(path).await.is_ok() {
            return Err(AdminError::InUse {
                path: path.to_owned(),
            });
        }
        let failed = |source| AdminError::Bind {
            path: path.to_owned(),
            source,
        };
        path.parent()
            .map_or(Ok(()), bbs_files::create_private_folder)
            .map_err(failed)?;
        match std::fs::symlink_metadata(path) {
            Ok(found) if found.file_type().is_socket() => {
                std::fs::remove_file(path).map_err(failed)?
            }
            Ok(_) => {
                return Err(AdminError::InTheWay {
                    path: path.to_owned(),
                });
            }
            // `bind` reports what is wrong with the path.
            Err(_) => {}
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
        // A client may have connected between `bind` and `set_permissions`, so each connection's
        // user is checked as well.
        let owner = std::fs::metadata(path).map_err(failed)?.uid();
        let answering = TaskTracker::new();
        // Itself one of the tasks: it may have just accepted a client when it is ended.
        let server = answering.spawn(serve(listener, owner, host, answering.clone()));
        Ok(Self {
            path: path.to_owned(),
            server,
            answering,
        })
    }

    /// Closes and removes the socket; clients that are connected are still answered.
    pub fn close(self) -> RemainingClients {
        RemainingClients(self.answering.clone())
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.server.abort();
        // A socket that remains is harmless: the next host replaces it.
        let _ = std::fs::remove_file(&self.path);
    }
}

async fn serve(listener: UnixListener, owner: u32, host: Host, answering: TaskTracker) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let host = host.clone();
                answering.spawn(async move {
                    // A client that disconnects early is no fault of the host's.
                    let _ = answer(stream, owner, &host).await;
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection on the admin socket; trying again");
                tokio::time::sleep(WATCH_INTERVAL).await;
            }
        }
    }
}

async fn answer(mut stream: UnixStream, owner: u32, host: &Host) -> io::Result<()> {
    let asker = stream.peer_cred()?.uid();
    if asker != owner && asker != 0 {
        return send(
            &mut stream,
            &Reply::Refused("only the user that the host runs as may send commands".to_owned()),
        )
        .await;
    }
    let command = match tokio::time::timeout(PATIENCE, Command::read(&mut stream)).await?? {
        Ok(command) => command,
        Err(reason) => return send(&mut stream, &Reply::Refused(reason)).await,
    };
    let reply = host.execute(command).await;
    send(&mut stream, &reply).await?;
    // What the client has been sent decides, and not what has happened since.
    let Reply::Report(Report {
        progress: mut last, ..
    }) = reply
    else {
        return Ok(());
    };
    let has_more = |last: &Snapshot| match command {
        Command::Watch => !last.is_over(),
        Command::Drain => !last.has_ended(),
        _ => false,
    };
    while has_more(&last) {
        tokio::time::sleep(WATCH_INTERVAL).await;
        let report = host.report();
        last = report.progress.clone();
        send(&mut stream, &Reply::Report(report)).await?;
    }
    Ok(())
}

async fn send(stream: &mut UnixStream, reply: &Reply) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply).expect("a reply is plain data");
    line.push(b'\n');
    stream.write_all(&line).await
}
