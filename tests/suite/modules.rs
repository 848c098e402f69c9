//! The commands of an operator for built modules: adds them to a modules directory, compiles them
//! ahead of a start, and shares the compiled modules between hosts.

mod compiled;
mod side_shapes;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use bbs::testing::modules::catalog::Catalog;
use bbs_lens::transform::Transform;

use crate::harness::database::Kind;
use crate::harness::host::Installation;
use crate::harness::modules::{
    copy_folder, guest, modules, modules_with_next_diego, modules_with_split, remove_modules,
    sandbox,
};
use crate::harness::once;
use crate::harness::output::{errors, refused, succeeded};

const SPLIT: &str = "1795000100-split-desired-lrps.wasm";
const CREDENTIALS: &str = "1795000200-image-credentials.wasm";

/// A temporary folder with a copy of the default modules in `modules`.
struct Workbench(tempfile::TempDir);

impl Workbench {
    fn new() -> Self {
        let bench = Self(tempfile::tempdir().unwrap());
        copy_folder(&modules(), &bench.modules());
        bench
    }

    fn modules(&self) -> PathBuf {
        self.0.path().join("modules")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = crate::harness::command();
        command
            .arg("module")
            .args(arguments)
            .current_dir(self.0.path());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    #[track_caller]
    fn succeed(&self, arguments: &[&str]) -> String {
        succeeded(self.run(arguments))
    }

    /// Asserts that a command fails with a message that has these words, and leaves the modules
    /// directory unchanged.
    #[track_caller]
    fn refused(&self, arguments: &[&str], words: &[&str]) {
        let before = content(&self.modules());
        let output = self.run(arguments);
        assert!(!output.status.success(), "{arguments:?} succeeded");
        let errors = errors(&output);
        for word in words {
            assert!(errors.contains(word), "{word:?} is not in {errors}");
        }
        assert!(
            content(&self.modules()) == before,
            "{arguments:?} changed the folder"
        );
    }

    #[track_caller]
    fn add(&self, file: &Path) -> String {
        self.succeed(&["add", file.to_str().unwrap(), "--into", "modules"])
    }

    fn catalog(&self) -> Catalog {
        Catalog::load(&self.modules(), &sandbox()).unwrap()
    }

    /// A workbench without the translators of these names.
    fn without(names: &[&str]) -> Self {
        let bench = Self::new();
        remove_modules(&bench.modules(), names);
        bench
    }
}

/// An installation with the workbench's modules and an empty cache folder.
fn installation(bench: &Workbench) -> Installation {
    Installation::new(&bench.modules(), Kind::Sqlite)
        .set("module_cache_dir", bench.path("own").to_str().unwrap())
}

/// The files of a folder with their contents, in order.
fn content(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    let mut content: Vec<_> = files
        .map(|file| (file.clone(), std::fs::read(&file).unwrap()))
        .collect();
    content.sort();
    content
}

/// The file of a built module that is not in the default catalog.
fn built(name: &str) -> PathBuf {
    modules_with_split().join(name)
}

#[test]
fn built_migration_is_added_as_the_newest_and_only_once() {
    let bench = Workbench::new();
    let before = bench.catalog().migrations().len();
    assert!(
        bench
            .add(&built(SPLIT))
            .contains(&format!("{SPLIT}  added"))
    );
    let catalog = bench.catalog();
    assert_eq!(catalog.migrations().len(), before + 1);
    assert_eq!(
        catalog.migrations().last().unwrap().manifest().version,
        1_795_000_100
    );
    let folder = content(&bench.modules());
    assert!(
        bench
            .add(&built(SPLIT))
            .contains(&format!("{SPLIT}  already present"))
    );
    assert!(content(&bench.modules()) == folder);
}

/// Goal: a module that the catalog lists is restored from its file, and the catalog stays signed.
#[test]
fn listed_module_whose_file_is_gone_or_altered_is_put_back() {
    let bench = Workbench::new();
    let split = built(SPLIT).display().to_string();
    bench.succeed(&["add", &split, "--into", "modules"]);
    let [catalog, signature, listed] =
        ["catalog.toml", "catalog.toml.minisig", SPLIT].map(|name| bench.modules().join(name));
    // As another version of the program writes it.
    let text = std::fs::read_to_string(&catalog).unwrap();
    std::fs::write(&catalog, format!("# A catalog.\n{text}")).unwrap();
    std::fs::write(signature, "untrusted comment: a signature\n").unwrap();
    let whole = content(&bench.modules());
    let bytes = std::fs::read(&listed).unwrap();
    let longer = [&bytes[..], b"\0"].concat();
    for altered in [None, Some(&bytes[..100]), Some(&longer[..])] {
        std::fs::remove_file(&listed).unwrap();
        if let Some(altered) = altered {
            std::fs::write(&listed, altered).unwrap();
        }
        let report = bench.succeed(&["add", &split, &split, "--into", "modules"]);
        for words in ["added", "already present"] {
            let line = format!("{SPLIT}  {words}\n");
            assert!(report.contains(&line), "{line:?} is not in {report}");
        }
        assert!(content(&bench.modules()) == whole);
    }
}

#[test]
fn several_modules_are_added_in_the_order_of_their_versions() {
    let bench = Workbench::new();
    let [newer, older] = [CREDENTIALS, SPLIT].map(|name| built(name).display().to_string());
    bench.succeed(&["add", &newer, &older, "--into", "modules"]);
    assert_eq!(bench.catalog().layout_history().newest(), 1_795_000_200);
}

#[test]
fn advised_command_for_an_unlisted_file_lists_it() {
    let bench = Workbench::new();
    std::fs::copy(built(SPLIT), bench.modules().join("by-hand.wasm")).unwrap();
    let error = Catalog::load(&bench.modules(), &sandbox())
        .unwrap_err()
        .to_string();
    let advice = error.split('`').nth(1).expect("the error names a command");
    let arguments: Vec<_> = advice
        .strip_prefix("bbs module ")
        .unwrap()
        .split(' ')
        .collect();
    bench.succeed(&arguments);
    assert_eq!(
        bench.catalog().migrations().last().unwrap().file(),
        "by-hand.wasm"
    );
}

#[test]
fn a_second_unlisted_file_is_named_after_the_first_was_added() {
    let bench = Workbench::new();
    for name in [SPLIT, CREDENTIALS] {
        std::fs::copy(built(name), bench.modules().join(name)).unwrap();
    }
    let added = format!("modules/{SPLIT}");
    refused(
        bench.run(&["add", &added, "--into", "modules"]),
        CREDENTIALS,
    );
    bench.add(&bench.modules().join(CREDENTIALS));
    assert_eq!(bench.catalog().layout_history().newest(), 1_795_000_200);
}

#[test]
fn invalid_module_is_not_added() {
    let bench = Workbench::new();
    let cases: [(&str, &[u8], &str); 4] = [
        ("text.wasm", b"(component)", "is not a WebAssembly file"),
        ("empty.wasm", b"", "is not a WebAssembly file"),
        (
            "core.wasm",
            b"\0asm\x01\0\0\0",
            "is a core WebAssembly module",
        ),
        (
            "nothing.wasm",
            b"\0asm\x0d\0\x01\0",
            "is neither a migration",
        ),
    ];
    for (name, bytes, words) in cases {
        std::fs::write(bench.path(name), bytes).unwrap();
        bench.refused(
            &["add", name, "--into", "modules"],
            &[name, "cannot be added", words],
        );
    }
    bench.refused(
        &["add", "absent.wasm", "--into", "modules"],
        &["absent.wasm cannot be read"],
    );
    let forbidden = guest("forbidden-import").display().to_string();
    bench.refused(
        &["add", &forbidden, "--into", "modules"],
        &["wasi:random/random@0.2.0"],
    );
}

#[test]
fn folder_is_created_for_accepted_modules_only() {
    let bench = Workbench::new();
    std::fs::write(bench.path("text.wasm"), "text").unwrap();
    bench.refused(
        &["add", "text.wasm", "--into", "new"],
        &["is not a WebAssembly file"],
    );
    assert!(!bench.path("new").exists());
    let first = bench.catalog().migrations()[0].file().to_owned();
    bench.succeed(&["add", &format!("modules/{first}"), "--into", "new"]);
    assert_eq!(
        Catalog::load(&bench.path("new"), &sandbox())
            .unwrap()
            .migrations()
            .len(),
        1
    );
}

#[test]
fn built_migration_is_inserted_below_others_and_the_command_names_them() {
    let bench = Workbench::new();
    let together = modules_with_next_diego();
    let [gpu, tags, newest] = [
        "1789335377-add-gpu-to-desired-lrps",
        "1790000000-sort-placement-tags",
        "1795000020-after-gpu",
    ]
    .map(|name| together.join(format!("{name}.wasm")).display().to_string());
    let report = bench.succeed(&["add", &gpu, "--into", "modules"]);
    assert!(
        report.contains("migration 1789335377 is inserted below 1795000000, 1795000010\n"),
        "{report}"
    );
    assert!(
        report.contains("databases that are at 1795000010, the newest version, refuse"),
        "{report}"
    );
    let report = bench.succeed(&["add", &newest, &tags, "--into", "modules", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let inserted =
        serde_json::json!([{ "version": 1_790_000_000, "below": [1_795_000_000, 1_795_000_010] }]);
    assert_eq!(
        (&report["inserted"], &report["refused_at"]),
        (&inserted, &serde_json::Value::Null)
    );
    let digests = |catalog: &Catalog| {
        catalog
            .migration_digests()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        digests(&bench.catalog()),
        digests(&Catalog::load(&together, &sandbox()).unwrap())
    );
}

#[test]
fn migration_older_than_the_first_is_not_added() {
    let things = guest("things").display().to_string();
    let words = ["migration 50 is older than 1461790966", "a later version"];
    Workbench::new().refused(&["add", &things, "--into", "modules"], &words);
}

#[test]
fn module_of_the_same_version_with_other_content_is_not_added() {
    let bench = Workbench::new();
    let listed = bench
        .catalog()
        .migrations()
        .last()
        .unwrap()
        .file()
        .to_owned();
    // An additional custom section: a valid module of the same version with another digest.
    let mut bytes = std::fs::read(bench.modules().join(&listed)).unwrap();
    bytes.extend([0, 2, 1, b'x']);
    std::fs::write(bench.path("other.wasm"), bytes).unwrap();
    let words = [
        "other.wasm is migration 1795000010",
        &listed,
        "ship the correction under a later version",
    ];
    bench.refused(&["add", "other.wasm", "--into", "modules"], &words);
}

#[test]
fn translator_that_leaves_a_gap_is_not_added() {
    const OLDEST: [&str; 2] = ["0.9-to-0.10.wasm", "0.10-to-0.11.wasm"];
    let [oldest, next] = OLDEST.map(|name| modules().join(name).display().to_string());
    let bench = Workbench::without(&OLDEST);
    let gap = "0.11-to-0.12.wasm serves API version 0.11, and the translator before it needs 0.10";
    let words = [
        gap,
        "restore the translator that serves 0.10",
        "the folder is unchanged",
    ];
    bench.refused(&["add", &oldest, "--into", "modules"], &words);
    bench.succeed(&["add", &oldest, &next, "--into", "modules"]);
    assert_eq!(bench.catalog().translators().len(), 5);

    let all = [
        "0.9-to-0.10.wasm",
        "0.10-to-0.11.wasm",
        "0.11-to-0.12.wasm",
        "0.12-to-1.0.wasm",
        "1.0-to-1.1.wasm",
    ];
    let bench = Workbench::without(&all);
    let words = [
        "the newest translator, 0.10-to-0.11.wasm, is written for API version 0.11",
        "the folder is unchanged",
    ];
    bench.refused(&["add", &next, "--into", "modules"], &words);
    let newest = modules().join("1.0-to-1.1.wasm").display().to_string();
    bench.succeed(&["add", &newest, "--into", "modules"]);
    assert_eq!(bench.catalog().translators().len(), 1);
}

#[test]
fn migration_that_does_not_fit_the_layout_is_not_added() {
    let bench = Workbench::new();
    // It changes a table that the module before it creates, which is not added.
    let words = ["a host would refuse the folder", "do not fit together"];
    let credentials = built(CREDENTIALS).display().to_string();
    let of_an_add_on = [
        "name the folder of those with `--base`",
        "the folder is unchanged",
    ];
    bench.refused(
        &["add", &credentials, "--into", "of-an-add-on"],
        &of_an_add_on,
    );
    bench.refused(&["add", &credentials, "--into", "modules"], &words);
}

#[test]
fn modules_added_concurrently_are_all_listed() {
    let bench = Workbench::without(&["0.9-to-0.10.wasm"]);
    let files = [built(SPLIT), modules().join("0.9-to-0.10.wasm")];
    let children: Vec<_> = files
        .iter()
        .map(|file| {
            bench
                .command(&["add", file.to_str().unwrap(), "--into", "modules"])
                .spawn()
                .unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let catalog = bench.catalog();
    assert_eq!(
        (
            catalog.translators().len(),
            catalog.layout_history().newest()
        ),
        (5, 1_795_000_100)
    );
}

/// The numbers of modules that `module compile` prints: compiled, found in the cache.
#[track_caller]
/// Goal: a draft is taken out again, and nothing that a database or another module needs.
#[test]
fn module_that_has_run_nowhere_is_removed() {
    let bench = Workbench::new();
    let before = content(&bench.modules());
    let [split, credentials] = [SPLIT, CREDENTIALS].map(|name| built(name).display().to_string());
    bench.succeed(&["add", &split, &credentials, "--into", "modules"]);
    let words = ["a host would refuse the folder", "do not fit together"];
    bench.refused(
        &["remove", SPLIT, "--from", "modules", "--never-ran"],
        &words,
    );
    bench.refused(
        &["remove", "absent.wasm", "--from", "modules", "--never-ran"],
        &["does not list absent.wasm", SPLIT],
    );
    bench.refused(
        &["remove", CREDENTIALS, "--from", "modules"],
        &["`--config FILE` of each host", "or `--never-ran`"],
    );
    let words = ["a host would refuse the folder", "0.11"];
    bench.refused(
        &[
            "remove",
            "0.10-to-0.11.wasm",
            "--from",
            "modules",
            "--never-ran",
        ],
        &words,
    );
    for name in [CREDENTIALS, SPLIT] {
        let removed = bench.succeed(&["remove", name, "--from", "modules", "--never-ran"]);
        assert!(removed.contains(&format!("{name}  removed")), "{removed}");
    }
    assert!(content(&bench.modules()) == before);
}

/// Goal: a draft below others is taken out again, as it was inserted.
#[test]
fn inserted_draft_is_removed_below_others() {
    let bench = Workbench::new();
    let before = content(&bench.modules());
    const DRAFT: &str = "1790000000-sort-placement-tags.wasm";
    let draft = modules_with_next_diego().join(DRAFT).display().to_string();
    let report = bench.succeed(&["add", &draft, "--into", "modules"]);
    assert!(
        report.contains("is inserted below 1795000000, 1795000010"),
        "{report}"
    );
    bench.succeed(&["remove", DRAFT, "--from", "modules", "--never-ran"]);
    assert!(content(&bench.modules()) == before);
}

/// Goal: a database shows whether a module may be removed: not one that ran there, also if Diego's
/// BBS ran it, and not one of a migration that is under way.
#[tokio::test]
async fn module_that_a_database_needs_is_not_removed() {
    const OF_DIEGO: &str = "1461790966-init-sql.wasm";
    let bench = Workbench::new();
    bench.add(&built(SPLIT));
    let installation = Installation::of_small_diego(&bench.modules(), Kind::Sqlite).await;
    let folder = bench.modules().display().to_string();
    let remove = |name: &str| {
        let mut command = installation.command(&["module", "remove", name, "--from", &folder]);
        command
            .env("XDG_CACHE_HOME", once::folder())
            .env_remove("CACHE_DIRECTORY");
        command.output().expect("the executable starts")
    };
    let stays = |name: &str, words: &str| {
        let before = content(&bench.modules());
        refused(remove(name), &format!("{name} {words}"));
        assert!(content(&bench.modules()) == before);
    };

    let part = installation.run(&["migrate", "up", "--max-count", "10"]);
    assert_eq!(part.status.code(), Some(3), "{}", errors(&part));
    stays(SPLIT, "may be part of the migration that is under way");
    stays(OF_DIEGO, "has run on the database of");
    installation.succeed(&["migrate", "abort"]);
    succeeded(remove(SPLIT));

    bench.add(&built(SPLIT));
    installation.succeed(&["migrate", "up"]);
    bench.add(&built(CREDENTIALS));
    succeeded(remove(CREDENTIALS));
    stays(SPLIT, "has run on the database of");
}
