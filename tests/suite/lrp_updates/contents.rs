//! The content of a definition, field by field.

use super::*;
use crate::harness::layouts::on_each_layout;

fn text_entry(key: &str, value: &str) -> proto::TextEntry {
    proto::TextEntry {
        key: key.into(),
        value: value.into(),
    }
}

fn file() -> proto::File {
    proto::File {
        path: b"/file".to_vec(),
        content: b"content".to_vec(),
    }
}

fn action(path: &str) -> Option<proto::Action> {
    let run = proto::RunAction {
        path: path.into(),
        args: vec![b"-v".to_vec()],
        user: b"vcap".to_vec(),
        volume_mounted_files: vec![file()],
        ..Default::default()
    };
    Some(proto::Action {
        run_action: Some(run),
        ..Default::default()
    })
}

fn check_definition() -> proto::CheckDefinition {
    let tcp = proto::TcpCheck {
        port: 8080,
        connect_timeout_ms: 1,
        interval_ms: 2,
    };
    let http = proto::HttpCheck {
        port: 8080,
        request_timeout_ms: 1,
        path: b"/up".to_vec(),
        interval_ms: 2,
    };
    proto::CheckDefinition {
        checks: vec![proto::Check {
            tcp_check: Some(tcp),
            ..Default::default()
        }],
        log_source: b"HEALTH".to_vec(),
        readiness_checks: vec![proto::Check {
            http_check: Some(http),
            ..Default::default()
        }],
    }
}

fn egress_rule() -> proto::SecurityGroupRule {
    proto::SecurityGroupRule {
        protocol: b"tcp".to_vec(),
        destinations: vec![b"10.0.0.0/8".to_vec()],
        ports: vec![53],
        log: true,
        annotations: vec![b"dns".to_vec()],
        ..Default::default()
    }
}

fn dependency() -> proto::CachedDependency {
    proto::CachedDependency {
        name: b"buildpack".to_vec(),
        from: b"http://source".to_vec(),
        to: b"/buildpack".to_vec(),
        cache_key: b"key".to_vec(),
        log_source: b"CACHE".to_vec(),
        checksum_algorithm: b"sha256".to_vec(),
        checksum_value: b"digest".to_vec(),
    }
}

fn layer() -> proto::ImageLayer {
    proto::ImageLayer {
        name: b"droplet".to_vec(),
        url: b"http://droplet".to_vec(),
        destination_path: b"/home".to_vec(),
        layer_type: proto::image_layer::Type::Exclusive.into(),
        media_type: proto::image_layer::MediaType::Tgz.into(),
        digest_algorithm: proto::image_layer::DigestAlgorithm::Sha256.into(),
        digest_value: b"digest".to_vec(),
    }
}

fn mount() -> proto::VolumeMount {
    let shared = proto::SharedDevice {
        volume_id: b"volume".to_vec(),
        mount_config: b"{}".to_vec(),
    };
    proto::VolumeMount {
        driver: b"nfs".to_vec(),
        container_dir: b"/data".to_vec(),
        mode: b"rw".to_vec(),
        shared: Some(shared),
        ..Default::default()
    }
}

/// Has a value in every field; a new field has to be added here.
fn whole_definition() -> proto::LrpDefinition {
    proto::LrpDefinition {
        definition_id: b"whole".to_vec(),
        root_fs: b"docker:///image".to_vec(),
        environment_variables: vec![proto::EnvironmentVariable {
            name: b"A".to_vec(),
            value: b"1".to_vec(),
        }],
        setup: action("/setup"),
        action: action("/app"),
        // No BBS stores it.
        deprecated_start_timeout_s: 0,
        monitor: action("/monitor"),
        disk_mb: 11,
        memory_mb: 12,
        cpu_weight: 13,
        privileged: true,
        ports: vec![8080, 2222],
        log_source: b"APP".to_vec(),
        log_guid: b"log".to_vec(),
        metrics_guid: b"source".to_vec(),
        egress_rules: vec![egress_rule()],
        cached_dependencies: vec![dependency()],
        legacy_download_user: b"vcap".to_vec(),
        trusted_system_certificates_path: b"/certificates".to_vec(),
        volume_mounts: vec![mount()],
        network: Some(proto::Network {
            properties: vec![text_entry("app_id", "app")],
        }),
        start_timeout_ms: 14,
        placement_tags: vec![b"gpu".to_vec()],
        max_pids: 15,
        certificate_properties: Some(proto::CertificateProperties {
            organizational_unit: vec![b"app:1".to_vec()],
        }),
        image_username: b"user".to_vec(),
        image_password: b"password".to_vec(),
        check_definition: Some(check_definition()),
        image_layers: vec![layer()],
        metric_tags: vec![tag("source_id", "source"), tag("space", "dev")],
        sidecars: vec![proto::Sidecar {
            action: action("/sidecar"),
            disk_mb: 16,
            memory_mb: 17,
        }],
        log_rate_limit: Some(proto::LogRateLimit {
            bytes_per_second: 18,
        }),
        volume_mounted_files: vec![file()],
    }
}

async fn current(server: &Server) -> proto::LrpDefinition {
    proto::LrpDefinition::from(&get(server, "guid").await)
}

async fn archived(server: &Server, id: &str) -> Option<proto::LrpDefinition> {
    let request = proto::LrpDefinitionsRequest {
        process_guid: b"guid".to_vec(),
    };
    let answer: proto::LrpDefinitionsResponse = server
        .call("/v1.2/desired_lrp/definitions/list", &request)
        .await
        .message();
    let mut listed = answer
        .definitions
        .into_iter()
        .filter_map(|archived| archived.definition);
    listed.find(|definition| definition.definition_id == id.as_bytes())
}

on_each_layout!(whole_definition_is_updated_archived_and_rolled_back_to);
async fn whole_definition_is_updated_archived_and_rolled_back_to(kind: Kind) {
    let server = running(kind, 0).await;
    let seconds = proto::LrpDefinition {
        deprecated_start_timeout_s: 9,
        ..whole_definition()
    };
    assert_eq!(update(&server, to(seconds)).await, None);
    until_done(&server).await;
    assert_eq!(current(&server).await, whole_definition());
    assert_eq!(archived(&server, "whole").await, Some(whole_definition()));
    update_to(&server, "version-2").await;
    until_done(&server).await;
    let kept = proto::LrpDefinition {
        metrics_guid: b"source".to_vec(),
        ..definition("version-2")
    };
    assert_eq!(current(&server).await, kept, "what is left out is deleted");
    assert_eq!(archived(&server, "whole").await, Some(whole_definition()));
    assert_eq!(roll_back(&server, "whole").await, None);
    until_done(&server).await;
    assert_eq!(current(&server).await, whole_definition());
}
