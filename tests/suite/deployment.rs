//! The host as BOSH deploys it, with Diego's own configuration: requirements of a start,
//! authentication of clients, logs and metrics, and termination.

mod auctioneer;
mod callbacks;
mod lifecycle;
mod logs;
mod metrics;
mod paths;
mod proxies;
mod reload;
mod tls;

use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};

use bbs_proto::models as proto;
use bbs_proto::prost::Message;

use crate::harness::database::{Kind, on_each_server};
use crate::harness::deployment::{Deployment, call};
use crate::harness::host::Host;
use crate::harness::output::text;
use crate::harness::ports::free_address;

/// Whether the API answers a ping of this client.
async fn ping(client: &reqwest::Client, address: SocketAddr) -> Result<bool, reqwest::Error> {
    let response = client
        .post(format!("https://{address}/v1/ping"))
        .send()
        .await?;
    let body = response.bytes().await?;
    Ok(proto::PingResponse::decode(&body[..]).is_ok_and(|answer| answer.available))
}

async fn upsert_domain(client: &reqwest::Client, address: SocketAddr, domain: &str) {
    let request = proto::UpsertDomainRequest {
        domain: domain.into(),
        ttl: 0,
    };
    let answer: proto::UpsertDomainResponse =
        call(client, address, "domains/upsert", &request).await;
    assert_eq!(answer.error, None);
}

on_each_server!(diegos_configuration_starts_the_host);
async fn diegos_configuration_starts_the_host(kind: Kind) {
    let deployment = Deployment::new(kind);
    let host = deployment.serve().await;
    let client = deployment.client();
    assert!(ping(&client, host.address).await.unwrap());
    upsert_domain(&client, host.address, "cf-apps").await;
    assert_eq!(
        deployment.locket.holder().as_deref(),
        Some("5bba2cb1-0d1f-4b2c-8f0b-2a6ee6a1c8f3")
    );
    let healthy = reqwest::get(format!("http://{}/ping", deployment.health))
        .await
        .unwrap();
    assert!(healthy.status().is_success() && healthy.bytes().await.unwrap().is_empty());
    let status = tokio::task::spawn_blocking(move || host.terminate())
        .await
        .unwrap();
    assert_eq!(status.code(), Some(0));
    assert_eq!(deployment.locket.holder(), None, "the lock was released");
    assert!(
        reqwest::get(format!("http://{}/ping", deployment.health))
            .await
            .is_err()
    );
}

/// Diego's own code writes zero values as null, at every depth.
#[tokio::test(flavor = "multi_thread")]
async fn null_values_within_configuration_sections_are_accepted() {
    let routes = serde_json::json!({ "request_count": null, "request_latency": null });
    let deployment = Deployment::new(Kind::Sqlite)
        .set(
            "advanced_metrics",
            serde_json::json!({ "enabled": false, "route_config": routes }),
        )
        .set("redact_patterns", serde_json::Value::Null)
        .set_loggregator(
            "loggregator_app_metric_exclusion_filter",
            serde_json::Value::Null,
        )
        .set_loggregator("BatchFlushInterval", 0);
    let host = deployment.serve().await;
    assert!(ping(&deployment.client(), host.address).await.unwrap());
    let status = tokio::task::spawn_blocking(move || host.terminate())
        .await
        .unwrap();
    assert_eq!(status.code(), Some(0));
}

/// Runs a deployment's host with another configuration, which has to end it with 2; returns its
/// output.
async fn rejected(deployment: &Deployment, config: &str) -> String {
    let mut command = deployment.command();
    std::fs::write(deployment.path("config/bbs.json"), config).unwrap();
    let output = tokio::task::spawn_blocking(move || command.output().unwrap())
        .await
        .unwrap();
    let message = text(&output);
    assert_eq!(output.status.code(), Some(2), "{config}: {message}");
    message
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_or_invalid_configuration_ends_the_host_with_2_and_names_the_key() {
    let deployment = Deployment::new(Kind::Sqlite);
    // Writes the valid configuration.
    deployment.command();
    let valid = std::fs::read(deployment.path("config/bbs.json")).unwrap();
    let valid: serde_json::Value = serde_json::from_slice(&valid).unwrap();
    for key in [
        "auctioneer_address",
        "ca_file",
        "cert_file",
        "health_address",
        "key_file",
        "locket_address",
        "uuid",
    ] {
        let mut config = valid.clone();
        let removed = config.as_object_mut().unwrap().remove(key);
        assert!(removed.is_some(), "the sample has no {key}");
        let output = rejected(&deployment, &config.to_string()).await;
        assert!(output.contains(key), "{key}: {output}");
    }
    for (key, value, word) in [
        ("communication_timeout", "10", "write a duration"),
        ("log_level", "loud", "write \"debug\""),
        ("health_address", "bbs:http", "write it as IP:port"),
        ("active_key_label", "another", "another"),
        ("redact_patterns", "(", "redact_patterns"),
        ("database_driver", "oracle", "oracle"),
        ("locket_address", "127.0.0.1:1", "cannot connect to Locket"),
        ("pin_data_versoin", "1722634733", "write `pin_data_version`"),
        (
            "cert_file",
            "/nonexistent/server.crt",
            "/nonexistent/server.crt",
        ),
        (
            "auctioneer_client_cert",
            "/nonexistent/client.crt",
            "/nonexistent/client.crt",
        ),
        ("rep_ca_cert", "/nonexistent/ca.crt", "/nonexistent/ca.crt"),
    ] {
        let mut config = valid.clone();
        config[key] = value.into();
        if key == "redact_patterns" {
            config[key] = vec![value].into();
            config["redact_secrets"] = true.into();
        }
        let output = rejected(&deployment, &config.to_string()).await;
        assert!(output.contains(word), "{key}: {output}");
    }
    rejected(&deployment, "{").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn occupied_addresses_and_unwritable_files_end_the_start_with_2() {
    let occupied = TcpListener::bind("127.0.0.1:0").unwrap();
    let occupied = occupied
        .local_addr()
        .map(|address| (address, occupied))
        .unwrap();
    for key in ["listen_address", "health_address", "debug_address"] {
        let (code, output) = Deployment::new(Kind::Sqlite)
            .set(key, occupied.0.to_string())
            .fail()
            .await;
        assert!(
            code == Some(2) && output.contains(&format!("the `{key}`; stop")),
            "{key}: {code:?} {output}"
        );
    }
    let (code, output) = Deployment::new(Kind::Sqlite)
        .set("access_log_path", "/nonexistent/access.log")
        .fail()
        .await;
    assert!(
        code == Some(2) && output.contains("/nonexistent/access.log"),
        "{code:?} {output}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn host_without_certificates_listens_only_on_loopback() {
    let keys = ["ca_file", "cert_file", "key_file", "auctioneer_address"];
    let without_tls = || {
        keys.iter()
            .fold(Deployment::new(Kind::Sqlite), |deployment, key| {
                deployment.without(key)
            })
    };
    let (code, output) = without_tls()
        .set("listen_address", "0.0.0.0:0")
        .fail()
        .await;
    assert!(
        code == Some(2) && output.contains("listen on 127.0.0.1"),
        "{code:?} {output}"
    );
    let deployment = without_tls();
    let host = deployment.serve().await;
    host.ping().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn address_of_no_interface_serves_both_families_and_logs_ipv4_as_such() {
    let api = free_address();
    let health = free_address();
    let everywhere = |address: SocketAddr| format!("0.0.0.0:{}", address.port());
    let deployment = Deployment::new(Kind::Sqlite)
        .set("listen_address", everywhere(api))
        .set("health_address", everywhere(health));
    let command = deployment.command();
    let begun = tokio::task::spawn_blocking(move || {
        let mut host = Host::begin(command);
        host.wait_for_line(|line| line.contains("bbs.started"));
        host
    });
    let host = begun.await.unwrap();
    assert!(ping(&deployment.client(), api).await.unwrap());
    // A machine may be without IPv6.
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
        TcpStream::connect((Ipv6Addr::LOCALHOST, api.port())).expect("the API accepts IPv6");
        let url = format!("http://[::1]:{}/ping", health.port());
        assert!(reqwest::get(url).await.unwrap().status().is_success());
    }
    let status = tokio::task::spawn_blocking(move || host.terminate())
        .await
        .unwrap();
    assert!(status.success());
    let logged = std::fs::read_to_string(deployment.path("access.log")).unwrap();
    let client = r#""remote_addr":"127.0.0.1:"#;
    assert!(
        !logged.is_empty() && logged.lines().all(|line| line.contains(client)),
        "{logged}"
    );
}
