//! `bbs module compile`: fills a cache of compiled modules before a host needs it.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use bbs_modules::catalog::{Catalog, CatalogError};
use bbs_modules::sandbox::{CacheFolders, Limits, Sandbox};
use bbs_modules::signatures::TrustedKeys;
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
/// The modules of the folders that an add-on continues are taken from the cache beside each, and
/// compiled with those of the add-on if they are not there.
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
    /// A folder of modules that this one continues, such as the host's; may be repeated. For an
    /// add-on.
    #[arg(long, value_name = "DIR")]
    base: Vec<PathBuf>,
    #[command(flatten)]
    form: OutputForm,
}

impl CompileCommand {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let absolute =
            |folder: &PathBuf| std::path::absolute(folder).context("the current folder is gone");
        let modules = absolute(&self.modules)?;
        let base: Vec<_> = self.base.iter().map(absolute).collect::<Result<_, _>>()?;
        let into = self.into.unwrap_or_else(|| shipped_module_cache(&modules));
        let cache = CacheFolders {
            own: vec![into.clone()],
            shipped: base
                .iter()
                .map(|folder| shipped_module_cache(folder))
                .collect(),
        };
        let sandbox = Arc::new(Sandbox::new(Limits::default(), Some(&cache))?);
        refuse_failure(&sandbox)?;
        let progress = Progress::default();
        progress.enter("compile", format!("modules of {}", modules.display()), None);
        let loading = Arc::clone(&sandbox);
        let work = tokio::task::spawn_blocking(move || compile(modules, &base, &loading));
        let CompiledFolder { all, compiled } = progress::shown(&progress, work).await??;
        refuse_failure(&sandbox)?;
        let present = all - compiled;
        let result =
            serde_json::json!({ "folder": into, "compiled": compiled, "present": present });
        self.form.print(&result, || {
            format!(
                "{compiled} compiled into {}, {present} were in a cache before\n",
                into.display()
            )
        })
    }
}

/// The modules of a folder, without those that it continues.
struct CompiledFolder {
    all: usize,
    /// The number of those that were in no cache.
    compiled: usize,
}

/// Loads a folder of modules after those that it continues, which compiles each module that is in
/// no cache.
fn compile(
    folder: PathBuf,
    base: &[PathBuf],
    sandbox: &Arc<Sandbox>,
) -> Result<CompiledFolder, CatalogError> {
    let keys = TrustedKeys::default();
    let continued = if base.is_empty() {
        Catalog::default()
    } else {
        Catalog::merge(base, &keys, sandbox)?
    };
    let compiled_of_base = sandbox.compiled();
    let folders = [base, &[folder]].concat();
    let catalog = continued.reload(&folders, &keys, sandbox)?;
    let modules = |catalog: &Catalog| catalog.migrations().len() + catalog.translators().len();
    Ok(CompiledFolder {
        all: modules(&catalog) - modules(&continued),
        compiled: sandbox.compiled() - compiled_of_base,
    })
}

/// A host continues without a cache, but this command has no other purpose.
fn refuse_failure(sandbox: &Sandbox) -> anyhow::Result<()> {
    match sandbox.cache_failure() {
        Some(error) => anyhow::bail!("compiled modules cannot be kept: {error}"),
        None => Ok(()),
    }
}
