//! `bbs drain`: ends a running host through its admin socket, and waits until it has ended. Owns
//! the choice of what takes the database back: that host, or this command.

use anyhow::Context;
use bbs_lens::layout::manifest::DataVersion;
use bbs_work::progress::{ENDED, FAILED};
use clap::Args;

use super::migrate::{SteerArgs, migrate_down_after_host, migrate_down_without_host};
use super::output::{self, OutputForm};
use super::progress::{WithoutReader, follow};
use super::whole_number;
use crate::admin::{AdminClient, AdminClientError, Command};
use crate::config::ExaminedConfig;

/// End the host that runs with this configuration, and wait for it.
///
/// The host answers the requests in flight, takes the database back to
/// `rollback_on_drain_to_version`, if that is set, releases the lock and ends. Unlike after a
/// signal, no supervisor limits the time: call this before the supervisor stops the host, as the
/// drain script of the BOSH release does. May be interrupted; the host goes on.
///
/// If `rollback_on_drain_to_version` is set, and no host answers or the host has not taken the
/// database back, this command takes it back, as `bbs migrate down` does, unless another host holds
/// the lock. A standby takes nothing back, nor does the host of a BOSH job that had a signal before.
#[derive(Debug, Args)]
pub struct DrainCommand {
    #[command(flatten)]
    host: SteerArgs,
    /// The version that the host was started with (`bbs serve --rollback-on-drain-to-version`), in
    /// the place of the key.
    #[arg(long, value_name = "VERSION", value_parser = whole_number::<u64>)]
    rollback_on_drain_to_version: Option<DataVersion>,
}

impl DrainCommand {
    /// Ends the host.
    ///
    /// # Errors
    /// The host cannot be reached, or did not end as it should; the configuration has a fault, where
    /// no host answers or the database may have to be taken back; or it cannot be taken back.
    pub async fn run(self) -> anyhow::Result<()> {
        let SteerArgs { config, json } = self.host;
        let form = OutputForm { json };
        // The file may have a fault since the host has read it.
        let mut examined = ExaminedConfig::read(&config)?;
        let migration = &mut examined.config.migration;
        migration.rollback_on_drain_to = self
            .rollback_on_drain_to_version
            .or(migration.rollback_on_drain_to);
        let sent = AdminClient::send(&examined.config.admin_socket, Command::Drain).await;
        let mut host = match sent {
            Err(AdminClientError::NotRunning { .. } | AdminClientError::Stale { .. }) => {
                return without_host(examined, form).await;
            }
            sent => sent?,
        };
        // The end of this command means that the host has ended, whether it is watched or not.
        let last = follow(&mut host, json, WithoutReader::Continue, |_| false)
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
            let detail = last.detail;
            let version = if detail.is_empty() {
                String::new()
            } else {
                format!("; {detail}")
            };
            output::announce(format_args!("The host has ended{version}."));
        }
        after_host(examined, form).await.context(
            "the host has ended, and the database may be above the version of `rollback_on_drain_to_version`; once the reason is \
             mended, run `bbs drain` again, or `bbs migrate down`",
        )
    }
}

/// Takes the database back if the configuration says so and the host, which has ended, has not.
async fn after_host(examined: ExaminedConfig, form: OutputForm) -> anyhow::Result<()> {
    let goes_back = examined.config.migration.rollback_on_drain_to.is_some();
    let faulty = examined.faulty_keys();
    // A fault of another key does not matter where nothing has to be taken back.
    if !goes_back && !faulty.contains("rollback_on_drain_to_version") {
        return Ok(());
    }
    let config = examined.without_faults()?;
    if let Some(to) = config.migration.rollback_on_drain_to {
        return migrate_down_after_host(config, to, form).await;
    }
    Ok(())
}

/// Reports that no host answers, and takes the database back if the configuration says so.
async fn without_host(examined: ExaminedConfig, form: OutputForm) -> anyhow::Result<()> {
    if !form.json {
        output::announce(format_args!(
            "No host answers at the admin socket {}.",
            examined.config.admin_socket.display()
        ));
    }
    // The fault may be of a key on which the socket or the way back depends.
    let config = examined.without_faults()?;
    if let Some(to) = config.migration.rollback_on_drain_to {
        return migrate_down_without_host(config, to, form).await;
    }
    if form.json {
        output::announce(serde_json::json!({ "outcome": null }));
    }
    Ok(())
}
