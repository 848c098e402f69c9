//! Between the component model and the SDK: the generated bindings of each world and the moves from
//! their records to ours. Only in components, because the bindings do not link anywhere else; the
//! export macros are empty elsewhere, so that an author's tests run natively.

#[cfg(target_family = "wasm")]
pub mod migration;
#[cfg(target_family = "wasm")]
pub mod translator;

/// Makes a type that implements [`Migration`](crate::Migration) the crate's component.
#[macro_export]
macro_rules! export_migration {
    ($migration:ty) => {
        #[cfg(target_family = "wasm")]
        const _: () = {
            struct Component;

            impl $crate::migration_glue::Component for Component {
                type Migration = $migration;

                fn manifest() -> &'static $crate::Manifest {
                    static MANIFEST: ::std::sync::OnceLock<$crate::Manifest> = ::std::sync::OnceLock::new();
                    MANIFEST.get_or_init(<$migration as $crate::Migration>::manifest)
                }
            }

    $crate::migration_glue::bindings::export!(Component with_types_in $crate::migration_glue::bindings);
        };
    };
}

/// Makes a type that implements [`Translator`](crate::Translator) the crate's component.
#[macro_export]
macro_rules! export_translator {
    ($translator:ty) => {
        #[cfg(target_family = "wasm")]
        const _: () = {
            struct Component;

            impl $crate::translator_glue::Component for Component {
                type Translator = $translator;
            }

    $crate::translator_glue::bindings::export!(Component with_types_in $crate::translator_glue::bindings);
        };
    };
}
