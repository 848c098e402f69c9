//! Image layers as what Diego had before them: a shared layer as a cached dependency, an exclusive one as a download before
//! the setup action of a desired LRP or the action of a task.

use bbs_proto::models::image_layer::{DigestAlgorithm, Type};
use bbs_proto::models::{CachedDependency, DownloadAction, ImageLayer};
use bbs_sdk::wire::{self, Value, WireError};
use diego_revisions::actions;
use prost::Message;

/// Field numbers of a message that has image layers.
struct Layered {
    /// What exclusive layers are downloaded before.
    action: u32,
    cached_dependencies: u32,
    legacy_download_user: u32,
    image_layers: u32,
}

const DESIRED_LRP: Layered = Layered { action: 6, cached_dependencies: 22, legacy_download_user: 23, image_layers: 34 };
const TASK_DEFINITION: Layered =
    Layered { action: 3, cached_dependencies: 15, legacy_download_user: 16, image_layers: 25 };
/// The field of a task's definition.
const DEFINITION: u32 = 1;

/// A desired LRP without image layers, or `None` if it has none.
pub(crate) fn desired_lrp(lrp: &[u8]) -> Result<Option<Vec<u8>>, WireError> {
    without_layers(lrp, &DESIRED_LRP)
}

/// A task without image layers, or `None` if it has none. Its definition is present in every answer of Diego's BBS.
pub(crate) fn task(task: &[u8]) -> Result<Option<Vec<u8>>, WireError> {
    let Some(definition) = wire::get(task, DEFINITION)? else {
        let mut with_definition = Vec::new();
        wire::append(&mut with_definition, DEFINITION, Value::Bytes(b""));
        return Ok(Some([&with_definition, task].concat()));
    };
    let converted = without_layers(definition.bytes()?, &TASK_DEFINITION)?;
    converted.map(|definition| wire::replace(task, DEFINITION, Value::Bytes(&definition))).transpose()
}

fn without_layers(message: &[u8], numbers: &Layered) -> Result<Option<Vec<u8>>, WireError> {
    let (mut layers, mut action, mut user) = (Vec::new(), None, &b""[..]);
    for field in wire::fields(message) {
        let field = field?;
        match field.number {
            number if number == numbers.image_layers => layers.push(layer(field.bytes()?)?),
            number if number == numbers.action => action = Some(field.bytes()?),
            number if number == numbers.legacy_download_user => user = field.bytes()?,
            _ => {}
        }
    }
    if layers.is_empty() {
        return Ok(None);
    }
    let of = |kind: Type| layers.iter().filter(move |layer| layer.layer_type == i32::from(kind));
    let downloads: Vec<_> = of(Type::Exclusive).map(|layer| download(layer, user)).collect();
    // In the order of their fields, each written before the message's first field of its number or a later one.
    let mut added = Vec::new();
    if !downloads.is_empty() {
        let parallel = actions::parallel_downloads(&downloads);
        let action = if action.is_some() { actions::serial(parallel, action)? } else { parallel };
        added.push((numbers.action, action));
    }
    added.extend(of(Type::Shared).map(|layer| (numbers.cached_dependencies, cached_dependency(layer).encode_to_vec())));
    let mut added = added.into_iter().peekable();
    let mut converted = Vec::with_capacity(message.len());
    for field in wire::fields(message) {
        let field = field?;
        while let Some((number, value)) = added.next_if(|(number, _)| *number <= field.number) {
            wire::append(&mut converted, number, Value::Bytes(&value));
        }
        let is_replaced = field.number == numbers.action && !downloads.is_empty();
        if field.number != numbers.image_layers && !is_replaced {
            converted.extend_from_slice(field.raw);
        }
    }
    for (number, value) in added {
        wire::append(&mut converted, number, Value::Bytes(&value));
    }
    Ok(Some(converted))
}

fn layer(bytes: &[u8]) -> Result<ImageLayer, WireError> {
    // The message has only numbers and text, which are bytes here: what can be parsed can be decoded.
    ImageLayer::decode(bytes).or(Err(WireError::Truncated { at: 0 }))
}

/// The enum's name in lower case, or the number if it has none.
fn algorithm(layer: &ImageLayer) -> String {
    DigestAlgorithm::try_from(layer.digest_algorithm)
        .map_or_else(|_| layer.digest_algorithm.to_string(), |algorithm| algorithm.as_str_name().to_lowercase())
}

fn digest(algorithm: &str, layer: &ImageLayer) -> Vec<u8> {
    [algorithm.as_bytes(), b":", &layer.digest_value].concat()
}

fn cached_dependency(layer: &ImageLayer) -> CachedDependency {
    let algorithm = if layer.digest_algorithm == 0 { String::new() } else { algorithm(layer) };
    let has_digest = !layer.digest_value.is_empty();
    CachedDependency {
        name: layer.name.clone(),
        from: layer.url.clone(),
        to: layer.destination_path.clone(),
        cache_key: if has_digest { digest(&algorithm, layer) } else { layer.url.clone() },
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
