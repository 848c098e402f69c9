//! `bbs ready`: reports whether a host is ready, for supervisors that check by a command. Owns
//! arguments, output and the request to the health port.

mod migrated;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use backon::Retryable;
use bbs_work::{pauses, printable};
use clap::Args;
use serde::Serialize;

use super::exit::Exit;
use super::output::{self, OutputForm};
use super::whole_number;
use crate::config::Config;
use crate::tls;

/// Longest time of one request: the health port answers from memory.
const LONGEST_REQUEST: Duration = Duration::from_secs(5);
/// Time that a request of a wait has at least, also at the end of the wait.
const LAST_REQUEST: Duration = Duration::from_secs(1);
/// Bytes of an answer that are shown as the reason.
const REASON_BYTES: usize = 4096;

/// Report whether the host of this configuration is ready: whether it has reached its database and
/// tried its keys.
///
/// Requests the `health_address` of the configuration, which answers on a master and on a standby
/// alike. Ends with 0 if the host is ready and with 1 if not: the health check of a container, or
/// the wait of a start script. With `--migrated` it is also the check of a deployment, which is not
/// to go on before the database is migrated.
#[derive(Debug, Args)]
pub struct ReadyCommand {
    /// The JSON configuration file of the host: it has the `health_address`.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Wait for at most this time until the host is ready.
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = whole_number::<u64>)]
    wait: u64,
    /// Check that the migrations of the database are complete, too. A standby is ready unless another
    /// host has begun one that has not ended, be it stopped. Shows the progress while it waits, and does not wait
    /// for a migration that is stopped. Run it as the user of the host.
    #[arg(long)]
    migrated: bool,
    #[command(flatten)]
    form: OutputForm,
}

/// The result of the command.
#[derive(Debug, Serialize)]
struct Readiness {
    ready: bool,
    address: SocketAddr,
    /// Why it is not ready.
    reason: Option<String>,
}

impl ReadyCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// The configuration cannot be used or has no `health_address`, or standard output cannot be
    /// written to.
    pub async fn run(self) -> anyhow::Result<Exit> {
        let config = Config::read(&self.config)?;
        let address = config.listeners.health.context(
            "the configuration has no `health_address`, at which this host would answer; add one, such as \"127.0.0.1:8890\"",
        )?;
        let client = tls::client::plain(reqwest::Client::builder().no_proxy())?;
        let longest = Duration::from_secs(self.wait);
        let began = Instant::now();
        let mut reason = (|| request(&client, address, request_time(longest, began.elapsed())))
            .retry(pauses::of_readiness())
            .when(|_| began.elapsed() < longest)
            .await
            .err();
        if self.migrated && reason.is_none() {
            let left = || longest.saturating_sub(began.elapsed());
            reason = migrated::wait(&config, left).await.err();
        }
        let readiness = Readiness {
            ready: reason.is_none(),
            address,
            reason,
        };
        self.form.print(&readiness, || match &readiness.reason {
            None => "The host is ready.\n",
            Some(_) => "",
        })?;
        if let Some(reason) = &readiness.reason {
            output::note(format_args!("bbs: the host is not ready: {reason}"));
            return Ok(Exit::Failure);
        }
        Ok(Exit::Success)
    }
}

/// Longest time of the next request of a wait: what is left of it. Without a wait there is one
/// request.
fn request_time(longest_wait: Duration, waited: Duration) -> Duration {
    if longest_wait.is_zero() {
        return LONGEST_REQUEST;
    }
    longest_wait
        .saturating_sub(waited)
        .clamp(LAST_REQUEST, LONGEST_REQUEST)
}

/// One request to the health port; the reason if the host is not ready.
async fn request(
    client: &reqwest::Client,
    address: SocketAddr,
    longest: Duration,
) -> Result<(), String> {
    let mut answer = client
        .get(format!("http://{address}/ready"))
        .timeout(longest)
        .send()
        .await
        .map_err(|_| format!("nothing answers at {address}; start a host, or look at its log"))?;
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    // Another program may listen there.
    let mut body = Vec::new();
    while body.len() < REASON_BYTES
        && let Ok(Some(chunk)) = answer.chunk().await
    {
        body.extend_from_slice(&chunk);
    }
    body.truncate(REASON_BYTES);
    let reason = printable::line(String::from_utf8_lossy(&body).trim());
    Err(if reason.is_empty() {
        format!("{address} answers {status}")
    } else {
        reason
    })
}
