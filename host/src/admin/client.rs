//! The client side: sends a command to the host that listens at a socket, and explains why no host
//! answers.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bbs_work::printable;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use super::{Command, Reply, Report};
use crate::reload::ReloadReport;

/// Longest reply in bytes; a report of many modules has some kilobytes.
const LONGEST_REPLY: u64 = 1 << 20;
/// Longest wait for a report, which a host has at any time.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

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
    #[error(
        "this user may not connect to the admin socket {}; run this as the user that the host runs as, which has to be allowed to \
         enter the folder of the socket, too", .path.display()
    )]
    Forbidden { path: PathBuf },
    #[error(
        "the program that listens at the admin socket {} runs as another user ({uid}); nothing was sent to it. Keep `data_dir` in a \
         folder that only the host's own user may write to", .path.display()
    )]
    NotOurs { path: PathBuf, uid: u32 },
    #[error("the host has not answered for 30 s; look at its log")]
    Silent,
    #[error("cannot reach the host through the admin socket {}", .path.display())]
    Connect { path: PathBuf, source: io::Error },
    #[error(
        "the host ended before it answered; look at its log, and start it again with `bbs serve`"
    )]
    Ended,
    #[error("the connection to the host broke; try again")]
    Broken(#[source] io::Error),
    #[error(
        "the host sent a reply that this command does not understand; use the `bbs` of the version that is running"
    )]
    Foreign(#[source] serde_json::Error),
    #[error(
        "the host sent a reply of more than 1 MiB; use the `bbs` of the version that is running"
    )]
    TooLong,
    #[error("the host sent the reply to another command; try again")]
    Unexpected,
    #[error("the host refused: {0}")]
    Refused(String),
}

impl AdminClientError {
    fn of_connect(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound => Self::NotRunning { path },
            io::ErrorKind::ConnectionRefused => Self::Stale { path },
            io::ErrorKind::PermissionDenied => Self::Forbidden { path },
            _ => Self::Connect { path, source },
        }
    }
}

/// A command sent to a running host, and the stream of its replies.
#[derive(Debug)]
pub struct AdminClient {
    replies: BufReader<UnixStream>,
}

impl AdminClient {
    /// Connects to the socket at `path` and sends `command`.
    ///
    /// # Errors
    /// [`AdminClientError::NotRunning`], `Stale`, `Forbidden` or `Connect` if there is no
    /// connection, `Broken` if it is lost.
    pub async fn send(path: &Path, command: Command) -> Result<Self, AdminClientError> {
        let mut stream = UnixStream::connect(path)
            .await
            .map_err(|source| AdminClientError::of_connect(path, source))?;
        let uid = stream.peer_cred().map_err(AdminClientError::Broken)?.uid();
        let folder = path
            .parent()
            .and_then(|folder| folder.metadata().ok())
            .map(|folder| folder.uid());
        if !is_trusted(uid, bbs_files::own_user(), folder) {
            return Err(AdminClientError::NotOurs {
                path: path.to_owned(),
                uid,
            });
        }
        let mut line = serde_json::to_vec(&command).expect("a command is plain data");
        line.push(b'\n');
        stream
            .write_all(&line)
            .await
            .map_err(AdminClientError::Broken)?;
        Ok(Self {
            replies: BufReader::new(stream),
        })
    }

    /// Returns the next report, or `None` when the host has closed the connection.
    ///
    /// # Errors
    /// If the connection breaks, the reply cannot be parsed, or the host refused the command.
    pub async fn next(&mut self) -> Result<Option<Report>, AdminClientError> {
        let reply = tokio::time::timeout(LONGEST_WAIT, self.reply())
            .await
            .map_err(|_| AdminClientError::Silent)?;
        match reply? {
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
        let mut line = Vec::new();
        (&mut self.replies)
            .take(LONGEST_REPLY)
            .read_until(b'\n', &mut line)
            .await
            .map_err(AdminClientError::Broken)?;
        if line.is_empty() {
            return Ok(None);
        }
        if line.len() as u64 == LONGEST_REPLY {
            return Err(AdminClientError::TooLong);
        }
        let mut reply: Value = serde_json::from_slice(&line).map_err(AdminClientError::Foreign)?;
        escape_controls(&mut reply);
        serde_json::from_value(reply)
            .map(Some)
            .map_err(AdminClientError::Foreign)
    }

    /// Returns the first report; for commands that have one.
    ///
    /// # Errors
    /// As [`next`](Self::next), and [`AdminClientError::Ended`] if the host closed the connection
    /// before it replied.
    pub async fn answer(&mut self) -> Result<Report, AdminClientError> {
        self.next().await?.ok_or(AdminClientError::Ended)
    }
}

/// Whether a user may answer for a host: this command's own and root; for a command of root, also
/// the one whose folder has the socket.
fn is_trusted(uid: u32, own: u32, folder: Option<u32>) -> bool {
    uid == own || uid == 0 || (own == 0 && folder == Some(uid))
}

/// Replaces control characters by their escapes. Texts of reports have line ends.
fn escape_controls(value: &mut Value) {
    match value {
        Value::String(text) => *text = printable::lines(text),
        Value::Array(values) => values.iter_mut().for_each(escape_controls),
        Value::Object(fields) => fields.values_mut().for_each(escape_controls),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The error of a reply that is none to the command.
fn unexpected(reply: Reply) -> AdminClientError {
    match reply {
        Reply::Refused(why) => AdminClientError::Refused(why),
        Reply::Report(_) | Reply::Reloaded(_) => AdminClientError::Unexpected,
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixListener;

    use super::*;

    #[test]
    fn host_of_another_user_is_not_trusted() {
        for (uid, own, folder) in [(7, 7, Some(9)), (0, 7, None), (7, 0, Some(7))] {
            assert!(
                is_trusted(uid, own, folder),
                "{uid} to {own}, whose folder is of {folder:?}"
            );
        }
        for (uid, own, folder) in [(9, 7, Some(9)), (9, 0, Some(0)), (9, 0, None)] {
            assert!(
                !is_trusted(uid, own, folder),
                "{uid} to {own}, whose folder is of {folder:?}"
            );
        }
    }

    /// The error of a command whose host sends these bytes.
    async fn failed(reply: Vec<u8>) -> AdminClientError {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let answering = tokio::spawn(async move {
            let mut stream = listener.accept().await.unwrap().0;
            // The client ends the connection before it has read all of a long reply.
            let _ = stream.write_all(&reply).await;
            stream
        });
        let failed = AdminClient::send(&path, Command::Status)
            .await
            .unwrap()
            .answer()
            .await
            .unwrap_err();
        answering.abort();
        failed
    }

    #[tokio::test]
    async fn replies_are_bounded_and_without_control_characters() {
        assert!(matches!(
            failed(vec![b'x'; 2 << 20]).await,
            AdminClientError::TooLong
        ));
        let forged = failed(b"{\"refused\":\"a\\u001b[31m\\rforged\\u202e\"}\n".to_vec())
            .await
            .to_string();
        assert_eq!(forged, "the host refused: a\\u{1b}[31m\\rforged\\u{202e}");
    }

    #[tokio::test(start_paused = true)]
    async fn silent_host_is_given_up() {
        assert!(matches!(failed(Vec::new()).await, AdminClientError::Silent));
    }
}
