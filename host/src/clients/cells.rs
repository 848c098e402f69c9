//! Which cells there are: those whose presence Locket has.

use bbs_proto::models::CellPresence;

#[derive(Debug, Clone, Default)]
pub struct Cells;

#[derive(Debug, thiserror::Error)]
pub enum CellsError {
    #[error("Locket did not say which cells there are; see what it logged")]
    Locket(#[source] Box<tonic::Status>),
}

impl Cells {
    /// `None` where nobody is configured who could say.
    pub async fn all(&self) -> Result<Option<Vec<CellPresence>>, CellsError> {
        Ok(None)
    }

    /// `None` for a cell that is not there.
    pub async fn find(&self, _cell_id: &[u8]) -> Result<Option<CellPresence>, CellsError> {
        Ok(None)
    }
}
