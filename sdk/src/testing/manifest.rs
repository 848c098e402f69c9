//! The declarations of a manifest that running a row function depends on, and that the host does
//! not need: how written columns are encoded whose values are all NULL.

use bbs_lens::layout::history::LayoutHistory;
use bbs_lens::layout::schema::Layout;

use crate::columns::Encoding;
use crate::manifest::{Direction, Manifest};

/// Checks that the encoding of every written column is known.
///
/// # Errors
/// The column, and what to declare.
pub(super) fn check(
    manifest: &Manifest,
    before: &Layout,
    layouts: &LayoutHistory,
) -> Result<(), String> {
    let after = layouts.at(manifest.version).expect("its own version");
    for (direction, layout) in [(Direction::Up, after), (Direction::Down, before)] {
        for access in manifest.accesses(direction) {
            let table = &layout.tables[&access.table];
            for (place, name) in access.writes.iter().enumerate() {
                let column = table.find_column(name).expect("the layout was checked");
                let encoding = Encoding::from(column.kind);
                match manifest.written_encoding(access, place) {
                    Some(declared) if declared != encoding => {
                        return Err(format!("{direction} writes `{name}` as {declared}"));
                    }
                    // The encoding of a column whose values are all NULL could not be determined.
                    None if !access.reads.contains(name) => {
                        return Err(format!(
                            "{direction} writes `{name}`: declare it as `Write::{encoding}(\"{name}\")`"
                        ));
                    }
                    _ => {}
                }
            }
        }
    }
    Ok(())
}
