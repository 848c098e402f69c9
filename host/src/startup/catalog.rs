//! The catalog as a host takes it: every reason for which a host would not start with a folder of modules. What checks a
//! folder before a host gets it goes the same way.

use std::path::Path;
use std::sync::Arc;

use super::StartupError;
use crate::api::NATIVE;
use crate::modules::catalog::Catalog;
use crate::modules::sandbox::Sandbox;

/// Loads a folder, or says why no host starts with it. Compiles what is not cached, which takes a while.
pub fn load(folder: &Path, sandbox: &Arc<Sandbox>) -> Result<Catalog, StartupError> {
    let refused = |source| StartupError::Catalog { folder: folder.to_owned(), source };
    let catalog = Catalog::load(folder, sandbox).map_err(refused)?;
    catalog.ends_in(NATIVE).map_err(refused)?;
    if catalog.migrations().is_empty() {
        return Err(StartupError::NoMigrations { folder: folder.to_owned() });
    }
    Ok(catalog)
}
