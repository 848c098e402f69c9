//! `bbs module new`: creates a crate whose tests pass unchanged. Owns the templates beside this file.

mod sdk;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};

use crate::clock::{Clock, SystemClock};
use crate::modules::build::listed_crates;
use crate::modules::translate::ApiVersion;
use sdk::Sdk;

const CARGO_TOML: &str = include_str!("new/Cargo.toml.template");
const MIGRATION: &str = include_str!("new/migration.rs.template");
const TRANSLATOR: &str = include_str!("new/translator.rs.template");
const README: &str = include_str!("new/README.md.template");

/// Create a crate for a migration or a translator; its tests pass unchanged.
///
/// A migration's NAME is lower-case words joined by `-`, such as `add-colour`. A translator's states which API version
/// it serves and in terms of which it is written, such as `0.8-to-0.9`. The crate is a folder of that name. Outside the
/// repository, the SDK that it depends on is written to `bbs-sdk` beside it; later crates share that folder.
#[derive(Debug, Args)]
#[command(disable_version_flag = true)]
pub(super) struct NewCommand {
    /// A short name of what it does; for a translator, its two versions.
    name: String,
    /// What to create [default: a translator if NAME is two versions, otherwise a migration]
    #[arg(long, value_enum)]
    kind: Option<CrateKind>,
    /// The data version a migration leads to: a timestamp in seconds, later than all before it [default: now, or just
    /// after the newest of the repository]
    #[arg(long, value_name = "N")]
    version: Option<u64>,
    /// The folder of the SDK [default: `bbs-sdk` or `sdk` in the current folder or above it]
    #[arg(long, value_name = "PATH")]
    sdk: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CrateKind {
    Migration,
    Translator,
}

/// Values of the templates' placeholders.
type Placeholders = Vec<(&'static str, String)>;

impl NewCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let folder = PathBuf::from(&self.name);
        if folder.exists() {
            bail!("{} already exists; choose another name, or delete it", folder.display());
        }
        let here = std::env::current_dir().context("the current folder is gone")?;
        // Validates the name before anything is written.
        self.placeholders(1)?;
        let sdk = Sdk::find_or_write(self.sdk.as_deref(), &here)?;
        let mut placeholders = self.placeholders(next_version(&sdk.folder))?;
        placeholders.push(("{{sdk}}", sdk.path_from(&here.join(&folder)).display().to_string()));
        placeholders.push(("{{folder}}", self.name.clone()));
        write(&folder, self.kind(), &placeholders)?;
        if let Some(lock) = sdk.lock() {
            // Cargo removes the entries that the crate does not use.
            std::fs::copy(&lock, folder.join("Cargo.lock")).context("cannot copy the SDK's Cargo.lock")?;
        }
        println!("{0} is ready. Next:\n\n  cd {0}\n  cargo test\n\nthen read its README.md.", folder.display());
        if sdk.is_new {
            println!("\nThe SDK that it depends on is in {}; keep the two beside each other.", sdk::FOLDER);
        }
        Ok(())
    }

    fn kind(&self) -> CrateKind {
        let is_version = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
        let names_versions =
            self.name.split_once("-to-").is_some_and(|(one, other)| is_version(one) && is_version(other));
        self.kind.unwrap_or(if names_versions { CrateKind::Translator } else { CrateKind::Migration })
    }

    fn placeholders(&self, next_version: u64) -> anyhow::Result<Placeholders> {
        match self.kind() {
            CrateKind::Migration => self.migration(next_version),
            CrateKind::Translator => self.translator(),
        }
    }

    fn migration(&self, next_version: u64) -> anyhow::Result<Placeholders> {
        let words: Vec<&str> = self.name.split('-').collect();
        let is_word = |word: &&str| {
            word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
                && word.bytes().next().is_some_and(|b| b.is_ascii_lowercase())
        };
        if self.name.len() > 40 || !words.iter().all(is_word) {
            bail!(
                "{:?} is not a valid name for a migration; use lower-case words joined by `-`, such as `add-colour` (a translator's \
                 name is two versions, such as `0.8-to-0.9`)",
                self.name
            );
        }
        let version = self.version.unwrap_or(next_version);
        if version == 0 {
            bail!("0 is no data version; use a timestamp in seconds, such as `date +%s` prints");
        }
        Ok(vec![
            ("{{package}}", format!("migration-{version}-{}", self.name)),
            ("{{name}}", self.name.clone()),
            ("{{type}}", words.iter().map(|word| capitalised(word)).collect()),
            ("{{column}}", words.join("_")),
            ("{{version}}", grouped(version)),
        ])
    }

    fn translator(&self) -> anyhow::Result<Placeholders> {
        if self.version.is_some() {
            bail!("a translator has no data version; leave --version out");
        }
        let versions = self.name.split_once("-to-").and_then(|(serves, onto)| {
            let (serves, onto) = (ApiVersion::parse(serves)?, ApiVersion::parse(onto)?);
            (serves < onto).then_some((serves, onto))
        });
        let Some((serves, onto)) = versions else {
            bail!(
                "{:?} is not a valid name for a translator; name its version and a newer one, such as `0.8-to-0.9`",
                self.name
            );
        };
        Ok(vec![
            ("{{package}}", format!("translator-{}", self.name.replace('.', "-"))),
            ("{{name}}", format!("api-{}-{}", serves.major, serves.minor)),
            ("{{serves}}", serves.to_string()),
            ("{{onto}}", onto.to_string()),
            ("{{serves_new}}", format!("{}, {}", serves.major, serves.minor)),
            ("{{onto_new}}", format!("{}, {}", onto.major, onto.minor)),
            ("{{serves_suffix}}", format!("{}_{}", serves.major, serves.minor)),
        ])
    }
}

fn write(folder: &Path, kind: CrateKind, placeholders: &Placeholders) -> anyhow::Result<()> {
    let source = match kind {
        CrateKind::Migration => MIGRATION,
        CrateKind::Translator => TRANSLATOR,
    };
    std::fs::create_dir_all(folder.join("src"))
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    for (file, template) in [("Cargo.toml", CARGO_TOML), ("src/lib.rs", source), ("README.md", README)] {
        let path = folder.join(file);
        std::fs::write(&path, fill(template, placeholders))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The current time, or one more than the newest version of the repository that the SDK belongs to.
fn next_version(sdk: &Path) -> u64 {
    let listed = listed_crates(&sdk.join("../migrations-wasm/catalog.toml")).unwrap_or_default();
    let newest = listed.iter().filter_map(|folder| folder.file_name()?.to_str()?.split('-').next()?.parse().ok()).max();
    let now = u64::try_from(SystemClock.now_ns() / 1_000_000_000).unwrap_or_default();
    newest.map_or(now, |newest: u64| now.max(newest + 1))
}

fn fill(template: &str, placeholders: &Placeholders) -> String {
    placeholders.iter().fold(template.to_owned(), |text, (placeholder, value)| text.replace(placeholder, value))
}

fn capitalised(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    first.to_ascii_uppercase() + rest
}

/// Digits in groups of three, separated by `_`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join("_")
}

#[cfg(test)]
mod tests;
