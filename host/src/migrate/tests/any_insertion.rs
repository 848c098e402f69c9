//! Random catalogs of lossless and lossy migrations, of which some are inserted after the others
//! have run: the database equals one that ran the new catalog from the start, or the start refuses
//! and leaves it as it is.

use std::sync::Arc;

use bbs_lens::layout::columns::{Batch, Outcome, Written};
use bbs_lens::layout::history::LayoutHistory;
use bbs_lens::layout::manifest::{Access, Change, DataVersion, Direction, Manifest};
use bbs_lens::layout::schema::{Column, Layout, Sealing, Table};
use bbs_lens::layout::values::{ColumnBuilder, Encoding, Value};
use bbs_lens::transform::{RunArguments, Transform};
use proptest::prelude::*;

use super::migrations;
use super::world::TestEngine;
use crate::migrate::{MigrateError, layout_history};

/// The number of catalogs for each change, and with `tests/run --all`.
const CASES: [u32; 2] = [16, 48];
const APPS: usize = 4;

/// The change of a generated migration.
#[derive(Debug, Clone, Copy)]
enum Kind {
    AddColumn,
    AddComputedColumn,
    DropColumn,
    RenameColumn,
    RenameTable,
    CreateTable,
    DropTable,
    PrefixA,
    PrefixB,
    LowerCase,
    Seal,
    MoveColumn,
    Index,
    Nothing,
}

fn any_kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        3 => Just(Kind::AddColumn),
        2 => Just(Kind::AddComputedColumn),
        1 => Just(Kind::DropColumn),
        1 => Just(Kind::RenameColumn),
        1 => Just(Kind::RenameTable),
        2 => Just(Kind::CreateTable),
        1 => Just(Kind::DropTable),
        3 => Just(Kind::PrefixA),
        3 => Just(Kind::PrefixB),
        1 => Just(Kind::LowerCase),
        1 => Just(Kind::Seal),
        1 => Just(Kind::MoveColumn),
        1 => Just(Kind::Index),
        1 => Just(Kind::Nothing),
    ]
}

fn add_prefix(prefix: &[u8], direction: Direction, text: &[u8]) -> Vec<u8> {
    match direction {
        Direction::Up => [prefix, text].concat(),
        Direction::Down => text
            .strip_prefix(prefix)
            .expect("it was added on the way up")
            .to_vec(),
    }
}

/// The first column that is read becomes the one that is written.
fn mapped(batch: &Batch, map: impl Fn(&[u8]) -> Vec<u8>) -> Outcome {
    let table = &batch.tables[0];
    let mut column = ColumnBuilder::new(Encoding::Text);
    for row in 0..*table.unit_offsets.last().unwrap() as usize {
        match table.columns[0].get(Encoding::Text, row) {
            Value::Text(text) => column.push(Value::Text(&map(text))),
            other => column.push(other),
        }
    }
    Outcome {
        tables: vec![Written {
            shape: None,
            columns: vec![column.finish()],
        }],
        ..Outcome::default()
    }
}

fn prefix_a(direction: Direction, _: &RunArguments, batch: &Batch) -> Result<Outcome, String> {
    Ok(mapped(batch, |text| add_prefix(b"a:", direction, text)))
}

fn prefix_b(direction: Direction, _: &RunArguments, batch: &Batch) -> Result<Outcome, String> {
    Ok(mapped(batch, |text| add_prefix(b"b:", direction, text)))
}

fn compute(_: Direction, _: &RunArguments, batch: &Batch) -> Result<Outcome, String> {
    Ok(mapped(batch, |text| [b"of ", text].concat()))
}

/// Up: the domain in lower case, with the one before as residue. Down: that again.
fn lower_case(direction: Direction, _: &RunArguments, batch: &Batch) -> Result<Outcome, String> {
    let table = &batch.tables[0];
    let mut column = ColumnBuilder::new(Encoding::Text);
    let mut residue = Vec::new();
    for unit in 0..table.unit_offsets.len() - 1 {
        let mut left = None;
        for row in table.unit_offsets[unit]..table.unit_offsets[unit + 1] {
            let Value::Text(text) = table.columns[0].get(Encoding::Text, row as usize) else {
                return Err("NULL".into());
            };
            match direction {
                Direction::Up => {
                    left = Some(text.to_vec());
                    column.push(Value::Text(&text.to_ascii_lowercase()));
                }
                Direction::Down => {
                    let before = batch.residue.get(unit).and_then(Option::as_deref);
                    column.push(Value::Text(before.unwrap_or(text)));
                }
            }
        }
        residue.push(left);
    }
    Ok(Outcome {
        tables: vec![Written {
            shape: None,
            columns: vec![column.finish()],
        }],
        residue,
        ..Outcome::default()
    })
}

/// The table with the apps, whatever its name is.
fn apps(layout: &Layout) -> Option<&Table> {
    layout
        .tables
        .values()
        .find(|table| table.find_column("domain").is_some() && table.partition_key.is_some())
}

fn created(name: &str, version: DataVersion) -> Table {
    keyed_by_guid(name).column(Column::integer(&format!("of_{version}")).default(7))
}

fn keyed_by_guid(name: &str) -> Table {
    Table::new(name)
        .column(Column::varchar("guid", 255))
        .primary_key(["guid"])
        .partition_key("guid")
}

/// A migration of a kind, if the layout before it has what the kind needs.
fn migration(kind: Kind, version: DataVersion, before: &Layout) -> Option<Arc<dyn Transform>> {
    let table = apps(before)?;
    let access = |written: &str| Access::to(&table.name).reads(["domain"]).writes([written]);
    let manifest = migrations::manifest(version, "step");
    let function = |manifest: Manifest, function| {
        let domain = || access("domain");
        Some(migrations::native(
            manifest.up(domain()).down(domain()),
            function,
        ))
    };
    match kind {
        Kind::PrefixA => function(manifest, prefix_a),
        Kind::PrefixB => function(manifest, prefix_b),
        Kind::LowerCase => function(manifest.leaves_residue(), lower_case),
        Kind::AddComputedColumn => {
            let added = format!("computed_{version}");
            let manifest = manifest
                .add_column(&table.name, Column::long_text(&added).nullable())
                .up(access(&added));
            Some(migrations::native(manifest, compute))
        }
        _ => {
            let manifest = with_changes(manifest, kind, before, table)?;
            Some(migrations::native(manifest, migrations::none))
        }
    }
}

/// The manifest with the changes of a kind without a row function, if the layout has what they
/// need.
fn with_changes(
    manifest: Manifest,
    kind: Kind,
    before: &Layout,
    table: &Table,
) -> Option<Manifest> {
    let version = manifest.version;
    let name = &table.name;
    let has = |column: &str| {
        table
            .columns
            .iter()
            .find(|known| known.name.starts_with(column))
            .cloned()
    };
    let made = |suffix: &str| format!("{suffix}_{version}");
    Some(match kind {
        Kind::Nothing => manifest,
        Kind::AddColumn => manifest.add_column(name, Column::integer(&made("added")).default(0)),
        Kind::DropColumn => manifest.drop_column(name, &has("annotation")?.name),
        Kind::RenameColumn => manifest.rename_column(name, &has("routes")?.name, &made("routes")),
        Kind::RenameTable => manifest.rename_table(name, &made("apps")),
        Kind::CreateTable => manifest.create_table(created(&made("table"), version)),
        Kind::DropTable => {
            let mut tables = before.tables.keys();
            manifest.drop_table(tables.find(|table| table.starts_with("table_"))?)
        }
        Kind::Seal => {
            let routes = has("routes").filter(|column| column.sealing == Sealing::Plain)?;
            manifest.alter_column(name, routes.sealed())
        }
        Kind::MoveColumn => {
            let fixed = made("fixed");
            manifest.create_table(keyed_by_guid(&fixed)).move_column(
                &has("run_info")?.name,
                name,
                &fixed,
            )
        }
        Kind::Index => manifest.create_index(name, &made("index"), ["domain"]),
        Kind::PrefixA | Kind::PrefixB | Kind::LowerCase | Kind::AddComputedColumn => {
            unreachable!("it has a row function")
        }
    })
}

/// A catalog of these kinds at the versions from 2 on, without those that the layouts do not allow.
fn catalog(kinds: &[Kind]) -> Vec<Arc<dyn Transform>> {
    let mut catalog = vec![migrations::all().swap_remove(0)];
    for (kind, version) in kinds.iter().zip(2..) {
        let layouts = layout_history(&catalog).unwrap();
        let next = migration(*kind, version, layouts.at(layouts.newest()).unwrap());
        catalog.extend(next);
        if layout_history(&catalog).is_err() {
            catalog.pop();
        }
    }
    catalog
}

fn versions(catalog: &[Arc<dyn Transform>]) -> Vec<DataVersion> {
    catalog
        .iter()
        .map(|migration| migration.manifest().version)
        .collect()
}

async fn world_with(catalog: &[Arc<dyn Transform>], to: DataVersion) -> TestEngine {
    let mut world = TestEngine::with_rows(APPS).await;
    world
        .execute("UPDATE desired_lrps SET domain = 'Domain of ' || guid")
        .await;
    world.context.migrations = catalog.to_vec();
    world.up(to).await.unwrap();
    world
}

/// Writes of clients to columns and tables that a migration above `above` has added and that every
/// later layout has. Only these have the same meaning before and after an insertion; `of_apps` says
/// whether those of apps have.
async fn edit(
    world: &TestEngine,
    layout: &Layout,
    above: DataVersion,
    common: &Layout,
    of_apps: bool,
) {
    let newer = |name: &str| {
        name.rsplit_once('_')
            .is_some_and(|(_, version)| version.parse().is_ok_and(|v: u64| v > above))
    };
    for table in layout.tables.values() {
        let Some(kept) = common
            .tables
            .values()
            .find(|kept| kept.name == table.name || same_apps(kept, table))
        else {
            continue;
        };
        if table.name.starts_with("table_") && newer(&table.name) {
            world
                .execute(&format!(
                    "INSERT INTO {} (guid, of_{}) VALUES ('app-00001', 8)",
                    table.name,
                    &table.name[6..]
                ))
                .await;
        }
        for column in &table.columns {
            if of_apps
                && column.name.starts_with("added_")
                && newer(&column.name)
                && kept.find_column(&column.name).is_some()
            {
                world
                    .execute(&format!(
                        "UPDATE {} SET {} = 9 WHERE guid = 'app-00002'",
                        table.name, column.name
                    ))
                    .await;
            }
        }
    }
}

fn same_apps(one: &Table, other: &Table) -> bool {
    [one, other]
        .iter()
        .all(|table| table.find_column("domain").is_some() && table.partition_key.is_some())
}

fn cases() -> u32 {
    CASES[usize::from(std::env::var_os("BBS_TEST_ALL").is_some())]
}

/// Whether this case has a way; then the result is compared.
async fn insert(
    kinds: &[Kind],
    inserted: &[bool],
    end: Option<usize>,
    back: usize,
) -> Result<(), TestCaseError> {
    let whole = catalog(&[kinds, &[Kind::Nothing]].concat());
    let (newest, last) = (whole.len() - 1, whole.len() - 2);
    let is_inserted = |place: usize| {
        place > 0 && place < last && inserted.get(place).copied().unwrap_or_default()
    };
    let ran: Vec<_> = (0..newest)
        .filter(|place| !is_inserted(*place))
        .map(|place| Arc::clone(&whole[place]))
        .collect();
    let Some(first_inserted) = (0..last).find(|place| is_inserted(*place)) else {
        return Ok(());
    };
    let Ok(layouts) = LayoutHistory::new(ran.iter().map(|migration| migration.manifest())) else {
        return Ok(());
    };
    let (versions, from) = (versions(&whole), layouts.newest());
    let to = versions[end.map_or(newest, |end| first_inserted.max(end % whole.len()))];

    let changes_rows = |place: usize| {
        let manifest = whole[place].manifest();
        manifest.version > to && is_inserted(place) && !manifest.up.is_empty()
    };
    // Inserted on the way up again, it parts the rows that it changes from their saved values.
    if to < from && (0..last).any(changes_rows) {
        return Ok(());
    }

    let mut world = world_with(&ran, from).await;
    let reference = world_with(&whole, versions[newest]).await;
    let whole_layouts = layout_history(&whole).unwrap();
    let [source, target] = [
        layouts.at(from).unwrap(),
        whole_layouts.at(versions[newest]).unwrap(),
    ];
    // The values of a dropped column are given back to apps that have not changed since. In the one
    // database clients write before an inserted migration drops the column, in the other after it.
    let drops_column = |place: usize| {
        let changes = &whole[place].manifest().changes;
        is_inserted(place)
            && changes
                .iter()
                .any(|change| matches!(change, Change::DropColumn { .. }))
    };
    let of_apps = !(0..last).any(drops_column);
    let above = versions[first_inserted];
    edit(&world, source, above, target, of_apps).await;
    edit(&reference, target, above, source, of_apps).await;
    let before = world.everything().await;

    world.context.migrations.clone_from(&whole);
    let outcome = if to > from {
        world.up(to).await
    } else {
        world.down(to).await
    };
    if let Err(refused) = outcome {
        let is_known = matches!(
            refused,
            MigrateError::Inserted { .. } | MigrateError::Compose(_) | MigrateError::Stopped { .. }
        );
        prop_assert!(is_known, "{refused}");
        world.context.migrations = ran;
        prop_assert_eq!(world.version().await.0, from);
        prop_assert_eq!(world.everything().await, before);
        return Ok(());
    }
    for to in [to, versions[back % whole.len()], versions[newest]] {
        for world in [&world, &reference] {
            match world.version().await.0 {
                current if current < to => drop(world.up(to).await.unwrap()),
                current if current > to => drop(world.down(to).await.unwrap()),
                _ => {}
            }
        }
        prop_assert_eq!(
            world.everything().await,
            reference.everything().await,
            "at {}",
            to
        );
        prop_assert_eq!(world.schema().await, reference.schema().await);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn any_insertion_equals_the_new_line_from_the_start_or_is_refused(
        kinds in proptest::collection::vec(any_kind(), 3..7),
        inserted in proptest::collection::vec(proptest::bool::weighted(0.4), 8),
        end in proptest::option::weighted(0.3, any::<usize>()),
        back in any::<usize>(),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(insert(&kinds, &inserted, end, back))?;
    }
}
