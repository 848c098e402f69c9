//! Dependencies between modules of the host: those between top-level modules follow the table of
//! layers, and no modules of one folder depend on each other in a circle. A module stands for its
//! file and its folder. Between crates, Cargo refuses circles.

use std::collections::{BTreeMap, BTreeSet};

use super::{HOST_CRATES, assert_none, read, rust_files};
use crate::harness::workspace;

/// The dependencies that each top-level module of the host may have.
const LAYERS: &[(&str, &[&str])] = &[
    ("admin", &["reload", "shutdown"]),
    ("clients", &["clock", "config", "locket", "metrics", "tls"]),
    ("clock", &[]),
    ("etcd", &["config", "protobuf", "tls"]),
    ("events", &["protobuf"]),
    ("config", &[]),
    ("logs", &["clock", "config"]),
    ("metrics", &[]),
    ("shutdown", &[]),
    ("reload", &[]),
    ("protobuf", &[]),
    ("lock", &["clock", "config", "locket"]),
    ("locket", &["config", "protobuf", "tls"]),
    ("tls", &["clock", "config"]),
    ("store", &["clock", "lock"]),
    ("migrate", &["clock", "config", "lock", "store"]),
    ("import", &["etcd", "lock", "migrate"]),
    ("keys", &["clock", "lock", "migrate"]),
    ("domain", &["clients", "events", "metrics", "store"]),
    ("api", &["domain", "events", "protobuf", "store"]),
    (
        "http",
        &["api", "clock", "config", "logs", "metrics", "tls"],
    ),
];

/// A path of names below the crate.
type Path = Vec<String>;
/// The modules of one folder, each with those that it uses.
type Graph = BTreeMap<String, BTreeSet<String>>;

const HOST: &str = "host/src";

/// Top-level modules that may use all others.
const TOP: [&str; 5] = ["cli", "lib", "main", "startup", "testing"];

#[test]
fn dependencies_point_one_way() {
    let layers: BTreeMap<&str, &[&str]> = LAYERS.iter().copied().collect();
    let sources = sources(HOST, Tests::Included);
    let mut problems = BTreeSet::new();
    for (module, source) in &sources {
        let Some(allowed) = layers.get(module[0].as_str()) else {
            continue;
        };
        for used in used_paths(source)
            .iter()
            .filter_map(|used| resolved(module, used, &sources))
        {
            if used[0] != module[0] && !allowed.contains(&used[0].as_str()) {
                problems.insert(format!(
                    "`{}` may not use `{}`",
                    module.join("::"),
                    used.join("::")
                ));
            }
        }
    }
    assert_none(problems.into_iter().collect());
}

#[test]
fn every_dependency_in_the_table_is_used() {
    let sources = sources(HOST, Tests::Included);
    let mut used = BTreeSet::new();
    for (module, source) in &sources {
        let resolved = used_paths(source)
            .into_iter()
            .filter_map(|path| resolved(module, &path, &sources));
        used.extend(resolved.map(|path| (module[0].clone(), path[0].clone())));
    }
    let permitted = LAYERS
        .iter()
        .flat_map(|(module, allowed)| allowed.iter().map(move |used| (*module, *used)));
    let unused =
        permitted.filter(|(user, name)| !used.contains(&((*user).to_owned(), (*name).to_owned())));
    assert_none(
        unused
            .map(|(user, name)| format!("`{user}` uses nothing of `{name}`"))
            .collect(),
    );
}

/// Goal: the fuzz targets, which only the nightly run builds, go on compiling. They include files
/// of the host, and those may use no module that is not included.
#[test]
fn modules_in_the_fuzz_targets_use_no_others() {
    let targets = read(&workspace().join("tests/fuzz/src/lib.rs"));
    let included = included_modules(&targets);
    assert!(
        included.contains(&vec!["modules".to_owned(), "bundle".to_owned()]),
        "{included:?}"
    );
    let names: BTreeSet<_> = included.iter().map(|module| module[0].as_str()).collect();
    let sources = sources(HOST, Tests::Excluded);
    let mut problems = Vec::new();
    for (module, source) in sources
        .iter()
        .filter(|(module, _)| included.iter().any(|found| module.starts_with(found)))
    {
        let used = used_paths(source)
            .into_iter()
            .filter_map(|used| resolved(module, &used, &sources));
        let missing = used.filter(|used| !names.contains(used[0].as_str()));
        problems.extend(
            missing
                .map(|used| format!("{} uses {}: include it", module.join("::"), used.join("::"))),
        );
    }
    assert_none(problems);
}

/// The modules of the host whose files a source declares, within the blocks that they are in.
fn included_modules(source: &str) -> Vec<Path> {
    let mut blocks = Vec::new();
    let mut found = Vec::new();
    for line in source.lines() {
        let text = line.trim_start();
        let depth = (line.len() - text.len()) / 4;
        let declared = text
            .strip_prefix("pub ")
            .unwrap_or(text)
            .strip_prefix("mod ");
        if let Some(name) = declared.and_then(|declared| declared.strip_suffix(" {")) {
            blocks.truncate(depth);
            blocks.push(name.to_owned());
        } else if let Some(name) = declared.and_then(|declared| declared.strip_suffix(';')) {
            blocks.truncate(depth);
            let within = blocks.iter().filter(|block| *block != "host");
            found.push(within.cloned().chain([name.to_owned()]).collect());
        }
    }
    found
}

/// Goal: a reader of the code map finds every part of the host.
#[test]
fn every_top_level_module_is_in_the_code_map() {
    let map = read(&workspace().join("host/README.md"));
    let (map, _) = map
        .split_once("\n## Layers\n")
        .expect("the map is followed by the layers");
    let modules = LAYERS.iter().map(|(name, _)| *name).chain(TOP);
    let is_there = |name: &str| {
        ["/", ".rs"]
            .iter()
            .any(|end| map.contains(&format!("{name}{end}`")))
    };
    assert_none(
        modules
            .filter(|name| !is_there(name))
            .map(|name| format!("`{name}` is not in the code map"))
            .collect(),
    );
}

#[test]
fn every_top_level_module_is_in_the_table() {
    let placed: BTreeSet<&str> = LAYERS.iter().map(|(name, _)| *name).chain(TOP).collect();
    let found = sources(HOST, Tests::Included)
        .into_keys()
        .map(|module| module[0].clone());
    assert_none(
        found
            .filter(|name| !placed.contains(name.as_str()))
            .collect(),
    );
}

#[test]
fn modules_of_a_folder_have_no_circle() {
    let others = [
        "host/encryption/src",
        "host/model/src",
        "sdk/client/src",
        "sdk/contract/src",
        "sdk/go-json/src",
        "sdk/src",
    ];
    for folder in HOST_CRATES.into_iter().chain(others) {
        assert_none(circles(&sources(folder, Tests::Excluded)));
    }
}

fn circles(sources: &BTreeMap<Path, String>) -> Vec<String> {
    let mut folders: BTreeMap<Path, Graph> = BTreeMap::new();
    for (module, source) in sources {
        for used in used_paths(source)
            .iter()
            .filter_map(|used| resolved(module, used, sources))
        {
            let common = module
                .iter()
                .zip(&used)
                .take_while(|(one, other)| one == other)
                .count();
            if let (Some(user), Some(used)) = (module.get(common), used.get(common)) {
                let graph = folders.entry(module[..common].to_vec()).or_default();
                graph.entry(user.clone()).or_default().insert(used.clone());
            }
        }
    }
    let found = folders.iter().flat_map(|(folder, graph)| {
        let edges = graph
            .iter()
            .flat_map(|(user, used)| used.iter().map(move |used| (user, used)));
        let in_circle = edges.filter(|(user, used)| reaches(graph, used, user));
        in_circle.map(|(user, used)| {
            format!(
                "`{}`: `{user}` uses `{used}`, which uses it",
                folder.join("::")
            )
        })
    });
    found.collect()
}

/// A host reads its modules from its disk alone.
#[test]
fn registry_is_used_by_the_commands_about_modules_only() {
    let is_registry = |path: &Path| path.get(1).is_some_and(|name| name == "registry");
    let users_in = |folder: &str, root: &str| {
        let mut users = BTreeSet::new();
        for (module, source) in sources(folder, Tests::Included) {
            if module[0] != "registry" && paths_below(&source, root).iter().any(is_registry) {
                users.insert(module.join("::"));
            }
        }
        users
    };
    assert_eq!(users_in("host/modules/src", "crate::"), BTreeSet::new());
    let users = users_in(HOST, "bbs_modules::");
    assert_eq!(
        users,
        BTreeSet::from(
            ["pull", "push", "registry"].map(|command| format!("cli::module::{command}"))
        )
    );
}

#[derive(Clone, Copy, PartialEq)]
enum Tests {
    Included,
    Excluded,
}

/// The source of each module of a crate, without comments.
fn sources(folder: &str, tests: Tests) -> BTreeMap<Path, String> {
    let root = workspace().join(folder);
    let mut sources = BTreeMap::new();
    for file in rust_files(&root) {
        let inside = file
            .strip_prefix(&root)
            .expect("a file of the host")
            .with_extension("");
        let module: Path = inside
            .iter()
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        if tests == Tests::Included || !module.iter().any(|name| name == "tests") {
            let source = read(&file);
            let code = match tests {
                Tests::Included => source.as_str(),
                Tests::Excluded => source
                    .split("#[cfg(test)]\nmod tests {")
                    .next()
                    .unwrap_or_default(),
            };
            let lines: Vec<_> = code
                .lines()
                .map(|line| line.split("//").next().unwrap_or_default())
                .collect();
            sources.insert(module, lines.join("\n"));
        }
    }
    sources
}

/// The paths in a source that begin with `crate`, `self` or `super`.
fn used_paths(source: &str) -> Vec<Path> {
    ["crate::", "self::", "super::"]
        .iter()
        .flat_map(|root| paths_below(source, root))
        .collect()
}

/// The paths in a source that begin with a root, which is their first name.
fn paths_below(source: &str, root: &str) -> Vec<Path> {
    let mut paths = Vec::new();
    for (at, _) in source.match_indices(root) {
        if !source[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':') {
            read_tree(&source[at..], &[], &mut paths);
        }
    }
    paths
}

/// Reads a path or a tree of paths; returns the text after it.
fn read_tree<'a>(mut text: &'a str, prefix: &[String], paths: &mut Vec<Path>) -> &'a str {
    let mut path = prefix.to_vec();
    loop {
        let end = text
            .find(|c: char| !c.is_alphanumeric() && c != '_')
            .unwrap_or(text.len());
        path.extend((end > 0).then(|| text[..end].to_owned()));
        text = &text[end..];
        if let Some(mut branches) = text.strip_prefix("::{") {
            while !branches.trim_start().is_empty() && !branches.trim_start().starts_with('}') {
                branches = read_tree(branches.trim_start(), &path, paths);
                // A new name after `as`, and the comma.
                let next = branches.find([',', '}']).unwrap_or(branches.len());
                branches = branches[next..].trim_start_matches(',');
            }
            return branches.trim_start().trim_start_matches('}');
        }
        match text.strip_prefix("::").filter(|_| end > 0) {
            Some(rest) => text = rest,
            None => break,
        }
    }
    paths.push(path);
    text
}

/// The module that a path in another module leads to, without the names of items.
fn resolved(module: &Path, path: &[String], sources: &BTreeMap<Path, String>) -> Option<Path> {
    let mut names = path.iter().skip_while(|name| *name == "self").peekable();
    let mut found = if path[0] == "crate" {
        Path::new()
    } else {
        module.clone()
    };
    while names
        .next_if(|name| *name == "super" || *name == "crate")
        .is_some()
    {
        found.pop();
    }
    for name in names {
        found.push(name.clone());
        if !sources.contains_key(&found) {
            found.pop();
            break;
        }
    }
    Some(found).filter(|found| sources.contains_key(found))
}

fn reaches(graph: &Graph, from: &str, to: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut next = vec![from];
    while let Some(name) = next.pop() {
        if name == to {
            return true;
        }
        if seen.insert(name) {
            next.extend(graph.get(name).into_iter().flatten().map(String::as_str));
        }
    }
    false
}

#[test]
fn paths_are_read_from_use_trees() {
    let source =
        "use super::{a, b::{self, c as d}};\nuse bbs::crate_x;\nlet e = crate::f::g::<super::H>();";
    let mut found: Vec<_> = used_paths(source)
        .iter()
        .map(|path| path.join("::"))
        .collect();
    found.sort();
    assert_eq!(
        found,
        [
            "crate::f::g",
            "super::H",
            "super::a",
            "super::b::c",
            "super::b::self"
        ]
    );
}
