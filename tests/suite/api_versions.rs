//! The API as an operator sees and pins it: `bbs api versions`, and releases that stand for a data
//! and an API version.

use serde_json::Value;

use crate::harness::database::Kind;
use crate::harness::host::{Host, Installation};
use crate::harness::modules::{copy_folder, modules};
use crate::harness::{http_client, until};

fn installation() -> Installation {
    Installation::new(&modules(), Kind::Sqlite)
}

fn versions(installation: &Installation) -> Vec<Value> {
    let json = installation.succeed(&["api", "versions", "--json"]);
    serde_json::from_str(&json).unwrap()
}

#[test]
fn versions_are_listed_with_their_modules_routes_and_ends() {
    let versions = versions(&installation());
    let named: Vec<_> = versions
        .iter()
        .map(|version| version["version"].as_str().unwrap())
        .collect();
    assert_eq!(named, ["1.2", "1.1", "1.0", "0.12", "0.11", "0.10", "0.9"]);
    let until: Vec<_> = versions
        .iter()
        .map(|version| version["deprecated_until"].as_str())
        .collect();
    assert_eq!(
        until,
        [
            None,
            None,
            Some("3.0"),
            Some("2.0"),
            Some("2.0"),
            Some("2.0"),
            Some("2.0")
        ]
    );
    assert!(versions.iter().all(|version| version["served"] == true));
    assert_eq!(
        (&versions[0]["module"], &versions[1]["module"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(versions[2]["module"]["file"], "1.0-to-1.1.wasm");
    assert_eq!(versions[2]["module"]["sha256"].as_str().unwrap().len(), 64);
    let has = |version: usize, name: &str, verb: &str, path: &str| {
        let methods = versions[version]["methods"].as_array().unwrap();
        let method = serde_json::json!({ "name": name, "verb": verb, "path": path });
        assert!(methods.contains(&method), "{method} is not in {methods:?}");
    };
    has(
        0,
        "DesiredLRPSchedulingInfos_r1",
        "POST",
        "desired_lrp_scheduling_infos/list.r1",
    );
    has(1, "DesiredLRPs_r3", "POST", "/v1/desired_lrps/list.r3");
    has(2, "EventStream", "GET", "/v1/events");
    has(6, "ListDesiredLRPs_0_9", "POST", "desired_lrps/list");

    let folder = modules();
    let text = crate::harness::command()
        .args(["api", "versions"])
        .arg(folder)
        .output()
        .unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    for line in [
        "1.2  this host\n",
        "1.1  this host\n",
        "1.0  1.0-to-1.1.wasm, deprecated: until API 3.0\n",
        "  GET  /v1/events  EventStream\n",
        "  without DesiredLRPs_r3\n",
    ] {
        assert!(text.contains(line), "{line:?} is not in {text}");
    }
}

#[test]
fn versions_above_a_pin_are_listed_as_not_served() {
    let versions = versions(&installation().set("pin_api_version", "0.12"));
    let served = versions.iter().filter(|version| version["served"] == true);
    let served: Vec<_> = served
        .map(|version| version["version"].as_str().unwrap())
        .collect();
    assert_eq!(served, ["0.12", "0.11", "0.10", "0.9"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn pinned_release_stands_for_a_data_and_an_api_version() {
    let folder = tempfile::tempdir().unwrap();
    copy_folder(&modules(), folder.path());
    let releases = "[[release]]\nname = \"older\"\ndata = 1772581987\napi = \"0.10\"\n";
    std::fs::write(folder.path().join("releases.toml"), releases).unwrap();
    let installation = Installation::new(folder.path(), Kind::Sqlite);
    let host = Host::start(
        installation.command(&["serve", "--pin-release", "older"]),
        "serving",
    );
    for (path, status) in [("v0.10/ping", 200), ("v0.11/ping", 406), ("v1/ping", 200)] {
        let reply = http_client()
            .post(host.url(&format!("/{path}")))
            .send()
            .await
            .unwrap();
        assert_eq!(reply.status().as_u16(), status, "{path}");
    }
    let next = "Next       nothing: the host serves with the pin 1772581987.";
    until(|| installation.succeed(&["migrate", "status"]).contains(next)).await;
    let status = installation.status();
    assert_eq!(
        (
            &status["host"]["pin_data_version"],
            &status["pin_data_version"]
        ),
        (&1_772_581_987.into(), &serde_json::Value::Null)
    );
    host.end().await;
    let status = installation.status();
    assert_eq!(
        status["found"]["versioned"]["current"], 1_772_581_987,
        "{status}"
    );

    for (installation, words) in [
        (
            installation
                .set("pin_release", "older")
                .set("pin_api_version", "0.10"),
            "leave out either `pin_release`",
        ),
        (
            Installation::new(folder.path(), Kind::Sqlite).set("pin_release", "newer"),
            "the modules have no release \"newer\": they have older",
        ),
    ] {
        let output = installation.run(&["serve"]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(2) && errors.contains(words),
            "{errors}"
        );
    }
}

/// Goal: each release that is shipped with the default modules can be pinned.
#[test]
fn releases_of_the_default_modules_can_be_pinned() {
    let text = std::fs::read_to_string(modules().join("releases.toml")).unwrap();
    let names: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("name = "))
        .collect();
    assert!(names.len() >= 2, "{text}");
    for name in names {
        let host = installation()
            .set("pin_release", name.trim_matches('"'))
            .serve();
        assert!(host.terminate().success(), "{name}");
    }
}
