//! The sandbox: one engine with the fewest features, the thread that interrupts overruns, the
//! limits, and the cache of compiled components. Owns what is compiled, when; runs no guest code.

mod artifacts;
mod compiler;
mod complexity;
mod ticker;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bbs_files::digest::to_hex;
use tokio::sync::Semaphore;
use wasmtime::component::Component;
use wasmtime::{Config, Engine, InstanceAllocationStrategy, PoolingAllocationConfig};

use self::artifacts::{Artifacts, EngineFingerprint};
pub use self::artifacts::{CacheError, CacheFolders};
use self::compiler::Compiler;
pub use self::compiler::{COMPILE_COMMAND, CompileError, ProcessLimits, compile_input};
use self::complexity::ComplexityError;
use self::ticker::Ticker;
pub(super) use self::ticker::{CallClock, Ticking};
pub use super::limits::{CodeLimits, CompileLimits, Limits};
use super::memory::{MemoryBudget, TranslatorMemory};
use super::text::ModuleText;

/// Interval of the epoch while calls run, and so the precision of every deadline and of the slices
/// of translators.
const TICK: Duration = Duration::from_millis(2);

/// Most instances at once, over all modules. Each reserves address space, not memory.
const INSTANCES: u32 = 1_000;

/// Core instances inside one component: the guest and two adapters for its imports.
const CORE_INSTANCES_PER_COMPONENT: u32 = 4;

/// Stack of an instance beyond that of its WebAssembly code, for the host's functions that it
/// calls.
const IMPORT_STACK_BYTES: usize = 512 << 10;

/// The first bytes of a WebAssembly file: the magic number, and the format's version and layer.
const COMPONENT: &[u8; 8] = b"\0asm\x0d\0\x01\0";
const CORE_MODULE: &[u8; 8] = b"\0asm\x01\0\0\0";

/// The engine with its limits and its cache. One per process.
pub struct Sandbox {
    ticker: Ticker,
    clock: CallClock,
    engine: Engine,
    limits: Limits,
    fingerprint: EngineFingerprint,
    compiler: Compiler,
    artifacts: Option<Artifacts>,
    compiled: AtomicUsize,
    translator_memory: Arc<MemoryBudget>,
    long_calls: Semaphore,
}

/// Why the sandbox cannot start.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error(
        "the sandbox cannot start; it needs a 64-bit Linux that lets a process reserve address space (see `ulimit -v`)"
    )]
    Engine(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the thread that ends overruns cannot start; raise the limit of threads")]
    Ticker(#[source] std::io::Error),
}

/// Why a file could not be compiled as a component.
#[derive(Debug, thiserror::Error)]
pub enum ComponentError {
    #[error("{} cannot be read; check that it exists and is readable", .path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{} is a folder; name a .wasm file, which `bbs module build CRATE --into DIR` makes of a crate", .path.display())]
    Folder { path: PathBuf },
    #[error(
        "{} is larger than {limit} bytes; build it with `bbs module build`, which removes debug information",
        .path.display()
    )]
    TooLarge { path: PathBuf, limit: u64 },
    #[error("{} is not a WebAssembly file; name a .wasm file that `bbs module build` wrote", .path.display())]
    NotWasm { path: PathBuf },
    #[error(
        "{} is a core WebAssembly module, and a host runs components; `bbs module build CRATE --into DIR` makes one of \
         the crate that it comes from",
        .path.display()
    )]
    CoreModule { path: PathBuf },
    #[error("{} {error}", .path.display())]
    Compile { path: PathBuf, error: CompileError },
    #[error(
        "{} costs too much to compile: it has {found} {what}, and a module has at most {limit}; make its functions smaller \
         or fewer", .path.display()
    )]
    TooComplex {
        path: PathBuf,
        what: &'static str,
        found: u64,
        limit: u64,
    },
}

impl Sandbox {
    /// Creates a sandbox. With `cache`, compiled components are loaded from and stored in these
    /// folders.
    ///
    /// # Errors
    /// If wasmtime or its interrupting thread cannot start.
    pub fn new(limits: Limits, cache: Option<&CacheFolders>) -> Result<Self, SandboxError> {
        Self::compiled_by(Compiler::default(), limits, cache)
    }

    /// As [`Self::new`], in a process that is not of the host's executable: components are compiled
    /// by that executable.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn compiled_at(
        executable: &Path,
        limits: Limits,
        cache: Option<&CacheFolders>,
    ) -> Result<Self, SandboxError> {
        Self::compiled_by(Compiler::at(executable), limits, cache)
    }

    fn compiled_by(
        compiler: Compiler,
        limits: Limits,
        cache: Option<&CacheFolders>,
    ) -> Result<Self, SandboxError> {
        let engine =
            Engine::new(&config(&limits)).map_err(|error| SandboxError::Engine(error.into()))?;
        let fingerprint = EngineFingerprint::of(&engine);
        let artifacts = cache.map(|folders| Artifacts::open(folders, fingerprint));
        let ticked = engine.clone();
        let ticker =
            Ticker::start(TICK, move || ticked.increment_epoch()).map_err(SandboxError::Ticker)?;
        Ok(Self {
            ticker,
            clock: CallClock::default(),
            engine,
            fingerprint,
            compiler,
            artifacts,
            compiled: AtomicUsize::new(0),
            translator_memory: MemoryBudget::new(limits.translator_memory_bytes),
            long_calls: Semaphore::new(threads_for_long_calls()),
            limits,
        })
    }

    /// The number of components that were compiled, because they were not in the cache.
    pub fn compiled(&self) -> usize {
        self.compiled.load(Ordering::Relaxed)
    }

    /// Why compiled components could not be stored, if any could not.
    pub fn cache_failure(&self) -> Option<&CacheError> {
        self.artifacts.as_ref().and_then(Artifacts::failure)
    }

    /// The limits of modules.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Makes time pass for a call, which is interrupted at the end of its own.
    pub(super) fn ticking(&self) -> Ticking<'_> {
        self.ticker.ticking()
    }

    /// The clock by which calls are limited.
    pub(super) fn clock(&self) -> &CallClock {
        &self.clock
    }

    /// Makes `time` pass at once for every running call. Tests stop a call that does not end with
    /// it, so that their limit can be longer than a correct call takes on a slow machine.
    pub fn skip(&self, time: Duration) {
        self.clock.skip(time);
        (0..Self::ticks(time)).for_each(|_| self.engine.increment_epoch());
    }

    /// The number of calls of translators that were interrupted because their time was used up.
    pub fn overruns(&self) -> u64 {
        self.clock.overruns()
    }

    /// The memory of one more translator.
    pub(super) fn translator_memory(&self) -> Arc<TranslatorMemory> {
        self.translator_memory.translator()
    }

    /// The slices of calls that compute for long: as many at once as threads may be without other
    /// tasks.
    pub(super) fn long_calls(&self) -> &Semaphore {
        &self.long_calls
    }

    /// The number of epoch ticks after which a call of at most `time` is looked at.
    pub(super) fn ticks(time: Duration) -> u64 {
        // One more, because the first tick may be imminent.
        u64::try_from(time.as_nanos().div_ceil(TICK.as_nanos())).unwrap_or(u64::MAX - 1) + 1
    }

    /// Reads a component's file, unless it is larger than the limit.
    pub(super) fn read(&self, path: &Path) -> Result<Vec<u8>, ComponentError> {
        let failed = |source| ComponentError::Read {
            path: path.to_owned(),
            source,
        };
        let limit = self.limits.component_bytes;
        match bbs_files::read(path, limit) {
            Err(error) if error.kind() == ErrorKind::FileTooLarge => {
                // A wrong file format is reported in preference to the size.
                refuse_other_files(
                    path,
                    &bbs_files::beginning(path, COMPONENT.len()).map_err(failed)?,
                )?;
                Err(ComponentError::TooLarge {
                    path: path.to_owned(),
                    limit,
                })
            }
            Err(_) if path.is_dir() => Err(ComponentError::Folder {
                path: path.to_owned(),
            }),
            read => read.map_err(failed),
        }
    }

    /// Compiles a component, or loads it from the cache. `path` is only used in errors.
    pub(super) fn compile(
        &self,
        path: &Path,
        bytes: &[u8],
        digest: &str,
    ) -> Result<Component, ComponentError> {
        if let Some(component) = self
            .artifacts
            .as_ref()
            .and_then(|artifacts| artifacts.load(&self.engine, digest))
        {
            return Ok(component);
        }
        refuse_other_files(path, bytes)?;
        self.refuse_complex(path, bytes)?;
        let failed = |error| ComponentError::Compile {
            path: path.to_owned(),
            error,
        };
        let artifact = self
            .compiler
            .compile(bytes, &self.limits.compile)
            .map_err(failed)?;
        #[allow(
            unsafe_code,
            reason = "compiled code, from a process of the host's own executable"
        )]
        // SAFETY: the bytes come from a process that this one started, of its own executable.
        let component =
            unsafe { artifact.load(digest, &self.engine, self.fingerprint) }.map_err(|reason| {
                let end = "returned no artifact that can be used".to_owned();
                failed(CompileError::Process {
                    end,
                    reason: ModuleText::reason(&reason),
                })
            })?;
        self.compiled.fetch_add(1, Ordering::Relaxed);
        if let Some(artifacts) = &self.artifacts {
            artifacts.store(&artifact, digest);
        }
        Ok(component)
    }

    /// Rejects components that would exceed the compiler's limits, with a reason that names what to
    /// make smaller.
    fn refuse_complex(&self, path: &Path, bytes: &[u8]) -> Result<(), ComponentError> {
        let path = path.to_owned();
        complexity::check(bytes, &self.limits.code).map_err(|refusal| match refusal {
            ComplexityError::Excess { what, found, limit } => ComponentError::TooComplex {
                path,
                what,
                found,
                limit,
            },
            ComplexityError::Malformed(error) => {
                let reason = ModuleText::reason(&error.to_string());
                ComponentError::Compile {
                    path,
                    error: CompileError::Component { reason },
                }
            }
        })
    }
}

/// Half of the threads that run tasks, which are as many as the machine has processors.
fn threads_for_long_calls() -> usize {
    std::thread::available_parallelism().map_or(1, |threads| (threads.get() / 2).max(1))
}

/// Rejects files that are no component by their first bytes: the compiler would parse other bytes
/// as WebAssembly text and quote them in its error.
fn refuse_other_files(path: &Path, bytes: &[u8]) -> Result<(), ComponentError> {
    let path = path.to_owned();
    match bytes.first_chunk::<8>() {
        Some(begin) if begin == COMPONENT => Ok(()),
        Some(begin) if begin == CORE_MODULE => Err(ComponentError::CoreModule { path }),
        Some(begin) if begin.starts_with(b"\0asm") => {
            let format = to_hex(&begin[4..]);
            let reason =
                format!("its format is {format}, which is neither a component nor a core module");
            let error = CompileError::Component {
                reason: ModuleText::reason(&reason),
            };
            Err(ComponentError::Compile { path, error })
        }
        _ => Err(ComponentError::NotWasm { path }),
    }
}

impl std::fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sandbox")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

fn config(limits: &Limits) -> Config {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(INSTANCES)
        .total_core_instances(INSTANCES * CORE_INSTANCES_PER_COMPONENT)
        .total_memories(INSTANCES)
        .total_tables(INSTANCES * 2)
        .total_stacks(INSTANCES)
        .max_core_instances_per_component(CORE_INSTANCES_PER_COMPONENT)
        .max_memories_per_component(1)
        .max_tables_per_component(2)
        .max_memory_size(limits.memory_bytes)
        .table_elements(limits.table_elements);
    let mut config = compiler::code_config();
    config
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool))
        .max_wasm_stack(limits.stack_bytes)
        // The import `next` runs on its guest's stack as well, up to where it waits.
        .async_stack_size(limits.stack_bytes + IMPORT_STACK_BYTES);
    config
}

#[cfg(test)]
mod tests;
