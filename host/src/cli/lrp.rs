//! `bbs lrp`: desired LRPs, their instances, definitions and updates, through the API of any BBS.
//! Owns arguments; the files beside it have one kind of command each.

mod change;
mod counts;
mod instances;
mod listed;
mod status;
mod watch;

use anyhow::anyhow;
use bbs_client::models::error::Type;
use bbs_client::{Answer, CallError, Client, Method, Version};
use bbs_proto::prost::Message;
use clap::{Args, Subcommand};

use super::bbs::input::MessageFile;
use super::bbs::{BbsCommand, explained};
use super::confirm::Confirmation;
use super::whole_number;
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
    List(BbsCommand<ListedLrps>),
    /// Show an LRP: what is desired, its definition, and its instances. As JSON: the desired LRP
    /// alone.
    Show(BbsCommand<NamedLrp>),
    /// List instances: their states, cells, addresses and definitions.
    Instances(BbsCommand<ListedInstances>),
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
    Desire(BbsCommand<MessageFile>),
    /// Change an LRP as a file says: instances, routes, annotation, metric tags, or what it runs.
    ///
    /// A definition is what an instance runs. One in the file replaces the present one as a whole,
    /// and the instances step by step, by default at most a tenth of them at once, each once its
    /// successor runs and is routable:
    ///
    ///   lrp_definition:
    ///     definition_id: version-2
    ///     rootfs: preloaded:cflinuxfs4
    ///     action:
    ///       run: { path: /bin/cat, user: me }
    ///     metric_tags:
    ///       source_id: { static: hello }
    ///
    /// `bbs lrp watch` shows the update, `bbs lrp cancel` undoes it. Once it is cancelled, another
    /// one may follow, also before its end.
    #[command(verbatim_doc_comment)]
    Update(BbsCommand<UpdateFile>),
    /// Set the number of instances.
    Scale(BbsCommand<ScaleArgs>),
    /// Cancel the update of an LRP: all instances run the previous definition again.
    Cancel(BbsCommand<NamedLrp>),
    /// Update an LRP to one of its earlier definitions, which `bbs lrp definitions` lists.
    Rollback(BbsCommand<RollBackArgs>),
    /// Show how far the update of an LRP is, and why it is halted.
    Status(BbsCommand<NamedLrp>),
    /// List the definitions of an LRP, newest first: the current one, the previous one during an
    /// update, and archived ones.
    Definitions(BbsCommand<NamedLrp>),
    /// Show the update of an LRP, instance by instance, until it is complete.
    ///
    /// The exit code is 0 once the update is complete, at once if there is none, and 1 when it is
    /// halted, or if instances fail then, with the reason. With `--json`, each line is an event of
    /// an instance, or a status that has changed.
    Watch(BbsCommand<NamedLrp>),
    /// Remove an LRP: its instances are stopped, and its definitions are deleted.
    Remove(BbsCommand<RemovedLrp>),
}

/// An LRP, by its process guid.
#[derive(Debug, Args)]
struct NamedLrp {
    /// The process guid of the LRP.
    #[arg(value_name = "GUID")]
    process_guid: String,
}

#[derive(Debug, Args)]
struct ListedLrps {
    /// Only those of a domain.
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<String>,
}

#[derive(Debug, Args)]
struct ListedInstances {
    /// Only those of the LRP with this process guid.
    #[arg(value_name = "GUID")]
    process_guid: Option<String>,
    /// Only those of a domain.
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<String>,
    /// Only those on a cell.
    #[arg(long, value_name = "ID")]
    cell: Option<String>,
}

#[derive(Debug, Args)]
struct UpdateFile {
    #[command(flatten)]
    lrp: NamedLrp,
    #[command(flatten)]
    update: MessageFile,
}

#[derive(Debug, Args)]
struct ScaleArgs {
    #[command(flatten)]
    lrp: NamedLrp,
    /// The number of instances.
    #[arg(value_name = "COUNT", value_parser = whole_number::<i32>, allow_negative_numbers = true)]
    instances: i32,
}

#[derive(Debug, Args)]
struct RollBackArgs {
    #[command(flatten)]
    lrp: NamedLrp,
    /// The id of the definition.
    #[arg(value_name = "DEFINITION")]
    definition_id: String,
}

#[derive(Debug, Args)]
struct RemovedLrp {
    #[command(flatten)]
    lrp: NamedLrp,
    #[command(flatten)]
    confirmation: Confirmation,
}

impl LrpCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// The file cannot be used, the BBS does not answer or refuses the call, or a watched update is
    /// halted or ends with instances that fail.
    pub async fn run(self) -> anyhow::Result<()> {
        match self.action {
            LrpAction::List(command) => command.run(listed::list).await,
            LrpAction::Show(command) => command.run(listed::show).await,
            LrpAction::Instances(command) => command.run(instances::list).await,
            LrpAction::Desire(command) => command.run(change::desire).await,
            LrpAction::Update(command) => command.run(change::update).await,
            LrpAction::Scale(command) => command.run(change::scale).await,
            LrpAction::Cancel(command) => command.run(change::cancel).await,
            LrpAction::Rollback(command) => command.run(change::roll_back).await,
            LrpAction::Status(command) => command.run(status::status).await,
            LrpAction::Definitions(command) => command.run(status::definitions).await,
            LrpAction::Watch(command) => command.run(watch::watch).await,
            LrpAction::Remove(command) => command.run(change::remove).await,
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

/// The answer of a call about one LRP.
///
/// # Errors
/// The call failed; the error says what to do about it.
async fn about<A>(
    process_guid: &str,
    call: impl Future<Output = Result<A, CallError>>,
) -> anyhow::Result<A> {
    call.await.map_err(|error| {
        let guid = process_guid.escape_debug();
        match error.kind() {
            Some(Type::ResourceNotFound) => anyhow!(
                "there is no LRP {guid}; `bbs lrp list` lists those that there are"
            ),
            Some(Type::ResourceExists) => anyhow!(
                "there is an LRP {guid} already; change it with `bbs lrp update`, or remove it with `bbs lrp remove` first"
            ),
            Some(Type::UpdateInProgress) => anyhow!(
                "an update of {guid} is under way; `bbs lrp watch` shows it, and `bbs lrp cancel` undoes it, after which another \
                 update is accepted"
            ),
            Some(Type::NoUpdateInProgress) => anyhow!(
                "no update of {guid} is under way; `bbs lrp rollback` returns to an earlier definition"
            ),
            Some(Type::DefinitionNotFound) => anyhow!(
                "{guid} has no definition of this id; `bbs lrp definitions` lists those that it has"
            ),
            Some(Type::DefinitionExists) => anyhow!(
                "{guid} has another definition of this id already; give the new one another `definition_id`"
            ),
            _ => explained(error),
        }
    })
}
