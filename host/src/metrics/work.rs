//! Collector of the progress of long work, read when Prometheus scrapes.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::progress::{Progress, Wait};
use crate::throttle::Throttle;

const REASONS: [(&str, Wait); 4] = [
    ("lock", Wait::Lock),
    ("paused", Wait::Paused),
    ("rate", Wait::Rate),
    ("retry", Wait::Retry),
];

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
        let (now, wanted) = (self.progress.snapshot(), self.throttle.settings());
        labelled(
            &mut encoder,
            "work_phase",
            "What the host is doing",
            "phase",
            &[(&now.phase, 1)],
        )?;
        let counted = now.counted.map(|counted| (counted.to_string(), 1));
        let help = "What the other numbers of this phase count: units of a migration, rows, records, modules or files";
        labelled(&mut encoder, "work_counted", help, "of", counted.as_slice())?;
        let help = "How many of what bbs_work_counted names are done in this phase";
        gauge(&mut encoder, "work_done", help, Some(now.done))?;
        gauge(
            &mut encoder,
            "work_total",
            "How many of what bbs_work_counted names this phase has",
            now.total,
        )?;
        let help = "Of what bbs_work_counted names, a second, over the last seconds";
        gauge(&mut encoder, "work_per_second", help, now.units_per_second)?;
        gauge(
            &mut encoder,
            "work_eta_seconds",
            "Until this phase ends at the present rate",
            now.eta_seconds,
        )?;
        gauge(
            &mut encoder,
            "work_elapsed_seconds",
            "Since this phase began",
            Some(now.elapsed_seconds),
        )?;
        gauge(
            &mut encoder,
            "work_batch_units",
            "Of what bbs_work_counted names, in the last batch",
            now.batch.map(|batch| batch.units),
        )?;
        gauge(
            &mut encoder,
            "work_batch_seconds",
            "What writing it took",
            now.batch.map(|batch| batch.seconds),
        )?;
        let age = now.checkpoint_age_seconds;
        gauge(
            &mut encoder,
            "work_checkpoint_age_seconds",
            "Since a batch was last made durable",
            age,
        )?;
        counter(
            &mut encoder,
            "work_retries",
            "Batches that were tried again",
            now.retries,
        )?;
        counter(
            &mut encoder,
            "work_quarantined",
            "Records put in quarantine",
            now.quarantined,
        )?;
        let waiting = now.waiting.map(|waiting| waiting.reason);
        let reasons = REASONS.map(|(name, reason)| (name, u32::from(waiting == Some(reason))));
        labelled(
            &mut encoder,
            "work_waiting",
            "Why the work waits, if it does",
            "reason",
            &reasons,
        )?;
        gauge(
            &mut encoder,
            "work_paused",
            "1 if an operator paused the work",
            Some(u32::from(wanted.paused)),
        )?;
        gauge(
            &mut encoder,
            "work_limit_per_second",
            "Of what bbs_work_counted names, a second, that are allowed",
            wanted.units_per_second,
        )
    }
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
