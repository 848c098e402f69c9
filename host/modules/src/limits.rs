//! Limits of modules. Every limit has a default, so that a host without any configuration is safe.

use std::time::Duration;

/// The limits of every module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Largest size of a component's file.
    pub component_bytes: u64,
    /// Bounds of the code that the compiler is given.
    pub code: CodeLimits,
    /// Bounds of the process that compiles.
    pub compile: CompileLimits,
    /// Largest linear memory of each instance.
    pub memory_bytes: usize,
    /// An instance whose memory is larger is discarded after its call instead of being reused.
    pub idle_memory_bytes: usize,
    /// Size of the WebAssembly stack.
    pub stack_bytes: usize,
    /// Largest number of elements of one table.
    pub table_elements: usize,
    /// Most processor time of one call, not counting that of a translator's `next`.
    pub call_time: Duration,
    /// Largest total size of one call's result.
    pub answer_bytes: usize,
    /// Largest total size of a manifest.
    pub manifest_bytes: usize,
    /// Largest linear memory of the instances of all translators together. Half of it is divided
    /// among them.
    pub translator_memory_bytes: usize,
    /// Most log lines during one call.
    pub log_lines: u32,
    /// Largest length of a log line in bytes; longer lines are truncated.
    pub log_line_bytes: usize,
    /// Most concurrent instances of one module; further calls wait.
    pub instances: usize,
    /// Longest time that a call of a migration waits for an instance.
    pub instance_wait: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            component_bytes: 4 << 20,
            code: CodeLimits::default(),
            compile: CompileLimits::default(),
            memory_bytes: 64 << 20,
            idle_memory_bytes: 16 << 20,
            stack_bytes: 512 << 10,
            table_elements: 10_000,
            call_time: Duration::from_secs(5),
            answer_bytes: 32 << 20,
            manifest_bytes: 1 << 20,
            translator_memory_bytes: 256 << 20,
            log_lines: 100,
            log_line_bytes: 2_000,
            instances: 16,
            instance_wait: Duration::from_secs(30),
        }
    }
}

/// The limits of the process that compiles one component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileLimits {
    /// Largest size of its memory in bytes.
    pub memory_bytes: u64,
    /// Most processor time of all its threads, in whole seconds.
    pub processor_time: Duration,
    /// Longest time until it ends, however little processor time it gets.
    pub wait: Duration,
}

impl Default for CompileLimits {
    fn default() -> Self {
        Self {
            memory_bytes: 512 << 20,
            processor_time: Duration::from_secs(60),
            wait: Duration::from_secs(300),
        }
    }
}

/// The limits of what the compiler is given, for one component. They refuse with a reason that
/// names what to make smaller, and estimate what it costs; what it costs indeed is limited by
/// [`CompileLimits`]. The largest module that is shipped has 139 KB of code and 287 functions; the
/// largest function has 25 KB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeLimits {
    /// Most core modules; `bbs module build` makes three: the module, and two that connect its
    /// imports.
    pub core_modules: u64,
    /// Largest total size of types, imports, exports and everything else but code, data and custom
    /// sections.
    pub definition_bytes: u64,
    /// Most functions of all core modules.
    pub functions: u64,
    /// Most parameters of one function.
    pub parameters: u64,
    /// Most results of one function.
    pub results: u64,
    /// Largest size of one function.
    pub function_bytes: u64,
    /// Largest total size of all functions.
    pub code_bytes: u64,
    /// Most types of instances and components in other such types, in a section. Shipped modules
    /// have none; the compiler takes 100 inside each other.
    pub nested_types: u64,
    /// Most blocks inside each other.
    pub nested_blocks: u64,
    /// Most combinations of values and branches: for each function the product of their numbers,
    /// over all functions. Shipped modules have up to 0.4 million. The compiler takes up to 130
    /// bytes for each.
    pub branch_values: u64,
}

impl Default for CodeLimits {
    fn default() -> Self {
        Self {
            core_modules: 4,
            definition_bytes: 64 << 10,
            functions: 10_000,
            parameters: 64,
            results: 4,
            function_bytes: 128 << 10,
            code_bytes: 2 << 20,
            nested_types: 100,
            nested_blocks: 1_000,
            branch_values: 2_000_000,
        }
    }
}
