//! Packages of a BOSH release: their files, collected as `bosh create-release` does, and compiled
//! as an agent does.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// Reads a YAML file.
#[track_caller]
pub fn yaml(path: &Path) -> Value {
    parse_yaml(
        &std::fs::read_to_string(path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display())),
    )
}

/// Parses a YAML document.
#[track_caller]
pub fn parse_yaml(text: &str) -> Value {
    let mut ruby = Command::new("ruby")
        .args([
            "-ryaml",
            "-rjson",
            "-e",
            "puts JSON.generate(YAML.safe_load($stdin.read))",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("`ruby` is installed; `tests/run` does that");
    ruby.stdin
        .take()
        .expect("a pipe")
        .write_all(text.as_bytes())
        .expect("ruby reads its input");
    let output = ruby.wait_with_output().expect("ruby ends");
    assert!(output.status.success(), "not YAML:\n{text}");
    serde_json::from_slice(&output.stdout).expect("ruby prints JSON")
}

/// The files of a package, each with its path in the package.
///
/// # Errors
/// The release has no `src`, without which `bosh create-release` ends; or the first pattern of its
/// `spec` that matches no file of `src` or `blobs`.
pub fn files_of_package(release: &Path, package: &str) -> Result<Vec<(PathBuf, PathBuf)>, String> {
    if !release.join("src").is_dir() {
        return Err("src".to_owned());
    }
    let spec = yaml(&release.join("packages").join(package).join("spec"));
    let mut files = Vec::new();
    for pattern in spec["files"].as_array().expect("a package has files") {
        let pattern = pattern.as_str().expect("a pattern is text");
        let before = files.len();
        for folder in ["src", "blobs"].map(|folder| release.join(folder)) {
            let matches = glob::glob(folder.join(pattern).to_str().expect("a path is text"))
                .expect("a pattern");
            let matches = matches
                .map(|path| path.expect("it can be read"))
                .filter(|path| path.is_file());
            files.extend(matches.map(|path| {
                (
                    path.strip_prefix(&folder).expect("it is below").to_owned(),
                    path,
                )
            }));
        }
        if files.len() == before {
            return Err(pattern.to_owned());
        }
    }
    Ok(files)
}

/// Compiles a package into its folder below `packages`.
#[track_caller]
pub fn install(release: &Path, package: &str, packages: &Path) {
    let compile = tempfile::tempdir().expect("a temporary folder");
    let target = packages.join(package);
    std::fs::create_dir_all(&target).expect("a folder");
    let script = release.join("packages").join(package).join("packaging");
    let files = files_of_package(release, package)
        .unwrap_or_else(|pattern| panic!("no file matches {pattern}"));
    for (name, path) in files.into_iter().chain([("packaging".into(), script)]) {
        let copy = compile.path().join(name);
        std::fs::create_dir_all(copy.parent().expect("a file is in a folder")).expect("a folder");
        std::fs::copy(path, copy).expect("the file can be copied");
    }
    let output = Command::new("bash")
        // A strict mask: the package has to be readable for users other than root anyway.
        .args(["-c", "umask 077; exec bash -x packaging"])
        .current_dir(compile.path())
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("BOSH_COMPILE_TARGET", compile.path())
        .env("BOSH_INSTALL_TARGET", &target)
        .env("BOSH_PACKAGE_NAME", package)
        .env("BOSH_PACKAGE_VERSION", "1")
        .output()
        .expect("bash starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
