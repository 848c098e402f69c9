//! `bbs module bundle`: a folder of modules as one file, for sites without a network.

use std::path::PathBuf;

use bbs_modules::bundle;
use clap::{Args, Subcommand};

use super::print_carried;
use crate::cli::output::OutputForm;

/// Carry a folder of modules in one file, for sites without a network
///
/// A bundle has the catalog, all modules that it lists, and `releases.toml`. Where it is saved and
/// where it is loaded, every digest is verified, so what arrives is the folder that was saved. It
/// is an OCI image layout in a tar file, which other programs can copy to a registry.
///
///   bbs module bundle save modules modules-1.0.tar         where the modules were built
///   bbs module bundle load modules-1.0.tar --into modules  at the site
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct BundleCommand {
    #[command(subcommand)]
    action: BundleAction,
}

#[derive(Debug, Subcommand)]
enum BundleAction {
    Save(SaveCommand),
    Load(LoadCommand),
}

/// Save a folder of modules as one file
///
/// The folder is validated first: a module that is missing or was altered is an error. The same
/// folder gives the same bytes, so two bundles can be compared by their digests. An existing file
/// is replaced.
///
///   bbs module bundle save modules modules-1.0.tar
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
struct SaveCommand {
    /// A folder that `bbs module build` has written.
    #[arg(value_name = "DIR")]
    modules: PathBuf,
    /// The file to write.
    file: PathBuf,
    #[command(flatten)]
    form: OutputForm,
}

/// Load a folder of modules from a bundle
///
/// Every digest and size is verified before the folder is written, all at once: if the bundle is
/// damaged or has anything that does not belong to a folder of modules, nothing is written. Loading
/// runs no module; `bbs module check` does what a host does before it starts.
///
///   bbs module bundle load modules-1.0.tar --into modules
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
struct LoadCommand {
    /// A file that `bbs module bundle save` has written.
    file: PathBuf,
    /// A folder that does not exist or is empty. An existing one gets modules with `bbs module
    /// add`.
    #[arg(long, value_name = "DIR")]
    into: PathBuf,
    #[command(flatten)]
    form: OutputForm,
}

impl BundleCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self.action {
            BundleAction::Save(SaveCommand {
                modules,
                file,
                form,
            }) => {
                let sandbox = super::sandbox()?;
                let artifact = bundle::save(&modules, &file, &sandbox)?;
                print_carried(form, file.display(), &artifact)
            }
            BundleAction::Load(LoadCommand { file, into, form }) => {
                let artifact = bundle::load(&file, &into)?;
                print_carried(form, into.display(), &artifact)
            }
        }
    }
}
