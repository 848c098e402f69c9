//! Renders the registry for Loggregator: counters as increments, gauges in Diego's units. Owns the
//! last reported totals; independent of the protocol.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Measures;
use super::readings::{MetricReading, MetricSubject, MetricValue};

/// The unit of values without one.
const METRIC: &str = "Metric";
const NANOSECONDS: &str = "nanos";
const COUNT: &str = "Count";

/// A metric to send.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Diego's name of the metric. That of a domain or a route ends with a dot and its name.
    pub name: String,
    /// The value or increment to send.
    pub quantity: Quantity,
    /// The cell that the metric is about, if it is about one.
    pub cell_id: Option<String>,
}

/// The value of a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Quantity {
    /// The increment of a counter since the last report.
    Added(u64),
    /// A value at the time of the report, with its unit: `Metric`, `nanos` or `Count`.
    #[allow(missing_docs, reason = "the variant's text describes its fields")]
    Gauge { value: f64, unit: &'static str },
}

/// Reports metrics, and remembers the reported totals.
#[derive(Debug)]
pub struct Points {
    measures: Measures,
    reported: BTreeMap<&'static str, u64>,
}

impl Points {
    /// A reporter that has reported nothing yet.
    pub fn new(measures: Measures) -> Self {
        Self {
            measures,
            reported: BTreeMap::new(),
        }
    }

    /// Metrics of a host, master or standby.
    pub fn host(&mut self) -> Vec<Point> {
        let mut points = self.all(self.measures.host());
        // Go counts its goroutines; the equivalents here are tokio's tasks.
        let tasks = tokio::runtime::Handle::try_current()
            .map(|runtime| runtime.metrics().num_alive_tasks());
        points.extend(
            tasks
                .ok()
                .map(|tasks| gauge("numGoRoutines", tasks as f64, COUNT)),
        );
        points
    }

    /// Metrics of the election, once this host is the master.
    pub fn election(&mut self) -> Vec<Point> {
        self.all(self.measures.election())
    }

    /// The duration of the migration, once it is done.
    pub fn migration(&mut self) -> Vec<Point> {
        self.all(self.measures.migration())
    }

    /// The duration of the key rotation, once it is done.
    pub fn encryption(&mut self) -> Vec<Point> {
        self.all(self.measures.encryption())
    }

    /// Findings of the last run of convergence.
    pub fn convergence(&mut self) -> Vec<Point> {
        self.all(self.measures.convergence())
    }

    /// Metrics of the database. Ends the window of its maxima.
    pub fn database(&mut self) -> Vec<Point> {
        self.all(self.measures.end_database_window())
    }

    /// Requests since the last report, in total and by route.
    pub fn requests(&mut self) -> Vec<Point> {
        let since = self.measures.0.requests.take_report();
        let added = |name: String, count| Point {
            name,
            quantity: Quantity::Added(count),
            cell_id: None,
        };
        let time = |name: String, spent: Duration| gauge(&name, nanoseconds(spent), NANOSECONDS);
        let mut points = vec![
            added("RequestCount".to_owned(), since.count),
            time("RequestLatency".to_owned(), since.slowest),
        ];
        points.extend(
            since
                .counted
                .into_iter()
                .map(|(route, count)| added(format!("RequestCount.{route}"), count)),
        );
        points.extend(
            since
                .timed
                .into_iter()
                .map(|(route, spent)| time(format!("RequestLatency.{route}"), spent)),
        );
        points
    }

    fn all(&mut self, readings: impl IntoIterator<Item = MetricReading>) -> Vec<Point> {
        readings
            .into_iter()
            .filter_map(|reading| self.point(reading))
            .collect()
    }

    fn point(&mut self, reading: MetricReading) -> Option<Point> {
        let quantity = match reading.value {
            MetricValue::Number(number) | MetricValue::Total(number) => Quantity::Gauge {
                value: number as f64,
                unit: METRIC,
            },
            MetricValue::Time(time) | MetricValue::TotalTime(time) => Quantity::Gauge {
                value: nanoseconds(time),
                unit: NANOSECONDS,
            },
            MetricValue::Runs(runs) => {
                let reported = self.reported.insert(reading.diego, runs).unwrap_or(0);
                if runs == reported {
                    return None;
                }
                Quantity::Added(runs - reported)
            }
            MetricValue::PerRun { last, .. } => Quantity::Added(last),
        };
        let (name, cell_id) = match reading.subject {
            MetricSubject::Host => (reading.diego.to_owned(), None),
            MetricSubject::Domain(domain) => (format!("{}.{domain}", reading.diego), None),
            MetricSubject::Cell(cell_id) => (reading.diego.to_owned(), Some(cell_id)),
        };
        Some(Point {
            name,
            quantity,
            cell_id,
        })
    }
}

fn gauge(name: &str, value: f64, unit: &'static str) -> Point {
    Point {
        name: name.to_owned(),
        quantity: Quantity::Gauge { value, unit },
        cell_id: None,
    }
}

fn nanoseconds(time: Duration) -> f64 {
    time.as_nanos() as f64
}
