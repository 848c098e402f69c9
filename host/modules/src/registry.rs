//! A folder of modules in an OCI registry. Owns the order of the requests to the registry and their
//! errors; the artifact is that of a bundle. Only `bbs module push` and `bbs module pull` use it: a
//! host reads its modules from its disk alone.

mod client;

use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use oci_client::Reference;
use oci_client::manifest::OCI_IMAGE_MEDIA_TYPE;

pub use oci_client::secrets::RegistryAuth;

use bbs_work::progress::{Counted, Progress};

use super::new_folder::{NewFolder, NewFolderError};
use super::oci::{self, ArtifactError, FolderError, OciArtifact, OciLayer, OciManifest};
use super::sandbox::Sandbox;
use super::text::ModuleText;
use client::{AnswerError, RegistryClient, Scope};

/// The largest manifest that is read, in bytes: that of every registry.
const MANIFEST_BYTES: u64 = 4 << 20;
const SCHEME: &str = "oci://";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time without a byte of an answer.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// The text is not the reference of an artifact.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "write it in full, such as {SCHEME}registry.example.com:5000/diego/modules:1.0, with a tag or `@sha256:` and a digest"
)]
pub struct ReferenceError;

/// A registry, a repository in it, and a tag or a digest:
/// `oci://HOST[:PORT]/REPOSITORY[:TAG][@sha256:DIGEST]`. The digest takes precedence over the tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactReference(Reference);

impl FromStr for ArtifactReference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        let text = text.strip_prefix(SCHEME).ok_or(ReferenceError)?;
        let reference = Reference::from_str(text).map_err(|_| ReferenceError)?;
        // The library completes a reference without a registry or a tag with those of Docker.
        let is_complete = reference.whole() == text;
        let is_sha256 = reference
            .digest()
            .is_none_or(|digest| digest.starts_with("sha256:"));
        if is_complete && is_sha256 {
            Ok(Self(reference))
        } else {
            Err(ReferenceError)
        }
    }
}

impl std::fmt::Display for ArtifactReference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{SCHEME}{}", self.0)
    }
}

/// Why an artifact was not pushed or pulled. No folder was written.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    #[error(
        "{reference} has a digest, which only the content of the folder determines; name a tag alone"
    )]
    PushedDigest { reference: ArtifactReference },
    #[error(
        "the registry {registry} cannot be reached; check its name and port, and whether it has TLS with a certificate that \
         this machine trusts (`--insecure-http` is for registries without TLS): {reason}"
    )]
    Unreachable {
        registry: String,
        reason: ModuleText,
    },
    #[error(
        "the registry {registry} did not complete a request in time; try again, or check the network to it: {reason}"
    )]
    TooSlow {
        registry: String,
        reason: ModuleText,
    },
    #[error(
        "the registry {registry} denies access to {repository}; set BBS_REGISTRY_USERNAME and BBS_REGISTRY_PASSWORD to an \
         account that has it: {reason}"
    )]
    Denied {
        registry: String,
        repository: String,
        reason: ModuleText,
    },
    #[error(
        "the registry has no {reference}; check the repository, the tag and the digest: {reason}"
    )]
    NotFound {
        reference: ArtifactReference,
        reason: ModuleText,
    },
    #[error("the registry failed at {reference}; try again, or contact its operator: {reason}")]
    Failed {
        reference: ArtifactReference,
        reason: ModuleText,
    },
    #[error(
        "the registry {registry} sends {what} of more than {limit} bytes; check its name and port"
    )]
    Answer {
        registry: String,
        what: &'static str,
        limit: u64,
    },
    #[error("the transfer of {file} from {reference} failed; try again: {reason}")]
    Transfer {
        file: String,
        reference: ArtifactReference,
        reason: ModuleText,
    },
    #[error(
        "{reference} is no usable folder of modules; pull another version, or push this one again"
    )]
    Artifact {
        reference: ArtifactReference,
        source: ArtifactError,
    },
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error(transparent)]
    NewFolder(#[from] NewFolderError),
}

/// How to connect to a registry.
#[derive(Debug)]
pub struct RegistryConnection {
    /// The account; anonymous if the registry requires none.
    pub auth: RegistryAuth,
    /// Whether the registry has no TLS.
    pub insecure_http: bool,
    /// The name and version of the program, for the registry's log.
    pub user_agent: &'static str,
}

/// Pushes a folder of modules. Returns the artifact, whose digest pins it.
///
/// # Errors
/// If the folder is no valid catalog with its modules, the reference has a digest, or the registry
/// refuses or fails.
pub async fn push(
    folder: &Path,
    reference: &ArtifactReference,
    connection: &RegistryConnection,
    sandbox: &Sandbox,
    progress: &Progress,
) -> Result<OciArtifact, RegistryError> {
    if reference.0.digest().is_some() {
        return Err(RegistryError::PushedDigest {
            reference: reference.clone(),
        });
    }
    let artifact = OciArtifact::of_folder(folder, sandbox)?;
    let mut client = RegistryClient::log_in(reference, connection, Scope::PushAndPull).await?;
    let blobs: Vec<_> = artifact.blobs().collect();
    progress.enter(
        "push",
        format!("to {reference}"),
        Some(Counted::Files.total(blobs.len() as u64)),
    );
    for (digest, content) in blobs {
        client.push_blob(&digest, content.to_vec()).await?;
        progress.advance(1);
    }
    client
        .push_manifest(OCI_IMAGE_MEDIA_TYPE, artifact.manifest().to_vec())
        .await?;
    Ok(artifact)
}

/// Pulls a folder of modules into one that is new or empty. Every digest and size is verified
/// before the folder is written.
///
/// # Errors
/// If the folder is not empty, the registry does not have the artifact, refuses or fails, or the
/// artifact is no valid folder of modules.
pub async fn pull(
    reference: &ArtifactReference,
    into: &Path,
    connection: &RegistryConnection,
    progress: &Progress,
) -> Result<OciArtifact, RegistryError> {
    let folder = NewFolder::at(into)?;
    let unusable = |source| RegistryError::Artifact {
        reference: reference.clone(),
        source,
    };
    let mut client = RegistryClient::log_in(reference, connection, Scope::Pull).await?;
    let manifest = client
        .manifest(OCI_IMAGE_MEDIA_TYPE, MANIFEST_BYTES)
        .await?;
    if let Some(pinned) = reference
        .0
        .digest()
        .filter(|pinned| *pinned != oci::digest(&manifest))
    {
        let reason = format!(
            "Invalid digest of the manifest: it has {}, not {pinned}",
            oci::digest(&manifest)
        );
        return Err(RegistryError::Failed {
            reference: reference.clone(),
            reason: ModuleText::reason(&reason),
        });
    }
    let manifest = OciManifest::parse(manifest).map_err(unusable)?;
    progress.enter(
        "pull",
        format!("from {reference}"),
        Some(Counted::Files.total(manifest.layers.len() as u64)),
    );
    let mut contents = BTreeMap::new();
    for OciLayer { file, digest, size } in &manifest.layers {
        // By the digest alone: a manifest may list other addresses of a layer, to which no request
        // should go.
        let content = client
            .blob(digest, *size)
            .await?
            .map_err(|error| match error {
                AnswerError::TooLarge { limit } => unusable(ArtifactError::TooLarge {
                    what: file.clone(),
                    limit,
                }),
                AnswerError::Interrupted(error) => RegistryError::Transfer {
                    file: file.clone(),
                    reference: reference.clone(),
                    reason: ModuleText::of_error(&error),
                },
            })?;
        contents.insert(digest.clone(), content);
        progress.advance(1);
    }
    let artifact = OciArtifact::new(manifest, contents).map_err(unusable)?;
    artifact.write_into(&folder)?;
    Ok(artifact)
}
