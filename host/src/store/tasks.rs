//! The table `tasks`.

use super::filter::Filter;
use super::reader::{Key, Range, Reader};
use super::record::{Record, RecordProblem};
use super::{StoreError, Table};
use crate::model::task::{Task, TaskFilter};

const TABLE: Table =
    Table { name: "tasks", key: "guid", primary_key: &["guid"], heavy: &["task_definition", "result"] };

const COLUMNS: [&str; 13] = [
    "guid",
    "domain",
    "updated_at",
    "created_at",
    "first_completed_at",
    "state",
    "cell_id",
    "result",
    "failed",
    "failure_reason",
    "task_definition",
    "rejection_count",
    "rejection_reason",
];

impl Reader {
    pub async fn tasks_page_end(
        &mut self,
        filter: &TaskFilter,
        after: Option<&Key>,
        units: u32,
    ) -> Result<Option<Key>, StoreError> {
        self.page_end(TABLE, &condition(filter), after, units).await
    }

    pub async fn tasks(&mut self, filter: &TaskFilter, range: &Range) -> Result<Vec<Task>, StoreError> {
        self.list(TABLE, &COLUMNS, &condition(filter), range, task).await
    }
}

fn condition(filter: &TaskFilter) -> Filter {
    Filter::everything().equals_if_any("domain", &filter.domain).equals_if_any("cell_id", &filter.cell_id)
}
fn task(record: &Record<'_>) -> Result<Task, RecordProblem> {
    Ok(Task {
        guid: record.text("guid")?,
        domain: record.text("domain")?,
        created_at_ns: record.long("created_at")?,
        updated_at_ns: record.long("updated_at")?,
        first_completed_at_ns: record.long("first_completed_at")?,
        state: record.number("state")?,
        cell_id: record.text("cell_id")?,
        result: record.text("result")?,
        failed: record.flag("failed")?,
        failure_reason: record.text("failure_reason")?,
        rejection_count: record.number("rejection_count")?,
        rejection_reason: record.text("rejection_reason")?,
        definition: record.message("task_definition")?,
    })
}
