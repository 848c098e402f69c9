//! The table `tasks`. Owns the mapping between tasks and columns.

use bbs_model::task::{Task, TaskFilter};

use super::column_values::{ColumnValue, ColumnValues, Conflict, message, number};
use super::filter::Filter;
use super::page::{Listed, Range};
use super::record::{Projection, Record, RecordReadError};
use super::{EntityTable, Reader, StoreError, Writer};

pub(super) const TABLE: EntityTable = EntityTable {
    name: "tasks",
    key: "guid",
    primary_key: &["guid"],
    heavy: &["task_definition", "result"],
    selective: &["cell_id"],
};

pub(super) const WHOLE: Projection<Task> = TABLE.read(task).columns(&[
    "guid",
    "created_at",
    "updated_at",
    "first_completed_at",
    "state",
    "cell_id",
    "domain",
    "result",
    "failed",
    "failure_reason",
    "task_definition",
    "rejection_count",
    "rejection_reason",
]);

/// The columns that convergence decides by: without the definition and the result, which are most
/// of a record.
const PARTS: Projection<Task> = TABLE.read(parts).columns(&[
    "guid",
    "created_at",
    "updated_at",
    "first_completed_at",
    "state",
    "cell_id",
]);

impl Reader {
    /// Lists tasks.
    ///
    /// # Errors
    /// The database fails. Unreadable records are left out.
    pub async fn tasks(
        &mut self,
        filter: &TaskFilter,
        range: &Range,
    ) -> Result<Listed<Task>, StoreError> {
        self.list(&WHOLE, &condition(filter), range).await
    }

    /// Incomplete tasks, for convergence. Do not write them: a change reads the whole row.
    ///
    /// # Errors
    /// The database fails. Records that are unreadable in these columns are left out.
    pub async fn task_parts(&mut self, range: &Range) -> Result<Listed<Task>, StoreError> {
        self.list(&PARTS, &Filter::everything(), range).await
    }

    /// The task of a guid.
    ///
    /// # Errors
    /// The database fails, or the record is damaged ([`StoreError::Unreadable`]).
    pub async fn task(&mut self, guid: &[u8]) -> Result<Option<Task>, StoreError> {
        self.get(&WHOLE, guid).await
    }
}

impl Writer {
    /// The task of a guid, locked until the transaction ends.
    ///
    /// # Errors
    /// As of [`Writer`]; [`StoreError::Unreadable`] for a damaged record.
    pub async fn task(&mut self, guid: &[u8]) -> Result<Option<Task>, StoreError> {
        self.get(&WHOLE, guid).await
    }

    /// Inserts a task.
    pub async fn insert_task(&mut self, task: &Task) -> Result<(), StoreError> {
        let mut values = vec![
            self.plain(TABLE, "guid", &task.guid)?,
            self.plain(TABLE, "domain", &task.domain)?,
            ("created_at", number(task.created_at_ns)),
            ("task_definition", message(&task.definition)),
        ];
        values.extend(self.mutable_columns(task)?);
        self.insert(TABLE, &task.guid, vec![values], Conflict::Fails)
            .await
    }

    /// Writes the columns of a task that can change. Replaces the texts of failures and rejections
    /// by the excerpts that are stored.
    pub async fn update_task(&mut self, task: &mut Task) -> Result<(), StoreError> {
        for text in [&mut task.failure_reason, &mut task.rejection_reason] {
            *text = self.excerpt(text).into();
        }
        let values = self.mutable_columns(task)?;
        self.update(TABLE, &task.guid, Filter::everything(), values)
            .await
            .map(drop)
    }

    fn mutable_columns(&self, task: &Task) -> Result<ColumnValues, StoreError> {
        Ok(vec![
            ("updated_at", number(task.updated_at_ns)),
            ("first_completed_at", number(task.first_completed_at_ns)),
            ("state", number(task.state)),
            self.plain(TABLE, "cell_id", &task.cell_id)?,
            self.plain(TABLE, "result", &task.result)?,
            ("failed", ColumnValue::Flag(task.failed)),
            (
                "failure_reason",
                ColumnValue::Text(self.excerpt(&task.failure_reason)),
            ),
            ("rejection_count", number(task.rejection_count)),
            (
                "rejection_reason",
                ColumnValue::Text(self.excerpt(&task.rejection_reason)),
            ),
        ])
    }

    /// Deletes a task; returns whether there was one.
    pub async fn delete_task(&mut self, guid: &[u8]) -> Result<bool, StoreError> {
        Ok(self.delete_unit(TABLE, guid).await? > 0)
    }
}

fn condition(filter: &TaskFilter) -> Filter {
    Filter::everything()
        .equals_if_any("domain", &filter.domain)
        .equals_if_any("cell_id", &filter.cell_id)
        .one_of(TABLE.key, &filter.guids)
}

fn task(record: &Record<'_>) -> Result<Task, RecordReadError> {
    let parts = parts(record)?;
    Ok(Task {
        domain: record.text("domain")?,
        result: record.text("result")?,
        failed: record.flag("failed")?,
        failure_reason: record.text("failure_reason")?,
        definition: record.message("task_definition")?,
        rejection_count: record.number("rejection_count")?,
        rejection_reason: record.text("rejection_reason")?,
        ..parts
    })
}

fn parts(record: &Record<'_>) -> Result<Task, RecordReadError> {
    Ok(Task {
        guid: record.text("guid")?,
        created_at_ns: record.long("created_at")?,
        updated_at_ns: record.long("updated_at")?,
        first_completed_at_ns: record.long("first_completed_at")?,
        state: record.number("state")?,
        cell_id: record.text("cell_id")?,
        ..Task::default()
    })
}
