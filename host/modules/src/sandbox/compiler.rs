//! Compilation of a component in a process of its own: the same executable, whose memory and
//! processor time the kernel limits, since a compiler cannot be interrupted, and what it needs
//! cannot be known from a component. Owns that process, what the two pass each other, and the
//! errors.
//!
//! The host writes the component to the standard input of the process and reads the sealed artifact
//! from its standard output.

use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use bbs_files::digest::digest_of;
use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};
use wasmtime::{Config, Engine};

use super::artifacts::{ARTIFACT_BYTES, EngineFingerprint, SealedArtifact};
use crate::limits::CompileLimits;
use crate::text::ModuleText;

/// The command of the executable that [`compile_input`] is for.
pub const COMPILE_COMMAND: &str = "compile-component";

/// The executable of this process, also if its file was replaced since: another version would
/// compile for another engine.
const THIS_EXECUTABLE: &str = "/proc/self/exe";

/// Most threads of the compiler. Each has a function in memory, so that more of them take more
/// memory.
const MOST_THREADS: usize = 8;

/// Longest text that is read of a process that failed, in bytes.
const ERROR_BYTES: u64 = 16 << 10;

/// The beginning of the message with which a process ends that is denied memory.
const DENIED_MEMORY: &str = "memory allocation of ";

/// The exit codes of the process for a component that the engine refuses, and for other failures.
const REFUSED: u8 = 3;
const FAILED: u8 = 1;

/// The executable that compiles components.
#[derive(Debug)]
pub(super) struct Compiler {
    executable: PathBuf,
}

/// Why a component was not compiled. The messages continue the name of a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    #[error(
        "took more than {limit:?} of processor time to compile; make its functions smaller or fewer"
    )]
    Time { limit: Duration },
    #[error(
        "took more than {limit} bytes of memory to compile; make its functions smaller or fewer"
    )]
    Memory { limit: u64 },
    #[error("was not compiled within {limit:?}; give the host more processor time")]
    Wait { limit: Duration },
    #[error(
        "is not a WebAssembly component this host can run; build it with `bbs module build`: {reason}"
    )]
    Component { reason: ModuleText },
    #[error(
        "cannot be compiled, since a process for it cannot be started ({reason}); raise the limit of processes"
    )]
    Start { reason: ModuleText },
    #[error(
        "cannot be compiled: the process for it {end}; please report it with the file: {reason}"
    )]
    Process { end: String, reason: ModuleText },
}

impl Default for Compiler {
    fn default() -> Self {
        Self::at(Path::new(THIS_EXECUTABLE))
    }
}

/// Output of a process that has ended.
struct Ended {
    status: ExitStatus,
    output: Vec<u8>,
    errors: String,
    /// Whether the wait for it was over first, so that it was killed.
    is_late: bool,
}

impl Compiler {
    /// Compiles with this executable, which has to be of the same build as this process.
    pub(super) fn at(executable: &Path) -> Self {
        Self {
            executable: executable.to_owned(),
        }
    }

    /// Compiles a component. The process has ended when this returns. Blocks.
    ///
    /// # Errors
    /// It is no component that an engine of this configuration can run, or compiling it exceeds a
    /// limit.
    pub(super) fn compile(
        &self,
        component: &[u8],
        limits: &CompileLimits,
    ) -> Result<SealedArtifact, CompileError> {
        let ended = self.run(component, limits);
        let ended = ended.map_err(|error| CompileError::Start {
            reason: ModuleText::of_error(&error),
        })?;
        if ended.is_late {
            return Err(CompileError::Wait { limit: limits.wait });
        }
        if ended.status.success() {
            return Ok(SealedArtifact::of_bytes(ended.output));
        }
        let reason = || ModuleText::reason(ended.errors.trim());
        let signal = ended.status.signal().and_then(Signal::from_named_raw);
        Err(match signal {
            Some(Signal::XCPU) => CompileError::Time {
                limit: limits.processor_time,
            },
            Some(Signal::ABORT) if ended.errors.contains(DENIED_MEMORY) => CompileError::Memory {
                limit: limits.memory_bytes,
            },
            None if ended.status.code() == Some(REFUSED.into()) => {
                CompileError::Component { reason: reason() }
            }
            Some(_) | None => CompileError::Process {
                end: format!("ended with {}", ended.status),
                reason: reason(),
            },
        })
    }

    fn run(&self, component: &[u8], limits: &CompileLimits) -> io::Result<Ended> {
        let threads = std::thread::available_parallelism()
            .map_or(1, usize::from)
            .min(MOST_THREADS);
        let mut process = Command::new(&self.executable)
            .arg0("bbs")
            .args([
                COMPILE_COMMAND,
                "--memory-bytes",
                &limits.memory_bytes.to_string(),
            ])
            .args([
                "--processor-seconds",
                &seconds(limits.processor_time).to_string(),
            ])
            // Without the secrets of the host's environment.
            .env_clear()
            .env("RAYON_NUM_THREADS", threads.to_string())
            // The allocator of a static executable would make 1 GiB writable at once, which counts
            // as memory of the process.
            .env("MIMALLOC_ARENA_EAGER_COMMIT", "0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut input = process.stdin.take().expect("it is piped");
        let output = process.stdout.take().expect("it is piped");
        let errors = process.stderr.take().expect("it is piped");
        std::thread::scope(|scope| {
            // Fails if the process ends early, which its status shows.
            scope.spawn(move || drop(input.write_all(component)));
            let (reading, end) = mpsc::channel::<()>();
            let output = scope.spawn(move || {
                let _reading = reading;
                beginning(output, ARTIFACT_BYTES)
            });
            let errors = scope.spawn(move || beginning(errors, ERROR_BYTES));
            let is_late = end.recv_timeout(limits.wait) == Err(mpsc::RecvTimeoutError::Timeout);
            if is_late {
                process.kill()?;
            }
            let status = process.wait()?;
            let output = output.join().expect("reading does not panic");
            let errors = errors.join().expect("reading does not panic");
            let errors = String::from_utf8_lossy(&errors).into_owned();
            Ok(Ended {
                status,
                output,
                errors,
                is_late,
            })
        })
    }
}

/// Reads the output of a process, up to `bytes`. If it writes more, it finds its pipe closed.
fn beginning(pipe: impl Read, bytes: u64) -> Vec<u8> {
    let mut read = Vec::new();
    // An error of a pipe is its end.
    let _ = pipe.take(bytes).read_to_end(&mut read);
    read
}

/// The limit of the kernel, which counts in seconds and takes zero for one.
fn seconds(time: Duration) -> u64 {
    time.as_secs_f64().ceil().max(1.0) as u64
}

/// Limits of the process that compiles.
#[derive(Debug, Clone, Copy)]
pub struct ProcessLimits {
    /// Largest size of its data: all memory but its code and the stack of its first thread, in
    /// bytes.
    pub memory_bytes: u64,
    /// Most processor time of all its threads, in seconds.
    pub processor_seconds: u64,
}

/// Compiles the component on standard input and writes the sealed artifact to standard output: the
/// whole work of the process that compiles. Returns its exit code.
pub fn compile_input(limits: ProcessLimits) -> u8 {
    let (reason, code) = match limit_process(limits)
        .map_err(InputError::Process)
        .and_then(|()| compiled())
    {
        Ok(()) => return 0,
        Err(InputError::Component(reason)) => (format!("{reason:#}"), REFUSED),
        Err(InputError::Process(error)) => (error.to_string(), FAILED),
    };
    // Without a reader the code alone says what happened.
    let _ = writeln!(io::stderr().lock(), "{reason}");
    code
}

/// Why the process wrote no artifact.
enum InputError {
    /// The engine refuses the component.
    Component(wasmtime::Error),
    Process(io::Error),
}

fn compiled() -> Result<(), InputError> {
    let mut component = Vec::new();
    io::stdin()
        .lock()
        .read_to_end(&mut component)
        .map_err(InputError::Process)?;
    let engine = Engine::new(&code_config()).map_err(InputError::Component)?;
    let artifact = engine
        .precompile_component(&component)
        .map_err(InputError::Component)?;
    let sealed = SealedArtifact::new(
        &artifact,
        &digest_of(&component),
        EngineFingerprint::of(&engine),
    );
    io::stdout()
        .lock()
        .write_all(sealed.bytes())
        .map_err(InputError::Process)
}

fn limit_process(limits: ProcessLimits) -> io::Result<()> {
    // The work of a host that is killed is of no use.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The kernel that runs out of memory ends this process, not the host. It may be forbidden.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let limit = |resource, current, maximum| {
        setrlimit(
            resource,
            Rlimit {
                current: Some(current),
                maximum: Some(maximum),
            },
        )
    };
    // Address space that is only reserved does not count.
    limit(Resource::Data, limits.memory_bytes, limits.memory_bytes)?;
    let ProcessLimits {
        processor_seconds, ..
    } = limits;
    limit(Resource::Cpu, processor_seconds, processor_seconds + 1)?;
    Ok(())
}

/// The settings of the engine that machine code depends on: the same in both processes, or the host
/// rejects the artifact.
pub(super) fn code_config() -> Config {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        // No export or import is asynchronous in the component model's sense; without the support,
        // a call costs a quarter.
        .concurrency_support(false)
        .wasm_component_model(true)
        .wasm_memory64(false)
        .wasm_multi_memory(false)
        .wasm_tail_call(false)
        .gc_support(false)
        // Deterministic results on every machine.
        .cranelift_nan_canonicalization(true)
        .relaxed_simd_deterministic(true)
        .wasm_backtrace_max_frames(None)
        .generate_address_map(false);
    config
}
