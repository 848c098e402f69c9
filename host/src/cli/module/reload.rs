//! `bbs module reload`: makes a running host load its modules again, through its admin socket.

use std::path::PathBuf;

use clap::Args;

use crate::admin::{AdminClient, Command};
use crate::cli::output;
use crate::config::Config;
use crate::reload::ReloadReport;

/// Make a running host load its modules again, without a restart.
///
/// The host reads `modules_dir` and the folders of `modules_dirs` anew, with every check of a
/// start. Calls that have begun end with the translators of before, later ones use the new ones. If
/// there is a newer migration, it begins as an online one, whatever `migration_mode` says: `bbs
/// migrate watch` shows its progress. If anything is wrong, nothing changes, and this says why. A
/// host that waits for the lock uses the new modules once it has it. Other keys of the
/// configuration are read at the start only.
///
/// SIGHUP does the same; the host logs the result.
#[derive(Debug, Args)]
pub(super) struct ReloadCommand {
    /// The JSON configuration file of the host: it names the admin socket.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

impl ReloadCommand {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let config = Config::read(&self.config)?;
        let mut host = AdminClient::send(&config.admin_socket, Command::Reload).await?;
        output::note("Loading the modules; a host that does not serve yet does so later.");
        let report = host.reloaded().await?;
        if self.json {
            output::json_line(&report)?;
            return Ok(());
        }
        output::text(self.text(&report))?;
        if report.migrates_to.is_some() {
            let mut host = AdminClient::send(&config.admin_socket, Command::Status).await?;
            if host.answer().await?.throttle.paused {
                output::line(
                    "It waits: an operator has paused this host. Continue with `bbs migrate resume`.",
                )?;
            }
        }
        Ok(())
    }

    fn text(&self, report: &ReloadReport) -> String {
        let ReloadReport {
            added,
            removed,
            migrates_to,
        } = report;
        let mut text = String::new();
        for (what, files) in [("Added", added), ("Removed", removed)] {
            if !files.is_empty() {
                text += &format!("{what}: {}.\n", files.join(", "));
            }
        }
        if text.is_empty() {
            text += "The modules are the same as before.\n";
        }
        if let Some(version) = migrates_to {
            let config = self.config.display();
            text += &format!(
                "A migration to {version} has begun; follow it with `bbs migrate watch --config {config}`.\n"
            );
        }
        text
    }
}
