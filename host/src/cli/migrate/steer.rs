//! `bbs migrate pause`, `resume`, `rate` and `watch`: a running host, through its admin socket.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;

use super::super::progress::{Screen, line};
use crate::admin::{Client, ClientError, Command, Report};
use crate::config::Config;
use crate::progress::STOPPED;

#[derive(Debug, Args)]
pub(super) struct Steered {
    /// The JSON configuration file of the host: it names the admin socket.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Print JSON instead of text, a report on each line.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Rated {
    /// The greatest number of units a second, such as 500/s, or `none` for as fast as it goes.
    #[arg(value_name = "N/s")]
    rate: Rate,
    #[command(flatten)]
    steered: Steered,
}

/// A bound, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rate(Option<u64>);

impl FromStr for Rate {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "none" {
            return Ok(Self(None));
        }
        let number = text.strip_suffix("/s").unwrap_or(text);
        let rate = number.parse().map_err(|_| "write it as in 500/s, or none for as fast as it goes")?;
        if rate == 0 { Err("at 0 a second it would never end; use `bbs migrate pause`") } else { Ok(Self(Some(rate))) }
    }
}

pub(super) async fn pause(steered: Steered) -> anyhow::Result<()> {
    tell(&steered, Command::Pause, |_| {
        "Paused: the batch under way is finished, none begins. Go on with `bbs migrate resume`; a restart goes on too."
            .into()
    })
    .await
}

pub(super) async fn resume(steered: Steered) -> anyhow::Result<()> {
    tell(&steered, Command::Resume, |_| "Resumed.".into()).await
}

pub(super) async fn rate(Rated { rate: Rate(units_per_second), steered }: Rated) -> anyhow::Result<()> {
    tell(&steered, Command::Rate { units_per_second }, |report| match report.pace.units_per_second {
        Some(rate) => format!("At most {rate} units a second, until the host ends or is told otherwise."),
        None => "As fast as it goes.".into(),
    })
    .await
}

async fn tell(steered: &Steered, command: Command, said: impl FnOnce(&Report) -> String) -> anyhow::Result<()> {
    let config = Config::read(&steered.config)?;
    let report = Client::ask(&config.admin_socket, command).await?.answer().await?;
    if steered.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        println!("{}", said(&report));
        if report.progress.is_over() {
            println!("Nothing is under way at the moment: the host serves.");
        }
    }
    Ok(())
}

/// A line about the host that runs with this configuration, if one does.
pub(super) async fn print_running_host(admin_socket: &Path) {
    // Most often there is none, and that is no fault.
    let Ok(mut host) = Client::ask(admin_socket, Command::Status).await else { return };
    if let Ok(report) = host.answer().await {
        println!("Host       process {}: {}", report.pid, line(&report.progress));
    }
}

/// Until the host has nothing left to do but serve.
pub(super) async fn watch(steered: Steered) -> anyhow::Result<()> {
    let config = Config::read(&steered.config)?;
    let mut host = Client::ask(&config.admin_socket, Command::Watch).await?;
    let mut last = host.answer().await?;
    let mut screen = Screen::new();
    loop {
        if steered.json {
            println!("{}", serde_json::to_string(&last)?);
        } else {
            screen.show(&last.progress);
        }
        match host.next().await {
            Ok(Some(report)) => last = report,
            // A host that was killed breaks the connection, one that ends closes it.
            Ok(None) | Err(ClientError::Broken(_)) => break,
            Err(other) => return Err(other.into()),
        }
    }
    drop(screen);
    if last.progress.phase == STOPPED {
        anyhow::bail!(
            "the host serves the version found and has given the migration up until the next start: {}",
            last.progress.detail
        );
    }
    if !last.progress.is_over() {
        return Err(ClientError::Ended.into());
    }
    if !steered.json {
        println!("The host serves.");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_written_as_it_is_said() {
        assert_eq!("500/s".parse(), Ok(Rate(Some(500))));
        assert_eq!("500".parse(), Ok(Rate(Some(500))));
        assert_eq!("none".parse(), Ok(Rate(None)));
        for wrong in ["", "0/s", "-5/s", "fast", "5/m", "1.5/s"] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
        }
    }
}
