//! `bbs module new`: a crate to begin with, whose tests pass as it is. Owns the templates beside this file.

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

/// Start a crate for a migration or a translator; its tests pass as it is.
///
/// A migration's NAME is lower-case words joined by `-`, such as `add-colour`. A translator's says which API version
/// it serves and in terms of which it is written, such as `0.8-to-0.9`. The crate is a folder of that name. Outside the
/// repository the SDK that it depends on is written beside it, to `bbs-sdk`; later crates share that folder.
#[derive(Debug, Args)]
#[command(disable_version_flag = true)]
pub(super) struct NewCommand {
    /// What it does, in a few words; for a translator, its two versions.
    name: String,
    /// What to start [default: a translator if NAME is two versions, otherwise a migration]
    #[arg(long, value_enum)]
    kind: Option<Kind>,
    /// The data version a migration leads to: a timestamp in seconds, later than all before it. If not given, now,
    /// or just after the newest of the repository.
    #[arg(long, value_name = "N")]
    version: Option<u64>,
    /// The folder of the SDK [default: `bbs-sdk` or `sdk` in the current folder or above it]
    #[arg(long, value_name = "PATH")]
    sdk: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Migration,
    Translator,
}

/// What is filled into the templates, by placeholder.
type Blanks = Vec<(&'static str, String)>;

impl NewCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let folder = PathBuf::from(&self.name);
        if folder.exists() {
            bail!("{} is there already; take another name, or delete it", folder.display());
        }
        let here = std::env::current_dir().context("the current folder is gone")?;
        // Before anything is written, so that a wrong name leaves nothing behind.
        self.blanks(1)?;
        let sdk = Sdk::find_or_write(self.sdk.as_deref(), &here)?;
        let mut blanks = self.blanks(next_version(&sdk.folder))?;
        blanks.push(("{{sdk}}", sdk.seen_from(&here.join(&folder)).display().to_string()));
        blanks.push(("{{folder}}", self.name.clone()));
        write(&folder, self.kind(), &blanks)?;
        if let Some(lock) = sdk.lock() {
            // Cargo drops what the crate does not use.
            std::fs::copy(&lock, folder.join("Cargo.lock")).context("cannot copy the SDK's Cargo.lock")?;
        }
        println!("{0} is ready. Next:\n\n  cd {0}\n  cargo test\n\nand then read README.md in it.", folder.display());
        if sdk.is_new {
            println!("\nThe SDK that it depends on is in {}; keep the two beside each other.", sdk::FOLDER);
        }
        Ok(())
    }

    fn kind(&self) -> Kind {
        let is_version = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
        let names_versions =
            self.name.split_once("-to-").is_some_and(|(one, other)| is_version(one) && is_version(other));
        self.kind.unwrap_or(if names_versions { Kind::Translator } else { Kind::Migration })
    }

    fn blanks(&self, next_version: u64) -> anyhow::Result<Blanks> {
        match self.kind() {
            Kind::Migration => self.migration(next_version),
            Kind::Translator => self.translator(),
        }
    }

    fn migration(&self, next_version: u64) -> anyhow::Result<Blanks> {
        let words: Vec<&str> = self.name.split('-').collect();
        let is_word = |word: &&str| {
            word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
                && word.bytes().next().is_some_and(|b| b.is_ascii_lowercase())
        };
        if self.name.len() > 40 || !words.iter().all(is_word) {
            bail!(
                "{:?} is no name for a migration; use lower-case words joined by `-`, such as `add-colour` (a translator's \
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

    fn translator(&self) -> anyhow::Result<Blanks> {
        if self.version.is_some() {
            bail!("a translator has no data version; leave --version out");
        }
        let versions = self.name.split_once("-to-").and_then(|(serves, onto)| {
            let (serves, onto) = (ApiVersion::parse(serves)?, ApiVersion::parse(onto)?);
            (serves < onto).then_some((serves, onto))
        });
        let Some((serves, onto)) = versions else {
            bail!(
                "{:?} is no name for a translator; say from which version to which newer one, such as `0.8-to-0.9`",
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

fn write(folder: &Path, kind: Kind, blanks: &Blanks) -> anyhow::Result<()> {
    let source = match kind {
        Kind::Migration => MIGRATION,
        Kind::Translator => TRANSLATOR,
    };
    std::fs::create_dir_all(folder.join("src"))
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    for (file, template) in [("Cargo.toml", CARGO_TOML), ("src/lib.rs", source), ("README.md", README)] {
        let path = folder.join(file);
        std::fs::write(&path, fill(template, blanks)).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Now, unless the repository that the SDK belongs to is ahead of this machine's clock.
fn next_version(sdk: &Path) -> u64 {
    let listed = listed_crates(&sdk.join("../migrations-wasm/catalog.toml")).unwrap_or_default();
    let newest = listed.iter().filter_map(|folder| folder.file_name()?.to_str()?.split('-').next()?.parse().ok()).max();
    let now = u64::try_from(SystemClock.now_ns() / 1_000_000_000).unwrap_or_default();
    newest.map_or(now, |newest: u64| now.max(newest + 1))
}

fn fill(template: &str, blanks: &Blanks) -> String {
    blanks.iter().fold(template.to_owned(), |text, (blank, value)| text.replace(blank, value))
}

fn capitalised(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    first.to_ascii_uppercase() + rest
}

/// Digits in groups of three, as Rust's style for long numbers has it.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join("_")
}

#[cfg(test)]
mod tests;
