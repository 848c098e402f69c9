//! The registry as Loggregator is told of it: counters by what was added, gauges in Diego's units. Owns what was told
//! before; knows no wire.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Measures;
use super::readings::{Of, Reading, Value};

/// The unit of everything without one.
const METRIC: &str = "Metric";
const NANOSECONDS: &str = "nanos";
const COUNT: &str = "Count";

/// One thing to tell.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    pub name: String,
    pub quantity: Quantity,
    /// The cell that it is about, if it is about one.
    pub cell_id: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Quantity {
    /// What was added since the last time.
    Added(u64),
    Gauge {
        value: f64,
        unit: &'static str,
    },
}

/// What is told, and what was told before.
#[derive(Debug)]
pub struct Points {
    measures: Measures,
    told: BTreeMap<&'static str, u64>,
}

impl Points {
    pub fn new(measures: Measures) -> Self {
        Self { measures, told: BTreeMap::new() }
    }

    /// Of a host, be it the master or not.
    pub fn host(&mut self) -> Vec<Point> {
        let mut points = self.all(self.measures.host());
        // Go's count of its own concurrent functions, of which these are ours.
        let tasks = tokio::runtime::Handle::try_current().map(|runtime| runtime.metrics().num_alive_tasks());
        points.extend(tasks.ok().map(|tasks| gauge("numGoRoutines", tasks as f64, COUNT)));
        points
    }

    pub fn election(&mut self) -> Vec<Point> {
        self.all(self.measures.election())
    }

    pub fn migration(&mut self) -> Vec<Point> {
        self.all(self.measures.migration())
    }

    pub fn encryption(&mut self) -> Vec<Point> {
        self.all(self.measures.encryption())
    }

    pub fn convergence(&mut self) -> Vec<Point> {
        self.all(self.measures.convergence())
    }

    /// Ends the window that what is the most belongs to.
    pub fn database(&mut self) -> Vec<Point> {
        self.all(self.measures.end_database_window())
    }

    /// Requests since the last time, all of them and by route.
    pub fn requests(&mut self) -> Vec<Point> {
        let since = self.measures.0.requests.take();
        let added = |name: String, count| Point { name, quantity: Quantity::Added(count), cell_id: None };
        let time = |name: String, spent: Duration| gauge(&name, nanoseconds(spent), NANOSECONDS);
        let mut points =
            vec![added("RequestCount".to_owned(), since.count), time("RequestLatency".to_owned(), since.slowest)];
        points.extend(since.counted.into_iter().map(|(route, count)| added(format!("RequestCount.{route}"), count)));
        points.extend(since.timed.into_iter().map(|(route, spent)| time(format!("RequestLatency.{route}"), spent)));
        points
    }

    fn all(&mut self, readings: Vec<Reading>) -> Vec<Point> {
        readings.into_iter().filter_map(|reading| self.point(reading)).collect()
    }

    fn point(&mut self, reading: Reading) -> Option<Point> {
        let quantity = match reading.value {
            Value::Number(number) | Value::Total(number) => Quantity::Gauge { value: number as f64, unit: METRIC },
            Value::Time(time) | Value::TotalTime(time) => {
                Quantity::Gauge { value: nanoseconds(time), unit: NANOSECONDS }
            }
            Value::Runs(runs) => {
                let told = self.told.insert(reading.diego, runs).unwrap_or(0);
                if runs == told {
                    return None;
                }
                Quantity::Added(runs - told)
            }
            Value::PerRun { last, .. } => Quantity::Added(last),
        };
        let (name, cell_id) = match reading.of {
            Of::Host => (reading.diego.to_owned(), None),
            Of::Domain(domain) => (format!("{}.{domain}", reading.diego), None),
            Of::Cell(cell_id) => (reading.diego.to_owned(), Some(cell_id)),
        };
        Some(Point { name, quantity, cell_id })
    }
}

fn gauge(name: &str, value: f64, unit: &'static str) -> Point {
    Point { name: name.to_owned(), quantity: Quantity::Gauge { value, unit }, cell_id: None }
}

fn nanoseconds(time: Duration) -> f64 {
    time.as_nanos() as f64
}
