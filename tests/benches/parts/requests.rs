//! Encoded request bodies of Diego's load: LRPs of Cloud Foundry's size, about 4.5 KB in the
//! database.

use bbs_proto::models as proto;
use bbs_proto::prost::Message;

const ENVIRONMENT: usize = 16;
const DOMAIN: &[u8] = b"cf-apps";

pub fn guid(at: u64) -> Vec<u8> {
    let mixed = at.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!(
        "{:08x}-{:04x}-4000-8000-{at:012x}",
        mixed >> 32,
        mixed & 0xffff
    )
    .into_bytes()
}

fn cell(at: u64) -> Vec<u8> {
    format!("cell-{at}").into_bytes()
}

/// The metric tags of an instance.
fn tags(at: u64) -> [(&'static str, Vec<u8>); 4] {
    [
        ("source_id", guid(at)),
        ("app_name", format!("app-{at}").into()),
        ("organization_id", noise(at % 100, 36)),
        ("space_id", noise(at % 1000, 36)),
    ]
}

/// Incompressible text, deterministic for `at`.
fn noise(at: u64, length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(at);
    std::iter::repeat_with(|| random.alphanumeric() as u8)
        .take(length)
        .collect()
}

/// Marks the domain as fresh without expiry.
pub fn keep_fresh() -> Vec<u8> {
    proto::UpsertDomainRequest {
        domain: DOMAIN.to_vec(),
        ttl: 0,
    }
    .encode_to_vec()
}

pub fn desire(at: u64) -> Vec<u8> {
    let run = proto::RunAction {
        path: b"/tmp/lifecycle/launcher".to_vec(),
        args: vec![b"app".to_vec(), Vec::new(), noise(at, 200)],
        user: b"vcap".to_vec(),
        env: (0..ENVIRONMENT)
            .map(|number| proto::EnvironmentVariable {
                name: format!("VARIABLE_{number}").into(),
                value: noise(at * ENVIRONMENT as u64 + number as u64, 110),
            })
            .collect(),
        ..Default::default()
    };
    let route = format!("[{{\"hostnames\":[\"app-{at}.apps.example.com\"],\"port\":8080}}]");
    let routes = vec![proto::RouteEntry {
        key: b"cf-router".to_vec(),
        value: route.into(),
    }];
    let lrp = proto::DesiredLrp {
        process_guid: guid(at),
        domain: DOMAIN.to_vec(),
        root_fs: b"preloaded:cflinuxfs4".to_vec(),
        instances: 1,
        memory_mb: 256,
        disk_mb: 1024,
        max_pids: 1024,
        cpu_weight: 5,
        ports: vec![8080, 2222],
        log_guid: guid(at),
        annotation: b"1700000000.0".to_vec(),
        action: Some(proto::Action {
            run_action: Some(run),
            ..Default::default()
        }),
        routes: Some(proto::ProtoRoutes { routes }),
        metric_tags: tags(at)
            .map(|(key, value)| {
                let value = proto::MetricTagValue {
                    r#static: value,
                    ..Default::default()
                };
                proto::MetricTagEntry {
                    key: key.into(),
                    value: Some(value),
                }
            })
            .to_vec(),
        ..Default::default()
    };
    proto::DesireLrpRequest {
        desired_lrp: Some(lrp),
    }
    .encode_to_vec()
}

fn key(at: u64) -> Option<proto::ActualLrpKey> {
    Some(proto::ActualLrpKey {
        process_guid: guid(at),
        index: 0,
        domain: DOMAIN.to_vec(),
    })
}

fn instance(at: u64, cell_at: u64) -> Option<proto::ActualLrpInstanceKey> {
    Some(proto::ActualLrpInstanceKey {
        instance_guid: format!("instance-{at:012}").into(),
        cell_id: cell(cell_at),
    })
}

pub fn claim(at: u64, cell_at: u64) -> Vec<u8> {
    let actual_lrp_instance_key = instance(at, cell_at);
    proto::ClaimActualLrpRequest {
        process_guid: guid(at),
        index: 0,
        actual_lrp_instance_key,
    }
    .encode_to_vec()
}

pub fn start(at: u64, cell_at: u64) -> Vec<u8> {
    let ports =
        [(8080, 61_000), (2222, 61_001)].map(|(container_port, host_port)| proto::PortMapping {
            container_port,
            host_port,
            ..Default::default()
        });
    let net_info = proto::ActualLrpNetInfo {
        address: b"10.0.16.4".to_vec(),
        instance_address: b"10.255.1.2".to_vec(),
        ports: ports.to_vec(),
        ..Default::default()
    };
    let request = proto::StartActualLrpRequest {
        actual_lrp_key: key(at),
        actual_lrp_instance_key: instance(at, cell_at),
        actual_lrp_net_info: Some(net_info),
        // All of them: convergence would push missing tags to each container.
        metric_tags: tags(at)
            .map(|(key, value)| proto::TextEntry {
                key: key.into(),
                value,
            })
            .to_vec(),
        routable: Some(true),
        availability_zone: b"z1".to_vec(),
        ..Default::default()
    };
    request.encode_to_vec()
}

pub fn of_cell(cell_at: u64) -> Vec<u8> {
    proto::ActualLrPsRequest {
        cell_id: cell(cell_at),
        ..Default::default()
    }
    .encode_to_vec()
}

pub fn remove(at: u64) -> Vec<u8> {
    proto::RemoveDesiredLrpRequest {
        process_guid: guid(at),
    }
    .encode_to_vec()
}

pub fn remove_instance(at: u64, cell_at: u64) -> Vec<u8> {
    let actual_lrp_instance_key = instance(at, cell_at);
    proto::RemoveActualLrpRequest {
        process_guid: guid(at),
        index: 0,
        actual_lrp_instance_key,
    }
    .encode_to_vec()
}
