//! The translator world's bindings, and the conversion of their records.

use bindings::diego::translator::{log as host_log, next as host_next, types as wire};

use crate::log::Level;
use crate::translator::{ApiVersion, Event, Fault, Next, Operation, RowChange, Translator, TranslatorManifest};

#[allow(unsafe_code, missing_debug_implementations, unreachable_pub, clippy::all)]
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
        host_next::call(method, request).map_err(|fault| Fault { reason: fault.reason })
    }
}

impl<C: TranslatorComponent> bindings::Guest for C {
    fn describe() -> wire::Manifest {
        crate::log::set_destination(log);
        manifest(C::Translator::manifest())
    }

    fn call(method: String, request: Vec<u8>) -> Result<Vec<u8>, wire::Fault> {
        crate::log::set_destination(log);
        C::Translator::call(&method, &request, &HostNext).map_err(|fault| wire::Fault { reason: fault.reason })
    }

    fn events(given: wire::Operation) -> Vec<wire::Event> {
        crate::log::set_destination(log);
        let events = C::Translator::events(operation(given)).into_iter();
        events.map(|event| wire::Event { name: event.name, payload: event.payload }).collect()
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

fn operation(operation: wire::Operation) -> Operation {
    let change =
        |change: wire::Change| RowChange { message: change.message, before: change.before, after: change.after };
    let event = |event: wire::Event| Event { name: event.name, payload: event.payload };
    Operation {
        changes: operation.changes.into_iter().map(change).collect(),
        events: operation.events.into_iter().map(event).collect(),
        cell_id: operation.cell_id,
    }
}

fn manifest(manifest: TranslatorManifest) -> wire::Manifest {
    let version = |version: ApiVersion| wire::ApiVersion { major: version.major, minor: version.minor };
    let methods = manifest.methods.into_iter();
    wire::Manifest {
        serves: version(manifest.serves),
        onto: version(manifest.onto),
        name: manifest.name,
        summary: manifest.summary,
        methods: methods
            .map(|method| wire::Method { name: method.name, path: method.path, paged: method.paged })
            .collect(),
        hides: manifest.hides,
        events: manifest.events,
    }
}
