//! The admin socket: inspects and controls a running host over a Unix socket that only the host's
//! own user may open. Owns the socket, its commands and its replies, which are one line of JSON
//! each, so that `nc -U` works as a client. It is never reachable from another machine, and changes
//! nothing that outlives the process.

mod client;
mod endpoint;
mod socket;

use std::io;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};

pub use client::{AdminClient, AdminClientError};
pub use endpoint::Endpoint;
pub use socket::{RemainingClients, Socket};

use bbs_work::progress::{Progress, Snapshot};
use bbs_work::throttle::{Throttle, ThrottleSettings};

use crate::reload::{ReloadReport, ReloadSender};
use crate::shutdown::Shutdown;

/// A command of the admin socket, such as `{"command":"pause"}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Command {
    /// Returns one report.
    Status,
    /// Streams reports at an interval until the work is finished.
    Watch,
    /// Stops the work before its next batch.
    Pause,
    /// Ends a pause.
    Resume,
    /// Ends the host, and streams reports until it has ended.
    Drain,
    /// Loads the modules again.
    Reload,
    /// Sets the upper bound of the rate; no bound if absent.
    Rate {
        /// Number of what the phase counts, [`Snapshot::counted`].
        units_per_second: Option<u64>,
    },
}

/// Longest command in bytes; every command is far shorter.
const LONGEST_LINE: u64 = 4096;

impl Command {
    /// Reads a command, which is one line. The inner error is the reason why the line is none.
    ///
    /// # Errors
    /// If the connection is lost, or the line is not UTF-8.
    pub(crate) async fn read(stream: impl AsyncRead + Unpin) -> io::Result<Result<Self, String>> {
        let mut line = String::new();
        BufReader::new(stream.take(LONGEST_LINE))
            .read_line(&mut line)
            .await?;
        Ok(serde_json::from_str(&line).map_err(|error| format!("this is not a command: {error}")))
    }
}

/// The progress of the host's work and the current throttle.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub pid: u32,
    /// The pin of the data version. Absent without one, and from a host of an earlier release.
    #[serde(default)]
    pub pin_data_version: Option<u64>,
    pub progress: Snapshot,
    /// Its name in JSON predates the type's.
    #[serde(rename = "pace")]
    pub throttle: ThrottleSettings,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Reply {
    Report(Report),
    Reloaded(ReloadReport),
    /// The command was invalid; holds the reason.
    Refused(String),
}

/// The state of the host that the socket reads and changes.
#[derive(Debug, Clone, Default)]
pub struct Host {
    pub progress: Progress,
    pub throttle: Throttle,
    /// Also one that an option of its command has set in the place of the configuration's.
    pub pin_data_version: Option<u64>,
    /// Absent in a command, which an operator interrupts.
    pub control: Option<Control>,
}

/// Controls of a host that an operator may change over its socket. A command has none of them.
#[derive(Debug, Clone)]
pub struct Control {
    pub shutdown: Shutdown,
    pub reload: ReloadSender,
}

impl Host {
    fn report(&self) -> Report {
        Report {
            pid: std::process::id(),
            pin_data_version: self.pin_data_version,
            progress: self.progress.snapshot(),
            throttle: self.throttle.settings(),
        }
    }

    /// Executes a command and returns its reply. The socket repeats the report for
    /// [`Command::Watch`].
    async fn execute(&self, command: Command) -> Reply {
        let no_host = || {
            Reply::Refused(
                "a command of `bbs` runs, no host; interrupt it, the next one continues".to_owned(),
            )
        };
        match command {
            Command::Status | Command::Watch => {}
            Command::Pause => self.throttle.pause(),
            Command::Resume => self.throttle.resume(),
            Command::Drain => {
                let Some(Control { shutdown, .. }) = &self.control else {
                    return no_host();
                };
                tracing::info!(name: "drain.requested", "an operator requested the end of this host");
                shutdown.drain();
            }
            Command::Reload => {
                let Some(Control { reload, .. }) = &self.control else {
                    return no_host();
                };
                return reload
                    .request()
                    .await
                    .map_or_else(Reply::Refused, Reply::Reloaded);
            }
            Command::Rate {
                units_per_second: Some(0),
            } => {
                return Reply::Refused(
                    "at 0 units a second the work would never end; pause it instead".to_owned(),
                );
            }
            Command::Rate { units_per_second } => self.throttle.limit(units_per_second),
        }
        if matches!(
            command,
            Command::Pause | Command::Resume | Command::Rate { .. }
        ) {
            let ThrottleSettings {
                paused,
                units_per_second,
            } = self.throttle.settings();
            tracing::info!(paused, units_per_second, "an operator changed the throttle");
        }
        Reply::Report(self.report())
    }
}

#[cfg(test)]
mod tests;
