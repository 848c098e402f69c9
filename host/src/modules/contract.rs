//! Which contract a component was built for, told from its type alone: nothing of it has run yet.
//! Owns the list of contracts and what each lets a component import.

use wasmtime::Engine;
use wasmtime::component::Component;
use wasmtime::component::types::ComponentItem;

use super::bindings::migration_0_1::{self, Migration};
use super::bindings::translator_0_1::{self, Translator};

/// A component of a known contract, linked to its imports.
pub(super) enum Contract {
    Migration(Migration),
    Translator(Translator),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContractError {
    #[error(
        "it imports `{import}`, which no module gets: modules have no clock, files, network or randomness; \
         take what it needs from `run` or from the rows"
    )]
    ForeignImport { import: String },
    #[error(
        "it exports {exports:?}, which is neither a migration (`describe`, `up`, `down`) nor a translator \
         (`describe`, `call`, `events`); export it with the SDK's macro"
    )]
    UnknownWorld { exports: Vec<String> },
    #[error("it is not of the contract it names ({reason}); build it anew with the SDK of this host")]
    Types { reason: String },
}

const MIGRATION_EXPORTS: &[&str] = &["describe", "down", "up"];
const TRANSLATOR_EXPORTS: &[&str] = &["call", "describe", "events"];

/// Recognises the contract of a component and links it.
pub(super) fn recognise(engine: &Engine, component: &Component) -> Result<Contract, ContractError> {
    let mut exports = exported_functions(engine, component);
    exports.sort();
    let types = |error: wasmtime::Error| ContractError::Types { reason: format!("{error:#}") };
    if exports == MIGRATION_EXPORTS {
        refuse_foreign_imports(engine, component, migration_0_1::IMPORTS)?;
        return Ok(Contract::Migration(Migration::link(engine, component).map_err(types)?));
    }
    if exports == TRANSLATOR_EXPORTS {
        refuse_foreign_imports(engine, component, translator_0_1::IMPORTS)?;
        return Ok(Contract::Translator(Translator::link(engine, component).map_err(types)?));
    }
    Err(ContractError::UnknownWorld { exports })
}

/// What a component imports, as `interface` or `interface#function`.
pub(super) fn imports(engine: &Engine, component: &Component) -> Vec<String> {
    let mut imports = Vec::new();
    for (name, import) in component.component_type().imports(engine) {
        match import.ty {
            ComponentItem::ComponentInstance(instance) => {
                let called: Vec<_> = instance
                    .exports(engine)
                    .filter(|(_, export)| !matches!(export.ty, ComponentItem::Type(_)))
                    .map(|(function, _)| format!("{name}#{function}"))
                    .collect();
                if called.is_empty() {
                    imports.push(name.to_owned());
                }
                imports.extend(called);
            }
            _ => imports.push(name.to_owned()),
        }
    }
    imports
}

fn exported_functions(engine: &Engine, component: &Component) -> Vec<String> {
    let exports = component.component_type();
    let functions = exports.exports(engine).filter(|(_, export)| !matches!(export.ty, ComponentItem::Type(_)));
    functions.map(|(name, _)| name.to_owned()).collect()
}

/// What an interface of the contract does not have, linking refuses.
fn refuse_foreign_imports(engine: &Engine, component: &Component, allowed: &[&str]) -> Result<(), ContractError> {
    match imports(engine, component).into_iter().find(|import| {
        let interface = import.split_once('#').map_or(import.as_str(), |(interface, _)| interface);
        !allowed.contains(&interface)
    }) {
        Some(import) => Err(ContractError::ForeignImport { import }),
        None => Ok(()),
    }
}
