//! `bbs lrp`: desired LRPs, their instances, definitions and updates, through the API of any BBS.
//! Owns arguments; the files beside it have one kind of command each.

mod change;
mod instances;
mod listed;
mod status;
mod watch;

use std::path::PathBuf;

use bbs_client::models::error::Type;
use bbs_client::{Answer, CallError, Client, Method, Version};
use bbs_proto::prost::Message;
use clap::{Args, Subcommand};

use super::bbs::{BbsOptions, explained};
use super::output::OutputForm;
pub(super) use listed::action;

/// List, change and update LRPs, on this project's BBS or on Diego's.
///
/// A file has the JSON form of Diego's messages, as `cfdot` shows them, or the same as YAML.
/// Definitions, and with them `cancel`, `rollback`, `status`, `definitions` and `watch`, need
/// version 1.2 of the API, which Diego's own BBS does not have.
#[derive(Debug, Args)]
pub struct LrpCommand {
    #[command(subcommand)]
    action: LrpAction,
}

#[derive(Debug, Subcommand)]
enum LrpAction {
    /// List the desired LRPs, with the number of instances that run.
    List(ListedLrps),
    /// Show an LRP: what is desired, its definition, and its instances. As JSON: the desired LRP
    /// alone.
    Show(NamedLrp),
    /// List instances: their states, cells, addresses and definitions.
    Instances(ListedInstances),
    /// Create the LRP of a file.
    ///
    /// The least that a file has, as YAML:
    ///
    ///   process_guid: hello
    ///   domain: dev
    ///   rootfs: preloaded:cflinuxfs4
    ///   instances: 3
    ///   action:
    ///     run: { path: /bin/true, user: me }
    ///   metric_tags:
    ///     source_id: { static: hello }
    #[command(verbatim_doc_comment)]
    Desire(DesiredFile),
    /// Change an LRP as a file says: instances, routes, annotation, metric tags, or what it runs.
    ///
    /// A definition is what an instance runs. One in the file replaces the present one as a whole,
    /// and the instances one after the other, each once its successor runs and is routable:
    ///
    ///   lrp_definition:
    ///     definition_id: version-2
    ///     rootfs: preloaded:cflinuxfs4
    ///     action:
    ///       run: { path: /bin/cat, user: me }
    ///     metric_tags:
    ///       source_id: { static: hello }
    ///
    /// `bbs lrp watch` shows the update, `bbs lrp cancel` undoes it.
    #[command(verbatim_doc_comment)]
    Update(UpdateFile),
    /// Set the number of instances.
    Scale(Scaled),
    /// Cancel the update of an LRP: all instances run the previous definition again.
    Cancel(NamedLrp),
    /// Update an LRP to one of its earlier definitions, which `bbs lrp definitions` lists.
    Rollback(RolledBack),
    /// Show how far the update of an LRP is, and why it is halted.
    Status(NamedLrp),
    /// List the definitions of an LRP, newest first: the current one, the previous one during an
    /// update, and archived ones.
    Definitions(NamedLrp),
    /// Show the update of an LRP, instance by instance, until it is complete.
    ///
    /// The exit code is 0 once all instances run the current definition, at once if they do
    /// already, and 1 when the update is halted, with the reason. With `--json`, each line is an
    /// event of an instance, or a status that has changed.
    Watch(NamedLrp),
    /// Remove an LRP: its instances are stopped, and its definitions are deleted.
    Remove(RemovedLrp),
}

/// An LRP, by its process guid.
#[derive(Debug, Args)]
struct NamedLrp {
    /// The process guid of the LRP.
    #[arg(value_name = "GUID")]
    process_guid: String,
    #[command(flatten)]
    form: OutputForm,
    #[command(flatten)]
    bbs: BbsOptions,
}

#[derive(Debug, Args)]
struct ListedLrps {
    /// Only those of a domain.
    #[arg(
        long,
        value_name = "DOMAIN",
        default_value = "",
        hide_default_value = true
    )]
    domain: String,
    #[command(flatten)]
    form: OutputForm,
    #[command(flatten)]
    bbs: BbsOptions,
}

#[derive(Debug, Args)]
struct ListedInstances {
    /// Only those of the LRP with this process guid.
    #[arg(value_name = "GUID", default_value = "", hide_default_value = true)]
    process_guid: String,
    /// Only those of a domain.
    #[arg(
        long,
        value_name = "DOMAIN",
        default_value = "",
        hide_default_value = true
    )]
    domain: String,
    /// Only those on a cell.
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    cell: String,
    #[command(flatten)]
    form: OutputForm,
    #[command(flatten)]
    bbs: BbsOptions,
}

#[derive(Debug, Args)]
struct DesiredFile {
    /// The file, JSON or YAML; `-` is standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    form: OutputForm,
    #[command(flatten)]
    bbs: BbsOptions,
}

#[derive(Debug, Args)]
struct UpdateFile {
    /// The process guid of the LRP.
    #[arg(value_name = "GUID")]
    process_guid: String,
    /// The file, JSON or YAML; `-` is standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    form: OutputForm,
    #[command(flatten)]
    bbs: BbsOptions,
}

#[derive(Debug, Args)]
struct Scaled {
    /// The process guid of the LRP.
    #[arg(value_name = "GUID")]
    process_guid: String,
    /// The number of instances.
    #[arg(value_name = "COUNT", value_parser = clap::value_parser!(i32).range(0..))]
    instances: i32,
    #[command(flatten)]
    form: OutputForm,
    #[command(flatten)]
    bbs: BbsOptions,
}

#[derive(Debug, Args)]
struct RolledBack {
    /// The process guid of the LRP.
    #[arg(value_name = "GUID")]
    process_guid: String,
    /// The id of the definition.
    #[arg(value_name = "DEFINITION")]
    definition_id: String,
    #[command(flatten)]
    form: OutputForm,
    #[command(flatten)]
    bbs: BbsOptions,
}

#[derive(Debug, Args)]
struct RemovedLrp {
    /// The process guid of the LRP.
    #[arg(value_name = "GUID")]
    process_guid: String,
    /// Skip the confirmation. Without a terminal there is none.
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    form: OutputForm,
    #[command(flatten)]
    bbs: BbsOptions,
}

impl LrpCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// The file cannot be used, the BBS does not answer or refuses the call, or a watched update is
    /// halted.
    pub async fn run(self) -> anyhow::Result<()> {
        match self.action {
            LrpAction::List(listed) => listed::list(listed).await,
            LrpAction::Show(named) => listed::show(named).await,
            LrpAction::Instances(listed) => instances::list(listed).await,
            LrpAction::Desire(file) => change::desire(file).await,
            LrpAction::Update(file) => change::update(file).await,
            LrpAction::Scale(scaled) => change::scale(scaled).await,
            LrpAction::Cancel(named) => change::cancel(named).await,
            LrpAction::Rollback(rolled_back) => change::roll_back(rolled_back).await,
            LrpAction::Status(named) => status::status(named).await,
            LrpAction::Definitions(named) => status::definitions(named).await,
            LrpAction::Watch(named) => watch::watch(named).await,
            LrpAction::Remove(removed) => change::remove(removed).await,
        }
    }
}

/// Calls a method at the newest version that the BBS has it at: Diego's BBS has no other than its
/// own.
async fn call_newest<Q: Message, A: Answer>(
    client: &Client,
    method: Method<Q, A>,
    request: &Q,
) -> Result<A, CallError> {
    match client
        .speaking(Version::Definitions)
        .call(method, request)
        .await
    {
        Err(CallError::NotServed { .. }) => client.call(method, request).await,
        answered => answered,
    }
}

/// A failed call about one LRP.
fn call_failed(error: CallError, process_guid: &str) -> anyhow::Error {
    let guid = process_guid.escape_debug();
    let Some(kind) = error.kind() else {
        return explained(error);
    };
    match kind {
        Type::ResourceNotFound => {
            anyhow::anyhow!("there is no LRP {guid}; `bbs lrp list` lists those that there are")
        }
        Type::ResourceExists => anyhow::anyhow!(
            "there is an LRP {guid} already; change it with `bbs lrp update`, or remove it with `bbs lrp remove` first"
        ),
        Type::UpdateInProgress => anyhow::anyhow!(
            "an update of {guid} is under way; `bbs lrp watch` shows it, and `bbs lrp cancel` undoes it"
        ),
        Type::NoUpdateInProgress => {
            anyhow::anyhow!(
                "no update of {guid} is under way; `bbs lrp rollback` returns to an earlier definition"
            )
        }
        Type::DefinitionNotFound => {
            anyhow::anyhow!(
                "{guid} has no definition of this id; `bbs lrp definitions` lists those that it has"
            )
        }
        Type::DefinitionExists => {
            anyhow::anyhow!(
                "{guid} has another definition of this id already; give the new one another `definition_id`"
            )
        }
        _ => explained(error),
    }
}
