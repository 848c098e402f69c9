//! Records that a serving host cannot read: they go into quarantine as they are, and their places
//! are filled again.

use bbs::testing::migrate::fault::AFTER_ROTATION_PROOF;
use bbs_encryption::Keyring;
use bbs_lens::layout::schema::Sealing;
use bbs_proto::models as proto;
use serde_json::json;

use crate::api::actual_lrps::{CLAIM, START, claim, start};
use crate::api::lrp;
use crate::harness::database::{Kind, execute, on_each_database, texts};
use crate::harness::host::{Host, Installation};
use crate::harness::{fixture, modules};
use crate::tasks::definition;

/// Sealed text that does not open.
const DAMAGED: &str = "02AAAA";

/// A message as it is stored, sealed with a key that no host here has.
fn under_the_other_key(stored: &str) -> String {
    let plain = fixture::keyring()
        .open(Sealing::Enveloped, stored.as_bytes())
        .unwrap();
    let other = Keyring::new([("other", "another passphrase")], "other").unwrap();
    String::from_utf8(other.seal(Sealing::Enveloped, &plain)).unwrap()
}

/// The host's key, which stays active, and the other one.
fn both_keys() -> serde_json::Value {
    json!({ "key-2024": "correct horse battery staple", "other": "another passphrase" })
}

/// An installation on the same database with both keys.
fn with_both_keys(installation: &Installation) -> Installation {
    Installation::on(installation.database.clone(), &modules::modules())
        .set("encryption_keys", both_keys())
}

struct Case {
    installation: Installation,
    host: Host,
}

impl Case {
    async fn new(kind: Kind) -> Self {
        let installation =
            Installation::new(&modules::modules(), kind).set("converge_repeat_interval", "100ms");
        let host = installation.serve();
        Self { installation, host }
    }

    /// With an LRP of two instances, of which a cell runs the first.
    async fn with_a_running_instance(kind: Kind) -> Self {
        let case = Self::new(kind).await;
        case.desire().await;
        let fresh = proto::UpsertDomainRequest {
            domain: b"domain".to_vec(),
            ttl: 0,
        };
        case.host
            .call::<proto::UpsertDomainResponse>("/v1/domains/upsert", &fresh)
            .await;
        case.start().await;
        case
    }

    /// With the label of the host's key, and a task in quarantine that is under the other one.
    async fn with_a_task_in_quarantine(kind: Kind) -> Self {
        let mut case = Self::new(kind).await;
        case.host
            .wait_for_line(|line| line.contains("everything is sealed under the active key"));
        for guid in ["task", "other", "third"] {
            case.desire_task(guid).await;
        }
        case.seal_with_the_other_key("task", 1).await;
        case.await_quarantine("task");
        case
    }

    async fn desire(&self) {
        let request = proto::DesireLrpRequest {
            desired_lrp: Some(lrp("guid")),
        };
        let answer: proto::DesiredLrpLifecycleResponse =
            self.host.call("/v1/desired_lrp/desire.r2", &request).await;
        assert_eq!(answer.error, None);
    }

    async fn start(&self) {
        let answer: proto::ActualLrpLifecycleResponse = self.host.call(START, &start(0, "a")).await;
        assert_eq!(answer.error, None);
    }

    /// Evacuates the running instance. Returns whether its cell keeps the container.
    async fn evacuate(&self) -> bool {
        let started = start(0, "a");
        let request = proto::EvacuateRunningActualLrpRequest {
            actual_lrp_key: started.actual_lrp_key,
            actual_lrp_instance_key: started.actual_lrp_instance_key,
            actual_lrp_net_info: started.actual_lrp_net_info,
            routable: Some(true),
            ..Default::default()
        };
        let path = "/v1/actual_lrps/evacuate_running.r1";
        let answer: proto::EvacuationResponse = self.host.call(path, &request).await;
        answer.keep_container
    }

    async fn desire_task(&self, guid: &str) {
        let request = proto::DesireTaskRequest {
            task_definition: Some(definition()),
            task_guid: guid.into(),
            domain: b"domain".to_vec(),
        };
        let answer: proto::TaskLifecycleResponse =
            self.host.call("/v1/tasks/desire.r2", &request).await;
        assert_eq!(answer.error, None);
    }

    async fn sql(&self, statement: &str) {
        let database = self.installation.database.open().await;
        execute(&database, statement).await;
        database.close().await;
    }

    /// Seals the definition of a task with the other key, and sets its state.
    async fn seal_with_the_other_key(&self, guid: &str, state: i32) {
        let query = format!("SELECT task_definition FROM tasks WHERE guid = '{guid}'");
        let foreign = under_the_other_key(&self.texts(&query).await[0]);
        self.sql(&format!(
            "UPDATE tasks SET task_definition = '{foreign}', state = {state} WHERE guid = '{guid}'"
        ))
        .await;
    }

    async fn texts(&self, query: &str) -> Vec<String> {
        let database = self.installation.database.open().await;
        let found = texts(&database, query).await;
        database.close().await;
        found
    }

    /// The instances that the host lists: index, state and container.
    async fn instances(&self) -> Vec<(i32, String, String)> {
        let answer: proto::ActualLrPsResponse = self
            .host
            .call("/v1/actual_lrps/list", &proto::ActualLrPsRequest::default())
            .await;
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let listed = answer.actual_lrps.into_iter().map(|lrp| {
            let key = lrp.actual_lrp_key.unwrap();
            let instance = lrp.actual_lrp_instance_key.unwrap_or_default();
            (key.index, text(lrp.state), text(instance.instance_guid))
        });
        let mut instances: Vec<_> = listed.collect();
        instances.sort();
        instances
    }

    /// Waits until the host has moved a record into quarantine.
    fn await_quarantine(&mut self, key: &str) {
        self.host
            .wait_for_line(|line| line.contains("was moved into quarantine") && line.contains(key));
    }

    /// Waits until convergence has run twice: a line is of the beginning of a pass, and the first
    /// may be of one that began before.
    fn await_convergence(&mut self) {
        for _ in 0..4 {
            self.host
                .wait_for_new_line(|line| line.contains("converging instances"));
        }
    }

    fn quarantined(&self) -> Vec<serde_json::Value> {
        serde_json::from_str(&self.installation.succeed(&[
            "migrate",
            "quarantine",
            "list",
            "--json",
        ]))
        .unwrap()
    }
}

on_each_database!(slot_of_an_unreadable_instance_is_filled_again);
async fn slot_of_an_unreadable_instance_is_filled_again(kind: Kind) {
    let mut case = Case::with_a_running_instance(kind).await;
    let whole = case
        .texts("SELECT net_info FROM actual_lrps WHERE instance_index = 0")
        .await
        .remove(0);
    case.sql(&format!(
        "UPDATE actual_lrps SET net_info = '{DAMAGED}' WHERE instance_index = 0"
    ))
    .await;
    case.host
        .call::<proto::ActualLrPsResponse>(
            "/v1/actual_lrps/list",
            &proto::ActualLrPsRequest::default(),
        )
        .await;
    case.await_quarantine("guid");
    case.await_convergence();
    let waiting = |index| (index, "UNCLAIMED".to_owned(), String::new());
    assert_eq!(case.instances().await, [waiting(0), waiting(1)]);
    let answer: proto::ActualLrpLifecycleResponse = case.host.call(CLAIM, &claim(0, "b")).await;
    assert_eq!(answer.error, None);

    let entries = case.quarantined();
    assert_eq!(entries.len(), 1);
    assert_eq!(
        (&entries[0]["unit"], &entries[0]["rows"]),
        (&json!("guid/0/0"), &json!({ "actual_lrps": 1 }))
    );
    assert!(
        entries[0]["reason"]
            .as_str()
            .unwrap()
            .contains("net_info cannot be decrypted"),
        "{entries:?}"
    );
    let shown = case
        .installation
        .succeed(&["migrate", "quarantine", "show", "guid/0/0"]);
    assert!(
        shown.contains("a serving host could not read it"),
        "{shown}"
    );
    let refused = case.installation.run(&["migrate", "quarantine", "retry"]);
    let text = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert!(
        !refused.status.success()
            && text.contains("`net_info` of `actual_lrps` still does not open"),
        "{text}"
    );
    assert_eq!(case.quarantined(), entries);

    // A second one of the same place does not replace the first.
    case.start().await;
    case.sql(&format!(
        "UPDATE actual_lrps SET metric_tags = '{DAMAGED}', net_info = '{whole}' WHERE instance_index = 0"
    ))
    .await;
    case.instances().await;
    case.await_quarantine("guid");
    let names: Vec<_> = case
        .quarantined()
        .iter()
        .map(|entry| entry["unit"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["guid/0/0", "guid/0/0 (2)"]);
    assert!(case.host.terminate().success());
}

on_each_database!(guid_of_an_unreadable_task_is_free_and_the_task_can_be_restored);
async fn guid_of_an_unreadable_task_is_free_and_the_task_can_be_restored(kind: Kind) {
    let mut case = Case::new(kind).await;
    case.desire_task("task").await;
    case.desire_task("other").await;
    case.desire_task("third").await;
    case.sql("ALTER TABLE tasks ADD COLUMN note VARCHAR(20)")
        .await;
    case.sql("UPDATE tasks SET note = 'of the owner' WHERE guid = 'task'")
        .await;
    case.seal_with_the_other_key("task", 3).await;
    case.await_quarantine("task");
    case.desire_task("task").await;
    let refused = case
        .installation
        .run(&["migrate", "quarantine", "retry", "task"]);
    assert!(!refused.status.success());
    case.sql("DELETE FROM tasks WHERE guid = 'task'").await;
    assert!(case.host.terminate().success());

    let with_both = with_both_keys(&case.installation);
    let tried = with_both.succeed(&["migrate", "quarantine", "retry", "task", "--dry-run"]);
    assert!(
        tried.contains("task  would be restored to its tables; nothing was written"),
        "{tried}"
    );
    assert!(
        with_both
            .succeed(&["migrate", "quarantine", "list"])
            .contains("task  ")
    );
    let database = case.installation.database.open().await;
    assert_eq!(
        texts(&database, "SELECT guid FROM tasks WHERE guid = 'task'").await,
        [""; 0]
    );
    let restored = with_both.succeed(&["migrate", "quarantine", "retry", "task"]);
    assert!(
        restored.contains("task  restored to its tables"),
        "{restored}"
    );
    assert_eq!(
        texts(&database, "SELECT note FROM tasks WHERE guid = 'task'").await,
        ["of the owner"]
    );
    database.close().await;
    let host = with_both.serve();
    let request = proto::TaskByGuidRequest {
        task_guid: b"task".to_vec(),
    };
    let answer: proto::TaskResponse = host.call("/v1/tasks/get_by_task_guid.r3", &request).await;
    let task = answer.task.expect("the task is there");
    assert_eq!((task.state, task.task_definition), (3, Some(definition())));
    assert!(
        with_both
            .succeed(&["migrate", "quarantine", "list"])
            .contains("No unit is in quarantine")
    );
    assert!(host.terminate().success());
}

on_each_database!(restored_record_is_under_the_key_of_the_serving_host);
/// Method: only the command has the key of the record, beside that of the host, which goes on.
async fn restored_record_is_under_the_key_of_the_serving_host(kind: Kind) {
    let mut case = Case::with_a_task_in_quarantine(kind).await;
    let with_both = with_both_keys(&case.installation);
    let restored = with_both.succeed(&["migrate", "quarantine", "retry", "task"]);
    assert!(
        restored.contains("task  restored to its tables"),
        "{restored}"
    );
    case.await_convergence();
    let request = proto::TaskByGuidRequest {
        task_guid: b"task".to_vec(),
    };
    let path = "/v1/tasks/get_by_task_guid.r3";
    let answer: proto::TaskResponse = case.host.call(path, &request).await;
    let task = answer.task.expect("the host reads the task");
    assert_eq!(task.task_definition, Some(definition()));
    assert_eq!(case.quarantined().len(), 0);
    let verified = with_both.succeed(&["keys", "verify", "--label", "other"]);
    assert!(verified.contains("may be removed"), "{verified}");
    assert!(case.host.terminate().success());
}

on_each_database!(record_is_restored_under_no_other_key_than_that_of_the_database);
/// Method: a command has another active key than the host whose rotation is complete; then another
/// one has the former active key, between the proof of the next rotation and its label.
async fn record_is_restored_under_no_other_key_than_that_of_the_database(kind: Kind) {
    let Case { installation, host } = Case::with_a_task_in_quarantine(kind).await;
    let former = with_both_keys(&installation);
    let next = with_both_keys(&installation).set("active_key_label", "other");
    let retry = ["migrate", "quarantine", "retry", "task"];
    let refused = next.fail(&retry);
    assert!(
        refused.contains("set `active_key_label` to \"key-2024\""),
        "{refused}"
    );
    assert!(host.terminate().success());

    let mut command = next.command(&["keys", "rotate"]);
    command.env("BBS_FAULT", format!("stop:{AFTER_ROTATION_PROOF}"));
    let mut rotating = Host::begin(command);
    rotating.until_stopped().await;
    let refused = former.fail(&retry);
    assert!(
        refused.contains("set `active_key_label` to \"other\""),
        "{refused}"
    );
    rotating.signal("CONT");
    assert!(rotating.wait().success(), "{:#?}", rotating.output());
    let restored = next.succeed(&retry);
    assert!(
        restored.contains("task  restored to its tables"),
        "{restored}"
    );
    let verified = next.succeed(&["keys", "verify", "--label", "key-2024"]);
    assert!(verified.contains("may be removed"), "{verified}");
}

on_each_database!(key_of_a_record_in_quarantine_is_in_use_until_the_record_is_re_sealed);
async fn key_of_a_record_in_quarantine_is_in_use_until_the_record_is_re_sealed(kind: Kind) {
    let Case { installation, host } = Case::with_a_task_in_quarantine(kind).await;
    let verify = ["keys", "verify", "--label", "other"];
    let refused = installation.fail(&verify);
    let inside = "values inside bbs_quarantine: 1 sealed texts are under \"other\"";
    assert!(refused.contains(inside), "{refused}");
    let status = installation.succeed(&["keys", "status"]);
    assert!(
        status.contains("put other back") && status.contains("inside records in quarantine"),
        "{status}"
    );
    assert!(host.terminate().success());

    let with_both = with_both_keys(&installation);
    let refused = with_both.fail(&verify);
    assert!(
        refused.contains(inside) && refused.contains("`bbs keys rotate` re-seals them"),
        "{refused}"
    );
    let tried = with_both.succeed(&["keys", "rotate", "--dry-run"]);
    assert!(tried.contains("1 rows would be re-sealed"), "{tried}");
    let rotated = with_both.succeed(&["keys", "rotate"]);
    assert!(rotated.contains("1 rows were re-sealed"), "{rotated}");
    let rotated = with_both.succeed(&["keys", "rotate"]);
    assert!(rotated.contains("Nothing to do"), "{rotated}");
    let verified = with_both.succeed(&verify);
    assert!(verified.contains("may be removed"), "{verified}");
    let restored = installation.succeed(&["migrate", "quarantine", "retry", "task"]);
    assert!(
        restored.contains("task  restored to its tables"),
        "{restored}"
    );
}

on_each_database!(
    instances_of_an_unreadable_desired_lrp_go_on_until_it_is_desired_again_or_removed
);
async fn instances_of_an_unreadable_desired_lrp_go_on_until_it_is_desired_again_or_removed(
    kind: Kind,
) {
    let mut case = Case::with_a_running_instance(kind).await;
    let other: proto::ActualLrpLifecycleResponse = case.host.call(START, &start(1, "b")).await;
    assert_eq!(other.error, None);
    let before = case.instances().await;
    let running = |index, container: &str| (index, "RUNNING".to_owned(), container.to_owned());
    assert_eq!(before, [running(0, "a"), running(1, "b")]);
    let by_guid = proto::DesiredLrpByProcessGuidRequest {
        process_guid: b"guid".to_vec(),
    };
    for is_desired_again in [true, false] {
        case.sql(&format!("UPDATE desired_lrps SET run_info = '{DAMAGED}'"))
            .await;
        case.host
            .call::<proto::DesiredLrpResponse>("/v1/desired_lrps/get_by_process_guid.r3", &by_guid)
            .await;
        case.await_quarantine("guid");
        case.await_convergence();
        let missing: proto::DesiredLrpResponse = case
            .host
            .call("/v1/desired_lrps/get_by_process_guid.r3", &by_guid)
            .await;
        assert_eq!(
            missing.error.unwrap().r#type(),
            proto::error::Type::ResourceNotFound
        );
        assert_eq!(case.instances().await, before, "they go on");
        if is_desired_again {
            case.desire().await;
            case.await_convergence();
            assert_eq!(
                case.instances().await,
                before,
                "they are those of the new one"
            );
            continue;
        }
        let remove = proto::RemoveDesiredLrpRequest {
            process_guid: b"guid".to_vec(),
        };
        let removed: proto::DesiredLrpLifecycleResponse =
            case.host.call("/v1/desired_lrp/remove", &remove).await;
        assert_eq!(removed.error, None);
        // They do not go on any longer; their cell is not present.
        case.await_convergence();
        assert_eq!(case.instances().await, []);
        let missing: proto::DesiredLrpLifecycleResponse =
            case.host.call("/v1/desired_lrp/remove", &remove).await;
        assert_eq!(
            missing.error.unwrap().r#type(),
            proto::error::Type::ResourceNotFound
        );
    }
    assert_eq!(case.quarantined().len(), 2);
    assert!(case.host.terminate().success());
}

on_each_database!(evacuated_instance_of_an_unreadable_desired_lrp_stays_until_it_is_desired_again);
async fn evacuated_instance_of_an_unreadable_desired_lrp_stays_until_it_is_desired_again(
    kind: Kind,
) {
    let mut case = Case::with_a_running_instance(kind).await;
    let before = case.instances().await;
    case.sql(&format!("UPDATE desired_lrps SET run_info = '{DAMAGED}'"))
        .await;
    let by_guid = proto::DesiredLrpByProcessGuidRequest {
        process_guid: b"guid".to_vec(),
    };
    case.host
        .call::<proto::DesiredLrpResponse>("/v1/desired_lrps/get_by_process_guid.r3", &by_guid)
        .await;
    case.await_quarantine("guid");
    assert!(case.evacuate().await, "the container is kept");
    assert_eq!(case.instances().await, before);

    case.desire().await;
    assert!(case.evacuate().await, "until its replacement runs");
    let state = |state: &str, container: &str| (0, state.to_owned(), container.to_owned());
    assert_eq!(
        case.instances().await[..2],
        [state("RUNNING", "a"), state("UNCLAIMED", "")]
    );
    assert!(case.host.terminate().success());
}

on_each_database!(instances_of_an_unreadable_desired_lrp_end_after_an_hour);
async fn instances_of_an_unreadable_desired_lrp_end_after_an_hour(kind: Kind) {
    let mut case = Case::with_a_running_instance(kind).await;
    let before = case.instances().await;
    case.sql(&format!("UPDATE desired_lrps SET run_info = '{DAMAGED}'"))
        .await;
    let by_guid = proto::DesiredLrpByProcessGuidRequest {
        process_guid: b"guid".to_vec(),
    };
    case.host
        .call::<proto::DesiredLrpResponse>("/v1/desired_lrps/get_by_process_guid.r3", &by_guid)
        .await;
    case.await_quarantine("guid");
    for (minutes, left) in [(59, &before[..]), (1, &[])] {
        let ns = minutes * 60 * 1_000_000_000_i64;
        case.sql(&format!("UPDATE bbs_quarantine SET at_ns = at_ns - {ns}"))
            .await;
        case.await_convergence();
        assert_eq!(case.instances().await, left);
    }
    let remove = proto::RemoveDesiredLrpRequest {
        process_guid: b"guid".to_vec(),
    };
    let removed: proto::DesiredLrpLifecycleResponse =
        case.host.call("/v1/desired_lrp/remove", &remove).await;
    assert_eq!(
        removed.error.unwrap().r#type(),
        proto::error::Type::ResourceNotFound
    );
    assert_eq!(
        case.quarantined().len(),
        1,
        "the record stays in quarantine"
    );
    assert!(case.host.terminate().success());
}

on_each_database!(desired_lrp_has_no_definition_of_one_in_quarantine);
/// Method: without instances, so that none is in the way when the LRP is desired again, by the host
/// that moved the record into quarantine and by the next one.
async fn desired_lrp_has_no_definition_of_one_in_quarantine(kind: Kind) {
    let Case {
        installation,
        mut host,
    } = Case::new(kind).await;
    let desired = proto::DesireLrpRequest {
        desired_lrp: Some(proto::DesiredLrp {
            definition_id: b"version-1".to_vec(),
            instances: 0,
            ..lrp("guid")
        }),
    };
    let updated = proto::UpdateDesiredLrpRequest {
        process_guid: b"guid".to_vec(),
        update: Some(proto::DesiredLrpUpdate {
            lrp_definition: Some(crate::lrp_updates::definition("version-2")),
            ..Default::default()
        }),
    };
    let by_guid = proto::DesiredLrpByProcessGuidRequest {
        process_guid: b"guid".to_vec(),
    };
    let listed = proto::LrpDefinitionsRequest {
        process_guid: b"guid".to_vec(),
    };
    let database = installation.database.open().await;
    for is_followed_by_another_host in [false, true, false] {
        let answer: proto::DesiredLrpLifecycleResponse =
            host.call("/v1.2/desired_lrp/desire.r2", &desired).await;
        assert_eq!(answer.error, None);
        let path = "/v1.2/desired_lrp/definitions/list";
        let answer: proto::LrpDefinitionsResponse = host.call(path, &listed).await;
        let ids = answer.definitions.into_iter().map(|archived| {
            let definition = archived.definition.unwrap_or_default();
            String::from_utf8(definition.definition_id).unwrap()
        });
        assert_eq!(ids.collect::<Vec<_>>(), ["version-1"]);
        let answer: proto::DesiredLrpLifecycleResponse =
            host.call("/v1.2/desired_lrp/update", &updated).await;
        assert_eq!(answer.error, None);
        let damage = format!("UPDATE desired_lrps SET run_info = '{DAMAGED}'");
        execute(&database, &damage).await;
        let path = "/v1/desired_lrps/get_by_process_guid.r3";
        host.call::<proto::DesiredLrpResponse>(path, &by_guid).await;
        host.wait_for_line(|line| line.contains("was moved into quarantine"));
        if is_followed_by_another_host {
            assert!(host.terminate().success());
            host = installation.serve();
        }
    }
    database.close().await;
    assert!(host.terminate().success());
}

on_each_database!(residue_of_a_desired_lrp_outlasts_its_quarantine);
/// Method: a migration has sorted placement tags, and saved the text that Diego's BBS wrote for
/// none.
async fn residue_of_a_desired_lrp_outlasts_its_quarantine(kind: Kind) {
    let modules = modules::modules_with_next_diego();
    let installation = Installation::of_small_diego(&modules, kind)
        .await
        .set("converge_repeat_interval", "100ms");
    let database = installation.database.open().await;
    let untagged = "SELECT MIN(process_guid) FROM desired_lrps WHERE placement_tags = 'null' AND instances > 0";
    let guid = texts(&database, untagged).await.remove(0);
    installation.succeed(&["migrate", "up"]);
    let row = format!("process_guid = '{guid}'");
    let value = async |column: &str| {
        let query = format!("SELECT {column} FROM desired_lrps WHERE {row}");
        texts(&database, &query).await.remove(0)
    };
    assert_eq!(value("placement_tags").await, "[]");
    let foreign = under_the_other_key(&value("run_info").await);
    let damage = format!("UPDATE desired_lrps SET run_info = '{foreign}' WHERE {row}");
    execute(&database, &damage).await;
    let mut host = installation.serve();
    let by_guid = proto::DesiredLrpByProcessGuidRequest {
        process_guid: guid.clone().into_bytes(),
    };
    let path = "/v1/desired_lrps/get_by_process_guid.r3";
    host.call::<proto::DesiredLrpResponse>(path, &by_guid).await;
    host.wait_for_line(|line| line.contains("was moved into quarantine") && line.contains(&guid));
    assert!(host.terminate().success());

    let installation = installation.set("encryption_keys", both_keys());
    let restored = installation.succeed(&["migrate", "quarantine", "retry", &guid]);
    assert!(restored.contains("restored to its tables"), "{restored}");
    installation.succeed(&["migrate", "down", "--to", &fixture::VERSION.to_string()]);
    assert_eq!(value("placement_tags").await, "null");
    database.close().await;
}

on_each_database!(many_unreadable_records_end_the_host_and_stay_where_they_are);
async fn many_unreadable_records_end_the_host_and_stay_where_they_are(kind: Kind) {
    let case = Case::new(kind).await;
    for guid in ["a", "b", "c"] {
        case.desire_task(guid).await;
    }
    case.sql(&format!("UPDATE tasks SET task_definition = '{DAMAGED}'"))
        .await;
    let Case { installation, host } = case;
    let (status, log) = host.wait_for_end();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(
        log.contains("3 of 3 records in tasks cannot be read") && log.contains("quarantine_limit"),
        "{log}"
    );
    let database = installation.database.open().await;
    assert_eq!(
        texts(&database, "SELECT guid FROM tasks ORDER BY guid").await,
        ["a", "b", "c"]
    );
    assert_eq!(
        texts(&database, "SELECT unit FROM bbs_quarantine").await,
        Vec::<String>::new()
    );
    database.close().await;
}
