//! The catalog: the ordered, digest-pinned modules of one or several folders. Owns every reason to refuse a folder; all are
//! found before the lock is taken or the database is read.

mod definitions;
mod entries;
mod merge;
mod sequence;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::merge::{ListedCatalog, ListedModule};
use super::migration::MigrationModule;
use super::module::{Module, ModuleError, ModuleSource};
use super::releases::ReleaseDigests;
use super::sandbox::{ComponentError, Sandbox};
use super::translate::{ApiVersion, Translate};
use super::translator::TranslatorModule;
use crate::layout::history::{LayoutError, LayoutHistory};
use crate::layout::manifest::DataVersion;
use crate::lens::transform::Transform;
use crate::lens::{ComposeError, check_composition};
use crate::signatures::{ClaimedCatalog, NAME_RULE, SignatureError, TrustedKeys};

pub use self::entries::{CATALOG_FILE, CatalogContent, CatalogEntry, CatalogPosition, PreviousSignature};
pub(super) use self::entries::{is_file_name, is_sha256, parse, persist_readable, read, text, write, write_readable};
pub(super) use self::sequence::check_part;

/// The modules of one or several folders, migrations and translators each ordered oldest first.
#[derive(Debug, Default)]
pub struct Catalog {
    /// Number of folders that it was loaded from.
    folders: usize,
    migrations: Vec<Arc<MigrationModule>>,
    translators: Vec<Arc<TranslatorModule>>,
    line: LayoutHistory,
    serials: BTreeMap<String, u64>,
    releases: ReleaseDigests,
}

/// Why a folder of modules cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the variants")]
pub enum CatalogError {
    #[error("{} is not there; name a folder that `bbs module build --into` has written", .path.display())]
    NoCatalog { path: PathBuf },
    #[error("{} cannot be read; check its permissions", .path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("the signature of {} cannot be accepted", .path.display())]
    Signature { path: PathBuf, source: SignatureError },
    #[error("{} has the serial {serial}, which no database can remember; write at most {}", .path.display(), i64::MAX)]
    Serial { path: PathBuf, serial: u64 },
    #[error("{} pins a list of releases with a `releases` that is no sha256 of 64 lower-case hexadecimal digits", .path.display())]
    ReleasesDigest { path: PathBuf },
    #[error("{} names itself {name:?}; {NAME_RULE}", .path.display())]
    Name { path: PathBuf, name: String },
    #[error(
        "the catalogs in {} and {} both have the name {name}; remove the one that is not wanted, or sign one of them under \
         another name",
        .one.display(), .other.display()
    )]
    SameName { name: String, one: PathBuf, other: PathBuf },
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
        "{position} is in {} and, with other content, in {}; versions are unique: remove the package of one of them, and \
         let its author build it again with another version",
        .one.display(), .other.display()
    )]
    SamePosition { position: String, one: PathBuf, other: PathBuf },
    #[error(
        "{} and {} (migration {version}) were both built to follow {}; only one of them can: remove the package of the other, \
         and let its author build it again on top of these modules",
        .one.display(), .other.display(), version_or_nothing(*.follows)
    )]
    Fork { one: PathBuf, other: PathBuf, version: DataVersion, follows: Option<DataVersion> },
    #[error(
        "{} (migration {version}) was built to follow migration {missing}, which no folder of modules has; install the package \
         that has it, or remove this one",
        .path.display()
    )]
    Predecessor { path: PathBuf, version: DataVersion, missing: DataVersion },
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
    /// Loads every module of a folder, without verifying its signature.
    ///
    /// # Errors
    /// For the first reason to refuse the folder.
    pub fn load(folder: &Path, sandbox: &Arc<Sandbox>) -> Result<Self, CatalogError> {
        Self::merge(&[folder.to_owned()], &TrustedKeys::default(), sandbox)
    }

    /// Loads every module of several folders, whose migrations form one sequence. With any trusted key, each folder's catalog
    /// has to be signed by a key of its name.
    ///
    /// # Errors
    /// For the first reason to refuse a folder, or the folders together.
    pub fn merge(folders: &[PathBuf], keys: &TrustedKeys, sandbox: &Arc<Sandbox>) -> Result<Self, CatalogError> {
        Self::default().reload(folders, keys, sandbox)
    }

    /// Loads every module of several folders as [`Catalog::merge`] does, but keeps those of this catalog that are unchanged, with
    /// their instances.
    ///
    /// # Errors
    /// As [`Catalog::merge`].
    pub fn reload(
        &self,
        folders: &[PathBuf],
        keys: &TrustedKeys,
        sandbox: &Arc<Sandbox>,
    ) -> Result<Self, CatalogError> {
        let listed = folders.iter().map(|folder| listed(folder, keys)).collect::<Result<Vec<_>, _>>()?;
        let serials = listed.iter().filter_map(|catalog| catalog.verified.clone()).collect();
        let digests = listed.iter().filter_map(|catalog| Some((catalog.folder.clone(), catalog.releases.clone()?)));
        let releases = ReleaseDigests { by_folder: digests.collect(), are_required: !keys.is_empty() };
        let (mut migrations, mut translators) = (Vec::new(), Vec::new());
        let mut kept = 0;
        for ListedModule { folder, entry } in &merge::merge(listed)? {
            let source = read_listed(folder, entry, sandbox)?;
            // What a migration may write depends on those before it.
            let same =
                self.migrations.get(kept).filter(|same| kept == migrations.len() && same.digest() == source.digest);
            let module = match (same, self.translators.iter().find(|same| same.digest() == source.digest)) {
                (Some(same), _) => Module::Migration(Arc::clone(same)),
                (None, Some(same)) => Module::Translator(Arc::clone(same)),
                (None, None) => source.load(sandbox)?,
            };
            kept += usize::from(same.is_some());
            check_manifest(&module, entry)?;
            match module {
                Module::Migration(module) => migrations.push(module),
                Module::Translator(module) => translators.push(module),
            }
        }
        let line = LayoutHistory::new(migrations.iter().map(|module| module.manifest()))?;
        for module in &migrations[kept..] {
            module.expect(definitions::columns(&line, module.manifest()));
        }
        let transforms: Vec<_> = migrations.iter().map(|module| Arc::clone(module) as Arc<dyn Transform>).collect();
        check_composition(&line, &transforms)?;
        Ok(Self { folders: folders.len(), migrations, translators, line, serials, releases })
    }

    /// The number of folders that it was loaded from.
    pub fn folders(&self) -> usize {
        self.folders
    }

    /// The digest of each migration, oldest first.
    pub fn migration_digests(&self) -> impl Iterator<Item = &str> {
        self.migrations.iter().map(|module| module.digest())
    }

    /// The files of the modules by their digests.
    pub fn files(&self) -> BTreeMap<&str, &str> {
        let migrations = self.migrations.iter().map(|module| (module.digest(), module.file()));
        migrations.chain(self.translators.iter().map(|module| (module.digest(), module.file()))).collect()
    }

    /// Returns the entries of a folder's catalog in order, without opening a module. `base` are folders that it continues.
    ///
    /// # Errors
    /// If a catalog cannot be read, the sequence has a gap, or a folder has an unlisted module.
    pub fn entries(folder: &Path, base: &[PathBuf]) -> Result<Vec<CatalogEntry>, CatalogError> {
        let CatalogContent { entries, .. } = listed_content(folder)?;
        check_sequence(folder, &entries, base)?;
        Ok(entries)
    }

    /// Returns the entries of several folders' catalogs, merged into one sequence, without opening a module.
    ///
    /// # Errors
    /// As [`Catalog::entries`].
    pub fn merged_entries(folders: &[PathBuf]) -> Result<Vec<CatalogEntry>, CatalogError> {
        Ok(merge::merge(unverified(folders)?)?.into_iter().map(|module| module.entry).collect())
    }

    /// The newest version of the migrations in several folders.
    ///
    /// # Errors
    /// As [`Catalog::entries`].
    pub(super) fn newest_of(folders: &[PathBuf]) -> Result<Option<DataVersion>, CatalogError> {
        let versions = Self::merged_entries(folders)?.into_iter().filter_map(|entry| match entry.position {
            CatalogPosition::Migration { version, .. } => Some(version),
            CatalogPosition::Translator { .. } => None,
        });
        Ok(versions.max())
    }

    /// Returns the entries of a folder's catalog in order, each with the content of its file, which has the listed digest. Runs
    /// and compiles no module. The folder may be an add-on, which continues others.
    ///
    /// # Errors
    /// As [`Catalog::entries`]; if a file is missing, cannot be read or has another digest.
    pub fn contents(folder: &Path, sandbox: &Sandbox) -> Result<Vec<(CatalogEntry, Vec<u8>)>, CatalogError> {
        let CatalogContent { entries, .. } = listed_content(folder)?;
        sequence::check_part(&entries)?;
        entries
            .into_iter()
            .map(|entry| read_listed(folder, &entry, sandbox).map(|source| (entry, source.bytes)))
            .collect()
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

    /// The serials of the catalogs whose signature was verified, by name.
    pub fn serials(&self) -> &BTreeMap<String, u64> {
        &self.serials
    }

    /// The digests of the folders' lists of releases.
    pub fn release_digests(&self) -> &ReleaseDigests {
        &self.releases
    }

    /// Checks that the line of translators ends in a version that the host speaks itself.
    ///
    /// # Errors
    /// [`CatalogError::ApiEnd`] if it does not.
    pub fn ends_in(&self, native: ApiVersion) -> Result<(), CatalogError> {
        let is_of_line = |module: &&Arc<TranslatorModule>| module.manifest().serves.side.is_none();
        match self.translators.iter().rfind(is_of_line) {
            Some(last) if last.manifest().onto != native => {
                Err(CatalogError::ApiEnd { file: last.file().to_owned(), onto: last.manifest().onto, native })
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// The catalog of a folder, which lists every module there. With any trusted key, its signature is verified, over the same
/// bytes that are parsed.
fn listed(folder: &Path, keys: &TrustedKeys) -> Result<ListedCatalog, CatalogError> {
    let (path, text) = (folder.join(CATALOG_FILE), entries::read_text(folder)?);
    let CatalogContent { name, serial, releases, entries } = entries::parse(&path, &text)?;
    let mut verified = None;
    if !keys.is_empty() {
        let claimed = ClaimedCatalog { name: name.as_deref(), serial, content: text.as_bytes() };
        let found = keys.verify(folder, claimed).map_err(|source| CatalogError::Signature { path, source })?;
        verified = Some((found.0.to_owned(), found.1));
    }
    refuse_unlisted(folder, &entries)?;
    Ok(ListedCatalog { folder: folder.to_owned(), name, entries, releases, verified })
}

/// The content of a folder's catalog, which lists every module there.
fn listed_content(folder: &Path) -> Result<CatalogContent, CatalogError> {
    let content = entries::read(folder)?;
    refuse_unlisted(folder, &content.entries)?;
    Ok(content)
}

fn unverified(folders: &[PathBuf]) -> Result<Vec<ListedCatalog>, CatalogError> {
    folders.iter().map(|folder| listed(folder, &TrustedKeys::default())).collect()
}

/// Checks the sequence of a folder with these entries on top of the folders that it continues.
///
/// # Errors
/// If it has a gap, or a catalog of `base` cannot be read.
pub(super) fn check_sequence(folder: &Path, entries: &[CatalogEntry], base: &[PathBuf]) -> Result<(), CatalogError> {
    let mut catalogs = unverified(base)?;
    let (folder, entries) = (folder.to_owned(), entries.to_owned());
    catalogs.push(ListedCatalog { folder, name: None, entries, releases: None, verified: None });
    merge::merge(catalogs).map(drop)
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

/// Reads the file of an entry, and checks that its digest matches the entry.
fn read_listed(folder: &Path, entry: &CatalogEntry, sandbox: &Sandbox) -> Result<ModuleSource, CatalogError> {
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
    Ok(source)
}

/// Checks that the manifest of a module matches its entry.
fn check_manifest(module: &Module, entry: &CatalogEntry) -> Result<(), CatalogError> {
    let (matches, found) = match (module, entry.position) {
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
    Ok(())
}
