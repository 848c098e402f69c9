//! Tasks: what is known of them.

use super::{DomainError, Page};
use crate::model::task::{Task, TaskFilter};

pub async fn list(page: &mut Page, filter: &TaskFilter) -> Result<Vec<Task>, DomainError> {
    if let Some((after, units)) = page.open() {
        let last = page.reader.tasks_page_end(filter, after.as_ref(), units).await?;
        page.fix(last);
    }
    let range = page.range();
    Ok(page.reader.tasks(filter, &range).await?)
}
