//! Which record version new rows get.

use bbs_lens::layout::manifest::Access;

use super::*;

fn manifest(version: DataVersion, changes: Vec<Change>, writes: &[(&str, &[&str])]) -> Manifest {
    let access = |(table, writes): &(&str, &[&str])| Access {
        table: (*table).to_owned(),
        reads: vec!["a".to_owned()],
        writes: writes.iter().map(|&name| name.to_owned()).collect(),
        encodings: Vec::new(),
        reshapes: false,
    };
    let up = writes.iter().map(access).collect();
    let (name, summary) = (String::new(), String::new());
    Manifest {
        version,
        name,
        summary,
        changes,
        up,
        down: Vec::new(),
        reversible: true,
        leaves_residue: false,
        removes_rows: false,
    }
}

#[test]
fn table_has_the_version_of_the_last_function_that_wrote_to_it_under_any_name() {
    let renamed = Change::RenameTable {
        from: "apps".into(),
        to: "programs".into(),
    };
    let line = [
        manifest(1, Vec::new(), &[]),
        manifest(2, Vec::new(), &[("apps", &["b"]), ("tasks", &[])]),
        manifest(3, Vec::new(), &[("others", &["b"])]),
        manifest(4, vec![renamed], &[]),
    ];
    let at = |version, table| RecordVersions::at(&line, version).of(table);
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
        RecordVersions::at(&line, 4)
    );
}
