//! `diego:translator@0.1.0`, converted to the host's translator manifest.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use wasmtime::component::{Component, Linker};
use wasmtime::{Store, StoreContextMut};

use self::generated::diego::translator::log::Level as WireLevel;
use self::generated::diego::translator::types as wire;
use super::{link_log, link_types};
use crate::instance::{InstanceState, Linked};
use crate::log::GuestLogLevel;
use crate::text::ModuleText;
use crate::translate::{
    AnswerForm, ApiVersion, ChangedRecord, Method, NextCall, SideName, TranslatedEvent,
    TranslatorManifest, Verb,
};

mod generated {
    wasmtime::component::bindgen!({
        path: "../../sdk/wit/translator-0.1.0",
        world: "translator",
        exports: { default: async },
        ownership: Borrowing { duplicate_if_necessary: true },
    });
}

const LOG: &str = "diego:translator/log@0.1.0";
const NEXT: &str = "diego:translator/next@0.1.0";

/// The interfaces with functions that a component may import.
pub(crate) const IMPORTS: &[&str] = &[LOG, NEXT];

/// A call into a guest.
pub(crate) type GuestFuture<'a, R> = BoxFuture<'a, wasmtime::Result<R>>;

pub(crate) struct Translator(generated::TranslatorPre<InstanceState>);

impl Translator {
    /// Links the imports. Fails if the type of an import or export differs from the contract's.
    pub(crate) fn link(component: &Component) -> wasmtime::Result<Self> {
        let mut linker = Linker::new(component.engine());
        link_types(component, &mut linker)?;
        link_log(&mut linker, LOG, |level: WireLevel| match level {
            WireLevel::Debug => GuestLogLevel::Debug,
            WireLevel::Info => GuestLogLevel::Info,
            WireLevel::Warn => GuestLogLevel::Warn,
        })?;
        linker.instance(NEXT)?.func_wrap_async(
            "call",
            |store: StoreContextMut<'_, InstanceState>, (method, request): (String, Vec<u8>)| {
                let exchange = Arc::clone(&store.data().exchange);
                Box::new(async move {
                    let answer = exchange.call_next(NextCall { method, request }).await;
                    Ok((answer.map_err(|error| wire::Fault {
                        reason: error.reason,
                    }),))
                })
            },
        )?;
        Ok(Self(generated::TranslatorPre::new(
            linker.instantiate_pre(component)?,
        )?))
    }

    pub(crate) async fn instantiate(
        &self,
        store: &mut Store<InstanceState>,
    ) -> wasmtime::Result<TranslatorGuest> {
        Ok(TranslatorGuest(self.0.instantiate_async(store).await?))
    }
}

impl Linked for Translator {
    type Guest = TranslatorGuest;
}

pub(crate) struct TranslatorGuest(generated::Translator);

impl TranslatorGuest {
    /// The manifest. The inner error is what is wrong with it.
    pub(crate) async fn describe(
        &self,
        store: &mut Store<InstanceState>,
    ) -> wasmtime::Result<Result<TranslatorManifest, String>> {
        Ok(manifest(self.0.call_describe(store).await?))
    }

    /// Calls a method of the older API. The inner error is the fault that the module returned.
    pub(crate) async fn call(
        &self,
        store: &mut Store<InstanceState>,
        method: &str,
        request: &[u8],
    ) -> wasmtime::Result<Result<Vec<u8>, ModuleText>> {
        let answer = self.0.call_call(store, method, request).await?;
        Ok(answer.map_err(|fault| ModuleText::reason(&fault.reason)))
    }

    /// The events of an operation. The inner error is the fault that the module returned.
    pub(crate) async fn events(
        &self,
        store: &mut Store<InstanceState>,
        method: &str,
        changes: &[ChangedRecord],
        newer: &[TranslatedEvent],
    ) -> wasmtime::Result<Result<Vec<TranslatedEvent>, ModuleText>> {
        let changes: Vec<_> = changes
            .iter()
            .map(
                |ChangedRecord {
                     message,
                     before,
                     after,
                 }| wire::Change {
                    message,
                    before: before.as_deref(),
                    after: after.as_deref(),
                },
            )
            .collect();
        let cells: Vec<_> = newer
            .iter()
            .map(|event| event.cells.as_ref().map(|cells| slices(cells)))
            .collect();
        let events: Vec<_> = newer
            .iter()
            .zip(&cells)
            .map(
                |(TranslatedEvent { name, payload, .. }, cells)| wire::EventParam {
                    name,
                    payload,
                    cells: cells.as_deref(),
                },
            )
            .collect();
        let answer = self
            .0
            .call_events(
                store,
                method,
                wire::Operation {
                    changes: &changes,
                    events: &events,
                },
            )
            .await?;
        Ok(answer
            .map(|events| {
                events
                    .into_iter()
                    .map(|event| TranslatedEvent {
                        name: event.name,
                        payload: event.payload,
                        cells: event.cells,
                    })
                    .collect()
            })
            .map_err(|fault| ModuleText::reason(&fault.reason)))
    }
}

fn manifest(manifest: wire::Manifest) -> Result<TranslatorManifest, String> {
    let side = |name: String| {
        SideName::parse(&name).ok_or_else(|| {
            format!(
                "its side shape is named {name:?}; a name is up to 16 lower-case letters and digits"
            )
        })
    };
    Ok(TranslatorManifest {
        serves: ApiVersion {
            side: manifest.side.map(side).transpose()?,
            ..version(manifest.serves)
        },
        onto: version(manifest.onto),
        name: manifest.name,
        summary: manifest.summary,
        methods: manifest.methods.into_iter().map(method).collect(),
        hides: manifest.hides,
    })
}

fn method(
    wire::Method {
        name,
        verb,
        path,
        answer,
    }: wire::Method,
) -> Method {
    let verb = match verb {
        wire::Verb::Get => Verb::Get,
        wire::Verb::Post => Verb::Post,
    };
    let answer = match answer {
        wire::Answer::Message => AnswerForm::Message,
        wire::Answer::Pages => AnswerForm::Pages,
        wire::Answer::Events(newer) => AnswerForm::Events(newer),
    };
    Method {
        name,
        verb,
        path,
        answer,
    }
}

fn slices(texts: &[Vec<u8>]) -> Vec<&[u8]> {
    texts.iter().map(Vec::as_slice).collect()
}

fn version(version: wire::ApiVersion) -> ApiVersion {
    ApiVersion::new(version.major, version.minor)
}
