//! A route emitter: builds a routing table from the lists when it connects, and updates it from the
//! event stream from then on. Owns the table, and the check that the events of a row arrive in
//! order. Records each change in a trace.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bbs_proto::models as proto;

use super::bbs_client::BbsClient;
use super::cell::Text;
use super::trace::{LrpChange, Step, Trace};
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

#[derive(Debug, Default)]
struct RoutingTable {
    rows: BTreeMap<RowKey, (InstanceRow, Version)>,
    desired: BTreeMap<Text, (i32, Version)>,
    /// Containers whose removal was announced while they ran. The row stays if the rep does not
    /// answer.
    retired: BTreeSet<InstanceRow>,
    /// Events older than what is known of their row.
    backward: Vec<String>,
    /// Changes that are not in the trace yet, by process guid.
    changes: BTreeMap<Text, Vec<String>>,
    trace: Trace,
    connections: u64,
    events: u64,
}

/// A modification tag and its source.
#[derive(Debug, Clone)]
struct Version {
    tag: proto::ModificationTag,
    /// Whether it came with an event, not with a list.
    by_event: bool,
}

/// A shared handle.
#[derive(Clone)]
pub struct Emitter(Arc<Mutex<RoutingTable>>);

impl Emitter {
    /// Follows the host until the test's runtime ends.
    pub fn start(bbs: &BbsClient, trace: &Trace) -> Self {
        let emitter = Self(Arc::new(Mutex::new(RoutingTable {
            trace: trace.clone(),
            ..RoutingTable::default()
        })));
        tokio::spawn(emitter.clone().follow(bbs.clone()));
        emitter
    }

    fn table(&self) -> MutexGuard<'_, RoutingTable> {
        self.0.lock().expect("no lock holder panics")
    }

    /// The rows as known from lists and events.
    pub fn rows(&self) -> BTreeSet<InstanceRow> {
        self.table()
            .rows
            .values()
            .map(|(row, _)| row.clone())
            .collect()
    }

    pub fn retired(&self) -> BTreeSet<InstanceRow> {
        self.table().retired.clone()
    }

    /// The number of instances of each guid.
    pub fn desired(&self) -> BTreeMap<Text, i32> {
        self.table()
            .desired
            .iter()
            .map(|(guid, (instances, _))| (guid.clone(), *instances))
            .collect()
    }

    pub fn backward(&self) -> Vec<String> {
        self.table().backward.clone()
    }

    /// The number of instances that receive traffic.
    pub fn routable(&self) -> usize {
        self.table()
            .rows
            .values()
            .filter(|(row, _)| row.routable)
            .count()
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
            // Subscribed before the lists are read: every later change is in the stream and
            // corrects them.
            self.load_lists(&bbs).await;
            // The stream ends with an error when its host is killed.
            while let Ok(Some(event)) = stream.try_next().await {
                self.table().apply(&event);
            }
        }
    }

    async fn load_lists(&self, bbs: &BbsClient) {
        let (instances, refusal, _): (proto::ActualLrPsResponse, _, _) = bbs
            .call("/v1/actual_lrps/list", &proto::ActualLrPsRequest::default())
            .await;
        assert_eq!(refusal, None, "a list is not refused");
        let path = "/v1/desired_lrp_scheduling_infos/list";
        let (desired, refusal, _): (proto::DesiredLrpSchedulingInfosResponse, _, _) =
            bbs.call(path, &proto::DesiredLrPsRequest::default()).await;
        assert_eq!(refusal, None, "a list is not refused");
        let mut table = self.table();
        table.connections += 1;
        table.retired.clear();
        let known = std::mem::take(&mut table.rows);
        known
            .into_keys()
            .for_each(|(guid, _, _)| table.note(&guid, "listed anew".into()));
        for lrp in &instances.actual_lrps {
            table.put(row(lrp), Version::listed(lrp.modification_tag.clone()));
        }
        let known = desired
            .desired_lrp_scheduling_infos
            .into_iter()
            .map(|info| {
                let guid = info.desired_lrp_key.unwrap_or_default().process_guid;
                (
                    guid,
                    (info.instances, Version::listed(info.modification_tag)),
                )
            });
        table.desired = known.collect();
        table.record(false);
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
        let (_, index, presence) = &self.place;
        let [instance_guid, state] =
            [&self.instance_guid, &self.state].map(|text| String::from_utf8_lossy(text));
        let routable = if self.routable {
            "routable"
        } else {
            "not routable"
        };
        write!(
            formatter,
            "{index}/{presence} {instance_guid} {state} {routable}"
        )
    }
}

impl RoutingTable {
    fn apply(&mut self, event: &ReceivedEvent) {
        self.events += 1;
        self.apply_to_rows(event);
        self.record(true);
    }

    fn apply_to_rows(&mut self, event: &ReceivedEvent) {
        match event.name.as_str() {
            "actual_lrp_instance_created" => {
                let lrp = event
                    .message::<proto::ActualLrpInstanceCreatedEvent>()
                    .actual_lrp
                    .unwrap_or_default();
                let row = row(&lrp);
                let version = Version::of_event(lrp.modification_tag);
                if !self.is_ahead(&row.place, &version) {
                    self.put(row, version);
                }
            }
            "actual_lrp_instance_changed" => self.change(event.message()),
            "actual_lrp_instance_removed" => {
                let lrp = event
                    .message::<proto::ActualLrpInstanceRemovedEvent>()
                    .actual_lrp
                    .unwrap_or_default();
                let gone = row(&lrp);
                let version = Version::of_event(lrp.modification_tag);
                if self.is_ahead(&gone.place, &version) {
                    return;
                }
                self.remove(&gone.place, &gone.instance_guid);
                if !gone.instance_guid.is_empty() {
                    // A container that moved to another presence stays.
                    if !self
                        .rows_of(&gone.place.0)
                        .any(|(row, _)| row.instance_guid == gone.instance_guid)
                    {
                        self.trace.stop(&gone.place.0, &gone.instance_guid);
                    }
                    self.retired.insert(gone);
                }
            }
            "desired_lrp_created" => {
                self.desire(
                    event
                        .message::<proto::DesiredLrpCreatedEvent>()
                        .desired_lrp
                        .unwrap_or_default(),
                );
            }
            "desired_lrp_changed" => {
                self.desire(
                    event
                        .message::<proto::DesiredLrpChangedEvent>()
                        .after
                        .unwrap_or_default(),
                );
            }
            "desired_lrp_removed" => {
                let lrp = event
                    .message::<proto::DesiredLrpRemovedEvent>()
                    .desired_lrp
                    .unwrap_or_default();
                self.desired.remove(&lrp.process_guid);
            }
            "actual_lrp_crashed" => {}
            other => panic!("there is no event {other}"),
        }
    }

    fn change(&mut self, event: proto::ActualLrpInstanceChangedEvent) {
        let key = event.actual_lrp_key.unwrap_or_default();
        let instance = event.actual_lrp_instance_key.unwrap_or_default();
        let before = event.before.unwrap_or_default();
        let after = event.after.unwrap_or_default();
        let version = Version::of_event(after.modification_tag);
        let place = (key.process_guid.clone(), key.index, after.presence);
        if self.is_ahead(&place, &version) {
            return;
        }
        if before.presence != after.presence {
            self.remove(
                &(key.process_guid, key.index, before.presence),
                &instance.instance_guid,
            );
        }
        let (instance_guid, cell_id) = match &after.state[..] {
            // The event names the previous container; the row has none now.
            b"UNCLAIMED" | b"CRASHED" => Default::default(),
            _ => (instance.instance_guid, instance.cell_id),
        };
        let routable = after.state == b"RUNNING" && after.routable == Some(true);
        self.put(
            InstanceRow {
                place,
                instance_guid,
                cell_id,
                state: after.state,
                routable,
            },
            version,
        );
    }

    fn put(&mut self, row: InstanceRow, version: Version) {
        if let Some((known, before)) = self.rows.get(&row.place)
            && version.is_older_than(before)
        {
            self.backward
                .push(format!("{known:?} {before:?}, then {row:?} {version:?}"));
        }
        self.retired.remove(&row);
        self.note(&row.place.0, format!("{row}"));
        self.rows.insert(row.place.clone(), (row, version));
    }

    /// Whether the last list is newer than an event of a row at a place. Events from before the
    /// list follow it, and would take instances out of the table that receive traffic. The list has
    /// a later version of the same row, in whatever presence, or another row in its place, which an
    /// event would have removed first. No event is ahead of later events.
    fn is_ahead(&self, place: &RowKey, version: &Version) -> bool {
        let is_same = |known: &Version| known.tag.epoch == version.tag.epoch;
        match self.rows_of(&place.0).find(|(_, known)| is_same(known)) {
            Some((_, known)) => !known.by_event && version.is_older_than(known),
            None => self
                .rows
                .get(place)
                .is_some_and(|(_, known)| !known.by_event),
        }
    }

    fn rows_of(&self, process_guid: &[u8]) -> impl Iterator<Item = &(InstanceRow, Version)> {
        let first = (process_guid.to_vec(), i32::MIN, i32::MIN);
        self.rows
            .range(first..)
            .take_while(move |((guid, _, _), _)| guid == process_guid)
            .map(|(_, row)| row)
    }

    /// The instance guids of the instances of an LRP that receive traffic.
    fn routable_of(&self, process_guid: &[u8]) -> BTreeSet<Text> {
        let routable = self.rows_of(process_guid).filter(|(row, _)| row.routable);
        routable.map(|(row, _)| row.instance_guid.clone()).collect()
    }

    /// Adds to the description of the next step of an LRP.
    fn note(&mut self, process_guid: &[u8], change: String) {
        self.changes
            .entry(process_guid.to_vec())
            .or_default()
            .push(change);
    }

    /// Records the changes since the last step.
    fn record(&mut self, by_event: bool) {
        for (process_guid, changes) in std::mem::take(&mut self.changes) {
            let routable = self.routable_of(&process_guid);
            let description = changes.join("; ");
            self.trace.record(Step::Change(LrpChange {
                process_guid,
                description,
                routable,
                by_event,
            }));
        }
    }

    /// Removes a row, unless it has another container by now.
    fn remove(&mut self, place: &RowKey, instance_guid: &[u8]) {
        if self
            .rows
            .get(place)
            .is_some_and(|(row, _)| row.instance_guid == instance_guid)
        {
            self.rows.remove(place);
            let instance_guid = String::from_utf8_lossy(instance_guid);
            self.note(
                &place.0,
                format!("{}/{} {instance_guid} removed", place.1, place.2),
            );
        }
    }

    fn desire(&mut self, lrp: proto::DesiredLrp) {
        let version = Version::of_event(lrp.modification_tag);
        if let Some((instances, before)) = self.desired.get(&lrp.process_guid)
            && version.is_older_than(before)
        {
            if !before.by_event {
                return;
            }
            self.backward.push(format!(
                "{instances} {before:?}, then {} {version:?}",
                lrp.instances
            ));
        }
        let definition = String::from_utf8_lossy(&lrp.definition_id);
        self.note(
            &lrp.process_guid,
            format!("{} instances desired of {definition}", lrp.instances),
        );
        self.desired
            .insert(lrp.process_guid, (lrp.instances, version));
    }
}

impl Version {
    fn of_event(tag: Option<proto::ModificationTag>) -> Self {
        Self {
            tag: tag.unwrap_or_default(),
            by_event: true,
        }
    }

    fn listed(tag: Option<proto::ModificationTag>) -> Self {
        Self {
            tag: tag.unwrap_or_default(),
            by_event: false,
        }
    }

    fn is_older_than(&self, other: &Self) -> bool {
        self.tag.epoch == other.tag.epoch && self.tag.index < other.tag.index
    }
}

#[cfg(test)]
mod tests {
    use bbs_proto::prost::Message;

    use super::*;

    fn running(index: u32) -> proto::ActualLrp {
        running_row("epoch", index)
    }

    /// The row of an instance; a row that was created later has another epoch.
    fn running_row(epoch: &str, index: u32) -> proto::ActualLrp {
        let key = proto::ActualLrpKey {
            process_guid: b"app".to_vec(),
            ..Default::default()
        };
        let instance = proto::ActualLrpInstanceKey {
            instance_guid: b"new".to_vec(),
            cell_id: b"cell".to_vec(),
        };
        proto::ActualLrp {
            actual_lrp_key: Some(key),
            actual_lrp_instance_key: Some(instance),
            state: b"RUNNING".to_vec(),
            routable: Some(true),
            modification_tag: Some(proto::ModificationTag {
                epoch: epoch.into(),
                index,
            }),
            ..Default::default()
        }
    }

    /// The event of a change to `CLAIMED`.
    fn claimed(lrp: proto::ActualLrp) -> ReceivedEvent {
        let after = proto::ActualLrpInfo {
            state: b"CLAIMED".to_vec(),
            modification_tag: lrp.modification_tag,
            ..Default::default()
        };
        let event = proto::ActualLrpInstanceChangedEvent {
            actual_lrp_key: lrp.actual_lrp_key,
            actual_lrp_instance_key: lrp.actual_lrp_instance_key,
            after: Some(after),
            ..Default::default()
        };
        ReceivedEvent {
            name: "actual_lrp_instance_changed".into(),
            message: event.encode_to_vec(),
        }
    }

    /// The event of a removal.
    fn removed(index: u32) -> ReceivedEvent {
        let event = proto::ActualLrpInstanceRemovedEvent {
            actual_lrp: Some(running(index)),
            ..Default::default()
        };
        ReceivedEvent {
            name: "actual_lrp_instance_removed".into(),
            message: event.encode_to_vec(),
        }
    }

    /// A subscription begins before the list is read, so events from before the list are read after
    /// it.
    #[test]
    fn event_that_is_older_than_the_list_takes_no_instance_out_of_the_table() {
        let mut table = RoutingTable::default();
        table.put(
            row(&running(2)),
            Version::listed(running(2).modification_tag),
        );
        for older in [
            claimed(running(1)),
            removed(1),
            claimed(running_row("a row that is gone", 7)),
        ] {
            table.apply(&older);
            assert_eq!(
                table.routable_of(b"app"),
                [b"new".to_vec()].into(),
                "{}",
                older.name
            );
        }
        table.apply(&claimed(running(3)));
        assert_eq!(table.routable_of(b"app"), [].into());
        table.apply(&claimed(running_row("the next row", 1)));
        assert_eq!(
            table
                .rows_of(b"app")
                .map(|(_, version)| &version.tag.epoch[..])
                .collect::<Vec<_>>(),
            [b"the next row"]
        );
        assert_eq!(table.backward, Vec::<String>::new());
    }
}
