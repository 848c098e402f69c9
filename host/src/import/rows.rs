//! Records of etcd as rows of [`super::VERSION`]. Owns the mapping of fields to columns, and what a
//! column cannot hold.

use bbs_database::Dialect;
use bbs_encryption::Keyring;
use bbs_lens::TableBuilder;
use bbs_lens::layout::schema::{Layout, Sealing, Table};
use bbs_lens::layout::values::Value;
use bbs_model::actual_lrp::State;
use bbs_model::routes::Routes;
use bbs_model::{excerpt, tags};
use bbs_proto::models::{
    ActualLrp, DesiredLrpRunInfo, DesiredLrpSchedulingInfo, ProtoRoutes, Task, task,
};
use prost::Message;

use bbs_units::{Capacity, OwnedValue, TableRows};

/// Never: the largest time.
const FOREVER_NS: i64 = i64::MAX;

/// A row with plain values. Columns that it does not name have their defaults.
#[derive(Debug, Clone)]
pub(super) struct ImportedRow {
    pub table: &'static str,
    pub values: Vec<(&'static str, OwnedValue)>,
}

/// Why a record has no place in the tables.
#[derive(Debug, thiserror::Error)]
pub(super) enum Misfit {
    #[error("`{column}` is longer than the database holds")]
    TooLong { column: String },
    #[error("`{column}` is not UTF-8 text, or has a NUL character")]
    NotText { column: String },
    #[error("a route is not JSON")]
    Routes,
    #[error("the state of the task is {0}, which is none")]
    TaskState(i32),
    #[error("the task has no definition")]
    NoDefinition,
    #[error("the state of the instance is {0:?}, which is none")]
    InstanceState(String),
    #[error("the number of instances is {0}")]
    Instances(i32),
}

fn text(text: Vec<u8>) -> OwnedValue {
    OwnedValue::Text(text)
}

fn integer(number: impl Into<i64>) -> OwnedValue {
    OwnedValue::Integer(number.into())
}

fn message(message: &impl Message) -> OwnedValue {
    OwnedValue::Text(message.encode_to_vec())
}

pub(super) fn domain(name: &str, expires_at_ns: Option<i64>) -> ImportedRow {
    let values = vec![
        ("domain", text(name.into())),
        ("expire_time", integer(expires_at_ns.unwrap_or(FOREVER_NS))),
    ];
    ImportedRow {
        table: "domains",
        values,
    }
}

/// Both halves of a desired LRP.
pub(super) fn desired_lrp(
    info: DesiredLrpSchedulingInfo,
    run_info: &DesiredLrpRunInfo,
) -> Result<ImportedRow, Misfit> {
    if info.instances < 0 {
        return Err(Misfit::Instances(info.instances));
    }
    let key = info.desired_lrp_key.unwrap_or_default();
    let resource = info.desired_lrp_resource.unwrap_or_default();
    let tag = info.modification_tag.unwrap_or_default();
    let values = vec![
        ("process_guid", text(key.process_guid)),
        ("domain", text(key.domain)),
        ("log_guid", text(key.log_guid)),
        ("annotation", text(info.annotation)),
        ("instances", integer(info.instances)),
        ("memory_mb", integer(resource.memory_mb)),
        ("disk_mb", integer(resource.disk_mb)),
        ("rootfs", text(resource.root_fs)),
        ("routes", text(routes(info.routes)?)),
        (
            "volume_placement",
            message(&info.volume_placement.unwrap_or_default()),
        ),
        ("modification_tag_epoch", text(tag.epoch)),
        ("modification_tag_index", integer(tag.index)),
        ("run_info", message(run_info)),
        (
            "placement_tags",
            text(tags::texts_to_json(&info.placement_tags)),
        ),
        ("max_pids", integer(resource.max_pids)),
    ];
    Ok(ImportedRow {
        table: "desired_lrps",
        values,
    })
}

fn routes(routes: Option<ProtoRoutes>) -> Result<Vec<u8>, Misfit> {
    Routes::to_json(routes.map(Routes::from).as_ref()).map_err(|_| Misfit::Routes)
}

pub(super) fn actual_lrp(
    lrp: ActualLrp,
    evacuating: bool,
    expires_at_ns: Option<i64>,
    stores_nul: bool,
) -> Result<ImportedRow, Misfit> {
    if !State::ALL
        .iter()
        .any(|state| state.name().as_bytes() == lrp.state)
    {
        return Err(Misfit::InstanceState(
            String::from_utf8_lossy(&lrp.state).into_owned(),
        ));
    }
    let key = lrp.actual_lrp_key.unwrap_or_default();
    let instance = lrp.actual_lrp_instance_key.unwrap_or_default();
    let tag = lrp.modification_tag.unwrap_or_default();
    let values = vec![
        ("process_guid", text(key.process_guid)),
        ("instance_index", integer(key.index)),
        ("evacuating", OwnedValue::Boolean(evacuating)),
        ("domain", text(key.domain)),
        ("state", text(lrp.state)),
        ("instance_guid", text(instance.instance_guid)),
        ("cell_id", text(instance.cell_id)),
        (
            "placement_error",
            text(excerpt(&lrp.placement_error, stores_nul).into()),
        ),
        ("since", integer(lrp.since)),
        (
            "net_info",
            message(&lrp.actual_lrp_net_info.unwrap_or_default()),
        ),
        ("modification_tag_epoch", text(tag.epoch)),
        ("modification_tag_index", integer(tag.index)),
        ("crash_count", integer(lrp.crash_count)),
        (
            "crash_reason",
            text(excerpt(&lrp.crash_reason, stores_nul).into()),
        ),
        ("expire_time", integer(expires_at_ns.unwrap_or_default())),
    ];
    Ok(ImportedRow {
        table: "actual_lrps",
        values,
    })
}

pub(super) fn task(record: Task, stores_nul: bool) -> Result<ImportedRow, Misfit> {
    if !matches!(task::State::try_from(record.state), Ok(state) if state != task::State::Invalid) {
        return Err(Misfit::TaskState(record.state));
    }
    let definition = record.task_definition.ok_or(Misfit::NoDefinition)?;
    let values = vec![
        ("guid", text(record.task_guid)),
        ("domain", text(record.domain)),
        ("updated_at", integer(record.updated_at)),
        ("created_at", integer(record.created_at)),
        ("first_completed_at", integer(record.first_completed_at)),
        ("state", integer(record.state)),
        ("cell_id", text(record.cell_id)),
        ("result", text(record.result)),
        ("failed", OwnedValue::Boolean(record.failed)),
        (
            "failure_reason",
            text(excerpt(&record.failure_reason, stores_nul).into()),
        ),
        ("task_definition", message(&definition)),
    ];
    Ok(ImportedRow {
        table: "tasks",
        values,
    })
}

impl ImportedRow {
    /// Checks that the columns of the table hold the values.
    pub fn check(
        &self,
        layout: &Layout,
        keyring: &Keyring,
        dialect: Dialect,
    ) -> Result<(), Misfit> {
        let table = &layout.tables[self.table];
        for (name, value) in &self.values {
            let column = table
                .find_column(name)
                .expect("the layout has every column that is imported");
            let OwnedValue::Text(value) = value else {
                continue;
            };
            let named = || column.name.clone();
            if column.sealing == Sealing::Plain {
                let is_stored = dialect.stores_nul() || !value.contains(&0);
                if !is_stored || std::str::from_utf8(value).is_err() {
                    return Err(Misfit::NotText { column: named() });
                }
            }
            let fits =
                Capacity::of(column.kind, dialect).is_none_or(|capacity| match column.sealing {
                    Sealing::Plain => capacity.holds(value),
                    sealing => keyring.sealed_length(sealing, value.len()) <= capacity.most(),
                });
            if !fits {
                return Err(Misfit::TooLong { column: named() });
            }
        }
        Ok(())
    }
}

/// Rows of one table as it stores them.
pub(super) fn stored<'a>(
    table: &Table,
    rows: impl ExactSizeIterator<Item = &'a ImportedRow> + Clone,
    keyring: &Keyring,
) -> TableRows {
    let count = u32::try_from(rows.len()).expect("batches are bounded");
    let mut builder = TableBuilder::new(&table.columns);
    for (place, column) in table.columns.iter().enumerate() {
        let default = OwnedValue::from(Value::of(column.default.as_ref()));
        for row in rows.clone() {
            let named = row.values.iter().find(|(name, _)| *name == column.name);
            match named.map_or(&default, |(_, value)| value) {
                OwnedValue::Text(plain) if column.sealing != Sealing::Plain => {
                    builder.push(place, Value::Text(&keyring.seal(column.sealing, plain)));
                }
                value => builder.push(place, value.value()),
            }
        }
    }
    builder.finish(vec![0, count])
}
