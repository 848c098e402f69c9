//! Reads at 1.0 against an oracle of what Diego's BBS makes of image layers.

use super::generated::{first_alternative, lrps_agree, tasks_agree};
use super::*;
use proto::image_layer::{DigestAlgorithm, Type};
use proto::{Action, CachedDependency, DownloadAction, ImageLayer, ParallelAction, SerialAction};

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
    let mut converted = Vec::new();
    let mut downloads = Vec::new();
    for layer in layers {
        let algorithm = name(layer.digest_algorithm);
        if layer.layer_type == Type::Shared as i32 {
            let algorithm = if layer.digest_algorithm == 0 {
                String::new()
            } else {
                algorithm
            };
            let cache_key = if layer.digest_value.is_empty() {
                layer.url.clone()
            } else {
                key(&algorithm, &layer.digest_value)
            };
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
    let parallel = ParallelAction {
        actions: downloads,
        log_source: Vec::new(),
    };
    let parallel = Action {
        parallel_action: Some(parallel),
        ..Default::default()
    };
    *action = Some(match action.take() {
        None => parallel,
        Some(old) => {
            let actions = vec![parallel, first_alternative(old)];
            Action {
                serial_action: Some(SerialAction {
                    actions,
                    log_source: Vec::new(),
                }),
                ..Default::default()
            }
        }
    });
}

pub(super) fn desired_lrp_without_layers(lrp: &mut proto::DesiredLrp) {
    let layers = std::mem::take(&mut lrp.image_layers);
    without_layers(
        layers,
        &lrp.legacy_download_user,
        &mut lrp.cached_dependencies,
        &mut lrp.setup,
    );
}

pub(super) fn definition_without_layers(definition: &mut proto::TaskDefinition) {
    let layers = std::mem::take(&mut definition.image_layers);
    let user = &definition.legacy_download_user;
    without_layers(
        layers,
        user,
        &mut definition.cached_dependencies,
        &mut definition.action,
    );
}

#[test]
fn generated_desired_lrps_lose_their_layers_as_the_oracle_says() {
    lrps_agree("1.0", "DesiredLRPs_r2", desired_lrp_without_layers);
}

#[test]
fn generated_tasks_lose_their_layers_as_the_oracle_says() {
    tasks_agree("1.0", "Tasks_r2", definition_without_layers);
}
