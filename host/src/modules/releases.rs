//! `releases.toml` of a modules directory: named releases, each with the data and API version that belong to it. Owns
//! reading the file; the pins that a release stands for are applied elsewhere.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::sandbox;
use super::text::ModuleText;
use super::translate::ApiVersion;
use crate::files;
use crate::layout::manifest::DataVersion;

/// The name of the file in a modules directory.
pub const RELEASES_FILE: &str = "releases.toml";

/// A release and its versions.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Release {
    /// What operators call it.
    pub name: String,
    /// The data version that it works with.
    pub data: DataVersion,
    /// The newest API version that it serves.
    pub api: ApiVersion,
}

/// Why a release cannot be pinned.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the variants")]
pub enum ReleaseError {
    #[error("{} cannot be read; name the versions with `pin_data_version` and `pin_api_version` instead", .path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{} is not a list of releases ({reason}); restore the file that belongs to the modules", .path.display())]
    Syntax { path: PathBuf, reason: ModuleText },
    #[error("{} was altered: its sha256 is not the one in the catalog; restore the file that was signed", .path.display())]
    Altered { path: PathBuf },
    #[error(
        "{} is not pinned by the signed catalog; sign the catalog again with `bbs module sign`, which pins it",
        .path.display()
    )]
    NotPinned { path: PathBuf },
    #[error(
        "the modules have no release {name:?}: they have {}; name one of these, or newer modules",
        .known.join(", ")
    )]
    Unknown { name: String, known: Vec<String> },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReleasesFile {
    #[serde(default)]
    release: Vec<Release>,
}

/// The digests of lists of releases, from the catalogs beside them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReleaseDigests {
    /// Of the catalogs that pin one.
    pub by_folder: BTreeMap<PathBuf, String>,
    /// Whether a list that is not pinned is refused: the catalogs are signed.
    pub are_required: bool,
}

impl ReleaseDigests {
    fn check(&self, folder: &Path, path: &Path, text: &str) -> Result<(), ReleaseError> {
        match self.by_folder.get(folder) {
            Some(digest) if *digest != sandbox::digest(text.as_bytes()) => {
                Err(ReleaseError::Altered { path: path.to_owned() })
            }
            None if self.are_required => Err(ReleaseError::NotPinned { path: path.to_owned() }),
            Some(_) | None => Ok(()),
        }
    }
}

/// The releases of folders of modules, oldest first within each. The first folder must have a list of releases, those of add-ons
/// may.
///
/// # Errors
/// If the first folder has no list of releases, or a list is not the one that its catalog pins.
pub fn all(folders: &[PathBuf], digests: &ReleaseDigests) -> Result<Vec<Release>, ReleaseError> {
    let mut releases = Vec::new();
    for (at, folder) in folders.iter().enumerate() {
        let path = folder.join(RELEASES_FILE);
        let text = match files::read_text(&path) {
            Err(error) if at > 0 && error.kind() == std::io::ErrorKind::NotFound => continue,
            read => read.map_err(|source| ReleaseError::Read { path: path.clone(), source })?,
        };
        digests.check(folder, &path, &text)?;
        releases.extend(parse(&text).map_err(|error| {
            let reason = ModuleText::of_toml(&text, &error);
            ReleaseError::Syntax { path, reason }
        })?);
    }
    Ok(releases)
}

/// The release of this name.
///
/// # Errors
/// As [`all`], or if no list has a release of this name.
pub fn release(folders: &[PathBuf], digests: &ReleaseDigests, name: &str) -> Result<Release, ReleaseError> {
    let releases = all(folders, digests)?;
    let known = || releases.iter().map(|release| release.name.clone()).collect();
    // The last one of a name: releases are only appended.
    let found = releases.iter().rfind(|release| release.name == name);
    found.cloned().ok_or_else(|| ReleaseError::Unknown { name: name.to_owned(), known: known() })
}

pub(super) fn parse(text: &str) -> Result<Vec<Release>, toml::de::Error> {
    toml::from_str::<ReleasesFile>(text).map(|file| file.release)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_is_found_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let write = |text: &str| std::fs::write(folder.path().join(RELEASES_FILE), text).unwrap();
        assert!(matches!(
            release(&[folder.path().to_owned()], &ReleaseDigests::default(), "one"),
            Err(ReleaseError::Read { .. })
        ));
        write("[[release]]\nname = \"one\"\ndata = 1_000\napi = \"1.0\"\n");
        let one = Release { name: "one".to_owned(), data: 1_000, api: ApiVersion::new(1, 0) };
        assert_eq!(release(&[folder.path().to_owned()], &ReleaseDigests::default(), "one").unwrap(), one);
        let error = release(&[folder.path().to_owned()], &ReleaseDigests::default(), "two").unwrap_err().to_string();
        assert!(error.contains("no release \"two\": they have one"), "{error}");
        for wrong in
            ["release = 1", "[[release]]\nname = \"one\"\n", "[[release]]\nname = \"a\"\ndata = 1\napi = \"1\"\n"]
        {
            write(wrong);
            assert!(
                matches!(
                    release(&[folder.path().to_owned()], &ReleaseDigests::default(), "one"),
                    Err(ReleaseError::Syntax { .. })
                ),
                "{wrong}"
            );
        }
    }

    #[test]
    fn list_that_is_not_the_pinned_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().to_owned();
        let text = "[[release]]\nname = \"one\"\ndata = 1\napi = \"1.0\"\n";
        std::fs::write(folder.join(RELEASES_FILE), text).unwrap();
        let of = |digest: Option<String>, are_required| {
            let by_folder = digest.map(|digest| (folder.clone(), digest)).into_iter().collect();
            release(std::slice::from_ref(&folder), &ReleaseDigests { by_folder, are_required }, "one")
        };
        let right = sandbox::digest(text.as_bytes());
        assert!(of(Some(right.clone()), true).is_ok() && of(Some(right), false).is_ok() && of(None, false).is_ok());
        assert!(matches!(of(None, true), Err(ReleaseError::NotPinned { .. })));
        assert!(matches!(of(Some(sandbox::digest(b"other")), false), Err(ReleaseError::Altered { .. })));
    }

    #[test]
    fn releases_of_this_repository_are_valid() {
        let releases = parse(include_str!("../../../migrations-wasm/releases.toml")).unwrap();
        let mut names: Vec<_> = releases.iter().map(|release| &release.name).collect();
        names.sort();
        names.dedup();
        assert!(names.len() == releases.len() && !names.is_empty(), "{releases:?}");
    }
}
