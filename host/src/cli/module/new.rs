//! `bbs module new`.
use clap::Args;
#[derive(Debug, Args)]
pub(super) struct NewCommand {}
impl NewCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        Ok(())
    }
}
