//! `catalog.toml`: the list of a folder's modules, in order, each with its digest. Owns reading,
//! validating and writing the file; opens no module.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use bbs_lens::layout::manifest::DataVersion;
use serde::{Deserialize, Serialize};

use super::CatalogError;
use crate::signatures::{SIGNATURE_FILE, is_catalog_name};
use crate::text::ModuleText;
use crate::translate::ApiVersion;

/// The name of the catalog file in a folder of modules.
pub const CATALOG_FILE: &str = "catalog.toml";

const HEADER: &str = "\
# The modules of this folder, in order. Written by `bbs module build` and `bbs module add`; a host refuses to start
# if a file differs from its entry. `bbs module sign` signs this file, so that a changed one has to be signed again.

";

/// The content of a catalog.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CatalogContent {
    /// Its name, under which the keys that may sign it are configured. Absent until it is signed.
    pub name: Option<String>,
    /// Its serial, which is higher in each later one of the same name. Absent until it is signed.
    pub serial: Option<u64>,
    /// The digest of the list of releases in the same folder. Absent until it is signed.
    pub releases: Option<String>,
    /// Its modules, in order.
    pub entries: Vec<CatalogEntry>,
}

/// The fate of a signature when another catalog is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PreviousSignature {
    /// There was none, or the catalog is unchanged, and so is the signature.
    Unaffected,
    /// It was of another content, and was removed.
    Removed,
}

/// One module of a catalog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CatalogEntry {
    /// Its file name in the folder.
    pub file: String,
    /// The digest of the file, in lower-case hexadecimal.
    pub sha256: String,
    /// Its kind and versions.
    #[serde(skip)]
    pub position: CatalogPosition,
}

/// The kind of a module and its position in the sequence of versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CatalogPosition {
    /// A migration to a data version.
    Migration {
        /// The version that it leads to.
        version: DataVersion,
        /// The version of the migration before it when the entry was written; none for the first.
        follows: Option<DataVersion>,
    },
    /// A translator, which serves an API version in terms of a newer one, `onto`.
    Translator {
        serves: ApiVersion,
        onto: ApiVersion,
    },
}

impl CatalogPosition {
    /// Sort key: migrations, translators of the chain, and those of side shapes, each oldest first.
    pub(crate) fn order(self) -> (u8, u64, u32) {
        match self {
            Self::Migration { version, .. } => (0, version, 0),
            Self::Translator { serves, .. } => (
                if serves.side.is_none() { 1 } else { 2 },
                serves.major.into(),
                serves.minor,
            ),
        }
    }

    /// The version of a migration.
    pub(crate) fn data_version(self) -> Option<DataVersion> {
        match self {
            Self::Migration { version, .. } => Some(version),
            Self::Translator { .. } => None,
        }
    }

    /// Whether two modules lead to the same data version or serve the same API version.
    pub(crate) fn is_same(self, other: Self) -> bool {
        match (self, other) {
            (Self::Migration { version: one, .. }, Self::Migration { version: other, .. }) => {
                one == other
            }
            (Self::Translator { serves: one, .. }, Self::Translator { serves: other, .. }) => {
                one == other
            }
            _ => false,
        }
    }
}

impl std::fmt::Display for CatalogPosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Migration { version, .. } => write!(f, "migration {version}"),
            Self::Translator { serves, onto } => write!(f, "translator {serves} to {onto}"),
        }
    }
}

/// The serialised form of an entry.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CatalogFileEntry {
    kind: ModuleKind,
    file: String,
    sha256: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<DataVersion>,
    #[serde(skip_serializing_if = "Option::is_none")]
    follows: Option<DataVersion>,
    #[serde(skip_serializing_if = "Option::is_none")]
    serves: Option<ApiVersion>,
    #[serde(skip_serializing_if = "Option::is_none")]
    onto: Option<ApiVersion>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ModuleKind {
    Migration,
    Translator,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CatalogFile {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    serial: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    releases: Option<String>,
    #[serde(default)]
    module: Vec<CatalogFileEntry>,
}

/// Reads a folder's catalog and validates each entry by itself.
pub(crate) fn read(folder: &Path) -> Result<CatalogContent, CatalogError> {
    parse(&folder.join(CATALOG_FILE), &read_text(folder)?)
}

/// Reads the text of a folder's catalog.
pub(super) fn read_text(folder: &Path) -> Result<String, CatalogError> {
    let path = folder.join(CATALOG_FILE);
    bbs_files::read_text(&path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => CatalogError::NoCatalog { path },
        std::io::ErrorKind::NotADirectory => CatalogError::NotAFolder {
            path: folder.to_owned(),
        },
        _ => CatalogError::Read { path, source },
    })
}

/// Parses a catalog and validates each entry by itself. `path` is only used in errors.
pub(crate) fn parse(path: &Path, text: &str) -> Result<CatalogContent, CatalogError> {
    let file: CatalogFile = toml::from_str(text).map_err(|error| {
        let reason = ModuleText::of_toml(text, &error);
        CatalogError::Syntax {
            path: path.to_owned(),
            reason,
        }
    })?;
    if let Some(serial) = file.serial.filter(|serial| i64::try_from(*serial).is_err()) {
        return Err(CatalogError::Serial {
            path: path.to_owned(),
            serial,
        });
    }
    if file
        .releases
        .as_ref()
        .is_some_and(|digest| !is_sha256(digest))
    {
        return Err(CatalogError::ReleasesDigest {
            path: path.to_owned(),
        });
    }
    if let Some(name) = file.name.as_ref().filter(|name| !is_catalog_name(name)) {
        return Err(CatalogError::Name {
            path: path.to_owned(),
            name: ModuleText::reason(name),
        });
    }
    let CatalogFile {
        name,
        serial,
        releases,
        module,
    } = file;
    let entries = module
        .into_iter()
        .map(|written| entry(path, written))
        .collect::<Result<Vec<_>, _>>()?;
    let mut files = BTreeSet::new();
    if let Some(twice) = entries.iter().find(|entry| !files.insert(&entry.file)) {
        return Err(CatalogError::ListedTwice {
            file: twice.file.clone(),
        });
    }
    Ok(CatalogContent {
        name,
        serial,
        releases,
        entries,
    })
}

fn entry(path: &Path, written: CatalogFileEntry) -> Result<CatalogEntry, CatalogError> {
    let malformed = |what: &'static str| CatalogError::Entry {
        path: path.to_owned(),
        file: ModuleText::reason(&written.file),
        what,
    };
    if !is_file_name(&written.file) {
        return Err(malformed(
            "`file` is the plain name of a .wasm file in the same folder",
        ));
    }
    if !is_sha256(&written.sha256) {
        return Err(malformed("`sha256` is 64 lower-case hexadecimal digits"));
    }
    let position = match (
        written.kind,
        written.version,
        written.follows,
        written.serves,
        written.onto,
    ) {
        (ModuleKind::Migration, Some(version), follows, None, None) => {
            CatalogPosition::Migration { version, follows }
        }
        (ModuleKind::Translator, None, None, Some(serves), Some(onto)) => {
            CatalogPosition::Translator { serves, onto }
        }
        (ModuleKind::Migration, ..) => {
            return Err(malformed(
                "a migration has `version` and, except the first, `follows`",
            ));
        }
        (ModuleKind::Translator, ..) => {
            return Err(malformed("a translator has `serves` and `onto`"));
        }
    };
    Ok(CatalogEntry {
        file: written.file,
        sha256: written.sha256,
        position,
    })
}

pub(crate) fn is_sha256(text: &str) -> bool {
    text.len() == 64
        && text
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// The longest name that file systems have.
const FILE_NAME_BYTES: usize = 255;

pub(crate) fn is_file_name(name: &str) -> bool {
    name.len() <= FILE_NAME_BYTES
        && name.ends_with(".wasm")
        && !name.starts_with('.')
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// The text of a catalog's file.
pub(crate) fn text(content: &CatalogContent) -> std::io::Result<String> {
    let CatalogContent {
        name,
        serial,
        releases,
        entries,
    } = content.clone();
    let file = CatalogFile {
        name,
        serial,
        releases,
        module: entries.iter().map(written).collect(),
    };
    Ok(HEADER.to_owned() + &toml::to_string(&file).map_err(std::io::Error::other)?)
}

/// Writes a catalog atomically: a concurrent reader sees the old or the new one. A signature of
/// another content is removed.
pub(crate) fn write(folder: &Path, content: &CatalogContent) -> std::io::Result<PreviousSignature> {
    let text = text(content)?;
    if bbs_files::read_text(&folder.join(CATALOG_FILE)).is_ok_and(|before| before == text) {
        return Ok(PreviousSignature::Unaffected);
    }
    // Before the signature is removed: a full disk leaves the folder as it is.
    let file = complete_file(folder, text.as_bytes())?;
    // Before the catalog is replaced: an interruption leaves a catalog without a signature, which
    // cannot be taken for signed.
    let previous = match std::fs::remove_file(folder.join(SIGNATURE_FILE)) {
        Ok(()) => PreviousSignature::Removed,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => PreviousSignature::Unaffected,
        Err(error) => return Err(error),
    };
    persist_readable(file, &folder.join(CATALOG_FILE))?;
    Ok(previous)
}

/// Locks a folder of modules for a change, until the result is dropped. Two commands that read the
/// same catalog would each write one without the other's module.
pub(crate) fn lock(folder: &Path) -> std::io::Result<File> {
    let folder = File::open(folder)?;
    folder.lock()?;
    Ok(folder)
}

/// Writes a file that all users may read, atomically.
pub(crate) fn write_readable(folder: &Path, name: &str, text: &str) -> std::io::Result<()> {
    persist_readable(complete_file(folder, text.as_bytes())?, &folder.join(name))
}

/// A temporary file with this content, which is on the disk.
pub(crate) fn complete_file(
    folder: &Path,
    content: &[u8],
) -> std::io::Result<tempfile::NamedTempFile> {
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(content)?;
    file.as_file().sync_all()?;
    Ok(file)
}

/// Makes a temporary file, which only its owner may read, readable by all, and moves it to its
/// path.
pub(crate) fn persist_readable(file: tempfile::NamedTempFile, path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.as_file()
        .set_permissions(std::fs::Permissions::from_mode(0o644))?;
    file.persist(path)?;
    Ok(())
}

fn written(entry: &CatalogEntry) -> CatalogFileEntry {
    let file = entry.file.clone();
    let sha256 = entry.sha256.clone();
    match entry.position {
        CatalogPosition::Migration { version, follows } => CatalogFileEntry {
            kind: ModuleKind::Migration,
            file,
            sha256,
            version: Some(version),
            follows,
            serves: None,
            onto: None,
        },
        CatalogPosition::Translator { serves, onto } => CatalogFileEntry {
            kind: ModuleKind::Translator,
            file,
            sha256,
            version: None,
            follows: None,
            serves: Some(serves),
            onto: Some(onto),
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    const LINES: [&str; 14] = [
        "name = \"colours\"",
        "name = \"Colours\"",
        "serial = 7",
        "serial = -1",
        "releases = \"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\"",
        "[[module]]",
        "kind = \"migration\"",
        "kind = \"translator\"",
        "file = \"1-a.wasm\"",
        "sha256 = \"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\"",
        "version = 1",
        "follows = 1",
        "serves = \"0.9\"",
        "onto = \"0.10\"",
    ];

    /// Any text, and lines of a catalog in any order.
    fn any_catalog() -> impl Strategy<Value = String> {
        let module = (
            select(&LINES[6..8]),
            select(&LINES[10..12]),
            any::<[bool; 3]>(),
        )
            .prop_map(|(kind, one, has)| {
                let versions = if kind == LINES[6] {
                    [one, "version = 9"]
                } else {
                    [LINES[12], LINES[13]]
                };
                let optional = [LINES[8], LINES[9], versions[1]]
                    .into_iter()
                    .zip(has)
                    .filter(|(_, has)| *has);
                let lines = [LINES[5], kind, versions[0]]
                    .into_iter()
                    .chain(optional.map(|(line, _)| line));
                lines.collect::<Vec<_>>().join("\n")
            });
        let lines = prop::collection::vec(
            prop_oneof![select(&LINES[..]).prop_map(str::to_owned), module],
            0..6,
        );
        prop_oneof![any::<String>(), lines.prop_map(|lines| lines.join("\n"))]
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics_in_the_catalog(written in any_catalog()) {
            if let Ok(content) = parse(Path::new(CATALOG_FILE), &written) {
                prop_assert_eq!(parse(Path::new(CATALOG_FILE), &text(&content).unwrap()).unwrap(), content);
            }
        }
    }
}
