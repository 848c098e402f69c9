//! The faults of Diego's own import (`migration.etcd-to-sql` of BBS v0.1470 to v1.35), each with
//! the test that shows that this one does not have it.
//!
//! | fault | test |
//! |---|---|
//! | a root that cannot be read counts as empty | `members::answer_that_is_cut_off_changes_nothing`, `members::store_without_a_majority_is_not_imported` |
//! | run information without usable scheduling information ends the process, again at each start | [`half_of_a_desired_lrp_is_quarantined_and_the_rest_imported`] |
//! | scheduling information without run information is dropped silently | the same |
//! | evacuating instances are dropped | `whole_stores::store_of_each_layout_is_imported_whole` |
//! | a permanent domain is imported as expired | the same |
//! | placement tags and limits of processes are dropped | [`placement_tags_and_limits_of_processes_are_kept`] |
//! | records without `/version` count as no records | `whole_stores::store_of_each_layout_is_imported_whole`, the receptor's |
//! | timeouts in seconds and nanoseconds are lost | the same |
//! | run information and tasks keep their timeouts in the old unit | [`volume_mounts_and_timeouts_of_every_release_are_converted`] |
//! | the keys of records are never checked | `refusals::records_under_keys_that_are_not_configured_are_refused_by_label` |
//! | run information is copied without decoding it | `refusals::damaged_record_is_refused_before_anything_is_written` |
//! | path and content are not compared | [`record_of_another_path_is_quarantined`] |
//! | tables are dropped with their rows | `refusals::database_in_use_is_not_imported_into` |
//! | a mark that fails is never tried again | `kills::kill_at_each_point_loses_nothing`, `members::mark_is_set_once_etcd_is_back` |
//! | a BBS that still writes is not noticed | `refusals::store_that_changes_ends_the_import` |
//! | expirations are counted from the time of the import | [`expirations_are_those_of_the_store`] |
//! | wide values are rejected by narrow columns and skipped | [`values_wider_than_the_columns_of_that_time_are_imported`] |
//! | encryption afterwards gives every instance the ports of one | [`each_instance_has_its_own_ports`] |
//! | no counts, no check, no list of what was skipped | `refusals::check_prints_the_report_and_writes_nothing` |
//! | the source is rewritten before the import | `whole_stores::store_of_each_layout_is_imported_whole` |
//! | a domain with `/` is imported as its first segment | [`domain_with_slashes_keeps_its_name`] |

use bbs::testing::database::Dialect;
use bbs_proto::models as proto;
use serde_json::json;

use super::stores::{self, StoreLayout, encoded, sealed};
use super::{import, importing, listed, served};
use crate::harness::database::{Kind, execute, on_each_database, texts};
use crate::harness::etcd::Etcd;
use crate::harness::host::{Host, Installation, signal};
use crate::harness::on_each::on_each_mysql;
use crate::harness::until_async;

const SPLIT: StoreLayout = StoreLayout::Halves;

/// Starts etcd with these leaves at the newest layout of the store.
async fn store(leaves: impl IntoIterator<Item = (String, String)>) -> Etcd {
    let etcd = Etcd::start().await;
    etcd.put(
        "/version",
        &stores::version(1_451_635_200, 1_451_635_200),
        None,
    )
    .await;
    etcd.put_all(leaves).await;
    etcd
}

fn schedule(info: &proto::DesiredLrpSchedulingInfo) -> (String, String) {
    let guid = info
        .desired_lrp_key
        .as_ref()
        .map(|key| String::from_utf8_lossy(&key.process_guid).into_owned());
    (
        format!("/v1/desired_lrp/schedule/{}", guid.expect("a key")),
        sealed(info),
    )
}

fn run(info: &proto::DesiredLrpRunInfo) -> (String, String) {
    let guid = info
        .desired_lrp_key
        .as_ref()
        .map(|key| String::from_utf8_lossy(&key.process_guid).into_owned());
    (
        format!("/v1/desired_lrp/run/{}", guid.expect("a key")),
        sealed(info),
    )
}

/// A sealed leaf that does not open.
fn damaged((key, value): (String, String)) -> (String, String) {
    let damaged = format!("{}AAAA", &value[..value.len() - 4]);
    (key, damaged)
}

async fn rows(installation: &Installation, query: &str) -> Vec<String> {
    let database = installation.database.open().await;
    let rows = texts(&database, query).await;
    database.close().await;
    rows
}

on_each_database!(half_of_a_desired_lrp_is_quarantined_and_the_rest_imported);
/// Even without `on_unreadable`: Diego leaves such halves for a moment while it creates or removes
/// an LRP.
async fn half_of_a_desired_lrp_is_quarantined_and_the_rest_imported(kind: Kind) {
    let etcd = store([
        run(&stores::run_info("web", SPLIT)),
        schedule(&stores::scheduling("web")),
        run(&stores::run_info("created", SPLIT)),
        schedule(&stores::scheduling("removed")),
    ])
    .await;
    let installation = importing(kind, &etcd);
    let report = import(&installation);
    let imported = |kind: &str| report["kinds"][kind].clone();
    let half = json!({ "seen": 2, "imported": 1, "expired": 0, "quarantined": 1, "foreign": 0 });
    assert_eq!(
        (imported("run info"), imported("scheduling info")),
        (half.clone(), half)
    );
    assert_eq!(
        rows(&installation, "SELECT process_guid FROM desired_lrps").await,
        ["web"]
    );
    let listed = installation.succeed(&["migrate", "quarantine", "list"]);
    for part in [
        "/v1/desired_lrp/run/created",
        "/v1/desired_lrp/schedule/removed",
        "is missing or damaged",
    ] {
        assert!(listed.contains(part), "{listed}");
    }
    // They stay where they are: no table has a row for half of an LRP.
    let retried = installation.fail(&["migrate", "quarantine", "retry"]);
    assert!(
        retried.contains("2 of 2 units remain in quarantine"),
        "{retried}"
    );
    assert_eq!(served(&installation).await.desired.len(), 1);
}

on_each_database!(damaged_half_of_a_desired_lrp_is_quarantined_with_its_other_half);
async fn damaged_half_of_a_desired_lrp_is_quarantined_with_its_other_half(kind: Kind) {
    let etcd = store([
        run(&stores::run_info("web", SPLIT)),
        schedule(&stores::scheduling("web")),
        run(&stores::run_info("one", SPLIT)),
        damaged(schedule(&stores::scheduling("one"))),
        damaged(run(&stores::run_info("two", SPLIT))),
        schedule(&stores::scheduling("two")),
    ])
    .await;
    let installation = importing(kind, &etcd).set("on_unreadable", "quarantine");
    let report = import(&installation);
    let half = json!({ "seen": 3, "imported": 1, "expired": 0, "quarantined": 2, "foreign": 0 });
    assert_eq!(
        (
            &report["kinds"]["run info"],
            &report["kinds"]["scheduling info"]
        ),
        (&half, &half)
    );
    assert_eq!(
        rows(&installation, "SELECT process_guid FROM desired_lrps").await,
        ["web"]
    );
    assert_eq!(
        rows(&installation, "SELECT unit FROM bbs_quarantine")
            .await
            .len(),
        4
    );
}

on_each_database!(instances_of_a_desired_lrp_in_quarantine_go_on);
/// As those of one that a serving host could not read. Those of an LRP that does not exist end,
/// whose run information alone is left.
async fn instances_of_a_desired_lrp_in_quarantine_go_on(kind: Kind) {
    let running = |guid: &str| {
        let lrp = stores::instance(guid, 0, "RUNNING", "cell-1");
        (format!("/v1/actual/{guid}/0/instance"), sealed(&lrp))
    };
    let etcd = store([
        damaged(run(&stores::run_info("one", SPLIT))),
        schedule(&stores::scheduling("one")),
        run(&stores::run_info("removed", SPLIT)),
        run(&stores::run_info("two", SPLIT)),
        damaged(schedule(&stores::scheduling("two"))),
        running("one"),
        running("removed"),
        running("two"),
        // Without a fresh domain, no instance ends.
        ("/v1/domain/cf-apps".to_owned(), String::new()),
    ])
    .await;
    let installation = importing(kind, &etcd)
        .set("on_unreadable", "quarantine")
        .set("converge_repeat_interval", "100ms");
    let mut host = installation.serve();
    let is_listed = async |host: &Host, guid: &str| {
        let guids = processes(host).await;
        guids.iter().any(|listed| listed == guid)
    };
    until_async(async || !is_listed(&host, "removed").await).await;
    // A line is of the beginning of a pass, and the first may be of the one that removed it.
    for _ in 0..3 {
        host.wait_for_new_line(|line| line.contains("converging instances"));
    }
    assert_eq!(processes(&host).await, ["one", "two"]);

    // They end with the entries.
    let units = ["run", "schedule"].map(|folder| format!("/v1/desired_lrp/{folder}/one"));
    let [half, other_half] = units.each_ref().map(String::as_str);
    let exported = installation.succeed(&["migrate", "quarantine", "export", half]);
    assert!(exported.contains(half), "{exported}");
    installation.succeed(&["migrate", "quarantine", "delete", half, other_half, "--yes"]);
    until_async(async || !is_listed(&host, "one").await).await;
    assert_eq!(processes(&host).await, ["two"]);
    assert!(host.terminate().success());
}

/// The process guids of the instances that the host lists.
async fn processes(host: &Host) -> Vec<String> {
    let guids = listed(host)
        .await
        .actual
        .into_iter()
        .map(|lrp| lrp.actual_lrp_key.expect("a key").process_guid);
    guids
        .map(|guid| String::from_utf8(guid).expect("text"))
        .collect()
}

on_each_database!(placement_tags_and_limits_of_processes_are_kept);
async fn placement_tags_and_limits_of_processes_are_kept(kind: Kind) {
    let mut info = stores::scheduling("web");
    info.placement_tags = vec!["isolated".into(), "gpu".into()];
    info.desired_lrp_resource
        .as_mut()
        .expect("a resource")
        .max_pids = 128;
    info.volume_placement = Some(proto::VolumePlacement {
        driver_names: vec!["nfs".into()],
    });
    let etcd = store([run(&stores::run_info("web", SPLIT)), schedule(&info)]).await;
    let installation = importing(kind, &etcd);
    import(&installation);
    let found = served(&installation).await.desired;
    assert_eq!(
        (found[0].placement_tags.clone(), found[0].max_pids),
        (vec![b"isolated".to_vec(), b"gpu".to_vec()], 128)
    );
}

on_each_database!(volume_mounts_and_timeouts_of_every_release_are_converted);
async fn volume_mounts_and_timeouts_of_every_release_are_converted(kind: Kind) {
    // Fields 2 (volume id), 3 (container directory), 4 (mode), 5 (configuration), as v0.1462 to
    // v0.1481 wrote them.
    let early_mount: &[u8] = b"\n\x06driver\x12\x03vol\x1a\x05/data\x20\x01\x2a\x09{\"a\":\"b\"}";
    let info = stores::run_info("early", SPLIT);
    let mut bytes = [
        &[2, 0][..],
        &bbs_proto::prost::Message::encode_to_vec(&info),
    ]
    .concat();
    bytes.extend([0x8a, 0x01, u8::try_from(early_mount.len()).expect("short")]);
    bytes.extend(early_mount);
    let early = format!(
        "01{}",
        base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bytes)
    );
    let etcd = store([
        ("/v1/desired_lrp/run/early".to_owned(), early),
        schedule(&stores::scheduling("early")),
        run(&stores::run_info("late", StoreLayout::Milliseconds)),
        schedule(&stores::scheduling("late")),
    ])
    .await;
    let installation = importing(kind, &etcd);
    import(&installation);
    let found = served(&installation).await.desired;
    let [early, late] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(
        (early.start_timeout_ms, &early.action),
        (late.start_timeout_ms, &late.action)
    );
    let mount = &early.volume_mounts[0];
    assert_eq!(
        (&mount.driver[..], &mount.container_dir[..], &mount.mode[..]),
        (&b"driver"[..], &b"/data"[..], &b"rw"[..])
    );
    assert_eq!(
        mount.shared.as_ref().map(|shared| &shared.volume_id[..]),
        Some(&b"vol"[..])
    );
}

on_each_database!(record_of_another_path_is_quarantined);
async fn record_of_another_path_is_quarantined(kind: Kind) {
    let etcd = store([
        (
            "/v1/task/task-1".to_owned(),
            encoded(&stores::task("task-2", 1, SPLIT)),
        ),
        (
            "/v1/actual/web/1/instance".to_owned(),
            sealed(&stores::instance("web", 0, "RUNNING", "cell-1")),
        ),
        (
            "/v1/actual/web/2/instance".to_owned(),
            sealed(&stores::instance("other", 2, "RUNNING", "cell-1")),
        ),
        (
            "/v1/actual/web/3/instance".to_owned(),
            sealed(&stores::instance("web", 3, "RUNNING", "cell-1")),
        ),
        (
            "/v1/actual/web/4/instance".to_owned(),
            sealed(&stores::instance("web", 4, "RUNNING", "cell-1")),
        ),
        (
            "/v1/task/task-3".to_owned(),
            encoded(&stores::task("task-3", 1, SPLIT)),
        ),
    ])
    .await;
    let installation = importing(kind, &etcd).set("on_unreadable", "quarantine");
    let report = import(&installation);
    assert_eq!(report["kinds"]["actual LRP"]["quarantined"], 2, "{report}");
    assert_eq!(report["kinds"]["task"]["quarantined"], 1, "{report}");
    let reasons: Vec<_> = report["quarantined"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|left| &left["reason"])
        .collect();
    assert!(
        reasons
            .iter()
            .any(|reason| reason.as_str().is_some_and(|text| text.contains("task-2"))),
        "{report}"
    );
    assert_eq!(
        rows(&installation, "SELECT guid FROM tasks").await,
        ["task-3"]
    );
    assert_eq!(
        rows(&installation, "SELECT process_guid FROM actual_lrps").await,
        ["web", "web"]
    );
}

on_each_database!(record_whose_key_has_a_nul_character_is_quarantined);
/// PostgreSQL has none in texts.
async fn record_whose_key_has_a_nul_character_is_quarantined(kind: Kind) {
    let task = encoded(&stores::task("a", 1, SPLIT));
    let etcd =
        store(["/v1/task/a", "/v1/task/b\0c"].map(|key| (key.to_owned(), task.clone()))).await;
    let installation = importing(kind, &etcd).set("on_unreadable", "quarantine");
    let report = import(&installation);
    assert_eq!(report["kinds"]["task"]["quarantined"], 1, "{report}");
    assert_eq!(rows(&installation, "SELECT guid FROM tasks").await, ["a"]);
    // A command can name it.
    let unit = "/v1/task/b\\u{0}c";
    assert_eq!(
        rows(&installation, "SELECT unit FROM bbs_quarantine").await,
        [unit]
    );
    installation.succeed(&["migrate", "quarantine", "delete", unit, "--yes"]);
}

on_each_database!(expirations_are_those_of_the_store);
async fn expirations_are_those_of_the_store(kind: Kind) {
    let etcd = store([]).await;
    let before = now_s();
    etcd.put("/v1/domain/soon", "", Some(1)).await;
    etcd.put("/v1/domain/later", "", Some(5000)).await;
    let lrp = stores::instance("web", 0, "RUNNING", "cell-0");
    etcd.put("/v1/actual/web/0/evacuating", &sealed(&lrp), Some(4000))
        .await;
    let after = now_s() + 1;
    let installation = importing(kind, &etcd);
    // Frozen in front of the second reading until a leaf has expired, in etcd too.
    let mut command = installation.command(&["import", "etcd", "--json"]);
    command
        .env("BBS_FAULT", "stop:after-import-tables")
        .stdout(std::process::Stdio::piped());
    let mut child = command.spawn().expect("the executable starts");
    assert!(crate::faults::stops(&mut child));
    until_async(async || etcd.get("/v1/domain/soon").await.is_none()).await;
    signal("CONT", &child);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success());
    let report = super::report(&String::from_utf8(output.stdout).expect("text"));
    assert_eq!(report["kinds"]["domain"]["imported"], 1, "{report}");
    assert_eq!(
        rows(&installation, "SELECT domain FROM domains").await,
        ["later"]
    );
    for (query, ttl_s) in [
        ("SELECT CAST(expire_time AS CHAR(20)) FROM domains", 5000),
        (
            "SELECT CAST(expire_time AS CHAR(20)) FROM actual_lrps",
            4000,
        ),
    ] {
        let expires_s = rows(&installation, query).await[0]
            .trim_end()
            .parse::<i64>()
            .expect("a number")
            / 1_000_000_000;
        assert!(
            (before + ttl_s..=after + ttl_s).contains(&expires_s),
            "{query}: {expires_s}"
        );
    }
}

#[expect(clippy::disallowed_methods, reason = "compared with the clock of etcd")]
fn now_s() -> i64 {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("after 1970");
    i64::try_from(now.as_secs()).expect("seconds fit")
}

on_each_database!(values_wider_than_the_columns_of_that_time_are_imported);
async fn values_wider_than_the_columns_of_that_time_are_imported(kind: Kind) {
    let mut info = stores::scheduling("web");
    let root_fs = format!("docker:///{}", "a".repeat(700));
    info.desired_lrp_resource
        .as_mut()
        .expect("a resource")
        .root_fs = root_fs.clone().into();
    info.annotation = "n".repeat(10_000).into();
    let reason = "b".repeat(800);
    let crashed = proto::ActualLrp {
        crash_count: 1,
        crash_reason: reason.clone().into(),
        placement_error: "c".repeat(5000).into(),
        ..stores::instance("web", 0, "CRASHED", "")
    };
    let task = proto::Task {
        result: "r".repeat(8000).into(),
        ..stores::task("task", 3, SPLIT)
    };
    let etcd = store([
        run(&stores::run_info("web", SPLIT)),
        schedule(&info),
        ("/v1/actual/web/0/instance".to_owned(), sealed(&crashed)),
        ("/v1/task/task".to_owned(), encoded(&task)),
    ])
    .await;
    let installation = importing(kind, &etcd);
    import(&installation);
    let found = served(&installation).await;
    assert_eq!(found.desired[0].root_fs, root_fs.as_bytes());
    assert_eq!(found.desired[0].annotation.len(), 10_000);
    assert_eq!(found.actual[0].crash_reason, reason.as_bytes());
    // As Diego stores a longer text.
    assert!(
        found.actual[0].placement_error.ends_with(b"(truncated)")
            && found.actual[0].placement_error.len() == 1024
    );
    assert_eq!(found.tasks[0].result.len(), 8000);
}

on_each_database!(each_instance_has_its_own_ports);
async fn each_instance_has_its_own_ports(kind: Kind) {
    let instance = |index: i32| {
        let mut lrp = stores::instance("web", index, "RUNNING", "cell-1");
        lrp.actual_lrp_net_info.as_mut().expect("it runs").ports[0].host_port =
            61_000 + index.unsigned_abs();
        lrp
    };
    let leaves = (0..3).map(|index| {
        (
            format!("/v1/actual/web/{index}/instance"),
            sealed(&instance(index)),
        )
    });
    let etcd = store(leaves).await;
    let installation = importing(kind, &etcd);
    import(&installation);
    let found = served(&installation).await.actual;
    let ports = found
        .iter()
        .map(|lrp| lrp.actual_lrp_net_info.as_ref().expect("it runs").ports[0].host_port);
    assert_eq!(ports.collect::<Vec<_>>(), [61_000, 61_001, 61_002]);
}

on_each_database!(domain_with_slashes_keeps_its_name);
async fn domain_with_slashes_keeps_its_name(kind: Kind) {
    let domains = ["a/b/c", "a/b d", "é", "x&y=z"];
    let etcd = store(domains.map(|domain| (format!("/v1/domain/{domain}"), String::new()))).await;
    let installation = importing(kind, &etcd);
    import(&installation);
    assert_eq!(
        served(&installation).await.domains,
        ["a/b d", "a/b/c", "x&y=z", "é"]
    );
}

on_each_database!(keys_that_the_database_does_not_distinguish_are_quarantined);
/// MariaDB and MySQL compare guids without case in the collations of the tests' servers; the others
/// distinguish them.
async fn keys_that_the_database_does_not_distinguish_are_quarantined(kind: Kind) {
    let leaves = ["Task", "task"].map(|guid| {
        (
            format!("/v1/task/{guid}"),
            encoded(&stores::task(guid, 1, SPLIT)),
        )
    });
    let etcd = store(leaves).await;
    let installation = importing(kind, &etcd).set("quarantine_limit", 0);
    if kind.dialect() == Dialect::Mysql {
        let refused = installation.fail(&["import", "etcd"]);
        assert!(
            refused.contains("1 of 2 records of the kind \"task\" cannot be imported")
                && refused.contains("or raise `quarantine_limit`"),
            "{refused}"
        );
    }
    let installation = installation.set("quarantine_limit", 1);
    let report = import(&installation);
    let tasks = rows(&installation, "SELECT guid FROM tasks ORDER BY guid").await;
    let quarantined = report["kinds"]["task"]["quarantined"]
        .as_u64()
        .expect("a count");
    assert_eq!(tasks.len() as u64 + quarantined, 2, "{report}");
    assert_eq!(
        quarantined,
        u64::from(kind.dialect() == Dialect::Mysql),
        "{report}"
    );
}

on_each_mysql!(characters_that_a_column_does_not_have_leave_one_record_out);
/// MySQL's `utf8`, as older Diego databases have it.
async fn characters_that_a_column_does_not_have_leave_one_record_out(kind: Kind) {
    let leaves = ["a", "b"].map(|guid| {
        let mut task = stores::task(guid, 1, SPLIT);
        if guid == "a" {
            task.domain = "\u{1f600}".into();
        }
        (format!("/v1/task/{guid}"), encoded(&task))
    });
    let etcd = store(leaves).await;
    let installation = importing(kind, &etcd);
    let database = installation.database.open().await;
    execute(&database, "ALTER DATABASE CHARACTER SET utf8mb3").await;
    database.close().await;
    let refused = installation.fail(&["import", "etcd"]);
    assert!(
        refused.contains("cannot store the record /v1/task/a: ")
            && refused.contains(" has characters that the character set"),
        "{refused}"
    );
    let installation = installation.set("on_unreadable", "quarantine");
    let report = import(&installation);
    assert_eq!(
        rows(&installation, "SELECT guid FROM tasks").await,
        ["b"],
        "{report}"
    );
    assert_eq!(report["kinds"]["task"]["quarantined"], 1, "{report}");
    let reasons = rows(&installation, "SELECT reason FROM bbs_quarantine").await;
    assert!(
        reasons[0].contains(" has characters that the character set"),
        "{reasons:?}"
    );
}

on_each_database!(keys_that_are_no_records_are_foreign);
async fn keys_that_are_no_records_are_foreign(kind: Kind) {
    let foreign = [
        "/v1/cell/cell-1",
        "/v1/locks/bbs_lock",
        "/other",
        "/v1/actual/web/x/instance",
        "/v1/desired/old",
    ];
    let etcd = store(foreign.map(|key| (key.to_owned(), "{}".to_owned()))).await;
    let installation = importing(kind, &etcd);
    let report = import(&installation);
    assert_eq!(report["kinds"]["foreign"]["foreign"], 4, "{report}");
    // Of a layout that this store has left behind.
    assert_eq!(
        report["kinds"]["desired LRP"],
        json!({ "seen": 1, "imported": 0, "expired": 0, "quarantined": 0, "foreign": 1 })
    );
    assert_eq!(
        etcd.everything().await.len(),
        foreign.len() + 1,
        "nothing is removed"
    );
}
