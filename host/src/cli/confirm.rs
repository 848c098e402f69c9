//! The confirmation of a command that an operator may regret. Only at a terminal: scripts are never
//! stopped by a question.

use std::io::{self, BufRead, IsTerminal};

use super::output;

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
