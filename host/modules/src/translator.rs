//! A translator as a sandboxed component; the chain's [`Translate`] in production.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_executor::block_on;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use wasmtime::Store;

use super::bindings::translator_0_1::{GuestFuture, Translator, TranslatorGuest};
use super::call::CallError;
use super::exchange::Exchange;
use super::instance::{Instance, InstanceState, Instances, begin};
use super::rules;
use super::running::{GuestProgress, RunningGuest, interrupt_between_slices};
use super::sandbox::Sandbox;
use super::text::ModuleText;
use super::translate::{
    CallProgress, ChangedRecord, NextAnswer, Translate, TranslateError, TranslatedCall,
    TranslatedEvent, TranslatorManifest,
};

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
        let instances = Instances::new(linked, file, sandbox, Some(sandbox.translator_memory()));
        let limit = sandbox.limits().manifest_bytes;
        let described = running(
            &instances,
            false,
            limit,
            |guest, store| guest.describe(store).boxed(),
            Ok,
        )
        .finish();
        let manifest = block_on(described).map_err(|error| error.of_manifest(limit))?;
        let manifest = manifest.map_err(|flaw| CallError::flaw(&flaw))?;
        Ok(Self {
            file: Arc::clone(file),
            digest: digest.to_owned(),
            manifest,
            instances,
        })
    }

    /// The module for the API after a reload, with its own limit of running instances. The API
    /// before goes on with the calls and streams that it has begun, and both rely on the whole
    /// limit.
    pub(super) fn reloaded(&self) -> Self {
        Self {
            file: Arc::clone(&self.file),
            digest: self.digest.clone(),
            manifest: self.manifest.clone(),
            instances: self.instances.another_pool(),
        }
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

    fn answer_bytes(&self) -> usize {
        self.instances.sandbox.limits().answer_bytes
    }

    /// The answer to a call of `method`; the inner error is the fault that the module returned.
    fn answered<T>(
        &self,
        method: &str,
        answer: Result<Result<T, ModuleText>, CallError>,
    ) -> Result<T, TranslateError> {
        answer
            .and_then(|answer| answer.map_err(|reason| CallError::Fault { reason }))
            .map_err(|error| {
                self.instances.log().write_failure(method, &error);
                let exceeds_limits =
                    matches!(error, CallError::Memory { .. } | CallError::Answer { .. });
                let reason = format!(
                    "{method} through translator {} to {} ({}, sha256 {}) failed: {error}",
                    self.manifest.serves, self.manifest.onto, self.file, self.digest
                );
                TranslateError {
                    reason,
                    exceeds_limits,
                }
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

    fn call(&self, method: &str, request: Bytes) -> Box<dyn TranslatedCall + '_> {
        let called = method.to_owned();
        let method = method.to_owned();
        let guest = running(
            &self.instances,
            true,
            self.answer_bytes(),
            |guest, store| async move { guest.call(store, &called, &request).await }.boxed(),
            Ok,
        );
        Box::new(ModuleCall {
            module: self,
            method,
            guest,
        })
    }

    fn events(
        &self,
        method: &str,
        changes: &Arc<[ChangedRecord]>,
        newer: Vec<TranslatedEvent>,
    ) -> BoxFuture<'_, Result<Vec<TranslatedEvent>, TranslateError>> {
        let called = method.to_owned();
        let method = method.to_owned();
        let changes = Arc::clone(changes);
        let guest = running(
            &self.instances,
            false,
            self.answer_bytes(),
            |guest, store| {
                async move { guest.events(store, &called, &changes, &newer).await }.boxed()
            },
            rules::check_events,
        );
        async move { self.answered(&method, guest.finish().await) }.boxed()
    }
}

/// A call of a module, with what its errors name.
struct ModuleCall<'a> {
    module: &'a TranslatorModule,
    method: String,
    guest: RunningGuest<'a, Result<Vec<u8>, ModuleText>>,
}

impl TranslatedCall for ModuleCall<'_> {
    fn resume(&mut self, answer: Option<NextAnswer>) -> BoxFuture<'_, CallProgress> {
        let resumed = async {
            match self.guest.resume(answer).await {
                GuestProgress::Next(call) => CallProgress::Next(call),
                GuestProgress::Ended(ended) => {
                    CallProgress::Answered(self.module.answered(&self.method, ended))
                }
            }
        };
        resumed.boxed()
    }
}

/// Runs one call on an exclusive instance. Returns the instance to the pool only if the call
/// succeeded and `accept` accepted its result.
fn running<'a, R: Send + 'a>(
    instances: &'a Instances<Translator>,
    has_next: bool,
    answer_bytes: usize,
    call: impl for<'s> FnOnce(&'s TranslatorGuest, &'s mut Store<InstanceState>) -> GuestFuture<'s, R>
    + Send
    + 'a,
    accept: impl FnOnce(R) -> Result<R, CallError> + Send + 'a,
) -> RunningGuest<'a, R> {
    let exchange = Exchange::new(has_next);
    let connected = Arc::clone(&exchange);
    let guest = async move {
        // Calls wait before they begin, in the chain: one that waited here would keep what the
        // chain holds.
        let mut slot = instances.take_slot(Duration::ZERO)?;
        let mut instance = match slot.idle.take() {
            Some(mut instance) => {
                instance.store.data_mut().exchange = connected;
                instance
            }
            None => start(instances, connected).await?,
        };
        begin(&mut instance.store, 1, answer_bytes);
        let answer = call(&instance.guest, &mut instance.store).await;
        let answer = answer.map_err(|error| instances.call_failed(&instance.store, &error))?;
        let answer = accept(answer)?;
        slot.give_back(instance);
        Ok(answer)
    };
    RunningGuest::new(guest.boxed(), exchange, &instances.sandbox)
}

async fn start(
    instances: &Instances<Translator>,
    exchange: Arc<Exchange>,
) -> Result<Instance<TranslatorGuest>, CallError> {
    let mut store = instances.store();
    store.data_mut().exchange = exchange;
    interrupt_between_slices(&mut store, instances.sandbox.clock().clone());
    begin(&mut store, 1, instances.sandbox.limits().answer_bytes);
    let guest = instances.linked.instantiate(&mut store).await;
    let guest = guest.map_err(|error| instances.not_started(&store, &error))?;
    Ok(Instance { store, guest })
}

impl std::fmt::Debug for TranslatorModule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TranslatorModule")
            .field("file", &self.file)
            .field("digest", &self.digest)
            .finish_non_exhaustive()
    }
}
