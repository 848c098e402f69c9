//! Every reason to refuse a folder of modules, and what to do about it.

use std::path::PathBuf;

use bbs_lens::ComposeError;
use bbs_lens::layout::history::LayoutError;
use bbs_lens::layout::manifest::DataVersion;

use crate::module::ModuleError;
use crate::signatures::{NAME_RULE, SignatureError};
use crate::text::ModuleText;
use crate::translate::ApiVersion;

/// Why a folder of modules cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    #[error("{} is not there; name a folder that `bbs module build --into` has written", .path.display())]
    NoCatalog { path: PathBuf },
    #[error("{} is not a folder; name one that `bbs module build --into` has written", .path.display())]
    NotAFolder { path: PathBuf },
    #[error("{} cannot be read; check its permissions", .path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("the signature of {} cannot be accepted", .path.display())]
    Signature {
        path: PathBuf,
        source: SignatureError,
    },
    #[error("{} has the serial {serial}, which no database can remember; write at most {}", .path.display(), i64::MAX)]
    Serial { path: PathBuf, serial: u64 },
    #[error("{} pins a list of releases with a `releases` that is no sha256 of 64 lower-case hexadecimal digits", .path.display())]
    ReleasesDigest { path: PathBuf },
    #[error("{} names itself \"{name}\"; {NAME_RULE}", .path.display())]
    Name { path: PathBuf, name: ModuleText },
    #[error(
        "the catalogs in {} and {} both have the name {name}; remove the one that is not wanted, or sign one of them under \
         another name",
        .one.display(), .other.display()
    )]
    SameName {
        name: String,
        one: PathBuf,
        other: PathBuf,
    },
    #[error("{} is not a catalog ({reason}); restore it from its package or a backup", .path.display())]
    Syntax { path: PathBuf, reason: ModuleText },
    #[error("{}: the entry of \"{file}\" is not valid: {what}; restore it from its package or a backup", .path.display())]
    Entry {
        path: PathBuf,
        file: ModuleText,
        what: &'static str,
    },
    #[error("{file} is listed twice; delete one of its entries from the catalog")]
    ListedTwice { file: String },
    #[error(
        "{file} is in the folder {0}, but not in its catalog; list it with `bbs module add {0}/{file} --into {0}`, or delete it",
        .folder.display()
    )]
    Unlisted { folder: PathBuf, file: String },
    #[error(
        "{file} is listed ({position}), but is not in the folder {0}; restore the file: `bbs module add FILE --into {0}`, \
         with `--base` for an add-on, puts a copy of it back",
        .folder.display()
    )]
    Missing {
        folder: PathBuf,
        file: String,
        position: String,
    },
    #[error(
        "{file} was altered: its sha256 is {found}, the catalog says {listed}; \
         restore the original: `bbs module add FILE --into DIR`, with `--base` for an add-on, puts a copy of it back. A change is shipped under a later version"
    )]
    Altered {
        file: String,
        listed: String,
        found: String,
    },
    #[error(
        "{file} leads to version {version}, as an earlier module does; versions are unique, so build it with another"
    )]
    VersionTwice { file: String, version: DataVersion },
    #[error("{file} serves API version {serves}, as an earlier module does; keep one of the two")]
    ServedTwice { file: String, serves: ApiVersion },
    #[error(
        "{file} ({version}) is listed after {before}; a catalog lists migrations and translators each oldest first, so move its entry"
    )]
    OutOfOrder {
        file: String,
        version: String,
        before: String,
    },
    #[error(
        "{file} (migration {version}) was built to follow {}, but in the catalog it follows {}; \
         restore the migrations that are missing between them",
        version_or_nothing(*.follows),
        version_or_nothing(*.before)
    )]
    DataGap {
        file: String,
        version: DataVersion,
        follows: Option<DataVersion>,
        before: Option<DataVersion>,
    },
    #[error(
        "{position} is in {} and, with other content, in {}; versions are unique: remove the package of one of them, and \
         let its author build it again with another version",
        .one.display(), .other.display()
    )]
    SamePosition {
        position: String,
        one: PathBuf,
        other: PathBuf,
    },
    #[error(
        "{} and {} (migration {version}) were both built to follow nothing; only the first migration does: remove the package of \
         the other, and let its author build it again on top of these modules",
        .one.display(), .other.display()
    )]
    TwoFirst {
        one: PathBuf,
        other: PathBuf,
        version: DataVersion,
    },
    #[error(
        "{} (migration {version}) was built to follow migration {missing}, which no folder of modules has; install the package \
         that has it, or remove this one",
        .path.display()
    )]
    Predecessor {
        path: PathBuf,
        version: DataVersion,
        missing: DataVersion,
    },
    #[error(
        "{file} serves API version {serves}, and the translator before it needs {wanted}; \
         restore the translator that serves {wanted}: only the oldest translators of the chain may be left out"
    )]
    ApiGap {
        file: String,
        serves: ApiVersion,
        wanted: ApiVersion,
    },
    #[error(
        "{file} serves {serves}, a side shape of API version {onto}, which no other module leads to; \
         add the translator that serves {onto}, or remove this one"
    )]
    SideGap {
        file: String,
        serves: ApiVersion,
        onto: ApiVersion,
    },
    #[error(
        "the newest translator, {file}, is written for API version {onto}, and this host speaks {native}; \
         add the translators in between, or use the modules that belong to this host"
    )]
    ApiEnd {
        file: String,
        onto: ApiVersion,
        native: ApiVersion,
    },
    #[error("a module of the folder cannot be used")]
    Module(#[from] ModuleError),
    #[error(
        "{file} is {found} according to its manifest, but the catalog lists it as {listed}; restore the \
         catalog, which was edited"
    )]
    ManifestMismatch {
        file: String,
        listed: String,
        found: String,
    },
    #[error("the layout changes of the folder's migrations do not fit together")]
    Layout(#[from] LayoutError),
    #[error("the folder's migrations do not fit together")]
    Compose(#[from] ComposeError),
}

fn version_or_nothing(version: Option<DataVersion>) -> String {
    version.map_or_else(|| "nothing".to_owned(), |version| version.to_string())
}
