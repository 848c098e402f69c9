//! The side of the operator: asks the host that has a socket, and says what is the matter where there is none.

use std::io;
use std::path::{Path, PathBuf};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;

use super::{Command, Reply, Report};

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(
        "no host is running with this configuration: there is no admin socket {}. Start one with `bbs serve`", .path.display()
    )]
    NotRunning { path: PathBuf },
    #[error(
        "no host is running with this configuration: nobody answers at the admin socket {}, which one that was killed \
         left behind. Start one with `bbs serve`", .path.display()
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
    #[error("the host says what this command does not understand; use the `bbs` of the version that is running")]
    Foreign(#[source] serde_json::Error),
    #[error("the host refused: {0}")]
    Refused(String),
}

/// A question to a running host, and what it answers.
#[derive(Debug)]
pub struct Client {
    replies: Lines<BufReader<UnixStream>>,
}

impl Client {
    pub async fn ask(path: &Path, command: Command) -> Result<Self, ClientError> {
        let path = path.to_owned();
        let mut stream = UnixStream::connect(&path).await.map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => ClientError::NotRunning { path },
            io::ErrorKind::ConnectionRefused => ClientError::Stale { path },
            io::ErrorKind::PermissionDenied => ClientError::Forbidden { path },
            _ => ClientError::Connect { path, source },
        })?;
        let mut line = serde_json::to_vec(&command).expect("a command is plain data");
        line.push(b'\n');
        stream.write_all(&line).await.map_err(ClientError::Broken)?;
        Ok(Self { replies: BufReader::new(stream).lines() })
    }

    /// The next report, or nothing when the host has no more to say.
    pub async fn next(&mut self) -> Result<Option<Report>, ClientError> {
        let Some(line) = self.replies.next_line().await.map_err(ClientError::Broken)? else { return Ok(None) };
        match serde_json::from_str(&line).map_err(ClientError::Foreign)? {
            Reply::Report(report) => Ok(Some(report)),
            Reply::Refused(why) => Err(ClientError::Refused(why)),
        }
    }

    /// The answer to a question that has one.
    pub async fn answer(&mut self) -> Result<Report, ClientError> {
        self.next().await?.ok_or(ClientError::Ended)
    }
}
