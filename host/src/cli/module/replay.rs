//! `bbs module replay`: runs the one unit that a migration stopped at, without its database.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::{Map, Value, json};

use crate::config::Config;
use crate::layout::columns::ColumnData;
use crate::layout::values::{Encoding, Value as Cell};
use crate::lens::transform::Transform;
use crate::migrate::{Replay, ReplayTable};
use crate::modules::sandbox::Sandbox;
use crate::modules::{MigrationModule, Module};
use crate::record::Keyring;
use crate::startup::{self, catalog};

/// Run the unit that a migration stopped at once more: with the module that failed, or with its correction.
///
/// A host that cannot migrate a unit names a file of its `replay_dir`. The file is sealed with the host's key. It holds
/// what the module was given and nothing else, so this needs no database and changes nothing. The exit code is 0 if the
/// module takes the unit now.
#[derive(Debug, Args)]
pub(super) struct ReplayCommand {
    /// The .replay file that the error, or `bbs migrate quarantine show`, named.
    file: PathBuf,
    /// The JSON configuration file of the host: it has the keys and names the modules.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// A .wasm file to run in place of the catalog's module: the correction, before it is shipped.
    #[arg(long, value_name = "FILE")]
    module: Option<PathBuf>,
    /// Print the unit, decrypted, as the `input.json` of a golden case for the module's tests.
    #[arg(long)]
    golden: bool,
}

impl ReplayCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let config = Config::read(&self.config)?;
        let keyring = Keyring::new(config.encryption_keys.clone(), &config.active_key_label)?;
        let replay = Replay::read(&self.file, &keyring)?;
        if self.golden {
            println!("{}", serde_json::to_string_pretty(&golden(&replay))?);
            return Ok(());
        }
        let sandbox = startup::sandbox(&config)?;
        let module = self.module(&config, &replay, &sandbox)?;
        print!("{}", summary(&replay, module.digest()));
        match replay.run(module.as_ref())? {
            None => {
                println!("Now       it is transformed");
                Ok(())
            }
            Some(reason) => bail!("the module still does not take the unit: {reason}"),
        }
    }

    fn module(&self, config: &Config, replay: &Replay, sandbox: &Arc<Sandbox>) -> anyhow::Result<Arc<MigrationModule>> {
        let Replay { version, module: name, .. } = replay;
        if let Some(file) = &self.module {
            return match Module::open(file, sandbox)? {
                Module::Migration(module) if module.manifest().version == *version => Ok(module),
                Module::Migration(module) => {
                    bail!(
                        "{} is migration {}, the file is of {version}-{name}",
                        file.display(),
                        module.manifest().version
                    )
                }
                Module::Translator(_) => bail!("{} is a translator, the file is of a migration", file.display()),
            };
        }
        let catalog = catalog::load(&config.modules_dir, sandbox)?;
        let found = catalog.migrations().iter().find(|module| module.manifest().version == *version);
        found.cloned().with_context(|| {
            format!("{} has no migration {version}-{name}; name its file with --module", config.modules_dir.display())
        })
    }
}

/// Names and sizes; no value of the unit.
fn summary(replay: &Replay, digest: &str) -> String {
    let mut out = String::new();
    let Replay { module, version, direction, unit, reason, .. } = replay;
    let mut line = |name: &str, text: &str| {
        let _ = writeln!(out, "{name:<9} {text}");
    };
    line("Unit", unit);
    line("Migration", &format!("{version}-{module}, {direction}"));
    line("Failed", reason);
    let same = digest == replay.digest;
    line("Module", if same { "the one that failed" } else { "another one than the one that failed" });
    for table in &replay.tables {
        let columns = table.columns.iter().map(|(name, data)| format!("{name} ({} bytes)", data.values.len()));
        line("Given", &format!("{}, {} rows: {}", table.name, table.rows, columns.collect::<Vec<_>>().join(", ")));
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
            let cells = columns.map(|(name, data)| (name.clone(), cell(data, table.rows as usize, row)));
            Value::Object(cells.collect::<Map<_, _>>())
        };
        (0..table.rows as usize).map(row).collect::<Value>()
    };
    let tables: Map<_, _> = replay.tables.iter().map(|table| (table.name.clone(), rows(table))).collect();
    let mut golden = json!({ "direction": replay.direction.to_string(), "unit": tables });
    if let Some(residue) = &replay.residue {
        golden["residue"] = bytes(residue);
    }
    golden
}

/// A column's form tells its encoding, as it does to the SDK.
fn cell(data: &ColumnData, rows: usize, row: usize) -> Value {
    let encoding = if !data.offsets.is_empty() {
        Encoding::Text
    } else if data.values.len() == rows * 8 {
        Encoding::Integer
    } else {
        Encoding::Boolean
    };
    match data.get(encoding, row) {
        Cell::Null => Value::Null,
        Cell::Boolean(value) => value.into(),
        Cell::Integer(value) => value.into(),
        Cell::Text(text) => bytes(text),
    }
}

fn bytes(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains(|c: char| c.is_control() && !c.is_whitespace()) => text.into(),
        _ => {
            let hex = bytes.iter().fold(String::new(), |mut hex, byte| {
                let _ = write!(hex, "{byte:02x}");
                hex
            });
            json!({ "hex": hex })
        }
    }
}
