//! `bbs task`: tasks, through the API of any BBS.

use std::path::PathBuf;

use bbs_client::models::error::Type;
use bbs_client::{CallError, json, models};
use clap::{Args, Subcommand};
use serde_json::json;

use super::bbs::{BbsOptions, columns, explained, input, printable};
use super::confirm;
use super::output::OutputForm;
use crate::clock::date_and_time;

const NS_PER_S: i64 = 1_000_000_000;

/// List, create, cancel and delete tasks, on this project's BBS or on Diego's.
#[derive(Debug, Args)]
pub struct TaskCommand {
    #[command(subcommand)]
    action: TasksAction,
}

#[derive(Debug, Subcommand)]
enum TasksAction {
    /// List tasks.
    List(ListedTasks),
    /// Show a task. As JSON: in Diego's form.
    Show(NamedTask),
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
    Desire(TaskFile),
    /// Cancel a task: it is stopped, and completes as failed.
    Cancel(EndedTask),
    /// Delete a completed task.
    Delete(EndedTask),
}

#[derive(Debug, Args)]
struct ListedTasks {
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

/// A task, by its guid.
#[derive(Debug, Args)]
struct NamedTask {
    /// The guid of the task.
    #[arg(value_name = "GUID")]
    task_guid: String,
    #[command(flatten)]
    form: OutputForm,
    #[command(flatten)]
    bbs: BbsOptions,
}

#[derive(Debug, Args)]
struct EndedTask {
    /// Skip the confirmation. Without a terminal there is none.
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    named: NamedTask,
}

#[derive(Debug, Args)]
struct TaskFile {
    /// The file, JSON or YAML; `-` is standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    form: OutputForm,
    #[command(flatten)]
    bbs: BbsOptions,
}

impl TaskCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// The file cannot be used, or the BBS does not answer or refuses the call.
    pub async fn run(self) -> anyhow::Result<()> {
        match self.action {
            TasksAction::List(listed) => list(listed).await,
            TasksAction::Show(named) => show(named).await,
            TasksAction::Desire(file) => desire(file).await,
            TasksAction::Cancel(changed) => cancel(changed).await,
            TasksAction::Delete(changed) => delete(changed).await,
        }
    }
}

/// A failed call about one task.
fn call_failed(error: CallError, task_guid: &str) -> anyhow::Error {
    let guid = task_guid.escape_debug();
    match error.kind() {
        Some(Type::ResourceNotFound) => {
            anyhow::anyhow!("there is no task {guid}; `bbs task list` lists those that there are")
        }
        Some(Type::ResourceExists) => {
            anyhow::anyhow!("there is a task {guid} already; give the new one another guid")
        }
        Some(Type::InvalidStateTransition) => anyhow::anyhow!(
            "the state of the task {guid} does not allow this: {}; a task is deleted once it is completed, which \
             `bbs task cancel` makes it",
            error
        ),
        _ => explained(error),
    }
}

async fn list(
    ListedTasks {
        domain,
        cell,
        form,
        bbs,
    }: ListedTasks,
) -> anyhow::Result<()> {
    let filter = models::TasksRequest {
        domain: domain.into(),
        cell_id: cell.into(),
    };
    let tasks = bbs.client()?.tasks(&filter).await.map_err(explained)?.tasks;
    form.print(&json::to_values(&tasks), || match &tasks[..] {
        [] => "There are no such tasks.\n".to_owned(),
        tasks => table(tasks),
    })?;
    Ok(())
}

fn table(tasks: &[models::Task]) -> String {
    let mut rows = vec![
        ["TASK GUID", "DOMAIN", "STATE", "CELL", "CREATED"]
            .map(str::to_owned)
            .to_vec(),
    ];
    rows.extend(tasks.iter().map(|task| {
        vec![
            printable(&task.task_guid),
            printable(&task.domain),
            state(task),
            printable(&task.cell_id),
            time(task.created_at),
        ]
    }));
    columns(&rows)
}

fn state(task: &models::Task) -> String {
    let state = task.state().as_str_name().to_lowercase();
    if task.failed {
        format!("{state}, failed: {}", printable(&task.failure_reason))
    } else {
        state
    }
}

fn time(ns: i64) -> String {
    format!("{}Z", date_and_time(ns.div_euclid(NS_PER_S)))
}

async fn show(
    NamedTask {
        task_guid,
        form,
        bbs,
    }: NamedTask,
) -> anyhow::Result<()> {
    let request = models::TaskByGuidRequest {
        task_guid: task_guid.clone().into(),
    };
    let answer = bbs
        .client()?
        .task(&request)
        .await
        .map_err(|error| call_failed(error, &task_guid))?;
    let task = answer.task.unwrap_or_default();
    form.print(&json::to_value(&task), || details(&task))?;
    Ok(())
}

fn details(task: &models::Task) -> String {
    let definition = task.task_definition.clone().unwrap_or_default();
    let action = definition
        .action
        .as_ref()
        .map(super::lrp::action)
        .unwrap_or_default();
    let rows = [
        ("Task guid", printable(&task.task_guid)),
        ("Domain", printable(&task.domain)),
        ("State", state(task)),
        ("Cell", printable(&task.cell_id)),
        ("Created", time(task.created_at)),
        ("Root fs", printable(&definition.root_fs)),
        ("Action", action),
        ("Result", printable(&task.result)),
        ("Rejected", printable(&task.rejection_reason)),
    ];
    let shown = rows.into_iter().filter(|(_, text)| !text.is_empty());
    columns(
        &shown
            .map(|(name, text)| vec![name.to_owned(), text])
            .collect::<Vec<_>>(),
    )
}

async fn desire(TaskFile { file, form, bbs }: TaskFile) -> anyhow::Result<()> {
    let task: models::Task = input::message(&file)?;
    let guid = printable(&task.task_guid);
    let request = models::DesireTaskRequest {
        task_definition: task.task_definition,
        task_guid: task.task_guid,
        domain: task.domain,
    };
    bbs.client()?
        .desire_task(&request)
        .await
        .map_err(|error| call_failed(error, &guid))?;
    print(form, &guid, "is desired; `bbs task show` shows it")
}

async fn cancel(
    EndedTask {
        yes,
        named: NamedTask {
            task_guid,
            form,
            bbs,
        },
    }: EndedTask,
) -> anyhow::Result<()> {
    if !yes {
        confirm::confirmed(&format!(
            "This stops the task {}, which fails by it.",
            task_guid.escape_debug()
        ))?;
    }
    let request = models::TaskGuidRequest {
        task_guid: task_guid.clone().into(),
    };
    bbs.client()?
        .cancel_task(&request)
        .await
        .map_err(|error| call_failed(error, &task_guid))?;
    print(form, &task_guid, "is cancelled")
}

/// In two steps, as every client of Diego's API deletes a task.
async fn delete(
    EndedTask {
        yes,
        named: NamedTask {
            task_guid,
            form,
            bbs,
        },
    }: EndedTask,
) -> anyhow::Result<()> {
    if !yes {
        confirm::confirmed(&format!(
            "This deletes the task {} and its result.",
            task_guid.escape_debug()
        ))?;
    }
    let client = bbs.client()?;
    let request = models::TaskGuidRequest {
        task_guid: task_guid.clone().into(),
    };
    client
        .resolving_task(&request)
        .await
        .map_err(|error| call_failed(error, &task_guid))?;
    client
        .delete_task(&request)
        .await
        .map_err(|error| call_failed(error, &task_guid))?;
    print(form, &task_guid, "is deleted")
}

fn print(form: OutputForm, task_guid: &str, done: &str) -> anyhow::Result<()> {
    form.print(&json!({ "task_guid": task_guid }), || {
        format!("the task {} {done}\n", task_guid.escape_debug())
    })?;
    Ok(())
}
