//! Which record version new rows get.

use bbs_lens::layout::manifest::Access;

use super::*;

fn writes(table: &str, columns: &[&'static str]) -> Access {
    Access::to(table)
        .reads(["a"])
        .writes(columns.iter().copied())
}

#[test]
fn table_has_the_version_of_the_last_function_that_wrote_to_it_under_any_name() {
    let manifests = [
        manifest(1),
        manifest(2)
            .up(writes("apps", &["b"]))
            .up(writes("tasks", &[])),
        manifest(3).up(writes("others", &["b"])),
        manifest(4).rename_table("apps", "programs"),
    ];
    let at = |version, table| RecordVersions::at(&manifests, version).of(table);
    assert_eq!(
        [at(1, "apps"), at(2, "apps"), at(3, "apps"), at(4, "apps")],
        [None, Some(2), Some(2), None]
    );
    assert_eq!(
        (at(4, "programs"), at(4, "tasks"), at(4, "others")),
        (Some(2), None, Some(3))
    );
    let listed = [("programs".to_owned(), 2), ("others".to_owned(), 3)];
    assert_eq!(
        RecordVersions::from_iter(listed),
        RecordVersions::at(&manifests, 4)
    );
}
