//! Rules that a manifest has to satisfy by itself: its size, a valid name, a one-line summary,
//! unique methods; and translated events. Changes and accesses are validated by the layout history,
//! which knows the layout before them.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Write};

use bbs_lens::layout::manifest::{DataVersion, Manifest};
use bbs_work::printable::is_control;
use serde::Serialize;
use serde_json::Value;

use super::call::CallError;
use super::translate::{TranslatedEvent, TranslatorManifest, Verb};

const NAME_BYTES: usize = 64;
const SUMMARY_BYTES: usize = 200;
const EVENT_NAME_BYTES: usize = 100;
/// Largest size of a manifest as `bbs module inspect` prints it, without white space. That of the
/// migration which creates Diego's tables has 8 KiB.
const MANIFEST_BYTES: usize = 256 << 10;
/// Longest name of a table, column, index or method, and longest path, in bytes.
const TEXT_BYTES: usize = 200;

/// Why a manifest is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    #[error(
        "its name is {name:?}; a name is lower-case words and digits joined by `-`, at most 64 bytes"
    )]
    Name { name: String },
    #[error(
        "its summary is {summary:?}; a summary is one line of at most 200 bytes, and not empty"
    )]
    Summary { summary: String },
    #[error(
        "it is larger than {MANIFEST_BYTES} bytes; declare less, or split it into several modules"
    )]
    TooLarge,
    #[error("it has the name or path {text:?}; each is one line of at most 200 bytes")]
    Text { text: String },
    #[error(
        "its version is {version}, and not from 1 to 2^63 - 1; a version is a timestamp in seconds, such as `date +%s` prints"
    )]
    Version { version: DataVersion },
    #[error(
        "it serves {serves} on top of {onto}; a translator is written in terms of a newer version, and one of a side shape \
             in terms of the same version"
    )]
    Backwards { serves: String, onto: String },
    #[error("it names method {name:?} twice, or without a name or path; name each once")]
    Method { name: String },
    #[error(
        "a method has the path {path:?}; a path begins without a slash, or with /v1/ as Diego's paths do"
    )]
    Path { path: String },
    #[error("it has two methods at {verb} {path}; give each a verb and path of its own", verb = .verb.name())]
    SameRoute { verb: Verb, path: String },
}

pub(super) fn check_migration(manifest: &Manifest) -> Result<(), ManifestError> {
    check_size(manifest)?;
    let version = manifest.version;
    // A column of the database has it.
    if version == 0 || i64::try_from(version).is_err() {
        return Err(ManifestError::Version { version });
    }
    check_name(&manifest.name)?;
    check_summary(&manifest.summary)?;
    check_texts(&serde_json::to_value(manifest).expect("a manifest is plain data"))
}

pub(super) fn check_translator(manifest: &TranslatorManifest) -> Result<(), ManifestError> {
    check_size(manifest)?;
    check_name(&manifest.name)?;
    check_summary(&manifest.summary)?;
    check_texts(&serde_json::to_value(manifest).expect("a manifest is plain data"))?;
    let serves = manifest.serves;
    let onto = manifest.onto;
    let is_ordered = if serves.side.is_some() {
        serves.without_side() == onto
    } else {
        serves < onto
    };
    if !is_ordered {
        return Err(ManifestError::Backwards {
            serves: manifest.serves.to_string(),
            onto: manifest.onto.to_string(),
        });
    }
    let mut seen = BTreeSet::new();
    let mut routes = BTreeSet::new();
    for method in &manifest.methods {
        if method.name.is_empty() || method.path.is_empty() || !seen.insert(&method.name) {
            return Err(ManifestError::Method {
                name: method.name.clone(),
            });
        }
        if method.path_in_version().is_empty() || method.path_in_version().starts_with('/') {
            return Err(ManifestError::Path {
                path: method.path.clone(),
            });
        }
        if !routes.insert((method.verb, method.path_in_version())) {
            return Err(ManifestError::SameRoute {
                verb: method.verb,
                path: method.path.clone(),
            });
        }
    }
    Ok(())
}

/// Checks that events can be sent: the name of an event is one line of its text.
pub(super) fn check_events<F>(
    events: Result<Vec<TranslatedEvent>, F>,
) -> Result<Result<Vec<TranslatedEvent>, F>, CallError> {
    let is_name =
        |name: &str| (1..=EVENT_NAME_BYTES).contains(&name.len()) && !name.chars().any(is_control);
    match events.iter().flatten().find(|event| !is_name(&event.name)) {
        None => Ok(events),
        Some(event) => {
            let name: String = event.name.chars().take(EVENT_NAME_BYTES).collect();
            let flaw = format!(
                "an event is named {name:?}; a name is one line of 1 to {EVENT_NAME_BYTES} bytes"
            );
            Err(CallError::flaw(&flaw))
        }
    }
}

/// Fails as soon as the size is exceeded, so that a huge manifest is never rendered.
fn check_size(manifest: &impl Serialize) -> Result<(), ManifestError> {
    struct Remaining(usize);
    impl Write for Remaining {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self
                .0
                .checked_sub(bytes.len())
                .ok_or(ErrorKind::FileTooLarge)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    serde_json::to_writer(Remaining(MANIFEST_BYTES), manifest).map_err(|_| ManifestError::TooLarge)
}

fn check_name(name: &str) -> Result<(), ManifestError> {
    let is_of_words = name.split('-').all(|word| {
        !word.is_empty()
            && word
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    });
    if name.len() > NAME_BYTES || !is_of_words {
        return Err(ManifestError::Name {
            name: name.chars().take(NAME_BYTES + 1).collect(),
        });
    }
    Ok(())
}

fn check_summary(summary: &str) -> Result<(), ManifestError> {
    if summary.is_empty() || summary.len() > SUMMARY_BYTES || summary.chars().any(is_control) {
        return Err(ManifestError::Summary {
            summary: summary.chars().take(SUMMARY_BYTES).collect(),
        });
    }
    Ok(())
}

/// Checks every text but the defaults of columns, which are values: commands print names, and
/// errors quote them.
fn check_texts(manifest: &Value) -> Result<(), ManifestError> {
    match manifest {
        Value::String(text) if text.len() > TEXT_BYTES || text.chars().any(is_control) => {
            Err(ManifestError::Text {
                text: text.chars().take(TEXT_BYTES).collect(),
            })
        }
        Value::Array(items) => items.iter().try_for_each(check_texts),
        Value::Object(fields) => fields
            .iter()
            .filter(|(name, _)| *name != "default")
            .try_for_each(|(_, field)| check_texts(field)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
