//! `bbs module compile`: fills a cache of compiled modules before a host needs it.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use bbs_modules::catalog::Catalog;
use bbs_modules::sandbox::{CacheFolders, Limits, Sandbox};
use bbs_work::progress::Progress;
use clap::Args;

use crate::cli::output::OutputForm;
use crate::cli::progress;
use crate::config::shipped_module_cache;

/// Compile a folder of modules ahead of the first start, such as when a package is installed.
///
/// A host compiles each module once and keeps the result, which takes seconds of its first start.
/// This command does it earlier: beside the modules folder, where a host looks without being
/// configured, or in the folder that `module_cache_dir` names. The result is machine code for this
/// executable and for processors like this one; on another machine, or after an upgrade of the host,
/// modules are compiled again.
///
/// A host trusts compiled modules only in a folder, and in files, that belong to its own user or to
/// root and that no other user may write to. Run this as one of the two.
#[derive(Debug, Args)]
pub(super) struct CompileCommand {
    /// A folder that `bbs module build` has written.
    #[arg(value_name = "DIR")]
    modules: PathBuf,
    /// The folder to fill; created if absent [default: `module-cache` beside the modules folder]
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
    #[command(flatten)]
    form: OutputForm,
}

impl CompileCommand {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let modules = std::path::absolute(&self.modules).context("the current folder is gone")?;
        let into = self.into.unwrap_or_else(|| shipped_module_cache(&modules));
        let sandbox = Arc::new(Sandbox::new(
            Limits::default(),
            Some(&CacheFolders::at(&into)),
        )?);
        refuse_failure(&sandbox)?;
        let progress = Progress::default();
        progress.enter("compile", format!("modules of {}", modules.display()), None);
        let loading = Arc::clone(&sandbox);
        let work = tokio::task::spawn_blocking(move || Catalog::load(&modules, &loading));
        let catalog = progress::shown(&progress, work).await??;
        refuse_failure(&sandbox)?;
        let all = catalog.migrations().len() + catalog.translators().len();
        let compiled = sandbox.compiled();
        let present = all - compiled;
        let result =
            serde_json::json!({ "folder": into, "compiled": compiled, "present": present });
        self.form.print(&result, || {
            format!(
                "{compiled} compiled, {present} were already there; {} has {all} modules\n",
                into.display()
            )
        })
    }
}

/// A host continues without a cache, but this command has no other purpose.
fn refuse_failure(sandbox: &Sandbox) -> anyhow::Result<()> {
    match sandbox.cache_failure() {
        Some(error) => anyhow::bail!("compiled modules cannot be kept: {error}"),
        None => Ok(()),
    }
}
