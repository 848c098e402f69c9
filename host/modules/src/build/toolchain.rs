//! The Rust toolchain of a workspace: queries rustc, checks that the WebAssembly target is
//! installed, and adds it with rustup if absent. Owns the advice for machines where that fails;
//! compiles nothing.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bbs_work::progress::Progress;

use super::BuildError;

pub(super) const TARGET: &str = "wasm32-unknown-unknown";

/// Why the target is absent and could not be added.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    #[error(
        "the Rust in {} has no standard library for WebAssembly, and there is no `rustup` on the PATH to add it; \
         install the target {TARGET} in the way that this Rust was installed, or install Rust from https://rustup.rs",
        .sysroot.display()
    )]
    NoRustup {
        sysroot: PathBuf,
        source: std::io::Error,
    },
    #[error(
        "`rustup target add {TARGET}` failed for the Rust in {}; run it again where the network can be reached, or \
         copy the target's folder `lib/rustlib/{TARGET}` from another machine with the same Rust:\n{output}",
        .sysroot.display()
    )]
    NotAdded { sysroot: PathBuf, output: String },
}

/// Adds the target to the toolchain of `workspace`, unless it is installed. With
/// `RUSTUP_AUTO_INSTALL=0`, as on build machines, rustup does not do this by itself.
pub(super) fn ensure_target(workspace: &Path, progress: &Progress) -> Result<(), BuildError> {
    let sysroot = PathBuf::from(rustc(workspace, &["--print", "sysroot"])?.trim());
    if is_in(&sysroot) {
        return Ok(());
    }
    progress.enter(
        "target",
        format!("adding {TARGET} with rustup, once for this Rust"),
        None,
    );
    let added = Command::new("rustup")
        .current_dir(workspace)
        .args(["target", "add", TARGET])
        .stdin(Stdio::null())
        // A backtrace of rustup would hide its error.
        .env("RUST_BACKTRACE", "0")
        .output()
        .map_err(|source| TargetError::NoRustup {
            sysroot: sysroot.clone(),
            source,
        })?;
    if added.status.success() && is_in(&sysroot) {
        return Ok(());
    }
    let output = String::from_utf8_lossy(&added.stderr).trim_end().to_owned();
    Err(TargetError::NotAdded { sysroot, output }.into())
}

fn is_in(sysroot: &Path) -> bool {
    sysroot
        .join("lib/rustlib")
        .join(TARGET)
        .join("lib")
        .is_dir()
}

pub(super) fn rustc(workspace: &Path, arguments: &[&str]) -> Result<String, BuildError> {
    let output = Command::new(program("RUSTC", "rustc"))
        .current_dir(workspace)
        .args(arguments)
        .output()
        .map_err(|source| BuildError::Cargo { source })?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(BuildError::Rustc {
            output: String::from_utf8_lossy(&output.stderr)
                .trim_end()
                .to_owned(),
        })
    }
}

/// The path of a tool: cargo sets the variable for its child processes.
pub(super) fn program(variable: &str, name: &str) -> std::ffi::OsString {
    std::env::var_os(variable).unwrap_or_else(|| name.into())
}
