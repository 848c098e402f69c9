//! `releases.toml` of a modules directory: named releases, each with the data and API version that
//! belong to it. Owns reading the file; the pins that a release stands for are applied elsewhere.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bbs_files::digest::digest_of;
use bbs_lens::layout::manifest::DataVersion;
use serde::Deserialize;

use super::text::ModuleText;
use super::translate::ApiVersion;

/// The name of the file in a modules directory.
pub const RELEASES_FILE: &str = "releases.toml";

/// A release and its versions.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Release {
    /// The name that operators use.
    pub name: String,
    /// The data version that it works with.
    pub data: DataVersion,
    /// The newest API version that it serves.
    pub api: ApiVersion,
    /// Whether its versions may still change, until it is released.
    #[serde(default)]
    pub in_development: bool,
}

/// Why a release cannot be pinned.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    #[error("{} cannot be read; name the versions with `pin_data_version` and `pin_api_version` instead", .path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
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
    /// The digests that catalogs pin, by folder.
    pub by_folder: BTreeMap<PathBuf, String>,
    /// Whether a list that is not pinned is refused: the catalogs are signed.
    pub are_required: bool,
}

impl ReleaseDigests {
    fn check(&self, folder: &Path, path: &Path, text: &str) -> Result<(), ReleaseError> {
        match self.by_folder.get(folder) {
            Some(digest) if *digest != digest_of(text.as_bytes()) => Err(ReleaseError::Altered {
                path: path.to_owned(),
            }),
            None if self.are_required => Err(ReleaseError::NotPinned {
                path: path.to_owned(),
            }),
            Some(_) | None => Ok(()),
        }
    }
}

/// The releases of folders of modules, oldest first within each. The first folder must have a list
/// of releases, those of add-ons may.
///
/// # Errors
/// If the first folder has no list of releases, or a list is not the one that its catalog pins.
pub fn all(folders: &[PathBuf], digests: &ReleaseDigests) -> Result<Vec<Release>, ReleaseError> {
    let mut releases = Vec::new();
    for (at, folder) in folders.iter().enumerate() {
        let path = folder.join(RELEASES_FILE);
        let text = match bbs_files::read_text(&path) {
            Err(error) if at > 0 && error.kind() == std::io::ErrorKind::NotFound => continue,
            read => read.map_err(|source| ReleaseError::Read {
                path: path.clone(),
                source,
            })?,
        };
        digests.check(folder, &path, &text)?;
        releases.extend(parse(&text).map_err(|error| {
            let reason = ModuleText::of_toml(&text, &error);
            ReleaseError::Syntax { path, reason }
        })?);
    }
    Ok(releases)
}

/// The release of this name, or the one that a version of the program, as `bbs --version` prints
/// it, belongs to.
///
/// # Errors
/// As [`all`], or if no list has such a release.
pub fn release(
    folders: &[PathBuf],
    digests: &ReleaseDigests,
    name: &str,
) -> Result<Release, ReleaseError> {
    let releases = all(folders, digests)?;
    let known = || {
        releases
            .iter()
            .map(|release| release.name.clone())
            .collect()
    };
    // The last one of a name: an add-on may name a release anew.
    let named = |name: &str| releases.iter().rfind(|release| release.name == name);
    let found = named(name).or_else(|| named(minor_version(name)?));
    found.cloned().ok_or_else(|| ReleaseError::Unknown {
        name: name.to_owned(),
        known: known(),
    })
}

/// The first two numbers of a version of the program: `0.2` of `0.2.1` and of `0.2.0-dev`. Patches
/// of a release change neither its data version nor its API.
pub fn minor_version(version: &str) -> Option<&str> {
    let (minor, patch) = version
        .match_indices('.')
        .nth(1)
        .map(|(dot, _)| (&version[..dot], &version[dot + 1..]))?;
    let patch = patch
        .split_once(['-', '+'])
        .map_or(patch, |(number, _)| number);
    minor
        .split('.')
        .chain([patch])
        .all(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()))
        .then_some(minor)
}

/// The releases of a list.
///
/// # Errors
/// If the text is no list of releases.
pub fn parse(text: &str) -> Result<Vec<Release>, toml::de::Error> {
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
            release(
                &[folder.path().to_owned()],
                &ReleaseDigests::default(),
                "one"
            ),
            Err(ReleaseError::Read { .. })
        ));
        write("[[release]]\nname = \"one\"\ndata = 1_000\napi = \"1.0\"\n");
        let one = Release {
            name: "one".to_owned(),
            data: 1_000,
            api: ApiVersion::new(1, 0),
            in_development: false,
        };
        assert_eq!(
            release(
                &[folder.path().to_owned()],
                &ReleaseDigests::default(),
                "one"
            )
            .unwrap(),
            one
        );
        let error = release(
            &[folder.path().to_owned()],
            &ReleaseDigests::default(),
            "two",
        )
        .unwrap_err()
        .to_string();
        assert!(
            error.contains("no release \"two\": they have one"),
            "{error}"
        );
        for wrong in [
            "release = 1",
            "[[release]]\nname = \"one\"\n",
            "[[release]]\nname = \"a\"\ndata = 1\napi = \"1\"\n",
        ] {
            write(wrong);
            assert!(
                matches!(
                    release(
                        &[folder.path().to_owned()],
                        &ReleaseDigests::default(),
                        "one"
                    ),
                    Err(ReleaseError::Syntax { .. })
                ),
                "{wrong}"
            );
        }
    }

    #[test]
    fn version_of_the_program_belongs_to_the_release_of_its_first_two_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let text = "[[release]]\nname = \"0.2\"\ndata = 2\napi = \"1.2\"\nin_development = true\n\
                    [[release]]\nname = \"0.2.7\"\ndata = 7\napi = \"1.2\"\n";
        std::fs::write(folder.path().join(RELEASES_FILE), text).unwrap();
        let found = |name| {
            release(
                &[folder.path().to_owned()],
                &ReleaseDigests::default(),
                name,
            )
        };
        for version in ["0.2", "0.2.0", "0.2.13", "0.2.0-dev", "0.2.0-rc.1+build.5"] {
            assert!(
                found(version).is_ok_and(|release| release.data == 2 && release.in_development),
                "{version}"
            );
        }
        assert_eq!(
            found("0.2.7").unwrap().data,
            7,
            "a name goes before a version"
        );
        for unknown in ["0.3.0", "0.2.x", "0.2.", "0.2.0.0", "v0.2.0", "a.b.c", ""] {
            assert!(
                matches!(found(unknown), Err(ReleaseError::Unknown { .. })),
                "{unknown}"
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
            let by_folder = digest
                .map(|digest| (folder.clone(), digest))
                .into_iter()
                .collect();
            release(
                std::slice::from_ref(&folder),
                &ReleaseDigests {
                    by_folder,
                    are_required,
                },
                "one",
            )
        };
        let right = digest_of(text.as_bytes());
        assert!(
            of(Some(right.clone()), true).is_ok()
                && of(Some(right), false).is_ok()
                && of(None, false).is_ok()
        );
        assert!(matches!(
            of(None, true),
            Err(ReleaseError::NotPinned { .. })
        ));
        assert!(matches!(
            of(Some(digest_of(b"other")), false),
            Err(ReleaseError::Altered { .. })
        ));
    }

    #[test]
    fn releases_of_this_repository_are_valid() {
        let releases = parse(include_str!("../../../migrations-wasm/releases.toml")).unwrap();
        let mut names: Vec<_> = releases.iter().map(|release| &release.name).collect();
        names.sort();
        names.dedup();
        assert!(
            names.len() == releases.len() && !names.is_empty(),
            "{releases:?}"
        );
    }
}
