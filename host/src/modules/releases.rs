//! `releases.toml` of a modules directory: named releases, each with the data and API version that belong to it. Owns
//! reading the file; the pins that a release stands for are applied elsewhere.

use std::path::{Path, PathBuf};

use serde::Deserialize;

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
    #[error("{} is not a list of releases; restore the file that belongs to the modules", .path.display())]
    Syntax { path: PathBuf, source: Box<toml::de::Error> },
    #[error(
        "{} has no release {name:?}: it has {}; name one of these, or newer modules",
        .path.display(),
        .known.join(", ")
    )]
    Unknown { path: PathBuf, name: String, known: Vec<String> },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReleasesFile {
    #[serde(default)]
    release: Vec<Release>,
}

/// The release of this name, according to a modules directory.
///
/// # Errors
/// If the directory has no list of releases, or none of this name.
pub fn release(modules_dir: &Path, name: &str) -> Result<Release, ReleaseError> {
    let path = modules_dir.join(RELEASES_FILE);
    let text = files::read_text(&path).map_err(|source| ReleaseError::Read { path: path.clone(), source })?;
    let releases = parse(&text).map_err(|source| ReleaseError::Syntax { path: path.clone(), source: source.into() })?;
    let known = || releases.iter().map(|release| release.name.clone()).collect();
    // The last one of a name: releases are only appended.
    let found = releases.iter().rfind(|release| release.name == name);
    found.cloned().ok_or_else(|| ReleaseError::Unknown { path, name: name.to_owned(), known: known() })
}

fn parse(text: &str) -> Result<Vec<Release>, toml::de::Error> {
    toml::from_str::<ReleasesFile>(text).map(|file| file.release)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_is_found_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let write = |text: &str| std::fs::write(folder.path().join(RELEASES_FILE), text).unwrap();
        assert!(matches!(release(folder.path(), "one"), Err(ReleaseError::Read { .. })));
        write("[[release]]\nname = \"one\"\ndata = 1_000\napi = \"1.0\"\n");
        let one = Release { name: "one".to_owned(), data: 1_000, api: ApiVersion::new(1, 0) };
        assert_eq!(release(folder.path(), "one").unwrap(), one);
        let error = release(folder.path(), "two").unwrap_err().to_string();
        assert!(error.contains("no release \"two\": it has one"), "{error}");
        for wrong in
            ["release = 1", "[[release]]\nname = \"one\"\n", "[[release]]\nname = \"a\"\ndata = 1\napi = \"1\"\n"]
        {
            write(wrong);
            assert!(matches!(release(folder.path(), "one"), Err(ReleaseError::Syntax { .. })), "{wrong}");
        }
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
