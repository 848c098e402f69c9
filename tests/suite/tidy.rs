//! Rules that the repository checks about itself: the layers, the sizes, the module docs, what may stand at the top.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::harness::workspace;

const LONGEST_FILE: usize = 500;
const LONGEST_FUNCTION: usize = 70;

/// Who may use whom, by top-level module of the host. What is not named here may not be used.
const LAYERS: &[(&str, &[&str])] = &[
    ("admin", &["pace", "progress"]),
    ("clients", &["clock", "config", "locket", "metrics", "model", "quiet", "tls"]),
    ("clock", &[]),
    ("events", &["model"]),
    ("config", &["database"]),
    ("logs", &["clock", "config"]),
    ("metrics", &["database", "pace", "progress"]),
    ("pace", &["progress"]),
    ("progress", &[]),
    ("quiet", &[]),
    ("model", &[]),
    ("layout", &[]),
    ("database", &["layout"]),
    ("record", &["layout"]),
    ("lens", &["layout", "record"]),
    ("lock", &["config", "database", "layout", "locket"]),
    ("locket", &["config"]),
    ("modules", &["layout", "lens", "progress", "quiet"]),
    ("tls", &[]),
    ("rows", &["database", "layout", "lens", "record"]),
    ("store", &["clock", "database", "layout", "lens", "lock", "model", "quiet", "record", "rows"]),
    (
        "migrate",
        &["clock", "database", "layout", "lens", "lock", "modules", "pace", "progress", "record", "store", "rows"],
    ),
    ("keys", &["clock", "database", "layout", "lock", "migrate", "pace", "progress", "record"]),
    ("domain", &["clients", "clock", "events", "metrics", "model", "quiet", "store"]),
    ("api", &["clock", "domain", "events", "model", "modules", "store"]),
    ("http", &["api", "domain", "clock", "config", "logs", "metrics", "model", "modules", "progress", "quiet", "tls"]),
];

/// Which module alone may know a crate.
const CONFINED: &[(&str, &[&str])] = &[
    ("aes_gcm", &["record"]),
    ("axum", &["http", "startup"]),
    ("prometheus_client", &["metrics"]),
    ("sea_query", &["database", "keys", "lock", "migrate", "store", "rows"]),
    ("sqlx", &["database"]),
    ("wasmtime", &["modules"]),
];

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

fn all_rust_files() -> Vec<PathBuf> {
    ["host", "migrations-wasm", "sdk", "tests"].iter().flat_map(|top| rust_files(&workspace().join(top))).collect()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The host's top-level module that a file belongs to.
fn module_of(path: &Path) -> String {
    let inside = path.strip_prefix(workspace().join("host/src")).expect("a file of the host");
    inside.components().next().expect("a path").as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned()
}

#[track_caller]
fn none(problems: Vec<String>) {
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn dependencies_point_one_way() {
    let modules: BTreeSet<&str> = LAYERS.iter().map(|(name, _)| *name).collect();
    let mut problems = Vec::new();
    for path in rust_files(&workspace().join("host/src")) {
        let module = module_of(&path);
        let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == module) else { continue };
        for (number, line) in read(&path).lines().enumerate() {
            for part in line.split("crate::").skip(1) {
                let used: String = part.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                if modules.contains(used.as_str()) && used != module && !allowed.contains(&used.as_str()) {
                    problems.push(format!("{}:{}: `{module}` may not use `{used}`", path.display(), number + 1));
                }
            }
        }
    }
    none(problems);
}

#[test]
fn every_module_of_the_host_has_its_place_in_the_layers() {
    let placed: BTreeSet<&str> = LAYERS.iter().map(|(name, _)| *name).collect();
    let tops = ["cli", "lib", "main", "startup"];
    let found: BTreeSet<String> =
        rust_files(&workspace().join("host/src")).iter().map(|path| module_of(path)).collect();
    none(
        found
            .iter()
            .filter(|name| !placed.contains(name.as_str()) && !tops.contains(&name.as_str()))
            .cloned()
            .collect(),
    );
}

#[test]
fn crates_stay_where_they_belong() {
    let mut problems = Vec::new();
    for path in rust_files(&workspace().join("host/src")) {
        let module = module_of(&path);
        for (number, line) in read(&path).lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
            for (name, homes) in CONFINED {
                let uses = line.contains(&format!("{name}::")) || line.contains(&format!("use {name};"));
                if uses && !line.contains(&format!("::{name}::")) && !homes.contains(&module.as_str()) {
                    problems.push(format!("{}:{}: `{name}` belongs to {homes:?}", path.display(), number + 1));
                }
            }
        }
    }
    none(problems);
}

#[test]
fn files_are_short_and_say_what_they_own() {
    let mut problems = Vec::new();
    for path in all_rust_files() {
        let text = read(&path);
        if !text.trim_start().starts_with("//!") && path.file_name().is_some_and(|name| name != "main.rs") {
            problems.push(format!("{}: begins without `//!`", path.display()));
        }
        let lines = text.lines().count();
        if lines > LONGEST_FILE {
            problems.push(format!("{}: {lines} lines, more than {LONGEST_FILE}", path.display()));
        }
    }
    none(problems);
}

#[test]
fn functions_are_short() {
    let mut problems = Vec::new();
    for path in all_rust_files() {
        let text = read(&path);
        let lines: Vec<&str> = text.lines().collect();
        for (start, line) in lines.iter().enumerate() {
            let indent = line.len() - line.trim_start().len();
            let is_function = line.trim_start().split(['(', '<']).next().is_some_and(|head| {
                let words: Vec<&str> = head.split_whitespace().collect();
                words.len() >= 2 && words[words.len() - 2] == "fn" && !head.contains("//")
            });
            if !is_function || line.trim_end().ends_with(['}', ';']) {
                continue;
            }
            let closing = format!("{}}}", " ".repeat(indent));
            let length = lines[start..].iter().position(|line| *line == closing).map_or(0, |end| end + 1);
            if length > LONGEST_FUNCTION {
                problems.push(format!(
                    "{}:{}: {length} lines, more than {LONGEST_FUNCTION}",
                    path.display(),
                    start + 1
                ));
            }
        }
    }
    none(problems);
}

#[test]
fn every_test_of_a_kind_of_database_is_run() {
    let mut problems = Vec::new();
    for path in rust_files(&workspace().join("tests/suite")) {
        let text = read(&path);
        for line in text.lines().filter(|line| line.ends_with("(kind: Kind) {")) {
            let Some(name) = line.strip_prefix("async fn ").and_then(|rest| rest.split('(').next()) else { continue };
            let runs = ["on_each_database", "on_each_layout", "on_each_server"]
                .iter()
                .any(|run| text.contains(&format!("{run}!({name});")));
            if !runs {
                problems.push(format!("{}: `{name}` is a test that nothing runs", path.display()));
            }
        }
    }
    none(problems);
}

#[test]
fn the_top_level_holds_what_it_should() {
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
    let found = std::fs::read_dir(workspace()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    none(found.filter(|name| !name.starts_with('.') && !allowed.contains(&name.as_str())).collect());
}

#[test]
fn nothing_is_left_for_later_in_silence() {
    let words = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
    let mut problems = Vec::new();
    for path in all_rust_files() {
        for (number, line) in read(&path).lines().enumerate() {
            if words.iter().any(|word| line.contains(word)) {
                problems.push(format!("{}:{}: {}", path.display(), number + 1, line.trim()));
            }
        }
    }
    none(problems);
}
