//! The log of the process: lines for people, or lager's JSON, which Diego's log parsers read. Owns
//! the format, the output and the level, which can change while the host runs; the events
//! themselves belong to the modules that emit them.
//!
//! An event's text is a sentence for people. In lager's form its message is the name that the event
//! was given, such as `migration-manager.finished-migrations`, or else the module that emitted it;
//! the sentence is then part of the data.

mod lager;
pub mod line;
mod readable;
mod redact;
pub mod writer;

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anstream::{AutoStream, ColorChoice};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, reload};

use crate::config::{LogFormat, LogLevel, Logging};
pub use redact::{RedactError, Redactor};
use writer::LineWriter;

/// The target of events that end the process.
pub const FATAL: &str = "bbs::fatal";

/// The source of lager's lines where the configuration names none: Diego's name of the component.
const COMPONENT: &str = "bbs";

/// The log of this process. Dropping it waits until all lines are written, for up to 5 s.
#[derive(Debug)]
pub struct Logs {
    level: LevelHandle,
    lines: Option<LineWriter>,
}

/// Changes the level of the log. Clones change the same level.
#[derive(Debug, Clone)]
pub struct LevelHandle {
    filter: reload::Handle<EnvFilter, Registry>,
    fatal_only: Arc<AtomicBool>,
}

impl LevelHandle {
    /// Sets the level, from now on.
    pub fn set(&self, level: LogLevel) {
        self.fatal_only
            .store(level == LogLevel::Fatal, Ordering::Relaxed);
        // Fails only if the subscriber is gone, and with it the log.
        let _ = self.filter.reload(filter(level));
    }
}

/// Limits other crates to warnings: their informational events describe their own internals.
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
    /// Starts the log: lager's lines on standard output, or lines for people on standard error.
    /// Without a format, lager's if the file has a `session_name`, as Diego's files have, and
    /// standard output is no terminal.
    ///
    /// # Errors
    /// If one of `redact_patterns` is not a regular expression.
    pub fn start(logging: &Logging) -> Result<Self, RedactError> {
        let session_name = logging.session_name.as_deref();
        let is_diegos = session_name.is_some() && !std::io::stdout().is_terminal();
        match logging.format {
            Some(LogFormat::Lager) => Self::lager(session_name.unwrap_or(COMPONENT), logging),
            None if is_diegos => Self::lager(session_name.unwrap_or(COMPONENT), logging),
            Some(LogFormat::Text) | None => Ok(Self::readable(logging.level)),
        }
    }

    fn lager(source: &str, logging: &Logging) -> Result<Self, RedactError> {
        let redactor = Redactor::new(logging.max_data_string_length, logging.redact.as_deref())?;
        let lines = LineWriter::start("log", std::io::stdout());
        let (filter, level) = LevelHandle::new(logging.level);
        let lager = lager::Lager::new(
            source,
            logging.time_format,
            redactor,
            lines.clone(),
            Arc::clone(&level.fatal_only),
        );
        tracing_subscriber::registry()
            .with(filter)
            .with(lager)
            .init();
        Ok(Self {
            level,
            lines: Some(lines),
        })
    }

    /// Starts a log with lines for people, on standard error. They are written by the thread that
    /// logs, which a reader that has stopped blocks.
    pub fn readable(level: LogLevel) -> Self {
        let (filter, level) = LevelHandle::new(level);
        let has_colors = AutoStream::choice(&std::io::stderr()) != ColorChoice::Never;
        tracing_subscriber::registry()
            .with(filter)
            .with(readable::layer(std::io::stderr, has_colors))
            .init();
        Self { level, lines: None }
    }

    /// Whether the lines are lager's, on standard output.
    pub fn is_for_machines(&self) -> bool {
        self.lines.is_some()
    }

    /// The handle that changes the level.
    pub fn level(&self) -> &LevelHandle {
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

impl LevelHandle {
    /// `RUST_LOG` overrides the configured level until the level is changed.
    fn new(level: LogLevel) -> (reload::Layer<EnvFilter, Registry>, Self) {
        let wanted = EnvFilter::try_from_default_env().unwrap_or_else(|_| filter(level));
        let (layer, handle) = reload::Layer::new(wanted);
        (
            layer,
            Self {
                filter: handle,
                fatal_only: Arc::new(AtomicBool::new(level == LogLevel::Fatal)),
            },
        )
    }
}
