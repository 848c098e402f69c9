//! What every test of the suite starts from: temporary folders, the built modules, the fixture
//! database, the host as a process. Waits for conditions, never for time.

use std::path::{Path, PathBuf};

pub mod fixture;
pub mod host;
pub mod load;
pub mod modules;
pub mod server;
pub mod stored;

/// The root of the workspace.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the host is a folder of the workspace").to_owned()
}

/// The host's executable.
pub fn bbs() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_bbs"))
}
