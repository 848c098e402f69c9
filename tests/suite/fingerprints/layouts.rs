//! The tables at each version of the database, according to the migrations of the default catalog.

use std::collections::BTreeMap;

use bbs::testing::modules::catalog::Catalog;
use bbs_lens::layout::schema::{Column, Table};
use bbs_lens::transform::Transform;

use super::{FingerprintKind, Subject, fingerprint};
use crate::harness::modules::{modules, sandbox};

pub(super) fn descriptions() -> BTreeMap<Subject, String> {
    let catalog = Catalog::load(&modules(), &sandbox()).unwrap();
    let mut descriptions = BTreeMap::new();
    for version in catalog
        .migrations()
        .iter()
        .map(|module| module.manifest().version)
    {
        let layout = catalog
            .layout_history()
            .at(version)
            .expect("the history has every version of the catalog");
        for (name, table) in &layout.tables {
            let subject = Subject {
                kind: FingerprintKind::Table,
                version: version.to_string(),
                name: name.clone(),
            };
            descriptions.insert(subject, described(table));
        }
    }
    descriptions
}

fn described(table: &Table) -> String {
    let Table {
        name,
        columns,
        primary_key,
        indexes,
        partition_key,
    } = table;
    let columns = columns.iter().map(|column| {
        let Column { name, kind, nullable, default, sealing } = column;
        format!("column {name} {kind:?} nullable: {nullable} default: {default:?} encryption: {sealing:?}\n")
    });
    let indexes = indexes
        .iter()
        .map(|index| format!("index {} {:?}\n", index.name, index.columns));
    let parts: String = columns.chain(indexes).collect();
    format!("table {name}\n{parts}primary key {primary_key:?}\npartition key {partition_key:?}\n")
}

/// Goal: no property of a table is left out of its fingerprint.
/// Method: changes one after the other; the fingerprints of all results differ.
#[test]
fn each_property_of_a_table_changes_its_fingerprint() {
    let catalog = Catalog::load(&modules(), &sandbox()).unwrap();
    let newest = catalog
        .layout_history()
        .at(catalog.layout_history().newest())
        .unwrap();
    let original = newest.tables["desired_lrps"].clone();
    assert!(!original.indexes.is_empty());
    let other = |name: &str| newest.tables["tasks"].find_column(name).unwrap().clone();
    let changes: [fn(&mut Table); 9] = [
        |table| table.columns.swap(0, 1),
        |table| table.columns[0].name.push('x'),
        |table| table.columns[0].nullable ^= true,
        |table| drop(table.columns.pop()),
        |table| table.primary_key.push("domain".to_owned()),
        |table| table.indexes[0].columns.push("domain".to_owned()),
        |table| table.indexes[0].name.push('x'),
        |table| drop(table.indexes.pop()),
        |table| table.partition_key = None,
    ];
    let mut tables = vec![original.clone()];
    tables.extend(changes.iter().map(|change| {
        let mut table = original.clone();
        change(&mut table);
        table
    }));
    // A type, a default and an encryption that the first column does not have.
    let plain = other("guid");
    let integer = other("created_at");
    let sealed = other("task_definition");
    for (kind, default, sealing) in [
        (integer.kind, plain.default.clone(), plain.sealing),
        (plain.kind, integer.default.clone(), plain.sealing),
        (plain.kind, plain.default.clone(), sealed.sealing),
    ] {
        let mut table = original.clone();
        table.columns[0] = Column {
            kind,
            default,
            sealing,
            ..plain.clone()
        };
        tables.push(table);
    }
    let fingerprints: std::collections::BTreeSet<_> = tables
        .iter()
        .map(|table| fingerprint(&described(table)))
        .collect();
    assert_eq!(fingerprints.len(), tables.len());
}
