//! `bbs module replay`: runs a migration on a unit that it failed on, as quarantine has it.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use bbs_lens::layout::columns::ColumnData;
use bbs_lens::layout::values::{Encoding, Value as ColumnValue};
use clap::Args;
use serde_json::{Map, Value, json};

use crate::cli::migrate::{corrected, existing};
use crate::cli::output::{self, OutputForm, details};
use crate::migrate::{self, QuarantineEntry, Replay, ReplayInput, ReplayTable, json_of_bytes};

/// Run a migration again on a unit that it failed on: with the module that failed, or with a
/// corrected one.
///
/// The unit is taken from quarantine, which has those that a migration left out, and the one at
/// which it stopped. Nothing is written, and a host may serve meanwhile. The exit code is 0 if the
/// unit can be migrated.
#[derive(Debug, Args)]
pub(super) struct ReplayCommand {
    /// The unit's name, as `bbs migrate quarantine list` prints it.
    unit: String,
    /// The JSON configuration file of the host.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// A .wasm file to run in place of the catalog's module, such as a correction that is not
    /// shipped yet.
    #[arg(long, value_name = "FILE")]
    module: Option<PathBuf>,
    /// Print the input of the module, decrypted, as the `input.json` of a golden case for its
    /// tests.
    #[arg(long)]
    golden: bool,
    #[command(flatten)]
    form: OutputForm,
}

impl ReplayCommand {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let prepared = existing(&self.config).await?;
        let instead = self.module.as_deref();
        let instead = instead
            .map(|file| corrected(file, &prepared.config))
            .transpose()?;
        let replay = migrate::replay(&prepared.context(), &self.unit, instead).await?;
        if self.golden {
            let input = replay.input.as_ref();
            let input = input.context("the unit fails before it reaches the module")?;
            output::json(&golden(&replay.entry, input))?;
            return Ok(());
        }
        let QuarantineEntry {
            unit,
            version,
            module,
            direction,
            reason,
            ..
        } = &replay.entry;
        let result = json!({
            "unit": unit,
            "version": version,
            "module": module,
            "direction": direction.to_string(),
            "same_module": replay.is_same_module,
            "failed": reason,
            "fails_now": replay.reason,
        });
        self.form.print(&result, || summary(&replay))?;
        match replay.reason {
            None => Ok(()),
            Some(reason) => bail!("the unit still cannot be transformed: {reason}"),
        }
    }
}

/// Names and sizes; never a value of the unit.
fn summary(replay: &Replay) -> String {
    let QuarantineEntry {
        module,
        version,
        direction,
        unit,
        reason,
        ..
    } = &replay.entry;
    let which = if replay.is_same_module {
        "the one that failed"
    } else {
        "not the one that failed"
    };
    let mut lines = vec![
        ("Unit", unit.escape_debug().to_string()),
        ("Migration", format!("{version}-{module}, {direction}")),
        ("Failed", reason.clone()),
        ("Module", which.to_owned()),
    ];
    for table in replay.input.iter().flat_map(|input| &input.tables) {
        let columns = table.columns.iter();
        let columns = columns.map(|(name, data)| format!("{name} ({} bytes)", data.values.len()));
        let columns = columns.collect::<Vec<_>>().join(", ");
        let ReplayTable { name, rows, .. } = table;
        lines.push(("Given", format!("{name}, {rows} rows: {columns}")));
    }
    let input = replay.input.as_ref();
    if let Some(residue) = input.and_then(|input| input.residue.as_ref()) {
        lines.push(("Residue", format!("{} bytes", residue.len())));
    }
    if replay.reason.is_none() {
        lines.push(("Now", "it is transformed".to_owned()));
    }
    details(9, lines)
}

fn golden(entry: &QuarantineEntry, input: &ReplayInput) -> Value {
    let rows = |table: &ReplayTable| {
        let row = |row: usize| {
            let columns = table.columns.iter();
            let values = columns
                .map(|(name, data)| (name.clone(), column_value(data, table.rows as usize, row)));
            Value::Object(values.collect::<Map<_, _>>())
        };
        (0..table.rows as usize).map(row).collect::<Value>()
    };
    let tables: Map<_, _> = input
        .tables
        .iter()
        .map(|table| (table.name.clone(), rows(table)))
        .collect();
    let mut golden = json!({ "direction": entry.direction.to_string(), "unit": tables });
    if let Some(residue) = &input.residue {
        golden["residue"] = json_of_bytes(residue);
    }
    golden
}

/// The form of a column's data determines its encoding, as in the SDK.
fn column_value(data: &ColumnData, rows: usize, row: usize) -> Value {
    let encoding = if !data.offsets.is_empty() {
        Encoding::Text
    } else if data.values.len() == rows * 8 {
        Encoding::Integer
    } else {
        Encoding::Boolean
    };
    match data.get(encoding, row) {
        ColumnValue::Null => Value::Null,
        ColumnValue::Boolean(value) => value.into(),
        ColumnValue::Integer(value) => value.into(),
        ColumnValue::Text(text) => json_of_bytes(text),
    }
}
