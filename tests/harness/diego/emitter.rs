//! A route emitter: builds a routing table from the lists when it connects, and updates it from the event stream from
//! then on. Owns the table, the check that the events of a row arrive in order, and the list of outages.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::{self, Display, Formatter};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bbs_proto::models as proto;

use super::bbs_client::BbsClient;
use super::cell::Text;
use crate::harness::event_stream::{EventStream, INSTANCES, ReceivedEvent};

const PAUSE: Duration = Duration::from_millis(50);

/// Process guid, index and presence.
type RowKey = (Text, i32, i32);

/// A row of the actual LRPs: its container, or empty guids while it has none.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct InstanceRow {
    pub place: RowKey,
    pub instance_guid: Text,
    pub cell_id: Text,
    pub state: Text,
    /// Whether it receives traffic.
    pub routable: bool,
}

/// The loss of the last instances of an LRP that received traffic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outage {
    /// The instance guids that were lost. More than one if they were missing from the lists after a new connection.
    pub lost: BTreeSet<Text>,
    /// Those that were lost up to [`SHORTLY`] before, when another one was still there.
    pub shortly_before: BTreeSet<Text>,
    /// The last changes of the LRP, the newest last.
    pub history: Vec<String>,
}

/// Longer than the stop of a container takes that was requested while its successor received traffic.
const SHORTLY: Duration = Duration::from_secs(2);

/// Changes of an LRP that are remembered.
const REMEMBERED: usize = 20;

#[derive(Debug, Default)]
struct RoutingTable {
    rows: BTreeMap<RowKey, (InstanceRow, Version)>,
    desired: BTreeMap<Text, (i32, Version)>,
    /// Containers whose removal was announced while they ran. The row stays if the rep does not answer.
    retired: BTreeSet<InstanceRow>,
    /// Events older than what is known of their row.
    backward: Vec<String>,
    history: BTreeMap<Text, VecDeque<String>>,
    /// By process guid, instances that were lost, and when.
    lost: BTreeMap<Text, Vec<(Instant, Text)>>,
    outages: Vec<Outage>,
    connections: u64,
    events: u64,
}

/// The modification tag, and whether it came with an event.
type Version = (proto::ModificationTag, bool);

/// A shared handle.
#[derive(Clone)]
pub struct Emitter(Arc<Mutex<RoutingTable>>);

impl Emitter {
    /// Follows the host until the test's runtime ends.
    pub fn start(bbs: &BbsClient) -> Self {
        let emitter = Self(Arc::default());
        tokio::spawn(emitter.clone().follow(bbs.clone()));
        emitter
    }

    fn table(&self) -> MutexGuard<'_, RoutingTable> {
        self.0.lock().expect("no lock holder panics")
    }

    /// The rows as known from lists and events.
    pub fn rows(&self) -> BTreeSet<InstanceRow> {
        self.table().rows.values().map(|(row, _)| row.clone()).collect()
    }

    pub fn retired(&self) -> BTreeSet<InstanceRow> {
        self.table().retired.clone()
    }

    /// The number of instances of each guid.
    pub fn desired(&self) -> BTreeMap<Text, i32> {
        self.table().desired.iter().map(|(guid, (instances, _))| (guid.clone(), *instances)).collect()
    }

    pub fn backward(&self) -> Vec<String> {
        self.table().backward.clone()
    }

    pub fn outages(&self) -> Vec<Outage> {
        self.table().outages.clone()
    }

    /// The number of instances that receive traffic.
    pub fn routable(&self) -> usize {
        self.table().routable().len()
    }

    /// Number of connections and of events so far.
    pub fn counts(&self) -> (u64, u64) {
        let table = self.table();
        (table.connections, table.events)
    }

    async fn follow(self, bbs: BbsClient) {
        loop {
            let Some(response) = bbs.subscribe(INSTANCES).await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let mut stream = EventStream::from_response(response);
            // Subscribed before the lists are read: every later change is in the stream and corrects them.
            self.load_lists(&bbs).await;
            // The stream ends with an error when its host is killed.
            while let Ok(Some(event)) = stream.try_next().await {
                self.table().apply(&event);
            }
        }
    }

    async fn load_lists(&self, bbs: &BbsClient) {
        let (instances, refusal, _): (proto::ActualLrPsResponse, _, _) =
            bbs.call("/v1/actual_lrps/list", &proto::ActualLrPsRequest::default()).await;
        assert_eq!(refusal, None, "a list is not refused");
        let path = "/v1/desired_lrp_scheduling_infos/list";
        let (desired, refusal, _): (proto::DesiredLrpSchedulingInfosResponse, _, _) =
            bbs.call(path, &proto::DesiredLrPsRequest::default()).await;
        assert_eq!(refusal, None, "a list is not refused");
        let mut table = self.table();
        table.connections += 1;
        table.retired.clear();
        let before = table.routable();
        table.rows.clear();
        for lrp in &instances.actual_lrps {
            table.put(row(lrp), (lrp.modification_tag.clone().unwrap_or_default(), false));
        }
        let known = desired.desired_lrp_scheduling_infos.into_iter().map(|info| {
            let guid = info.desired_lrp_key.unwrap_or_default().process_guid;
            (guid, (info.instances, (info.modification_tag.unwrap_or_default(), false)))
        });
        table.desired = known.collect();
        table.note_outages(before);
    }
}

/// The part of an actual LRP that the table compares.
pub fn row(lrp: &proto::ActualLrp) -> InstanceRow {
    let key = lrp.actual_lrp_key.clone().unwrap_or_default();
    let instance = lrp.actual_lrp_instance_key.clone().unwrap_or_default();
    InstanceRow {
        place: (key.process_guid, key.index, lrp.presence),
        instance_guid: instance.instance_guid,
        cell_id: instance.cell_id,
        state: lrp.state.clone(),
        routable: lrp.state == b"RUNNING" && lrp.routable == Some(true),
    }
}

impl Display for InstanceRow {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let ((_, index, presence), [instance_guid, state]) =
            (&self.place, [&self.instance_guid, &self.state].map(|text| String::from_utf8_lossy(text)));
        let routable = if self.routable { "routable" } else { "not routable" };
        write!(formatter, "{index}/{presence} {instance_guid} {state} {routable}")
    }
}

impl RoutingTable {
    fn apply(&mut self, event: &ReceivedEvent) {
        self.events += 1;
        match event.name.as_str() {
            "actual_lrp_instance_created" => {
                let lrp = event.message::<proto::ActualLrpInstanceCreatedEvent>().actual_lrp.unwrap_or_default();
                self.put(row(&lrp), (lrp.modification_tag.unwrap_or_default(), true));
            }
            "actual_lrp_instance_changed" => {
                let event: proto::ActualLrpInstanceChangedEvent = event.message();
                let before = self.routable_of(&event.actual_lrp_key.clone().unwrap_or_default().process_guid);
                self.change(event);
                self.note_outages(before);
            }
            "actual_lrp_instance_removed" => {
                let lrp = event.message::<proto::ActualLrpInstanceRemovedEvent>().actual_lrp.unwrap_or_default();
                let gone = row(&lrp);
                if !gone.instance_guid.is_empty() {
                    self.retired.insert(gone.clone());
                }
                let before = self.routable_of(&gone.place.0);
                self.remove(&gone.place, &gone.instance_guid);
                self.note_outages(before);
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
            self.remove(&(key.process_guid.clone(), key.index, before.presence), &instance.instance_guid);
        }
        let (instance_guid, cell_id) = match &after.state[..] {
            // The event names the previous container; the row has none now.
            b"UNCLAIMED" | b"CRASHED" => Default::default(),
            _ => (instance.instance_guid, instance.cell_id),
        };
        let place = (key.process_guid, key.index, after.presence);
        let routable = after.state == b"RUNNING" && after.routable == Some(true);
        let tag = after.modification_tag.unwrap_or_default();
        self.put(InstanceRow { place, instance_guid, cell_id, state: after.state, routable }, (tag, true));
    }

    fn put(&mut self, row: InstanceRow, version: Version) {
        if let Some((known, before)) = self.rows.get(&row.place)
            && is_backward(before, &version)
        {
            self.backward.push(format!("{known:?} {before:?}, then {row:?} {version:?}"));
        }
        self.retired.remove(&row);
        self.remember(&row.place.0, format!("{row}"));
        self.rows.insert(row.place.clone(), (row, version));
    }

    fn routable_of(&self, process_guid: &[u8]) -> Vec<InstanceRow> {
        let first = (process_guid.to_vec(), i32::MIN, i32::MIN);
        let rows = self.rows.range(first..).take_while(|((guid, _, _), _)| guid == process_guid);
        rows.filter(|(_, (row, _))| row.routable).map(|(_, (row, _))| row.clone()).collect()
    }

    fn routable(&self) -> Vec<InstanceRow> {
        self.rows.values().filter(|(row, _)| row.routable).map(|(row, _)| row.clone()).collect()
    }

    /// Notes the instances that received traffic before a change and do not after it, and the LRPs that have none left.
    fn note_outages(&mut self, before: Vec<InstanceRow>) {
        let mut by_guid = BTreeMap::<Text, BTreeSet<Text>>::new();
        for row in before {
            by_guid.entry(row.place.0).or_default().insert(row.instance_guid);
        }
        let now = Instant::now();
        for (process_guid, before) in by_guid {
            let left: BTreeSet<_> = self.routable_of(&process_guid).into_iter().map(|row| row.instance_guid).collect();
            let lost: BTreeSet<_> = before.difference(&left).cloned().collect();
            let recent = self.lost.entry(process_guid.clone()).or_default();
            recent.retain(|(at, _)| now.duration_since(*at) < SHORTLY);
            if left.is_empty() {
                let shortly_before = recent.iter().map(|(_, instance_guid)| instance_guid.clone()).collect();
                let history = self.history.get(&process_guid).into_iter().flatten().cloned().collect();
                self.outages.push(Outage { lost, shortly_before, history });
            } else {
                recent.extend(lost.into_iter().map(|instance_guid| (now, instance_guid)));
            }
        }
    }

    fn remember(&mut self, process_guid: &[u8], change: String) {
        let history = self.history.entry(process_guid.to_vec()).or_default();
        history.push_back(change);
        history.drain(..history.len().saturating_sub(REMEMBERED));
    }

    /// Removes a row, unless it has another container by now.
    fn remove(&mut self, place: &RowKey, instance_guid: &[u8]) {
        if self.rows.get(place).is_some_and(|(row, _)| row.instance_guid == instance_guid) {
            self.rows.remove(place);
            let instance_guid = String::from_utf8_lossy(instance_guid);
            self.remember(&place.0, format!("{}/{} {instance_guid} removed", place.1, place.2));
        }
    }

    fn desire(&mut self, lrp: proto::DesiredLrp) {
        let version = (lrp.modification_tag.unwrap_or_default(), true);
        if let Some((instances, before)) = self.desired.get(&lrp.process_guid)
            && is_backward(before, &version)
        {
            self.backward.push(format!("{instances} {before:?}, then {} {version:?}", lrp.instances));
        }
        let definition = String::from_utf8_lossy(&lrp.definition_id);
        self.remember(&lrp.process_guid, format!("{} instances desired of {definition}", lrp.instances));
        self.desired.insert(lrp.process_guid, (lrp.instances, version));
    }
}

/// Whether a version is older than the one before it. A list may be ahead of the events that follow it; an event is not
/// ahead of later events.
fn is_backward((before, by_event): &Version, (after, _): &Version) -> bool {
    *by_event && before.epoch == after.epoch && after.index < before.index
}
