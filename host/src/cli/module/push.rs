//! `bbs module push`: a folder of modules to an OCI registry.

use std::path::PathBuf;

use bbs_modules::registry::{self, ArtifactReference};
use bbs_work::progress::Progress;
use clap::Args;

use super::print_carried;
use super::registry::RegistryOptions;
use crate::cli::output::OutputForm;
use crate::cli::progress;

/// Push a folder of modules to an OCI registry
///
/// For sites that distribute their images through a registry: the folder becomes one artifact, the
/// same as in a bundle. It is validated first. The digest that is printed pins the artifact: a tag
/// may be moved, the digest of a folder never changes. The account is read from
/// BBS_REGISTRY_USERNAME and BBS_REGISTRY_PASSWORD. The certificate of the registry is verified
/// with the authorities of this machine, or those of the file that SSL_CERT_FILE names.
///
///   bbs module push modules oci://registry.example.com/diego/modules:1.0
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct PushCommand {
    /// A folder that `bbs module build` has written.
    #[arg(value_name = "DIR")]
    modules: PathBuf,
    /// Where to push it: `oci://HOST[:PORT]/REPOSITORY:TAG`
    #[arg(value_name = "REFERENCE")]
    reference: ArtifactReference,
    #[command(flatten)]
    options: RegistryOptions,
    #[command(flatten)]
    form: OutputForm,
}

impl PushCommand {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let Self {
            modules,
            reference,
            options,
            form,
        } = self;
        let connection = options.connection()?;
        let sandbox = super::sandbox()?;
        let progress = Progress::default();
        let work = registry::push(&modules, &reference, &connection, &sandbox, &progress);
        let artifact = progress::shown(&progress, work).await?;
        print_carried(form, &reference, &artifact)
    }
}
