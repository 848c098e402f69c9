//! The client side: sends a command to the host that listens at a socket, and explains why no host answers.

use std::io;
use std::path::{Path, PathBuf};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;

use super::{Command, Reply, Report};
use crate::reload::ReloadReport;

/// Why the admin socket gave no report.
#[derive(Debug, thiserror::Error)]
pub enum AdminClientError {
    #[error(
        "no host is running with this configuration: there is no admin socket {}. Start one with `bbs serve`; one that runs \
         without its socket has logged the reason (`admin-socket.not-open`)", .path.display()
    )]
    NotRunning { path: PathBuf },
    #[error(
        "no host is running with this configuration: the admin socket {} exists, but no host \
         listens on it, since the last one was killed. Start one with `bbs serve`", .path.display()
    )]
    Stale { path: PathBuf },
    #[error("the admin socket {} belongs to another user; run this as the user that the host runs as", .path.display())]
    Forbidden { path: PathBuf },
    #[error("cannot reach the host through the admin socket {}", .path.display())]
    Connect { path: PathBuf, source: io::Error },
    #[error("the host ended before it answered; look at its log, and start it again with `bbs serve`")]
    Ended,
    #[error("the connection to the host broke; try again")]
    Broken(#[source] io::Error),
    #[error(
        "the host sent a reply that this command does not understand; use the `bbs` of the version that is running"
    )]
    Foreign(#[source] serde_json::Error),
    #[error("the host sent the reply to another command; try again")]
    Unexpected,
    #[error("the host refused: {0}")]
    Refused(String),
}

/// A command sent to a running host, and the stream of its replies.
#[derive(Debug)]
pub struct AdminClient {
    replies: Lines<BufReader<UnixStream>>,
}

impl AdminClient {
    /// Connects to the socket at `path` and sends `command`.
    ///
    /// # Errors
    /// [`AdminClientError::NotRunning`], `Stale`, `Forbidden` or `Connect` if there is no connection, `Broken` if it is lost.
    pub async fn send(path: &Path, command: Command) -> Result<Self, AdminClientError> {
        let path = path.to_owned();
        let mut stream = UnixStream::connect(&path).await.map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => AdminClientError::NotRunning { path },
            io::ErrorKind::ConnectionRefused => AdminClientError::Stale { path },
            io::ErrorKind::PermissionDenied => AdminClientError::Forbidden { path },
            _ => AdminClientError::Connect { path, source },
        })?;
        let mut line = serde_json::to_vec(&command).expect("a command is plain data");
        line.push(b'\n');
        stream.write_all(&line).await.map_err(AdminClientError::Broken)?;
        Ok(Self { replies: BufReader::new(stream).lines() })
    }

    /// [`send`](Self::send) at the first of the sockets at which a host answers.
    ///
    /// # Errors
    /// As `send`; that of the first socket if no host answers at any.
    pub async fn send_to_any(
        paths: impl IntoIterator<Item = &Path>,
        command: Command,
    ) -> Result<Self, AdminClientError> {
        let mut absent = None;
        for path in paths {
            match Self::send(path, command).await {
                Err(error @ (AdminClientError::NotRunning { .. } | AdminClientError::Stale { .. })) => {
                    absent.get_or_insert(error);
                }
                asked => return asked,
            }
        }
        Err(absent.expect("there is at least one socket"))
    }

    /// Returns the next report, or `None` when the host has closed the connection.
    ///
    /// # Errors
    /// If the connection breaks, the reply cannot be parsed, or the host refused the command.
    pub async fn next(&mut self) -> Result<Option<Report>, AdminClientError> {
        match self.reply().await? {
            None => Ok(None),
            Some(Reply::Report(report)) => Ok(Some(report)),
            Some(other) => Err(unexpected(other)),
        }
    }

    /// Returns the result of [`Command::Reload`].
    ///
    /// # Errors
    /// As [`answer`](Self::answer).
    pub async fn reloaded(&mut self) -> Result<ReloadReport, AdminClientError> {
        match self.reply().await?.ok_or(AdminClientError::Ended)? {
            Reply::Reloaded(report) => Ok(report),
            other => Err(unexpected(other)),
        }
    }

    async fn reply(&mut self) -> Result<Option<Reply>, AdminClientError> {
        let Some(line) = self.replies.next_line().await.map_err(AdminClientError::Broken)? else { return Ok(None) };
        serde_json::from_str(&line).map(Some).map_err(AdminClientError::Foreign)
    }

    /// Returns the first report; for commands that have one.
    ///
    /// # Errors
    /// As [`next`](Self::next), and [`AdminClientError::Ended`] if the host closed the connection before it replied.
    pub async fn answer(&mut self) -> Result<Report, AdminClientError> {
        self.next().await?.ok_or(AdminClientError::Ended)
    }
}

/// The error of a reply that is none to the command.
fn unexpected(reply: Reply) -> AdminClientError {
    match reply {
        Reply::Refused(why) => AdminClientError::Refused(why),
        Reply::Report(_) | Reply::Reloaded(_) => AdminClientError::Unexpected,
    }
}
