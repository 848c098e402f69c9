//! The definitions of the columns that a migration writes, from the layouts on both of its sides: what its answers
//! are checked against.

use crate::layout::fold::Line;
use crate::layout::fold::access::needed_by_new_rows;
use crate::layout::manifest::{Access, Manifest};
use crate::layout::schema::Layout;
use crate::modules::answer::{Definitions, WrittenColumns};
use crate::modules::migration::Written;

/// What `manifest` writes in each direction. The line has it, so every column is there.
pub(super) fn columns(line: &Line, manifest: &Manifest) -> Written {
    let after = line.at(manifest.version).expect("the line was folded from this manifest");
    let before = line.before(manifest.version);
    Written { up: of_accesses(after, &manifest.up), down: of_accesses(before, &manifest.down) }
}

fn of_accesses(far: &Layout, accesses: &[Access]) -> WrittenColumns {
    let definitions = |access: &Access| {
        let table = &far.tables[&access.table];
        let column = |name| table.column(name).expect("the fold checked what is written").clone();
        let missing = needed_by_new_rows(table).find(|column| !access.writes.contains(&column.name));
        Definitions {
            columns: access.writes.iter().map(|name| column(name)).collect(),
            missing: missing.map(|column| column.name.clone()),
        }
    };
    accesses.iter().map(definitions).collect()
}
