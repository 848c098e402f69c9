//! 10,000 generated objects against an oracle: the same rules over decoded messages, written from Diego's.

use fastrand::Rng;

use super::*;
use proto::image_layer::{DigestAlgorithm, Type};
use proto::{Action, CachedDependency, DownloadAction, ImageLayer, ParallelAction, SerialAction};

const OBJECTS: usize = 10_000;
const SEED: u64 = 20_180_301;

fn text(random: &mut Rng) -> Vec<u8> {
    let length = random.usize(..4);
    (0..length).map(|_| random.alphanumeric() as u8).collect()
}

fn layer(random: &mut Rng) -> ImageLayer {
    ImageLayer {
        name: text(random),
        url: text(random),
        destination_path: text(random),
        layer_type: random.i32(0..4),
        media_type: random.i32(0..4),
        digest_algorithm: random.i32(0..4),
        digest_value: text(random),
    }
}

/// An action with up to two of its alternatives set, or none.
fn action(random: &mut Rng, depth: usize) -> Action {
    let mut action = Action::default();
    for _ in 0..random.usize(..3) {
        match random.usize(..4) {
            0 => action.run_action = Some(proto::RunAction { path: text(random), ..Default::default() }),
            1 => action.download_action = Some(DownloadAction { from: text(random), ..Default::default() }),
            2 if depth > 0 => {
                let actions = (0..random.usize(..3)).map(|_| self::action(random, depth - 1)).collect();
                action.serial_action = Some(SerialAction { actions, log_source: text(random) });
            }
            _ => action.upload_action = Some(proto::UploadAction { to: text(random), ..Default::default() }),
        }
    }
    action
}

fn some<T>(random: &mut Rng, most: usize, one: impl Fn(&mut Rng) -> T) -> Vec<T> {
    (0..random.usize(..=most)).map(|_| one(random)).collect()
}

fn desired_lrp(random: &mut Rng) -> proto::DesiredLrp {
    proto::DesiredLrp {
        process_guid: text(random),
        setup: random.bool().then(|| action(random, 2)),
        action: Some(action(random, 1)),
        cached_dependencies: some(random, 2, |random| CachedDependency { name: text(random), ..Default::default() }),
        legacy_download_user: text(random),
        image_layers: some(random, 4, layer),
        max_pids: random.i32(..),
        ..Default::default()
    }
}

fn task(random: &mut Rng) -> proto::Task {
    let definition = proto::TaskDefinition {
        root_fs: text(random),
        action: random.bool().then(|| action(random, 2)),
        cached_dependencies: some(random, 2, |random| CachedDependency { name: text(random), ..Default::default() }),
        legacy_download_user: text(random),
        image_layers: some(random, 4, layer),
        max_pids: random.i32(..),
        ..Default::default()
    };
    proto::Task { task_guid: text(random), task_definition: Some(definition), ..Default::default() }
}

fn name(algorithm: i32) -> String {
    match DigestAlgorithm::try_from(algorithm) {
        Ok(DigestAlgorithm::Invalid) => "digestalgorithminvalid".to_owned(),
        Ok(DigestAlgorithm::Sha256) => "sha256".to_owned(),
        Ok(DigestAlgorithm::Sha512) => "sha512".to_owned(),
        Err(_) => algorithm.to_string(),
    }
}

fn key(algorithm: &str, value: &[u8]) -> Vec<u8> {
    [algorithm.as_bytes(), b":", value].concat()
}

/// Takes the layers out of what Diego's BBS changes with them.
fn without_layers(
    layers: Vec<ImageLayer>,
    user: &[u8],
    dependencies: &mut Vec<CachedDependency>,
    action: &mut Option<Action>,
) {
    let (mut converted, mut downloads) = (Vec::new(), Vec::new());
    for layer in layers {
        let algorithm = name(layer.digest_algorithm);
        if layer.layer_type == Type::Shared as i32 {
            let algorithm = if layer.digest_algorithm == 0 { String::new() } else { algorithm };
            let cache_key =
                if layer.digest_value.is_empty() { layer.url.clone() } else { key(&algorithm, &layer.digest_value) };
            converted.push(CachedDependency {
                name: layer.name,
                from: layer.url,
                to: layer.destination_path,
                cache_key,
                log_source: Vec::new(),
                checksum_algorithm: algorithm.into_bytes(),
                checksum_value: layer.digest_value,
            });
        } else if layer.layer_type == Type::Exclusive as i32 {
            downloads.push(Action {
                download_action: Some(DownloadAction {
                    artifact: layer.name,
                    from: layer.url,
                    to: layer.destination_path,
                    cache_key: key(&algorithm, &layer.digest_value),
                    log_source: Vec::new(),
                    user: user.to_vec(),
                    checksum_algorithm: algorithm.into_bytes(),
                    checksum_value: layer.digest_value,
                }),
                ..Default::default()
            });
        }
    }
    converted.append(dependencies);
    *dependencies = converted;
    if downloads.is_empty() {
        return;
    }
    let parallel = ParallelAction { actions: downloads, log_source: Vec::new() };
    let parallel = Action { parallel_action: Some(parallel), ..Default::default() };
    *action = Some(match action.take() {
        None => parallel,
        Some(old) => {
            let actions = vec![parallel, first_alternative(old)];
            Action { serial_action: Some(SerialAction { actions, log_source: Vec::new() }), ..Default::default() }
        }
    });
}

fn first_alternative(action: Action) -> Action {
    if action.download_action.is_some() {
        Action { download_action: action.download_action, ..Default::default() }
    } else if action.upload_action.is_some() {
        Action { upload_action: action.upload_action, ..Default::default() }
    } else if action.run_action.is_some() {
        Action { run_action: action.run_action, ..Default::default() }
    } else {
        Action { serial_action: action.serial_action, ..Default::default() }
    }
}

#[test]
fn generated_desired_lrps_agree_with_the_oracle() {
    let mut random = Rng::with_seed(SEED);
    let lrps: Vec<_> = (0..OBJECTS).map(|_| desired_lrp(&mut random)).collect();
    let translator = translator("1.0");
    for lrps in lrps.chunks(500) {
        let newer = proto::DesiredLrPsResponse { error: None, desired_lrps: lrps.to_vec() };
        let answer = translated(&*translator, "DesiredLRPs_r2", &[], &newer.encode_to_vec());
        let older = proto::DesiredLrPsResponse::decode(&answer[..]).unwrap().desired_lrps;
        let expected: Vec<_> = lrps
            .iter()
            .cloned()
            .map(|mut lrp| {
                let layers = std::mem::take(&mut lrp.image_layers);
                without_layers(layers, &lrp.legacy_download_user, &mut lrp.cached_dependencies, &mut lrp.setup);
                lrp
            })
            .collect();
        assert_eq!(older, expected);
    }
}

#[test]
fn generated_tasks_agree_with_the_oracle() {
    let mut random = Rng::with_seed(SEED);
    let tasks: Vec<_> = (0..OBJECTS).map(|_| task(&mut random)).collect();
    let translator = translator("1.0");
    for tasks in tasks.chunks(500) {
        let newer = proto::TasksResponse { error: None, tasks: tasks.to_vec() };
        let answer = translated(&*translator, "Tasks_r2", &[], &newer.encode_to_vec());
        let older = proto::TasksResponse::decode(&answer[..]).unwrap().tasks;
        let expected: Vec<_> = tasks
            .iter()
            .cloned()
            .map(|mut task| {
                let of = task.task_definition.as_mut().expect("every generated task has one");
                let layers = std::mem::take(&mut of.image_layers);
                without_layers(layers, &of.legacy_download_user, &mut of.cached_dependencies, &mut of.action);
                task
            })
            .collect();
        assert_eq!(older, expected);
    }
}
