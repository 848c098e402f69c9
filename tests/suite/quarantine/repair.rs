//! Repair of units in quarantine: exported, edited, imported, put back, and deleted.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use bbs::testing::database::sql;
use bbs_files::digest::to_hex;
use serde_json::{Value, json};

use super::*;
use crate::harness::database::{dump, on_each_server};
use crate::harness::output::{self, succeeded};
use crate::harness::{PATIENCE, terminal};

/// A database with one unit in quarantine, whose run info is damaged, at the newest version.
struct Quarantined {
    damaged: Damaged,
    /// The run info of the unit before it was damaged, decrypted.
    run_info: Vec<u8>,
    /// The rows before the damage.
    whole: Rows,
}

impl Quarantined {
    async fn new(kind: Kind) -> Self {
        let mut damaged = Damaged::at(kind, &[]).await;
        let whole = damaged.content().await.1;
        let guid = whole["desired_lrps"][3]["process_guid"].clone();
        let database = damaged.installation.database.open().await;
        let found = texts(
            &database,
            &format!("SELECT run_info FROM desired_lrps WHERE process_guid = '{guid}'"),
        )
        .await;
        let run_info = fixture::keyring()
            .open(Sealing::Enveloped, found[0].as_bytes())
            .unwrap();
        let sealed =
            String::from_utf8(fixture::keyring().seal(Sealing::Enveloped, UNREADABLE)).unwrap();
        execute(
            &database,
            &format!("UPDATE desired_lrps SET run_info = '{sealed}' WHERE process_guid = '{guid}'"),
        )
        .await;
        database.close().await;
        damaged.units.push(guid);
        damaged
            .installation
            .succeed(&["migrate", "up", "--on-unreadable", "quarantine"]);
        Self {
            damaged,
            run_info,
            whole,
        }
    }

    fn installation(&self) -> &Installation {
        &self.damaged.installation
    }

    fn unit(&self) -> &str {
        &self.damaged.units[0]
    }

    fn file(&self, name: &str) -> PathBuf {
        self.installation().folder().join(name)
    }

    /// The exported entries of the unit, decrypted.
    fn exported(&self) -> Value {
        let file = self.file("exported.json");
        let path = file.display().to_string();
        self.installation().succeed(&[
            "migrate",
            "quarantine",
            "export",
            self.unit(),
            "--decrypt",
            "--output",
            &path,
            "--force",
        ]);
        serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
    }

    fn import(&self, entries: &Value, more: &[&str]) -> Output {
        let file = self.file("corrected.json");
        std::fs::write(&file, entries.to_string()).unwrap();
        self.installation().run(
            &[
                &[
                    "migrate",
                    "quarantine",
                    "import",
                    &file.display().to_string(),
                ],
                more,
            ]
            .concat(),
        )
    }

    /// `bbs migrate quarantine edit` with a shell script as the editor, whose `$1` is the file.
    fn edit(&self, script: &str) -> Command {
        let editor = self.file("editor");
        std::fs::write(&editor, script).unwrap();
        let mut command =
            self.installation()
                .command(&["migrate", "quarantine", "edit", self.unit()]);
        command
            .env_remove("VISUAL")
            .env("EDITOR", format!("sh '{}'", editor.display()));
        command.env("TMPDIR", self.temporary());
        command
    }

    /// The folder for temporary files of [`Self::edit`].
    fn temporary(&self) -> PathBuf {
        let folder = self.file("temporary");
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn left_in_temporary(&self) -> Vec<PathBuf> {
        std::fs::read_dir(self.temporary())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect()
    }

    /// Goes back to the version of the fixture; the rows are as they were before the damage.
    async fn assert_restored(&self) {
        assert_contains(
            &self
                .installation()
                .succeed(&["migrate", "quarantine", "list"]),
            &["No unit is in quarantine."],
        );
        self.installation()
            .succeed(&["migrate", "down", "--to", &VERSION.to_string()]);
        assert!(
            self.damaged.content().await.1 == self.whole,
            "rows are lost or changed"
        );
    }
}

on_each_database!(corrected_unit_is_imported_and_restored_beside_a_serving_host);
async fn corrected_unit_is_imported_and_restored_beside_a_serving_host(kind: Kind) {
    let case = Quarantined::new(kind).await;
    let host = case.installation().serve();
    let mut entries = case.exported();
    assert_eq!(
        (&entries[0]["unit"], &entries[0]["from"]),
        (&json!(case.unit()), &json!(VERSION))
    );
    let rows = &mut entries[0]["tables"]["desired_lrps"];
    assert_eq!(
        (rows.as_array().unwrap().len(), &rows[0]["run_info"]),
        (1, &json!({ "hex": "0a05" }))
    );
    rows[0]["run_info"] = json!({ "hex": to_hex(&case.run_info) });

    // The host writes to other tables meanwhile, such as that of its lease.
    let quarantine = async || {
        let mut dump = dump(&case.installation().database).await;
        dump.retain(|line| line.starts_with("bbs_quarantine"));
        dump
    };
    let before = quarantine().await;
    assert_contains(
        &succeeded(case.import(&entries, &["--dry-run"])),
        &["can be imported; nothing was written"],
    );
    assert_eq!(quarantine().await, before);
    assert_contains(
        &succeeded(case.import(&entries, &[])),
        &["imported; `bbs migrate quarantine retry` restores"],
    );
    assert_contains(
        &case
            .installation()
            .succeed(&["migrate", "quarantine", "list"]),
        &[case.unit(), "content corrected; before: "],
    );
    assert!(!has(&host, case.unit()).await, "it stays in quarantine");
    assert_eq!(case.exported(), entries, "the content is the corrected one");
    case.installation()
        .succeed(&["migrate", "quarantine", "retry", case.unit()]);
    assert!(has(&host, case.unit()).await);
    assert!(host.terminate().success());
    case.assert_restored().await;
}

on_each_database!(export_is_sealed_unless_it_goes_to_a_terminal_or_a_private_file);
async fn export_is_sealed_unless_it_goes_to_a_terminal_or_a_private_file(kind: Kind) {
    let case = Quarantined::new(kind).await;
    let installation = case.installation();
    let export = ["migrate", "quarantine", "export", case.unit()];
    let sealed: Value = serde_json::from_str(&installation.succeed(&export)).unwrap();
    let stored = sealed[0]["tables"]["desired_lrps"][0]["run_info"]["sealed"]
        .as_str()
        .unwrap();
    assert_eq!(
        fixture::keyring()
            .open(Sealing::Enveloped, stored.as_bytes())
            .unwrap(),
        UNREADABLE
    );
    let decrypted = [&export[..], &["--decrypt"]].concat();
    assert_contains(
        &case.damaged.refused(&decrypted),
        &["to a terminal or to a private file only", "--output"],
    );
    let at_terminal = terminal::run(&installation.command(&decrypted), "");
    assert!(at_terminal.status.success(), "{}", at_terminal.output);
    assert_contains(&at_terminal.output, &[r#""hex": "0a05""#]);

    let file = case.file("unit.json");
    let path = file.display().to_string();
    let to_file = [&decrypted[..], &["--output", &path]].concat();
    let written = installation.succeed(&[&to_file[..], &["--json"]].concat());
    assert_eq!(
        serde_json::from_str::<Value>(&written).unwrap(),
        json!({ "file": path, "entries": 1 })
    );
    let mode = |file: &Path| std::fs::metadata(file).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&file), 0o600);
    std::fs::write(&file, "of the operator").unwrap();
    assert_contains(
        &case.damaged.refused(&to_file),
        &["exists; name another file, or replace it with `--force`"],
    );
    assert_eq!(std::fs::read(&file).unwrap(), b"of the operator");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    installation.succeed(&[&to_file[..], &["--force"]].concat());
    assert_eq!(
        (
            mode(&file),
            serde_json::from_slice(&std::fs::read(&file).unwrap()).ok()
        ),
        (0o600, Some(case.exported()))
    );
    // What was exported sealed is imported as it was.
    succeeded(case.import(&sealed, &[]));
    assert_eq!(
        serde_json::from_slice(&std::fs::read(&file).unwrap()).ok(),
        Some(case.exported())
    );
}

on_each_database!(correction_that_does_not_fit_the_layout_is_refused_and_writes_nothing);
async fn correction_that_does_not_fit_the_layout_is_refused_and_writes_nothing(kind: Kind) {
    let case = Quarantined::new(kind).await;
    let exported = case.exported();
    let before = dump(&case.installation().database).await;
    let refused = |change: &dyn Fn(&mut Value), reason: &str| {
        let mut entries = exported.clone();
        change(&mut entries[0]);
        output::refused(case.import(&entries, &[]), reason);
    };
    let row = |change: fn(&mut Value)| {
        move |entry: &mut Value| change(&mut entry["tables"]["desired_lrps"][0])
    };
    let missing = |entry: &mut Value| {
        entry["tables"]["desired_lrps"][0]
            .as_object_mut()
            .unwrap()
            .remove("domain");
    };
    refused(&missing, "row 1 of `desired_lrps`, `domain`: it is missing");
    refused(
        &row(|row| row["colour"] = json!("red")),
        "row 1 of `desired_lrps`: it has no column `colour`",
    );
    refused(
        &row(|row| row["domain"] = json!(7)),
        "`domain`: expected a text",
    );
    refused(
        &row(|row| row["domain"] = Value::Null),
        "`domain`: the column does not accept NULL",
    );
    refused(
        &row(|row| row["instances"] = json!("2")),
        "`instances`: expected an integer of 32 bits",
    );
    refused(
        &row(|row| row["instances"] = json!(1_i64 << 40)),
        "`instances`: expected an integer of 32 bits",
    );
    refused(
        &row(|row| row["process_guid"] = json!("other")),
        "is of another unit; keep its `process_guid`",
    );
    let again = |entry: &mut Value| {
        let rows = entry["tables"]["desired_lrps"].as_array_mut().unwrap();
        rows.push(rows[0].clone());
    };
    refused(
        &again,
        "two rows of `desired_lrps` have the same primary key",
    );
    let without_tables = |entry: &mut Value| entry["tables"] = json!({});
    refused(
        &without_tables,
        "the table `desired_lrps` of the entry is missing",
    );
    let emptied = |entry: &mut Value| {
        entry["tables"]
            .as_object_mut()
            .unwrap()
            .values_mut()
            .for_each(|rows| *rows = json!([]));
    };
    refused(
        &emptied,
        "it has no row; `bbs migrate quarantine delete` removes an entry",
    );
    refused(
        &|entry| entry["unit"] = json!("other"),
        "there is no unit \"other\" in quarantine",
    );
    refused(
        &|entry| entry["rows"] = json!([]),
        "is not of the form that `bbs migrate quarantine export` writes",
    );
    if kind.dialect() != Dialect::Sqlite {
        refused(
            &row(|row| row["domain"] = "d".repeat(300).into()),
            "a text that is longer than the column holds",
        );
        refused(
            &row(|row| row["domain"] = json!({ "hex": "ff" })),
            "a text that is not UTF-8",
        );
    }
    assert_eq!(dump(&case.installation().database).await, before);
}

on_each_database!(unit_is_corrected_in_an_editor_whose_file_is_private_and_removed);
async fn unit_is_corrected_in_an_editor_whose_file_is_private_and_removed(kind: Kind) {
    let case = Quarantined::new(kind).await;
    let before = dump(&case.installation().database).await;
    let unchanged = case
        .edit("stat -c %a \"$1\" \"$(dirname \"$1\")\" >&2; cp \"$1\" \"$1~\"")
        .output()
        .unwrap();
    assert_eq!(errors(&unchanged), "600\n700\n");
    assert_eq!(succeeded(unchanged), "Nothing was changed.\n");
    for (script, reason) in [
        ("echo '{' > \"$1\"", "writes: it is no list of entries"),
        ("echo '[{' > \"$1\"", "writes: it ends too early"),
        (
            "sed -i 's/\"domain\": \"[^\"]*\"/\"domain\": 7/' \"$1\"",
            "`domain`: expected a text",
        ),
        ("exit 7", "failed (exit status: 7); nothing was written"),
    ] {
        output::refused(case.edit(script).output().unwrap(), reason);
        assert_eq!(case.left_in_temporary(), Vec::<PathBuf>::new());
    }
    let mut without = case.edit("");
    assert_contains(
        &errors(&without.env_remove("EDITOR").output().unwrap()),
        &["set VISUAL or EDITOR"],
    );
    assert_eq!(dump(&case.installation().database).await, before);

    let encoded = to_hex(&case.run_info);
    let correct = format!("sed -i 's|\"hex\": \"0a05\"|\"hex\": \"{encoded}\"|' \"$1\"");
    let edited = case.edit(&correct).output().unwrap();
    assert_contains(&succeeded(edited), &["imported"]);
    assert_eq!(case.left_in_temporary(), Vec::<PathBuf>::new());
    case.installation()
        .succeed(&["migrate", "quarantine", "retry"]);
    case.assert_restored().await;
}

#[tokio::test]
async fn edit_at_a_terminal_keeps_a_file_that_is_not_imported() {
    let case = Quarantined::new(Kind::Sqlite).await;
    let before = dump(&case.installation().database).await;
    for (script, parts) in [
        (
            // A letter of Latin-1.
            "printf '\\351' >> \"$1\"",
            &["it is not JSON in UTF-8", "The editor opens again"][..],
        ),
        (
            "sed -i 's/\"unit\": \"[^\"]*\"/\"unit\": \"other\"/' \"$1\"",
            &["there is no unit \"other\" in quarantine"][..],
        ),
    ] {
        let edited = terminal::run(&case.edit(script), "n");
        assert!(!edited.status.success(), "{}", edited.output);
        assert_contains(&edited.output, parts);
        let [folder] = &case.left_in_temporary()[..] else {
            panic!("{}", edited.output)
        };
        let kept = folder.join("unit.json");
        assert!(kept.is_file());
        assert_contains(&edited.output, &[&format!("stays in {}", kept.display())]);
        std::fs::remove_dir_all(folder).unwrap();
    }
    assert_eq!(dump(&case.installation().database).await, before);
}

#[tokio::test]
async fn signal_ends_an_edit_and_removes_its_file() {
    let case = Quarantined::new(Kind::Sqlite).await;
    let before = dump(&case.installation().database).await;
    for signal in ["TERM", "HUP"] {
        // The editor reads from the test until the command has ended.
        let mut edit = case.edit("echo opened; cat >/dev/null");
        let mut running = edit
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let input = running.stdin.take().unwrap();
        let mut output = std::io::BufReader::new(running.stdout.take().unwrap());
        let mut line = String::new();
        std::io::BufRead::read_line(&mut output, &mut line).unwrap();
        assert_eq!(
            (line.as_str(), case.left_in_temporary().len()),
            ("opened\n", 1)
        );
        let killed = Command::new("kill")
            .args(["-s", signal, &running.id().to_string()])
            .status()
            .unwrap();
        assert!(killed.success());
        // The editor has the pipes of the command until its input ends.
        let ended = running.wait().unwrap();
        assert_eq!(case.left_in_temporary(), Vec::<PathBuf>::new());
        drop(input);
        let mut message = String::new();
        running
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut message)
            .unwrap();
        assert_eq!(ended.code(), Some(1), "{signal}: {message}");
        assert_contains(&message, &["interrupted"]);
    }
    assert_eq!(dump(&case.installation().database).await, before);
}

on_each_database!(deleted_unit_does_not_return);
async fn deleted_unit_does_not_return(kind: Kind) {
    let case = Quarantined::new(kind).await;
    let installation = case.installation();
    let unit = case.unit();
    let delete = ["migrate", "quarantine", "delete", unit];
    let before = dump(&installation.database).await;
    assert_contains(
        &installation.succeed(&[&delete[..], &["--dry-run"]].concat()),
        &["would be deleted; nothing was written"],
    );
    assert_contains(
        &case.damaged.refused(&[&delete[..], &["unknown"]].concat()),
        &["there is no unit \"unknown\""],
    );
    let kept = terminal::run(&installation.command(&delete), "n");
    assert!(!kept.status.success(), "{}", kept.output);
    assert_contains(
        &kept.output,
        &["This deletes for good", unit, "[y/N]", "nothing was done"],
    );
    assert_eq!(dump(&installation.database).await, before);
    let deleted = terminal::run(
        &installation.command(&[&delete[..], &["--yes"]].concat()),
        "n",
    );
    assert!(
        deleted.status.success() && !deleted.output.contains("[y/N]"),
        "{}",
        deleted.output
    );
    let database = installation.database.open().await;
    for table in ["bbs_quarantine", "bbs_quarantine_part"] {
        assert_eq!(
            texts(&database, &format!("SELECT unit_digest FROM {table}")).await,
            [""; 0],
            "{table}"
        );
    }
    let query = format!("SELECT unit FROM bbs_residue WHERE unit = '{unit}'");
    assert_eq!(texts(&database, &query).await, [""; 0]);
    database.close().await;
    installation.succeed(&["migrate", "down", "--to", &VERSION.to_string()]);
    let rows = case.damaged.content().await.1;
    assert_eq!(
        rows["desired_lrps"].len(),
        case.whole["desired_lrps"].len() - 1
    );
    assert!(
        rows["desired_lrps"]
            .iter()
            .all(|row| row["process_guid"] != unit)
    );
}

on_each_server!(quarantine_waits_for_a_migration_that_begins);
/// Goal: what a command writes is in the tables before they are copied, or not at all. Method: the
/// transaction that records the beginning of a migration is open when the command looks.
async fn quarantine_waits_for_a_migration_that_begins(kind: Kind) {
    let quarantined = Quarantined::new(kind).await;
    let installation = quarantined.installation();
    let database = installation.database.open_with_idle_limit(PATIENCE).await;
    let mut beginning = database.write().await.unwrap();
    for statement in [
        "UPDATE configurations SET value = value WHERE id = 'version'",
        "INSERT INTO bbs_migration (id, from_version, to_version, going_down, fingerprint, token, phase) \
         VALUES (1, 1, 2, false, '', 0, 'begun')",
    ] {
        beginning.execute(sql(statement)).await.unwrap();
    }
    let mut command =
        installation.command(&["migrate", "quarantine", "delete", quarantined.unit()]);
    let refused = tokio::task::spawn_blocking(move || command.output().unwrap());
    installation.database.wait_for_lock_wait().await;
    beginning.commit().await.unwrap();
    database.close().await;
    output::refused(refused.await.unwrap(), "is in the phase begun");
}

on_each_database!(quarantine_of_an_unfinished_migration_is_not_changed);
async fn quarantine_of_an_unfinished_migration_is_not_changed(kind: Kind) {
    let damaged = Damaged::at(kind, &[3]).await;
    let installation = &damaged.installation;
    let unit = damaged.units[0].as_str();
    let part = installation.run(&[
        "migrate",
        "up",
        "--on-unreadable",
        "quarantine",
        "--max-count",
        "63",
    ]);
    assert_eq!(part.status.code(), Some(3), "{}", errors(&part));
    let file = installation
        .folder()
        .join("unit.json")
        .display()
        .to_string();
    installation.succeed(&["migrate", "quarantine", "export", unit, "--output", &file]);
    for command in [["import", &file], ["delete", unit], ["retry", unit]] {
        let refused = damaged.refused(&[&["migrate", "quarantine"][..], &command].concat());
        assert_contains(
            &refused,
            &["is in the phase copying", "`bbs migrate abort` gives it up"],
        );
    }
    installation.succeed(&["migrate", "abort"]);
    assert_contains(
        &installation.succeed(&["migrate", "quarantine", "list"]),
        &["No unit is in quarantine."],
    );
}
