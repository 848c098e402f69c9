//! Embeds two facts about the source in the executable: the SDK's files, which `bbs module new`
//! writes beside a new crate, and the commit, which `bbs --version` prints.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    println!("cargo::rerun-if-changed=build.rs");
    let root = Path::new(&std::env::var("CARGO_MANIFEST_DIR")?)
        .parent()
        .ok_or("the host has no workspace")?
        .to_owned();
    embed_sdk(&root)?;
    let commit = match std::env::var("PROFILE")?.as_str() {
        "release" => release_commit(&root).unwrap_or_else(|| "unknown".to_owned()),
        _ => "unknown: a development build".to_owned(),
    };
    println!("cargo::rustc-env=BBS_COMMIT={commit}");
    Ok(())
}

/// Writes `sdk.rs`: one constant for each file or manifest that `module new` needs.
fn embed_sdk(root: &Path) -> Outcome<()> {
    let sdk = root.join("sdk");
    let host = root.join("host");
    // The engine that the test kit runs on is a crate of the host's folder.
    let mut files = Vec::from(["LAYOUT.md", "README.md"].map(|name| (&sdk, sdk.join(name))));
    for (base, folder) in [
        (&sdk, "contract/src"),
        (&sdk, "go-json/src"),
        (&sdk, "src"),
        (&sdk, "wit"),
        (&host, "lens/src"),
    ] {
        let mut found = Vec::new();
        println!("cargo::rerun-if-changed={}", base.join(folder).display());
        files_below(&base.join(folder), &mut found)?;
        files.extend(found.into_iter().map(|file| (base, file)));
    }
    // `read_dir` returns files in an order of the file system's choice; the generated file must not
    // depend on it.
    files.sort();
    let mut code = String::from(
        "/// Of the SDK: path within its folder, content.\npub(super) const FILES: &[(&str, &str)] = &[\n",
    );
    for (base, file) in &files {
        let name = file
            .strip_prefix(base)?
            .to_str()
            .ok_or("a file of the SDK has no plain name")?;
        writeln!(code, "    ({name:?}, include_str!({file:?})),")?;
    }
    code += "];\n";
    for (name, file) in [
        ("MANIFEST", "sdk/Cargo.toml"),
        ("CONTRACT_MANIFEST", "sdk/contract/Cargo.toml"),
        ("GO_JSON_MANIFEST", "sdk/go-json/Cargo.toml"),
        ("LENS_MANIFEST", "host/lens/Cargo.toml"),
        ("WORKSPACE", "Cargo.toml"),
        ("LOCK", "Cargo.lock"),
    ] {
        writeln!(
            code,
            "pub(super) const {name}: &str = include_str!({:?});",
            root.join(file)
        )?;
    }
    std::fs::write(Path::new(&std::env::var("OUT_DIR")?).join("sdk.rs"), code)?;
    Ok(())
}

fn files_below(folder: &Path, files: &mut Vec<PathBuf>) -> Outcome<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files_below(&path, files)?
        } else {
            files.push(path)
        }
    }
    Ok(())
}

/// The commit of a release build. Other builds leave it out: it changes with every commit, and
/// would recompile the host each time.
fn release_commit(root: &Path) -> Option<String> {
    // Set by packagers who build from a source tree without git.
    println!("cargo::rerun-if-env-changed=BBS_BUILD_COMMIT");
    println!("cargo::rerun-if-changed=commit.txt");
    let given = std::env::var("BBS_BUILD_COMMIT")
        .ok()
        .filter(|commit| !commit.is_empty());
    given.or_else(|| checked_out(root)).or_else(archived)
}

/// The commit of a git checkout, with a suffix if tracked files differ from it.
fn checked_out(root: &Path) -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .arg("-C")
            .arg(root)
            .args(arguments)
            .output()
            .ok()?;
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    // The folder may lie inside an unrelated repository, which does not track this file.
    git(&["ls-files", "--error-unmatch", "host/build.rs"])?;
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--path-format=absolute", "--git-path", file])
            && Path::new(&path).exists()
        {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    for source in ["host", "sdk", "Cargo.toml", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", root.join(source).display());
    }
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(if changed.is_empty() {
        commit
    } else {
        format!("{commit}, with changes")
    })
}

/// The commit of a source archive: `git archive` writes it into this file (`export-subst`).
fn archived() -> Option<String> {
    let text = std::fs::read_to_string("commit.txt").ok()?;
    let commit = text.trim();
    let is_hash = commit.len() >= 12 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then(|| commit[..12].to_owned())
}
