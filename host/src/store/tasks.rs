//! The table `tasks`.

use sea_query::Cond;

use super::StoreError;
use super::reader::{self, Key, Range, Reader, Table};
use super::record::{Record, RecordProblem};
use crate::model::task::{Task, TaskFilter};

const TABLE: Table = Table { name: "tasks", key: "guid", heavy: &["task_definition", "result"] };

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
        self.page_end(TABLE, condition(filter), after, units).await
    }

    pub async fn tasks(&mut self, filter: &TaskFilter, range: &Range) -> Result<Vec<Task>, StoreError> {
        let rows = self.fetch(reader::scan(TABLE, &COLUMNS, condition(filter), range), "list tasks").await?;
        let store = &self.store;
        store.readable(rows.iter().map(|row| Record::read(row, store, TABLE.name, TABLE.key, task)))
    }
}

fn condition(filter: &TaskFilter) -> Cond {
    Cond::all()
        .add_option(reader::equals("domain", &filter.domain))
        .add_option(reader::equals("cell_id", &filter.cell_id))
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
