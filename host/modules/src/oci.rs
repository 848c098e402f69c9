//! A folder of modules as an OCI artifact: a manifest with one layer for each file. Owns the
//! format, and the checks of an artifact that another machine wrote; `bundle` and `registry`
//! transport it.
//!
//! The manifest follows the artifact guidance of the OCI image specification, version 1.1: an
//! `artifactType`, the empty configuration, and in each layer the file's name as the annotation
//! `org.opencontainers.image.title`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use bbs_files::TEXT_BYTES;
use bbs_files::digest::digest_of;
use oci_client::annotations::ORG_OPENCONTAINERS_IMAGE_TITLE;
use oci_client::manifest::{OCI_IMAGE_MEDIA_TYPE, OciDescriptor, OciImageManifest};

use super::catalog::{
    self, CATALOG_FILE, Catalog, CatalogContent, CatalogEntry, CatalogError, is_file_name,
    is_sha256,
};
use super::new_folder::{NewFolder, NewFolderError};
use super::releases::RELEASES_FILE;
use super::sandbox::{Limits, Sandbox};
use super::text::ModuleText;
use crate::signatures::SIGNATURE_FILE;

/// The type of the artifact.
pub(super) const ARTIFACT_TYPE: &str = "application/vnd.diego.bbs.modules.v1";

/// The configuration of an artifact that has none.
const EMPTY: &[u8] = b"{}";
const EMPTY_MEDIA_TYPE: &str = "application/vnd.oci.empty.v1+json";

/// Largest size of an artifact. The modules of this repository have 2 MB.
pub(super) const ARTIFACT_BYTES: u64 = 256 << 20;

/// Why an artifact is not a folder of modules that a host could use.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    #[error("its manifest is not that of an OCI image")]
    Manifest(#[source] serde_json::Error),
    #[error(
        "it is of the type \"{found}\"; name an artifact that `bbs module bundle save` or `bbs module push` wrote"
    )]
    OtherType { found: ModuleText },
    #[error(
        "its manifest has a layer without a file name, or with one that no file of a folder of modules has: \"{name}\""
    )]
    FileName { name: ModuleText },
    #[error("its manifest lists {file} with \"{digest}\", which is no sha256 digest")]
    Digest { file: String, digest: ModuleText },
    #[error("its manifest has two layers for {file}")]
    FileTwice { file: String },
    #[error("{what} is larger than {limit} bytes")]
    TooLarge { what: String, limit: u64 },
    #[error("the content of {file} ({digest}) is missing")]
    NoContent { file: String, digest: String },
    #[error("{file} was altered or cut short: it has {found}, the manifest lists {listed}")]
    Altered {
        file: String,
        found: String,
        listed: String,
    },
    #[error("it has no {CATALOG_FILE}")]
    NoCatalog,
    #[error("its {CATALOG_FILE} is not UTF-8")]
    CatalogText,
    #[error("its {CATALOG_FILE} cannot be used: {reason}")]
    Catalog { reason: ModuleText },
    #[error("its catalog lists {file}, which the artifact does not have")]
    NoModule { file: String },
    #[error("it has {file}, which its catalog does not list")]
    Unlisted { file: String },
    #[error("its catalog lists {file} with another sha256, {listed}")]
    OtherDigest { file: String, listed: String },
}

/// Why a folder cannot be made an artifact.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error("the folder {} is not a valid catalog with its modules", .folder.display())]
    Catalog {
        folder: PathBuf,
        source: Box<CatalogError>,
    },
    #[error("{} cannot be read; check its permissions", .path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("the folder {} cannot be made an artifact; it may have changed while it was read", .folder.display())]
    Artifact {
        folder: PathBuf,
        source: ArtifactError,
    },
}

/// One file of an artifact, as its manifest lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OciLayer {
    /// Its name in the folder.
    pub(super) file: String,
    /// `sha256:` and the digest of its content.
    pub(super) digest: String,
    /// The size of its content.
    pub(super) size: u64,
}

/// The manifest of an artifact. Each layer has another name, one that a folder of modules may have,
/// and a size within the limits.
#[derive(Debug)]
pub(super) struct OciManifest {
    pub(super) bytes: Vec<u8>,
    pub(super) layers: Vec<OciLayer>,
}

/// A folder of modules in memory. Every file has the digest that the manifest lists, and every
/// module that of the catalog.
#[derive(Debug)]
pub struct OciArtifact {
    manifest: OciManifest,
    /// By digest.
    contents: BTreeMap<String, Vec<u8>>,
    modules: usize,
}

/// The digest of a content as OCI writes it.
pub(super) fn digest(content: &[u8]) -> String {
    format!("sha256:{}", digest_of(content))
}

impl OciManifest {
    /// Parses and validates a manifest.
    ///
    /// # Errors
    /// If it is of another artifact, or its layers are no possible files of a folder of modules.
    pub(super) fn parse(bytes: Vec<u8>) -> Result<Self, ArtifactError> {
        let manifest: OciImageManifest =
            serde_json::from_slice(&bytes).map_err(ArtifactError::Manifest)?;
        if manifest.artifact_type.as_deref() != Some(ARTIFACT_TYPE)
            || manifest.config.digest != digest(EMPTY)
        {
            let found = manifest.artifact_type.unwrap_or(manifest.config.media_type);
            return Err(ArtifactError::OtherType {
                found: ModuleText::reason(&found),
            });
        }
        let layers = manifest
            .layers
            .into_iter()
            .map(OciLayer::new)
            .collect::<Result<Vec<_>, _>>()?;
        let mut files = BTreeSet::new();
        if let Some(twice) = layers.iter().find(|layer| !files.insert(&layer.file)) {
            return Err(ArtifactError::FileTwice {
                file: twice.file.clone(),
            });
        }
        // Each size is at most some MiB, and the manifest is too small for so many of them that the
        // sum overflows.
        if layers.iter().map(|layer| layer.size).sum::<u64>() > ARTIFACT_BYTES {
            return Err(ArtifactError::TooLarge {
                what: "the artifact".to_owned(),
                limit: ARTIFACT_BYTES,
            });
        }
        Ok(Self { bytes, layers })
    }

    pub(super) fn of(files: &[(String, Vec<u8>)]) -> Result<Self, ArtifactError> {
        let layers = files.iter().map(|(name, content)| OciDescriptor {
            annotations: Some(BTreeMap::from([(
                ORG_OPENCONTAINERS_IMAGE_TITLE.to_owned(),
                name.clone(),
            )])),
            ..descriptor(media_type(name), content)
        });
        let manifest = OciImageManifest {
            media_type: Some(OCI_IMAGE_MEDIA_TYPE.to_owned()),
            artifact_type: Some(ARTIFACT_TYPE.to_owned()),
            config: descriptor(EMPTY_MEDIA_TYPE, EMPTY),
            layers: layers.collect(),
            ..OciImageManifest::default()
        };
        Self::parse(serde_json::to_vec(&manifest).map_err(ArtifactError::Manifest)?)
    }

    pub(super) fn digest(&self) -> String {
        digest(&self.bytes)
    }

    /// The digests of what the manifest refers to: the contents of the layers and the empty
    /// configuration.
    pub(super) fn digests(&self) -> BTreeSet<String> {
        self.layers
            .iter()
            .map(|layer| layer.digest.clone())
            .chain([digest(EMPTY)])
            .collect()
    }
}

impl OciLayer {
    fn new(layer: OciDescriptor) -> Result<Self, ArtifactError> {
        let title = layer
            .annotations
            .and_then(|mut annotations| annotations.remove(ORG_OPENCONTAINERS_IMAGE_TITLE));
        let file = title.unwrap_or_default();
        let limit = size_limit(&file).ok_or_else(|| ArtifactError::FileName {
            name: ModuleText::reason(&file),
        })?;
        // It becomes a part of a request's path.
        if !layer.digest.strip_prefix("sha256:").is_some_and(is_sha256) {
            return Err(ArtifactError::Digest {
                file,
                digest: ModuleText::reason(&layer.digest),
            });
        }
        match u64::try_from(layer.size) {
            Ok(size) if size <= limit => Ok(Self {
                file,
                digest: layer.digest,
                size,
            }),
            _ => Err(ArtifactError::TooLarge { what: file, limit }),
        }
    }
}

fn descriptor(media_type: &str, content: &[u8]) -> OciDescriptor {
    OciDescriptor {
        media_type: media_type.to_owned(),
        digest: digest(content),
        size: i64::try_from(content.len()).unwrap_or(i64::MAX),
        ..OciDescriptor::default()
    }
}

fn media_type(file: &str) -> &'static str {
    match Path::new(file)
        .extension()
        .and_then(|extension| extension.to_str())
    {
        Some("wasm") => "application/wasm",
        Some("toml") => "application/toml",
        _ => "text/plain",
    }
}

/// Largest size of a file, by its name; `None` if a folder of modules has no file of this name.
fn size_limit(file: &str) -> Option<u64> {
    match file {
        CATALOG_FILE | RELEASES_FILE | SIGNATURE_FILE => Some(TEXT_BYTES),
        module if is_file_name(module) => Some(Limits::default().component_bytes),
        _ => None,
    }
}

impl OciArtifact {
    /// Reads a folder of modules. The same folder always gives the same artifact.
    ///
    /// # Errors
    /// If the folder has missing, altered or unlisted modules, or a file cannot be read.
    pub(super) fn of_folder(folder: &Path, sandbox: &Sandbox) -> Result<Self, FolderError> {
        let modules =
            Catalog::contents(folder, sandbox).map_err(|source| FolderError::Catalog {
                folder: folder.to_owned(),
                source: source.into(),
            })?;
        let mut files = Vec::new();
        for name in [CATALOG_FILE, RELEASES_FILE, SIGNATURE_FILE] {
            let path = folder.join(name);
            match bbs_files::read(&path, TEXT_BYTES) {
                Ok(content) => files.push((name.to_owned(), content)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(source) => return Err(FolderError::Read { path, source }),
            }
        }
        files.extend(
            modules
                .into_iter()
                .map(|(entry, content)| (entry.file, content)),
        );
        OciManifest::of(&files)
            .and_then(|manifest| {
                let contents = files
                    .into_iter()
                    .map(|(_, content)| (digest(&content), content));
                Self::new(manifest, contents.collect())
            })
            .map_err(|source| FolderError::Artifact {
                folder: folder.to_owned(),
                source,
            })
    }

    /// Creates an artifact of a manifest and the contents that it lists, by digest. Others are
    /// ignored.
    ///
    /// # Errors
    /// If a content is missing or is not that of the manifest, or the modules are not those of the
    /// catalog.
    pub(super) fn new(
        manifest: OciManifest,
        contents: BTreeMap<String, Vec<u8>>,
    ) -> Result<Self, ArtifactError> {
        for OciLayer {
            file,
            digest: listed,
            size,
        } in &manifest.layers
        {
            let content = contents
                .get(listed)
                .ok_or_else(|| ArtifactError::NoContent {
                    file: file.clone(),
                    digest: listed.clone(),
                })?;
            let found = digest(content);
            if found != *listed || content.len() as u64 != *size {
                let found = format!("{} bytes of {found}", content.len());
                let listed = format!("{size} bytes of {listed}");
                return Err(ArtifactError::Altered {
                    file: file.clone(),
                    found,
                    listed,
                });
            }
        }
        let mut artifact = Self {
            manifest,
            contents,
            modules: 0,
        };
        artifact.modules = artifact.check_catalog()?.len();
        Ok(artifact)
    }

    fn check_catalog(&self) -> Result<Vec<CatalogEntry>, ArtifactError> {
        let files: BTreeMap<&str, &[u8]> = self.files().collect();
        let text = files.get(CATALOG_FILE).ok_or(ArtifactError::NoCatalog)?;
        let text = std::str::from_utf8(text).map_err(|_| ArtifactError::CatalogText)?;
        let unusable = |error: CatalogError| ArtifactError::Catalog {
            reason: ModuleText::of_error(&error),
        };
        let CatalogContent { entries, .. } =
            catalog::parse(Path::new(CATALOG_FILE), text).map_err(unusable)?;
        catalog::check_part(&entries).map_err(unusable)?;
        for CatalogEntry {
            file,
            sha256: listed,
            ..
        } in &entries
        {
            let module = files
                .get(file.as_str())
                .ok_or_else(|| ArtifactError::NoModule { file: file.clone() })?;
            if digest_of(module) != *listed {
                return Err(ArtifactError::OtherDigest {
                    file: file.clone(),
                    listed: listed.clone(),
                });
            }
        }
        let is_unlisted =
            |file: &&str| is_file_name(file) && entries.iter().all(|entry| entry.file != **file);
        match files.into_keys().find(is_unlisted) {
            Some(file) => Err(ArtifactError::Unlisted {
                file: file.to_owned(),
            }),
            None => Ok(entries),
        }
    }

    /// The digest of the manifest, which names the artifact and all of its files.
    pub fn digest(&self) -> String {
        self.manifest.digest()
    }

    /// The number of modules.
    pub fn modules(&self) -> usize {
        self.modules
    }

    pub(super) fn manifest(&self) -> &[u8] {
        &self.manifest.bytes
    }

    /// The blobs that the manifest refers to, by digest: the contents of the layers and the empty
    /// configuration.
    pub(super) fn blobs(&self) -> impl Iterator<Item = (String, &[u8])> {
        let content = |digest: &String| self.contents.get(digest).map_or(EMPTY, Vec::as_slice);
        self.manifest.digests().into_iter().map(move |digest| {
            let content = content(&digest);
            (digest, content)
        })
    }

    fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.manifest
            .layers
            .iter()
            .map(|layer| (layer.file.as_str(), &*self.contents[&layer.digest]))
    }

    /// Writes the folder, with all files or none.
    ///
    /// # Errors
    /// If the folder is not empty or cannot be written.
    pub(super) fn write_into(&self, folder: &NewFolder) -> Result<(), NewFolderError> {
        folder.write(self.files())
    }
}
