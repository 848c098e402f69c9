//! Generated valid records: what a client of a version writes, it reads back equal.

use fastrand::Rng;

use super::client::ClientVersion::{V0_12, V1_1};
use super::*;

/// Records of each kind at each version.
const GENERATED: usize = 60;
const SEED: u64 = 20_180_228;

/// A text of 1 to 8 characters, some of them outside of ASCII.
fn word(random: &mut Rng) -> Vec<u8> {
    let character = |random: &mut Rng| {
        if random.u8(..8) == 0 {
            'ü'
        } else {
            random.alphanumeric()
        }
    };
    let text: String = (0..random.usize(1..=8))
        .map(|_| character(random))
        .collect();
    text.into_bytes()
}

fn text(random: &mut Rng) -> Vec<u8> {
    if random.u8(..4) == 0 {
        Vec::new()
    } else {
        word(random)
    }
}

fn some<T>(random: &mut Rng, most: usize, one: impl Fn(&mut Rng) -> T) -> Vec<T> {
    (0..random.usize(..=most)).map(|_| one(random)).collect()
}

fn maybe<T>(random: &mut Rng, one: impl Fn(&mut Rng) -> T) -> Option<T> {
    random.bool().then(|| one(random))
}

/// Names that differ, in order.
fn names(random: &mut Rng, most: usize) -> Vec<Vec<u8>> {
    (0..random.usize(..=most))
        .map(|number| format!("name-{number}").into_bytes())
        .collect()
}

fn variable(random: &mut Rng) -> proto::EnvironmentVariable {
    proto::EnvironmentVariable {
        name: word(random),
        value: text(random),
    }
}

fn file(random: &mut Rng) -> proto::File {
    proto::File {
        path: word(random),
        content: text(random),
    }
}

/// An algorithm and a value, or neither.
fn checksum(random: &mut Rng) -> (Vec<u8>, Vec<u8>) {
    let algorithms = ["md5", "sha1", "SHA256"];
    if random.bool() {
        (random.choice(algorithms).unwrap().into(), word(random))
    } else {
        (Vec::new(), Vec::new())
    }
}

fn leaf(random: &mut Rng) -> proto::Action {
    let mut action = proto::Action::default();
    match random.u8(..3) {
        0 => {
            let (checksum_algorithm, checksum_value) = checksum(random);
            let (artifact, from, to, cache_key) =
                (text(random), word(random), word(random), text(random));
            let log_source = text(random);
            let user = word(random);
            let download = proto::DownloadAction {
                artifact,
                from,
                to,
                cache_key,
                log_source,
                user,
                checksum_algorithm,
                checksum_value,
            };
            action.download_action = Some(download);
        }
        1 => {
            let artifact = text(random);
            let from = word(random);
            let to = word(random);
            let log_source = text(random);
            let user = word(random);
            action.upload_action = Some(proto::UploadAction {
                artifact,
                from,
                to,
                log_source,
                user,
            });
        }
        _ => {
            let run = proto::RunAction {
                path: word(random),
                args: some(random, 3, text),
                dir: text(random),
                env: some(random, 2, variable),
                resource_limits: maybe(random, |random| proto::ResourceLimits {
                    nofile: maybe(random, |random| random.u64(..9)),
                    nproc: maybe(random, |random| random.u64(..9)),
                }),
                user: word(random),
                log_source: text(random),
                suppress_log_output: random.bool(),
                volume_mounted_files: some(random, 1, file),
            };
            action.run_action = Some(run);
        }
    }
    action
}

/// A valid action with one alternative.
fn action(random: &mut Rng, depth: usize) -> proto::Action {
    if depth == 0 || random.u8(..3) == 0 {
        return leaf(random);
    }
    let inner = Some(Box::new(action(random, depth - 1)));
    let mut outer = proto::Action::default();
    let log_source = text(random);
    let actions: Vec<_> = (0..random.usize(1..4))
        .map(|_| action(random, depth - 1))
        .collect();
    match random.u8(..6) {
        0 => {
            let timeout_ms = random.i64(1..1_000_000);
            let timeout = proto::TimeoutAction {
                action: inner,
                deprecated_timeout_ns: 0,
                log_source,
                timeout_ms,
            };
            outer.timeout_action = Some(Box::new(timeout));
        }
        1 => {
            let start_message = text(random);
            let progress = proto::EmitProgressAction {
                action: inner,
                start_message,
                log_source,
                ..Default::default()
            };
            outer.emit_progress_action = Some(Box::new(progress));
        }
        2 => {
            outer.try_action = Some(Box::new(proto::TryAction {
                action: inner,
                log_source,
            }))
        }
        3 => {
            outer.parallel_action = Some(proto::ParallelAction {
                actions,
                log_source,
            })
        }
        4 => {
            outer.serial_action = Some(proto::SerialAction {
                actions,
                log_source,
            })
        }
        _ => {
            outer.codependent_action = Some(proto::CodependentAction {
                actions,
                log_source,
            })
        }
    }
    outer
}

fn dependency(random: &mut Rng) -> proto::CachedDependency {
    let (checksum_algorithm, checksum_value) = checksum(random);
    proto::CachedDependency {
        name: text(random),
        from: word(random),
        to: word(random),
        cache_key: text(random),
        log_source: text(random),
        checksum_algorithm,
        checksum_value,
    }
}

fn layer(random: &mut Rng) -> proto::ImageLayer {
    let has_digest = random.bool();
    proto::ImageLayer {
        name: text(random),
        url: word(random),
        destination_path: word(random),
        // Shared, or exclusive, which needs a digest.
        layer_type: if has_digest { random.i32(1..3) } else { 1 },
        media_type: random.i32(1..4),
        digest_algorithm: if has_digest { random.i32(1..3) } else { 0 },
        digest_value: if has_digest { word(random) } else { Vec::new() },
    }
}

fn rule(random: &mut Rng) -> proto::SecurityGroupRule {
    let is_tcp = random.bool();
    proto::SecurityGroupRule {
        protocol: if is_tcp {
            b"tcp".to_vec()
        } else {
            b"all".to_vec()
        },
        destinations: vec![b"10.0.0.0/8".to_vec()],
        ports: if is_tcp {
            vec![random.u32(1..65_536)]
        } else {
            Vec::new()
        },
        log: random.bool(),
        ..Default::default()
    }
}

fn mount(random: &mut Rng) -> proto::VolumeMount {
    let shared = proto::SharedDevice {
        volume_id: word(random),
        mount_config: b"{}".to_vec(),
    };
    let mode = if random.bool() {
        b"r".to_vec()
    } else {
        b"rw".to_vec()
    };
    proto::VolumeMount {
        driver: word(random),
        container_dir: text(random),
        mode,
        shared: Some(shared),
        dedicated: None,
    }
}

fn network(random: &mut Rng) -> proto::Network {
    let properties = names(random, 2).into_iter().map(|key| proto::TextEntry {
        key,
        value: word(random),
    });
    proto::Network {
        properties: properties.collect(),
    }
}

fn properties(random: &mut Rng) -> proto::CertificateProperties {
    proto::CertificateProperties {
        organizational_unit: some(random, 2, text),
    }
}

/// A name and a password, or neither.
fn credentials(random: &mut Rng) -> [Vec<u8>; 2] {
    if random.bool() {
        [word(random), word(random)]
    } else {
        [Vec::new(), Vec::new()]
    }
}

/// Tags of which one is `source_id`, which Diego requires to equal the metrics guid.
fn tags(random: &mut Rng, metrics_guid: &[u8]) -> Vec<proto::MetricTagEntry> {
    let source = proto::MetricTagValue {
        r#static: metrics_guid.to_vec(),
        ..Default::default()
    };
    let others = names(random, 2).into_iter().map(|key| {
        let is_dynamic = random.bool();
        let (fixed, dynamic) = if is_dynamic {
            (Vec::new(), random.i32(1..3))
        } else {
            (word(random), 0)
        };
        proto::MetricTagEntry {
            key,
            value: Some(proto::MetricTagValue {
                r#static: fixed,
                dynamic,
            }),
        }
    });
    others
        .chain([proto::MetricTagEntry {
            key: b"source_id".to_vec(),
            value: Some(source),
        }])
        .collect()
}

fn routes(random: &mut Rng) -> proto::ProtoRoutes {
    // Compact, as the host stores JSON.
    let values = ["[]", "{\"a\":1}", "\"text\"", "[1,2.5,true,\"ü\"]"];
    let routes = names(random, 3).into_iter();
    let routes = routes.map(|key| proto::RouteEntry {
        key,
        value: random.choice(values).unwrap().into(),
    });
    proto::ProtoRoutes {
        routes: routes.collect(),
    }
}

fn sidecar(random: &mut Rng) -> proto::Sidecar {
    proto::Sidecar {
        action: Some(action(random, 1)),
        disk_mb: random.i32(0..9),
        memory_mb: random.i32(0..9),
    }
}

fn desired_lrp(random: &mut Rng, number: usize) -> proto::DesiredLrp {
    let metrics_guid = word(random);
    let metric_tags = tags(random, &metrics_guid);
    let [image_username, image_password] = credentials(random);
    // Distinct: the host stores a port once.
    let ports = (0..random.u32(..3)).map(|port| 8_080 + port).collect();
    proto::DesiredLrp {
        process_guid: format!("guid-{number}").into(),
        domain: DOMAIN.into(),
        root_fs: b"preloaded:cflinuxfs4".to_vec(),
        instances: random.i32(0..3),
        environment_variables: some(random, 3, variable),
        setup: maybe(random, |random| action(random, 3)),
        action: Some(action(random, 3)),
        monitor: maybe(random, |random| action(random, 3)),
        start_timeout_ms: random.i64(0..1_000) * 1_000,
        disk_mb: random.i32(0..1_000),
        memory_mb: random.i32(0..1_000),
        cpu_weight: random.u32(..1_000),
        privileged: random.bool(),
        ports,
        routes: Some(routes(random)),
        log_source: text(random),
        log_guid: text(random),
        metrics_guid,
        annotation: text(random),
        egress_rules: some(random, 2, rule),
        cached_dependencies: some(random, 2, dependency),
        legacy_download_user: word(random),
        trusted_system_certificates_path: text(random),
        volume_mounts: some(random, 2, mount),
        network: maybe(random, network),
        placement_tags: some(random, 2, text),
        max_pids: random.i32(0..1_000),
        certificate_properties: maybe(random, properties),
        image_username,
        image_password,
        image_layers: some(random, 3, layer),
        metric_tags,
        sidecars: some(random, 2, sidecar),
        log_rate_limit: maybe(random, |random| proto::LogRateLimit {
            bytes_per_second: random.i64(-1..9),
        }),
        volume_mounted_files: some(random, 2, file),
        update_strategy: random.i32(0..2),
        ..Default::default()
    }
}

fn definition(random: &mut Rng) -> proto::TaskDefinition {
    let metrics_guid = word(random);
    let [image_username, image_password] = credentials(random);
    proto::TaskDefinition {
        root_fs: b"preloaded:cflinuxfs4".to_vec(),
        environment_variables: some(random, 3, variable),
        action: Some(action(random, 3)),
        disk_mb: random.i32(0..1_000),
        memory_mb: random.i32(0..1_000),
        cpu_weight: random.u32(..1_000),
        privileged: random.bool(),
        log_source: text(random),
        log_guid: text(random),
        result_file: text(random),
        annotation: text(random),
        egress_rules: some(random, 2, rule),
        cached_dependencies: some(random, 2, dependency),
        legacy_download_user: word(random),
        trusted_system_certificates_path: text(random),
        volume_mounts: some(random, 2, mount),
        network: maybe(random, network),
        placement_tags: some(random, 2, text),
        max_pids: random.i32(0..1_000),
        certificate_properties: maybe(random, properties),
        image_username,
        image_password,
        image_layers: some(random, 3, layer),
        log_rate_limit: maybe(random, |random| proto::LogRateLimit {
            bytes_per_second: random.i64(-1..9),
        }),
        metric_tags: tags(random, &metrics_guid),
        volume_mounted_files: some(random, 2, file),
        metrics_guid,
        ..Default::default()
    }
}

/// Goal: no version loses a value that its clients write.
#[tokio::test(flavor = "multi_thread")]
async fn generated_desired_lrps_are_read_back_at_the_version_that_wrote_them() {
    let server = served::server(Kind::Sqlite, None).await;
    for (at, client) in VersionedClient::all(&server.url(""))
        .into_iter()
        .enumerate()
    {
        let version = client.version;
        let mut random = Rng::with_seed(SEED + at as u64);
        let mut written = Vec::new();
        for number in 0..GENERATED {
            let mut lrp = views::known(version, desired_lrp(&mut random, number));
            if version == V0_12 {
                // Written in the old form and read in the new one, as in Diego's BBS.
                lrp.volume_mounts.clear();
            }
            if version >= V1_1 {
                // Not of whole seconds, which only older versions need.
                lrp.start_timeout_ms += random.i64(0..1_000);
            }
            client.create(&views::written(version, lrp.clone())).await;
            written.push(lrp);
        }
        let mut listed = client.list(DOMAIN).await;
        assert_eq!(listed.len(), written.len(), "{version:?}");
        for lrp in written {
            let place = listed
                .iter()
                .position(|found| found.process_guid == lrp.process_guid)
                .expect("it is listed");
            let found = views::understood(version, listed.swap_remove(place));
            assert_eq!(found, lrp, "{version:?}");
            client.remove(&lrp.process_guid).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn generated_tasks_are_read_back_at_the_version_that_wrote_them() {
    let server = served::server(Kind::Sqlite, None).await;
    for (at, client) in VersionedClient::all(&server.url(""))
        .into_iter()
        .enumerate()
    {
        let version = client.version;
        let mut random = Rng::with_seed(SEED + at as u64);
        for number in 0..GENERATED {
            let mut definition = views::known_of_task(version, definition(&mut random));
            if version == V0_12 {
                // Written in the old form and read in the new one, as in Diego's BBS.
                definition.volume_mounts.clear();
            }
            let guid = format!("{version:?}-{number}")
                .replace('_', "-")
                .into_bytes();
            client
                .create_task(
                    &guid,
                    DOMAIN,
                    &views::written_task(version, definition.clone()),
                )
                .await;
            let found = client.get_task(&guid).await.expect("it is found");
            assert_eq!(
                views::understood_task(version, found),
                definition,
                "{version:?}"
            );
        }
    }
}
