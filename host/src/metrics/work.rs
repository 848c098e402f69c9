//! Collector of the progress of long work, read when Prometheus scrapes.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use bbs_work::progress::{Progress, Snapshot, Wait};
use bbs_work::throttle::{Throttle, ThrottleSettings};

const REASONS: [(&str, Wait); 4] = [
    ("lock", Wait::Lock),
    ("paused", Wait::Paused),
    ("rate", Wait::Rate),
    ("retry", Wait::Retry),
];

/// Encodes gauges: each with its name, its help, and its value if it has one now.
macro_rules! gauges {
    ($encoder:ident: $($name:literal $help:literal, $value:expr;)*) => {
        $(gauge($encoder, $name, $help, $value)?;)*
    };
}

#[derive(Debug)]
pub(super) struct WorkCollector {
    progress: Progress,
    throttle: Throttle,
}

impl WorkCollector {
    pub(super) fn new(progress: Progress, throttle: Throttle) -> Self {
        Self { progress, throttle }
    }
}

impl Collector for WorkCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let snapshot = self.progress.snapshot();
        encode_phase(&mut encoder, &snapshot)?;
        encode_batches(&mut encoder, &snapshot)?;
        encode_waiting(&mut encoder, &snapshot, &self.throttle.settings())
    }
}

/// The phase, and how far it is.
fn encode_phase(encoder: &mut DescriptorEncoder<'_>, now: &Snapshot) -> fmt::Result {
    labelled(
        encoder,
        "work_phase",
        "The phase of the host",
        "phase",
        &[(&now.phase, 1)],
    )?;
    let counted = now.counted.map(|counted| (counted.to_string(), 1));
    labelled(
        encoder,
        "work_counted",
        "The unit of the other numbers of this phase: units of a migration, rows, records, modules or files",
        "of",
        counted.as_slice(),
    )?;
    gauges! { encoder:
        "work_done" "How many of what bbs_work_counted names are done in this phase",
            Some(now.done);
        "work_total" "How many of what bbs_work_counted names this phase has", now.total;
        "work_per_second" "Rate in what bbs_work_counted names, over the last seconds",
            now.units_per_second;
        "work_eta_seconds" "Until this phase ends at the present rate", now.eta_seconds;
        "work_elapsed_seconds" "Since this phase began", Some(now.elapsed_seconds);
    }
    Ok(())
}

fn encode_batches(encoder: &mut DescriptorEncoder<'_>, now: &Snapshot) -> fmt::Result {
    gauges! { encoder:
        "work_batch_units" "Size of the last batch, in what bbs_work_counted names",
            now.batch.map(|batch| batch.units);
        "work_batch_seconds" "Duration of writing the last batch",
            now.batch.map(|batch| batch.seconds);
        "work_checkpoint_age_seconds" "Since a batch was last made durable",
            now.checkpoint_age_seconds;
    }
    counter(
        encoder,
        "work_retries",
        "Batches that were tried again",
        now.retries,
    )?;
    counter(
        encoder,
        "work_quarantined",
        "Records put in quarantine",
        now.quarantined,
    )
}

fn encode_waiting(
    encoder: &mut DescriptorEncoder<'_>,
    now: &Snapshot,
    throttle: &ThrottleSettings,
) -> fmt::Result {
    let waiting = now.waiting.map(|waiting| waiting.reason);
    let reasons = REASONS.map(|(name, reason)| (name, u32::from(waiting == Some(reason))));
    labelled(
        encoder,
        "work_waiting",
        "Why the work waits, if it does",
        "reason",
        &reasons,
    )?;
    gauges! { encoder:
        "work_paused" "1 if an operator paused the work", Some(u32::from(throttle.paused));
        "work_limit_per_second" "Highest rate that is allowed, in what bbs_work_counted names",
            throttle.units_per_second;
    }
    Ok(())
}

fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: Option<impl EncodeGaugeValue>,
) -> fmt::Result {
    let Some(value) = value else { return Ok(()) };
    ConstGauge::new(value).encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
}

fn counter(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    ConstCounter::new(value).encode(encoder.encode_descriptor(
        name,
        help,
        None,
        MetricType::Counter,
    )?)
}

fn labelled<L: AsRef<str>>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    label: &str,
    values: &[(L, u32)],
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (of, value) in values {
        let gauge = ConstGauge::new(*value);
        gauge.encode(family.encode_family(&[(label, of.as_ref())])?)?;
    }
    Ok(())
}
