//! Refused imports and their messages. Nothing is changed then: neither in the store nor in the
//! database.

use std::process::{Child, Stdio};

use bbs_encryption::Keyring;
use serde_json::Value;

use super::stores::{self, StoreLayout, encoded, sealed, version};
use super::{MARK, NEWEST, import, importing, is_marked, report, served, tables};
use crate::faults::stops;
use crate::harness::database::{Kind, execute, on_each_database};
use crate::harness::etcd::Etcd;
use crate::harness::host::{Installation, signal};
use crate::harness::until_async;

/// Asserts that the import ends with these texts, and that store and database stay as they are.
#[track_caller]
fn refuse(installation: &Installation, expected: &[&str]) {
    for arguments in [
        &["import", "etcd", "--check"][..],
        &["import", "etcd"],
        &["serve"],
    ] {
        let text = installation.fail(arguments);
        for part in expected {
            assert!(
                text.contains(part),
                "{arguments:?} should say {part:?}: {text}"
            );
        }
    }
}

async fn assert_nothing_is_written(installation: &Installation) {
    let written: Vec<_> = tables(installation)
        .await
        .into_iter()
        .filter(|name| !is_of_the_lock(name))
        .collect();
    assert_eq!(written, Vec::<String>::new());
}

/// The tables that a host needs to become the master.
fn is_of_the_lock(table: &str) -> bool {
    ["bbs_lease", "bbs_fence"].contains(&table)
}

on_each_database!(check_prints_the_report_and_writes_nothing);
async fn check_prints_the_report_and_writes_nothing(kind: Kind) {
    let etcd = Etcd::start().await;
    stores::write(&etcd, StoreLayout::Milliseconds).await;
    etcd.put("/v1/other", "x", None).await;
    let before = etcd.everything().await;
    let installation = importing(kind, &etcd);
    let text = installation.succeed(&["import", "etcd", "--check"]);
    for part in [
        "at version 1451635200",
        "would be imported",
        "evacuating actual LRP",
        "sealed under \"key1\": ",
        "foreign: /v1/other",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let counts = report(&installation.succeed(&["import", "etcd", "--check", "--json"]));
    for (of, counts) in counts["kinds"].as_object().expect("counts by kind") {
        let [seen, rest @ ..] = ["seen", "imported", "expired", "quarantined", "foreign"]
            .map(|what| counts[what].as_u64());
        assert_eq!(seen, rest.into_iter().sum(), "{of}");
    }
    assert_eq!(etcd.everything().await, before);
    assert_eq!(tables(&installation).await, Vec::<String>::new());
    // The import then does what the check has said.
    assert_eq!(import(&installation)["kinds"], counts["kinds"]);
}

on_each_database!(records_under_keys_that_are_not_configured_are_refused_by_label);
async fn records_under_keys_that_are_not_configured_are_refused_by_label(kind: Kind) {
    let etcd = Etcd::start().await;
    stores::write(&etcd, StoreLayout::Halves).await;
    let before = etcd.everything().await;
    let installation = importing(kind, &etcd)
        .set(
            "encryption_keys",
            serde_json::json!({ "another": "passphrase" }),
        )
        .set("active_key_label", "another");
    refuse(
        &installation,
        &[
            "\"key1\" (10 records)",
            "`encryption_keys`",
            "nothing was changed",
        ],
    );
    assert_nothing_is_written(&installation).await;
    assert_eq!(etcd.everything().await, before);

    // They are all records of their kinds: too many to be damaged, whatever the limit is.
    let installation = installation
        .set("on_unreadable", "quarantine")
        .set("quarantine_limit", 1000);
    refuse(
        &installation,
        &[
            "2 of 2 records of the kind \"scheduling info\" cannot be imported, too many to be damaged",
            "`quarantine_limit` is 1000",
            "Add the missing keys to `encryption_keys`: \"key1\" (10 records); or delete the records from etcd;",
        ],
    );
    assert_nothing_is_written(&installation).await;
    assert_eq!(etcd.everything().await, before);
}

on_each_database!(few_records_under_a_key_that_is_lost_are_left_out_within_the_limit);
async fn few_records_under_a_key_that_is_lost_are_left_out_within_the_limit(kind: Kind) {
    let etcd = Etcd::start().await;
    stores::write(&etcd, StoreLayout::Milliseconds).await;
    let lost = Keyring::new([("lost", "passphrase")], "lost").expect("a key");
    let task = stores::task("task-3", 1, StoreLayout::Milliseconds);
    let sealed = stores::sealed_under(&lost, &task);
    etcd.put("/v1/task/task-3", &sealed, None).await;
    let installation = importing(kind, &etcd)
        .set("on_unreadable", "quarantine")
        .set("quarantine_limit", 0);
    refuse(
        &installation,
        &[
            "1 of 3 records of the kind \"task\" cannot be imported, too many to be damaged",
            "\"lost\" (1 records)",
            "or raise `quarantine_limit`",
        ],
    );
    assert_nothing_is_written(&installation).await;

    let installation = installation.set("quarantine_limit", 1);
    let report = import(&installation);
    assert_eq!(report["kinds"]["task"]["quarantined"], 1, "{report}");
    assert_eq!(served(&installation).await.tasks.len(), 2);
}

on_each_database!(damaged_record_is_refused_before_anything_is_written);
async fn damaged_record_is_refused_before_anything_is_written(kind: Kind) {
    let etcd = Etcd::start().await;
    stores::write(&etcd, StoreLayout::Milliseconds).await;
    let cut = sealed(&stores::run_info("web", StoreLayout::Milliseconds));
    etcd.put("/v1/desired_lrp/run/web", &cut[..cut.len() / 2], None)
        .await;
    etcd.put("/v1/task/task-1", "09unknown", None).await;
    let before = etcd.everything().await;
    let installation = importing(kind, &etcd);
    refuse(
        &installation,
        &[
            "/v1/desired_lrp/run/web",
            "/v1/task/task-1",
            "unknown encoding",
            "`on_unreadable`",
        ],
    );
    assert_nothing_is_written(&installation).await;
    assert_eq!(etcd.everything().await, before);

    let report = report(&installation.succeed(&[
        "import",
        "etcd",
        "--on-unreadable",
        "quarantine",
        "--json",
    ]));
    let quarantined = report["quarantined"].as_array().expect("a list");
    assert_eq!(
        quarantined.len(),
        3,
        "both halves of the LRP, and the task: {report}"
    );
    let found = served(&installation).await;
    assert_eq!(
        (found.desired.len(), found.tasks.len(), found.actual.len()),
        (1, 1, 4)
    );
}

on_each_database!(store_that_was_imported_before_is_refused_unless_stale_is_given);
/// The mark of v0.1475 and later, the version that v0.1470 to v0.1474 left, and the mark of this
/// host.
async fn store_that_was_imported_before_is_refused_unless_stale_is_given(kind: Kind) {
    for (current, target) in [
        (1_451_635_201, 1_481_761_088),
        (1_461_790_966, 1_461_790_966),
        (i64::MAX, i64::MAX),
    ] {
        let etcd = Etcd::start().await;
        stores::write(&etcd, StoreLayout::Milliseconds).await;
        etcd.put("/version", &version(current, target), None).await;
        let installation = importing(kind, &etcd);
        refuse(
            &installation,
            &[
                &current.to_string(),
                "imported into a relational database before",
                "--stale",
            ],
        );
        assert_nothing_is_written(&installation).await;
        assert_eq!(etcd.get("/version").await, Some(version(current, target)));
        let stale = report(&installation.succeed(&["import", "etcd", "--stale", "--json"]));
        assert_eq!(stale["version"], current);
        assert_eq!(served(&installation).await.desired.len(), 2);
    }
}

on_each_database!(stale_store_with_the_mark_of_this_host_is_imported_in_each_layout);
/// The mark takes the place of the version, and with it of the layout.
async fn stale_store_with_the_mark_of_this_host_is_imported_in_each_layout(kind: Kind) {
    for layout in StoreLayout::ALL {
        let etcd = Etcd::start().await;
        stores::write(&etcd, layout).await;
        etcd.put("/version", MARK, None).await;
        let installation = importing(kind, &etcd);
        installation.succeed(&["import", "etcd", "--stale"]);
        assert_eq!(served(&installation).await.desired.len(), 2, "{layout:?}");
    }
}

on_each_database!(stale_store_with_both_layouts_is_imported_once_its_version_is_back);
async fn stale_store_with_both_layouts_is_imported_once_its_version_is_back(kind: Kind) {
    let etcd = Etcd::start().await;
    stores::write(&etcd, StoreLayout::Halves).await;
    let whole = encoded(&stores::whole("web", StoreLayout::Protobuf));
    etcd.put("/v1/desired/web", &whole, None).await;
    etcd.put("/version", MARK, None).await;
    let installation = importing(kind, &etcd);
    let text = installation.fail(&["import", "etcd", "--stale"]);
    assert!(
        text.contains("at `/v1/desired` and at `/v1/desired_lrp`")
            && text.contains("Set `/version` to the one before that import"),
        "{text}"
    );
    assert_nothing_is_written(&installation).await;
    // The split had not ended.
    etcd.put("/version", &version(1_441_411_196, 1_442_529_338), None)
        .await;
    import(&installation);
    assert_eq!(served(&installation).await.desired.len(), 1);
}

on_each_database!(pin_below_the_version_of_the_import_is_refused_before_it);
async fn pin_below_the_version_of_the_import_is_refused_before_it(kind: Kind) {
    let etcd = Etcd::start().await;
    stores::write(&etcd, StoreLayout::Milliseconds).await;
    let before = etcd.everything().await;
    let installation = importing(kind, &etcd).set("pin_data_version", 1_471_030_898);
    refuse(
        &installation,
        &[
            "`pin_data_version` holds the database at 1471030898, and etcd is imported at 1528928964",
            "`bbs migrate down --to 1471030898`",
        ],
    );
    assert_nothing_is_written(&installation).await;
    assert_eq!(etcd.everything().await, before);
}

on_each_database!(version_that_no_release_wrote_is_refused);
async fn version_that_no_release_wrote_is_refused(kind: Kind) {
    let etcd = Etcd::start().await;
    stores::write(&etcd, StoreLayout::Milliseconds).await;
    for (value, expected) in [
        (
            version(1_451_635_199, 1_451_635_200),
            "no release of Diego's BBS wrote the version 1451635199",
        ),
        (
            "1451635200 or so".to_owned(),
            "is not what Diego's BBS writes",
        ),
        (String::new(), "is not what Diego's BBS writes"),
    ] {
        etcd.put("/version", &value, None).await;
        let installation = importing(kind, &etcd);
        refuse(&installation, &[expected, "nothing was changed"]);
        assert_nothing_is_written(&installation).await;
        assert_eq!(etcd.get("/version").await, Some(value));
    }
}

on_each_database!(version_of_an_interrupted_etcd_migration_is_imported_by_the_form_of_each_record);
async fn version_of_an_interrupted_etcd_migration_is_imported_by_the_form_of_each_record(
    kind: Kind,
) {
    let etcd = Etcd::start().await;
    stores::write(&etcd, StoreLayout::Halves).await;
    etcd.put("/version", &version(1_442_529_338, 1_451_635_200), None)
        .await;
    let rewritten = encoded(&stores::run_info("web", StoreLayout::Milliseconds));
    etcd.put("/v1/desired_lrp/run/web", &rewritten, None).await;
    let installation = importing(kind, &etcd);
    import(&installation);
    let found = served(&installation).await.desired;
    assert_eq!(
        (found[0].start_timeout_ms, found[1].start_timeout_ms),
        (60_000, 60_000)
    );
    assert_eq!(found[0].action, found[1].action);
}

on_each_database!(split_whose_number_was_not_written_is_imported);
/// The etcd migration 1442529338 deletes `/v1/desired` before the number is written.
async fn split_whose_number_was_not_written_is_imported(kind: Kind) {
    let etcd = Etcd::start().await;
    stores::write(&etcd, StoreLayout::Halves).await;
    etcd.put("/version", &version(1_441_411_196, 1_442_529_338), None)
        .await;
    let installation = importing(kind, &etcd);
    import(&installation);
    assert_eq!(served(&installation).await.desired.len(), 2);
}

on_each_database!(database_in_use_is_not_imported_into);
async fn database_in_use_is_not_imported_into(kind: Kind) {
    let etcd = Etcd::start().await;
    stores::write(&etcd, StoreLayout::Milliseconds).await;
    let before = etcd.everything().await;
    let installation = importing(kind, &etcd);
    // A database with rows and without a version is refused as at every start.
    let database = installation.database.open().await;
    execute(
        &database,
        "CREATE TABLE tasks (guid VARCHAR(255) PRIMARY KEY)",
    )
    .await;
    execute(&database, "INSERT INTO tasks (guid) VALUES ('a')").await;
    database.close().await;
    for arguments in [&["import", "etcd"][..], &["serve"]] {
        let text = installation.fail(arguments);
        assert!(
            text.contains("tasks") || text.contains("the database is in use"),
            "{text}"
        );
    }
    let database = installation.database.open().await;
    assert_eq!(
        crate::harness::database::texts(&database, "SELECT guid FROM tasks").await,
        ["a"]
    );
    execute(&database, "DROP TABLE tasks").await;
    database.close().await;

    // One that is served already stays so, and the log says that etcd has no effect.
    let without = importing(kind, &etcd);
    let fresh = Installation::on(
        without.database.clone(),
        &crate::harness::modules::modules(),
    );
    assert!(fresh.serve().terminate().success());
    let with = etcd
        .configuration()
        .into_iter()
        .fold(fresh, |fresh, (key, value)| fresh.set(key, value));
    let text = with.fail(&["import", "etcd"]);
    assert!(
        text.contains("the database is in use") && text.contains("Name an empty database"),
        "{text}"
    );
    let mut host = with.serve();
    assert!(
        host.output()
            .iter()
            .any(|line| line.contains("`etcd_cluster_urls` has no effect")),
        "{:?}",
        host.output()
    );
    assert_eq!(super::listed(&host).await, super::Listed::default());
    assert_eq!(etcd.everything().await, before);
}

on_each_database!(name_of_an_index_that_another_table_has_is_refused_before_the_first_write);
/// Goal: nothing is imported whose indexes could not be created at its end, neither at first nor
/// after an import that was killed.
async fn name_of_an_index_that_another_table_has_is_refused_before_the_first_write(kind: Kind) {
    const INDEX: &str = "CREATE INDEX desired_lrps_domain_idx ON owners (domain)";
    let etcd = Etcd::start().await;
    stores::write(&etcd, StoreLayout::Milliseconds).await;
    let before = etcd.everything().await;
    let installation = importing(kind, &etcd);
    let database = installation.database.open().await;
    let owners = "CREATE TABLE owners (id INTEGER PRIMARY KEY, domain VARCHAR(40))";
    execute(&database, owners).await;
    execute(&database, INDEX).await;
    if matches!(kind, Kind::Sqlite | Kind::Postgres) {
        let expected = [
            "needs the name desired_lrps_domain_idx",
            "an index of table owners has it",
        ];
        refuse(&installation, &expected);
        let mut written = tables(&installation).await;
        written.retain(|name| !is_of_the_lock(name));
        assert_eq!(written, ["owners"]);

        execute(&database, "DROP INDEX desired_lrps_domain_idx").await;
        kill(stopped(&installation, "after-import-batch"));
        execute(&database, INDEX).await;
        refuse(&installation, &expected);
        assert_eq!(etcd.everything().await, before);
        execute(&database, "DROP INDEX desired_lrps_domain_idx").await;
    }
    database.close().await;
    import(&installation);
    assert_eq!(served(&installation).await.desired.len(), 2);
}

on_each_database!(imported_database_is_not_imported_into_again);
async fn imported_database_is_not_imported_into_again(kind: Kind) {
    let etcd = Etcd::start().await;
    stores::write(&etcd, StoreLayout::Milliseconds).await;
    let installation = importing(kind, &etcd);
    import(&installation);
    let text = installation.fail(&["import", "etcd"]);
    assert!(
        text.contains("was imported into this database before"),
        "{text}"
    );
    assert_eq!(served(&installation).await.desired.len(), 2);
}

on_each_database!(other_commands_name_the_import_that_comes_first);
async fn other_commands_name_the_import_that_comes_first(kind: Kind) {
    let etcd = Etcd::start().await;
    stores::write(&etcd, StoreLayout::Milliseconds).await;
    let installation = importing(kind, &etcd);
    let text = installation.fail(&["migrate", "up"]);
    assert!(text.contains("`bbs import etcd`"), "{text}");
    let child = stopped(&installation, "after-import-batch");
    kill(child);
    let installation = installation.set("etcd_cluster_urls", Value::Array(Vec::new()));
    for arguments in [&["migrate", "up"][..], &["serve"]] {
        let text = installation.fail(arguments);
        assert!(
            text.contains("an import from etcd has begun and not ended"),
            "{text}"
        );
    }
}

/// Starts an import that stops at a point of it.
pub(super) fn stopped(installation: &Installation, point: &str) -> Child {
    let mut command = installation.command(&["import", "etcd", "--json"]);
    command
        .env("BBS_FAULT", format!("stop:{point}"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("the executable starts");
    assert!(stops(&mut child), "{point} is not reached");
    child
}

pub(super) fn kill(mut child: Child) {
    child.kill().expect("it can be killed");
    child.wait().expect("it ends");
}

/// Continues an import that fails; returns its output.
fn failure_of(child: Child) -> String {
    signal("CONT", &child);
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success(),
        "it should have failed: {}",
        String::from_utf8_lossy(&output.stdout)
    );
    text
}

on_each_database!(store_that_changes_ends_the_import);
/// A BBS that still writes: between the two readings, and between the second one and the mark.
async fn store_that_changes_ends_the_import(kind: Kind) {
    let etcd = Etcd::start().await;
    stores::write(&etcd, StoreLayout::Milliseconds).await;
    let number = etcd.get("/version").await;
    let new = |guid: &str| encoded(&stores::task(guid, 1, StoreLayout::Milliseconds));
    let installation = importing(kind, &etcd);

    let child = stopped(&installation, "after-import-tables");
    etcd.put("/v1/task/new-1", &new("new-1"), None).await;
    let text = failure_of(child);
    assert!(
        text.contains("has changed while it was imported") && text.contains("Stop every BBS"),
        "{text}"
    );
    assert_eq!(etcd.get("/version").await, number);

    // The next attempt begins anew, from the store as it is then.
    let child = stopped(&installation, "after-import");
    etcd.delete("/v1/task/new-1").await;
    let text = failure_of(child);
    assert!(
        text.contains("has changed since it was imported")
            && text.contains("drop the tables of this database, `bbs_import` too"),
        "{text}"
    );
    assert_eq!(etcd.get("/version").await, number);

    // Nothing is served from a database that lacks what was written since.
    let text = installation.fail(&["serve"]);
    assert!(text.contains("has changed since it was imported"), "{text}");

    let again = importing(kind, &etcd);
    import(&again);
    assert!(is_marked(&etcd).await);
    assert_eq!(served(&again).await.tasks.len(), 2);
}

on_each_database!(domains_that_expire_meanwhile_are_no_change);
async fn domains_that_expire_meanwhile_are_no_change(kind: Kind) {
    let etcd = Etcd::start().await;
    stores::write(&etcd, StoreLayout::Milliseconds).await;
    etcd.put("/v1/domain/short", "", Some(2)).await;
    let installation = importing(kind, &etcd);
    let child = stopped(&installation, "after-import");
    until_async(async || etcd.get("/v1/domain/short").await.is_none()).await;
    signal("CONT", &child);
    let output = child.wait_with_output().expect("it ends");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(is_marked(&etcd).await);
    assert_eq!(installation.data_version(), NEWEST);
}

on_each_database!(keys_of_other_programs_may_change_meanwhile);
/// Between the two readings, so that the second one and the last look before the mark see it.
async fn keys_of_other_programs_may_change_meanwhile(kind: Kind) {
    let etcd = Etcd::start().await;
    stores::write(&etcd, StoreLayout::Milliseconds).await;
    etcd.put("/other/counter", "1", None).await;
    let installation = importing(kind, &etcd);
    let child = stopped(&installation, "after-import-tables");
    etcd.put("/other/counter", "2", None).await;
    signal("CONT", &child);
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(is_marked(&etcd).await);
}

on_each_database!(version_written_by_another_client_is_not_overwritten);
/// Nothing was served from the database, so the way out is to import anew.
async fn version_written_by_another_client_is_not_overwritten(kind: Kind) {
    let etcd = Etcd::start().await;
    stores::write(&etcd, StoreLayout::Milliseconds).await;
    let installation = importing(kind, &etcd);
    let child = stopped(&installation, "before-mark");
    let other = version(1_451_635_200, 1_451_635_200);
    etcd.put("/version", &other, None).await;
    let text = failure_of(child);
    let expected =
        "drop the tables of this database, `bbs_import` too, then start again to import anew";
    assert!(text.contains(expected), "{text}");
    assert_eq!(etcd.get("/version").await, Some(other));
    let text = installation.fail(&["serve"]);
    assert!(text.contains(expected), "{text}");
}

/// Goal: of two databases that import the same store, only the one that marks it is served.
#[tokio::test(flavor = "multi_thread")]
async fn mark_of_another_import_ends_the_start_of_an_unmarked_one() {
    let etcd = Etcd::start().await;
    stores::write(&etcd, StoreLayout::Milliseconds).await;
    let unmarked = importing(Kind::Sqlite, &etcd);
    kill(stopped(&unmarked, "after-import"));
    import(&importing(Kind::Sqlite, &etcd));
    let before = etcd.everything().await;
    for arguments in [&["serve"][..], &["import", "etcd"]] {
        let text = unmarked.fail(arguments);
        assert!(
            text.contains("etcd has the mark of another import"),
            "{arguments:?}: {text}"
        );
    }
    assert_eq!(etcd.everything().await, before);
}

#[test]
fn check_and_import_without_a_store_make_no_database() {
    let installation = Installation::new(&crate::harness::modules::modules(), Kind::Sqlite);
    for arguments in [&["import", "etcd"][..], &["import", "etcd", "--check"]] {
        let text = installation.fail(arguments);
        assert!(
            text.contains("`etcd_cluster_urls` is not in the configuration"),
            "{text}"
        );
    }
    let installation = installation.set("etcd_cluster_urls", vec!["http://127.0.0.1:1"]);
    let text = installation.fail(&["import", "etcd", "--check"]);
    assert!(text.contains("there is no database at"), "{text}");
    assert!(!installation.database.path().exists());
}

#[test]
fn configuration_of_etcd_is_checked() {
    let refused = |keys: &[(&str, Value)], expected: &str| {
        let installation = Installation::new(&crate::harness::modules::modules(), Kind::Sqlite);
        let installation = keys.iter().fold(installation, |all, (key, value)| {
            all.set(key, value.clone())
        });
        let text = installation.fail(&["import", "etcd", "--check"]);
        assert!(text.contains(expected), "{expected}: {text}");
        assert!(!text.contains("secret"), "{text}");
    };
    let urls = |urls: &[&str]| ("etcd_cluster_urls", Value::from(urls.to_vec()));
    refused(&[], "`etcd_cluster_urls` is not in the configuration");
    refused(
        &[urls(&["etcd:4001"])],
        "it is a list of URLs without a path",
    );
    refused(
        &[urls(&["http://etcd:4001/v2/keys"])],
        "it is a list of URLs without a path",
    );
    for url in [
        "http://user:secret@etcd:4001",
        "http://secret@etcd:4001",
        "http://etcd:4001/?token=secret",
        "http://etcd:4001/#secret",
    ] {
        refused(
            &[urls(&["http://etcd:4001", url])],
            "its URLs have no user, password, query or fragment",
        );
    }
    refused(
        &[urls(&["http://one:4001", "https://two:4001"])],
        "all of them with the same",
    );
    refused(&[urls(&["https://one:4001"])], "etcd_cert_file");
    refused(
        &[
            urls(&["https://one:4001"]),
            ("etcd_cert_file", "c".into()),
            ("etcd_key_file", "k".into()),
        ],
        "etcd_ca_file",
    );
}
