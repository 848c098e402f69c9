//! Default folders for what Diego's `bbs.json` has no key for. Owns the candidates and their order;
//! creates no folder.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bbs_database::Address;
use bbs_files::digest::digest_of;

use super::ConfigError;

/// BOSH's read-only folder of job configurations, the folder that its links lead to, and the
/// writable data folder.
const JOBS: [&str; 2] = ["/var/vcap/jobs", "/var/vcap/data/jobs"];
const DATA: &str = "/var/vcap/data";
/// A folder that every user may write to and that outlasts a restart of the machine.
const SHARED: &str = "/var/tmp";

/// The folder of modules that was shipped with the executable: `modules` beside it, or beside its
/// folder.
///
/// # Errors
/// If there is none.
pub fn modules() -> Result<PathBuf, ConfigError> {
    let executable = std::env::current_exe().unwrap_or_default();
    let places = module_folders(&executable);
    let existing = places.iter().find(|place| place.is_dir()).cloned();
    existing.ok_or_else(|| ConfigError::NoModules {
        places: places
            .iter()
            .map(|place| place.display().to_string())
            .collect::<Vec<_>>()
            .join(" or "),
    })
}

fn module_folders(executable: &Path) -> Vec<PathBuf> {
    executable
        .ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join("modules"))
        .collect()
}

/// The folder for the admin socket and, where no other can be had, compiled modules, if the
/// configuration names none: BOSH's writable folder of the job, or one that no other host has,
/// derived from the file of the database, or from the configuration file if the database is a
/// server's. It depends on paths alone and not on the environment, so that every command with the
/// same file finds the same socket.
pub(super) fn data(file: &Path, base: &Path, database: &Address) -> PathBuf {
    if let Address::Sqlite(database) = database {
        let mut path = database.clone().into_os_string();
        path.push(".data");
        return path.into();
    }
    bosh(base)
        .filter(|folder| folder.is_dir())
        .unwrap_or_else(|| Path::new(SHARED).join(own_name(file)))
}

/// A name that depends on the path of the file, with symbolic links resolved. Short, since the path
/// of a socket has fewer than 108 bytes.
fn own_name(file: &Path) -> String {
    let file = file
        .canonicalize()
        .or_else(|_| std::path::absolute(file))
        .unwrap_or_else(|_| file.to_owned());
    let digest = digest_of(file.as_os_str().as_encoded_bytes());
    format!("bbs-{}", &digest[..16])
}

/// `/var/vcap/data/NAME/tmp` for `/var/vcap/jobs/NAME/config`. Under `bpm` a job has no other
/// writable folder by default.
pub(super) fn bosh(base: &Path) -> Option<PathBuf> {
    bosh_from(&std::env::current_dir().unwrap_or_default(), base)
}

/// [`bosh`] for a folder that may be relative to the working directory. That has its links
/// resolved, so that in the folder of a job it is below `/var/vcap/data/jobs`.
fn bosh_from(working: &Path, base: &Path) -> Option<PathBuf> {
    let base = working.join(base);
    let below = JOBS.iter().find_map(|jobs| base.strip_prefix(jobs).ok())?;
    Some(Path::new(DATA).join(below.components().next()?).join("tmp"))
}

/// The name of a folder of compiled modules.
const MODULE_CACHE: &str = "module-cache";

/// Folders for compiled modules, in order of preference: one that all hosts of this user share, so
/// that each module is compiled once per machine, then the data folder. A BOSH job may only write
/// to its data folder.
pub(super) fn module_caches(data: &Path) -> Vec<PathBuf> {
    let own = data.join(MODULE_CACHE);
    if data.starts_with(DATA) {
        return vec![own];
    }
    shared_module_cache().into_iter().chain([own]).collect()
}

/// The folder for compiled modules that all hosts of this user share.
pub fn shared_module_cache() -> Option<PathBuf> {
    shared_cache(|name| std::env::var_os(name))
}

/// `CACHE_DIRECTORY` is set by systemd (`CacheDirectory=`), `XDG_CACHE_HOME` by desktops.
fn shared_cache(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let folder = |name: &str| {
        let folders = variable(name)?;
        // systemd separates several folders with `:`.
        std::env::split_paths(&folders)
            .next()
            .filter(|folder| folder.is_absolute() && folder != Path::new("/"))
    };
    match folder("CACHE_DIRECTORY") {
        Some(service) => Some(service.join("modules")),
        None => folder("XDG_CACHE_HOME")
            .or_else(|| {
                folder("HOME")
                    .filter(|home| is_own(home))
                    .map(|home| home.join(".cache"))
            })
            .map(|cache| cache.join("bbs/modules")),
    }
}

/// Whether a folder exists and belongs to the user of this process: with `sudo`, `HOME` may be
/// another user's, who could then not write to what root created there.
fn is_own(folder: &Path) -> bool {
    std::fs::metadata(folder)
        .is_ok_and(|found| found.is_dir() && found.uid() == bbs_files::own_user())
}

/// A pattern of folders that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ModuleFoldersError {
    #[error("`modules_dirs` has {}, which is no pattern of folders; correct it at the place named below", .pattern.display())]
    Pattern {
        pattern: PathBuf,
        source: glob::PatternError,
    },
    #[error("a folder of the pattern {} in `modules_dirs` cannot be read; check its permissions", .pattern.display())]
    Read {
        pattern: PathBuf,
        source: glob::GlobError,
    },
}

/// The folders of modules: the host's own, then those that the patterns match, in alphabetic order
/// of each; each folder once. A pattern may match none, and matches no folder that commands make
/// beside those of modules; a path without a wildcard is a folder also if it does not exist.
///
/// # Errors
/// A pattern cannot be used.
pub(super) fn expand(own: &Path, patterns: &[PathBuf]) -> Result<Vec<PathBuf>, ModuleFoldersError> {
    let mut folders = vec![own.to_owned()];
    let mut add = |folder: PathBuf| {
        let canonical = folder.canonicalize();
        let is_known = folders
            .iter()
            .any(|other| match (other.canonicalize(), &canonical) {
                (Ok(one), Ok(other)) => one == *other,
                _ => *other == folder,
            });
        if !is_known {
            folders.push(folder);
        }
    };
    for pattern in patterns {
        let Some(text) = pattern
            .to_str()
            .filter(|text| text.contains(['*', '?', '[']))
        else {
            add(pattern.clone());
            continue;
        };
        let matches = glob::glob(text).map_err(|source| ModuleFoldersError::Pattern {
            pattern: pattern.clone(),
            source,
        })?;
        for found in matches {
            let folder = found.map_err(|source| ModuleFoldersError::Read {
                pattern: pattern.clone(),
                source,
            })?;
            if folder.is_dir() && (is_hidden(pattern) || !is_made_beside(&folder)) {
                add(folder);
            }
        }
    }
    Ok(folders)
}

/// Whether commands make a folder of this name beside folders of modules: for compiled modules, or
/// hidden, for a folder that they write and then rename. A hidden one outlasts a kill.
fn is_made_beside(folder: &Path) -> bool {
    folder.ends_with(MODULE_CACHE) || is_hidden(folder)
}

fn is_hidden(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// The folder beside the modules folder in which a package ships the output of `bbs module
/// compile`.
pub fn shipped_module_cache(modules: &Path) -> PathBuf {
    modules.with_file_name(MODULE_CACHE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_cache_is_shared_by_hosts_of_one_user() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().to_str().unwrap();
        let shared = |variables: &[(&str, &str)]| {
            shared_cache(|name| {
                variables
                    .iter()
                    .find(|(variable, _)| *variable == name)
                    .map(|(_, value)| value.into())
            })
        };
        let in_home = Some(Path::new(home).join(".cache/bbs/modules"));
        assert_eq!(shared(&[("HOME", home)]), in_home);
        assert_eq!(
            shared(&[("HOME", home), ("XDG_CACHE_HOME", "/c")]),
            Some("/c/bbs/modules".into())
        );
        assert_eq!(
            shared(&[("HOME", home), ("XDG_CACHE_HOME", "relative")]),
            in_home
        );
        assert_eq!(
            shared(&[("HOME", home), ("CACHE_DIRECTORY", "/s:/t")]),
            Some("/s/modules".into())
        );
        for none in [
            &[][..],
            &[("HOME", "/nonexistent")],
            &[("HOME", "/")],
            &[("HOME", "")],
        ] {
            assert_eq!(shared(none), None, "{none:?}");
        }
    }

    #[test]
    fn module_cache_falls_back_to_the_data_folder() {
        assert_eq!(
            module_caches(Path::new("/srv/data")).last(),
            Some(&PathBuf::from("/srv/data/module-cache"))
        );
        let job = Path::new("/var/vcap/data/bbs/tmp");
        assert_eq!(module_caches(job), [job.join("module-cache")]);
    }

    #[test]
    fn patterns_of_module_folders_are_expanded_in_order_and_each_folder_is_named_once() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        for folder in [
            "b/bbs-modules",
            "a/bbs-modules",
            "a/module-cache",
            "a/.bbs-modules-unfinished",
            "host",
        ] {
            std::fs::create_dir_all(at(folder)).unwrap();
        }
        std::fs::create_dir(at("c")).unwrap();
        std::fs::write(at("c/bbs-modules"), "a file").unwrap();
        let patterns = [
            at("*/bbs-modules"),
            at("a/*"),
            at("?/.bbs-modules-unfinished"),
            at("none-*"),
            at("b/../host"),
            at("b/bbs-modules"),
            at("absent"),
        ];
        let expanded = expand(&at("host"), &patterns).unwrap();
        assert_eq!(
            expanded,
            [
                "host",
                "a/bbs-modules",
                "b/bbs-modules",
                "a/.bbs-modules-unfinished",
                "absent"
            ]
            .map(at)
        );
        assert!(matches!(
            expand(&at("host"), &[at("a/**b")]),
            Err(ModuleFoldersError::Pattern { .. })
        ));
    }

    #[test]
    fn shipped_module_cache_is_beside_the_modules_folder() {
        for modules in [
            "/var/vcap/packages/bbs/modules",
            "/var/vcap/packages/bbs/modules/",
        ] {
            assert_eq!(
                shipped_module_cache(Path::new(modules)),
                Path::new("/var/vcap/packages/bbs/module-cache")
            );
        }
    }

    #[test]
    fn modules_are_searched_beside_the_executable_and_its_folder() {
        let places = module_folders(Path::new("/var/vcap/packages/bbs/bin/bbs"));
        assert_eq!(
            places,
            [
                "/var/vcap/packages/bbs/bin/modules",
                "/var/vcap/packages/bbs/modules"
            ]
            .map(PathBuf::from)
        );
    }

    #[test]
    fn bosh_job_uses_its_writable_data_folder() {
        let of = |working: &str, base: &str| bosh_from(Path::new(working), Path::new(base));
        for (working, base) in [
            ("/", "/var/vcap/jobs/bbs/config"),
            ("/", "var/vcap/jobs/bbs/config"),
            ("/", "/var/vcap/data/jobs/bbs/ab12/config"),
            ("/var/vcap/data/jobs/bbs/ab12/config", ""),
            ("/var/vcap/data/jobs/bbs/ab12/config", "."),
            ("/var/vcap/data/jobs/bbs/ab12/bin", "../config"),
            ("/var/vcap/data/jobs", "bbs/config"),
        ] {
            assert_eq!(
                of(working, base),
                Some("/var/vcap/data/bbs/tmp".into()),
                "{base:?} in {working}"
            );
        }
        for (working, base) in [
            ("/", "/var/vcap/jobs"),
            ("/var/vcap/data/jobs", ""),
            ("/var/vcap/jobs/bbs/config", "/etc/bbs"),
            ("/etc/bbs", ""),
            ("", ""),
        ] {
            assert_eq!(of(working, base), None, "{base:?} in {working}");
        }
    }
}
