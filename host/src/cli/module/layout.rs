//! `bbs module layout`: prints the tables that the migrations of a folder lead to.

use std::path::PathBuf;

use anyhow::Context;
use bbs_lens::layout::manifest::DataVersion;
use bbs_lens::layout::schema::{Column, ColumnType, Layout, Sealing};
use bbs_modules::signatures::TrustedKeys;
use bbs_work::joined;
use clap::Args;

use crate::cli::output::{OutputForm, push_line as line, table};
use crate::cli::whole_number;
use crate::startup;

/// Show the tables of a data version: columns, types, keys and indexes.
///
/// The next migration of a folder begins with the tables of its newest version. Sealed and
/// enveloped columns are encrypted in the database.
#[derive(Debug, Args)]
pub(super) struct LayoutCommand {
    /// A folder of modules with its catalog.
    #[arg(value_name = "DIR")]
    modules: PathBuf,
    /// A folder of modules that this one continues, such as the host's; may be repeated. For an
    /// add-on.
    #[arg(long, value_name = "DIR")]
    base: Vec<PathBuf>,
    /// The data version, instead of the newest one.
    #[arg(long, value_name = "VERSION", value_parser = whole_number::<u64>)]
    at: Option<DataVersion>,
    #[command(flatten)]
    form: OutputForm,
}

impl LayoutCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let sandbox = super::sandbox()?;
        let folders = [&self.base[..], std::slice::from_ref(&self.modules)].concat();
        let catalog = startup::load_catalog(&folders, &TrustedKeys::default(), &sandbox)?;
        let layouts = catalog.layout_history();
        let version = self.at.unwrap_or_else(|| layouts.newest());
        let layout = layouts.at(version).with_context(|| {
            format!(
                "there is no migration to {version} in {}; `bbs module check` of the folder lists the versions",
                joined(folders.iter().map(|folder| folder.display()))
            )
        })?;
        let result = serde_json::json!({ "version": version, "tables": layout.tables });
        self.form
            .print(&result, || format!("Version {version}\n\n{}", text(layout)))
    }
}

fn text(layout: &Layout) -> String {
    let columns = layout.tables.values().flat_map(|owner| {
        owner
            .columns
            .iter()
            .map(move |column| [owner.name.clone(), column.name.clone(), described(column)])
    });
    let mut out = table(["TABLE", "COLUMN", "TYPE"], columns);
    out.push('\n');
    for owner in layout.tables.values() {
        line!(
            out,
            "{}: primary key ({})",
            owner.name,
            joined(&owner.primary_key)
        );
        if let Some(partition_key) = &owner.partition_key {
            line!(out, "{}: partition key {partition_key}", owner.name);
        }
        for index in &owner.indexes {
            line!(
                out,
                "{}: index {} ({})",
                owner.name,
                index.name,
                joined(&index.columns)
            );
        }
    }
    out
}

/// The type of a column, as manifests name it, and its nullability, default and sealing.
fn described(column: &Column) -> String {
    let kind = match column.kind {
        ColumnType::Boolean => "boolean".to_owned(),
        ColumnType::Integer => "integer".to_owned(),
        ColumnType::BigInteger => "big_integer".to_owned(),
        ColumnType::Varchar(length) => format!("varchar({length})"),
        ColumnType::Text => "text".to_owned(),
        ColumnType::MediumText => "medium_text".to_owned(),
        ColumnType::LongText => "long_text".to_owned(),
    };
    let nullable = if column.nullable { ", nullable" } else { "" };
    let default = column
        .default
        .as_ref()
        .map(|value| format!(", default {}", serde_json::json!(value)));
    let sealing = match column.sealing {
        Sealing::Plain => "",
        Sealing::Sealed => ", sealed",
        Sealing::Enveloped => ", enveloped",
    };
    format!("{kind}{nullable}{}{sealing}", default.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use bbs_lens::layout::schema::Table;

    use super::*;

    #[test]
    fn text_has_each_column_key_and_index() {
        let things = Table::new("things")
            .column(Column::varchar("id", 255))
            .column(Column::big_integer("size").default(0))
            .column(Column::medium_text("note").nullable().enveloped())
            .primary_key(["id"])
            .partition_key("id")
            .index("by_size", ["size", "id"]);
        let expected = "\
TABLE   COLUMN  TYPE
things  id      varchar(255)
things  size    big_integer, default 0
things  note    medium_text, nullable, enveloped

things: primary key (id)
things: partition key id
things: index by_size (size, id)
";
        assert_eq!(text(&Layout::of([things])), expected);
    }
}
