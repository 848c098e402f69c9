//! Connects the component model and the SDK: the generated bindings of each world, and the
//! conversion of their records. Compiled for WebAssembly only, where the bindings link; on other
//! targets the export macros expand to nothing, so that an author's tests run natively.

#[cfg(target_family = "wasm")]
pub mod migration;
#[cfg(target_family = "wasm")]
pub mod translator;

/// Exports a type that implements [`Migration`](crate::Migration) as the crate's component.
#[macro_export]
macro_rules! export_migration {
    ($migration:ty) => {
        #[cfg(target_family = "wasm")]
        const _: () = {
            struct ExportedMigration;

            impl $crate::migration_glue::MigrationComponent for ExportedMigration {
                type Migration = $migration;

                fn manifest() -> &'static $crate::Manifest {
                    static MANIFEST: ::std::sync::OnceLock<$crate::Manifest> = ::std::sync::OnceLock::new();
                    MANIFEST.get_or_init(<$migration as $crate::Migration>::manifest)
                }
            }

    $crate::migration_glue::bindings::export!(ExportedMigration with_types_in $crate::migration_glue::bindings);
        };
    };
}

/// Exports a type that implements [`Translator`](crate::Translator) as the crate's component.
#[macro_export]
macro_rules! export_translator {
    ($translator:ty) => {
        #[cfg(target_family = "wasm")]
        const _: () = {
            struct ExportedTranslator;

            impl $crate::translator_glue::TranslatorComponent for ExportedTranslator {
                type Translator = $translator;
            }

    $crate::translator_glue::bindings::export!(ExportedTranslator with_types_in $crate::translator_glue::bindings);
        };
    };
}
