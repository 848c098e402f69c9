//! The versions of a new module: given by the author, or beside those of the modules that it will
//! run with. Writes nothing.

use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use bbs_lens::layout::manifest::DataVersion;
use bbs_modules::build::listed_crates;
use bbs_modules::catalog::{CATALOG_FILE, Catalog, CatalogEntry, CatalogError, CatalogPosition};
use bbs_modules::translate::ApiVersion;

use crate::api::CHAIN_END;

/// The folder of modules in the current folder that is used unless another one is named.
const DEFAULT_FOLDER: &str = "modules";

/// The ends of the sequences that a new module extends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ends {
    /// The version of the newest migration, if there is one.
    pub(super) newest_data: Option<DataVersion>,
    /// The API version of the oldest translator; the oldest of the host's own without translators.
    pub(super) oldest_api: ApiVersion,
}

impl Default for Ends {
    fn default() -> Self {
        Self {
            newest_data: None,
            oldest_api: CHAIN_END,
        }
    }
}

impl Ends {
    /// The versions of the folder `given` and of the folders `base`, which it continues; without
    /// any, of `modules` in the current folder and of the repository that the SDK belongs to, as
    /// far as they exist.
    ///
    /// # Errors
    /// If a folder's catalog cannot be read, or the folders do not form one sequence.
    pub(super) fn find(given: Option<&Path>, base: &[PathBuf], sdk: &Path) -> anyhow::Result<Self> {
        let named: Vec<PathBuf> = base
            .iter()
            .cloned()
            .chain(given.map(Path::to_owned))
            .collect();
        if !named.is_empty() {
            return Self::default().with_folders(&named);
        }
        let repository =
            listed_crates(&sdk.join("../migrations-wasm/catalog.toml")).unwrap_or_default();
        let ends = Self::default().with_crates(&repository);
        let folder = Path::new(DEFAULT_FOLDER);
        if folder.join(CATALOG_FILE).exists() {
            ends.with_folders(&[folder.to_owned()])
        } else {
            Ok(ends)
        }
    }

    fn with_folders(mut self, folders: &[PathBuf]) -> anyhow::Result<Self> {
        for entry in entries_of(folders)? {
            match entry.position {
                CatalogPosition::Migration { version, .. } => {
                    self.newest_data = self.newest_data.max(Some(version));
                }
                CatalogPosition::Translator { serves, .. } if serves.side.is_none() => {
                    self.oldest_api = self.oldest_api.min(serves);
                }
                CatalogPosition::Translator { .. } => {}
            }
        }
        Ok(self)
    }

    fn with_crates(mut self, crates: &[PathBuf]) -> Self {
        for name in crates
            .iter()
            .filter_map(|folder| folder.file_name()?.to_str())
        {
            if let Some((serves, _)) = two_versions(name) {
                self.oldest_api = self.oldest_api.min(serves);
            } else {
                let version = name.split('-').next();
                let version = version.and_then(|version| version.parse().ok());
                self.newest_data = self.newest_data.max(version);
            }
        }
        self
    }

    /// `now`, or one more than the newest version.
    pub(super) fn next_data(self, now: DataVersion) -> DataVersion {
        self.newest_data.map_or(now, |newest| now.max(newest + 1))
    }

    /// The versions that a translator serves and is written onto. By default, the oldest one and
    /// the one before it.
    ///
    /// # Errors
    /// If the two versions are not in this order, or there is no minor version before `onto`.
    pub(super) fn of_translator(
        self,
        serves: Option<ApiVersion>,
        onto: Option<ApiVersion>,
    ) -> anyhow::Result<(ApiVersion, ApiVersion)> {
        let onto = onto.unwrap_or(self.oldest_api);
        let before = onto
            .minor
            .checked_sub(1)
            .map(|minor| ApiVersion { minor, ..onto });
        match serves.or(before) {
            Some(serves) if serves < onto => Ok((serves, onto)),
            Some(serves) => {
                bail!(
                    "a translator is written in terms of a newer version, and {onto} is not newer than {serves}; correct \
                     --serves or --onto"
                )
            }
            None => {
                bail!(
                    "no minor version comes before {onto}; name the version that the translator serves with --serves"
                )
            }
        }
    }
}

/// The modules of folders that form one sequence. The error for a single folder that is an add-on
/// names `--base`.
fn entries_of(folders: &[PathBuf]) -> anyhow::Result<Vec<CatalogEntry>> {
    Catalog::merged_entries(folders).map_err(|error| match (&error, folders) {
        (CatalogError::DataGap { .. }, [folder]) => {
            let folder = folder.display();
            anyhow!(error).context(format!(
                "the migrations in {folder} are not a complete sequence; if it is an add-on, name the folders that it \
                 continues with --base"
            ))
        }
        _ => error.into(),
    })
}

/// The versions of a translator's name, such as `0.8-to-0.9`.
pub(super) fn two_versions(name: &str) -> Option<(ApiVersion, ApiVersion)> {
    let (serves, onto) = name.split_once("-to-")?;
    Some((ApiVersion::parse(serves)?, ApiVersion::parse(onto)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn version(major: u32, minor: u32) -> ApiVersion {
        ApiVersion::new(major, minor)
    }

    #[test]
    fn translator_is_by_default_beside_the_oldest_version() {
        let ends = Ends {
            oldest_api: version(0, 9),
            ..Ends::default()
        };
        assert_eq!(
            ends.of_translator(None, None).unwrap(),
            (version(0, 8), version(0, 9))
        );
        assert_eq!(
            ends.of_translator(Some(version(0, 5)), None).unwrap(),
            (version(0, 5), version(0, 9))
        );
        assert_eq!(
            ends.of_translator(None, Some(version(1, 1))).unwrap(),
            (version(1, 0), version(1, 1))
        );
        let error = ends
            .of_translator(None, Some(version(1, 0)))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("no minor version comes before 1.0"),
            "{error}"
        );
        let error = ends
            .of_translator(Some(version(0, 9)), None)
            .unwrap_err()
            .to_string();
        assert!(error.contains("0.9 is not newer than 0.9"), "{error}");
    }

    #[test]
    fn ends_are_those_of_the_modules_of_the_repository_and_of_the_folder() {
        let work = tempfile::tempdir().unwrap();
        let sdk = work.path().join("sdk");
        assert_eq!(Ends::find(None, &[], &sdk).unwrap(), Ends::default());
        let crates = [
            "data/1461790966-init_sql",
            "data/9000000000-far-off",
            "api/0.9-to-0.10",
            "api/1.0-to-1.1",
        ];
        let list: String = crates
            .iter()
            .map(|folder| format!("[[module]]\ncrate = \"{folder}\"\n"))
            .collect();
        std::fs::create_dir(&sdk).unwrap();
        std::fs::create_dir(work.path().join("migrations-wasm")).unwrap();
        std::fs::write(work.path().join("migrations-wasm/catalog.toml"), list).unwrap();
        let ends = Ends::find(None, &[], &sdk).unwrap();
        assert_eq!(
            ends,
            Ends {
                newest_data: Some(9_000_000_000),
                oldest_api: version(0, 9)
            }
        );
        assert_eq!(
            (ends.next_data(5), ends.next_data(9_000_000_009)),
            (9_000_000_001, 9_000_000_009)
        );
        assert_eq!(Ends::default().next_data(5), 5);

        let entry = |serves, onto| {
            let sha256 = "0".repeat(64);
            format!(
                "[[module]]\nkind = \"translator\"\nfile = \"{serves}.wasm\"\nsha256 = \"{sha256}\"\nserves = \"{serves}\"\nonto = \"{onto}\"\n"
            )
        };
        let modules = work.path().join("modules");
        assert!(
            Ends::find(Some(&modules), &[], &sdk).is_err(),
            "a folder that is named has to be one of modules"
        );
        std::fs::create_dir(&modules).unwrap();
        std::fs::write(
            modules.join(CATALOG_FILE),
            entry("0.12", "1.0") + &entry("1.0", "1.1"),
        )
        .unwrap();
        let ends = Ends::find(Some(&modules), &[], &sdk).unwrap();
        assert_eq!(
            ends,
            Ends {
                newest_data: None,
                oldest_api: version(0, 12)
            }
        );
    }

    #[test]
    fn ends_of_an_add_on_are_those_of_the_folders_that_it_continues_too() {
        let work = tempfile::tempdir().unwrap();
        let folder = |name: &str, version: u64, follows: &str| {
            let path = work.path().join(name);
            let sha256 = "0".repeat(64);
            std::fs::create_dir(&path).unwrap();
            let entry = format!(
                "[[module]]\nkind = \"migration\"\nfile = \"{name}.wasm\"\nsha256 = \"{sha256}\"\nversion = {version}\n{follows}"
            );
            std::fs::write(path.join(CATALOG_FILE), entry).unwrap();
            path
        };
        let host = folder("host", 50, "");
        let add_on = folder("add-on", 100, "follows = 50\n");
        let newest = |given, base: &[&Path]| {
            let base: Vec<_> = base.iter().map(|path| path.to_path_buf()).collect();
            Ends::find(given, &base, work.path()).map(|ends| ends.newest_data)
        };
        assert_eq!(newest(Some(&add_on), &[&host]).unwrap(), Some(100));
        assert_eq!(newest(None, &[&add_on, &host]).unwrap(), Some(100));
        assert_eq!(newest(None, &[&host]).unwrap(), Some(50));
        let error = format!("{:#}", newest(Some(&add_on), &[]).unwrap_err());
        assert!(
            error.contains("continues with --base: add-on.wasm"),
            "{error}"
        );
    }
}
