//! Manifests of random changes and accesses, most of them wrong halfway: each is refused or has a
//! layout, whose lenses compose and transform units, whatever a row function returns.

use proptest::prelude::*;

use super::*;
use crate::layout::manifest::Change;
use crate::layout::schema::{ColumnType, Index};

const TABLES: [&str; 4] = ["a", "b", "c", "d"];
const COLUMNS: [&str; 4] = ["part", "x", "y", "z"];
const UNITS: usize = 3;
/// A few seconds.
const CASES: u32 = 2_000;

/// Numbers that select a part of a layout, so that most changes fit the layout before them.
#[derive(Debug, Clone, Copy)]
struct Choice([u8; 4]);

impl Choice {
    fn of<T: Copy>(self, at: usize, all: &[T]) -> T {
        all[usize::from(self.0[at]) % all.len()]
    }

    /// A table of the layout; in one of eight cases any.
    fn table(self, at: usize, layout: &Layout) -> String {
        let known: Vec<_> = layout.tables.keys().map(String::as_str).collect();
        let is_any = known.is_empty() || self.0[at] >= 224;
        self.of(at, if is_any { &TABLES } else { &known })
            .to_owned()
    }

    /// A column of the table; in one of eight cases any.
    fn column(self, at: usize, layout: &Layout, table: &str) -> String {
        let known = layout
            .tables
            .get(table)
            .map_or(&[][..], |table| &table.columns);
        let known: Vec<_> = known.iter().map(|column| column.name.as_str()).collect();
        let is_any = known.is_empty() || self.0[at] >= 224;
        self.of(at, if is_any { &COLUMNS } else { &known })
            .to_owned()
    }

    fn definition(self, name: &str) -> Column {
        let kind = self.of(
            1,
            &[
                ColumnType::Varchar(9),
                ColumnType::LongText,
                ColumnType::Integer,
                ColumnType::Boolean,
            ],
        );
        let sealing = if self.0[2] < 64 && kind.is_text() {
            Sealing::Sealed
        } else {
            Sealing::Plain
        };
        let default = match Encoding::from(kind) {
            Encoding::Boolean => Literal::Boolean(true),
            Encoding::Integer => Literal::Integer(7),
            Encoding::Text => Literal::Text("seven".to_owned()),
        };
        let default = (sealing == Sealing::Plain && self.0[2].is_multiple_of(2)).then_some(default);
        Column {
            nullable: default.is_none() || self.0[3] < 128,
            default,
            sealing,
            ..Column::new(name, kind)
        }
    }

    fn definition_of_table(self) -> Table {
        let mut table = table(self.of(0, &TABLES))
            .column(Column::integer("part").default(1))
            .column(self.definition(self.of(3, &COLUMNS[1..])));
        table
            .primary_key
            .extend((self.0[3] >= 192).then(|| "part".to_owned()));
        table.partition_key = table.partition_key.filter(|_| self.0[2] < 240);
        table
    }

    fn change(self, kind: u8, layout: &Layout) -> Change {
        let table = self.table(0, layout);
        let column = self.column(1, layout, &table);
        let key = || vec!["guid".to_owned(), "part".to_owned()];
        match kind % 12 {
            0 => Change::CreateTable(self.definition_of_table()),
            1 => Change::DropTable { table },
            2 => Change::RenameTable {
                from: table,
                to: self.of(1, &TABLES).to_owned(),
            },
            3 | 4 => Change::AddColumn {
                table,
                column: self.definition(self.of(3, &COLUMNS)),
            },
            5 => Change::AlterColumn {
                table,
                column: self.definition(&column),
            },
            6 => Change::DropColumn { table, column },
            7 => Change::RenameColumn {
                table,
                from: column,
                to: self.of(2, &COLUMNS).to_owned(),
            },
            8 | 9 => Change::MoveColumn {
                column,
                from: table,
                to: self.table(2, layout),
            },
            10 => Change::SetPrimaryKey {
                table,
                columns: key()[..1 + usize::from(self.0[1] % 2)].to_vec(),
            },
            _ => Change::CreateIndex {
                table,
                index: Index::new("index", [column.as_str()]),
            },
        }
    }

    /// A change that breaks a rule of the layout, and one that repairs it.
    fn lie(self, layout: &Layout) -> [Change; 2] {
        let table = self.table(0, layout);
        let known = layout
            .tables
            .get(&table)
            .cloned()
            .unwrap_or_else(|| self.definition_of_table());
        let guid = || known.columns[0].clone();
        let name = || "lie".to_owned();
        let set = |columns: Vec<String>| Change::SetPrimaryKey {
            table: table.clone(),
            columns,
        };
        let alter = |column| Change::AlterColumn {
            table: table.clone(),
            column,
        };
        let created = |broken: Table| {
            [
                Change::CreateTable(Table {
                    name: name(),
                    ..broken
                }),
                Change::DropTable { table: name() },
            ]
        };
        match self.0[1] % 5 {
            0 => created(Table {
                primary_key: vec!["none".to_owned()],
                ..known
            }),
            1 => created(Table {
                columns: Vec::new(),
                ..known
            }),
            2 => [set(vec!["none".to_owned()]), set(known.primary_key.clone())],
            3 => [set(Vec::new()), set(known.primary_key.clone())],
            _ => [alter(guid().nullable().sealed()), alter(guid())],
        }
    }

    fn access(self, before: &Layout, after: &Layout) -> Access {
        let table = self.table(0, after);
        let reads = (self.0[1] < 192)
            .then(|| self.column(1, before, &table))
            .into_iter();
        let writes = (self.0[2] < 192)
            .then(|| self.column(2, after, &table))
            .into_iter();
        Access {
            table,
            reads: reads.collect(),
            writes: writes.collect(),
            encodings: Vec::new(),
            reshapes: self.0[3] < 128,
        }
    }
}

/// The parts of a generated manifest.
type ManifestParts = (
    Vec<(u8, Choice)>,
    Option<Choice>,
    [Option<Choice>; 2],
    bool,
    bool,
);

fn any_parts() -> impl Strategy<Value = ManifestParts> {
    let choice = || any::<[u8; 4]>().prop_map(Choice);
    let access = || proptest::option::of(choice());
    let changes = proptest::collection::vec((any::<u8>(), choice()), 0..5);
    let lie = proptest::option::weighted(0.2, choice());
    let accesses = (access(), access()).prop_map(|(up, down)| [up, down]);
    (
        changes,
        lie,
        accesses,
        proptest::bool::weighted(0.8),
        any::<bool>(),
    )
}

/// A manifest for this layout.
fn manifest(version: DataVersion, before: &Layout, parts: ManifestParts) -> Manifest {
    let (choices, lie, accesses, reversible, leaves_residue) = parts;
    let with = |changes: Vec<Change>| Manifest {
        changes,
        reversible: false,
        ..super::manifest(version)
    };
    let (mut layout, mut changes) = (before.clone(), Vec::new());
    for (kind, choice) in choices {
        let change = choice.change(kind, &layout);
        layout = layout.apply(&with(vec![change.clone()])).unwrap_or(layout);
        changes.push(change);
    }
    if let Some(choice) = lie {
        let [broken, repaired] = choice.lie(before);
        changes.insert(0, broken);
        changes.push(repaired);
    }
    let [up, down] = accesses;
    let up = up
        .map(|choice| choice.access(before, &layout))
        .into_iter()
        .collect();
    let down = down
        .filter(|_| reversible)
        .map(|choice| choice.access(&layout, before))
        .into_iter()
        .collect();
    Manifest {
        up,
        down,
        reversible,
        leaves_residue,
        ..with(changes)
    }
}

/// Returns rows of the declared form: the given ones in reverse, each `repeats` times.
struct AnyStep {
    manifest: Manifest,
    repeats: usize,
    layouts: [Layout; 2],
}

impl Transform for AnyStep {
    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn digest(&self) -> &str {
        "d1935"
    }

    fn apply(
        &self,
        direction: Direction,
        _: &RunArguments,
        batch: &Batch,
    ) -> Result<Outcome, TransformError> {
        let target = &self.layouts[usize::from(direction == Direction::Up)];
        let written = |(access, given): (&Access, &crate::layout::columns::TableData)| {
            let mut shape = Shape {
                unit_offsets: vec![0],
                origins: Vec::new(),
            };
            for ends in given.unit_offsets.windows(2) {
                let rows = (ends[0]..ends[1]).rev();
                shape
                    .origins
                    .extend(rows.flat_map(|row| std::iter::repeat_n(row, self.repeats)));
                shape
                    .unit_offsets
                    .push(u32::try_from(shape.origins.len()).unwrap());
            }
            let rows = if access.reshapes {
                shape.origins.len()
            } else {
                *given.unit_offsets.last().unwrap() as usize
            };
            let column = |name: &String| {
                values(
                    target.tables[&access.table].find_column(name).unwrap(),
                    rows,
                )
            };
            let columns = access.writes.iter().map(column).collect();
            Written {
                shape: access.reshapes.then_some(shape),
                columns,
            }
        };
        let tables = self
            .manifest
            .accesses(direction)
            .iter()
            .zip(&batch.tables)
            .map(written)
            .collect();
        let units = batch
            .tables
            .first()
            .map_or(0, |table| table.unit_offsets.len() - 1);
        let residue = if self.manifest.leaves_residue {
            vec![Some(b"left".to_vec()); units]
        } else {
            Vec::new()
        };
        Ok(Outcome {
            tables,
            refused: Vec::new(),
            residue,
        })
    }
}

/// Different values; those of `guid` are equal for the rows of a unit.
fn values(column: &Column, rows: usize) -> ColumnData {
    let encoding = Encoding::from(column.kind);
    let mut data = ColumnBuilder::new(encoding);
    for row in 0..rows {
        let text = format!("v{row}");
        data.push(match encoding {
            Encoding::Boolean => Value::Boolean(row % 2 == 0),
            Encoding::Integer => Value::Integer(row as i64),
            Encoding::Text => Value::Text(text.as_bytes()),
        });
    }
    data.finish()
}

/// Units of one row and of none in each table.
fn units(lens: &Lens, group: usize) -> LensInput {
    let tables = lens.groups[group].sources.iter().map(|name| {
        let needed = lens.needed.get(name).into_iter().flatten();
        let table = &lens.source.tables[name];
        let columns = needed
            .map(|column| {
                let data = values(table.find_column(column).unwrap(), 2);
                (column.clone(), BatchColumn::new(data, Sealing::Plain))
            })
            .collect();
        (
            name.clone(),
            TableRows {
                unit_offsets: vec![0, 1, 1, 2],
                columns,
            },
        )
    });
    LensInput {
        units: UNITS,
        tables: tables.collect(),
        ..LensInput::default()
    }
}

fn steps_of(
    layouts: &LayoutHistory,
    manifests: &[Manifest],
    repeats: usize,
) -> Vec<Arc<dyn Transform>> {
    let step = |manifest: &Manifest| {
        let layouts = [
            layouts.before(manifest.version),
            layouts.at(manifest.version).unwrap(),
        ]
        .map(Layout::clone);
        Arc::new(AnyStep {
            manifest: manifest.clone(),
            repeats,
            layouts,
        }) as Arc<dyn Transform>
    };
    manifests.iter().map(step).collect()
}

/// Composes the lens and takes units through it, with the residue of the lens in the other
/// direction.
fn walk(
    layouts: &LayoutHistory,
    steps: &[Arc<dyn Transform>],
    source: DataVersion,
    target: DataVersion,
) {
    let lens = Lens::restoring(Way::within(layouts, source, target), steps).expect("it composes");
    for group in 0..lens.groups.len() {
        let mut left = Residue::default();
        for (version, table) in lens.restorable() {
            // Of a row function any bytes; of a row, values under the names of columns.
            let mut bytes = if table.is_empty() {
                vec![1]
            } else {
                Vec::new()
            };
            if !table.is_empty() {
                [Value::Text(b"dropped"), Value::Null]
                    .into_iter()
                    .for_each(|value| value.encode(&mut bytes));
            }
            let value = ResidueValue {
                row_key: Vec::new(),
                digest: Vec::new(),
                bytes,
            };
            left.add(*version, table, 1, value);
        }
        let applied = lens.apply(
            group,
            &units(&lens, group),
            &left.of_edited(),
            &arguments(),
            Search::First,
            &BatchBudget::default(),
        );
        // The keys that the row function writes are of no unit.
        let is_panic = |error: &LensError| matches!(error, LensError::Step { reason, .. } if !reason.contains("a partition key that is not that of its unit"));
        assert!(
            !applied
                .as_ref()
                .is_err_and(|errors| errors.iter().any(is_panic)),
            "{:?}",
            applied.unwrap_err()
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn any_manifest_is_refused_or_its_lenses_transform_units(
        tables in proptest::collection::vec(any::<[u8; 4]>().prop_map(Choice), 1..4),
        parts in proptest::collection::vec(any_parts(), 1..4),
        repeats in 0..3_usize,
    ) {
        let mut first = super::manifest(1);
        first.changes = tables.into_iter().map(|choice| Change::CreateTable(choice.definition_of_table())).collect();
        first.changes.dedup_by_key(|change| matches!(change, Change::CreateTable(table) if table.name == "a"));
        let mut manifests = Vec::new();
        let mut layouts = LayoutHistory::new([]).expect("nothing is wrong");
        for (manifest, version) in std::iter::once(None).chain(parts.into_iter().map(Some)).zip(1..) {
            let before = layouts.at(layouts.newest()).expect("it is the newest").clone();
            manifests.push(manifest.map_or_else(|| first.clone(), |parts| self::manifest(version, &before, parts)));
            match LayoutHistory::new(&manifests) {
                Ok(longer) => layouts = longer,
                // It is refused; the next manifest follows the one before it.
                Err(_) => drop(manifests.pop()),
            }
        }
        let steps = steps_of(&layouts, &manifests, repeats);
        prop_assert_eq!(check_composition(&layouts, &steps), Ok(()));
        let versions: Vec<_> = std::iter::once(0).chain(manifests.iter().map(|manifest| manifest.version)).collect();
        let lowest = manifests.iter().filter(|manifest| !manifest.reversible).map(|manifest| manifest.version).max();
        for &source in &versions {
            walk(&layouts, &steps, source, layouts.newest());
            if lowest.is_none_or(|lowest| source >= lowest) {
                walk(&layouts, &steps, layouts.newest(), source);
            }
        }
    }
}
