//! `bbs cells`: the cells that a BBS knows of.

use bbs_client::{json, models};
use clap::Args;

use super::bbs::{BbsOptions, explained, printable};
use super::output::{OutputForm, table};

/// List the cells, with their zones and capacities.
///
/// A BBS learns of cells from Locket; a host without Locket, such as `bbs dev`, has none to list.
#[derive(Debug, Args)]
pub struct CellsCommand {
    #[command(flatten)]
    form: OutputForm,
    #[command(flatten)]
    bbs: BbsOptions,
}

impl CellsCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// The BBS does not answer, or refuses the call.
    pub async fn run(self) -> anyhow::Result<()> {
        let answer = self.bbs.client()?.cells(&()).await;
        let cells = answer.map_err(explained)?.cells;
        self.form
            .print(&json::to_values(&cells), || match &cells[..] {
                [] => "There are no cells.\n".to_owned(),
                cells => text(cells),
            })
    }
}

fn text(cells: &[models::CellPresence]) -> String {
    let rows = cells.iter().map(|cell| {
        let capacity = cell.capacity.unwrap_or_default();
        let address = if cell.rep_url.is_empty() {
            &cell.rep_address
        } else {
            &cell.rep_url
        };
        [
            printable(&cell.cell_id),
            printable(&cell.zone),
            format!("{} MB", capacity.memory_mb),
            format!("{} MB", capacity.disk_mb),
            capacity.containers.to_string(),
            printable(address),
        ]
    });
    table(
        ["CELL", "ZONE", "MEMORY", "DISK", "CONTAINERS", "ADDRESS"],
        rows,
    )
}
