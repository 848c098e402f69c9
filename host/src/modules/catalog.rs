//! The catalog: the ordered, digest-pinned modules of one folder. Owns every reason to refuse a folder, all of
//! them found before anything is locked or read from a database.

mod entries;
mod lines;
mod written;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::migration::MigrationModule;
use super::module::{Module, ModuleError, Source};
use super::sandbox::{ComponentError, Sandbox};
use super::translate::{ApiVersion, Translate};
use super::translator::TranslatorModule;
use crate::layout::fold::{LayoutError, Line};
use crate::layout::manifest::DataVersion;
use crate::lens::transform::Transform;

pub use self::entries::{CATALOG_FILE, Entry, Place};
pub(super) use self::entries::{is_file_name, persist_readable, read, write};
pub(super) use self::lines::check as check_lines;

/// The modules of one folder, each kind in the order of its line, oldest first.
#[derive(Debug)]
pub struct Catalog {
    migrations: Vec<Arc<MigrationModule>>,
    translators: Vec<Arc<TranslatorModule>>,
    line: Line,
}

#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    #[error("{} is not there; name a folder that `bbs module build --into` has written", .path.display())]
    NoCatalog { path: PathBuf },
    #[error("{} cannot be read; check its permissions", .path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{} is not a catalog; write it anew with `bbs module build`", .path.display())]
    Syntax { path: PathBuf, source: Box<toml::de::Error> },
    #[error("{}: the entry of {file:?} is not one: {what}; write it anew with `bbs module build`", .path.display())]
    Entry { path: PathBuf, file: String, what: &'static str },
    #[error("{file} is listed twice; delete one of its entries from the catalog")]
    ListedTwice { file: String },
    #[error(
        "{file} is in the folder {0}, and no entry lists it; list it with `bbs module add {0}/{file} --into {0}`, or delete it",
        .folder.display()
    )]
    Unlisted { folder: PathBuf, file: String },
    #[error("{file} is listed ({place}), and is not in the folder {}; put the file back, or build the folder anew", .folder.display())]
    Missing { folder: PathBuf, file: String, place: Place },
    #[error(
        "{file} was altered: its sha256 is {found}, the catalog says {listed}; \
         put the original back, or build the folder anew if the change is meant"
    )]
    Altered { file: String, listed: String, found: String },
    #[error(
        "{file} leads to version {version}, as an earlier module does; versions are unique, so build it with another"
    )]
    VersionTwice { file: String, version: DataVersion },
    #[error("{file} serves API version {serves}, as an earlier module does; keep one of the two")]
    ServedTwice { file: String, serves: ApiVersion },
    #[error("{file} ({version}) stands after {before}; the catalog lists each line oldest first, so move its entry")]
    OutOfOrder { file: String, version: String, before: String },
    #[error(
        "{file} (migration {version}) was built to follow {}, and in the catalog it follows {}; \
         put back what is missing between them, or build the folder anew",
        version_or_nothing(*.follows),
        version_or_nothing(*.before)
    )]
    DataGap { file: String, version: DataVersion, follows: Option<DataVersion>, before: Option<DataVersion> },
    #[error(
        "{file} serves API version {serves}, and the translator before it needs {wanted}; \
         put back the translator that serves {wanted}: only the oldest end of the line may be left out"
    )]
    ApiGap { file: String, serves: ApiVersion, wanted: ApiVersion },
    #[error(
        "the newest translator, {file}, is written for API version {onto}, and this host speaks {native}; \
         add the translators in between, or use the modules that belong to this host"
    )]
    ApiEnd { file: String, onto: ApiVersion, native: ApiVersion },
    #[error("the folder holds a module that cannot be used")]
    Module(#[from] ModuleError),
    #[error("{file} is {found} by its own account, and the catalog lists it as {listed}; build the folder anew")]
    Lie { file: String, listed: Place, found: String },
    #[error("the folder's migrations do not build on each other")]
    Layout(#[from] LayoutError),
}

fn version_or_nothing(version: Option<DataVersion>) -> String {
    version.map_or_else(|| "nothing".to_owned(), |version| version.to_string())
}

impl Catalog {
    /// Reads a folder and refuses it for the first thing that is wrong with it.
    pub fn load(folder: &Path, sandbox: &Arc<Sandbox>) -> Result<Self, CatalogError> {
        let entries = entries::read(folder)?;
        refuse_unlisted(folder, &entries)?;
        lines::check(&entries)?;
        let (mut migrations, mut translators) = (Vec::new(), Vec::new());
        for entry in &entries {
            match open(folder, entry, sandbox)? {
                Module::Migration(module) => migrations.push(module),
                Module::Translator(module) => translators.push(module),
            }
        }
        let line = Line::new(migrations.iter().map(|module| module.manifest()))?;
        for module in &migrations {
            module.expect(written::columns(&line, module.manifest()));
        }
        Ok(Self { migrations, translators, line })
    }

    /// The entries of a folder, each line in order, without opening a module.
    pub fn entries(folder: &Path) -> Result<Vec<Entry>, CatalogError> {
        let entries = entries::read(folder)?;
        refuse_unlisted(folder, &entries)?;
        lines::check(&entries)?;
        Ok(entries)
    }

    pub fn migrations(&self) -> &[Arc<MigrationModule>] {
        &self.migrations
    }

    pub fn translators(&self) -> &[Arc<TranslatorModule>] {
        &self.translators
    }

    /// The layout at every version of the folder's migrations.
    pub fn line(&self) -> &Line {
        &self.line
    }

    /// Refuses a line of translators that does not end in the version the host itself speaks.
    pub fn ends_in(&self, native: ApiVersion) -> Result<(), CatalogError> {
        match self.translators.last() {
            Some(last) if last.manifest().onto != native => {
                Err(CatalogError::ApiEnd { file: last.file().to_owned(), onto: last.manifest().onto, native })
            }
            Some(_) | None => Ok(()),
        }
    }
}

fn refuse_unlisted(folder: &Path, entries: &[Entry]) -> Result<(), CatalogError> {
    let failed = |source| CatalogError::Read { path: folder.to_owned(), source };
    let listed: BTreeSet<&str> = entries.iter().map(|entry| entry.file.as_str()).collect();
    let mut found = BTreeSet::new();
    for file in std::fs::read_dir(folder).map_err(failed)? {
        found.insert(file.map_err(failed)?.file_name().to_string_lossy().into_owned());
    }
    match found.into_iter().find(|file| file.ends_with(".wasm") && !listed.contains(file.as_str())) {
        Some(file) => Err(CatalogError::Unlisted { folder: folder.to_owned(), file }),
        None => Ok(()),
    }
}

/// Opens the module of an entry: the file that is listed, and what it is listed as.
fn open(folder: &Path, entry: &Entry, sandbox: &Arc<Sandbox>) -> Result<Module, CatalogError> {
    let source = Source::read(&folder.join(&entry.file), sandbox).map_err(|error| match error {
        ComponentError::Read { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            CatalogError::Missing { folder: folder.to_owned(), file: entry.file.clone(), place: entry.place }
        }
        error => CatalogError::Module(error.into()),
    })?;
    if source.digest != entry.sha256 {
        return Err(CatalogError::Altered {
            file: entry.file.clone(),
            listed: entry.sha256.clone(),
            found: source.digest,
        });
    }
    let module = source.load(sandbox)?;
    let (honest, found) = match (&module, entry.place) {
        (Module::Migration(module), place) => {
            let version = module.manifest().version;
            let honest = matches!(place, Place::Migration { version: listed, .. } if listed == version);
            (honest, format!("migration {version}"))
        }
        (Module::Translator(module), place) => {
            let (serves, onto) = (module.manifest().serves, module.manifest().onto);
            (place == Place::Translator { serves, onto }, format!("translator {serves} to {onto}"))
        }
    };
    if !honest {
        return Err(CatalogError::Lie { file: entry.file.clone(), listed: entry.place, found });
    }
    Ok(module)
}
