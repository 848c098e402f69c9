//! What the process says: lines for people, or lager's JSON, which Diego's log parsers read. Owns their form, their way
//! out and the level, which may change while the host runs; what is said is everybody's own.
//!
//! An event is a sentence for people. In lager's form it is known by the name that its event was given, such as
//! `migration-manager.finished-migrations`, or by the module that said it; the sentence is then part of the data.

mod lager;
pub mod line;
mod scrub;
pub mod writer;

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

use crate::config::{LogLevel, Logging};
pub use scrub::{Scrub, ScrubError};
use writer::Writer;

/// What Diego's own executable calls itself where its file does not say.
pub const SOURCE: &str = "bbs";

/// The log of this process. Dropped, it waits until everything is written.
#[derive(Debug)]
pub struct Logs {
    level: Level,
    lines: Option<Writer>,
}

/// How much is said. Clones set the same level.
#[derive(Debug, Clone)]
pub struct Level {
    filter: reload::Handle<EnvFilter, Registry>,
    fatal_only: Arc<AtomicBool>,
}

impl Level {
    pub fn set(&self, level: LogLevel) {
        self.fatal_only.store(level == LogLevel::Fatal, Ordering::Relaxed);
        // Only a subscriber that is gone refuses, and then nothing is said any more.
        let _ = self.filter.reload(filter(level));
    }
}

/// Says nothing of other crates but their warnings: what they say below that is about themselves.
fn filter(level: LogLevel) -> EnvFilter {
    let level = match level {
        LogLevel::Debug => "debug",
        LogLevel::Info => "info",
        LogLevel::Error | LogLevel::Fatal => "error",
    };
    let others = if level == "error" { "error" } else { "warn" };
    EnvFilter::new(format!("{others},bbs={level}"))
}

impl Logs {
    /// As the configuration says: lager's lines on standard output where the file gives a `session_name`, as Diego's
    /// always does, and nobody is looking.
    pub fn start(logging: &Logging) -> Result<Self, ScrubError> {
        match &logging.session_name {
            Some(source) if !std::io::stdout().is_terminal() => Self::lager(source, logging),
            _ => Ok(Self::readable(logging.level)),
        }
    }

    fn lager(source: &str, logging: &Logging) -> Result<Self, ScrubError> {
        let scrub = Scrub::new(logging.max_data_string_length, logging.redact.as_deref())?;
        let lines = Writer::start("log", std::io::stdout());
        let (filter, level) = Level::new(logging.level);
        let lager = lager::Lager::new(source, logging.time_format, scrub, lines.clone(), Arc::clone(&level.fatal_only));
        tracing_subscriber::registry().with(filter).with(lager).init();
        Ok(Self { level, lines: Some(lines) })
    }

    /// Lines for people, on standard error.
    pub fn readable(level: LogLevel) -> Self {
        let (filter, level) = Level::new(level);
        let lines = fmt::layer().with_ansi(std::io::stderr().is_terminal()).with_writer(std::io::stderr);
        tracing_subscriber::registry().with(filter).with(lines).init();
        Self { level, lines: None }
    }

    pub fn level(&self) -> &Level {
        &self.level
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        if let Some(lines) = &self.lines {
            lines.flush();
        }
    }
}

impl Level {
    /// `RUST_LOG` refines what the configuration says, until the level is changed.
    fn new(level: LogLevel) -> (reload::Layer<EnvFilter, Registry>, Self) {
        let wanted = EnvFilter::try_from_default_env().unwrap_or_else(|_| filter(level));
        let (layer, handle) = reload::Layer::new(wanted);
        (layer, Self { filter: handle, fatal_only: Arc::new(AtomicBool::new(level == LogLevel::Fatal)) })
    }
}
