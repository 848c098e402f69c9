//! `bbs module new`: creates a crate whose tests pass unchanged. Owns the templates beside this
//! file.

mod bosh;
mod sdk;
mod versions;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use bbs_modules::translate::ApiVersion;
use clap::{Args, ValueEnum};

use crate::cli::output::OutputForm;
use crate::cli::whole_number;
use crate::clock::{Clock, SystemClock};
use sdk::Sdk;
use versions::{Ends, two_versions};

const CARGO_TOML: &str = include_str!("new/Cargo.toml.template");
const MIGRATION: &str = include_str!("new/migration.rs.template");
const EXAMPLE_TRANSLATOR: &str = include_str!("../../../../sdk/examples/api-0-8/src/lib.rs");
const MIGRATION_README: &str = include_str!("new/migration.md.template");
const TRANSLATOR_README: &str = include_str!("new/translator.md.template");

/// Texts of the example's crate, each with the placeholder in its place.
const EXAMPLE_TEXTS: [(&str, &str); 6] = [
    ("api-0-8", "{{name}}"),
    ("0.8", "{{serves}}"),
    ("0.9", "{{onto}}"),
    ("0, 8", "{{serves_new}}"),
    ("0, 9", "{{onto_new}}"),
    ("0_8", "{{serves_suffix}}"),
];

/// Names that a migration cannot have: its type or column would have the name of another one in the
/// template or in the code of its export macro, or of a keyword, so that the crate would not
/// compile, or its tests would fail.
const USED_NAMES: [&str; 18] = [
    "access",
    "column",
    "direction",
    "domain",
    "exported-migration",
    "laws",
    "layout",
    "manifest",
    "migration",
    "ok",
    "process-guid",
    "refused",
    "result",
    "run",
    "self",
    "table",
    "unit",
    "unit-data",
];

/// Create a crate for a migration or a translator; its tests pass unchanged.
///
/// A NAME is lower-case words joined by `-`, such as `add-colour`, and becomes the crate's folder.
/// `--translator` creates a translator between two API versions instead of a migration: `--serves`
/// is the one that its clients use, `--onto` the newer one in terms of which it is written. A NAME
/// of two versions, such as `0.8-to-0.9`, is short for all three.
///
/// A new module is by default an end of the sequence of a folder of modules: a migration follows
/// the newest one, a translator serves the version before the oldest one.
///
/// Outside the repository, the SDK that the crate depends on is written to `bbs-sdk` beside it;
/// later crates share that folder.
///
/// `--bosh` also writes a BOSH release to the folder `bosh` of the crate: with it, operators add
/// the module to a host's deployment without changing the host's release. Its README.md has the
/// commands. For a crate that exists, only the release is written.
#[derive(Debug, Args)]
#[command(disable_version_flag = true)]
pub(super) struct NewCommand {
    /// A short name of what it does; for a translator also its two versions.
    name: String,
    /// Kind of module to create [default: a translator if versions of the API are given, otherwise
    /// a migration]
    #[arg(long, value_enum)]
    kind: Option<CrateKind>,
    /// Short for `--kind translator`.
    #[arg(long, conflicts_with = "kind")]
    translator: bool,
    /// The API version that a translator's clients use [default: the one before --onto]
    #[arg(long, value_name = "VERSION", value_parser = api_version)]
    serves: Option<ApiVersion>,
    /// The newer API version in terms of which a translator is written [default: the oldest of the
    /// folder of modules]
    #[arg(long, value_name = "VERSION", value_parser = api_version)]
    onto: Option<ApiVersion>,
    /// The data version a migration leads to: a timestamp in seconds. One below others is inserted
    /// there [default: now, or just after the newest of the folder of modules]
    #[arg(long, value_name = "N", value_parser = whole_number::<u64>)]
    version: Option<u64>,
    /// The folder of modules that the new one will be added to [default without --base: `modules`
    /// in the current folder, and the repository's]
    #[arg(long, value_name = "DIR")]
    modules: Option<PathBuf>,
    /// A folder of modules that the new one continues, such as the host's; may be repeated. For an
    /// add-on.
    #[arg(long, value_name = "DIR")]
    base: Vec<PathBuf>,
    /// The folder of the SDK [default: `bbs-sdk` or `sdk` in the current folder or above it]
    #[arg(long, value_name = "PATH")]
    sdk: Option<PathBuf>,
    /// Also write a BOSH release of the module; to an existing crate, add only the release.
    #[arg(long)]
    bosh: bool,
    #[command(flatten)]
    form: OutputForm,
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
        // Validates the name before anything is written.
        self.placeholders(Ends::default())?;
        let folder = PathBuf::from(&self.name);
        let is_crate = folder.join("Cargo.toml").exists();
        let mut text = String::new();
        let is_new = !(self.bosh && is_crate);
        if is_new {
            text = self.create(&folder)?;
        }
        let release = self.bosh.then(|| folder.join(bosh::FOLDER));
        if let Some(release) = &release {
            refuse_existing(release)?;
            write(release, bosh::files(&self.name))?;
            text += &format!(
                "The BOSH release of {} is in {}; its README.md has the steps.\n",
                folder.display(),
                release.display()
            );
        }
        self.form.print(
            &serde_json::json!({ "crate": folder, "created": is_new, "release": release }),
            || text,
        )
    }

    /// Creates the crate, and returns the next steps as text.
    fn create(&self, folder: &Path) -> anyhow::Result<String> {
        refuse_existing(folder)?;
        let here = std::env::current_dir().context("the current folder is gone")?;
        let sdk = Sdk::find_or_write(self.sdk.as_deref(), &here)?;
        let mut placeholders = self.placeholders(Ends::find(
            self.modules.as_deref(),
            &self.base,
            &sdk.folder,
        )?)?;
        // Relative, so that the two folders can be moved together.
        let to_sdk = sdk::relative(&here.join(folder), &sdk.folder);
        placeholders.push(("{{sdk}}", to_sdk.display().to_string()));
        placeholders.push(("{{folder}}", self.name.clone()));
        write(folder, crate_files(self.kind(), &placeholders))?;
        if let Some(lock) = sdk.lock() {
            // Cargo removes the entries that the crate does not use.
            std::fs::copy(&lock, folder.join("Cargo.lock"))
                .context("cannot copy the SDK's Cargo.lock")?;
        }
        let mut text = format!(
            "{0} is ready. Next:\n\n  cd {0}\n  cargo test\n\nthen read its README.md.\n",
            folder.display()
        );
        if sdk.is_new {
            text += &format!(
                "\nThe SDK that it depends on is in {}; keep the two beside each other.\n",
                sdk::FOLDER
            );
        }
        Ok(text)
    }

    fn kind(&self) -> CrateKind {
        let is_version = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
        let names_versions = self
            .name
            .split_once("-to-")
            .is_some_and(|(one, other)| is_version(one) && is_version(other));
        let is_translator =
            self.translator || names_versions || self.serves.is_some() || self.onto.is_some();
        self.kind.unwrap_or(if is_translator {
            CrateKind::Translator
        } else {
            CrateKind::Migration
        })
    }

    fn placeholders(&self, ends: Ends) -> anyhow::Result<Placeholders> {
        match self.kind() {
            CrateKind::Migration => self.migration(ends),
            CrateKind::Translator => self.translator(ends),
        }
    }

    fn migration(&self, ends: Ends) -> anyhow::Result<Placeholders> {
        if self.serves.is_some() || self.onto.is_some() {
            bail!("a migration has no API versions; leave --serves and --onto out");
        }
        if !is_words(&self.name) {
            bail!(
                "{:?} is not a valid name for a migration; use lower-case words joined by `-`, such as `add-colour` (a translator's \
                 name may be two versions, such as `0.8-to-0.9`)",
                self.name
            );
        }
        if USED_NAMES.contains(&self.name.as_str()) {
            bail!(
                "{0:?} cannot be the name of a migration: its crate has another type or column of that name; add a word, such as \
                 `add-{0}`",
                self.name
            );
        }
        let version = match self.version {
            Some(version) => version,
            None => ends
                .next_data(u64::try_from(SystemClock.now_ns() / 1_000_000_000).unwrap_or_default()),
        };
        if version == 0 {
            bail!("0 is no data version; use a timestamp in seconds, such as `date +%s` prints");
        }
        Ok(vec![
            ("{{package}}", format!("migration-{version}-{}", self.name)),
            ("{{name}}", self.name.clone()),
            ("{{type}}", type_of(&self.name)),
            ("{{column}}", self.name.replace('-', "_")),
            ("{{version}}", grouped(version)),
        ])
    }

    fn translator(&self, ends: Ends) -> anyhow::Result<Placeholders> {
        if self.version.is_some() {
            bail!("a translator has no data version; leave --version out");
        }
        let (serves, onto) = match two_versions(&self.name) {
            Some(_) if self.serves.is_some() || self.onto.is_some() => {
                bail!(
                    "{:?} states both versions; leave --serves and --onto out, or choose another name",
                    self.name
                )
            }
            Some((serves, onto)) => ends.of_translator(Some(serves), Some(onto))?,
            None if is_words(&self.name) => ends.of_translator(self.serves, self.onto)?,
            None => bail!(
                "{:?} is not a valid name for a translator; use lower-case words joined by `-`, or its version and a newer one, such \
                 as `0.8-to-0.9`",
                self.name
            ),
        };
        let name = if is_words(&self.name) {
            self.name.clone()
        } else {
            format!("api-{}-{}", serves.major, serves.minor)
        };
        Ok(vec![
            (
                "{{package}}",
                format!("translator-{}", self.name.replace('.', "-")),
            ),
            ("{{name}}", name),
            ("{{serves}}", serves.to_string()),
            ("{{onto}}", onto.to_string()),
            (
                "{{serves_new}}",
                format!("{}, {}", serves.major, serves.minor),
            ),
            ("{{onto_new}}", format!("{}, {}", onto.major, onto.minor)),
            (
                "{{serves_suffix}}",
                format!("{}_{}", serves.major, serves.minor),
            ),
        ])
    }
}

fn api_version(text: &str) -> Result<ApiVersion, String> {
    ApiVersion::try_from(text.to_owned())
}

/// Whether a name is words of lower-case letters and digits joined by `-`, each beginning with a
/// letter; at most 40 bytes.
fn is_words(name: &str) -> bool {
    name.len() <= 40
        && name.split('-').all(|word| {
            word.starts_with(|c: char| c.is_ascii_lowercase())
                && word
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        })
}

fn refuse_existing(folder: &Path) -> anyhow::Result<()> {
    if folder.exists() {
        bail!(
            "{} already exists; choose another name, or delete it",
            folder.display()
        );
    }
    Ok(())
}

/// The files of the crate, each with its path in the crate's folder.
fn crate_files(kind: CrateKind, placeholders: &Placeholders) -> [(String, String); 3] {
    let (source, readme) = match kind {
        CrateKind::Migration => (MIGRATION.to_owned(), MIGRATION_README),
        CrateKind::Translator => (translator_template(), TRANSLATOR_README),
    };
    [
        ("Cargo.toml", CARGO_TOML),
        ("src/lib.rs", &*source),
        ("README.md", readme),
    ]
    .map(|(path, template)| (path.to_owned(), fill(template, placeholders)))
}

/// The SDK's example with placeholders. The versions of a new crate are filled in afterwards: one of
/// them may be the other one of the example.
fn translator_template() -> String {
    fill(EXAMPLE_TRANSLATOR, &EXAMPLE_TEXTS)
}

/// Writes files, each with its path in the folder.
fn write<N: AsRef<Path>, T: AsRef<[u8]>>(
    folder: &Path,
    files: impl IntoIterator<Item = (N, T)>,
) -> anyhow::Result<()> {
    for (name, text) in files {
        let path = folder.join(name);
        let parent = path.parent().expect("a file is in a folder");
        std::fs::create_dir_all(parent)
            .with_context(|| format!("cannot make the folder {}", parent.display()))?;
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn fill(template: &str, placeholders: &[(&str, impl AsRef<str>)]) -> String {
    placeholders
        .iter()
        .fold(template.to_owned(), |text, (placeholder, value)| {
            text.replace(placeholder, value.as_ref())
        })
}

/// The name of a migration's type.
fn type_of(name: &str) -> String {
    name.split('-').map(capitalised).collect()
}

fn capitalised(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    first.to_ascii_uppercase() + rest
}

/// Digits in groups of three, separated by `_`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(String::from_utf8_lossy)
        .collect();
    groups.join("_")
}

#[cfg(test)]
mod tests;
