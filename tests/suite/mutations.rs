//! Mutations of the host that `cargo mutants` has no operator for: other decisions, calls that are
//! left out, constant conditions. A test has to fail for each. Takes hours, so it is run by name;
//! `BBS_MUTATIONS=0,7` takes some of them:
//!
//!     cargo test -p bbs --test suite -- --ignored --nocapture mutations::
//!
//! Works in a copy of the tree. Its build is kept in `target/test-modules/mutations`.

use std::path::Path;
use std::process::Command;

use crate::harness::once::{self, files_of};
use crate::harness::{ALL, workspace};

/// Mutations of one file: each has the original text, which occurs once in the file, and its
/// replacement.
struct FileMutations {
    /// Below `host`.
    file: &'static str,
    /// Arguments of `cargo test`, for the tests of which one has to fail.
    tests: &'static [&'static str],
    changes: &'static [(&'static str, &'static str)],
}

const DECIDE: &[&str] = &["-p", "bbs", "--lib", "migrate::decide"];
const MIGRATE: &[&str] = &["-p", "bbs", "--lib", "migrate::"];
const CATALOG: &[&str] = &["-p", "bbs", "--test", "suite", "catalog::"];
const SIGNATURES: &[&str] = &["-p", "bbs-modules", "--lib", "signatures::"];
const SANDBOX: &[&str] = &["-p", "bbs", "--test", "suite", "sandbox::"];
const ATTACKS: &[&str] = &["-p", "bbs", "--test", "suite", "attacks::"];

const MUTATIONS: &[FileMutations] = &[
    FileMutations {
        file: "src/migrate/decide.rs",
        tests: DECIDE,
        changes: &[
            (
                "Decision::Begin {\n                from: 0,\n                to: wanted,\n            }",
                "{ let _ = wanted; Decision::Serve }",
            ),
            (
                "Decision::ShutDown(Reason::NothingThere)",
                "Decision::Serve",
            ),
            (
                "Decision::ShutDown(Reason::Unversioned {\n            tables: tables.clone(),\n        })",
                "{ let _ = tables; Decision::Serve }",
            ),
            (
                "        return Decision::ShutDown(Reason::GoingDown { to });",
                "        let _ = to;",
            ),
            (
                "(Less, Less) => Decision::Begin",
                "(Less, Less) => Decision::Continue",
            ),
            (
                "(Less, Equal | Greater) => Decision::Continue",
                "(Less, Equal | Greater) => Decision::Begin",
            ),
            (
                "(Equal, Less) => Decision::ShutDown(Reason::Botched { current, target })",
                "(Equal, Less) => Decision::Serve",
            ),
            (
                "Decision::Serve,\n        (Greater, Less",
                "Decision::Continue { from: current, to: wanted },\n        (Greater, Less",
            ),
            (
                "Decision::ShutDown(Reason::Newer { current, wanted }),\n",
                "Decision::Serve,\n",
            ),
            (
                "Decision::ShutDown(Reason::GoingDown { to: began })",
                "Decision::Continue { from: current, to }",
            ),
            (
                "(true, Less) => Decision::ShutDown(Reason::NothingBelow { current, to })",
                "(true, Less) => Decision::Serve",
            ),
            (
                "(true, Equal | Greater) => Decision::Continue",
                "(true, Equal | Greater) => Decision::Begin",
            ),
            (
                "(Less, _) => Decision::ShutDown(Reason::NothingBelow { current, to })",
                "(Less, _) => Decision::Serve",
            ),
            (
                "(Equal | Greater, Less) => Decision::ShutDown(Reason::Botched { current, target })",
                "(Equal | Greater, Less) => Decision::Serve",
            ),
            (
                "Decision::Serve,\n        // An",
                "Decision::Begin { from: current, to },\n        // An",
            ),
            (
                "(Greater, Equal | Greater) => Decision::Begin { from: current, to }",
                "(Greater, Equal | Greater) => Decision::Serve",
            ),
        ],
    },
    FileMutations {
        file: "src/migrate/steps.rs",
        tests: MIGRATE,
        changes: &[(
            "    examine::examine_again(context, job).await\n",
            "    let _ = job;\n    Ok(())\n",
        )],
    },
    FileMutations {
        file: "src/migrate.rs",
        tests: MIGRATE,
        changes: &[
            (
                "    cut_over::clean_up_or_postpone(context, fence).await\n}\n\n/// Undoes the changes",
                "    Ok(())\n}\n\n/// Undoes the changes",
            ),
            ("            start_over(context, fence, job).await?;\n", ""),
        ],
    },
    FileMutations {
        file: "src/migrate/look.rs",
        tests: MIGRATE,
        changes: &[
            (
                "        check_history(context, current, &state::applied(&mut reader).await?)?;",
                "",
            ),
            ("        check_inserted(context, &ran, wanted)?;", ""),
        ],
    },
    FileMutations {
        file: "src/migrate/look/examine.rs",
        tests: MIGRATE,
        changes: &[
            (
                "        push_reason(reasons, check_record_versions(tx, layouts, at).await)?;",
                "",
            ),
            ("    check_sources(tx, work, &mut reasons).await?;", ""),
            (
                "    in_the_way::check(tx, histories, work, &mut reasons).await?;",
                "",
            ),
        ],
    },
    FileMutations {
        file: "src/migrate/prepare.rs",
        tests: MIGRATE,
        changes: &[
            ("            fresh::forget(context, fence).await?;", ""),
            ("        forget_copies(context, fence).await?;\n", ""),
        ],
    },
    FileMutations {
        file: "src/migrate/copy.rs",
        tests: MIGRATE,
        changes: &[("batch.last.to_text().into()", "None::<String>.into()")],
    },
    FileMutations {
        file: "src/migrate/cut_over.rs",
        tests: MIGRATE,
        changes: &[
            (
                "        super::same_schema(dialect, &plan.table.name, found, &plan.table)?;",
                "        let _ = found;",
            ),
            ("    MigrateError::refuse(lost)?;\n", "    let _ = lost;\n"),
            ("    state::write_version(tx, job.to, job.to).await?;", ""),
        ],
    },
    FileMutations {
        file: "modules/src/catalog.rs",
        tests: CATALOG,
        changes: &[
            (
                "    refuse_unlisted(folder, &entries)?;\n    Ok(ListedCatalog",
                "    Ok(ListedCatalog",
            ),
            ("    if !keys.is_empty() {", "    if false {"),
        ],
    },
    FileMutations {
        file: "modules/src/catalog/merge.rs",
        tests: CATALOG,
        changes: &[("    refuse_same_names(&catalogs)?;\n", "")],
    },
    FileMutations {
        file: "modules/src/signatures.rs",
        tests: SIGNATURES,
        changes: &[
            (
                "            .is_ok()\n        }) {",
                "            .is_ok()\n                || true\n        }) {",
            ),
            (".filter(|key| KeyId::of_key(key) == id)", ""),
            (".filter(|bytes| bytes.len() == 64)", ""),
        ],
    },
    FileMutations {
        file: "src/startup/takeover.rs",
        tests: CATALOG,
        changes: &[
            (
                "!self.config.accept_older_catalogs.contains(&older.name)",
                "false",
            ),
            ("is_none_or(|known| known < serial)", "is_none_or(|_| true)"),
        ],
    },
    FileMutations {
        file: "modules/src/catalog/sequence.rs",
        tests: CATALOG,
        changes: &[(
            "        if served.contains(&serves) {",
            "        if false {",
        )],
    },
    FileMutations {
        file: "src/api/run.rs",
        tests: ATTACKS,
        changes: &[
            ("self.next_calls += 1;", ""),
            (
                "is_page);\n        let permit = timeout_at(waits_until, permit)",
                "is_page);\n        let permit = timeout_at(waits_until + RUN_TIME * 1000, permit)",
            ),
        ],
    },
    FileMutations {
        file: "src/api/run.rs",
        tests: &["-p", "bbs", "--lib", "api::run"],
        changes: &[(
            "        () = abandoned.cancelled() =>",
            "        () = std::future::pending() =>",
        )],
    },
    FileMutations {
        file: "modules/src/memory.rs",
        tests: SANDBOX,
        changes: &[(
            "!translator.reserve(more)",
            "{ translator.reserve(more); false }",
        )],
    },
    FileMutations {
        file: "modules/src/instance.rs",
        tests: SANDBOX,
        changes: &[
            (
                "    store.set_hostcall_fuel(answer_bytes);",
                "    let _ = answer_bytes;",
            ),
            ("        if state.running >= most {", "        if false {"),
        ],
    },
    FileMutations {
        file: "modules/src/sandbox/compiler.rs",
        tests: SANDBOX,
        changes: &[(
            "end.recv_timeout(limits.wait)",
            "end.recv_timeout(limits.wait + Duration::from_secs(3600))",
        )],
    },
    FileMutations {
        file: "modules/src/sandbox/complexity.rs",
        tests: &["-p", "bbs-modules", "--lib", "sandbox"],
        changes: &[(
            "    if found > limit {",
            "    if found > u64::MAX - limit {",
        )],
    },
    FileMutations {
        file: "lens/src/made.rs",
        tests: &["-p", "bbs-units", "--lib", "storable"],
        changes: &[(
            "            Provenance::Computed => true,",
            "            Provenance::Computed => false,",
        )],
    },
    FileMutations {
        file: "units/src/storable.rs",
        tests: &["-p", "bbs-units", "--lib", "storable"],
        changes: &[(
            "!seen.insert(rows.encoded(table, &table.primary_key, *row));",
            "!seen.insert(rows.encoded(table, &table.primary_key, *row)) && false;",
        )],
    },
];

#[test]
fn each_original_text_is_found_once() {
    let mut problems = Vec::new();
    for mutations in MUTATIONS {
        let text = std::fs::read_to_string(workspace().join("host").join(mutations.file))
            .expect(mutations.file);
        for (original, _) in mutations.changes {
            let count = text.matches(original).count();
            if count != 1 {
                problems.push(format!("{count} times in {}: {original}", mutations.file));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
#[ignore = "takes hours"]
fn a_test_fails_for_each_mutation() {
    let chosen: Option<Vec<usize>> = std::env::var("BBS_MUTATIONS").ok().map(|numbers| {
        numbers
            .split(',')
            .map(|number| number.parse().expect("a number of a mutation"))
            .collect()
    });
    let tree = tempfile::tempdir().expect("a temporary folder");
    copy_sources(tree.path());
    let all = MUTATIONS.iter().flat_map(|mutations| {
        mutations
            .changes
            .iter()
            .map(move |change| (mutations, change))
    });
    let mut unmutated = Vec::new();
    let mut survivors = Vec::new();
    for (number, (FileMutations { file, tests, .. }, (original, replacement))) in all.enumerate() {
        if chosen
            .as_ref()
            .is_some_and(|chosen| !chosen.contains(&number))
        {
            continue;
        }
        if !unmutated.contains(tests) {
            assert!(
                tests_pass(tree.path(), tests),
                "{tests:?} fail without a mutation"
            );
            unmutated.push(tests);
        }
        let path = tree.path().join("host").join(file);
        let text = std::fs::read_to_string(&path).expect("a source file");
        std::fs::write(&path, text.replacen(original, replacement, 1))
            .expect("the copy can be written");
        let survives = tests_pass(tree.path(), tests);
        std::fs::write(&path, text).expect("the copy can be written");
        let outcome = if survives { "SURVIVED" } else { "caught" };
        println!(
            "{number} {outcome}: {file}: {}",
            original.trim().lines().next().unwrap_or_default()
        );
        survivors.extend(survives.then_some(number));
    }
    assert!(survivors.is_empty(), "no test fails for {survivors:?}");
}

fn copy_sources(tree: &Path) {
    for source in [
        "Cargo.lock",
        "Cargo.toml",
        "README.md",
        "host",
        "migrations-wasm",
        "rust-toolchain.toml",
        "sdk",
        "tests",
    ] {
        for file in files_of(&workspace().join(source)) {
            let copy = tree.join(
                file.strip_prefix(workspace())
                    .expect("a file of the workspace"),
            );
            std::fs::create_dir_all(copy.parent().expect("a file is in a folder"))
                .expect("the copy can be written");
            std::fs::copy(&file, &copy).expect("the copy can be written");
        }
    }
}

/// Whether the tests pass within ten minutes. A mutation may cause an endless loop.
fn tests_pass(tree: &Path, tests: &[&str]) -> bool {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let run = |limit: &str, options: &[&str]| {
        let mut command = Command::new("timeout");
        command
            .args([limit, &cargo, "test", "--quiet", "--locked"])
            .args(options)
            .args(tests);
        command
            .current_dir(tree)
            .env("CARGO_TARGET_DIR", once::folder().join("mutations"))
            // All draws of the random tests.
            .env(ALL, "1")
            .env_remove("RUSTC_BOOTSTRAP");
        command.output().expect("cargo runs")
    };
    let built = run("0", &["--no-run"]);
    assert!(
        built.status.success(),
        "the mutation does not compile: {}",
        String::from_utf8_lossy(&built.stderr)
    );
    let tested = run("600", &[]);
    let passed = tested.status.success();
    let report = String::from_utf8_lossy(&tested.stdout);
    let has_tests = report
        .lines()
        .any(|line| line.starts_with("running ") && !line.starts_with("running 0 "));
    assert!(has_tests || !passed, "no test is one of {tests:?}");
    passed
}
