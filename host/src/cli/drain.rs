//! `bbs drain`: ends a running host through its admin socket, and waits until it has ended.

use anyhow::Context;
use bbs_work::progress::{ENDED, FAILED};
use clap::Args;

use super::migrate::Steered;
use super::output;
use super::progress::{WithoutReader, follow};
use crate::admin::{AdminClient, AdminClientError, Command};
use crate::config::Config;

/// End the host that runs with this configuration, and wait for it.
///
/// The host answers the requests in flight, takes the database back to
/// `rollback_on_drain_to_version`, if that is set, releases the lock and ends. Unlike after a
/// signal, no supervisor limits the time: call this before the supervisor stops the host, as the
/// drain script of the BOSH release does. May be interrupted; the host goes on.
#[derive(Debug, Args)]
pub struct DrainCommand {
    #[command(flatten)]
    host: Steered,
}

impl DrainCommand {
    /// Ends the host.
    ///
    /// # Errors
    /// The host cannot be reached, or did not end as it should.
    pub async fn run(self) -> anyhow::Result<()> {
        let Steered { config, json } = self.host;
        let config = Config::read(&config)?;
        let mut host = match AdminClient::send_to_any(config.admin_sockets(), Command::Drain).await
        {
            Err(AdminClientError::NotRunning { .. } | AdminClientError::Stale { .. }) => {
                if !json {
                    output::line(format_args!(
                        "No host answers at the admin socket {}.",
                        config.admin_socket.display()
                    ))?;
                }
                return Ok(());
            }
            asked => asked?,
        };
        // The end of this command means that the host has ended, whether it is watched or not.
        let last = follow(&mut host, json, WithoutReader::Continue)
            .await?
            .context(AdminClientError::Ended)?
            .progress;
        match &*last.phase {
            ENDED => {}
            FAILED => anyhow::bail!("the host failed while it was ending: {}", last.detail),
            _ => anyhow::bail!(
                "the host was killed while it was ending; nothing is lost: start it again, and drain it again"
            ),
        }
        if !json {
            output::line("The host has ended.")?;
        }
        Ok(())
    }
}
