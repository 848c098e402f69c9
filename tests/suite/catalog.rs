//! The refusals of a modules directory, with real components: each error names the file and says
//! what to do.

mod add_ons;
mod only;
mod signatures;

use std::path::Path;

use bbs::testing::modules::catalog::{Catalog, CatalogError};
use bbs::testing::modules::translate::{ApiVersion, Translate};
use bbs_files::digest::digest_of;
use bbs_lens::transform::{RunArguments, Transform};

use crate::harness::command;
use crate::harness::database::Kind;
use crate::harness::host::Installation;
use crate::harness::modules::{chain, guest, sandbox};
use crate::harness::output::{refused, succeeded};

/// A modules directory of guests with a catalog that the test writes.
struct Folder {
    path: tempfile::TempDir,
    catalog: String,
}

impl Folder {
    fn new() -> Self {
        Self {
            path: tempfile::tempdir().unwrap(),
            catalog: String::new(),
        }
    }

    /// Two migrations in order and a translator.
    fn valid() -> Self {
        Self::new()
            .with("things", "50-things.wasm", "version = 50")
            .with(
                "well-behaved",
                "100-well-behaved.wasm",
                "version = 100\nfollows = 50",
            )
            .with(
                "chatty-translator",
                "0.9-to-0.10.wasm",
                "serves = \"0.9\"\nonto = \"0.10\"",
            )
    }

    fn path(&self) -> &Path {
        self.path.path()
    }

    /// Copies a guest and adds an entry with its file, its digest and these lines.
    fn with(self, name: &str, file: &str, lines: &str) -> Self {
        std::fs::copy(guest(name), self.path().join(file)).unwrap();
        let digest = digest(&self.path().join(file));
        self.listing(file, &digest, lines)
    }

    /// Adds an entry.
    fn listing(mut self, file: &str, digest: &str, lines: &str) -> Self {
        let kind = if lines.contains("version") {
            "migration"
        } else {
            "translator"
        };
        self.catalog += &format!(
            "[[module]]\nkind = \"{kind}\"\nfile = \"{file}\"\nsha256 = \"{digest}\"\n{lines}\n\n"
        );
        self
    }

    fn load(&self) -> Result<Catalog, CatalogError> {
        std::fs::write(self.path().join("catalog.toml"), &self.catalog).unwrap();
        Catalog::load(self.path(), &sandbox())
    }

    #[track_caller]
    fn refused(&self, words: &[&str]) {
        let error = self.load().expect_err("the folder is refused");
        assert_contains(&chain(&error), words);
    }
}

#[track_caller]
fn assert_contains(error: &str, words: &[&str]) {
    for word in words {
        assert!(error.contains(word), "{word:?} is not in {error:?}");
    }
}

fn digest(path: &Path) -> String {
    digest_of(&std::fs::read(path).unwrap())
}

#[test]
fn valid_folder_loads_in_order() {
    let folder = Folder::valid();
    let catalog = folder
        .load()
        .unwrap_or_else(|error| panic!("{}", chain(&error)));
    let versions: Vec<_> = catalog
        .migrations()
        .iter()
        .map(|module| module.manifest().version)
        .collect();
    assert_eq!(versions, [50, 100]);
    assert_eq!(
        catalog.migrations()[1].digest(),
        digest(&folder.path().join("100-well-behaved.wasm"))
    );
    assert_eq!(catalog.translators()[0].manifest().name, "chatty");
    assert_eq!(catalog.layout_history().newest(), 100);
}

#[test]
fn layout_of_each_version_is_shown() {
    let folder = Folder::new()
        .with("things", "50-things.wasm", "version = 50")
        .with(
            "well-behaved",
            "100-well-behaved.wasm",
            "version = 100\nfollows = 50",
        );
    folder.load().expect("the folder is valid");
    let layout = |more: &[&str]| {
        command()
            .args(["module", "layout"])
            .arg(folder.path())
            .args(more)
            .output()
            .unwrap()
    };
    let newest = succeeded(layout(&[]));
    assert_contains(&newest, &["Version 100", "size    big_integer"]);
    let earlier = succeeded(layout(&["--at", "50", "--json"]));
    let earlier: serde_json::Value = serde_json::from_str(&earlier).unwrap();
    let columns = earlier["tables"]["things"]["columns"].as_array().unwrap();
    let names: Vec<_> = columns.iter().map(|column| &column["name"]).collect();
    assert_eq!(names, ["id", "text"]);
    refused(layout(&["--at", "60"]), "there is no migration to 60");
}

#[test]
fn a_folder_without_a_catalog_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let error = Catalog::load(folder.path(), &sandbox()).unwrap_err();
    assert_contains(
        &chain(&error),
        &["catalog.toml is not there", "bbs module build"],
    );
}

#[test]
fn unreadable_catalog_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("catalog.toml")).unwrap();
    let error = Catalog::load(folder.path(), &sandbox()).unwrap_err();
    assert_contains(
        &chain(&error),
        &["catalog.toml cannot be read; check its permissions"],
    );
}

#[test]
fn malformed_catalog_is_refused() {
    for text in [
        "[[module]]\nkind = ",
        "surprise = 1",
        "[[module]]\nkind = \"neither\"",
    ] {
        let mut folder = Folder::new();
        folder.catalog = text.to_owned();
        folder.refused(&["catalog.toml is not a catalog", "restore it"]);
    }
}

/// Goal: a catalog cannot control the terminal that shows the error, or forge lines.
#[test]
fn text_of_a_malformed_catalog_is_escaped_and_cut() {
    let long = "x".repeat(200_000);
    let texts = [
        "\n\nx = [ \u{1b}[31m forged\r2026 OK\n".to_owned(),
        format!("\n\n{long} = 1"),
        format!("\n\nname = \"{long}\\u001b\\u202e\""),
        "\n\n[[module]]\nkind = \"\\u001b[31m\"".to_owned(),
        format!("[[module]]\nkind = \"migration\"\nfile = \"\\u001b{long}\"\nsha256 = \"\"\n"),
        format!("[[module]]\nkind = \"migration\"\nfile = \"{long}.wasm\"\nsha256 = \"\"\n"),
    ];
    for text in texts {
        let mut folder = Folder::new();
        folder.catalog = text.clone();
        let error = chain(&folder.load().expect_err("the folder is refused"));
        assert!(error.len() < 2_000, "{} bytes", error.len());
        assert!(
            !error.contains(|c: char| c.is_control() || c == '\u{202e}'),
            "{error:?}"
        );
        assert!(error.contains("catalog.toml"), "{error}");
    }
    let mut folder = Folder::new();
    folder.catalog = "\n\nx = [ 1\n".to_owned();
    folder.refused(&["catalog.toml is not a catalog (line "]);
}

#[test]
fn malformed_entry_is_refused() {
    let sha = "0".repeat(64);
    let version = "version = 1";
    for (file, digest, lines, words) in [
        ("../1-a.wasm", &*sha, version, "plain name"),
        ("a/1-a.wasm", &sha, version, "plain name"),
        (".1-a.wasm", &sha, version, "plain name"),
        ("1-a.txt", &sha, version, "plain name"),
        ("1 a.wasm", &sha, version, "plain name"),
        (
            "1-a.wasm",
            &sha[1..],
            version,
            "64 lower-case hexadecimal digits",
        ),
        (
            "1-a.wasm",
            &"A".repeat(64),
            version,
            "64 lower-case hexadecimal digits",
        ),
        (
            "1-a.wasm",
            &"g".repeat(64),
            version,
            "64 lower-case hexadecimal digits",
        ),
        (
            "1-a.wasm",
            &sha,
            "version = 1\nserves = \"0.9\"",
            "a migration has",
        ),
        (
            "1-a.wasm",
            &sha,
            "version = 1\nonto = \"0.9\"",
            "a migration has",
        ),
        ("1-a.wasm", &sha, "serves = \"0.9\"", "a translator has"),
        ("1-a.wasm", &sha, "onto = \"0.9\"", "a translator has"),
        (
            "1-a.wasm",
            &sha,
            "serves = \"0.9\"\nonto = \"0.10\"\nfollows = 2",
            "a translator has",
        ),
    ] {
        Folder::new()
            .listing(file, digest, lines)
            .refused(&[words, file, "restore it"]);
    }
}

#[test]
fn a_missing_module_is_refused() {
    let folder = Folder::valid();
    std::fs::remove_file(folder.path().join("50-things.wasm")).unwrap();
    folder.refused(&[
        "50-things.wasm is listed (migration 50), but is not in the folder",
        "restore the file",
    ]);
}

#[test]
fn unreadable_module_is_not_reported_as_missing() {
    let folder = Folder::valid();
    std::fs::remove_file(folder.path().join("50-things.wasm")).unwrap();
    std::fs::create_dir(folder.path().join("50-things.wasm")).unwrap();
    folder.refused(&["50-things.wasm is a folder; name a .wasm file"]);
}

#[test]
fn an_altered_module_is_refused() {
    let folder = Folder::valid();
    let altered = folder.path().join("50-things.wasm");
    let before = digest(&altered);
    // An additional custom section: a valid component of the same version with another digest.
    let mut bytes = std::fs::read(&altered).unwrap();
    bytes.extend([0, 2, 1, b'x']);
    std::fs::write(&altered, bytes).unwrap();
    folder.refused(&[
        "50-things.wasm was altered",
        &before,
        &digest(&altered),
        "restore the original",
    ]);
}

#[test]
fn an_unlisted_module_is_refused() {
    let folder = Folder::valid();
    std::fs::copy(guest("keeps-state"), folder.path().join("200-extra.wasm")).unwrap();
    folder.refused(&[
        "200-extra.wasm is in the folder",
        "but not in its catalog",
        "bbs module add",
        "or delete it",
    ]);
}

#[test]
fn other_files_are_ignored() {
    let folder = Folder::valid();
    std::fs::write(folder.path().join("README.txt"), "notes").unwrap();
    folder
        .load()
        .unwrap_or_else(|error| panic!("{}", chain(&error)));
}

#[test]
fn a_module_listed_twice_is_refused() {
    let folder = Folder::valid();
    let digest = digest(&folder.path().join("50-things.wasm"));
    folder
        .listing("50-things.wasm", &digest, "version = 150\nfollows = 100")
        .refused(&["50-things.wasm is listed twice", "delete one"]);
}

#[test]
fn modules_out_of_order_are_refused() {
    Folder::new()
        .with("well-behaved", "100-well-behaved.wasm", "version = 100")
        .with("things", "50-things.wasm", "version = 50\nfollows = 100")
        .refused(&["50-things.wasm (50) is listed after 100", "oldest first"]);
    Folder::new()
        .with(
            "chatty-translator",
            "b.wasm",
            "serves = \"0.10\"\nonto = \"0.11\"",
        )
        .with(
            "chatty-translator",
            "a.wasm",
            "serves = \"0.9\"\nonto = \"0.10\"",
        )
        .refused(&["a.wasm (0.9) is listed after 0.10", "oldest first"]);
}

#[test]
fn duplicate_version_is_refused() {
    Folder::valid()
        .with(
            "keeps-state",
            "100-keeps-state.wasm",
            "version = 100\nfollows = 100",
        )
        .refused(&[
            "100-keeps-state.wasm leads to version 100, as an earlier module does",
            "build it with another",
        ]);
    Folder::valid()
        .with(
            "keeps-state",
            "100-keeps-state.wasm",
            "version = 50\nfollows = 100",
        )
        .refused(&["100-keeps-state.wasm leads to version 50, as an earlier module does"]);
    Folder::valid()
        .with(
            "chatty-translator",
            "again.wasm",
            "serves = \"0.9\"\nonto = \"0.10\"",
        )
        .refused(&[
            "again.wasm serves API version 0.9, as an earlier module does",
            "keep one",
        ]);
}

#[test]
fn a_gap_between_migrations_is_refused() {
    Folder::new()
        .with("things", "50-things.wasm", "version = 50")
        .with(
            "well-behaved",
            "100-well-behaved.wasm",
            "version = 100\nfollows = 70",
        )
        .refused(&[
            "built to follow 70, but in the catalog it follows 50",
            "restore the migrations that are missing",
        ]);
    Folder::new()
        .with("things", "50-things.wasm", "version = 50\nfollows = 40")
        .refused(&["built to follow 40, but in the catalog it follows nothing"]);
    Folder::new()
        .with("things", "50-things.wasm", "version = 50")
        .with("well-behaved", "100-well-behaved.wasm", "version = 100")
        .refused(&["built to follow nothing, but in the catalog it follows 50"]);
}

#[test]
fn a_gap_between_translators_is_refused() {
    Folder::valid()
        .with(
            "chatty-translator",
            "newer.wasm",
            "serves = \"0.11\"\nonto = \"1.0\"",
        )
        .refused(&[
            "newer.wasm serves API version 0.11",
            "needs 0.10",
            "restore the translator that serves 0.10",
        ]);
}

#[test]
fn translator_chain_must_end_at_the_native_version() {
    let version = |major, minor| ApiVersion::new(major, minor);
    let catalog = Folder::valid().load().unwrap();
    catalog.ends_in(version(0, 10)).unwrap();
    let error = catalog.ends_in(version(1, 1)).unwrap_err();
    assert_contains(
        &chain(&error),
        &[
            "0.9-to-0.10.wasm",
            "API version 0.10",
            "this host speaks 1.1",
            "add the translators",
        ],
    );
    let none = Folder::new()
        .with("things", "50-things.wasm", "version = 50")
        .load()
        .unwrap();
    none.ends_in(version(1, 1))
        .expect("a catalog without translators is valid");
}

/// Goal: `bbs module check` accepts no folder with which a host does not start.
/// Method: gives folders with one fault each to both commands and compares the errors.
#[test]
fn module_check_refuses_what_serve_refuses() {
    let ends_early = Folder::valid();
    let only_translators = Folder::new().with(
        "chatty-translator",
        "0.9-to-0.10.wasm",
        "serves = \"0.9\"\nonto = \"0.10\"",
    );
    let empty = Folder::new();
    let unlisted = Folder::new().with("things", "50-things.wasm", "version = 50");
    std::fs::copy(
        guest("well-behaved"),
        unlisted.path().join("100-well-behaved.wasm"),
    )
    .unwrap();
    let misfit = Folder::new().with("well-behaved", "100-well-behaved.wasm", "version = 100");
    for (folder, words) in [
        (
            ends_early,
            "is written for API version 0.10, and this host speaks 1.1",
        ),
        (
            only_translators,
            "is written for API version 0.10, and this host speaks 1.1",
        ),
        (empty, "there is no migration in "),
        (unlisted, "100-well-behaved.wasm is in the folder"),
        (
            misfit,
            "migration 100-well-behaved does not fit the layout before it",
        ),
    ] {
        std::fs::write(folder.path().join("catalog.toml"), &folder.catalog).unwrap();
        let checked = command()
            .args(["module", "check"])
            .arg(folder.path())
            .output()
            .unwrap();
        let served = Installation::new(folder.path(), Kind::Sqlite).run(&["serve"]);
        for output in [checked, served] {
            refused(output, words);
        }
    }
}

#[test]
fn module_whose_manifest_contradicts_its_entry_is_refused() {
    Folder::new()
        .with("things", "51-things.wasm", "version = 51")
        .refused(&[
            "51-things.wasm is migration 50 according to its manifest",
            "lists it as migration 51",
            "restore the catalog",
        ]);
    Folder::new()
        .with(
            "chatty-translator",
            "0.8-to-0.10.wasm",
            "serves = \"0.8\"\nonto = \"0.10\"",
        )
        .refused(&[
            "is translator 0.9 to 0.10 according to its manifest",
            "lists it as translator 0.8 to 0.10",
        ]);
    Folder::new()
        .with(
            "chatty-translator",
            "0.9-to-1.0.wasm",
            "serves = \"0.9\"\nonto = \"1.0\"",
        )
        .refused(&[
            "is translator 0.9 to 0.10 according to its manifest",
            "lists it as translator 0.9 to 1.0",
        ]);
    Folder::new()
        .with("chatty-translator", "50-things.wasm", "version = 50")
        .refused(&[
            "is translator 0.9 to 0.10 according to its manifest",
            "lists it as migration 50",
        ]);
    Folder::new()
        .with(
            "things",
            "0.9-to-0.10.wasm",
            "serves = \"0.9\"\nonto = \"0.10\"",
        )
        .refused(&[
            "is migration 50 according to its manifest",
            "lists it as translator 0.9 to 0.10",
        ]);
}

#[test]
fn module_with_a_foreign_import_is_refused() {
    Folder::valid()
        .with(
            "forbidden-import",
            "200-forbidden.wasm",
            "version = 200\nfollows = 100",
        )
        .refused(&[
            "a module of the folder cannot be used",
            "200-forbidden.wasm",
            "wasi:random/random@0.2.0",
            "modules have no clock, files, network or randomness",
        ]);
}

#[test]
fn module_whose_describe_traps_is_refused() {
    Folder::valid()
        .with(
            "describe-traps",
            "200-silent.wasm",
            "version = 200\nfollows = 100",
        )
        .refused(&["200-silent.wasm", "did not return a manifest", "trapped"]);
}

#[test]
fn a_migration_that_does_not_fit_the_layout_before_it_is_refused() {
    Folder::new()
        .with("well-behaved", "100-well-behaved.wasm", "version = 100")
        .refused(&[
            "do not fit together",
            "migration 100-well-behaved",
            "there is no table \"things\"",
        ]);
}

#[test]
fn outcomes_are_checked_against_the_layout() {
    use bbs_lens::layout::columns::{Batch, ColumnData, TableData};
    use bbs_lens::layout::manifest::Direction;
    let catalog = Folder::new()
        .with("things", "50-things.wasm", "version = 50")
        .with("hostile", "100-hostile.wasm", "version = 100\nfollows = 50")
        .load()
        .unwrap();
    let run = RunArguments {
        started_at_ns: 0,
        namespace: uuid::Uuid::nil(),
    };
    let up = |behaviour: &str| {
        let text = ColumnData {
            validity: vec![],
            offsets: vec![0, u32::try_from(behaviour.len()).unwrap()],
            values: behaviour.into(),
        };
        let table = TableData {
            unit_offsets: vec![0, 1],
            columns: vec![text],
        };
        catalog.migrations()[1].apply(
            Direction::Up,
            &run,
            &Batch {
                tables: vec![table],
                residue: vec![],
            },
        )
    };
    up("fine").expect("the outcome matches the layout");
    let error = up("text-for-integers").unwrap_err().to_string();
    assert_contains(&error, &["column `size`: offsets, which only text has"]);
    let error = up("null-where-none-may-be").unwrap_err().to_string();
    assert_contains(
        &error,
        &["column `size`: NULL in row 0 (unit 0), and the column takes none"],
    );
}
