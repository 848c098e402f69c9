//! `bbs module inspect`: prints the manifest and properties of one file.

use std::path::PathBuf;

use bbs_lens::layout::manifest::{Access, Change, Direction, Manifest};
use bbs_modules::translate::{AnswerForm, Method, TranslatorManifest};
use bbs_modules::{AnyManifest, Inspection};
use clap::Args;

use crate::cli::output::OutputForm;

/// Show a module's manifest, digest, size and imports.
///
/// The file is validated as a host would, and only its `describe` runs, in the sandbox.
#[derive(Debug, Args)]
pub(super) struct InspectCommand {
    /// The .wasm file of a module.
    file: PathBuf,
    #[command(flatten)]
    form: OutputForm,
}

impl InspectCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let sandbox = super::sandbox()?;
        let inspection = Inspection::of(&self.file, &sandbox)?;
        self.form.print(&inspection, || text(&inspection))
    }
}

fn text(inspection: &Inspection) -> String {
    let mut lines = match &inspection.manifest {
        AnyManifest::Migration(manifest) => migration(manifest),
        AnyManifest::Translator(manifest) => translator(manifest),
    };
    lines.push(format!("sha256   {}", inspection.sha256));
    lines.push(format!("size     {} bytes", inspection.bytes));
    lines.push(format!("imports  {}", or_nothing(&inspection.imports)));
    lines.join("\n") + "\n"
}

fn migration(manifest: &Manifest) -> Vec<String> {
    let mut lines = vec![
        format!("migration {} {}", manifest.version, manifest.name),
        manifest.summary.clone(),
        String::new(),
        format!(
            "changes  {}",
            or_nothing(&manifest.changes.iter().map(change).collect::<Vec<_>>())
        ),
    ];
    for direction in [Direction::Up, Direction::Down] {
        let accesses: Vec<_> = manifest.accesses(direction).iter().map(access).collect();
        lines.push(format!(
            "{:<9}{}",
            direction.to_string(),
            or_nothing(&accesses)
        ));
    }
    lines.push(format!(
        "back     {}",
        if manifest.reversible {
            "reversible"
        } else {
            "not reversible"
        }
    ));
    if manifest.leaves_residue {
        lines.push("residue  saved for the other direction".to_owned());
    }
    lines
}

fn method(method: &Method) -> String {
    let Method {
        name,
        verb,
        path,
        answer,
    } = method;
    let answer = match answer {
        AnswerForm::Message => String::new(),
        AnswerForm::Pages => ", paged".to_owned(),
        AnswerForm::Events(newer) => format!(", the events of {newer}"),
    };
    format!("{name} at {} {path}{answer}", verb.name())
}

fn translator(manifest: &TranslatorManifest) -> Vec<String> {
    vec![
        format!(
            "translator {}: API {} in terms of {}",
            manifest.name, manifest.serves, manifest.onto
        ),
        manifest.summary.clone(),
        String::new(),
        format!(
            "methods  {}",
            or_nothing(&manifest.methods.iter().map(method).collect::<Vec<_>>())
        ),
        format!("hides    {}", or_nothing(&manifest.hides)),
    ]
}

fn or_nothing(items: &[String]) -> String {
    if items.is_empty() {
        "nothing".to_owned()
    } else {
        items.join("\n         ")
    }
}

fn access(access: &Access) -> String {
    let list = |columns: &[String]| {
        if columns.is_empty() {
            "nothing".to_owned()
        } else {
            columns.join(", ")
        }
    };
    let reshapes = if access.reshapes {
        ", and adds or removes rows"
    } else {
        ""
    };
    format!(
        "{}: reads {}; writes {}{reshapes}",
        access.table,
        list(&access.reads),
        list(&access.writes)
    )
}

fn change(change: &Change) -> String {
    match change {
        Change::CreateTable(table) => format!(
            "create table {} ({} columns)",
            table.name,
            table.columns.len()
        ),
        Change::DropTable { table } => format!("drop table {table}"),
        Change::RenameTable { from, to } => format!("rename table {from} to {to}"),
        Change::AddColumn { table, column } => format!("add {table}.{}", column.name),
        Change::AlterColumn { table, column } => format!("redefine {table}.{}", column.name),
        Change::DropColumn { table, column } => format!("drop {table}.{column}"),
        Change::RenameColumn { table, from, to } => format!("rename {table}.{from} to {to}"),
        Change::MoveColumn { column, from, to } => format!("move {from}.{column} to {to}"),
        Change::SetPrimaryKey { table, columns } => {
            format!("primary key of {table}: {}", columns.join(", "))
        }
        Change::CreateIndex { table, index } => {
            format!(
                "index {} on {table} ({})",
                index.name,
                index.columns.join(", ")
            )
        }
        Change::DropIndex { table, index } => format!("drop index {index} of {table}"),
    }
}
