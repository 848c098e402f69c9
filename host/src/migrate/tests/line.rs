//! A short list of migrations with plain functions in the place of modules.

use std::sync::Arc;

use bbs_lens::layout::columns::{Batch, NEW_ROW, Outcome, Shape, Written};
use bbs_lens::layout::manifest::{Access, Change, DataVersion, Direction, Manifest};
use bbs_lens::layout::schema::{Column, ColumnType, Index, Literal, Sealing, Table};
use bbs_lens::layout::values::{ColumnBuilder, Encoding, Value};
use bbs_lens::transform::{RunArguments, Transform, TransformError};

/// In the reason of a call that took long.
pub(super) const SLOW: &str = "it ran longer";

pub(super) type RowFunction = fn(Direction, &RunArguments, &Batch) -> Result<Outcome, String>;

pub(super) struct NativeMigration {
    pub(super) manifest: Manifest,
    pub(super) digest: String,
    pub(super) function: RowFunction,
}

impl Transform for NativeMigration {
    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn digest(&self) -> &str {
        &self.digest
    }

    fn apply(
        &self,
        direction: Direction,
        run: &RunArguments,
        batch: &Batch,
    ) -> Result<Outcome, TransformError> {
        (self.function)(direction, run, batch).map_err(|reason| TransformError {
            is_slow: reason.contains(SLOW),
            module: self.manifest.name.clone(),
            version: self.manifest.version,
            digest: self.digest.clone(),
            direction,
            reason,
        })
    }
}

pub(super) fn none(_: Direction, _: &RunArguments, _: &Batch) -> Result<Outcome, String> {
    Err("a migration without accesses is never called".to_owned())
}

pub(super) fn column(name: &str, kind: ColumnType) -> Column {
    Column {
        name: name.to_owned(),
        kind,
        nullable: false,
        default: None,
        sealing: Sealing::Plain,
    }
}

pub(super) fn nullable(name: &str, kind: ColumnType) -> Column {
    Column {
        nullable: true,
        ..column(name, kind)
    }
}

pub(super) fn defaulted(name: &str, kind: ColumnType, default: Literal) -> Column {
    Column {
        default: Some(default),
        ..column(name, kind)
    }
}

pub(super) fn sealed(name: &str, sealing: Sealing) -> Column {
    Column {
        sealing,
        ..column(name, ColumnType::LongText)
    }
}

pub(super) fn access(table: &str, reads: &[&str], writes: &[&str], reshapes: bool) -> Access {
    let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    Access {
        table: table.to_owned(),
        reads: owned(reads),
        writes: owned(writes),
        encodings: Vec::new(),
        reshapes,
    }
}

pub(super) fn manifest(version: DataVersion, name: &str, changes: Vec<Change>) -> Manifest {
    Manifest {
        version,
        name: name.to_owned(),
        summary: format!("what {name} does"),
        changes,
        up: Vec::new(),
        down: Vec::new(),
        reversible: true,
        leaves_residue: false,
        removes_rows: false,
    }
}

pub(super) fn native(manifest: Manifest, function: RowFunction) -> Arc<dyn Transform> {
    let digest = format!("digest-of-{}", manifest.version);
    Arc::new(NativeMigration {
        manifest,
        digest,
        function,
    })
}

fn index(name: &str, columns: &[&str]) -> Index {
    Index {
        name: name.to_owned(),
        columns: columns.iter().map(|&c| c.to_owned()).collect(),
    }
}

/// 1: `apps`, `instances` and `domains`; the last has no units.
fn first() -> Arc<dyn Transform> {
    let apps = Table {
        name: "desired_lrps".into(),
        columns: vec![
            column("guid", ColumnType::Varchar(255)),
            column("domain", ColumnType::Varchar(255)),
            column("routes", ColumnType::LongText),
            sealed("run_info", Sealing::Enveloped),
            nullable("annotation", ColumnType::LongText),
        ],
        primary_key: vec!["guid".into()],
        indexes: vec![index("apps_domain_idx", &["domain"])],
        partition_key: Some("guid".into()),
    };
    let instances = Table {
        name: "actual_lrps".into(),
        columns: vec![
            column("guid", ColumnType::Varchar(255)),
            column("place", ColumnType::Integer),
            defaulted("evacuating", ColumnType::Boolean, Literal::Boolean(false)),
            column("state", ColumnType::Varchar(255)),
            sealed("net_info", Sealing::Enveloped),
        ],
        primary_key: vec!["guid".into(), "place".into(), "evacuating".into()],
        indexes: vec![index("instances_state_idx", &["state"])],
        partition_key: Some("guid".into()),
    };
    let domains = Table {
        name: "domains".into(),
        columns: vec![
            column("domain", ColumnType::Varchar(255)),
            defaulted("expire_time", ColumnType::BigInteger, Literal::Integer(0)),
        ],
        primary_key: vec!["domain".into()],
        indexes: Vec::new(),
        partition_key: None,
    };
    let changes = [apps, instances, domains].map(Change::CreateTable).to_vec();
    let mut manifest = manifest(1, "init", changes);
    manifest.reversible = false;
    native(manifest, none)
}

/// 2: `routes` becomes sealed, without a row function.
fn second() -> Arc<dyn Transform> {
    let column = sealed("routes", Sealing::Sealed);
    native(
        manifest(
            2,
            "seal-routes",
            vec![Change::AlterColumn {
                table: "desired_lrps".into(),
                column,
            }],
        ),
        none,
    )
}

/// 3: `presence` in the key in the place of `evacuating`, which cannot express suspects: they are
/// kept as residue.
fn third() -> Arc<dyn Transform> {
    let presence = defaulted("presence", ColumnType::Integer, Literal::Integer(0));
    let key = ["guid", "place", "presence"].map(str::to_owned).to_vec();
    let changes = vec![
        Change::AddColumn {
            table: "actual_lrps".into(),
            column: presence,
        },
        Change::SetPrimaryKey {
            table: "actual_lrps".into(),
            columns: key,
        },
    ];
    let all = [
        "guid",
        "place",
        "evacuating",
        "state",
        "net_info",
        "presence",
    ];
    let manifest = Manifest {
        up: vec![access("actual_lrps", &all[..5], &all, true)],
        down: vec![access("actual_lrps", &all, &["evacuating"], true)],
        leaves_residue: true,
        ..manifest(3, "presence", changes)
    };
    native(manifest, keep_suspects)
}

const ROW: [Encoding; 6] = [
    Encoding::Text,
    Encoding::Integer,
    Encoding::Boolean,
    Encoding::Text,
    Encoding::Text,
    Encoding::Integer,
];
const SUSPECT: Value<'static> = Value::Integer(2);

/// Down: suspects are removed and encoded one after another. Up: they come back.
fn keep_suspects(direction: Direction, _: &RunArguments, batch: &Batch) -> Result<Outcome, String> {
    let table = &batch.tables[0];
    let mut shape = Shape {
        unit_offsets: vec![0],
        origins: Vec::new(),
    };
    let mut columns: Vec<_> = match direction {
        Direction::Up => ROW.map(ColumnBuilder::new).into(),
        Direction::Down => vec![ColumnBuilder::new(Encoding::Boolean)],
    };
    let mut residue = Vec::new();
    for unit in 0..table.unit_offsets.len() - 1 {
        let mut left = Vec::new();
        for row in table.unit_offsets[unit]..table.unit_offsets[unit + 1] {
            let read = |column: usize| table.columns[column].get(ROW[column], row as usize);
            match direction {
                Direction::Up => {
                    (0..5).for_each(|column| columns[column].push(read(column)));
                    columns[5].push(Value::Integer(i64::from(read(2) == Value::Boolean(true))));
                }
                Direction::Down if read(5) == SUSPECT => {
                    (0..6).for_each(|column| read(column).encode(&mut left));
                    continue;
                }
                Direction::Down => columns[0].push(Value::Boolean(read(5) == Value::Integer(1))),
            }
            shape.origins.push(row);
        }
        let mut kept = batch
            .residue
            .get(unit)
            .and_then(Option::as_deref)
            .unwrap_or_default();
        while !kept.is_empty() {
            for column in &mut columns {
                let (value, rest) = Value::decode(kept).unwrap();
                column.push(value);
                kept = rest;
            }
            shape.origins.push(NEW_ROW);
        }
        shape
            .unit_offsets
            .push(u32::try_from(shape.origins.len()).unwrap());
        residue.push((!left.is_empty()).then_some(left));
    }
    let columns = columns.into_iter().map(ColumnBuilder::finish).collect();
    Ok(Outcome {
        tables: vec![Written {
            shape: Some(shape),
            columns,
        }],
        refused: Vec::new(),
        residue,
    })
}

/// 4: the tags of an app, until then the part of `run_info` after `tags=`, get a column of their
/// own.
fn fourth() -> Arc<dyn Transform> {
    let tags = Column {
        nullable: true,
        ..sealed("tags", Sealing::Sealed)
    };
    let changes = vec![
        Change::AddColumn {
            table: "desired_lrps".into(),
            column: tags,
        },
        Change::AddColumn {
            table: "desired_lrps".into(),
            column: defaulted(
                "record_version",
                ColumnType::BigInteger,
                Literal::Integer(0),
            ),
        },
    ];
    let manifest = Manifest {
        up: vec![access("desired_lrps", &["run_info"], &["tags"], false)],
        ..manifest(4, "split-tags", changes)
    };
    native(manifest, split_tags)
}

fn split_tags(_: Direction, _: &RunArguments, batch: &Batch) -> Result<Outcome, String> {
    let table = &batch.tables[0];
    let mut tags = ColumnBuilder::new(Encoding::Text);
    for row in 0..*table.unit_offsets.last().unwrap() as usize {
        let Value::Text(run_info) = table.columns[0].get(Encoding::Text, row) else {
            return Err("NULL".into());
        };
        let text = String::from_utf8_lossy(run_info);
        if text.contains("trap") {
            return Err("it trapped".to_owned());
        }
        let (_, found) = text.split_once("tags=").ok_or("run_info has no tags")?;
        tags.push(Value::Text(found.as_bytes()));
    }
    let written = Written {
        shape: None,
        columns: vec![tags.finish()],
    };
    Ok(Outcome {
        tables: vec![written],
        ..Outcome::default()
    })
}

/// 5: additive only, and a table of Diego's.
fn fifth() -> Arc<dyn Transform> {
    let health = Table {
        name: "bbs_health_check".into(),
        columns: vec![
            column("id", ColumnType::Integer),
            column("time", ColumnType::BigInteger),
        ],
        primary_key: vec!["id".into()],
        indexes: Vec::new(),
        partition_key: None,
    };
    let changes = vec![
        Change::CreateTable(health),
        Change::AddColumn {
            table: "desired_lrps".into(),
            column: defaulted("strategy", ColumnType::Integer, Literal::Integer(0)),
        },
        Change::AddColumn {
            table: "actual_lrps".into(),
            column: nullable("zone", ColumnType::Text),
        },
        Change::CreateIndex {
            table: "actual_lrps".into(),
            index: index("instances_zone_idx", &["zone"]),
        },
    ];
    native(manifest(5, "strategy", changes), none)
}

/// 6: `desired_lrps` split into two tables by moving columns that no step reads.
fn sixth() -> Arc<dyn Transform> {
    let fixed = Table {
        name: "fixed_lrps".into(),
        columns: vec![column("guid", ColumnType::Varchar(255))],
        primary_key: vec!["guid".into()],
        indexes: Vec::new(),
        partition_key: Some("guid".into()),
    };
    let moved = |column: &str| Change::MoveColumn {
        column: column.to_owned(),
        from: "mutable_lrps".into(),
        to: "fixed_lrps".into(),
    };
    let changes = vec![
        Change::RenameTable {
            from: "desired_lrps".into(),
            to: "mutable_lrps".into(),
        },
        Change::CreateTable(fixed),
        moved("run_info"),
        moved("strategy"),
        Change::RenameColumn {
            table: "mutable_lrps".into(),
            from: "annotation".into(),
            to: "note".into(),
        },
    ];
    native(manifest(6, "split-apps", changes), none)
}

/// 7: a longer key, with a column that has the same value in every row.
fn seventh() -> Arc<dyn Transform> {
    let kind = defaulted(
        "kind",
        ColumnType::Varchar(20),
        Literal::Text("it's".into()),
    );
    let changes = vec![
        Change::AddColumn {
            table: "fixed_lrps".into(),
            column: kind,
        },
        Change::SetPrimaryKey {
            table: "fixed_lrps".into(),
            columns: vec!["guid".into(), "kind".into()],
        },
    ];
    native(manifest(7, "kinds", changes), none)
}

/// All migrations, oldest first.
pub(super) fn all() -> Vec<Arc<dyn Transform>> {
    vec![
        first(),
        second(),
        third(),
        fourth(),
        fifth(),
        sixth(),
        seventh(),
    ]
}
