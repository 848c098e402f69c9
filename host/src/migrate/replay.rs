//! A unit that a module could not transform, saved so that the module's author can run it again.
//! Sealed with the active key, since it may contain an app's secrets. Owns the file; the command
//! decides what is shown of it.

use std::path::{Path, PathBuf};

use bbs_lens::layout::columns::{Batch, ColumnData, TableData};
use bbs_lens::layout::manifest::{Access, DataVersion, Direction};
use bbs_lens::layout::schema::Sealing;
use bbs_lens::transform::{RunArguments, Transform, TransformError};
use bbs_lens::{Arguments, LensError};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::encryption::{EncryptionError, Keyring};
use crate::files;
use crate::rows::digest::{digest_of, from_hex, to_hex};

/// Largest size of a replay file. A unit has up to 16 MiB, and its bytes become hexadecimal digits
/// in base64.
pub const REPLAY_BYTES: u64 = 256 << 20;

/// The end of the name of a replay file that is being written.
pub const REPLAY_UNFINISHED: &str = ".replay-unfinished";

#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("cannot read {}; name a file of the host's `replay_dir`", .path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(
        "{} does not open; give the configuration of the host that wrote it, with the key it was sealed with",
        .path.display()
    )]
    Sealed {
        path: PathBuf,
        source: EncryptionError,
    },
    #[error("{} is not a replay file of this host's kind; take one that a host of this release wrote", .path.display())]
    Damaged { path: PathBuf },
    #[error(
        "migration {version} now reads {column} of {table} on the way {direction}, which the module that failed did not, so \
         the file cannot show what it does; try `bbs migrate plan --check`"
    )]
    OtherReads {
        version: DataVersion,
        direction: Direction,
        table: String,
        column: String,
    },
}

/// The content of a replay file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    /// The migration's name.
    pub module: String,
    pub version: DataVersion,
    /// Of the module that failed.
    pub digest: String,
    pub direction: Direction,
    pub reason: String,
    pub unit: String,
    pub run: RunArguments,
    /// In the order of the module's accesses.
    pub tables: Vec<ReplayTable>,
    pub residue: Option<Vec<u8>>,
}

/// The module's input rows of one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayTable {
    /// Its name after the step.
    pub name: String,
    pub rows: u32,
    pub columns: Vec<(String, ColumnData)>,
}

impl Replay {
    /// The replay of a module's failure. None if no module failed.
    pub(super) fn of(
        arguments: &Arguments,
        accesses: &[Access],
        unit: &str,
        fault: &LensError,
    ) -> Option<Self> {
        let LensError::Unit {
            module,
            version,
            digest,
            direction,
            reason,
            batch,
            ..
        } = fault
        else {
            return None;
        };
        let tables = accesses
            .iter()
            .zip(&batch.tables)
            .map(|(access, table)| ReplayTable {
                name: access.table.clone(),
                rows: table.unit_offsets.last().copied().unwrap_or(0),
                columns: access
                    .reads
                    .iter()
                    .cloned()
                    .zip(table.columns.iter().cloned())
                    .collect(),
            });
        Some(Self {
            module: module.clone(),
            version: *version,
            digest: digest.clone(),
            direction: *direction,
            reason: reason.clone(),
            unit: unit.to_owned(),
            run: arguments.get(version)?.clone(),
            tables: tables.collect(),
            residue: batch.residue.first().cloned().flatten(),
        })
    }

    /// Writes the file and returns its path. If the folder cannot be written to, the replay is lost
    /// and a warning is logged.
    pub(super) fn save(&self, folder: &Path, keyring: &Keyring) -> Option<PathBuf> {
        let sealed = keyring.seal(Sealing::Sealed, &self.encode());
        let path = folder.join(self.file_name());
        let write = || {
            files::create_private_folder(folder)?;
            files::replace_private(&path, &sealed, REPLAY_UNFINISHED, || ())
        };
        match write() {
            Ok(()) => Some(path),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "the unit at fault could not be saved");
                None
            }
        }
    }

    /// The name of the file: the same for each failure of this unit, and no other unit's, even on a
    /// file system that ignores case or where several databases share a folder.
    fn file_name(&self) -> String {
        let tables: Vec<_> = self
            .tables
            .iter()
            .map(|table| table.name.as_str())
            .collect();
        let identity = serde_json::to_vec(&(&self.unit, self.run.namespace.to_string(), tables))
            .expect("plain data");
        let digest = digest_of(&identity);
        format!(
            "{}-{}-{}-{}.replay",
            self.version,
            self.direction,
            readable(&self.unit),
            &digest[..16]
        )
    }

    /// Reads a saved unit.
    ///
    /// # Errors
    /// The file cannot be read, does not open with the keys, or is damaged.
    pub fn read(path: &Path, keyring: &Keyring) -> Result<Self, ReplayError> {
        let owned = || path.to_owned();
        let sealed = files::read(path, REPLAY_BYTES).map_err(|source| ReplayError::Read {
            path: owned(),
            source,
        })?;
        let plain = keyring
            .open(Sealing::Sealed, sealed.trim_ascii_end())
            .map_err(|source| ReplayError::Sealed {
                path: owned(),
                source,
            })?;
        Self::decode(&plain).ok_or_else(|| ReplayError::Damaged { path: owned() })
    }

    /// The content of the file before it is sealed.
    pub(super) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(&ReplayFile::from(self)).expect("plain data")
    }

    /// Decodes what [`encode`](Self::encode) returned. `None` if it is damaged.
    pub(super) fn decode(plain: &[u8]) -> Option<Self> {
        serde_json::from_slice::<ReplayFile>(plain)
            .ok()?
            .into_replay()
    }

    /// Runs a module over the unit. Returns the reason if it refuses or fails.
    ///
    /// # Errors
    /// The module reads a column that was not saved: the module that failed did not read it.
    pub fn run(&self, module: &dyn Transform) -> Result<Option<String>, ReplayError> {
        let batch = self.batch(module.manifest().accesses(self.direction))?;
        Ok(match module.apply(self.direction, &self.run, &batch) {
            Ok(outcome) => outcome
                .refused
                .into_iter()
                .next()
                .map(|refusal| refusal.reason),
            Err(TransformError { reason, .. }) => Some(reason),
        })
    }

    fn batch(&self, accesses: &[Access]) -> Result<Batch, ReplayError> {
        let tables = accesses.iter().map(|access| {
            let known = self.tables.iter().find(|table| table.name == access.table);
            let columns = access.reads.iter().map(|column| {
                let mut columns = known.iter().flat_map(|table| &table.columns);
                let found = columns
                    .find(|(name, _)| name == column)
                    .map(|(_, data)| data.clone());
                found.ok_or_else(|| ReplayError::OtherReads {
                    version: self.version,
                    direction: self.direction,
                    table: access.table.clone(),
                    column: column.clone(),
                })
            });
            let rows = known.map_or(0, |table| table.rows);
            Ok(TableData {
                unit_offsets: vec![0, rows],
                columns: columns.collect::<Result<_, _>>()?,
            })
        });
        let residue = self.residue.is_some().then(|| vec![self.residue.clone()]);
        Ok(Batch {
            tables: tables.collect::<Result<_, _>>()?,
            residue: residue.unwrap_or_default(),
        })
    }
}

/// The part of a unit's name that every file system can have in a file name.
fn readable(unit: &str) -> String {
    const LONGEST: usize = 100;
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || c == '-' {
            c
        } else {
            '_'
        }
    };
    unit.chars().take(LONGEST).map(plain).collect()
}

/// The file before it is sealed.
#[derive(Serialize, Deserialize)]
struct ReplayFile {
    module: String,
    version: DataVersion,
    digest: String,
    direction: String,
    reason: String,
    unit: String,
    started_at_ns: i64,
    namespace: String,
    tables: Vec<FileTable>,
    residue: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct FileTable {
    name: String,
    rows: u32,
    columns: Vec<FileColumn>,
}

#[derive(Serialize, Deserialize)]
struct FileColumn {
    name: String,
    validity: String,
    offsets: Vec<u32>,
    values: String,
}

impl From<&Replay> for ReplayFile {
    fn from(replay: &Replay) -> Self {
        let column = |(name, data): &(String, ColumnData)| FileColumn {
            name: name.clone(),
            validity: to_hex(&data.validity),
            offsets: data.offsets.clone(),
            values: to_hex(&data.values),
        };
        let tables = replay.tables.iter().map(|table| FileTable {
            name: table.name.clone(),
            rows: table.rows,
            columns: table.columns.iter().map(column).collect(),
        });
        Self {
            module: replay.module.clone(),
            version: replay.version,
            digest: replay.digest.clone(),
            direction: replay.direction.to_string(),
            reason: replay.reason.clone(),
            unit: replay.unit.clone(),
            started_at_ns: replay.run.started_at_ns,
            namespace: replay.run.namespace.to_string(),
            tables: tables.collect(),
            residue: replay.residue.as_deref().map(to_hex),
        }
    }
}

impl ReplayFile {
    fn into_replay(self) -> Option<Replay> {
        let column = |column: FileColumn| {
            let (validity, values) = (from_hex(&column.validity)?, from_hex(&column.values)?);
            Some((
                column.name,
                ColumnData {
                    validity,
                    offsets: column.offsets,
                    values,
                },
            ))
        };
        let table = |table: FileTable| {
            let columns = table
                .columns
                .into_iter()
                .map(column)
                .collect::<Option<_>>()?;
            Some(ReplayTable {
                name: table.name,
                rows: table.rows,
                columns,
            })
        };
        Some(Replay {
            module: self.module,
            version: self.version,
            digest: self.digest,
            direction: match self.direction.as_str() {
                "up" => Direction::Up,
                "down" => Direction::Down,
                _ => return None,
            },
            reason: self.reason,
            unit: self.unit,
            run: RunArguments {
                started_at_ns: self.started_at_ns,
                namespace: Uuid::parse_str(&self.namespace).ok()?,
            },
            tables: self.tables.into_iter().map(table).collect::<Option<_>>()?,
            residue: match self.residue {
                None => None,
                Some(text) => Some(from_hex(&text)?),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn replay(unit: &str, table: &str, namespace: u128) -> Replay {
        Replay {
            module: "step".into(),
            version: 7,
            digest: "d1935".into(),
            direction: Direction::Up,
            reason: "refused".into(),
            unit: unit.into(),
            run: RunArguments {
                started_at_ns: 1,
                namespace: Uuid::from_u128(namespace),
            },
            tables: vec![ReplayTable {
                name: table.into(),
                rows: 0,
                columns: Vec::new(),
            }],
            residue: None,
        }
    }

    #[test]
    fn each_unit_has_a_file_name_of_its_own() {
        let long = "u".repeat(300);
        let longer = format!("{long}v");
        let units = ["a/b", "a_b", "a b", "A", "a", "", "../a", &long, &longer];
        let mut names: Vec<_> = units
            .iter()
            .map(|unit| replay(unit, "apps", 1).file_name().to_lowercase())
            .collect();
        names.push(replay("a", "tasks", 1).file_name());
        names.push(replay("a", "apps", 2).file_name());
        assert!(
            names
                .iter()
                .all(|name| name.len() < 200 && !name.contains('/') && name.starts_with("7-up-")),
            "{names:?}"
        );
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count, "{names:?}");
        let later = Replay {
            reason: "another".into(),
            digest: "c0".into(),
            ..replay("a", "apps", 1)
        };
        assert_eq!(
            later.file_name(),
            replay("a", "apps", 1).file_name(),
            "one file for one unit"
        );
    }

    #[test]
    fn saved_replay_follows_no_link_and_is_private() {
        use std::os::unix::fs::PermissionsExt;
        let parent = tempfile::tempdir().unwrap();
        let (folder, other) = (parent.path().join("replay"), parent.path().join("other"));
        let keyring = Keyring::new([("key", "passphrase")], "key").unwrap();
        let unit = replay("a", "apps", 1);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(&other, "other").unwrap();
        std::os::unix::fs::symlink(&other, folder.join(unit.file_name())).unwrap();
        let path = unit.save(&folder, &keyring).unwrap();
        assert_eq!(std::fs::read(&other).unwrap(), b"other");
        assert_eq!(
            std::fs::symlink_metadata(&path)
                .unwrap()
                .permissions()
                .mode()
                & 0o777,
            0o600
        );
        assert_eq!(Replay::read(&path, &keyring).unwrap(), unit);
        assert_eq!(unit.save(&folder, &keyring), Some(path));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    }

    proptest! {
        #[test]
        fn arbitrary_units_round_trip_and_damaged_ones_never_panic(
            texts in any::<[String; 4]>(),
            numbers in any::<(u64, i64, u128, u32)>(),
            column in any::<(Vec<u8>, Vec<u32>, Vec<u8>)>(),
            residue in any::<Option<Vec<u8>>>(),
            place in any::<prop::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let [module, reason, unit, table] = texts;
            let (version, started_at_ns, namespace, rows) = numbers;
            let (validity, offsets, values) = column;
            let columns = vec![("column".to_owned(), ColumnData { validity, offsets, values })];
            let unit = Replay {
                module,
                version,
                reason,
                run: RunArguments { started_at_ns, namespace: Uuid::from_u128(namespace) },
                tables: vec![ReplayTable { name: table, rows, columns }],
                residue,
                ..replay(&unit, "", 0)
            };
            let mut encoded = unit.encode();
            prop_assert_eq!(Replay::decode(&encoded), Some(unit));
            *place.get_mut(&mut encoded) = byte;
            if let Some(damaged) = Replay::decode(&encoded) {
                prop_assert_eq!(Replay::decode(&damaged.encode()), Some(damaged));
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic_in_a_replay(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(Replay::decode(&bytes), None);
        }
    }
}
