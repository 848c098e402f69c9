//! The confirmation of a command that an operator may regret. Only at a terminal: scripts are never
//! stopped by a question.

use std::io::{self, BufRead, IsTerminal};

use clap::Args;

use super::output;

/// The option that takes the place of a confirmation.
#[derive(Debug, Args)]
pub(super) struct Confirmation {
    /// Skip the confirmation. Without a terminal there is none.
    #[arg(long, short)]
    yes: bool,
}

impl Confirmation {
    /// Shows what is about to happen, and waits for a yes. Returns at once with `--yes` and without
    /// a terminal.
    ///
    /// # Errors
    /// Any other answer, or none.
    pub(super) fn obtain(&self, what: &str) -> anyhow::Result<()> {
        if self.yes {
            return Ok(());
        }
        confirmed(what)
    }
}

/// Shows what is about to happen, and waits for a yes. Returns at once without a terminal.
///
/// # Errors
/// Any other answer, or none.
pub(super) fn confirmed(what: &str) -> anyhow::Result<()> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(());
    }
    output::note(format_args!("{what}\nContinue? [y/N]"));
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    let is_yes = ["y", "yes"].contains(&answer.trim().to_lowercase().as_str());
    anyhow::ensure!(
        is_yes,
        "nothing was done; answer with y, or give `--yes`, to continue"
    );
    Ok(())
}
