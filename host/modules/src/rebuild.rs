//! Builds the modules of a folder again and compares their digests with those of its catalog. Owns
//! the comparison; the folder is only read.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bbs_work::progress::Progress;
use serde::Serialize;

use super::build::{self, BuildError, SourceError};
use super::catalog::{Catalog, CatalogError};
use super::sandbox::Sandbox;

/// Why the modules of a folder could not be compared with their sources.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    #[error("the folder {} is not a valid catalog with its modules", .folder.display())]
    Folder {
        folder: PathBuf,
        source: Box<CatalogError>,
    },
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Build(#[from] BuildError),
}

/// One module of the folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RebuiltModule {
    /// Its file name in the folder.
    pub file: String,
    /// The digest that the catalog lists and the file has.
    pub sha256: String,
    /// The result of building it again.
    pub outcome: RebuildOutcome,
}

/// The result of building a module again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RebuildOutcome {
    /// The build has the same digest.
    Equal,
    /// The build has another digest.
    Differs {
        /// The digest of the build.
        built: String,
    },
    /// No source is of this migration or translator.
    NoSource,
}

/// Builds all crates of the sources, and returns each module of the folder, in catalog order, with
/// the result. A source is a crate, or a repository with a list of modules. Crates that lead to no
/// module of the folder are ignored.
///
/// # Errors
/// If the folder has missing, altered or unlisted files, or a crate cannot be built.
pub fn rebuild(
    folder: &Path,
    sources: &[PathBuf],
    sandbox: &Arc<Sandbox>,
    progress: &Progress,
) -> Result<Vec<RebuiltModule>, RebuildError> {
    let listed = Catalog::contents(folder, sandbox).map_err(|source| RebuildError::Folder {
        folder: folder.to_owned(),
        source: source.into(),
    })?;
    let crates = sources
        .iter()
        .map(|source| build::crates_of(source))
        .collect::<Result<Vec<_>, _>>()?
        .concat();
    let built = build::entries(&crates, sandbox, progress)?;
    let compared = listed.into_iter().map(|(entry, _)| {
        let outcome = match built
            .iter()
            .find(|built| built.position.is_same(entry.position))
        {
            Some(built) if built.sha256 == entry.sha256 => RebuildOutcome::Equal,
            Some(built) => RebuildOutcome::Differs {
                built: built.sha256.clone(),
            },
            None => RebuildOutcome::NoSource,
        };
        RebuiltModule {
            file: entry.file,
            sha256: entry.sha256,
            outcome,
        }
    });
    Ok(compared.collect())
}
