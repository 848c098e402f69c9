//! Where things are when the file does not say: a `bbs.json` of Diego's has no key for what only this host has. Owns
//! the places that are looked at; makes nothing.

use std::path::{Path, PathBuf};

use super::ConfigError;

/// Where BOSH puts the configuration of its jobs, which they cannot write to, and where they may keep what is theirs.
const JOBS: &str = "/var/vcap/jobs";
const DATA: &str = "/var/vcap/data";

/// The folder of modules that was shipped with the executable: `modules` beside it, or beside its folder.
pub(super) fn modules() -> Result<PathBuf, ConfigError> {
    let executable = std::env::current_exe().unwrap_or_default();
    let places = places_of_modules(&executable);
    let names = || places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(" or ");
    places.iter().find(|place| place.is_dir()).cloned().ok_or_else(|| ConfigError::NoModules { places: names() })
}

fn places_of_modules(executable: &Path) -> Vec<PathBuf> {
    executable.ancestors().skip(1).take(2).map(|folder| folder.join("modules")).collect()
}

/// The folder for compiled modules, replay files and the admin socket: beside the configuration, or where BOSH lets the
/// job write. It depends on the path alone, so that every command with the same file finds the same socket.
pub(super) fn data(base: &Path) -> PathBuf {
    bosh(base).filter(|folder| folder.is_dir()).unwrap_or_else(|| base.to_owned())
}

/// `/var/vcap/data/NAME/tmp` for `/var/vcap/jobs/NAME/config`. Other folders of a job's are not there under `bpm`.
fn bosh(base: &Path) -> Option<PathBuf> {
    let job = base.strip_prefix(JOBS).ok()?.components().next()?;
    Some(Path::new(DATA).join(job).join("tmp"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_looked_for_where_a_package_has_them() {
        let places = places_of_modules(Path::new("/var/vcap/packages/bbs/bin/bbs"));
        assert_eq!(places, ["/var/vcap/packages/bbs/bin/modules", "/var/vcap/packages/bbs/modules"].map(PathBuf::from));
    }

    #[test]
    fn a_job_of_bosh_keeps_its_data_where_it_may_write() {
        let of = |base: &str| bosh(Path::new(base));
        assert_eq!(of("/var/vcap/jobs/bbs/config"), Some("/var/vcap/data/bbs/tmp".into()));
        assert_eq!(of("/var/vcap/jobs"), None);
        assert_eq!(of("/etc/bbs"), None);
        assert_eq!(data(Path::new("/etc/bbs")), Path::new("/etc/bbs"));
    }
}
