//! The unit that a module could not transform, saved so that its author can run it again. Sealed
//! with the active key, since it may hold an app's secrets.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::key::to_hex;
use crate::layout::columns::{Batch, ColumnData};
use crate::layout::schema::Sealing;
use crate::lens::{Arguments, LensError};
use crate::record::Keyring;

/// Writes the file and gives its path. A folder that cannot be written to costs the replay, not the error.
pub(super) fn save(
    folder: &Path,
    keyring: &Keyring,
    arguments: &Arguments,
    unit: &str,
    fault: &LensError,
) -> Option<PathBuf> {
    let LensError::Unit { module, version, digest, direction, reason, batch, .. } = fault else { return None };
    let run = arguments.get(version)?;
    let replay = json!({
        "module": module,
        "version": version,
        "digest": digest,
        "direction": direction,
        "reason": reason,
        "unit": unit,
        "run": { "started_at_ns": run.started_at_ns, "namespace": run.namespace.to_string() },
        "batch": describe(batch),
    });
    let sealed = keyring.seal(Sealing::Sealed, replay.to_string().as_bytes());
    let path = folder.join(format!("{version}-{direction}-{}.replay", file_name(unit)));
    let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, sealed));
    match written {
        Ok(()) => Some(path),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "the unit at fault could not be saved");
            None
        }
    }
}

fn file_name(unit: &str) -> String {
    const LONGEST: usize = 100;
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    unit.chars().take(LONGEST).map(plain).collect()
}

fn describe(batch: &Batch) -> Value {
    let column = |data: &ColumnData| {
        json!({
            "validity": to_hex(&data.validity),
            "offsets": data.offsets,
            "values": to_hex(&data.values),
        })
    };
    json!({
        "tables": batch.tables.iter().map(|table| json!({
            "unit_offsets": table.unit_offsets,
            "columns": table.columns.iter().map(column).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "residue": batch.residue.iter().map(|kept| kept.as_deref().map(to_hex)).collect::<Vec<_>>(),
    })
}
