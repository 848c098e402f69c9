//! The laws, and that the migration is the newest one and changes no layout.

use bbs_sdk::testing::{Laws, Layout};
use bbs_sdk::{Column, Migration, Table};

use super::AfterGpu;

#[test]
fn laws() {
    let table = Table::new("desired_lrps")
        .column(Column::varchar("process_guid", 255))
        .primary_key(["process_guid"])
        .partition_key("process_guid");
    Laws::<AfterGpu>::over(Layout::of([table]))
        .check()
        .unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn newest_version_leaves_the_layout_unchanged() {
    let manifests = migrations_line::manifests();
    let after = AfterGpu::manifest();
    assert!(
        manifests
            .iter()
            .all(|manifest| manifest.version < after.version)
    );
    let before = Layout::after(&manifests).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(before.apply(&after), Ok(before));
}
