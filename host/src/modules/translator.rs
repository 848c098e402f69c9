//! A translator as a sandboxed component; the chain's [`Translate`] in production.

use std::sync::Arc;

use super::bindings::translator_0_1::Translator;
use super::call::CallError;
use super::instance::Instances;
use super::rules;
use super::sandbox::Sandbox;
use super::translate::{ChangedRecord, Next, Translate, TranslateError, TranslatedEvent, TranslatorManifest};

/// A loaded translator.
pub struct TranslatorModule {
    file: Arc<str>,
    digest: String,
    manifest: TranslatorManifest,
    instances: Instances<Translator>,
}

impl TranslatorModule {
    pub(super) fn load(
        file: &Arc<str>,
        digest: &str,
        linked: Translator,
        sandbox: &Arc<Sandbox>,
    ) -> Result<Self, CallError> {
        let instances = Instances::new(linked, file, sandbox);
        let manifest = instances.run(|guest, store| guest.describe(store), Ok)?;
        let manifest = manifest.map_err(|flaw| CallError::Flaw { flaw })?;
        Ok(Self { file: Arc::clone(file), digest: digest.to_owned(), manifest, instances })
    }

    /// The name of its file.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The digest of its file, in lower-case hexadecimal.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The number of idle instances.
    pub fn idle_instances(&self) -> usize {
        self.instances.idle()
    }

    /// The answer to a call of `method`; the inner error is the fault that the module returned.
    fn answered<T>(&self, method: &str, answer: Result<Result<T, String>, CallError>) -> Result<T, TranslateError> {
        answer.and_then(|answer| answer.map_err(|reason| CallError::Fault { reason })).map_err(|error| TranslateError {
            reason: format!(
                "{method} through translator {} to {} ({}, sha256 {}) failed: {error}",
                self.manifest.serves, self.manifest.onto, self.file, self.digest
            ),
        })
    }
}

impl Translate for TranslatorModule {
    fn manifest(&self) -> &TranslatorManifest {
        &self.manifest
    }

    fn instances(&self) -> usize {
        self.instances.most()
    }

    fn call(&self, method: &str, request: &[u8], next: Next<'_>) -> Result<Vec<u8>, TranslateError> {
        let answer = self.instances.run(|guest, store| guest.call(store, method, request, next), Ok);
        self.answered(method, answer)
    }

    fn events(
        &self,
        method: &str,
        changes: &[ChangedRecord],
        newer: &[TranslatedEvent],
    ) -> Result<Vec<TranslatedEvent>, TranslateError> {
        let events =
            self.instances.run(|guest, store| guest.events(store, method, changes, newer), rules::check_events);
        self.answered(method, events)
    }
}

impl std::fmt::Debug for TranslatorModule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TranslatorModule")
            .field("file", &self.file)
            .field("digest", &self.digest)
            .finish_non_exhaustive()
    }
}
