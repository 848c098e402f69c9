//! `bbs domains`: the domains whose clients have sent all that they desire.

use bbs_client::models;
use clap::{Args, Subcommand};
use serde_json::json;

use super::bbs::{BbsCommand, BbsOptions, CalledBbs, explained, printable};
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
    Set(BbsCommand<SetDomain>),
}

#[derive(Debug, Args)]
struct SetDomain {
    /// The name of the domain.
    #[arg(value_name = "DOMAIN")]
    domain: String,
    /// The time for which it is fresh, such as 2m30s; 0 is for ever.
    #[arg(long, value_name = "DURATION", default_value = "2m")]
    ttl: GoDuration,
}

impl DomainsCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// The BBS does not answer, or refuses the call.
    pub async fn run(self) -> anyhow::Result<()> {
        match self.action {
            Some(DomainsAction::Set(set)) => set.run(set_fresh).await,
            None => list(&self.bbs, self.form).await,
        }
    }
}

async fn list(bbs: &BbsOptions, form: OutputForm) -> anyhow::Result<()> {
    let answer = bbs.client()?.domains(&()).await.map_err(explained)?;
    let domains = answer.domains.iter().map(|domain| printable(domain));
    let domains: Vec<_> = domains.collect();
    form.print(&domains, || match &domains[..] {
        [] => "No domain is fresh.\n".to_owned(),
        domains => domains.iter().map(|domain| format!("{domain}\n")).collect(),
    })
}

async fn set_fresh(set: SetDomain, bbs: CalledBbs) -> anyhow::Result<()> {
    let SetDomain {
        domain,
        ttl: GoDuration(ttl),
    } = set;
    // Less than a second would be for ever.
    let ttl = u32::try_from(ttl.as_secs_f64().ceil() as u64)
        .map_err(|_| anyhow::anyhow!("`--ttl` is longer than the API can say; use 0"))?;
    let request = models::UpsertDomainRequest {
        domain: domain.clone().into(),
        ttl,
    };
    let answer = bbs.client.upsert_domain(&request).await;
    answer.map_err(explained)?;
    let text = match ttl {
        0 => "for ever".to_owned(),
        ttl => format!("for {}", super::progress::span(f64::from(ttl))),
    };
    bbs.form
        .print(&json!({ "domain": domain, "ttl": ttl }), || {
            format!("{} is fresh {text}\n", domain.escape_debug())
        })
}
