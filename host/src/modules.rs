//! WebAssembly modules: the catalog, the sandbox and the bindings. The only place that knows wasmtime.

pub mod translate;
