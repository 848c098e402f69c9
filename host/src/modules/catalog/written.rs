//! The definitions of the columns that a migration writes, from the layouts on both of its sides: what its answers
//! are checked against.

use crate::layout::fold::Line;
use crate::layout::manifest::{Access, Manifest};
use crate::layout::schema::{Column, Layout};
use crate::modules::migration::Written;

/// What `manifest` writes in each direction. The line has it, so every column is there.
pub(super) fn columns(line: &Line, manifest: &Manifest) -> Written {
    let after = line.at(manifest.version).expect("the line was folded from this manifest");
    let before = line.before(manifest.version);
    Written { up: of_accesses(after, &manifest.up), down: of_accesses(before, &manifest.down) }
}

fn of_accesses(far: &Layout, accesses: &[Access]) -> Vec<Vec<Column>> {
    let column = |access: &Access, name: &String| {
        let table = far.tables.get(&access.table);
        table.and_then(|table| table.column(name)).expect("the fold checked what is written").clone()
    };
    accesses.iter().map(|access| access.writes.iter().map(|name| column(access, name)).collect()).collect()
}
