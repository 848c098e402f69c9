//! Image layers as what Diego had before them: a shared layer as a cached dependency, an exclusive
//! one as a download before the setup action of a desired LRP or the action of a task.

use bbs_proto::fields::task::TASK_DEFINITION;
use bbs_proto::fields::{desired_lrp, task_definition};
use bbs_proto::models::image_layer::{DigestAlgorithm, Type};
use bbs_proto::models::{CachedDependency, DownloadAction, ImageLayer};
use bbs_sdk::wire::{self, Value, WireError};
use diego_revisions::actions::{self, Downloaded, ToDownload};
use prost::Message;

/// Field numbers of a message that has image layers.
struct Layered {
    layers: Downloaded,
    cached_dependencies: u32,
}

const DESIRED_LRP: Layered = Layered {
    layers: Downloaded {
        files: desired_lrp::IMAGE_LAYERS,
        action: desired_lrp::SETUP,
        legacy_download_user: desired_lrp::LEGACY_DOWNLOAD_USER,
    },
    cached_dependencies: desired_lrp::CACHED_DEPENDENCIES,
};
const DEFINITION: Layered = Layered {
    layers: Downloaded {
        files: task_definition::IMAGE_LAYERS,
        action: task_definition::ACTION,
        legacy_download_user: task_definition::LEGACY_DOWNLOAD_USER,
    },
    cached_dependencies: task_definition::CACHED_DEPENDENCIES,
};

/// A desired LRP without image layers, or `None` if it has none.
pub(crate) fn desired_lrp(lrp: &[u8]) -> Result<Option<Vec<u8>>, WireError> {
    without_layers(lrp, &DESIRED_LRP)
}

/// A task without image layers, or `None` if it has none. Its definition is present in every answer
/// of Diego's BBS.
pub(crate) fn task(task: &[u8]) -> Result<Option<Vec<u8>>, WireError> {
    let Some(definition) = wire::get(task, TASK_DEFINITION)? else {
        let mut with_definition = Vec::new();
        wire::append(&mut with_definition, TASK_DEFINITION, Value::Bytes(b""));
        return Ok(Some([&with_definition, task].concat()));
    };
    let converted = without_layers(definition.bytes()?, &DEFINITION)?;
    converted
        .map(|definition| wire::replace(task, TASK_DEFINITION, Value::Bytes(&definition)))
        .transpose()
}

fn without_layers(message: &[u8], numbers: &Layered) -> Result<Option<Vec<u8>>, WireError> {
    let Layered {
        layers:
            Downloaded {
                files,
                action: action_number,
                ..
            },
        cached_dependencies,
    } = *numbers;
    let ToDownload {
        files: layers,
        action,
        user,
    } = numbers.layers.read::<ImageLayer>(message)?;
    if layers.is_empty() {
        return Ok(None);
    }
    let of = |kind: Type| {
        layers
            .iter()
            .filter(move |layer| layer.layer_type == i32::from(kind))
    };
    let downloads: Vec<_> = of(Type::Exclusive)
        .map(|layer| download(layer, user))
        .collect();
    // In the order of their fields, each written before the message's first field of its number or
    // a later one.
    let mut added = Vec::new();
    if !downloads.is_empty() {
        let parallel = actions::parallel_downloads(&downloads);
        let action = if action.is_some() {
            actions::serial(parallel, action)?
        } else {
            parallel
        };
        added.push((action_number, action));
    }
    added.extend(of(Type::Shared).map(|layer| {
        (
            cached_dependencies,
            cached_dependency(layer).encode_to_vec(),
        )
    }));
    let mut added = added.into_iter().peekable();
    let mut converted = Vec::with_capacity(message.len());
    for field in wire::fields(message) {
        let field = field?;
        while let Some((number, value)) = added.next_if(|(number, _)| *number <= field.number) {
            wire::append(&mut converted, number, Value::Bytes(&value));
        }
        let is_replaced = field.number == action_number && !downloads.is_empty();
        if field.number != files && !is_replaced {
            converted.extend_from_slice(field.raw);
        }
    }
    for (number, value) in added {
        wire::append(&mut converted, number, Value::Bytes(&value));
    }
    Ok(Some(converted))
}

/// The enum's name in lower case, or the number if it has none.
fn algorithm(layer: &ImageLayer) -> String {
    DigestAlgorithm::try_from(layer.digest_algorithm).map_or_else(
        |_| layer.digest_algorithm.to_string(),
        |algorithm| algorithm.as_str_name().to_lowercase(),
    )
}

fn digest(algorithm: &str, layer: &ImageLayer) -> Vec<u8> {
    [algorithm.as_bytes(), b":", &layer.digest_value].concat()
}

fn cached_dependency(layer: &ImageLayer) -> CachedDependency {
    let algorithm = if layer.digest_algorithm == 0 {
        String::new()
    } else {
        algorithm(layer)
    };
    let has_digest = !layer.digest_value.is_empty();
    CachedDependency {
        name: layer.name.clone(),
        from: layer.url.clone(),
        to: layer.destination_path.clone(),
        cache_key: if has_digest {
            digest(&algorithm, layer)
        } else {
            layer.url.clone()
        },
        log_source: Vec::new(),
        checksum_algorithm: algorithm.into_bytes(),
        checksum_value: layer.digest_value.clone(),
    }
}

fn download(layer: &ImageLayer, user: &[u8]) -> DownloadAction {
    let algorithm = algorithm(layer);
    DownloadAction {
        artifact: layer.name.clone(),
        from: layer.url.clone(),
        to: layer.destination_path.clone(),
        cache_key: digest(&algorithm, layer),
        log_source: Vec::new(),
        user: user.to_vec(),
        checksum_algorithm: algorithm.into_bytes(),
        checksum_value: layer.digest_value.clone(),
    }
}
