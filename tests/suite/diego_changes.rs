//! Reports of `migrations-wasm/diego-changes` on made-up checkouts of Diego's BBS, and the page
//! that it names.

use std::process::{Command, Output};

use tempfile::TempDir;

use crate::harness::workspace;

/// A made-up checkout, in the form of Diego's sources.
struct Checkout {
    folder: TempDir,
}

impl Checkout {
    /// One with a few things that this tree has: a folder for each kind of source, written in more
    /// than one way.
    fn known() -> Self {
        let checkout = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        checkout.write(
            "db/migrations/1461790966_first.go",
            &migration("1461790966"),
        );
        checkout.write(
            "db/migrations/1461790966_first_test.go",
            &migration("1999999999"),
        );
        checkout.write(
            "db/migrations/list.go",
            "package migrations\n\nvar all []Migration\n",
        );
        checkout.write("routes.go", &routes(""));
        checkout.write("models/task.proto", &task(""));
        checkout.write("models/error.proto", &error(""));
        checkout.write("cmd/bbs/config/config.go", &config(""));
        checkout.write(
            "encryption/encryption_config.go",
            "type Part struct {\n\tLabel string `json:\"active_key_label\"`\n}\n",
        );
        checkout
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn remove(&self, path: &str) {
        std::fs::remove_file(self.folder.path().join(path)).unwrap();
    }

    fn compare(&self) -> Output {
        run(&[self.folder.path().to_str().unwrap()])
    }
}

fn run(arguments: &[&str]) -> Output {
    let script = workspace().join("migrations-wasm/diego-changes");
    // From another folder than its own.
    Command::new(script)
        .args(arguments)
        .current_dir(std::env::temp_dir())
        .output()
        .unwrap()
}

fn migration(version: &str) -> String {
    format!(
        "func (m *Made) Version() int64 {{\n\treturn {version}\n}}\n\nfunc (m *Made) Up() error {{\n\treturn nil\n}}\n"
    )
}

fn routes(more: &str) -> String {
    format!(
        "var Routes = rata.Routes{{\n\t// A path in a comment: {{Path: \"/v1/none\", Method: \"POST\"}},\n\
         \t{{Path: \"/v1/ping\", Method: \"POST\", Name: PingRoute}}, // DEPRECATED\n\
         \t{{\n\t\tName:   Tasks,\n\t\tMethod: \"POST\",\n\t\tPath:   \"/v1/tasks/list.r3\",\n\t}},\n\
         \t{{Path: \"/v1/events\", Method: \"GET\", Name: Events}},\n{more}}}\n"
    )
}

fn task(more: &str) -> String {
    format!(
        "syntax = \"proto3\";\nimport \"https://example.com/a.proto\"; // with a slash\n/* int32 none = 77;\n   */\n\
         message Task {{\n  TaskDefinition task_definition = 1 [(made.tag) = \"a;b\",\n    deprecated = true];\n\
         \x20 string TaskGuid = 2 [(made.tag) = \"\"]; // string none = 78;\n  oneof optional_domain {{ string domain = 3; }}\n\
         \x20 reserved 99;\n  option (made.option) = 79;\n  enum State {{ Invalid = 0; Pending = 1; }}\n{more}}}\n"
    )
}

fn error(more: &str) -> String {
    format!(
        "message Error {{\n  enum Type {{ reserved 1; UnknownError = 0; InvalidRecord = 3; {more} }}\n  Type type = 1;\n}}\n"
    )
}

fn config(more: &str) -> String {
    format!(
        "type Config struct {{\n\tUUID string `json:\"uuid,omitempty\"`\n\tNone string `json:\"-\"`\n\tPart\n{more}}}\n"
    )
}

/// The report, of a run that ended with the code.
#[track_caller]
fn report(output: Output, code: i32) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*errors), (Some(code), ""));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn checkout_without_news_ends_with_0() {
    let report = report(Checkout::known().compare(), 0);
    assert_eq!(
        report,
        "migrations: 0 new, of 1\nroutes: 0 new, of 3\nfields and values of messages: 0 new, of 8\n\
         configuration keys: 0 new, of 2\nNothing is new.\n"
    );
}

#[test]
fn each_kind_of_news_is_reported_and_ends_with_1() {
    let checkout = Checkout::known();
    checkout.write("db/migrations/of_any_name.go", &migration("1_799_000_001"));
    checkout.write(
        "db/migrations/1799000002_constant.go",
        &migration("version"),
    );
    // One that has a proof here.
    checkout.write(
        "db/migrations/1795000100_split.go",
        &migration("1795000100"),
    );
    checkout.write(
        "routes.go",
        &routes("\t{Path: \"/v1/tasks/list.r4\", Method: \"POST\", Name: Tasks_r4},\n"),
    );
    checkout.write(
        "models/task.proto",
        &task("  map<string, Made> made = 901;\n  message Made { bytes text = 1; }\n"),
    );
    checkout.write("models/error.proto", &error("MadeUp = 902;"));
    checkout.write(
        "cmd/bbs/config/config.go",
        &config("\tMade int `json:\"made_up_key,omitempty\"`\n"),
    );
    assert_eq!(
        report(checkout.compare(), 1),
        "migrations: 3 new, of 4\n\
         \x20 1795000100  db/migrations/1795000100_split.go; as a proof in \
         migrations-wasm/proof/1795000100-split_desired_lrps\n\
         \x20 1799000002  db/migrations/1799000002_constant.go\n\
         \x20 1799000001  db/migrations/of_any_name.go\n\
         routes: 1 new, of 4\n\
         \x20 POST /v1/tasks/list.r4\n\
         fields and values of messages: 3 new, of 11\n\
         \x20 Error.Type value 902 MadeUp  models/error.proto\n\
         \x20 Task field 901 made  models/task.proto\n\
         \x20 Task.Made field 1 text  models/task.proto\n\
         configuration keys: 1 new, of 3\n\
         \x20 made_up_key\n\
         8 new; migrations-wasm/DIEGO_RELEASES.md says what to do with each.\n"
    );
}

#[test]
fn number_with_another_name_or_type_is_new() {
    let checkout = Checkout::known();
    checkout.write(
        "models/task.proto",
        "message Task { string other = 2; int64 domain = 3; }",
    );
    let report = report(checkout.compare(), 1);
    for line in [
        "  Task field 2 other  models/task.proto, here called task_guid\n",
        "  Task field 3 domain  models/task.proto is int64, here string\n",
    ] {
        assert!(report.contains(line), "{line:?} is not in {report}");
    }
}

#[track_caller]
fn refused(output: Output, words: &str) {
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(
        errors.starts_with("migrations-wasm/diego-changes: ") && errors.contains(words),
        "{errors}"
    );
}

#[test]
fn folder_that_is_no_checkout_ends_with_2() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    refused(run(&[]), "give one folder");
    refused(run(&[folder, folder]), "give one folder");
    refused(
        run(&[folder]),
        "is no checkout of Diego's BBS: it has no folder db/migrations",
    );
    let checkout = Checkout::known();
    checkout.remove("routes.go");
    refused(checkout.compare(), "it has no file routes.go");
}

/// Goal: a source that Diego writes in another way is never taken for one without news.
#[test]
fn source_of_an_unknown_form_ends_with_2() {
    for (path, text, kind) in [
        ("db/migrations/1461790966_first.go", "", "migrations"),
        (
            "routes.go",
            "var Routes = rata.Read(\"routes.json\")\n",
            "routes",
        ),
        ("models/task.proto", "", "fields and values of messages"),
        (
            "cmd/bbs/config/config.go",
            "type Config map[string]any\n",
            "configuration keys",
        ),
    ] {
        let checkout = Checkout::known();
        checkout.remove("models/error.proto");
        checkout.write("encryption/encryption_config.go", "");
        checkout.write(path, text);
        if kind == "migrations" {
            checkout.remove(path);
        }
        refused(checkout.compare(), &format!("no {kind} found in "));
    }
}

#[test]
fn help_describes_the_exit_codes() {
    let help = report(run(&["--help"]), 0);
    assert!(
        help.contains("diego-changes FOLDER\n") && help.contains("Ends with 0 if nothing is new"),
        "{help}"
    );
    assert!(!help.contains('#') && !help.contains("set -eu"), "{help}");
}

#[test]
fn script_is_valid() {
    let script = workspace().join("migrations-wasm/diego-changes");
    let output = Command::new("shellcheck").arg(script).output();
    let output =
        output.unwrap_or_else(|error| panic!("shellcheck: {error}; `tests/run` installs it"));
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
}

#[test]
fn page_that_the_script_names_names_files_that_exist() {
    let page =
        std::fs::read_to_string(workspace().join("migrations-wasm/DIEGO_RELEASES.md")).unwrap();
    // Every second part is between backticks.
    let quoted = page.split('`').skip(1).step_by(2);
    let tops = ["host/", "migrations-wasm/", "sdk/", "tests/"];
    let paths: Vec<_> = quoted
        .filter(|text| tops.iter().any(|top| text.starts_with(top)))
        .collect();
    assert!(paths.len() > 30, "{paths:?}");
    // `VERSION-name` stands for a crate to be written.
    let missing = paths
        .iter()
        .filter(|path| !path.contains("VERSION") && !workspace().join(path).exists());
    assert_eq!(missing.collect::<Vec<_>>(), [&""; 0]);
}
