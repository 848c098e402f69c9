//! `bbs migrate pause`, `resume`, `rate` and `watch`: control a running host through its admin
//! socket.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use bbs_work::progress::{Counted, SERVING, STOPPED};
use clap::Args;

use super::super::output;
use super::super::progress::{WithoutReader, follow};
use crate::admin::{AdminClient, AdminClientError, Command, Report};
use crate::config::Config;

/// Longest wait for the report of a host that is shown beside other things.
const HOST_WAIT: Duration = Duration::from_secs(5);

/// A running host, and the form of its reports.
#[derive(Debug, Args)]
pub(in crate::cli) struct SteerArgs {
    /// The JSON configuration file of the host: it names the admin socket.
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) config: PathBuf,
    /// Print JSON instead of text, a report on each line.
    #[arg(long)]
    pub(in crate::cli) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct RateArgs {
    /// The highest number of units per second, such as 500/s, or `none` for no limit.
    #[arg(value_name = "N/s")]
    rate: RateLimit,
    #[command(flatten)]
    host: SteerArgs,
}

/// Upper bound of the rate in units per second; `None` for no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RateLimit(Option<u64>);

impl FromStr for RateLimit {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "none" {
            return Ok(Self(None));
        }
        let number = text.strip_suffix("/s").unwrap_or(text);
        let rate = number
            .parse()
            .map_err(|_| "write it as in 500/s, or none for no limit")?;
        if rate == 0 {
            Err("at 0 a second the migration would never end; use `bbs migrate pause`")
        } else {
            Ok(Self(Some(rate)))
        }
    }
}

pub(super) async fn pause(args: SteerArgs) -> anyhow::Result<()> {
    send(&args, Command::Pause, |report| {
        if report.progress.is_over() {
            "The host serves; no migration is in progress. One that `bbs module reload` begins, and a key rotation, will wait for \
                 `bbs migrate resume`; a restart ends the pause too."
                .into()
        } else {
            "Paused: the batch in progress is finished, no other begins. Continue with `bbs migrate resume`; a restart \
                  continues too."
                .into()
        }
    })
    .await
}

pub(super) async fn resume(args: SteerArgs) -> anyhow::Result<()> {
    send(&args, Command::Resume, |report| {
        let text = if report.progress.is_over() {
            "The host serves; no migration is in progress. The next one does not wait."
        } else {
            "Resumed."
        };
        text.into()
    })
    .await
}

pub(super) async fn rate(
    RateArgs {
        rate: RateLimit(units_per_second),
        host: args,
    }: RateArgs,
) -> anyhow::Result<()> {
    send(&args, Command::Rate { units_per_second }, |report| {
        let counted = report.progress.counted.unwrap_or(Counted::Units);
        let limit = match report.throttle.units_per_second {
            Some(rate) => format!(
                "at most {rate} {counted} a second, until the host ends or the rate is changed"
            ),
            None => "no limit".into(),
        };
        if report.progress.is_over() {
            format!("The host serves; no migration is in progress. For the next one: {limit}.")
        } else {
            format!("From now on: {limit}.")
        }
    })
    .await
}

async fn send(
    args: &SteerArgs,
    command: Command,
    describe: impl FnOnce(&Report) -> String,
) -> anyhow::Result<()> {
    let config = Config::read(&args.config)?;
    let report = AdminClient::send(&config.admin_socket, command)
        .await?
        .answer()
        .await?;
    if args.json {
        output::json_line(&report)?;
    } else {
        output::line(describe(&report))?;
    }
    Ok(())
}

/// The report of the host that runs with this configuration, if there is one.
pub(in crate::cli) async fn running_host(config: &Config) -> Option<Report> {
    let report = async {
        // Usually no host runs, which is no error.
        let mut host = AdminClient::send(&config.admin_socket, Command::Status)
            .await
            .ok()?;
        host.answer().await.ok()
    };
    // A host that hangs must not keep a command from its own result.
    tokio::time::timeout(HOST_WAIT, report).await.ok().flatten()
}

/// The message about a migration that is stopped for this reason.
pub(in crate::cli) fn stopped(reason: &str) -> String {
    format!(
        "the migration is stopped; the host serves the version found, and the next start or reload goes on with it: {reason}"
    )
}

/// Shows the progress until the host serves and its migration is complete.
pub(super) async fn watch(args: SteerArgs) -> anyhow::Result<()> {
    let config = Config::read(&args.config)?;
    let mut host = AdminClient::send(&config.admin_socket, Command::Watch).await?;
    let Some(last) = follow(&mut host, args.json, WithoutReader::End, |_| false).await? else {
        return Ok(());
    };
    if last.progress.phase == STOPPED {
        anyhow::bail!(stopped(&last.progress.detail));
    }
    if last.progress.phase != SERVING {
        return Err(AdminClientError::Ended.into());
    }
    if !args.json {
        output::line("The host serves.")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_parsed_with_or_without_its_unit() {
        assert_eq!("500/s".parse(), Ok(RateLimit(Some(500))));
        assert_eq!("500".parse(), Ok(RateLimit(Some(500))));
        assert_eq!("none".parse(), Ok(RateLimit(None)));
        for wrong in ["", "0/s", "-5/s", "fast", "5/m", "1.5/s"] {
            assert!(wrong.parse::<RateLimit>().is_err(), "{wrong}");
        }
    }
}
