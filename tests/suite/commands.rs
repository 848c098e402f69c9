//! Commands of operators: dry runs write nothing, a way down is confirmed at a terminal, and the
//! history of a database.

mod json;
mod layout_sql;

use serde_json::{Value, json};

use crate::harness::database::{Kind, dump, on_each_database};
use crate::harness::fixture::{DIEGOS_NEWEST, OLDEST, VERSION};
use crate::harness::host::Installation;
use crate::harness::layouts::NEWEST;
use crate::harness::modules::modules;
use crate::harness::terminal;

on_each_database!(dry_runs_show_the_result_of_the_command_and_write_nothing);
/// Goal: an operator sees what a command would do. Method: the dry run first, with a comparison of
/// the whole database, then the command.
async fn dry_runs_show_the_result_of_the_command_and_write_nothing(kind: Kind) {
    let installation = Installation::of_small_diego(&modules(), kind).await;
    let keys = json!({ "key-2024": "correct horse battery staple", "new": "another passphrase" });
    let before = dump(&installation.database).await;
    for (way, to) in [("down", OLDEST), ("up", NEWEST)] {
        let shown = installation.succeed(&["migrate", way, "--to", &to.to_string(), "--dry-run"]);
        for part in [
            &format!("From {VERSION} {way} to {to}"),
            "\nTables:",
            "Checked    ",
        ] {
            assert!(shown.contains(part), "{part} is not in {shown}");
        }
        assert_eq!(dump(&installation.database).await, before);
    }
    installation.succeed(&["migrate", "down", "--to", &OLDEST.to_string()]);
    assert_eq!(installation.data_version(), OLDEST);

    let rotating = installation
        .set("encryption_keys", keys)
        .set("active_key_label", "new");
    let before = dump(&rotating.database).await;
    let shown = rotating.succeed(&["keys", "rotate", "--dry-run"]);
    let rows = shown.split(' ').next().unwrap();
    assert!(
        shown.contains("would be re-sealed under \"new\"; nothing was written"),
        "{shown}"
    );
    assert_eq!(dump(&rotating.database).await, before);
    let done = rotating.succeed(&["keys", "rotate"]);
    assert!(
        done.contains(&format!("{rows} rows were re-sealed")),
        "{shown}: {done}"
    );
    assert!(
        rotating
            .succeed(&["keys", "rotate", "--dry-run"])
            .starts_with("0 rows")
    );
}

#[tokio::test]
async fn release_names_the_version_of_a_plan_and_of_a_migration() {
    let installation = Installation::of_small_diego(&modules(), Kind::Sqlite).await;
    let plan = installation.succeed(&["migrate", "plan", "--to", "0.1", "--json"]);
    let plan: Value = serde_json::from_str(&plan).unwrap();
    assert_eq!(plan["to"], 1_795_000_000_u64);
    installation.succeed(&["migrate", "up", "--to", "0.1"]);
    assert_eq!(installation.data_version(), 1_795_000_000);
    installation.succeed(&["migrate", "down", "--yes", "--to", "diego"]);
    assert_eq!(installation.data_version(), DIEGOS_NEWEST);
    for command in [
        &["plan"][..],
        &["up"],
        &["up", "--dry-run"],
        &["down", "--yes"],
        &["down", "--dry-run"],
    ] {
        let output = installation.run(&[&["migrate"], command, &["--to", "0.9"]].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        for part in [
            "`--to` is \"0.9\"",
            "diego, 0.1, 0.2; name one of these, or a data version",
        ] {
            assert!(errors.contains(part), "{part} is not in {errors}");
        }
    }
}

#[tokio::test]
async fn way_down_is_confirmed_at_a_terminal_only() {
    let installation = Installation::of_small_diego(&modules(), Kind::Sqlite).await;
    let to = OLDEST.to_string();
    let down =
        |more: &[&str]| installation.command(&[&["migrate", "down", "--to", &to], more].concat());
    for answer in ["n", "", "later"] {
        let refused = terminal::run(&down(&[]), answer);
        assert!(
            !refused.status.success() && refused.output.contains("nothing was done"),
            "{}",
            refused.output
        );
        let question = format!("from {VERSION} down to {OLDEST}");
        assert!(
            refused.output.contains(&question) && refused.output.contains("[y/N]"),
            "{}",
            refused.output
        );
        assert_eq!(installation.data_version(), VERSION);
    }
    let confirmed = terminal::run(&down(&[]), "y");
    assert!(confirmed.status.success(), "{}", confirmed.output);
    assert_eq!(installation.data_version(), OLDEST);
    let nothing_to_do = terminal::run(&down(&[]), "n");
    assert!(
        nothing_to_do.status.success() && !nothing_to_do.output.contains("[y/N]"),
        "{}",
        nothing_to_do.output
    );
    installation.succeed(&["migrate", "up", "--to", &VERSION.to_string()]);
    let unasked = terminal::run(&down(&["--yes"]), "n");
    assert!(
        unasked.status.success() && !unasked.output.contains("[y/N]"),
        "{}",
        unasked.output
    );
    assert_eq!(installation.data_version(), OLDEST);
}

on_each_database!(history_shows_each_migration_with_its_end_its_host_and_its_modules);
async fn history_shows_each_migration_with_its_end_its_host_and_its_modules(kind: Kind) {
    let installation = Installation::of_small_diego(&modules(), kind)
        .await
        .set("uuid", "z1");
    let history = || -> Value {
        serde_json::from_str(&installation.succeed(&["migrate", "history", "--json"])).unwrap()
    };
    assert_eq!(history(), json!({ "runs": [], "migrations": [] }));
    assert!(
        installation
            .succeed(&["migrate", "history"])
            .contains("No host of this project has migrated")
    );
    installation.succeed(&["migrate", "up"]);
    let down = ["migrate", "down", "--to", &OLDEST.to_string()];
    let part = installation.run(&[&down[..], &["--max-count", "10"]].concat());
    assert_eq!(part.status.code(), Some(3));
    let unfinished = &history()["runs"][1];
    assert_eq!(
        (&unfinished["state"], &unfinished["ended_at_ns"]),
        (&json!("unfinished"), &Value::Null)
    );
    installation.succeed(&["migrate", "abort"]);
    installation.succeed(&down);
    let found = history();
    let runs = found["runs"].as_array().unwrap();
    let shown: Vec<_> = runs
        .iter()
        .map(|run| (&run["direction"], &run["from"], &run["to"], &run["state"]))
        .collect();
    let up = json!("up");
    let down = json!("down");
    let oldest = json!(OLDEST);
    let diegos = json!(VERSION);
    let newest = json!(NEWEST);
    let completed = json!("completed");
    let given_up = json!("given-up");
    assert_eq!(
        shown,
        [
            (&up, &diegos, &newest, &completed),
            (&down, &newest, &oldest, &given_up),
            (&down, &newest, &oldest, &completed)
        ]
    );
    for run in runs {
        assert_eq!(
            (&run["host"], &run["release"]),
            (&json!("z1"), &json!(env!("CARGO_PKG_VERSION")))
        );
        assert!(
            run["began_at_ns"].as_i64().unwrap() <= run["ended_at_ns"].as_i64().unwrap(),
            "{run}"
        );
    }
    let migrations = found["migrations"].as_array().unwrap();
    let first = (
        &migrations[0]["version"],
        &migrations[0]["direction"],
        &migrations[0]["name"],
    );
    assert_eq!(
        first,
        (&json!(1_764_949_919_u64), &up, &json!("health-check"))
    );
    assert!(
        migrations
            .iter()
            .any(|ran| ran["direction"] == "down" && ran["version"] == NEWEST),
        "{found}"
    );
    let text = installation.succeed(&["migrate", "history"]);
    let line = text.lines().nth(1).unwrap();
    assert!(
        line.contains(&format!("down from {NEWEST} to {OLDEST}: given-up after ")),
        "{text}"
    );
    assert!(
        line.ends_with(&format!(", by z1 (release {})", env!("CARGO_PKG_VERSION"))),
        "{text}"
    );
}
