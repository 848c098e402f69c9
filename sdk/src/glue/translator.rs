//! The translator world's bindings, and the conversion of their records.

use bindings::diego::translator::{log as host_log, next as host_next, types as wire};

use crate::log::Level;
use crate::translator::{
    Answer, ApiVersion, Event, Fault, Method, Next, Operation, RecordChange, Translator,
    TranslatorManifest, Verb,
};

#[allow(
    unsafe_code,
    missing_debug_implementations,
    unreachable_pub,
    clippy::all
)]
#[doc(hidden)]
pub mod bindings {
    //! Generated from the contract.
    wit_bindgen::generate!({
        path: "wit/translator-0.1.0",
        world: "translator",
        pub_export_macro: true,
        disable_custom_section_link_helpers: true,
    });
}

/// Implemented by the export macro; the generated `Guest` trait follows from it.
pub trait TranslatorComponent {
    /// The exported translator.
    type Translator: Translator;
}

/// The next newer version, through the host's import.
struct HostNext;

impl Next for HostNext {
    fn call(&self, method: &str, request: &[u8]) -> Result<Vec<u8>, Fault> {
        host_next::call(method, request).map_err(|fault| Fault {
            reason: fault.reason,
        })
    }
}

impl<C: TranslatorComponent> bindings::Guest for C {
    fn describe() -> wire::Manifest {
        crate::log::set_destination(log);
        manifest(C::Translator::manifest())
    }

    fn call(method: String, request: Vec<u8>) -> Result<Vec<u8>, wire::Fault> {
        crate::log::set_destination(log);
        C::Translator::call(&method, &request, &HostNext).map_err(fault)
    }

    fn events(method: String, given: wire::Operation) -> Result<Vec<wire::Event>, wire::Fault> {
        crate::log::set_destination(log);
        let events = C::Translator::events(&method, operation(given))
            .map_err(fault)?
            .into_iter();
        Ok(events
            .map(
                |Event {
                     name,
                     payload,
                     cells,
                 }| wire::Event {
                    name,
                    payload,
                    cells,
                },
            )
            .collect())
    }
}

fn log(level: Level, message: &str) {
    let level = match level {
        Level::Debug => host_log::Level::Debug,
        Level::Info => host_log::Level::Info,
        Level::Warn => host_log::Level::Warn,
    };
    host_log::log(level, message);
}

fn fault(fault: Fault) -> wire::Fault {
    wire::Fault {
        reason: fault.reason,
    }
}

fn operation(operation: wire::Operation) -> Operation {
    let change = |wire::Change {
                      message,
                      before,
                      after,
                  }| RecordChange {
        message,
        before,
        after,
    };
    let event = |wire::Event {
                     name,
                     payload,
                     cells,
                 }| Event {
        name,
        payload,
        cells,
    };
    Operation {
        changes: operation.changes.into_iter().map(change).collect(),
        events: operation.events.into_iter().map(event).collect(),
    }
}

fn manifest(manifest: TranslatorManifest) -> wire::Manifest {
    let version = |version: ApiVersion| wire::ApiVersion {
        major: version.major,
        minor: version.minor,
    };
    wire::Manifest {
        serves: version(manifest.serves),
        onto: version(manifest.onto),
        side: manifest.side.map(str::to_owned),
        name: manifest.name.to_owned(),
        summary: manifest.summary.to_owned(),
        methods: manifest.methods.into_iter().map(method).collect(),
        hides: manifest.hides.into_iter().map(str::to_owned).collect(),
    }
}

fn method(method: Method) -> wire::Method {
    wire::Method {
        name: method.name.to_owned(),
        verb: match method.verb {
            Verb::Post => wire::Verb::Post,
            Verb::Get => wire::Verb::Get,
        },
        path: method.path.to_owned(),
        answer: match method.answer {
            Answer::Message => wire::Answer::Message,
            Answer::Pages => wire::Answer::Pages,
            Answer::Events(newer) => wire::Answer::Events(newer.to_owned()),
        },
    }
}
