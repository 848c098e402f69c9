//! Changes nothing. A host that is given a migration below the version of its database inserts it
//! on the way to a newer version; until this project has one, this is that version. Not in the
//! default catalog: tests add it to a modules folder.

use bbs_sdk::{Manifest, Migration, export_migration};

#[derive(Debug)]
pub struct AfterGpu;

impl Migration for AfterGpu {
    fn manifest() -> Manifest {
        Manifest::new(1_795_000_020, "after-gpu").summary("Changes nothing")
    }
}

export_migration!(AfterGpu);

#[cfg(test)]
mod tests;
