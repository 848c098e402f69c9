//! Runs cargo for guest crates: one call for each workspace, with flags that make builds
//! reproducible. Owns the flags; the encoding as components is not part of it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bbs_work::progress::Progress;
use serde::Deserialize;

use super::BuildError;
use super::sources::{Workspaces, package_name};
use super::toolchain::{self, TARGET, program, rustc};

const PROFILE: &str = "guest";
/// A subfolder of the target folder, so that builds of guests and of the host do not lock or
/// rebuild each other.
const TARGET_FOLDER: &str = "guests";
/// The name of [`WRAPPER`] in that folder.
const WRAPPER_FILE: &str = "rustc-wrapper";

/// Beginnings of the names of environment variables that would change what cargo compiles: flags,
/// wrappers, profiles, the linker, or features of the compiler, which crates use on a stable one
/// with `RUSTC_BOOTSTRAP`. Those that choose the toolchain for every command, as `RUSTC` and
/// `RUSTUP_TOOLCHAIN` do, are not among them; `CARGO_BUILD_RUSTC` is, since the check of the
/// toolchain does not read it.
const CHANGING_VARIABLES: [&str; 8] = [
    "CARGO_BUILD_INCREMENTAL",
    "CARGO_BUILD_RUST",
    "CARGO_INCREMENTAL",
    "CARGO_PROFILE_",
    "CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_",
    "CARGO_UNSTABLE_",
    "RUSTC_BOOTSTRAP",
    "RUSTC_WORKSPACE_WRAPPER",
];

/// The environment variables with which [`WRAPPER`] is called: the folders of the workspace and of
/// cargo, whose paths [`flags`] removes.
const WORKSPACE_VARIABLE: &str = "BBS_WORKSPACE";
const CARGO_HOME_VARIABLE: &str = "BBS_CARGO_HOME";

/// Calls rustc. The metadata that cargo passes for a crate decides the order of its functions, and
/// is a hash also of the places of packages outside of its workspace; here it is the name and the
/// version of its package. So two packages of one name and version cannot be used together. The
/// folder of a package elsewhere, as a dependency or a `[patch]` names it, becomes its name. A
/// package of a registry is where cargo extracts one of crates.io, also if it is from a mirror or
/// in a folder of `cargo vendor`, which has a file of checksums for each package.
const WRAPPER: &str = r#"#!/bin/sh
# Written by `bbs module build`.
previous=
for argument do
    shift
    case $previous$argument in
        -Cmetadata=*) set -- "$@" "${argument%%=*}=$CARGO_PKG_NAME-$CARGO_PKG_VERSION" ;;
        *) set -- "$@" "$argument" ;;
    esac
    previous=$argument
done
of_registry=/cargo/registry/src/index.crates.io-1949cf8c6b5b557f/$CARGO_PKG_NAME-$CARGO_PKG_VERSION
if [ -e "$CARGO_MANIFEST_DIR/.cargo-checksum.json" ]; then
    place=$of_registry
else
    case $CARGO_MANIFEST_DIR/ in
        "$BBS_CARGO_HOME"/registry/src/*) place=$of_registry ;;
        / | "$BBS_WORKSPACE"/* | "$BBS_CARGO_HOME"/*) place= ;;
        *) place=/$CARGO_PKG_NAME ;;
    esac
fi
[ -z "$place" ] || set -- "$@" "--remap-path-prefix=$CARGO_MANIFEST_DIR=$place"
exec "$@"
"#;

/// A message of `cargo build --message-format=json`.
#[derive(Debug, Deserialize)]
struct CargoMessage {
    reason: String,
    manifest_path: Option<PathBuf>,
    filenames: Option<Vec<PathBuf>>,
}

/// Ensures that the toolchain of every workspace can compile for WebAssembly.
pub(super) fn prepare(workspaces: &Workspaces<'_>, progress: &Progress) -> Result<(), BuildError> {
    workspaces
        .keys()
        .try_for_each(|workspace| toolchain::ensure_target(workspace, progress))
}

/// Builds the crates, which are those of `workspaces`, and returns the path of each library, in
/// their order.
pub(super) fn compile(
    crates: &[PathBuf],
    workspaces: &Workspaces<'_>,
    progress: &Progress,
) -> Result<Vec<PathBuf>, BuildError> {
    let mut libraries = BTreeMap::new();
    for (workspace, members) in workspaces {
        let packages = members
            .iter()
            .map(|folder| package_name(folder))
            .collect::<Result<Vec<_>, _>>()?;
        cargo(workspace, &packages, &mut |manifest, library| {
            let Some(member) = members
                .iter()
                .find(|folder| same_file(&folder.join("Cargo.toml"), manifest))
            else {
                return;
            };
            progress.advance(1);
            libraries.insert((*member).clone(), library.to_owned());
        })?;
    }
    crates
        .iter()
        .map(|folder| {
            libraries.get(folder).cloned().ok_or(BuildError::NoLibrary {
                crate_folder: folder.clone(),
            })
        })
        .collect()
}

fn same_file(one: &Path, other: &Path) -> bool {
    one.canonicalize()
        .is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

/// Runs cargo once; calls `built` with each manifest and its WebAssembly file.
fn cargo(
    workspace: &Path,
    packages: &[String],
    built: &mut dyn FnMut(&Path, &Path),
) -> Result<(), BuildError> {
    let failed = |source| BuildError::Cargo { source };
    let mut errors = tempfile::tempfile().map_err(failed)?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    let target = workspace.join(target).join(TARGET_FOLDER);
    let home = cargo_home().unwrap_or_else(|| workspace.to_owned());
    let mut command = Command::new(program("CARGO", "cargo"));
    remove_changing_variables(&mut command, std::env::vars_os().map(|(name, _)| name));
    command
        .env("RUSTC_WRAPPER", wrapper(&target)?)
        .env(WORKSPACE_VARIABLE, workspace)
        .env(CARGO_HOME_VARIABLE, &home)
        .current_dir(workspace)
        .args(["build", "--lib", "--message-format=json-render-diagnostics"])
        .args(["--profile", PROFILE, "--target", TARGET, "--target-dir"])
        .arg(&target)
        .args(packages.iter().flat_map(|package| ["--package", package]))
        // Overrides every other source of flags.
        .env("CARGO_ENCODED_RUSTFLAGS", flags(workspace, &home, &target)?)
        .stdout(Stdio::piped())
        .stderr(errors.try_clone().map_err(failed)?);
    let mut child = command.spawn().map_err(failed)?;
    let messages = BufReader::new(child.stdout.take().expect("it was asked for"));
    for line in messages.lines() {
        let Ok(message) = serde_json::from_str::<CargoMessage>(&line.map_err(failed)?) else {
            continue;
        };
        let (Some(manifest), Some(files)) = (message.manifest_path, message.filenames) else {
            continue;
        };
        let library = files.iter().find(|file| {
            file.extension()
                .is_some_and(|extension| extension == "wasm")
        });
        if let ("compiler-artifact", Some(library)) = (message.reason.as_str(), library) {
            built(&manifest, library);
        }
    }
    if child.wait().map_err(failed)?.success() {
        return Ok(());
    }
    Err(BuildError::Compile {
        output: rewound(&mut errors).map_err(failed)?,
    })
}

/// Removes the [`CHANGING_VARIABLES`] among `variables` from the environment of a command.
fn remove_changing_variables(command: &mut Command, variables: impl Iterator<Item = OsString>) {
    for variable in variables {
        let name = variable.as_encoded_bytes();
        let begins = |beginning: &str| name.starts_with(beginning.as_bytes());
        if CHANGING_VARIABLES.into_iter().any(begins) {
            command.env_remove(&variable);
        }
    }
}

fn rewound(file: &mut File) -> std::io::Result<String> {
    let mut text = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Writes [`WRAPPER`] to a folder of builds, unless it is there, and returns its path. Not to one
/// of temporary files: programs there may not be executable.
fn wrapper(target: &Path) -> Result<PathBuf, BuildError> {
    let path = target.join(WRAPPER_FILE);
    if bbs_files::read_text(&path).is_ok_and(|text| text == WRAPPER) {
        return Ok(path);
    }
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(target)?;
        let mut file = tempfile::NamedTempFile::new_in(target)?;
        file.write_all(WRAPPER.as_bytes())?;
        file.as_file()
            .set_permissions(Permissions::from_mode(0o755))?;
        // Renamed, because another build may run the file that is there.
        file.persist(&path).map_err(|error| error.error)?;
        Ok(())
    };
    write().map_err(|source| BuildError::Write {
        folder: target.to_owned(),
        source,
    })?;
    Ok(path)
}

/// The folder of cargo, in which the packages of registries are.
fn cargo_home() -> Option<PathBuf> {
    let set = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let default = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo"));
    // Without a separator at its end, since paths below it are found by their text.
    set.or_else(default).map(|home| home.components().collect())
}

/// Flags that remove this machine's paths from the code, so that all builds of one source have the
/// same digest: those of the workspace, of cargo, of the standard library and of generated sources.
/// [`WRAPPER`] removes those of packages elsewhere and of registries.
fn flags(workspace: &Path, home: &Path, target: &Path) -> Result<String, BuildError> {
    let sysroot = rustc(workspace, &["--print", "sysroot"])?;
    let version = rustc(workspace, &["--version", "--verbose"])?;
    let commit = version
        .lines()
        .find_map(|line| line.strip_prefix("commit-hash: "))
        .unwrap_or("unknown");
    let mut remapped = vec![(workspace.display().to_string(), "/workspace".to_owned())];
    // The last prefix that a path has is replaced.
    if home != workspace {
        remapped.push((home.display().to_string(), "/cargo".to_owned()));
    }
    // Panic messages contain paths of the standard library: installed sources have the former path,
    // others the latter.
    remapped.push((
        format!("{}/lib/rustlib/src/rust", sysroot.trim()),
        format!("/rustc/{commit}"),
    ));
    // Build scripts write sources there; it has this place in the workspace by default.
    remapped.push((
        target.display().to_string(),
        format!("/workspace/target/{TARGET_FOLDER}"),
    ));
    let flags: Vec<_> = remapped
        .into_iter()
        .map(|(from, to)| format!("--remap-path-prefix={from}={to}"))
        .collect();
    Ok(flags.join("\x1f"))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    /// The arguments with which rustc is called for a package in a folder.
    fn called_in(folder: &str) -> Vec<String> {
        let target = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command
            .arg(wrapper(target.path()).unwrap())
            .args(["printf", "%s\\n", "-C", "metadata=1f2e", "src/lib.rs"])
            .env("CARGO_MANIFEST_DIR", folder)
            .env("CARGO_PKG_NAME", "colours")
            .env("CARGO_PKG_VERSION", "1.2.3")
            .env(WORKSPACE_VARIABLE, "/w/space")
            .env(CARGO_HOME_VARIABLE, "/home/me/.cargo");
        let printed = String::from_utf8(command.output().unwrap().stdout).unwrap();
        printed.lines().map(str::to_owned).collect()
    }

    const ALWAYS: [&str; 3] = ["-C", "metadata=colours-1.2.3", "src/lib.rs"];

    fn with_place(folder: &str, place: &str) -> Vec<String> {
        let removed = format!("--remap-path-prefix={folder}={place}");
        ALWAYS
            .map(str::to_owned)
            .into_iter()
            .chain([removed])
            .collect()
    }

    #[test]
    fn places_of_packages_are_no_part_of_what_rustc_is_called_with() {
        for folder in [
            "",
            "/w/space",
            "/w/space/colours",
            "/home/me/.cargo/git/checkouts/colours-1f2e/3d4c",
        ] {
            assert_eq!(called_in(folder), ALWAYS, "{folder}");
        }
        for folder in ["/elsewhere/some colours", "/w/spacious/colours"] {
            assert_eq!(called_in(folder), with_place(folder, "/colours"));
        }
    }

    #[test]
    fn package_of_a_registry_has_one_place_also_from_a_mirror_or_vendored() {
        let place = "/cargo/registry/src/index.crates.io-1949cf8c6b5b557f/colours-1.2.3";
        let mirrored = "/home/me/.cargo/registry/src/mirror.example-5a6b/colours-1.2.3";
        assert_eq!(called_in(mirrored), with_place(mirrored, place));
        let vendored = tempfile::tempdir().unwrap();
        std::fs::write(vendored.path().join(".cargo-checksum.json"), "{}").unwrap();
        let vendored = vendored.path().to_str().unwrap();
        assert_eq!(called_in(vendored), with_place(vendored, place));
    }

    #[test]
    fn paths_of_a_target_folder_elsewhere_become_those_of_the_default_one() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR"));
        let home = Path::new("/home/me/.cargo");
        let flags = flags(workspace, home, Path::new("/home/me/.cargo/guests")).unwrap();
        let last = "--remap-path-prefix=/home/me/.cargo/guests=/workspace/target/guests";
        assert_eq!(flags.rsplit('\x1f').next(), Some(last));
    }

    #[test]
    fn variables_that_change_what_is_compiled_are_removed() {
        let removed = [
            "CARGO_BUILD_RUSTC_WORKSPACE_WRAPPER",
            "CARGO_BUILD_RUSTFLAGS",
            "CARGO_INCREMENTAL",
            "CARGO_PROFILE_GUEST_OPT_LEVEL",
            "CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS",
            "CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER",
            "RUSTC_BOOTSTRAP",
            "RUSTC_WORKSPACE_WRAPPER",
        ];
        let others = [
            "CARGO_BUILD_JOBS",
            "CARGO_HOME",
            "CARGO_TARGET_DIR",
            "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER",
            "RUSTUP_TOOLCHAIN",
        ];
        let variables = removed.into_iter().chain(others).map(OsString::from);
        let mut command = Command::new("cargo");
        remove_changing_variables(&mut command, variables);
        let changed: Vec<_> = command.get_envs().collect();
        assert_eq!(changed, removed.map(|name| (OsStr::new(name), None)));
    }
}
