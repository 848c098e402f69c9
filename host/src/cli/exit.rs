//! The exit codes of the executable: the codes of all commands, and the code of each error.

use std::process::ExitCode;

use crate::config::ConfigError;
use crate::logs::RedactError;
use crate::startup::HostFailure;

/// Why a command does not start its host.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(super) struct NotStarted(pub(super) anyhow::Error);

/// How a process ends. `host/OPERATING.md` has the same table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Success,
    Failure,
    NotStarted,
    UnitsRemain,
}

impl Exit {
    pub(super) const ALL: [Self; 4] = [
        Self::Success,
        Self::Failure,
        Self::NotStarted,
        Self::UnitsRemain,
    ];

    pub(super) fn code(self) -> u8 {
        self as u8
    }

    pub(super) fn meaning(self) -> &'static str {
        match self {
            Self::Success => {
                "done; a request, such as a signal, ended the host, or it has completed a rollback, or a table of its database \
                 is missing"
            }
            Self::Failure => {
                "a command failed, or its check found faults; a host failed after its start, or did not end as requested"
            }
            Self::NotStarted => {
                "the options of the command line or the keys of the configuration cannot be read, or `check-config` found faults; \
                 a host could not start, whatever the reason"
            }
            Self::UnitsRemain => "`migrate up` or `down` reached `--max-count`, and units remain",
        }
    }

    /// The code of a failed command.
    pub(super) fn of(error: &anyhow::Error) -> Self {
        let is_start = matches!(error.downcast_ref(), Some(HostFailure::Start(_)));
        if is_start
            || error.is::<NotStarted>()
            || error.is::<ConfigError>()
            || error.is::<RedactError>()
        {
            Self::NotStarted
        } else {
            Self::Failure
        }
    }

    /// The table for help texts.
    pub(super) fn table() -> String {
        let rows = Self::ALL.map(|exit| format!("  {}  {}", exit.code(), exit.meaning()));
        format!("Exit codes:\n{}", rows.join("\n"))
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}
