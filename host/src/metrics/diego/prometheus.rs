//! Renders the registry for Prometheus: totals as counters, times in seconds, domains and cells as
//! labels.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::Measures;
use super::readings::{MetricReading, MetricSubject, MetricValue};

#[derive(Debug)]
pub(in crate::metrics) struct Diego(pub(in crate::metrics) Measures);

impl Collector for Diego {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Self(measures) = self;
        let parts = [
            measures.host(),
            Vec::from_iter(measures.election()),
            Vec::from_iter(measures.migration()),
            Vec::from_iter(measures.encryption()),
            measures.convergence(),
            measures.database(),
        ];
        for readings in parts {
            // Readings of one name are consecutive.
            for family in readings.chunk_by(|one, next| one.prometheus == next.prometheus) {
                encode(&mut encoder, family)?;
            }
        }
        Ok(())
    }
}

fn encode(encoder: &mut DescriptorEncoder<'_>, family: &[MetricReading]) -> fmt::Result {
    let Some(first) = family.first() else {
        return Ok(());
    };
    let kind = match first.value {
        MetricValue::Number(_) | MetricValue::Time(_) => MetricType::Gauge,
        MetricValue::Total(_)
        | MetricValue::TotalTime(_)
        | MetricValue::Runs(_)
        | MetricValue::PerRun { .. } => MetricType::Counter,
    };
    let mut metric = encoder.encode_descriptor(first.prometheus, first.help, None, kind)?;
    if first.subject == MetricSubject::Host {
        return value(first.value, metric);
    }
    for reading in family {
        match &reading.subject {
            // A family is either about the host or about parts of it, never both.
            MetricSubject::Host => {}
            MetricSubject::Domain(domain) => value(
                reading.value,
                metric.encode_family(&[("domain", domain.as_str())])?,
            )?,
            MetricSubject::Cell(cell_id) => value(
                reading.value,
                metric.encode_family(&[("cell_id", cell_id.as_str())])?,
            )?,
        }
    }
    Ok(())
}

fn value(value: MetricValue, encoder: MetricEncoder<'_>) -> fmt::Result {
    match value {
        MetricValue::Number(number) => ConstGauge::new(number).encode(encoder),
        MetricValue::Time(time) => ConstGauge::new(time.as_secs_f64()).encode(encoder),
        MetricValue::Total(total)
        | MetricValue::Runs(total)
        | MetricValue::PerRun { total, .. } => ConstCounter::new(total).encode(encoder),
        MetricValue::TotalTime(time) => ConstCounter::new(time.as_secs_f64()).encode(encoder),
    }
}
