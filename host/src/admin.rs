//! Looking at and steering a running host, over a Unix socket that only its own user may open. Owns the socket, what
//! may be asked through it and what is answered: one line of JSON each, so that `nc -U` will do. It is never reachable
//! from another machine, and changes nothing that outlives the host.

mod client;
mod socket;

use serde::{Deserialize, Serialize};

pub use client::{Client, ClientError};
pub use socket::{AdminError, Socket};

use crate::pace::{Pace, Wanted};
use crate::progress::{Progress, Snapshot};

/// What may be asked, such as `{"command":"pause"}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Command {
    /// One report.
    Status,
    /// A report now and then, until there is nothing left to watch.
    Watch,
    Pause,
    Resume,
    /// No bound if absent.
    Rate {
        units_per_second: Option<u64>,
    },
}

/// What the host is doing and how fast it may.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub pid: u32,
    pub progress: Snapshot,
    pub pace: Wanted,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Reply {
    Report(Report),
    /// What was asked makes no sense.
    Refused(String),
}

/// What the socket shows and steers.
#[derive(Debug, Clone, Default)]
pub struct Host {
    pub progress: Progress,
    pub pace: Pace,
}

impl Host {
    fn report(&self) -> Report {
        Report { pid: std::process::id(), progress: self.progress.snapshot(), pace: self.pace.wanted() }
    }

    /// Does what is asked. Watching is the socket's.
    fn obey(&self, command: Command) -> Reply {
        match command {
            Command::Status | Command::Watch => {}
            Command::Pause => self.pace.pause(),
            Command::Resume => self.pace.resume(),
            Command::Rate { units_per_second: Some(0) } => {
                return Reply::Refused("at 0 units a second the work would never end; pause it instead".to_owned());
            }
            Command::Rate { units_per_second } => self.pace.limit(units_per_second),
        }
        if command != Command::Status && command != Command::Watch {
            tracing::info!(?command, "an operator changed the pace");
        }
        Reply::Report(self.report())
    }
}

#[cfg(test)]
mod tests;
