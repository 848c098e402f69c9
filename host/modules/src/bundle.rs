//! A folder of modules in one file, for sites without a network: its OCI artifact as an image
//! layout in a tar file. Owns the tar file; of its entries nothing is extracted to a path that the
//! file names.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use oci_client::manifest::{
    ImageIndexEntry, OCI_IMAGE_INDEX_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE, OciImageIndex,
};
use serde::Deserialize;

use super::catalog::{is_sha256, persist_readable};
use super::new_folder::{NewFolder, NewFolderError};
use super::oci::{
    self, ARTIFACT_BYTES, ARTIFACT_TYPE, ArtifactError, FolderError, OciArtifact, OciManifest,
};
use super::sandbox::Sandbox;
use super::text::ModuleText;

const LAYOUT_FILE: &str = "oci-layout";
const LAYOUT_VERSION: &str = "1.0.0";
const INDEX_FILE: &str = "index.json";
const BLOBS: &str = "blobs/sha256/";
/// Folders, which other programs list before the files in them.
const FOLDERS: [&str; 2] = ["blobs/", BLOBS];

/// Largest size of one entry: that of a module or a text file.
const ENTRY_BYTES: u64 = 4 << 20;
/// Largest size of a bundle: that of its contents, and of the headers and the padding.
const BUNDLE_BYTES: u64 = ARTIFACT_BYTES + (32 << 20);

/// Why a folder was not saved, or a bundle not loaded. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error("{} cannot be written; check the permissions and the space of its folder", .file.display())]
    Write { file: PathBuf, source: io::Error },
    #[error("{} cannot be read as a bundle of modules; check that it was copied as a whole", .file.display())]
    Read { file: PathBuf, source: io::Error },
    #[error("{} is larger than {BUNDLE_BYTES} bytes, and no bundle of modules is", .file.display())]
    TooLarge { file: PathBuf },
    #[error("{}: the entry \"{entry}\" {what}; save the bundle again", .file.display())]
    Entry {
        file: PathBuf,
        entry: ModuleText,
        what: ModuleText,
    },
    #[error("the bundle {} has no usable folder of modules; save it again", .file.display())]
    Artifact {
        file: PathBuf,
        source: ArtifactError,
    },
    #[error(transparent)]
    NewFolder(#[from] NewFolderError),
}

impl BundleError {
    fn entry(file: &Path, entry: &str, what: &str) -> Self {
        Self::Entry {
            file: file.to_owned(),
            entry: ModuleText::reason(entry),
            what: ModuleText::reason(what),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LayoutVersion {
    image_layout_version: String,
}

/// Saves a folder of modules as a bundle; an existing file is replaced. The same folder gives the
/// same bytes.
///
/// # Errors
/// If the folder is no valid catalog with its modules, or the file cannot be written.
pub fn save(folder: &Path, file: &Path, sandbox: &Sandbox) -> Result<OciArtifact, BundleError> {
    let artifact = OciArtifact::of_folder(folder, sandbox)?;
    let write = || {
        let mut stage = tempfile::NamedTempFile::new_in(bbs_files::folder_of(file))?;
        write_tar(&artifact, stage.as_file_mut())?;
        stage.as_file().sync_all()?;
        persist_readable(stage, file)
    };
    write().map_err(|source| BundleError::Write {
        file: file.to_owned(),
        source,
    })?;
    Ok(artifact)
}

pub(super) fn write_tar(artifact: &OciArtifact, file: &mut dyn Write) -> io::Result<()> {
    let index = OciImageIndex {
        schema_version: 2,
        media_type: Some(OCI_IMAGE_INDEX_MEDIA_TYPE.to_owned()),
        manifests: vec![ImageIndexEntry {
            media_type: OCI_IMAGE_MEDIA_TYPE.to_owned(),
            digest: artifact.digest(),
            size: i64::try_from(artifact.manifest().len()).map_err(io::Error::other)?,
            platform: None,
            annotations: None,
            artifact_type: Some(ARTIFACT_TYPE.to_owned()),
        }],
        artifact_type: None,
        annotations: None,
    };
    let index = serde_json::to_vec(&index)?;
    let layout = format!("{{\"imageLayoutVersion\":\"{LAYOUT_VERSION}\"}}");
    let mut entries = BTreeMap::from([
        (LAYOUT_FILE.to_owned(), layout.as_bytes()),
        (INDEX_FILE.to_owned(), &index),
        (blob_entry(&artifact.digest()), artifact.manifest()),
    ]);
    entries.extend(
        artifact
            .blobs()
            .map(|(digest, content)| (blob_entry(&digest), content)),
    );
    let mut tar = tar::Builder::new(file);
    for (name, content) in entries {
        // Of no time and no user, so that the same folder gives the same bytes.
        let mut header = tar::Header::new_ustar();
        header.set_path(name)?;
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_cksum();
        tar.append(&header, content)?;
    }
    tar.finish()
}

/// The entry of the blob with a digest: `sha256:…`.
fn blob_entry(digest: &str) -> String {
    format!(
        "{BLOBS}{}",
        digest.strip_prefix("sha256:").unwrap_or(digest)
    )
}

/// Loads a bundle into a folder that is new or empty. Every digest and size is verified before the
/// folder is written.
///
/// # Errors
/// If the folder is not empty, or the bundle is damaged, has unknown entries, or is of no valid
/// folder of modules.
pub fn load(file: &Path, into: &Path) -> Result<OciArtifact, BundleError> {
    let folder = NewFolder::at(into)?;
    let failed = |source| BundleError::Read {
        file: file.to_owned(),
        source,
    };
    let open = bbs_files::open(file).map_err(failed)?;
    if open.metadata().map_err(failed)?.len() > BUNDLE_BYTES {
        return Err(BundleError::TooLarge {
            file: file.to_owned(),
        });
    }
    let artifact = parse(file, open)?;
    artifact.write_into(&folder)?;
    Ok(artifact)
}

/// Parses a bundle. `file` is only used in errors.
pub(super) fn parse(file: &Path, content: impl Read) -> Result<OciArtifact, BundleError> {
    Bundle {
        file,
        entries: read_tar(file, content)?,
    }
    .artifact()
}

/// Reads all entries of a tar file, by name.
fn read_tar(file: &Path, content: impl Read) -> Result<BTreeMap<String, Vec<u8>>, BundleError> {
    let failed = |source| BundleError::Read {
        file: file.to_owned(),
        source,
    };
    let mut entries = BTreeMap::new();
    // The file may grow while it is read. Raw: extension headers, which may have a name or a size
    // of any length, are entries of another type.
    let mut tar = tar::Archive::new(BufReader::new(content.take(BUNDLE_BYTES)));
    for entry in tar.entries().map_err(failed)?.raw(true) {
        let mut entry = entry.map_err(failed)?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let refused = |what: &str| BundleError::entry(file, &name, what);
        if entry.header().entry_type().is_dir() && FOLDERS.contains(&name.as_str()) {
            continue;
        }
        if !entry.header().entry_type().is_file() {
            return Err(refused("is not a regular file"));
        }
        if name != LAYOUT_FILE && name != INDEX_FILE && !is_blob_name(&name) {
            return Err(refused("is not one of an OCI image layout"));
        }
        if entry.size() > ENTRY_BYTES {
            return Err(refused(&format!("is larger than {ENTRY_BYTES} bytes")));
        }
        let mut content = Vec::new();
        entry.read_to_end(&mut content).map_err(failed)?;
        if content.len() as u64 != entry.size() {
            return Err(refused("is cut short"));
        }
        let found = oci::digest(&content);
        if is_blob_name(&name) && blob_entry(&found) != name {
            return Err(refused(&format!(
                "was altered: its content has the digest {found}"
            )));
        }
        if entries.insert(name.clone(), content).is_some() {
            return Err(refused("is there twice"));
        }
    }
    Ok(entries)
}

fn is_blob_name(name: &str) -> bool {
    name.strip_prefix(BLOBS).is_some_and(is_sha256)
}

/// The entries of a bundle that are not used yet, by name.
struct Bundle<'a> {
    file: &'a Path,
    entries: BTreeMap<String, Vec<u8>>,
}

impl Bundle<'_> {
    /// Returns the only artifact of the bundle.
    fn artifact(mut self) -> Result<OciArtifact, BundleError> {
        let unusable = |source| BundleError::Artifact {
            file: self.file.to_owned(),
            source,
        };
        let layout: LayoutVersion = self.json(LAYOUT_FILE)?;
        if layout.image_layout_version != LAYOUT_VERSION {
            return Err(self.refused(
                LAYOUT_FILE,
                &format!("is of version {:?}", layout.image_layout_version),
            ));
        }
        let index: OciImageIndex = self.json(INDEX_FILE)?;
        let [listed] = index.manifests.as_slice() else {
            return Err(self.refused(
                INDEX_FILE,
                &format!("lists {} artifacts, not one", index.manifests.len()),
            ));
        };
        let manifest = self.take_entry(&blob_entry(&listed.digest))?;
        if i64::try_from(manifest.len()) != Ok(listed.size) {
            return Err(self.refused(INDEX_FILE, "lists the manifest with another size"));
        }
        let manifest = OciManifest::parse(manifest).map_err(unusable)?;
        let mut contents = BTreeMap::new();
        for digest in manifest.digests() {
            let content = self.take_entry(&blob_entry(&digest))?;
            contents.insert(digest, content);
        }
        if let Some(extra) = self.entries.keys().next() {
            return Err(self.refused(extra, "does not belong to the artifact"));
        }
        OciArtifact::new(manifest, contents).map_err(unusable)
    }

    fn take_entry(&mut self, name: &str) -> Result<Vec<u8>, BundleError> {
        self.entries
            .remove(name)
            .ok_or_else(|| self.refused(name, "is missing"))
    }

    fn json<T: serde::de::DeserializeOwned>(&mut self, name: &str) -> Result<T, BundleError> {
        let content = self.take_entry(name)?;
        serde_json::from_slice(&content)
            .map_err(|error| self.refused(name, &format!("is not valid: {error}")))
    }

    fn refused(&self, entry: &str, what: &str) -> BundleError {
        BundleError::entry(self.file, entry, what)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;
    use crate::catalog::CATALOG_FILE;

    fn artifact(catalog: &[u8]) -> Result<OciArtifact, ArtifactError> {
        let manifest = OciManifest::of(&[(CATALOG_FILE.to_owned(), catalog.to_vec())])?;
        OciArtifact::new(manifest, [(oci::digest(catalog), catalog.to_vec())].into())
    }

    fn bundle(artifact: &OciArtifact) -> Vec<u8> {
        let mut tar = Vec::new();
        write_tar(artifact, &mut tar).unwrap();
        tar
    }

    fn parse(bytes: &[u8]) -> Result<OciArtifact, BundleError> {
        super::parse(Path::new("bundle.tar"), bytes)
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic_in_a_bundle(
            bytes in prop::collection::vec(any::<u8>(), 0..1500),
            place in any::<Index>(),
            byte in any::<u8>(),
            length in any::<Index>(),
        ) {
            prop_assert!(parse(&bytes).is_err());
            prop_assert!(OciManifest::parse(bytes.clone()).is_err());
            prop_assert!(artifact(&[b"#", &bytes[..]].concat()).is_err() || std::str::from_utf8(&bytes).is_ok());
            let sound = artifact(b"serial = 1\n").unwrap();
            let mut damaged = bundle(&sound);
            prop_assert_eq!(parse(&damaged).unwrap().digest(), sound.digest());
            let _ = parse(&damaged[..length.index(damaged.len())]);
            *place.get_mut(&mut damaged) = byte;
            if let Ok(read) = parse(&damaged) {
                prop_assert_eq!(read.digest(), sound.digest(), "a damaged bundle has the same content or is refused");
            }
        }
    }
}
