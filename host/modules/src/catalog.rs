//! The catalog: the ordered, digest-pinned modules of one or several folders. Owns every reason to
//! refuse a folder; all are found before the lock is taken or the database is read.

mod entries;
mod error;
mod merge;
mod sequence;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bbs_lens::check_composition;
use bbs_lens::layout::history::LayoutHistory;
use bbs_lens::transform::Transform;

use self::merge::{ListedCatalog, ListedModule};
use super::migration::MigrationModule;
use super::module::{Module, ModuleSource};
use super::releases::ReleaseDigests;
use super::sandbox::{ComponentError, Sandbox};
use super::translate::{ApiVersion, Translate};
use super::translator::TranslatorModule;
use crate::signatures::{ClaimedCatalog, TrustedKeys};

pub use self::entries::{
    CATALOG_FILE, CatalogContent, CatalogEntry, CatalogPosition, PreviousSignature,
};
pub(super) use self::entries::{
    complete_file, is_file_name, is_sha256, lock, parse, persist_readable, read, text, write,
    write_readable,
};
pub use self::error::CatalogError;
pub(super) use self::sequence::check_part;

/// The modules of one or several folders, migrations and translators each ordered oldest first.
#[derive(Debug, Default)]
pub struct Catalog {
    /// Number of folders that it was loaded from.
    folders: usize,
    migrations: Vec<Arc<MigrationModule>>,
    translators: Vec<Arc<TranslatorModule>>,
    history: Arc<LayoutHistory>,
    serials: BTreeMap<String, u64>,
    releases: ReleaseDigests,
}

impl CatalogEntry {
    /// Creates the entry of a module, with a file name made of its versions and name.
    pub(crate) fn of(module: &Module, sha256: String) -> Self {
        let position = CatalogPosition::of(module);
        let file = match module {
            Module::Migration(module) => {
                let manifest = module.manifest();
                format!("{}-{}.wasm", manifest.version, manifest.name)
            }
            Module::Translator(module) => {
                let manifest = module.manifest();
                format!("{}-to-{}.wasm", manifest.serves, manifest.onto)
            }
        };
        Self {
            file,
            sha256,
            position,
        }
    }
}

impl CatalogPosition {
    /// The position that a manifest states, after no other module.
    fn of(module: &Module) -> Self {
        match module {
            Module::Migration(module) => Self::Migration {
                version: module.manifest().version,
                follows: None,
            },
            Module::Translator(module) => Self::Translator {
                serves: module.manifest().serves,
                onto: module.manifest().onto,
            },
        }
    }
}

impl Catalog {
    /// Loads every module of a folder, without verifying its signature.
    ///
    /// # Errors
    /// For the first reason to refuse the folder.
    pub fn load(folder: &Path, sandbox: &Arc<Sandbox>) -> Result<Self, CatalogError> {
        Self::merge(&[folder.to_owned()], &TrustedKeys::default(), sandbox)
    }

    /// Loads every module of several folders, whose migrations form one sequence. With any trusted
    /// key, each folder's catalog has to be signed by a key of its name.
    ///
    /// # Errors
    /// For the first reason to refuse a folder, or the folders together.
    pub fn merge(
        folders: &[PathBuf],
        keys: &TrustedKeys,
        sandbox: &Arc<Sandbox>,
    ) -> Result<Self, CatalogError> {
        Self::default().reload(folders, keys, sandbox)
    }

    /// Loads every module of several folders as [`Catalog::merge`] does, but keeps those of this
    /// catalog that are unchanged, with their idle instances. Each catalog has its own limit of
    /// running instances of a translator.
    ///
    /// # Errors
    /// As [`Catalog::merge`].
    pub fn reload(
        &self,
        folders: &[PathBuf],
        keys: &TrustedKeys,
        sandbox: &Arc<Sandbox>,
    ) -> Result<Self, CatalogError> {
        let listed = folders
            .iter()
            .map(|folder| listed(folder, keys))
            .collect::<Result<Vec<_>, _>>()?;
        let serials = listed
            .iter()
            .filter_map(|catalog| catalog.verified.clone())
            .collect();
        let digests = listed
            .iter()
            .filter_map(|catalog| Some((catalog.folder.clone(), catalog.releases.clone()?)));
        let releases = ReleaseDigests {
            by_folder: digests.collect(),
            are_required: !keys.is_empty(),
        };
        let mut migrations = Vec::new();
        let mut translators = Vec::new();
        let mut reused = 0;
        for ListedModule { folder, entry } in &merge::merge(listed)? {
            let source = read_listed(folder, entry, sandbox)?;
            // What a migration may write depends on those before it.
            let same = self
                .migrations
                .get(reused)
                .filter(|same| reused == migrations.len() && same.digest() == source.digest);
            let module = match (
                same,
                self.translators
                    .iter()
                    .find(|same| same.digest() == source.digest),
            ) {
                (Some(same), _) => Module::Migration(Arc::clone(same)),
                (None, Some(same)) => Module::Translator(Arc::new(same.reloaded())),
                (None, None) => source.load(sandbox)?,
            };
            reused += usize::from(same.is_some());
            check_manifest(&module, entry)?;
            match module {
                Module::Migration(module) => migrations.push(module),
                Module::Translator(module) => translators.push(module),
            }
        }
        let history = LayoutHistory::new(migrations.iter().map(|module| module.manifest()))?;
        for module in &migrations[reused..] {
            module.expect_columns(&history);
        }
        let transforms: Vec<_> = migrations
            .iter()
            .map(|module| Arc::clone(module) as Arc<dyn Transform>)
            .collect();
        check_composition(&history, &transforms)?;
        Ok(Self {
            folders: folders.len(),
            migrations,
            translators,
            history: Arc::new(history),
            serials,
            releases,
        })
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
        let migrations = self
            .migrations
            .iter()
            .map(|module| (module.digest(), module.file()));
        migrations
            .chain(
                self.translators
                    .iter()
                    .map(|module| (module.digest(), module.file())),
            )
            .collect()
    }

    /// Returns the entries of a folder's catalog in order, without opening a module. `base` are
    /// folders that it continues.
    ///
    /// # Errors
    /// If a catalog cannot be read, the sequence has a gap, or a folder has an unlisted module.
    pub fn entries(folder: &Path, base: &[PathBuf]) -> Result<Vec<CatalogEntry>, CatalogError> {
        let CatalogContent { entries, .. } = listed_content(folder)?;
        check_sequence(folder, &entries, base)?;
        Ok(entries)
    }

    /// Returns the entries of several folders' catalogs, merged into one sequence, without opening
    /// a module.
    ///
    /// # Errors
    /// As [`Catalog::entries`].
    pub fn merged_entries(folders: &[PathBuf]) -> Result<Vec<CatalogEntry>, CatalogError> {
        Ok(merge::merge(unverified(folders)?)?
            .into_iter()
            .map(|module| module.entry)
            .collect())
    }

    /// Returns the entries of a folder's catalog in order, each with the content of its file, which
    /// has the listed digest. Runs and compiles no module. The folder may be an add-on, which
    /// continues others.
    ///
    /// # Errors
    /// As [`Catalog::entries`]; if a file is missing, cannot be read or has another digest.
    pub fn contents(
        folder: &Path,
        sandbox: &Sandbox,
    ) -> Result<Vec<(CatalogEntry, Vec<u8>)>, CatalogError> {
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
    pub fn layout_history(&self) -> &Arc<LayoutHistory> {
        &self.history
    }

    /// The serials of the catalogs whose signature was verified, by name.
    pub fn serials(&self) -> &BTreeMap<String, u64> {
        &self.serials
    }

    /// The digests of the folders' lists of releases.
    pub fn release_digests(&self) -> &ReleaseDigests {
        &self.releases
    }

    /// Checks that the chain of translators ends in a version that the host speaks itself.
    ///
    /// # Errors
    /// [`CatalogError::ApiEnd`] if it does not.
    pub fn ends_in(&self, native: ApiVersion) -> Result<(), CatalogError> {
        match self
            .translators
            .iter()
            .rfind(|module| module.manifest().serves.side.is_none())
        {
            Some(last) if last.manifest().onto != native => Err(CatalogError::ApiEnd {
                file: last.file().to_owned(),
                onto: last.manifest().onto,
                native,
            }),
            Some(_) | None => Ok(()),
        }
    }
}

/// The catalog of a folder, which lists every module there. With any trusted key, its signature is
/// verified, over the same bytes that are parsed.
fn listed(folder: &Path, keys: &TrustedKeys) -> Result<ListedCatalog, CatalogError> {
    let path = folder.join(CATALOG_FILE);
    let text = entries::read_text(folder)?;
    let CatalogContent {
        name,
        serial,
        releases,
        entries,
    } = entries::parse(&path, &text)?;
    let mut verified = None;
    if !keys.is_empty() {
        let claimed = ClaimedCatalog {
            name: name.as_deref(),
            serial,
            content: text.as_bytes(),
        };
        let found = keys
            .verify(folder, claimed)
            .map_err(|source| CatalogError::Signature { path, source })?;
        verified = Some((found.0.to_owned(), found.1));
    }
    refuse_unlisted(folder, &entries)?;
    Ok(ListedCatalog {
        folder: folder.to_owned(),
        name,
        entries,
        releases,
        verified,
    })
}

/// The content of a folder's catalog, which lists every module there.
fn listed_content(folder: &Path) -> Result<CatalogContent, CatalogError> {
    let content = entries::read(folder)?;
    refuse_unlisted(folder, &content.entries)?;
    Ok(content)
}

fn unverified(folders: &[PathBuf]) -> Result<Vec<ListedCatalog>, CatalogError> {
    folders
        .iter()
        .map(|folder| listed(folder, &TrustedKeys::default()))
        .collect()
}

/// Checks the sequence of a folder with these entries on top of the folders that it continues.
///
/// # Errors
/// If it has a gap, or a catalog of `base` cannot be read.
pub(super) fn check_sequence(
    folder: &Path,
    entries: &[CatalogEntry],
    base: &[PathBuf],
) -> Result<(), CatalogError> {
    let mut catalogs = unverified(base)?;
    let folder = folder.to_owned();
    let entries = entries.to_owned();
    catalogs.push(ListedCatalog {
        folder,
        name: None,
        entries,
        releases: None,
        verified: None,
    });
    merge::merge(catalogs).map(drop)
}

/// Refuses files of a folder that look like modules and that no entry names.
pub(super) fn refuse_unlisted(folder: &Path, entries: &[CatalogEntry]) -> Result<(), CatalogError> {
    match unlisted(folder, entries)?.into_iter().next() {
        Some(file) => Err(CatalogError::Unlisted {
            folder: folder.to_owned(),
            file,
        }),
        None => Ok(()),
    }
}

/// The files of a folder that look like modules and that no entry names, in the order of their
/// names.
pub(super) fn unlisted(
    folder: &Path,
    entries: &[CatalogEntry],
) -> Result<Vec<String>, CatalogError> {
    let failed = |source| CatalogError::Read {
        path: folder.to_owned(),
        source,
    };
    let listed: BTreeSet<&str> = entries.iter().map(|entry| entry.file.as_str()).collect();
    let mut found = BTreeSet::new();
    for file in std::fs::read_dir(folder).map_err(failed)? {
        found.insert(
            file.map_err(failed)?
                .file_name()
                .to_string_lossy()
                .into_owned(),
        );
    }
    found.retain(|file| file.ends_with(".wasm") && !listed.contains(file.as_str()));
    Ok(found.into_iter().collect())
}

/// Reads the file of an entry, and checks that its digest matches the entry.
fn read_listed(
    folder: &Path,
    entry: &CatalogEntry,
    sandbox: &Sandbox,
) -> Result<ModuleSource, CatalogError> {
    let source =
        ModuleSource::read(&folder.join(&entry.file), sandbox).map_err(|error| match error {
            ComponentError::Read { source, .. }
                if source.kind() == std::io::ErrorKind::NotFound =>
            {
                let file = entry.file.clone();
                let position = entry.position.to_string();
                CatalogError::Missing {
                    folder: folder.to_owned(),
                    file,
                    position,
                }
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
    // Its text has only the version of a migration: others may have been inserted before it.
    let found = CatalogPosition::of(module).to_string();
    let listed = entry.position.to_string();
    if found == listed {
        return Ok(());
    }
    Err(CatalogError::ManifestMismatch {
        file: entry.file.clone(),
        listed,
        found,
    })
}
