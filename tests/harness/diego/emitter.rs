//! Whoever keeps a table of what runs where from the stream of events, as a route emitter does: one look at the lists when
//! it connects, and nothing but events from then on. Owns the table, and whether the events of a row come in order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bbs_proto::models as proto;

use super::cell::Text;
use super::home::Home;
use crate::harness::listener::{Heard, INSTANCES, Listener};

const PAUSE: Duration = Duration::from_millis(50);

/// A process guid, an index and a presence.
type Place = (Text, i32, i32);

/// A container, or that there is none yet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    pub place: Place,
    pub instance_guid: Text,
    pub cell_id: Text,
    pub state: Text,
}

#[derive(Debug, Default)]
struct Table {
    rows: BTreeMap<Place, (Row, Version)>,
    desired: BTreeMap<Text, (i32, Version)>,
    /// Containers that were said to be removed while they ran: the row may stay if their rep does not listen.
    retired: BTreeSet<Row>,
    /// Events that say what was so before.
    backward: Vec<String>,
    connections: u64,
    events: u64,
}

/// The modification tag, and whether an event brought it.
type Version = (proto::ModificationTag, bool);

/// Clones are the same.
#[derive(Clone)]
pub struct Emitter(Arc<Mutex<Table>>);

impl Emitter {
    /// Follows the host until the runtime of the test ends.
    pub fn start(home: &Home) -> Self {
        let emitter = Self(Arc::default());
        tokio::spawn(emitter.clone().follow(home.clone()));
        emitter
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().expect("nobody panics meanwhile")
    }

    /// What there is as far as events say.
    pub fn rows(&self) -> BTreeSet<Row> {
        self.table().rows.values().map(|(row, _)| row.clone()).collect()
    }

    pub fn retired(&self) -> BTreeSet<Row> {
        self.table().retired.clone()
    }

    /// The number of instances of each guid.
    pub fn desired(&self) -> BTreeMap<Text, i32> {
        self.table().desired.iter().map(|(guid, (instances, _))| (guid.clone(), *instances)).collect()
    }

    pub fn backward(&self) -> Vec<String> {
        self.table().backward.clone()
    }

    /// Connections and events so far.
    pub fn heard(&self) -> (u64, u64) {
        let table = self.table();
        (table.connections, table.events)
    }

    async fn follow(self, home: Home) {
        loop {
            let Some(response) = home.subscribe(INSTANCES).await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let mut stream = Listener::to(response);
            // What happens from here on is in the stream, so that whatever the lists say is put right by it.
            self.look(&home).await;
            // A stream breaks when its host does.
            while let Ok(Some(event)) = stream.try_next().await {
                self.table().hear(&event);
            }
        }
    }

    async fn look(&self, home: &Home) {
        let (instances, refusal, _): (proto::ActualLrPsResponse, _, _) =
            home.call("/v1/actual_lrps/list", &proto::ActualLrPsRequest::default()).await;
        assert_eq!(refusal, None, "a list is not refused");
        let path = "/v1/desired_lrp_scheduling_infos/list";
        let (desired, refusal, _): (proto::DesiredLrpSchedulingInfosResponse, _, _) =
            home.call(path, &proto::DesiredLrPsRequest::default()).await;
        assert_eq!(refusal, None, "a list is not refused");
        let mut table = self.table();
        table.connections += 1;
        table.retired.clear();
        table.rows.clear();
        for lrp in &instances.actual_lrps {
            table.put(row(lrp), (lrp.modification_tag.clone().unwrap_or_default(), false));
        }
        let known = desired.desired_lrp_scheduling_infos.into_iter().map(|info| {
            let guid = info.desired_lrp_key.unwrap_or_default().process_guid;
            (guid, (info.instances, (info.modification_tag.unwrap_or_default(), false)))
        });
        table.desired = known.collect();
    }
}

/// What a row of a list or an event says.
pub fn row(lrp: &proto::ActualLrp) -> Row {
    let key = lrp.actual_lrp_key.clone().unwrap_or_default();
    let instance = lrp.actual_lrp_instance_key.clone().unwrap_or_default();
    Row {
        place: (key.process_guid, key.index, lrp.presence),
        instance_guid: instance.instance_guid,
        cell_id: instance.cell_id,
        state: lrp.state.clone(),
    }
}

impl Table {
    fn hear(&mut self, event: &Heard) {
        self.events += 1;
        match event.name.as_str() {
            "actual_lrp_instance_created" => {
                let lrp = event.message::<proto::ActualLrpInstanceCreatedEvent>().actual_lrp.unwrap_or_default();
                self.put(row(&lrp), (lrp.modification_tag.unwrap_or_default(), true));
            }
            "actual_lrp_instance_changed" => self.change(event.message()),
            "actual_lrp_instance_removed" => {
                let lrp = event.message::<proto::ActualLrpInstanceRemovedEvent>().actual_lrp.unwrap_or_default();
                let gone = row(&lrp);
                if !gone.instance_guid.is_empty() {
                    self.retired.insert(gone.clone());
                }
                self.take(&gone.place, &gone.instance_guid);
            }
            "desired_lrp_created" => {
                self.desire(event.message::<proto::DesiredLrpCreatedEvent>().desired_lrp.unwrap_or_default());
            }
            "desired_lrp_changed" => {
                self.desire(event.message::<proto::DesiredLrpChangedEvent>().after.unwrap_or_default());
            }
            "desired_lrp_removed" => {
                let lrp = event.message::<proto::DesiredLrpRemovedEvent>().desired_lrp.unwrap_or_default();
                self.desired.remove(&lrp.process_guid);
            }
            "actual_lrp_crashed" => {}
            other => panic!("there is no event {other}"),
        }
    }

    fn change(&mut self, event: proto::ActualLrpInstanceChangedEvent) {
        let key = event.actual_lrp_key.unwrap_or_default();
        let instance = event.actual_lrp_instance_key.unwrap_or_default();
        let (before, after) = (event.before.unwrap_or_default(), event.after.unwrap_or_default());
        if before.presence != after.presence {
            self.take(&(key.process_guid.clone(), key.index, before.presence), &instance.instance_guid);
        }
        let (instance_guid, cell_id) = match &after.state[..] {
            // The event is about the container that was; the row has none any more.
            b"UNCLAIMED" | b"CRASHED" => Default::default(),
            _ => (instance.instance_guid, instance.cell_id),
        };
        let place = (key.process_guid, key.index, after.presence);
        let tag = after.modification_tag.unwrap_or_default();
        self.put(Row { place, instance_guid, cell_id, state: after.state }, (tag, true));
    }

    fn put(&mut self, row: Row, version: Version) {
        if let Some((known, before)) = self.rows.get(&row.place)
            && is_backward(before, &version)
        {
            self.backward.push(format!("{known:?} {before:?}, then {row:?} {version:?}"));
        }
        self.retired.remove(&row);
        self.rows.insert(row.place.clone(), (row, version));
    }

    /// Another container in the same place stays.
    fn take(&mut self, place: &Place, instance_guid: &[u8]) {
        if self.rows.get(place).is_some_and(|(row, _)| row.instance_guid == instance_guid) {
            self.rows.remove(place);
        }
    }

    fn desire(&mut self, lrp: proto::DesiredLrp) {
        let version = (lrp.modification_tag.unwrap_or_default(), true);
        if let Some((instances, before)) = self.desired.get(&lrp.process_guid)
            && is_backward(before, &version)
        {
            self.backward.push(format!("{instances} {before:?}, then {} {version:?}", lrp.instances));
        }
        self.desired.insert(lrp.process_guid, (lrp.instances, version));
    }
}

/// A list may be ahead of the events that follow it; an event never is.
fn is_backward((before, by_event): &Version, (after, _): &Version) -> bool {
    *by_event && before.epoch == after.epoch && after.index < before.index
}
