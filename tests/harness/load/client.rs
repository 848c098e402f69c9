//! One client of the load: calls in equal intervals, on keys that no other client writes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bbs_proto::models as proto;
use fastrand::Rng;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval_at};

use super::calls::{Caller, Failure};
use super::listing::Guid;
use super::model::{DOMAIN, KeyState, Known, Model};
use super::{Aim, Report};

/// Width of the range of keys around the aim, in keys: one or two batches.
const SPREAD: usize = 1_000;
/// One in this many calls goes to a random key, the others to keys near the aim.
const ANYWHERE: u8 = 4;

pub(super) struct LoadClient {
    number: u64,
    caller: Caller,
    pub(super) model: Model,
    /// All keys that existed before the load, in order.
    order: Arc<[Guid]>,
    aim: Aim,
    /// One draw for each call, so that what a call draws, which depends on answers, does not change
    /// later ones.
    calls: Rng,
    /// The draws of the current call.
    random: Rng,
    created: u64,
    /// Description of the current call, for the report of a failure.
    under_way: String,
    pub(super) report: Report,
}

enum CallKind {
    Get,
    List,
    Create,
    Update,
    Remove,
}

impl LoadClient {
    pub(super) fn new(
        number: u64,
        caller: Caller,
        model: Model,
        order: Arc<[Guid]>,
        aim: Aim,
        seed: u64,
    ) -> Self {
        let mut calls = Rng::with_seed(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let random = calls.fork();
        let created = 0;
        let under_way = String::new();
        let report = Report::new();
        Self {
            number,
            caller,
            model,
            order,
            aim,
            calls,
            random,
            created,
            under_way,
            report,
        }
    }

    /// Makes a call every `between` until `stopped` turns true.
    pub(super) async fn run(
        mut self,
        between: Duration,
        missed: MissedTickBehavior,
        stopped: watch::Receiver<bool>,
        count: watch::Sender<u64>,
    ) -> Self {
        let first = Instant::now() + between.mul_f64(self.random.f64());
        let mut ticks = interval_at(first.into(), between);
        ticks.set_missed_tick_behavior(missed);
        while !*stopped.borrow() {
            let due = ticks.tick().await.into_std();
            self.call(due).await;
            count.send_modify(|calls| *calls += 1);
        }
        self
    }

    async fn call(&mut self, due: Instant) {
        self.random = self.calls.fork();
        let call = match self.random.u8(0..10) {
            0..3 => CallKind::Get,
            3 => CallKind::List,
            4..6 => CallKind::Create,
            6..9 => CallKind::Update,
            _ => CallKind::Remove,
        };
        let is_read = matches!(call, CallKind::Get | CallKind::List);
        let made = Instant::now();
        let done = match call {
            CallKind::Get => self.get().await,
            CallKind::List => self.list().await,
            CallKind::Create => self.create().await,
            CallKind::Update => self.update().await,
            CallKind::Remove => self.remove().await,
        };
        match done {
            Ok(()) => {
                let report = &mut self.report;
                let from_due = if is_read {
                    &mut report.reads
                } else {
                    &mut report.writes
                };
                from_due.saturating_record(micros(due.elapsed()));
                let from_send = if is_read {
                    &mut report.reads_from_send
                } else {
                    &mut report.writes_from_send
                };
                from_send.saturating_record(micros(made.elapsed()));
            }
            Err(failure) => {
                self.report.failures += 1;
                self.report.note(format!("{}: {failure}", self.under_way));
            }
        }
    }

    fn begin(&mut self, call: &str, guid: &[u8]) {
        self.under_way = format!("{call} {}", String::from_utf8_lossy(guid));
    }

    async fn get(&mut self) -> Result<(), Failure> {
        let Some(guid) = self.pick() else {
            return self.create().await;
        };
        self.read(&guid).await
    }

    async fn read(&mut self, guid: &[u8]) -> Result<(), Failure> {
        self.begin("get", guid);
        let found = self.caller.get(guid).await?;
        self.learn(guid, found);
        Ok(())
    }

    fn learn(&mut self, guid: &[u8], found: Option<proto::DesiredLrp>) {
        if let Err(difference) = self.model.learn(guid, found) {
            self.report.differences += 1;
            self.report.note(difference);
        }
    }

    /// Lists five adjacent keys of this client, some of which may have been removed.
    async fn list(&mut self) -> Result<(), Failure> {
        let Some(first) = self.pick() else {
            return self.create().await;
        };
        let guids: Vec<_> = self
            .model
            .keys
            .range(first..)
            .take(5)
            .map(|(guid, _)| guid.clone())
            .collect();
        self.begin("list from", &guids[0]);
        let mut found = self.caller.list(guids.clone()).await?;
        for guid in guids {
            let at = found.iter().position(|lrp| lrp.process_guid == guid);
            let found = at.map(|at| found.swap_remove(at));
            self.learn(&guid, found);
        }
        if let Some(stray) = found.first() {
            let guid = String::from_utf8_lossy(&stray.process_guid);
            return Err(Failure::Answer(format!(
                "a list has {guid}, which is a duplicate or was not requested"
            )));
        }
        Ok(())
    }

    async fn create(&mut self) -> Result<(), Failure> {
        let guid = self.new_key();
        self.begin("desire", &guid);
        let lrp = desired(guid.clone(), &mut self.random);
        let state = Some(Box::new(lrp.clone()));
        match self.caller.desire(&lrp).await {
            Ok(()) => self.model.set(&guid, state),
            Err(failure) => {
                self.model.set(&guid, None);
                self.model.allow(&guid, state);
                return Err(failure);
            }
        }
        Ok(())
    }

    async fn update(&mut self) -> Result<(), Failure> {
        let Some((guid, before)) = self.pick_present().await? else {
            return self.create().await;
        };
        let mut after = before;
        let update = proto::DesiredLrpUpdate {
            annotation: Some(format!("annotation {}", self.random.u32(..)).into_bytes()),
            routes: self.random.bool().then(|| routes(&mut self.random)),
            // LRPs from before the load belong to another domain; the number of their instances is
            // not modelled.
            instances: (after.domain == DOMAIN).then(|| self.random.i32(0..4)),
            ..Default::default()
        };
        after.annotation = update.annotation.clone().unwrap_or_default();
        after.instances = update.instances.unwrap_or(after.instances);
        if update.routes.is_some() {
            after.routes.clone_from(&update.routes);
        }
        let tag = after.modification_tag.get_or_insert_default();
        tag.index = tag.index.wrapping_add(1);
        self.begin("update", &guid);
        let done = self.caller.update(&guid, &update).await;
        self.wrote(&guid, Some(after), done)
    }

    async fn remove(&mut self) -> Result<(), Failure> {
        let Some((guid, _)) = self.pick_present().await? else {
            return self.create().await;
        };
        self.begin("remove", &guid);
        let done = self.caller.remove(&guid).await;
        self.wrote(&guid, None, done)
    }

    fn wrote(
        &mut self,
        guid: &[u8],
        after: KeyState,
        done: Result<(), Failure>,
    ) -> Result<(), Failure> {
        match done {
            Ok(()) => self.model.set(guid, after),
            Err(_) => self.model.allow(guid, after),
        }
        done
    }

    /// A key of this client that certainly exists, and its record, read first if it is not known.
    async fn pick_present(&mut self) -> Result<Option<(Guid, Box<proto::DesiredLrp>)>, Failure> {
        let Some(guid) = self.pick() else {
            return Ok(None);
        };
        let known = self.model.certain(&guid).and_then(Option::as_ref);
        if known.is_none_or(|lrp| {
            lrp.modification_tag
                .as_ref()
                .is_none_or(|tag| tag.epoch.is_empty())
        }) {
            self.read(&guid).await?;
        }
        Ok(self
            .model
            .certain(&guid)
            .cloned()
            .flatten()
            .map(|lrp| (guid, lrp)))
    }

    /// A key of this client that may exist.
    fn pick(&mut self) -> Option<Guid> {
        let from = self.near().unwrap_or_default();
        let there = |known: &Known| match known {
            Known::Untouched(_) => true,
            Known::OneOf(states) => states.iter().any(Option::is_some),
        };
        let keys = &self.model.keys;
        let mut candidates = keys.range(from..).chain(keys.iter());
        candidates
            .find(|(_, known)| there(known))
            .map(|(guid, _)| guid.clone())
    }

    /// A key that was never used, adjacent to an existing one. An earlier load with the same seed
    /// draws the same numbers, so its keys may be among those that existed before this load.
    fn new_key(&mut self) -> Guid {
        let near = self.near().unwrap_or_default();
        loop {
            self.created += 1;
            let suffix = format!("-load-{}-{}", self.number, self.created);
            let guid = [&near[..], suffix.as_bytes()].concat();
            if self.order.binary_search(&guid).is_err() {
                return guid;
            }
        }
    }

    /// A key near the aim that existed before the load, of any client.
    fn near(&mut self) -> Option<Guid> {
        if self.order.is_empty() {
            return None;
        }
        let aimed = (self.aim.part() * self.order.len() as f64) as usize;
        let at = match self.random.u8(0..ANYWHERE) {
            0 => self.random.usize(0..self.order.len()),
            _ => (aimed + self.random.usize(0..SPREAD)).saturating_sub(SPREAD / 2),
        };
        Some(self.order[at.min(self.order.len() - 1)].clone())
    }
}

fn routes(random: &mut Rng) -> proto::ProtoRoutes {
    let value = format!(
        r#"[{{"hostnames":["{}.example.com"],"port":8080}}]"#,
        random.u32(..)
    );
    proto::ProtoRoutes {
        routes: vec![proto::RouteEntry {
            key: "cf-router".into(),
            value: value.into(),
        }],
    }
}

/// A random desired LRP as the host returns it, except for the epoch of its modification tag.
fn desired(guid: Guid, random: &mut Rng) -> proto::DesiredLrp {
    let run = proto::RunAction {
        path: b"/bin/app".to_vec(),
        user: b"vcap".to_vec(),
        ..Default::default()
    };
    let source = proto::MetricTagValue {
        r#static: guid.clone(),
        ..Default::default()
    };
    proto::DesiredLrp {
        metrics_guid: guid.clone(),
        metric_tags: vec![proto::MetricTagEntry {
            key: "source_id".into(),
            value: Some(source),
        }],
        process_guid: guid,
        domain: DOMAIN.to_vec(),
        root_fs: b"preloaded:cflinuxfs4".to_vec(),
        instances: random.i32(0..3),
        memory_mb: 256,
        disk_mb: 1024,
        annotation: format!("annotation {}", random.u32(..)).into_bytes(),
        environment_variables: (0..random.usize(0..30))
            .map(|number| proto::EnvironmentVariable {
                name: format!("VARIABLE_{number}").into_bytes(),
                value: vec![b'v'; 60],
            })
            .collect(),
        routes: Some(routes(random)),
        action: Some(proto::Action {
            run_action: Some(run),
            ..Default::default()
        }),
        modification_tag: Some(proto::ModificationTag::default()),
        ..Default::default()
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The benchmark of online migrations loads a host twice with the same seed: at rest, and while
    /// it migrates.
    #[test]
    fn keys_of_an_earlier_load_with_the_same_seed_are_not_used_again() {
        let mut order = vec![b"a".to_vec()];
        for load in 0..3 {
            order.sort();
            let caller = Caller::new(watch::channel(String::new()).1);
            let mut client = LoadClient::new(
                3,
                caller,
                Model::default(),
                order.clone().into(),
                Aim::default(),
                7,
            );
            for _ in 0..20 {
                let key = client.new_key();
                assert!(
                    !order.contains(&key),
                    "load {load} desires {} again",
                    String::from_utf8_lossy(&key)
                );
                order.push(key);
            }
        }
    }
}
