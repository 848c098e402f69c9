//! `bbs module pull`: a folder of modules from an OCI registry.

use std::path::PathBuf;

use bbs_modules::registry::{self, ArtifactReference};
use bbs_work::progress::Progress;
use clap::Args;

use super::print_carried;
use super::registry::RegistryOptions;
use crate::cli::output::OutputForm;
use crate::cli::progress;

/// Pull a folder of modules from an OCI registry
///
/// For the installation of a host: a running one never connects to a registry. Every digest and
/// size is verified before the folder is written, all at once. With `@sha256:` and the digest that
/// `bbs module push` printed, only that artifact is accepted; without, it is what the tag names at
/// the moment. The account is read from BBS_REGISTRY_USERNAME and BBS_REGISTRY_PASSWORD. The
/// certificate of the registry is verified with the authorities of this machine, or those of the
/// file that SSL_CERT_FILE names.
///
///   bbs module pull oci://registry.example.com/diego/modules:1.0 --into modules
///   bbs module pull oci://registry.example.com/diego/modules@sha256:7bd6…1269 --into modules
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct PullCommand {
    /// Artifact to pull: `oci://HOST[:PORT]/REPOSITORY[:TAG][@sha256:DIGEST]`
    #[arg(value_name = "REFERENCE")]
    reference: ArtifactReference,
    /// A folder that does not exist or is empty. An existing one gets modules with `bbs module
    /// add`.
    #[arg(long, value_name = "DIR")]
    into: PathBuf,
    #[command(flatten)]
    options: RegistryOptions,
    #[command(flatten)]
    form: OutputForm,
}

impl PullCommand {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let Self {
            reference,
            into,
            options,
            form,
        } = self;
        let connection = options.connection()?;
        let progress = Progress::default();
        let work = registry::pull(&reference, &into, &connection, &progress);
        let artifact = progress::shown(&progress, work).await?;
        print_carried(form, into.display(), &artifact)
    }
}
