//! `bbs compile-component`: the work of the process that compiles a component for a host or a
//! command.

use std::process::ExitCode;

use clap::Args;

use bbs_modules::sandbox::{ProcessLimits, compile_input};

/// Compile the component on standard input, within limits, to standard output. For this program's
/// own use.
#[derive(Debug, Args)]
pub(super) struct CompileComponentCommand {
    /// Largest size of the memory of this process.
    #[arg(long, value_name = "BYTES")]
    memory_bytes: u64,
    /// Most processor time of this process.
    #[arg(long, value_name = "SECONDS")]
    processor_seconds: u64,
}

impl CompileComponentCommand {
    pub(super) fn run(&self) -> ExitCode {
        let Self {
            memory_bytes,
            processor_seconds,
        } = *self;
        ExitCode::from(compile_input(ProcessLimits {
            memory_bytes,
            processor_seconds,
        }))
    }
}
