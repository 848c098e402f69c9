//! `bbs module replay`: runs a migration on the unit that it failed on, without the database.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use bbs_lens::layout::columns::ColumnData;
use bbs_lens::layout::values::{Encoding, Value as ColumnValue};
use bbs_lens::transform::Transform;
use clap::Args;
use serde_json::{Map, Value, json};

use crate::cli::output::{self, OutputForm};
use crate::config::Config;
use crate::encryption::Keyring;
use crate::migrate::{Replay, ReplayTable, json_of_bytes};
use crate::modules::sandbox::Sandbox;
use crate::modules::{MigrationModule, Module};
use crate::startup;

/// Run a migration again on a unit that it failed on: with the module that failed, or with a
/// corrected one.
///
/// A host that cannot migrate a unit names a file of its `replay_dir`. The file is sealed with the
/// host's key. It contains only the input of the module, so this needs no database and changes
/// nothing. The exit code is 0 if the module transforms the unit.
#[derive(Debug, Args)]
pub(super) struct ReplayCommand {
    /// The .replay file that the error, or `bbs migrate quarantine show`, named.
    file: PathBuf,
    /// The JSON configuration file of the host, for its keys and its modules folder.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// A .wasm file to run in place of the catalog's module, such as a correction that is not
    /// shipped yet.
    #[arg(long, value_name = "FILE")]
    module: Option<PathBuf>,
    /// Print the unit, decrypted, as the `input.json` of a golden case for the module's tests.
    #[arg(long)]
    golden: bool,
    #[command(flatten)]
    form: OutputForm,
}

impl ReplayCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let config = Config::read(&self.config)?;
        let keyring = Keyring::new(config.encryption_keys.clone(), &config.active_key_label)?;
        let replay = Replay::read(&self.file, &keyring)?;
        if self.golden {
            output::json(&golden(&replay))?;
            return Ok(());
        }
        let sandbox = startup::sandbox(&config)?;
        let module = self.module(&config, &replay, &sandbox)?;
        let now = replay.run(module.as_ref())?;
        let Replay {
            unit,
            version,
            module: name,
            direction,
            reason,
            ..
        } = &replay;
        let result = json!({
            "unit": unit,
            "version": version,
            "module": name,
            "direction": direction.to_string(),
            "same_module": module.digest() == replay.digest,
            "failed": reason,
            "fails_now": now,
        });
        self.form.print(&result, || {
            let end = if now.is_none() {
                "Now       it is transformed\n"
            } else {
                ""
            };
            summary(&replay, module.digest()) + end
        })?;
        match now {
            None => Ok(()),
            Some(reason) => bail!("the module still cannot transform the unit: {reason}"),
        }
    }

    fn module(
        &self,
        config: &Config,
        replay: &Replay,
        sandbox: &Arc<Sandbox>,
    ) -> anyhow::Result<Arc<MigrationModule>> {
        let Replay {
            version,
            module: name,
            ..
        } = replay;
        if let Some(file) = &self.module {
            return match Module::open(file, sandbox)? {
                Module::Migration(module) if module.manifest().version == *version => Ok(module),
                Module::Migration(module) => {
                    bail!(
                        "{} is migration {}, the replay file is of {version}-{name}",
                        file.display(),
                        module.manifest().version
                    )
                }
                Module::Translator(_) => bail!(
                    "{} is a translator, the replay file is of a migration",
                    file.display()
                ),
            };
        }
        let catalog =
            startup::load_catalog(&config.module_folders()?, &config.trusted_keys, sandbox)?;
        let found = catalog
            .migrations()
            .iter()
            .find(|module| module.manifest().version == *version);
        found.cloned().with_context(|| {
            format!("the configured modules have no migration {version}-{name}; name its file with --module")
        })
    }
}

/// Names and sizes; never a value of the unit.
fn summary(replay: &Replay, digest: &str) -> String {
    let mut out = String::new();
    let Replay {
        module,
        version,
        direction,
        unit,
        reason,
        ..
    } = replay;
    let mut line = |name: &str, text: &str| {
        let _ = writeln!(out, "{name:<9} {text}");
    };
    line("Unit", unit);
    line("Migration", &format!("{version}-{module}, {direction}"));
    line("Failed", reason);
    let same = digest == replay.digest;
    line(
        "Module",
        if same {
            "the one that failed"
        } else {
            "not the one that failed"
        },
    );
    for table in &replay.tables {
        let columns = table
            .columns
            .iter()
            .map(|(name, data)| format!("{name} ({} bytes)", data.values.len()));
        line(
            "Given",
            &format!(
                "{}, {} rows: {}",
                table.name,
                table.rows,
                columns.collect::<Vec<_>>().join(", ")
            ),
        );
    }
    if let Some(residue) = &replay.residue {
        line("Residue", &format!("{} bytes", residue.len()));
    }
    out
}

fn golden(replay: &Replay) -> Value {
    let rows = |table: &ReplayTable| {
        let row = |row: usize| {
            let columns = table.columns.iter();
            let values = columns
                .map(|(name, data)| (name.clone(), column_value(data, table.rows as usize, row)));
            Value::Object(values.collect::<Map<_, _>>())
        };
        (0..table.rows as usize).map(row).collect::<Value>()
    };
    let tables: Map<_, _> = replay
        .tables
        .iter()
        .map(|table| (table.name.clone(), rows(table)))
        .collect();
    let mut golden = json!({ "direction": replay.direction.to_string(), "unit": tables });
    if let Some(residue) = &replay.residue {
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
