//! The definitions of the columns that a migration writes, from the layouts before and after it;
//! outcomes are validated against them.

use bbs_lens::layout::history::LayoutHistory;
use bbs_lens::layout::history::needed_by_new_rows;
use bbs_lens::layout::manifest::{Access, Manifest};
use bbs_lens::layout::schema::Layout;

use crate::answer::{Definitions, WrittenColumns};
use crate::migration::WrittenDefinitions;

/// Returns the definitions for both directions. The manifest has to be part of `history`.
pub(super) fn columns(history: &LayoutHistory, manifest: &Manifest) -> WrittenDefinitions {
    let after = history
        .at(manifest.version)
        .expect("the layout history was built from this manifest");
    let before = history.before(manifest.version);
    WrittenDefinitions {
        up: of_accesses(after, &manifest.up),
        down: of_accesses(before, &manifest.down),
    }
}

fn of_accesses(target: &Layout, accesses: &[Access]) -> WrittenColumns {
    accesses
        .iter()
        .map(|access| {
            let table = &target.tables[&access.table];
            let column = |name| {
                table
                    .find_column(name)
                    .expect("the layout history was checked for the written columns")
                    .clone()
            };
            let missing =
                needed_by_new_rows(table).find(|column| !access.writes.contains(&column.name));
            Definitions {
                columns: access.writes.iter().map(|name| column(name)).collect(),
                missing: missing.map(|column| column.name.clone()),
            }
        })
        .collect()
}
