//! The steps of a simulation, in the order in which they happened: the decisions of the test, the
//! containers that a fault hit or that were requested to stop, and the changes that the route
//! emitter received. Owns the order; its readers judge by it, and never by the time between two
//! steps.

use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};
use std::sync::{Arc, Mutex, MutexGuard};

use super::cell::Text;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A decision of the test, which follows from the seed; about one LRP if it names a process
    /// guid.
    Decision {
        process_guid: Option<Text>,
        text: String,
    },
    /// Containers that crashed, or whose cell failed or was disconnected, by instance guid.
    Fault(BTreeSet<Text>),
    /// The removal of a container was announced to subscribers, or its cell was requested to give
    /// it up.
    Stop {
        process_guid: Text,
        instance_guid: Text,
    },
    /// The emitter received a change of an LRP.
    Change(LrpChange),
}

/// A change of an LRP or of its instances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LrpChange {
    pub process_guid: Text,
    pub description: String,
    /// The instance guids of the instances that receive traffic from this step on.
    pub routable: BTreeSet<Text>,
    /// False for a list, which follows a new connection: the order of the changes before it is
    /// unknown.
    pub by_event: bool,
}

/// A shared handle.
#[derive(Debug, Clone, Default)]
pub struct Trace(Arc<Mutex<Vec<Step>>>);

impl Trace {
    fn lock(&self) -> MutexGuard<'_, Vec<Step>> {
        self.0.lock().expect("no lock holder panics")
    }

    /// Appends a step. Returns its number.
    pub fn record(&self, step: Step) -> usize {
        let mut steps = self.lock();
        steps.push(step);
        steps.len() - 1
    }

    /// Records a decision about the whole simulation, and prints it with its number.
    pub fn decide(&self, text: &str) {
        let number = self.record(Step::Decision {
            process_guid: None,
            text: text.to_owned(),
        });
        println!("step {number}: {text}");
    }

    /// Records a decision about an LRP.
    pub fn decide_about(&self, process_guid: &str, text: String) {
        self.record(Step::Decision {
            process_guid: Some(process_guid.into()),
            text,
        });
    }

    pub fn stop(&self, process_guid: &[u8], instance_guid: &[u8]) {
        self.record(Step::Stop {
            process_guid: process_guid.into(),
            instance_guid: instance_guid.into(),
        });
    }

    /// All steps so far.
    pub fn steps(&self) -> Vec<Step> {
        self.lock().clone()
    }
}

impl Step {
    /// Whether the step is about an LRP, or about all of them.
    pub fn concerns(&self, process_guid: &[u8]) -> bool {
        match self {
            Self::Decision {
                process_guid: None, ..
            }
            | Self::Fault(_) => true,
            Self::Decision {
                process_guid: Some(of),
                ..
            }
            | Self::Stop {
                process_guid: of, ..
            }
            | Self::Change(LrpChange {
                process_guid: of, ..
            }) => of == process_guid,
        }
    }
}

impl Display for Step {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let name = |guid: &Text| String::from_utf8_lossy(guid).into_owned();
        match self {
            Self::Decision {
                process_guid: None,
                text,
            } => write!(formatter, "{text}"),
            Self::Decision {
                process_guid: Some(of),
                text,
            } => write!(formatter, "{}: {text}", name(of)),
            Self::Fault(hit) => write!(
                formatter,
                "fault of {}",
                hit.iter().map(name).collect::<Vec<_>>().join(", ")
            ),
            Self::Stop { instance_guid, .. } => {
                write!(formatter, "{} is to stop", name(instance_guid))
            }
            Self::Change(change) => {
                let routable = change
                    .routable
                    .iter()
                    .map(name)
                    .collect::<Vec<_>>()
                    .join(", ");
                let source = if change.by_event { "event" } else { "list" };
                write!(
                    formatter,
                    "{source}: {}; traffic to [{routable}]",
                    change.description
                )
            }
        }
    }
}
