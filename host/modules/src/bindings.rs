//! Bindings of the contract: one file for each released version of a WIT package, which converts it
//! to the host's own types. Owns the conversion; contains no policy.

pub(super) mod migration_0_1;
pub(super) mod translator_0_1;

use wasmtime::component::types::{ComponentInstance, ComponentItem};
use wasmtime::component::{Component, Lift, Linker};
use wasmtime::{Engine, StoreContextMut};

use super::instance::InstanceState;
use super::log::GuestLogLevel;

/// Adds every imported interface that only has types to the linker: the SDK imports those of both
/// contracts into every module.
fn link_types(component: &Component, linker: &mut Linker<InstanceState>) -> wasmtime::Result<()> {
    let engine = component.engine();
    for (name, import) in component.component_type().imports(engine) {
        match import.ty {
            ComponentItem::ComponentInstance(instance) if called(engine, &instance).is_empty() => {
                linker.instance(name)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Adds the import `log` of an interface, whose levels are converted by `level`.
fn link_log<L: Lift + 'static>(
    linker: &mut Linker<InstanceState>,
    interface: &str,
    level: impl Fn(L) -> GuestLogLevel + Send + Sync + 'static,
) -> wasmtime::Result<()> {
    linker.instance(interface)?.func_wrap(
        "log",
        move |mut store: StoreContextMut<'_, InstanceState>, (wire, message): (L, String)| {
            store.data_mut().log.write(level(wire), &message);
            Ok(())
        },
    )
}

/// The functions and other non-type items of an imported interface.
pub(super) fn called(engine: &Engine, instance: &ComponentInstance) -> Vec<String> {
    let exports = instance
        .exports(engine)
        .filter(|(_, export)| !matches!(export.ty, ComponentItem::Type(_)));
    exports.map(|(function, _)| function.to_owned()).collect()
}
