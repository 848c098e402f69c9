//! What a module may use. Every bound has a default, so a host without any configuration is safe.

use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Of a component's file.
    pub component_bytes: u64,
    /// For compiling one component.
    pub compile_time: Duration,
    /// Of linear memory, for each instance.
    pub memory_bytes: usize,
    /// An instance that has grown beyond this is thrown away after its call instead of waiting for the next.
    pub idle_memory_bytes: usize,
    /// Of WebAssembly stack, for each call.
    pub stack_bytes: usize,
    /// Elements of one table.
    pub table_elements: usize,
    /// For one call, not counting what a translator spends in `next`.
    pub call_time: Duration,
    /// Of everything that one call gives back.
    pub answer_bytes: usize,
    /// That a translator may make in one call.
    pub next_calls: u32,
    /// That one call may write.
    pub log_lines: u32,
    /// Of one line; the rest is cut off.
    pub log_line_bytes: usize,
    /// Of one module. A call beyond them waits for one to come back.
    pub instances: usize,
    /// For an instance to come back.
    pub instance_wait: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            component_bytes: 16 << 20,
            compile_time: Duration::from_secs(60),
            memory_bytes: 64 << 20,
            idle_memory_bytes: 16 << 20,
            stack_bytes: 512 << 10,
            table_elements: 10_000,
            call_time: Duration::from_secs(5),
            answer_bytes: 32 << 20,
            next_calls: 1_000,
            log_lines: 100,
            log_line_bytes: 2_000,
            instances: 16,
            instance_wait: Duration::from_secs(30),
        }
    }
}
