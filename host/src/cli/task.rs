//! `bbs task`: tasks, through the API of any BBS.

use anyhow::anyhow;
use bbs_client::models::error::Type;
use bbs_client::{CallError, json, models};
use clap::{Args, Subcommand};
use serde_json::json;

use super::bbs::input::MessageFile;
use super::bbs::{BbsCommand, CalledBbs, explained, printable};
use super::confirm::Confirmation;
use super::output::{OutputForm, details, table, time};

/// List, create, cancel and delete tasks, on this project's BBS or on Diego's.
#[derive(Debug, Args)]
pub struct TaskCommand {
    #[command(subcommand)]
    action: TasksAction,
}

#[derive(Debug, Subcommand)]
enum TasksAction {
    /// List tasks.
    List(BbsCommand<ListedTasks>),
    /// Show a task. As JSON: in Diego's form.
    Show(BbsCommand<NamedTask>),
    /// Create the task of a file, in the JSON form of Diego's messages or the same as YAML.
    ///
    /// The least that a file has, as YAML:
    ///
    ///   task_guid: hello
    ///   domain: dev
    ///   rootfs: preloaded:cflinuxfs4
    ///   action:
    ///     run: { path: /bin/true, user: me }
    #[command(verbatim_doc_comment)]
    Desire(BbsCommand<MessageFile>),
    /// Cancel a task: it is stopped, and completes as failed.
    Cancel(BbsCommand<EndedTask>),
    /// Delete a completed task.
    Delete(BbsCommand<EndedTask>),
}

#[derive(Debug, Args)]
struct ListedTasks {
    /// Only those of a domain.
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<String>,
    /// Only those on a cell.
    #[arg(long, value_name = "ID")]
    cell: Option<String>,
}

/// A task, by its guid.
#[derive(Debug, Args)]
struct NamedTask {
    /// The guid of the task.
    #[arg(value_name = "GUID")]
    task_guid: String,
}

#[derive(Debug, Args)]
struct EndedTask {
    #[command(flatten)]
    confirmation: Confirmation,
    #[command(flatten)]
    task: NamedTask,
}

impl TaskCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// The file cannot be used, or the BBS does not answer or refuses the call.
    pub async fn run(self) -> anyhow::Result<()> {
        match self.action {
            TasksAction::List(command) => command.run(list).await,
            TasksAction::Show(command) => command.run(show).await,
            TasksAction::Desire(command) => command.run(desire).await,
            TasksAction::Cancel(command) => command.run(cancel).await,
            TasksAction::Delete(command) => command.run(delete).await,
        }
    }
}

/// The answer of a call about one task.
///
/// # Errors
/// The call failed; the error says what to do about it.
async fn about<A>(
    task_guid: &str,
    call: impl Future<Output = Result<A, CallError>>,
) -> anyhow::Result<A> {
    call.await.map_err(|error| refused(task_guid, error))
}

fn refused(task_guid: &str, error: CallError) -> anyhow::Error {
    let guid = task_guid.escape_debug();
    match error.kind() {
        Some(Type::ResourceNotFound) => {
            anyhow!("there is no task {guid}; `bbs task list` lists those that there are")
        }
        Some(Type::ResourceExists) => {
            anyhow!("there is a task {guid} already; give the new one another guid")
        }
        Some(Type::InvalidStateTransition) => anyhow!(
            "the state of the task {guid} does not allow this: {error}; `bbs task cancel` completes a task that is pending or \
             running, and `bbs task delete` deletes a completed one"
        ),
        _ => explained(error),
    }
}

async fn list(listed: ListedTasks, bbs: CalledBbs) -> anyhow::Result<()> {
    let filter = models::TasksRequest {
        domain: listed.domain.unwrap_or_default().into(),
        cell_id: listed.cell.unwrap_or_default().into(),
    };
    let tasks = bbs.client.tasks(&filter).await.map_err(explained)?.tasks;
    bbs.form
        .print(&json::to_values(&tasks), || match &tasks[..] {
            [] => "There are no such tasks.\n".to_owned(),
            tasks => text(tasks),
        })
}

fn text(tasks: &[models::Task]) -> String {
    let rows = tasks.iter().map(|task| {
        [
            printable(&task.task_guid),
            printable(&task.domain),
            state(task),
            printable(&task.cell_id),
            time(task.created_at),
        ]
    });
    table(["TASK GUID", "DOMAIN", "STATE", "CELL", "CREATED"], rows)
}

fn state(task: &models::Task) -> String {
    let state = task.state().as_str_name().to_lowercase();
    if task.failed {
        format!("{state}, failed: {}", printable(&task.failure_reason))
    } else {
        state
    }
}

async fn show(NamedTask { task_guid }: NamedTask, bbs: CalledBbs) -> anyhow::Result<()> {
    let request = models::TaskByGuidRequest {
        task_guid: task_guid.clone().into(),
    };
    let answer = about(&task_guid, bbs.client.task(&request)).await?;
    let task = answer.task.unwrap_or_default();
    bbs.form.print(&json::to_value(&task), || text_of(&task))
}

fn text_of(task: &models::Task) -> String {
    let definition = task.task_definition.clone().unwrap_or_default();
    let action = definition.action.as_ref().map(super::lrp::action);
    let lines = [
        ("Task guid", printable(&task.task_guid)),
        ("Domain", printable(&task.domain)),
        ("State", state(task)),
        ("Cell", printable(&task.cell_id)),
        ("Created", time(task.created_at)),
        ("Root fs", printable(&definition.root_fs)),
        ("Action", action.unwrap_or_default()),
        ("Result", printable(&task.result)),
        ("Rejected", printable(&task.rejection_reason)),
    ];
    details(10, lines)
}

async fn desire(file: MessageFile, bbs: CalledBbs) -> anyhow::Result<()> {
    let task: models::Task = file.message()?;
    let guid = printable(&task.task_guid);
    let request = models::DesireTaskRequest {
        task_definition: task.task_definition,
        task_guid: task.task_guid,
        domain: task.domain,
    };
    about(&guid, bbs.client.desire_task(&request)).await?;
    print(bbs.form, &guid, "is desired; `bbs task show` shows it")
}

async fn cancel(ended: EndedTask, bbs: CalledBbs) -> anyhow::Result<()> {
    let guid = ended.task.task_guid;
    let question = format!(
        "This stops the task {}, which fails by it.",
        guid.escape_debug()
    );
    ended.confirmation.obtain(&question)?;
    let request = models::TaskGuidRequest {
        task_guid: guid.clone().into(),
    };
    about(&guid, bbs.client.cancel_task(&request)).await?;
    print(bbs.form, &guid, "is cancelled")
}

/// In two steps, as every client of Diego's API deletes a task.
async fn delete(ended: EndedTask, bbs: CalledBbs) -> anyhow::Result<()> {
    let guid = ended.task.task_guid;
    let question = format!(
        "This deletes the task {} and its result.",
        guid.escape_debug()
    );
    ended.confirmation.obtain(&question)?;
    let request = models::TaskGuidRequest {
        task_guid: guid.clone().into(),
    };
    // An earlier deletion may have ended between the steps; the second refuses every other state.
    if let Err(error) = bbs.client.resolving_task(&request).await
        && error.kind() != Some(Type::InvalidStateTransition)
    {
        return Err(refused(&guid, error));
    }
    about(&guid, bbs.client.delete_task(&request)).await?;
    print(bbs.form, &guid, "is deleted")
}

fn print(form: OutputForm, task_guid: &str, done: &str) -> anyhow::Result<()> {
    form.print(&json!({ "task_guid": task_guid }), || {
        format!("the task {} {done}\n", task_guid.escape_debug())
    })
}
