//! Diego's JSON form of messages.

use serde_json::{Value, json};

use crate as bbs_client;
use crate::json::{JsonError, from_value, to_value};
use crate::models::{self, actual_lrp::Presence};

#[test]
fn example_of_the_documentation_succeeds() -> Result<(), JsonError> {
    use bbs_client::{json, models};

    let run = serde_json::json!({ "path": "/bin/true", "user": "me" });
    let value = serde_json::json!({ "process_guid": "hello", "action": { "run": run } });
    let lrp: models::DesiredLrp = json::from_value(value)?;
    let action = lrp.action.unwrap();
    assert_eq!(action.run_action.unwrap().path, b"/bin/true");
    Ok(())
}

/// The presence of a cell as Diego's components write it to Locket.
#[test]
fn presence_of_a_cell_has_diegos_form() {
    let form = json!({
        "cell_id": "c", "rep_address": "http://..", "zone": "z1",
        "capacity": { "memory_mb": 1, "disk_mb": 1, "containers": 1 },
        "rootfs_provider_list": [{ "name": "preloaded", "properties": ["cflinuxfs4"] }, { "name": "docker" }],
        "placement_tags": ["t"], "optional_placement_tags": ["o"], "rep_url": "https://..", "annotations": {},
    });
    let cell: models::CellPresence = from_value(form.clone()).unwrap();
    assert_eq!(
        cell.rootfs_providers[0].properties,
        [b"cflinuxfs4".to_vec()]
    );
    assert_eq!(to_value(&cell), form);
}

#[test]
fn instance_has_the_keys_of_its_parts_and_its_presence_by_name() {
    let instance = models::ActualLrp {
        actual_lrp_key: Some(models::ActualLrpKey {
            process_guid: b"p".to_vec(),
            index: 2,
            domain: b"d".to_vec(),
        }),
        state: b"RUNNING".to_vec(),
        since: i64::MAX,
        presence: Presence::Suspect.into(),
        routable: Some(false),
        ..Default::default()
    };
    let form = to_value(&instance);
    assert_eq!(
        form,
        json!({
            "process_guid": "p", "index": 2, "domain": "d", "instance_guid": "", "cell_id": "", "address": "",
            "ports": null, "preferred_address": "UNKNOWN", "crash_count": 0, "state": "RUNNING", "since": i64::MAX,
            "modification_tag": null, "presence": "SUSPECT", "OptionalRoutable": { "routable": false },
            "availability_zone": "",
        })
    );
    let again: models::ActualLrp = from_value(form).unwrap();
    assert_eq!(
        (again.presence, again.routable, again.since),
        (instance.presence, Some(false), i64::MAX)
    );
}

#[test]
fn invalid_utf8_is_replaced_byte_by_byte_as_in_go() {
    let instance = models::ActualLrp {
        crash_reason: b"cut \xe2\x80".to_vec(),
        ..Default::default()
    };
    assert_eq!(to_value(&instance)["crash_reason"], "cut \u{fffd}\u{fffd}");
}

#[test]
fn task_has_the_fields_of_its_definition_beside_its_own() {
    let form = json!({
        "task_guid": "t", "domain": "d", "rootfs": "preloaded:cflinuxfs4", "result_file": "/result",
        "action": { "serial": { "actions": [
            { "run": { "path": "/bin/true", "user": "me", "resource_limits": { "nofile": 0 } } },
            { "try": { "action": { "run": { "path": "/bin/false", "user": "me" } } } },
        ] } },
        "metric_tags": { "source_id": { "static": "t" }, "index": { "dynamic": "INDEX" } },
    });
    let task: models::Task = from_value(form).unwrap();
    let definition = task.task_definition.clone().unwrap();
    assert_eq!(
        (&*task.task_guid, &*definition.result_file),
        (&b"t"[..], &b"/result"[..])
    );
    let actions = definition.action.unwrap().serial_action.unwrap().actions;
    let limits = actions[0]
        .run_action
        .as_ref()
        .unwrap()
        .resource_limits
        .unwrap();
    assert_eq!((limits.nofile, limits.nproc), (Some(0), None));
    assert_eq!(from_value::<models::Task>(to_value(&task)).unwrap(), task);
    assert_eq!(to_value(&task)["state"], "Invalid");
}

#[test]
fn routes_are_json_and_an_update_keeps_absent_and_empty_apart() {
    let form = json!({ "instances": 0, "routes": { "cf-router": [{ "hostnames": ["a.example.com"], "port": 8080 }] } });
    let update: models::DesiredLrpUpdate = from_value(form.clone()).unwrap();
    assert_eq!((update.instances, &update.annotation), (Some(0), &None));
    let routes = &update.routes.as_ref().unwrap().routes;
    assert_eq!(
        routes[0].value,
        br#"[{"hostnames":["a.example.com"],"port":8080}]"#
    );
    assert_eq!(to_value(&update), form);
    let cleared: models::DesiredLrpUpdate = from_value(json!({ "routes": {} })).unwrap();
    assert_eq!(cleared.routes, Some(models::ProtoRoutes::default()));
}

#[test]
fn fields_that_are_not_diegos_are_omitted_from_diegos_messages() {
    let Value::Object(form) = to_value(&models::DesiredLrp::default()) else {
        panic!("an object")
    };
    for key in ["definition_id", "previous_definition_id"] {
        assert!(!form.contains_key(key), "{key}");
    }
    assert_eq!(form["env"], Value::Null);
    assert_eq!(form["update_strategy"], 0);
    let lrp: models::DesiredLrp = from_value(json!({ "update_strategy": "RECREATE" })).unwrap();
    assert_eq!(lrp.update_strategy, 1);
}

#[test]
fn faults_name_the_place_and_the_expected_value() {
    for (form, expected) in [
        (json!([]), "[] is not an object"),
        (
            json!({ "instnaces": 3 }),
            "there is no field \"instnaces\"; there is \"instances\"",
        ),
        (json!({ "qqq": 3 }), "there is no field \"qqq\""),
        (
            json!({ "process_guid": 7 }),
            "process_guid: 7 is not a text; put it in quotes",
        ),
        (
            json!({ "instances": 3.5 }),
            "instances: 3.5 is not a whole number of 32 bits",
        ),
        (
            json!({ "instances": 3_000_000_000_u32 }),
            "instances: 3000000000 is not a whole number of 32 bits",
        ),
        (
            json!({ "cpu_weight": -1 }),
            "cpu_weight: -1 is not a whole number from 0 of 32 bits",
        ),
        (
            json!({ "privileged": "yes" }),
            "privileged: \"yes\" is not true or false",
        ),
        (json!({ "ports": 8080 }), "ports: 8080 is not a list"),
        (
            json!({ "ports": [8080, "x"] }),
            "ports.1: \"x\" is not a whole number from 0 of 32 bits",
        ),
        (
            json!({ "metric_tags": [] }),
            "metric_tags: [] is not an object",
        ),
        (
            json!({ "metric_tags": { "a": { "dynamic": "WHERE" } } }),
            "metric_tags.a.dynamic: \"WHERE\" is none of DynamicValueInvalid, INDEX, INSTANCE_GUID",
        ),
        (
            json!({ "action": { "run": { "path": "/bin/true", "usr": "me" } } }),
            "action.run: there is no field \"usr\"; there is \"user\"",
        ),
    ] {
        assert_eq!(
            from_value::<models::DesiredLrp>(form)
                .unwrap_err()
                .to_string(),
            expected
        );
    }
}

/// Every desired LRP and task that the vectors of Diego's BBS have.
#[test]
fn messages_of_diego_survive_their_json_form() {
    use base64::Engine;
    use bbs_proto::prost::Message;

    let vectors = include_str!("../../../../tests/vectors/revisions.tsv");
    let mut tried = 0;
    for line in vectors.lines().skip(1) {
        let columns: Vec<_> = line.split('\t').collect();
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(columns[2])
            .unwrap();
        match columns[1] {
            "DesiredLRP" => {
                let lrp = models::DesiredLrp::decode(&bytes[..]).unwrap();
                assert_eq!(
                    from_value::<models::DesiredLrp>(to_value(&lrp)).unwrap(),
                    lrp,
                    "{}",
                    columns[0]
                );
                tried += 1;
            }
            "Task" => {
                let mut task = models::Task::decode(&bytes[..]).unwrap();
                // Always there in the form, as in every answer.
                task.task_definition.get_or_insert_default();
                assert_eq!(
                    from_value::<models::Task>(to_value(&task)).unwrap(),
                    task,
                    "{}",
                    columns[0]
                );
                tried += 1;
            }
            _ => {}
        }
    }
    assert!(tried > 10, "{tried}");
}
