//! Loads the catalog with every check that a host makes before it starts. `bbs module check` and `bbs module build` use the
//! same function.

use std::path::Path;
use std::sync::Arc;

use super::StartupError;
use crate::api::NATIVE;
use crate::modules::catalog::Catalog;
use crate::modules::sandbox::Sandbox;

/// Loads a folder. Compiles modules that are not in the cache, which takes seconds.
///
/// # Errors
/// Any reason for which a host does not start with this folder.
pub fn load(folder: &Path, sandbox: &Arc<Sandbox>) -> Result<Catalog, StartupError> {
    let refused = |source| StartupError::Catalog { folder: folder.to_owned(), source };
    let catalog = Catalog::load(folder, sandbox).map_err(refused)?;
    catalog.ends_in(NATIVE).map_err(refused)?;
    if catalog.migrations().is_empty() {
        return Err(StartupError::NoMigrations { folder: folder.to_owned() });
    }
    Ok(catalog)
}
