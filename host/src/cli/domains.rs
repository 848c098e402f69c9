//! `bbs domains`: the domains whose clients have sent all that they desire.

use std::time::Duration;

use bbs_client::models;
use clap::{Args, Subcommand};
use serde_json::json;

use super::bbs::{BbsOptions, explained, printable};
use super::output::OutputForm;
use crate::config::GoDuration;

/// List the fresh domains, or set one.
///
/// A domain is fresh while its client keeps a BBS up to date about it. Only in a fresh domain a BBS
/// stops instances that are not desired.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct DomainsCommand {
    #[command(subcommand)]
    action: Option<DomainsAction>,
    #[command(flatten)]
    form: OutputForm,
    #[command(flatten)]
    bbs: BbsOptions,
}

#[derive(Debug, Subcommand)]
enum DomainsAction {
    /// Set a domain fresh.
    Set(SetDomain),
}

#[derive(Debug, Args)]
struct SetDomain {
    /// The name of the domain.
    #[arg(value_name = "DOMAIN")]
    domain: String,
    /// The time for which it is fresh, such as 2m30s; 0 is for ever.
    #[arg(long, value_name = "DURATION", default_value = "2m")]
    ttl: GoDuration,
    #[command(flatten)]
    form: OutputForm,
    #[command(flatten)]
    bbs: BbsOptions,
}

impl DomainsCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// The BBS does not answer, or refuses the call.
    pub async fn run(self) -> anyhow::Result<()> {
        match self.action {
            Some(DomainsAction::Set(set)) => set.run().await,
            None => list(&self.bbs, self.form).await,
        }
    }
}

async fn list(bbs: &BbsOptions, form: OutputForm) -> anyhow::Result<()> {
    let answer = bbs.client()?.domains(&()).await.map_err(explained)?;
    let domains: Vec<_> = answer
        .domains
        .iter()
        .map(|domain| printable(domain))
        .collect();
    form.print(&domains, || match &domains[..] {
        [] => "No domain is fresh.\n".to_owned(),
        domains => domains.iter().map(|domain| format!("{domain}\n")).collect(),
    })?;
    Ok(())
}

impl SetDomain {
    async fn run(self) -> anyhow::Result<()> {
        let Self {
            domain,
            ttl: GoDuration(ttl),
            form,
            bbs,
        } = self;
        // Less than a second would be for ever.
        let seconds = ttl.as_secs_f64().ceil() as u64;
        let ttl: u32 = seconds
            .try_into()
            .map_err(|_| anyhow::anyhow!("`--ttl` is longer than the API can say; use 0"))?;
        let request = models::UpsertDomainRequest {
            domain: domain.clone().into(),
            ttl,
        };
        bbs.client()?
            .upsert_domain(&request)
            .await
            .map_err(explained)?;
        let text = match ttl {
            0 => "for ever".to_owned(),
            ttl => format!(
                "for {}",
                super::progress::span(Duration::from_secs(ttl.into()).as_secs_f64())
            ),
        };
        form.print(&json!({ "domain": domain, "ttl": ttl }), || {
            format!("{} is fresh {text}\n", domain.escape_debug())
        })?;
        Ok(())
    }
}
