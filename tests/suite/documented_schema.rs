//! The layouts of the default catalog against Diego's documented schema, and what its migrations
//! declare.

use bbs::testing::modules::catalog::Catalog;
use bbs_lens::layout::schema::{ColumnType, Layout, Literal, Sealing, Table};
use bbs_lens::transform::Transform;

use crate::harness::fixture::DIEGOS_NEWEST;
use crate::harness::modules::{modules, modules_with_next_diego, sandbox};
use crate::harness::workspace;
use crate::next_diego::{GPU, NEWEST};

/// Diego's schema after its last migration, with this project's columns and tables, as authors of
/// migrations read it.
const PAGE: &str = include_str!("../../sdk/LAYOUT.md");

/// Formats a table as in the list of the page, without padding.
fn shown(table: &Table) -> Vec<String> {
    let partition = table
        .partition_key
        .as_ref()
        .map_or("-".to_owned(), |column| format!("partition {column}"));
    let mut lines = vec![format!(
        "{}: {} {partition}",
        table.name,
        table.primary_key.join(",")
    )];
    for column in &table.columns {
        let kind = match column.kind {
            ColumnType::Boolean => "bool".to_owned(),
            ColumnType::Integer => "int".to_owned(),
            ColumnType::BigInteger => "bigint".to_owned(),
            ColumnType::Varchar(length) => format!("varchar({length})"),
            ColumnType::Text => "text".to_owned(),
            ColumnType::MediumText => "mediumtext".to_owned(),
            ColumnType::LongText => "longtext".to_owned(),
        };
        let mut line = format!(
            "{} {kind} {}",
            column.name,
            if column.nullable { "null" } else { "not-null" }
        );
        match &column.default {
            None => {}
            Some(Literal::Boolean(value)) => line += &format!(" default {value}"),
            Some(Literal::Integer(value)) => line += &format!(" default {value}"),
            Some(Literal::Text(value)) => line += &format!(" default '{value}'"),
        }
        line += match column.sealing {
            Sealing::Plain => "",
            Sealing::Sealed => " sealed",
            Sealing::Enveloped => " enveloped",
        };
        lines.push(line);
    }
    lines.extend(
        table
            .indexes
            .iter()
            .map(|index| format!("index {} {}", index.name, index.columns.join(","))),
    );
    lines
}

/// The listed tables, one list of lines each, without padding.
fn listed() -> Vec<Vec<String>> {
    let (_, list) = PAGE.split_once("\n```text\n").expect("the page has a list");
    let (list, _) = list.split_once("\n```").expect("the list ends");
    let mut tables: Vec<Vec<String>> = Vec::new();
    for line in list.lines() {
        let words = line.split_whitespace().collect::<Vec<_>>().join(" ");
        if line.starts_with(' ') {
            let table = tables.last_mut().expect("a table before its columns");
            table.push(words);
        } else {
            tables.push(vec![words]);
        }
    }
    tables.sort();
    tables
}

fn catalog() -> Catalog {
    Catalog::load(&modules(), &sandbox()).expect("the default catalog loads")
}

fn layout_at(catalog: &Catalog, version: u64) -> &Layout {
    let layout = catalog.layout_history().at(version);
    layout.unwrap_or_else(|| panic!("the catalog has no version {version}"))
}

#[test]
fn migrations_add_up_to_the_documented_schema() {
    let catalog = catalog();
    let layout = layout_at(&catalog, catalog.layout_history().newest());
    let mut tables: Vec<_> = layout.tables.values().map(shown).collect();
    tables.sort();
    for (found, listed) in tables.iter().zip(listed()) {
        assert_eq!(*found, listed);
    }
    assert_eq!(tables.len(), listed().len());
    let newest = catalog.layout_history().newest();
    assert!(PAGE.contains(&newest.to_string()), "{newest}");
}

#[test]
fn first_version_has_the_original_column_sizes() {
    let catalog = catalog();
    let layout = layout_at(&catalog, 1_461_790_966);
    let kind = |table: &str, column: &str| {
        let found = layout.tables[table]
            .columns
            .iter()
            .find(|found| found.name == column);
        found.unwrap_or_else(|| panic!("no {column}")).kind
    };
    for (table, column) in [
        ("desired_lrps", "rootfs"),
        ("actual_lrps", "placement_error"),
        ("actual_lrps", "crash_reason"),
        ("tasks", "failure_reason"),
    ] {
        assert_eq!(kind(table, column), ColumnType::Varchar(255), "{column}");
    }
    for (table, column) in [
        ("desired_lrps", "annotation"),
        ("desired_lrps", "routes"),
        ("desired_lrps", "volume_placement"),
        ("desired_lrps", "run_info"),
        ("actual_lrps", "net_info"),
        ("tasks", "result"),
        ("tasks", "task_definition"),
    ] {
        assert_eq!(kind(table, column), ColumnType::MediumText, "{column}");
    }
    assert_eq!(
        layout.tables["actual_lrps"].primary_key,
        ["process_guid", "instance_index", "evacuating"]
    );
    let routes = &layout.tables["desired_lrps"].columns[8];
    assert_eq!(
        (routes.name.as_str(), routes.sealing),
        ("routes", Sealing::Plain)
    );
    let columns = layout
        .tables
        .values()
        .map(|table| (table.columns.len(), table.indexes.len()));
    assert_eq!(
        columns.collect::<Vec<_>>(),
        [(15, 5), (13, 1), (2, 1), (11, 6)],
        "columns and indexes of each table"
    );
}

#[test]
fn crates_are_listed_by_version_and_named_after_it() {
    let list = std::fs::read_to_string(workspace().join("migrations-wasm/catalog.toml")).unwrap();
    let listed: Vec<_> = list
        .lines()
        .filter_map(|line| line.strip_prefix("crate = \"data/"))
        .map(|line| line.trim_end_matches('"'))
        .collect();
    let catalog = catalog();
    let named = catalog.migrations().iter().map(|module| {
        let manifest = module.manifest();
        format!("{}-{}", manifest.version, manifest.name.replace('-', "_"))
    });
    assert_eq!(listed, named.collect::<Vec<_>>());
    assert!(listed.is_sorted());
}

#[test]
fn only_the_first_is_irreversible_and_only_four_transform_rows() {
    let catalog = catalog();
    let manifests = || catalog.migrations().iter().map(|module| module.manifest());
    let irreversible = manifests().filter(|manifest| !manifest.reversible);
    let irreversible: Vec<_> = irreversible.map(|manifest| manifest.version).collect();
    assert_eq!(irreversible, [1_461_790_966]);
    let transforming: Vec<_> = manifests()
        .filter(|manifest| !manifest.up.is_empty() || !manifest.down.is_empty())
        .map(|manifest| (manifest.name.as_str(), manifest.leaves_residue))
        .collect();
    let named = [
        "add-presence-to-actual-lrp",
        "add-routable-to-actual-lrps",
        "split-metric-tags",
        "lrp-definitions",
    ];
    assert_eq!(transforming, named.map(|name| (name, true)));
}

/// Goal: a migration that is inserted below others adds its columns at its place, and leaves the
/// rest of their layout unchanged; an empty one above them changes no layout.
#[test]
fn inserted_migration_adds_its_columns_to_the_layouts_above_it() {
    let columns = ["gpu_limit", "gpu_type"];
    let names = |layout: &Layout| -> Vec<String> {
        let table = &layout.tables["desired_lrps"];
        table
            .columns
            .iter()
            .map(|column| column.name.clone())
            .collect()
    };
    let without = catalog();
    let with = Catalog::load(&modules_with_next_diego(), &sandbox()).expect("the catalog loads");
    let versions: Vec<_> = with
        .migrations()
        .iter()
        .map(|module| module.manifest().version)
        .collect();
    let place = versions
        .iter()
        .position(|version| *version == GPU)
        .expect("the migration");
    assert_eq!(
        versions[place - 1],
        DIEGOS_NEWEST,
        "the last migration that Diego has released"
    );
    let newest = without.layout_history().newest();
    let with_columns = names(layout_at(&with, newest));
    let at = |name: &str| {
        with_columns
            .iter()
            .position(|column| column == name)
            .expect(name)
    };
    assert_eq!(at("gpu_limit"), at("update_strategy") + 1);
    assert_eq!(at("record_version"), at("gpu_type") + 1);
    let mut others = with_columns.clone();
    others.retain(|name| !columns.contains(&name.as_str()));
    assert_eq!(others, names(layout_at(&without, newest)));
    assert_eq!(with.layout_history().newest(), NEWEST);
    assert_eq!(layout_at(&with, NEWEST), layout_at(&with, newest));
}
