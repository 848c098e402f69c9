//! What Loggregator is told of this host, as often as Diego tells it: some of it from the start, the rest as the master.
//! Owns when; what is told is the registry's, and where to the client's.

use std::convert::Infallible;
use std::time::Duration;

use super::Prepared;
use super::doors::Front;
use crate::clients::Loggregator;
use crate::metrics::{Measures, Point, Points};

#[derive(Debug, Clone)]
pub(super) struct Report {
    measures: Measures,
    loggregator: Loggregator,
    interval: Duration,
    convergence_interval: Duration,
    database_interval: Duration,
}

impl Report {
    pub(super) fn new(prepared: &Prepared, front: &Front) -> Self {
        let clients = &prepared.config.clients;
        Self {
            measures: prepared.metrics.measures().clone(),
            loggregator: front.clients.loggregator.clone(),
            interval: clients.report_interval,
            convergence_interval: clients.convergence_report_interval,
            database_interval: clients.database_report_interval,
        }
    }

    /// Of a host, be it the master or not.
    pub(super) async fn of_host(self) -> Infallible {
        self.repeatedly(self.interval, Points::host).await
    }

    /// Of the master that this host has just become.
    pub(super) async fn of_master(&self) -> Infallible {
        self.measures.elected();
        self.once(Points::election);
        let (never, _, _) = tokio::join!(
            self.repeatedly(self.interval, Points::requests),
            self.repeatedly(self.convergence_interval, Points::convergence),
            self.repeatedly(self.database_interval, Points::database),
        );
        never
    }

    pub(super) fn migrated(&self, spent: Duration) {
        self.measures.migrated(spent);
        self.once(Points::migration);
    }

    pub(super) fn encrypted(&self, spent: Duration) {
        self.measures.encrypted(spent);
        self.once(Points::encryption);
    }

    fn once(&self, points: impl FnOnce(&mut Points) -> Vec<Point>) {
        self.loggregator.send(points(&mut Points::new(self.measures.clone())));
    }

    /// The first time after one interval.
    async fn repeatedly(&self, interval: Duration, points: impl Fn(&mut Points) -> Vec<Point>) -> Infallible {
        let mut told = Points::new(self.measures.clone());
        loop {
            tokio::time::sleep(interval).await;
            self.loggregator.send(points(&mut told));
        }
    }
}
