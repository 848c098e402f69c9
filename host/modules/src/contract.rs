//! Recognises the contract that a component was built for, from its type alone, before any of its
//! code runs. Owns the list of contracts and the imports that each allows.

use wasmtime::component::Component;
use wasmtime::component::types::ComponentItem;

use super::bindings::called;
use super::bindings::migration_0_1::{self, Migration};
use super::bindings::translator_0_1::{self, Translator};
use super::text::ModuleText;

/// A component of a known contract, linked to its imports.
pub(super) enum Contract {
    Migration(Migration),
    Translator(Translator),
}

/// Why a component implements no contract.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContractError {
    #[error(
        "it imports `{import}`, which no module gets: modules have no clock, files, network or randomness; \
         take what it needs from `run` or from the rows"
    )]
    ForeignImport { import: ModuleText },
    #[error(
        "it exports {exports}, which is neither a migration (`describe`, `up`, `down`) nor a translator \
         (`describe`, `call`, `events`); end it with the SDK's export macro"
    )]
    UnknownWorld { exports: ModuleText },
    #[error(
        "its types differ from the contract's ({reason}); rebuild it with the SDK of this host"
    )]
    Types { reason: ModuleText },
}

const MIGRATION_EXPORTS: &[&str] = &["describe", "down", "up"];
const TRANSLATOR_EXPORTS: &[&str] = &["call", "describe", "events"];

/// Recognises the contract of a component and links its imports.
pub(super) fn recognise(component: &Component) -> Result<Contract, ContractError> {
    let mut exports = exported_functions(component);
    exports.sort();
    let types = |error: wasmtime::Error| ContractError::Types {
        reason: ModuleText::reason(&format!("{error:#}")),
    };
    if exports == MIGRATION_EXPORTS {
        refuse_foreign_imports(component, migration_0_1::IMPORTS)?;
        return Ok(Contract::Migration(
            Migration::link(component).map_err(types)?,
        ));
    }
    if exports == TRANSLATOR_EXPORTS {
        refuse_foreign_imports(component, translator_0_1::IMPORTS)?;
        return Ok(Contract::Translator(
            Translator::link(component).map_err(types)?,
        ));
    }
    Err(ContractError::UnknownWorld {
        exports: ModuleText::reason(&format!("{exports:?}")),
    })
}

/// The imported functions of a component, as `interface#function`. Interfaces that only have types
/// are omitted.
pub(super) fn imports(component: &Component) -> Vec<String> {
    let engine = component.engine();
    let mut imports = Vec::new();
    for (name, import) in component.component_type().imports(engine) {
        match import.ty {
            ComponentItem::ComponentInstance(instance) => {
                let called = called(engine, &instance);
                imports.extend(called.iter().map(|function| format!("{name}#{function}")));
            }
            _ => imports.push(name.to_owned()),
        }
    }
    imports
}

fn exported_functions(component: &Component) -> Vec<String> {
    let exports = component.component_type();
    let functions = exports
        .exports(component.engine())
        .filter(|(_, export)| !matches!(export.ty, ComponentItem::Type(_)));
    functions.map(|(name, _)| name.to_owned()).collect()
}

/// Rejects imports outside the contract's interfaces. Unknown functions of a contract's interface
/// fail when linking.
fn refuse_foreign_imports(component: &Component, allowed: &[&str]) -> Result<(), ContractError> {
    match imports(component).into_iter().find(|import| {
        let interface = import
            .split_once('#')
            .map_or(import.as_str(), |(interface, _)| interface);
        !allowed.contains(&interface)
    }) {
        Some(import) => Err(ContractError::ForeignImport {
            import: ModuleText::reason(&import),
        }),
        None => Ok(()),
    }
}
