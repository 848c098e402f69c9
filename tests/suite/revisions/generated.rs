//! Generated desired LRPs and tasks, and their comparison with an oracle: the same rules over
//! decoded messages.

use fastrand::Rng;

use super::*;
use proto::{Action, CachedDependency, DownloadAction, ImageLayer};

/// Records of each kind and step.
const GENERATED: usize = 10_000;
const SEED: u64 = 20_180_301;
/// In one call.
const BATCH: usize = 500;

fn text(random: &mut Rng) -> Vec<u8> {
    let length = random.usize(..4);
    (0..length).map(|_| random.alphanumeric() as u8).collect()
}

fn some<T>(random: &mut Rng, most: usize, mut one: impl FnMut(&mut Rng) -> T) -> Vec<T> {
    (0..random.usize(..=most)).map(|_| one(random)).collect()
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

fn dependency(random: &mut Rng) -> CachedDependency {
    CachedDependency {
        name: text(random),
        from: text(random),
        to: text(random),
        cache_key: text(random),
        log_source: text(random),
        checksum_algorithm: text(random),
        checksum_value: text(random),
    }
}

/// An action with up to two of its alternatives set, or none; a leaf at depth 0.
fn action(random: &mut Rng, depth: usize) -> Action {
    let mut action = Action::default();
    for _ in 0..random.usize(..3) {
        set_alternative(random, depth, &mut action);
    }
    action
}

fn set_alternative(random: &mut Rng, depth: usize, action: &mut Action) {
    let kind = random.usize(..if depth == 0 { 3 } else { 9 });
    let log_source = text(random);
    let inner = |random: &mut Rng| Some(Box::new(self::action(random, depth - 1)));
    let children = |random: &mut Rng| some(random, 3, |random| self::action(random, depth - 1));
    match kind {
        0 => {
            action.download_action = Some(DownloadAction {
                from: log_source,
                ..Default::default()
            })
        }
        1 => {
            action.upload_action = Some(proto::UploadAction {
                to: log_source,
                ..Default::default()
            })
        }
        2 => {
            action.run_action = Some(proto::RunAction {
                path: log_source,
                ..Default::default()
            })
        }
        3 => {
            let timeout_ms = random.i64(0..100_000);
            let deprecated_timeout_ns = random.i64(0..2) * random.i64(0..1 << 40);
            let action_of = inner(random);
            let timeout = proto::TimeoutAction {
                action: action_of,
                deprecated_timeout_ns,
                log_source,
                timeout_ms,
            };
            action.timeout_action = Some(Box::new(timeout));
        }
        4 => {
            let progress = proto::EmitProgressAction {
                action: inner(random),
                log_source,
                ..Default::default()
            };
            action.emit_progress_action = Some(Box::new(progress));
        }
        5 => {
            action.try_action = Some(Box::new(proto::TryAction {
                action: inner(random),
                log_source,
            }))
        }
        6 => {
            action.parallel_action = Some(proto::ParallelAction {
                actions: children(random),
                log_source,
            })
        }
        7 => {
            action.serial_action = Some(proto::SerialAction {
                actions: children(random),
                log_source,
            })
        }
        _ => {
            action.codependent_action = Some(proto::CodependentAction {
                actions: children(random),
                log_source,
            })
        }
    }
}

fn desired_lrp(random: &mut Rng) -> proto::DesiredLrp {
    let optional = |random: &mut Rng| random.bool().then(|| action(random, 3));
    proto::DesiredLrp {
        process_guid: text(random),
        setup: optional(random),
        action: optional(random),
        monitor: optional(random),
        deprecated_start_timeout_s: random.u32(..) * random.u32(0..2),
        start_timeout_ms: random.i64(..),
        cached_dependencies: some(random, 2, dependency),
        legacy_download_user: text(random),
        image_layers: some(random, 4, layer),
        max_pids: random.i32(..),
        ..Default::default()
    }
}

fn task(random: &mut Rng) -> proto::Task {
    let definition = proto::TaskDefinition {
        root_fs: text(random),
        action: random.bool().then(|| action(random, 3)),
        cached_dependencies: some(random, 2, dependency),
        legacy_download_user: text(random),
        image_layers: some(random, 4, layer),
        max_pids: random.i32(..),
        ..Default::default()
    };
    proto::Task {
        task_guid: text(random),
        task_definition: Some(definition),
        ..Default::default()
    }
}

/// [`GENERATED`] desired LRPs.
pub(super) fn desired_lrps() -> Vec<proto::DesiredLrp> {
    let mut random = Rng::with_seed(SEED);
    (0..GENERATED).map(|_| desired_lrp(&mut random)).collect()
}

/// Compares a list of the component that serves a version with what `older` makes of each object of
/// the newer one.
pub(super) fn lrps_agree(serves: &str, method: &str, older: impl Fn(&mut proto::DesiredLrp)) {
    let mut lrps = desired_lrps();
    let translator = translator(serves);
    for lrps in lrps.chunks_mut(BATCH) {
        let newer = proto::DesiredLrPsResponse {
            error: None,
            desired_lrps: lrps.to_vec(),
        };
        let answer = translated(&*translator, method, &[], &newer.encode_to_vec());
        lrps.iter_mut().for_each(&older);
        let found = proto::DesiredLrPsResponse::decode(&answer[..])
            .unwrap()
            .desired_lrps;
        found
            .iter()
            .zip(&*lrps)
            .for_each(|(found, expected)| assert_eq!(found, expected));
        assert_eq!(found.len(), lrps.len());
    }
}

/// As [`lrps_agree`], with what `older` makes of each task's definition.
pub(super) fn tasks_agree(serves: &str, method: &str, older: impl Fn(&mut proto::TaskDefinition)) {
    let mut random = Rng::with_seed(SEED);
    let mut tasks: Vec<_> = (0..GENERATED).map(|_| task(&mut random)).collect();
    let translator = translator(serves);
    for tasks in tasks.chunks_mut(BATCH) {
        let newer = proto::TasksResponse {
            error: None,
            tasks: tasks.to_vec(),
        };
        let answer = translated(&*translator, method, &[], &newer.encode_to_vec());
        tasks.iter_mut().for_each(|task| {
            older(
                task.task_definition
                    .as_mut()
                    .expect("every generated task has one"),
            )
        });
        let found = proto::TasksResponse::decode(&answer[..]).unwrap().tasks;
        found
            .iter()
            .zip(&*tasks)
            .for_each(|(found, expected)| assert_eq!(found, expected));
        assert_eq!(found.len(), tasks.len());
    }
}

/// The first alternative that is set, in the order of their numbers, alone.
pub(super) fn first_alternative(action: Action) -> Action {
    let none = Action::default();
    let Action {
        download_action,
        upload_action,
        run_action,
        timeout_action,
        emit_progress_action,
        ..
    } = action;
    if download_action.is_some() {
        Action {
            download_action,
            ..none
        }
    } else if upload_action.is_some() {
        Action {
            upload_action,
            ..none
        }
    } else if run_action.is_some() {
        Action { run_action, ..none }
    } else if timeout_action.is_some() {
        Action {
            timeout_action,
            ..none
        }
    } else if emit_progress_action.is_some() {
        Action {
            emit_progress_action,
            ..none
        }
    } else if action.try_action.is_some() {
        Action {
            try_action: action.try_action,
            ..none
        }
    } else if action.parallel_action.is_some() {
        Action {
            parallel_action: action.parallel_action,
            ..none
        }
    } else if action.serial_action.is_some() {
        Action {
            serial_action: action.serial_action,
            ..none
        }
    } else {
        Action {
            codependent_action: action.codependent_action,
            ..none
        }
    }
}
