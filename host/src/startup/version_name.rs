//! The names of data versions on the command line: numbers, and releases of the modules.

use std::convert::Infallible;
use std::str::FromStr;

use bbs_lens::layout::manifest::DataVersion;
use bbs_modules::catalog::Catalog;
use bbs_modules::releases::{self, ReleaseError};

use super::StartupError;
use super::takeover::check_version;
use crate::config::Config;

/// A data version as an operator names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VersionName {
    /// The version itself.
    Number(DataVersion),
    /// The release with that version, as `releases.toml` of the modules names it.
    Release(String),
}

impl FromStr for VersionName {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(text
            .parse()
            .map_or_else(|_| Self::Release(text.to_owned()), Self::Number))
    }
}

/// The data version with the name that the argument `--to` has.
///
/// # Errors
/// The modules have no such version, or no such release; the error names those there are.
pub(super) fn version_to_go_to(
    config: &Config,
    catalog: &Catalog,
    name: &VersionName,
) -> Result<DataVersion, StartupError> {
    let version = match name {
        VersionName::Number(version) => *version,
        VersionName::Release(name) => {
            let folders = config.module_folders()?;
            let release = releases::release(&folders, catalog.release_digests(), name);
            release
                .map(|release| release.data)
                .map_err(|fault| match fault {
                    ReleaseError::Unknown { name, known } => {
                        StartupError::UnknownRelease { name, known }
                    }
                    fault => StartupError::NoReleases(fault),
                })?
        }
    };
    check_version(config, catalog, "`--to`", version)?;
    Ok(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_a_version_and_all_else_is_a_release() {
        let release = |name: &str| VersionName::Release(name.to_owned());
        for (text, name) in [
            ("1722634733", VersionName::Number(1_722_634_733)),
            ("diego", release("diego")),
            ("0.1", release("0.1")),
            ("-1", release("-1")),
            ("99999999999999999999", release("99999999999999999999")),
        ] {
            assert_eq!(text.parse(), Ok(name));
        }
    }
}
