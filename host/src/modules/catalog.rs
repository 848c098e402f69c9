//! The catalog: the ordered, digest-pinned modules of one folder. Owns every reason to refuse a folder; all of them are
//! found before the lock is taken or the database is read.

mod definitions;
mod entries;
mod sequence;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::migration::MigrationModule;
use super::module::{Module, ModuleError, ModuleSource};
use super::sandbox::{ComponentError, Sandbox};
use super::translate::{ApiVersion, Translate};
use super::translator::TranslatorModule;
use crate::layout::history::{LayoutError, LayoutHistory};
use crate::layout::manifest::DataVersion;
use crate::lens::transform::Transform;
use crate::lens::{ComposeError, check_composition};

pub use self::entries::{CATALOG_FILE, CatalogEntry, CatalogPosition};
pub(super) use self::entries::{is_file_name, persist_readable, read, write};
pub(super) use self::sequence::check as check_sequence;

/// The modules of one folder, migrations and translators each ordered oldest first.
#[derive(Debug)]
pub struct Catalog {
    migrations: Vec<Arc<MigrationModule>>,
    translators: Vec<Arc<TranslatorModule>>,
    line: LayoutHistory,
}

/// Why a folder of modules cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the variants")]
pub enum CatalogError {
    #[error("{} is not there; name a folder that `bbs module build --into` has written", .path.display())]
    NoCatalog { path: PathBuf },
    #[error("{} cannot be read; check its permissions", .path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{} is not a catalog; write it again with `bbs module build`", .path.display())]
    Syntax { path: PathBuf, source: Box<toml::de::Error> },
    #[error("{}: the entry of {file:?} is not valid: {what}; write it again with `bbs module build`", .path.display())]
    Entry { path: PathBuf, file: String, what: &'static str },
    #[error("{file} is listed twice; delete one of its entries from the catalog")]
    ListedTwice { file: String },
    #[error(
        "{file} is in the folder {0}, but not in its catalog; list it with `bbs module add {0}/{file} --into {0}`, or delete it",
        .folder.display()
    )]
    Unlisted { folder: PathBuf, file: String },
    #[error("{file} is listed ({position}), but is not in the folder {}; restore the file, or rebuild the folder", .folder.display())]
    Missing { folder: PathBuf, file: String, position: String },
    #[error(
        "{file} was altered: its sha256 is {found}, the catalog says {listed}; \
         restore the original, or rebuild the folder if the change is intended"
    )]
    Altered { file: String, listed: String, found: String },
    #[error(
        "{file} leads to version {version}, as an earlier module does; versions are unique, so build it with another"
    )]
    VersionTwice { file: String, version: DataVersion },
    #[error("{file} serves API version {serves}, as an earlier module does; keep one of the two")]
    ServedTwice { file: String, serves: ApiVersion },
    #[error(
        "{file} ({version}) is listed after {before}; a catalog lists migrations and translators each oldest first, so move its entry"
    )]
    OutOfOrder { file: String, version: String, before: String },
    #[error(
        "{file} (migration {version}) was built to follow {}, but in the catalog it follows {}; \
         restore the migrations that are missing between them, or rebuild the folder",
        version_or_nothing(*.follows),
        version_or_nothing(*.before)
    )]
    DataGap { file: String, version: DataVersion, follows: Option<DataVersion>, before: Option<DataVersion> },
    #[error(
        "{file} serves API version {serves}, and the translator before it needs {wanted}; \
         restore the translator that serves {wanted}: only the oldest translators of the chain may be left out"
    )]
    ApiGap { file: String, serves: ApiVersion, wanted: ApiVersion },
    #[error(
        "{file} serves {serves}, a side shape of API version {onto}, which no other module leads to; \
         add the translator that serves {onto}, or remove this one"
    )]
    SideGap { file: String, serves: ApiVersion, onto: ApiVersion },
    #[error(
        "the newest translator, {file}, is written for API version {onto}, and this host speaks {native}; \
         add the translators in between, or use the modules that belong to this host"
    )]
    ApiEnd { file: String, onto: ApiVersion, native: ApiVersion },
    #[error("a module of the folder cannot be used")]
    Module(#[from] ModuleError),
    #[error("{file} is {found} according to its manifest, but the catalog lists it as {listed}; rebuild the folder")]
    ManifestMismatch { file: String, listed: String, found: String },
    #[error("the layout changes of the folder's migrations do not fit together")]
    Layout(#[from] LayoutError),
    #[error("the folder's migrations do not fit together")]
    Compose(#[from] ComposeError),
}

fn version_or_nothing(version: Option<DataVersion>) -> String {
    version.map_or_else(|| "nothing".to_owned(), |version| version.to_string())
}

impl Catalog {
    /// Loads every module of a folder.
    ///
    /// # Errors
    /// For the first reason to refuse the folder.
    pub fn load(folder: &Path, sandbox: &Arc<Sandbox>) -> Result<Self, CatalogError> {
        let entries = entries::read(folder)?;
        refuse_unlisted(folder, &entries)?;
        sequence::check(&entries)?;
        let (mut migrations, mut translators) = (Vec::new(), Vec::new());
        for entry in &entries {
            match open(folder, entry, sandbox)? {
                Module::Migration(module) => migrations.push(module),
                Module::Translator(module) => translators.push(module),
            }
        }
        let line = LayoutHistory::new(migrations.iter().map(|module| module.manifest()))?;
        for module in &migrations {
            module.expect(definitions::columns(&line, module.manifest()));
        }
        let transforms: Vec<_> = migrations.iter().map(|module| Arc::clone(module) as Arc<dyn Transform>).collect();
        check_composition(&line, &transforms)?;
        Ok(Self { migrations, translators, line })
    }

    /// Returns the entries of a folder's catalog in order, without opening a module.
    ///
    /// # Errors
    /// If the catalog cannot be read, its sequence has a gap, or the folder has an unlisted module.
    pub fn entries(folder: &Path) -> Result<Vec<CatalogEntry>, CatalogError> {
        let entries = entries::read(folder)?;
        refuse_unlisted(folder, &entries)?;
        sequence::check(&entries)?;
        Ok(entries)
    }

    /// The migrations, oldest first.
    pub fn migrations(&self) -> &[Arc<MigrationModule>] {
        &self.migrations
    }

    /// The translators, oldest first.
    pub fn translators(&self) -> &[Arc<TranslatorModule>] {
        &self.translators
    }

    /// The layout history: the layout at every version of the folder's migrations.
    pub fn layout_history(&self) -> &LayoutHistory {
        &self.line
    }

    /// Checks that the translator chain ends in the host's native API version.
    ///
    /// # Errors
    /// [`CatalogError::ApiEnd`] if it does not.
    pub fn ends_in(&self, native: ApiVersion) -> Result<(), CatalogError> {
        let is_of_line = |module: &&Arc<TranslatorModule>| module.manifest().serves.side.is_none();
        // Side shapes are of a version of the line; without one, of the native version.
        match self.translators.iter().rfind(is_of_line).or(self.translators.last()) {
            Some(last) if last.manifest().onto != native => {
                Err(CatalogError::ApiEnd { file: last.file().to_owned(), onto: last.manifest().onto, native })
            }
            Some(_) | None => Ok(()),
        }
    }
}

fn refuse_unlisted(folder: &Path, entries: &[CatalogEntry]) -> Result<(), CatalogError> {
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

/// Opens the module of an entry, and checks that its digest and manifest match the entry.
fn open(folder: &Path, entry: &CatalogEntry, sandbox: &Arc<Sandbox>) -> Result<Module, CatalogError> {
    let source = ModuleSource::read(&folder.join(&entry.file), sandbox).map_err(|error| match error {
        ComponentError::Read { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            let (file, position) = (entry.file.clone(), entry.position.to_string());
            CatalogError::Missing { folder: folder.to_owned(), file, position }
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
    let (matches, found) = match (&module, entry.position) {
        (Module::Migration(module), position) => {
            let version = module.manifest().version;
            let matches = matches!(position, CatalogPosition::Migration { version: listed, .. } if listed == version);
            (matches, format!("migration {version}"))
        }
        (Module::Translator(module), position) => {
            let (serves, onto) = (module.manifest().serves, module.manifest().onto);
            (position == CatalogPosition::Translator { serves, onto }, format!("translator {serves} to {onto}"))
        }
    };
    if !matches {
        let (file, listed) = (entry.file.clone(), entry.position.to_string());
        return Err(CatalogError::ManifestMismatch { file, listed, found });
    }
    Ok(module)
}
