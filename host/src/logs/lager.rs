//! Events as lager's lines. Owns the mapping of an event's and its spans' fields; the syntax of a
//! line is in `line`.
//!
//! A span is a lager session: its number, below its parent's, is `data.session`, and its name is
//! part of the message of named events. Warnings become errors, since Diego logs every error that
//! it recovers from at that level.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bbs_work::causes::with_causes;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, SpanRef};

use super::line::LagerLine;
use super::{FATAL, LineWriter, Redactor};
use crate::clock::{Clock, SystemClock};
use crate::config::{LogLevel, TimeFormat};

/// The prefix of the name that `tracing` gives to an unnamed event.
const UNNAMED: &str = "event ";

/// The end of the target under which PostgreSQL's driver logs notices of the server.
const NOTICES: &str = "::postgres::notice";

pub(super) struct Lager {
    source: String,
    times: TimeFormat,
    redactor: Redactor,
    lines: LineWriter,
    fatal_only: Arc<AtomicBool>,
    sessions: AtomicU64,
}

/// The lager session of a span.
struct LagerSession {
    number: String,
    children: AtomicU64,
    data: Map<String, Value>,
}

impl Lager {
    pub(super) fn new(
        source: &str,
        times: TimeFormat,
        redactor: Redactor,
        lines: LineWriter,
        fatal_only: Arc<AtomicBool>,
    ) -> Self {
        Self {
            source: source.to_owned(),
            times,
            redactor,
            lines,
            fatal_only,
            sessions: AtomicU64::default(),
        }
    }

    fn write_line(&self, message: &str, severity: LogLevel, mut data: Map<String, Value>) {
        self.redactor.redact(&mut data);
        let line = LagerLine {
            now_ns: SystemClock.now_ns(),
            source: &self.source,
            message,
            severity,
            data,
        };
        self.lines.line(line.render(self.times));
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lager {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let next = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed) + 1;
        let inside = span.parent().and_then(|parent| {
            let extensions = parent.extensions();
            let session = extensions.get::<LagerSession>()?;
            Some(format!("{}.{}", session.number, next(&session.children)))
        });
        let number = inside.unwrap_or_else(|| next(&self.sessions).to_string());
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        span.extensions_mut().insert(LagerSession {
            number,
            children: AtomicU64::default(),
            data: fields.data,
        });
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields::default();
        record.record(&mut fields);
        if let Some(session) = span.extensions_mut().get_mut::<LagerSession>() {
            session.data.extend(fields.data);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let severity = match *event.metadata().level() {
            _ if event.metadata().target() == FATAL => LogLevel::Fatal,
            // A notice is no failure: a failed statement is logged where it was run.
            _ if event.metadata().target().ends_with(NOTICES) => LogLevel::Info,
            Level::ERROR | Level::WARN => LogLevel::Error,
            Level::INFO => LogLevel::Info,
            Level::DEBUG | Level::TRACE => LogLevel::Debug,
        };
        if self.fatal_only.load(Ordering::Relaxed) && severity != LogLevel::Fatal {
            return;
        }
        let spans: Vec<_> = context
            .event_scope(event)
            .map(|scope| scope.from_root().collect())
            .unwrap_or_default();
        let message = match event.metadata().name() {
            name if name.starts_with(UNNAMED) => module(event.metadata().target()),
            action => in_sessions(&spans, action),
        };
        let mut data = Map::new();
        for span in &spans {
            if let Some(session) = span.extensions().get::<LagerSession>() {
                data.insert("session".to_owned(), session.number.clone().into());
                data.extend(session.data.clone());
            }
        }
        data.extend(fields.data);
        if severity == LogLevel::Fatal {
            data.insert(
                "trace".to_owned(),
                std::backtrace::Backtrace::force_capture()
                    .to_string()
                    .into(),
            );
        }
        self.write_line(&message, severity, data);
        if self.lines.is_refusing() {
            return;
        }
        let left_out = self.lines.take_left_out();
        if left_out > 0 {
            let data = Map::from_iter([("left_out".to_owned(), left_out.into())]);
            self.write_line("log.lines-left-out", LogLevel::Error, data);
        }
    }
}

fn in_sessions<'a, S: LookupSpan<'a>>(spans: &[SpanRef<'a, S>], action: &str) -> String {
    let names = spans.iter().map(|span| span.name()).chain([action]);
    names.collect::<Vec<_>>().join(".")
}

/// `startup.drain` for `bbs::startup::drain`.
fn module(target: &str) -> String {
    let path = target.strip_prefix("bbs::").unwrap_or(target);
    path.replace("::", ".").replace('_', "-")
}

/// The fields of an event or a span.
#[derive(Default)]
struct Fields {
    data: Map<String, Value>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        let value: Value = value.into();
        let key = match field.name() {
            "message" => "text",
            // Without a trace the id is empty, and Diego omits the key.
            "trace_id" | "span_id" if value == "" => return,
            "trace_id" => "trace-id",
            "span_id" => "span-id",
            // The key under which Diego's parsers expect the error.
            "fault" | "reason" => "error",
            name => name,
        };
        self.data.insert(key.to_owned(), value);
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    /// Appends the sources, which an error's own `Display` does not contain.
    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.put(field, with_causes(value).to_string());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put(field, format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests;
