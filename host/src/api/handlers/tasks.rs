//! Calls about tasks.

use super::{Call, DomainError, Message, Page, proto, wire};
use crate::domain::tasks;
use crate::model::task::TaskFilter;

pub(super) async fn list(page: &mut Page, call: Call<'_>) -> Result<Vec<u8>, DomainError> {
    let proto::TasksRequest { domain, cell_id } = call.decode()?;
    let tasks = tasks::list(page, &TaskFilter { domain, cell_id }).await?;
    Ok(proto::TasksResponse { error: None, tasks: tasks.into_iter().map(wire::task_to).collect() }.encode_to_vec())
}
