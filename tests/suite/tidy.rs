//! Checks of the repository itself: dependencies, language, sizes of files, the top-level folder.

mod dependencies;
mod documents;
mod examples;
mod functions;
mod known_failures;
mod language;
mod named_commands;
mod slow;
mod workflows;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::workspace;

const LONGEST_FILE: usize = 700;

/// Crates that only the named modules may use.
const CONFINED: &[(&str, &[&str])] = &[
    ("axum", &["http", "startup"]),
    ("bbs_client", &["cli"]),
    (
        "bbs_database",
        &[
            "cli", "config", "import", "keys", "lock", "metrics", "migrate", "startup", "store",
            "testing",
        ],
    ),
    (
        "bbs_encryption",
        &["etcd", "import", "keys", "migrate", "startup", "store"],
    ),
    (
        "bbs_lens",
        &[
            "cli", "import", "keys", "lock", "migrate", "startup", "store",
        ],
    ),
    (
        "bbs_model",
        &[
            "api", "cli", "clients", "config", "domain", "etcd", "events", "http", "import",
            "migrate", "store",
        ],
    ),
    ("hyper", &["http"]),
    ("prometheus_client", &["metrics"]),
    ("sea_query", &["import", "keys", "lock", "migrate", "store"]),
];

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    files_with(folder, "rs")
}

/// Files with an ending below a folder.
fn files_with(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            found.extend(files_with(&path, ending));
        } else if path
            .extension()
            .is_some_and(|extension| extension == ending)
        {
            found.push(path);
        }
    }
    found
}

fn all_rust_files() -> Vec<PathBuf> {
    ["host", "migrations-wasm", "sdk", "tests"]
        .iter()
        .flat_map(|top| rust_files(&workspace().join(top)))
        .collect()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The sources of what was one crate, whose names and messages are those of one program.
const HOST_CRATES: [&str; 6] = [
    "host/src",
    "host/database/src",
    "host/lens/src",
    "host/modules/src",
    "host/units/src",
    "host/work/src",
];

/// The top-level module of the host that a file belongs to.
fn module_of(path: &Path) -> String {
    let inside = path
        .strip_prefix(workspace().join("host/src"))
        .expect("a file of the host");
    inside
        .components()
        .next()
        .expect("a path")
        .as_os_str()
        .to_string_lossy()
        .trim_end_matches(".rs")
        .to_owned()
}

/// The names of all tests of this executable.
fn test_names() -> BTreeSet<String> {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--list", "--include-ignored"])
        .output()
        .unwrap();
    let listed = String::from_utf8(output.stdout).unwrap();
    listed
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .map(str::to_owned)
        .collect()
}

#[track_caller]
fn assert_none(problems: Vec<String>) {
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn confined_crates_are_used_only_in_their_modules() {
    let mut problems = Vec::new();
    for path in rust_files(&workspace().join("host/src")) {
        let module = module_of(&path);
        for (number, line) in read(&path)
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim_start().starts_with("//"))
        {
            for (name, homes) in CONFINED {
                let uses =
                    line.contains(&format!("{name}::")) || line.contains(&format!("use {name};"));
                if uses
                    && !line.contains(&format!("::{name}::"))
                    && !homes.contains(&module.as_str())
                {
                    problems.push(format!(
                        "{}:{}: `{name}` belongs to {homes:?}",
                        path.display(),
                        number + 1
                    ));
                }
            }
        }
    }
    assert_none(problems);
}

/// Every connection trusts and proves as the module `tls` says.
#[test]
fn tls_configurations_are_made_in_one_module() {
    let mut problems = Vec::new();
    for path in rust_files(&workspace().join("host/src")) {
        for (number, line) in read(&path).lines().enumerate() {
            let makes = ["ClientConfig::", "ServerConfig::", "ClientTlsConfig::"];
            if module_of(&path) != "tls" && makes.iter().any(|make| line.contains(make)) {
                problems.push(format!("{}:{}: {line}", path.display(), number + 1));
            }
        }
    }
    assert_none(problems);
}

#[test]
fn files_are_short_and_have_module_docs() {
    let mut problems = Vec::new();
    for path in all_rust_files() {
        let text = read(&path);
        if !text.trim_start().starts_with("//!")
            && path.file_name().is_some_and(|name| name != "main.rs")
        {
            problems.push(format!("{}: begins without `//!`", path.display()));
        }
        let lines = text.lines().count();
        if lines > LONGEST_FILE {
            problems.push(format!(
                "{}: {lines} lines, more than {LONGEST_FILE}",
                path.display()
            ));
        }
    }
    assert_none(problems);
}

#[test]
fn every_database_test_is_registered() {
    let mut problems = Vec::new();
    for path in rust_files(&workspace().join("tests/suite")) {
        // Signatures and macros may take several lines.
        let text: String = read(&path).split_whitespace().collect();
        for function in text.split("asyncfn").skip(1) {
            let (name, rest) = function.split_once('(').unwrap_or_default();
            if !["kind:Kind){", "kind:Kind,){"]
                .iter()
                .any(|form| rest.starts_with(form))
            {
                continue;
            }
            let runs = [
                "on_each_database",
                "on_each_layout",
                "on_layouts_of_sqlite",
                "on_each_server",
                "on_each_mysql",
            ]
            .iter()
            .any(|run| text.contains(&format!("{run}!({name});")));
            if !runs {
                problems.push(format!(
                    "{}: no macro runs the test `{name}`",
                    path.display()
                ));
            }
        }
    }
    assert_none(problems);
}

#[test]
fn top_level_holds_only_allowed_entries() {
    let allowed = [
        "Cargo.lock",
        "Cargo.toml",
        "LICENSE",
        "README.md",
        "host",
        "migrations-wasm",
        "rust-toolchain.toml",
        "sdk",
        "target",
        "tests",
    ];
    let found = std::fs::read_dir(workspace())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_none(
        found
            .filter(|name| !name.starts_with('.') && !allowed.contains(&name.as_str()))
            .collect(),
    );
}

/// Parts of the harness that sleep: the pause between two checks of a condition, the start of a
/// server, and clients that send at a rate or at an interval of their own.
const SLEEPERS: [&str; 5] = ["mod.rs", "engine.rs", "watch.rs", "load", "diego"];

/// Goal: a request type with a validation, which implements `Validate`, is also fuzzed.
#[test]
fn every_validated_request_is_fuzzed() {
    let target = read(&workspace().join("tests/fuzz/fuzz_targets/request.rs"));
    let sources = rust_files(&workspace().join("host/src/domain/validation"));
    let text: String = sources.iter().map(|path| read(path)).collect();
    let requests = text.lines().filter_map(|line| {
        line.strip_prefix("impl Validate for ")?
            .strip_suffix("Request {")
    });
    assert_none(
        requests
            .filter(|name| !target.contains(&format!("        {name}Request,\n")))
            .map(|name| format!("{name}Request is not in the fuzz target"))
            .collect(),
    );
}

/// A fixed time is too short on a slow machine and too long on a fast one. Unit tests sleep on a
/// clock that is paused or that they move.
#[test]
fn tests_wait_for_conditions_and_not_for_a_time() {
    let (tests, harness) = (
        workspace().join("tests/suite"),
        workspace().join("tests/harness"),
    );
    let sleeps = |path: &PathBuf| {
        path.strip_prefix(&harness)
            .is_ok_and(|inside| SLEEPERS.iter().any(|sleeper| inside.starts_with(sleeper)))
    };
    let mut problems = Vec::new();
    for path in [rust_files(&tests), rust_files(&harness)]
        .concat()
        .iter()
        .filter(|path| !sleeps(path))
    {
        for (number, line) in read(path).lines().enumerate() {
            if [concat!("time::", "sleep"), concat!("thread::", "sleep")]
                .iter()
                .any(|sleep| line.contains(sleep))
            {
                problems.push(format!(
                    "{}:{}: use `harness::until`, or a probe",
                    path.display(),
                    number + 1
                ));
            }
        }
    }
    for path in ["host", "sdk"]
        .iter()
        .flat_map(|top| rust_files(&workspace().join(top)))
    {
        let text = read(&path);
        let inside = path
            .strip_prefix(workspace())
            .expect("a file of the workspace");
        let is_test = inside.components().any(|part| {
            ["tests", "tests.rs"]
                .iter()
                .any(|name| part.as_os_str() == *name)
        });
        let tests = if is_test {
            Some(&*text)
        } else {
            text.split_once("#[cfg(test)]").map(|(_, tests)| tests)
        };
        if tests
            .filter(|tests| {
                tests.contains(concat!("time::", "sleep")) && !tests.contains("start_paused = true")
            })
            .is_some()
        {
            problems.push(format!(
                "{}: its tests sleep; use `start_paused`, or a `StoppedClock`",
                path.display()
            ));
        }
    }
    assert_none(problems);
}

#[test]
fn no_work_is_left_as_a_comment() {
    let words = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X"),
    ];
    let mut problems = Vec::new();
    for path in all_rust_files() {
        for (number, line) in read(&path).lines().enumerate() {
            if words.iter().any(|word| line.contains(word)) {
                problems.push(format!(
                    "{}:{}: {}",
                    path.display(),
                    number + 1,
                    line.trim()
                ));
            }
        }
    }
    assert_none(problems);
}
