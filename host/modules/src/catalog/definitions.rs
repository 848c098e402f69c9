//! The definitions of the columns that a migration writes, from the layouts before and after it;
//! outcomes are validated against them.

use bbs_lens::answer::written_columns;
use bbs_lens::layout::history::LayoutHistory;
use bbs_lens::layout::manifest::Manifest;

use crate::migration::WrittenDefinitions;

/// Returns the definitions for both directions. The manifest has to be part of `history`.
pub(super) fn columns(history: &LayoutHistory, manifest: &Manifest) -> WrittenDefinitions {
    let after = history
        .at(manifest.version)
        .expect("the layout history was built from this manifest");
    let before = history.before(manifest.version);
    WrittenDefinitions {
        up: written_columns(after, &manifest.up),
        down: written_columns(before, &manifest.down),
    }
}
