//! Publishes metrics to Loggregator, at Diego's intervals: some from the start, the rest while this
//! host is the master. Owns the schedule; the metrics come from the registry, and the client
//! delivers them.

use std::convert::Infallible;
use std::time::Duration;

use super::Prepared;
use super::listeners::Front;
use crate::clients::Loggregator;
use crate::metrics::{Measures, Point, Points};

#[derive(Debug, Clone)]
pub(super) struct MetricsReporter {
    measures: Measures,
    loggregator: Loggregator,
    interval: Duration,
    convergence_interval: Duration,
    database_interval: Duration,
}

impl MetricsReporter {
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

    /// Publishes the metrics of every host, master or not.
    pub(super) async fn publish_host_metrics(self) -> Infallible {
        self.repeatedly(self.interval, Points::host).await
    }

    /// Publishes the metrics of a new master.
    pub(super) async fn publish_master_metrics(&self) -> Infallible {
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
        self.loggregator
            .send(points(&mut Points::new(self.measures.clone())));
    }

    /// Publishes at an interval; the first time after one interval.
    async fn repeatedly(
        &self,
        interval: Duration,
        points: impl Fn(&mut Points) -> Vec<Point>,
    ) -> Infallible {
        let mut points_of_host = Points::new(self.measures.clone());
        loop {
            tokio::time::sleep(interval).await;
            self.loggregator.send(points(&mut points_of_host));
        }
    }
}
