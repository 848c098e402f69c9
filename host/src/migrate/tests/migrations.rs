//! A short list of migrations with plain functions in the place of modules.

use std::sync::Arc;

use bbs_lens::layout::columns::{Batch, NEW_ROW, Outcome, Shape, Written};
use bbs_lens::layout::manifest::{Access, DataVersion, Direction, Manifest};
use bbs_lens::layout::schema::{Column, Table};
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
            reason,
        })
    }
}

pub(super) fn none(_: Direction, _: &RunArguments, _: &Batch) -> Result<Outcome, String> {
    Err("a migration without accesses is never called".to_owned())
}

pub(super) fn manifest(version: DataVersion, name: &str) -> Manifest {
    Manifest::new(version, name).summary(&format!("what {name} does"))
}

pub(super) fn native(manifest: Manifest, function: RowFunction) -> Arc<dyn Transform> {
    let digest = format!("digest-of-{}", manifest.version);
    Arc::new(NativeMigration {
        manifest,
        digest,
        function,
    })
}

/// 1: `apps`, `instances` and `domains`; the last has no units.
fn first() -> Arc<dyn Transform> {
    let apps = Table::new("desired_lrps")
        .column(Column::varchar("guid", 255))
        .column(Column::varchar("domain", 255))
        .column(Column::long_text("routes"))
        .column(Column::long_text("run_info").enveloped())
        .column(Column::long_text("annotation").nullable())
        .primary_key(["guid"])
        .index("apps_domain_idx", ["domain"])
        .partition_key("guid");
    let instances = Table::new("actual_lrps")
        .column(Column::varchar("guid", 255))
        .column(Column::integer("place"))
        .column(Column::boolean("evacuating").default(false))
        .column(Column::varchar("state", 255))
        .column(Column::long_text("net_info").enveloped())
        .primary_key(["guid", "place", "evacuating"])
        .index("instances_state_idx", ["state"])
        .partition_key("guid");
    let domains = Table::new("domains")
        .column(Column::varchar("domain", 255))
        .column(Column::big_integer("expire_time").default(0))
        .primary_key(["domain"]);
    let manifest = manifest(1, "init")
        .create_table(apps)
        .create_table(instances)
        .create_table(domains)
        .irreversible();
    native(manifest, none)
}

/// 2: `routes` becomes sealed, without a row function.
fn second() -> Arc<dyn Transform> {
    let routes = Column::long_text("routes").sealed();
    let manifest = manifest(2, "seal-routes").alter_column("desired_lrps", routes);
    native(manifest, none)
}

/// 3: `presence` in the key in the place of `evacuating`, which cannot express suspects: they are
/// kept as residue.
fn third() -> Arc<dyn Transform> {
    let table = "actual_lrps";
    let presence = "presence";
    let below = ["guid", "place", "evacuating", "state", "net_info"];
    let up = Access::to(table).reads(below).writes(below);
    let down = Access::to(table).reads(below).reads([presence]);
    let manifest = manifest(3, "presence")
        .add_column(table, Column::integer(presence).default(0))
        .set_primary_key(table, ["guid", "place", presence])
        .up(up.writes([presence]).reshapes())
        .down(down.writes(["evacuating"]).reshapes())
        .leaves_residue();
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
    let access = Access::to("desired_lrps").reads(["run_info"]);
    let record_version = Column::big_integer("record_version").default(0);
    let manifest = manifest(4, "split-tags")
        .add_column(
            "desired_lrps",
            Column::long_text("tags").nullable().sealed(),
        )
        .add_column("desired_lrps", record_version)
        .up(access.writes(["tags"]));
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
    let health = Table::new("bbs_health_check")
        .column(Column::integer("id"))
        .column(Column::big_integer("time"))
        .primary_key(["id"]);
    let manifest = manifest(5, "strategy")
        .create_table(health)
        .add_column("desired_lrps", Column::integer("strategy").default(0))
        .add_column("actual_lrps", Column::varchar("zone", 255).nullable())
        .create_index("actual_lrps", "instances_zone_idx", ["zone"]);
    native(manifest, none)
}

/// 6: `desired_lrps` split into two tables by moving columns that no step reads.
fn sixth() -> Arc<dyn Transform> {
    let fixed = Table::new("fixed_lrps")
        .column(Column::varchar("guid", 255))
        .primary_key(["guid"])
        .partition_key("guid");
    let manifest = manifest(6, "split-apps")
        .rename_table("desired_lrps", "mutable_lrps")
        .create_table(fixed)
        .move_column("run_info", "mutable_lrps", "fixed_lrps")
        .move_column("strategy", "mutable_lrps", "fixed_lrps")
        .rename_column("mutable_lrps", "annotation", "note");
    native(manifest, none)
}

/// 7: a longer key, with a column that has the same value in every row.
fn seventh() -> Arc<dyn Transform> {
    let manifest = manifest(7, "kinds")
        .add_column("fixed_lrps", Column::varchar("kind", 20).default("it's"))
        .set_primary_key("fixed_lrps", ["guid", "kind"]);
    native(manifest, none)
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
