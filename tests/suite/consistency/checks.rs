//! Invariants of the stored records.

use std::collections::BTreeMap;

use bbs_proto::models as proto;
use bbs_proto::models::actual_lrp::Presence;
use bbs_proto::models::task::State;

use super::Snapshot;

/// The last image of each record, by the epoch of its modification tag.
#[derive(Default)]
pub(super) struct RecordHistory {
    actual: BTreeMap<Vec<u8>, proto::ActualLrp>,
    desired: BTreeMap<Vec<u8>, proto::DesiredLrp>,
    /// The number of records read of each kind and state.
    kinds: BTreeMap<String, usize>,
}

impl RecordHistory {
    pub(super) fn check(&mut self, rows: &Snapshot) {
        one_of_each_presence(rows);
        for row in &rows.actual {
            has_a_container_or_none(row);
            let kind = format!(
                "{} {}",
                row.presence().as_str_name(),
                String::from_utf8_lossy(&row.state)
            );
            *self.kinds.entry(kind).or_default() += 1;
            let tag = row
                .modification_tag
                .clone()
                .expect("every record has a tag");
            // The presence may change without a change of the tag, and the definition of what a
            // removed LRP leaves.
            let image = proto::ActualLrp {
                presence: 0,
                desired_lrp_definition_id: Vec::new(),
                ..row.clone()
            };
            let known = self
                .actual
                .entry(tag.epoch)
                .or_insert_with(|| image.clone());
            let known_index = known.modification_tag.as_ref().unwrap().index;
            assert!(
                tag.index > known_index || *known == image,
                "{known:?} became {image:?} under the same tag"
            );
            *known = image;
        }
        for lrp in &rows.desired {
            let tag = lrp
                .modification_tag
                .clone()
                .expect("every record has a tag");
            let known = self.desired.entry(tag.epoch).or_insert_with(|| lrp.clone());
            let known_index = known.modification_tag.as_ref().unwrap().index;
            assert!(
                tag.index > known_index || known == lrp,
                "{known:?} became {lrp:?} under the same tag"
            );
            *known = lrp.clone();
        }
        for task in &rows.tasks {
            fits_its_state(task);
            *self
                .kinds
                .entry(format!("task {}", task.state().as_str_name()))
                .or_default() += 1;
        }
    }

    /// The kinds and states that occurred in a run, which show what it covered.
    pub(super) const fn kinds(&self) -> &BTreeMap<String, usize> {
        &self.kinds
    }
}

fn one_of_each_presence(rows: &Snapshot) {
    let mut places: Vec<_> = rows
        .actual
        .iter()
        .map(|row| {
            let key = row.actual_lrp_key.clone().expect("every row has a key");
            (key.process_guid, key.index, row.presence)
        })
        .collect();
    places.sort();
    let all = places.len();
    places.dedup();
    assert_eq!(
        places.len(),
        all,
        "two rows of one kind in a slot: {places:?}"
    );
}

pub(super) fn has_container(row: &proto::ActualLrp) -> bool {
    match &row.state[..] {
        b"UNCLAIMED" | b"CRASHED" => false,
        b"CLAIMED" | b"RUNNING" => true,
        other => panic!("{} is no state", String::from_utf8_lossy(other)),
    }
}

fn has_a_container_or_none(row: &proto::ActualLrp) {
    let container = row.actual_lrp_instance_key.clone().unwrap_or_default();
    let is_named = !container.instance_guid.is_empty() && !container.cell_id.is_empty();
    let has_address =
        row.actual_lrp_net_info.clone().unwrap_or_default() != proto::ActualLrpNetInfo::default();
    assert_eq!(is_named, has_container(row), "{row:?}");
    // As in Diego, a claimed instance is evacuated as a running one, without an address.
    let may_lack_address = row.presence() == Presence::Evacuating;
    assert!(
        has_address == (row.state == b"RUNNING") || may_lack_address && !has_address,
        "{row:?}"
    );
    match row.presence() {
        Presence::Ordinary => {}
        Presence::Evacuating => assert_eq!(row.state, b"RUNNING", "{row:?}"),
        Presence::Suspect => assert!(has_container(row), "{row:?}"),
    }
}

fn fits_its_state(task: &proto::Task) {
    let has_cell = !task.cell_id.is_empty();
    let is_over = task.first_completed_at > 0;
    assert_eq!(task.failed, !task.failure_reason.is_empty(), "{task:?}");
    assert!(
        task.created_at > 0 && task.created_at <= task.updated_at,
        "{task:?}"
    );
    assert!((0..=4).contains(&task.rejection_count), "{task:?}");
    assert_eq!(
        task.rejection_count > 0,
        !task.rejection_reason.is_empty(),
        "{task:?}"
    );
    match task.state() {
        State::Pending => {
            assert!(
                !is_over && !task.failed && task.result.is_empty(),
                "{task:?}"
            );
            assert!(
                !has_cell || task.rejection_count > 0,
                "a pending task has a cell only after a rejection: {task:?}"
            );
        }
        State::Running => assert!(has_cell && !is_over && !task.failed, "{task:?}"),
        State::Completed | State::Resolving => {
            assert!(is_over, "{task:?}");
            // Convergence keeps the cell of a task that it completes.
            let by_convergence: [&[u8]; 2] = [
                b"cell disappeared before completion",
                b"not started within time limit",
            ];
            assert!(
                !has_cell || by_convergence.contains(&&task.failure_reason[..]),
                "{task:?}"
            );
        }
        State::Invalid => panic!("{task:?}"),
    }
}

pub(super) fn cell_of(row: &proto::ActualLrp) -> &str {
    let key = row
        .actual_lrp_instance_key
        .as_ref()
        .expect("a container has a name");
    std::str::from_utf8(&key.cell_id).expect("text")
}

/// Whether a row has a container to be stopped when only `left` instances stay desired.
pub(super) fn is_surplus_container(row: &proto::ActualLrp, guid: &str, left: i32) -> bool {
    let key = row.actual_lrp_key.as_ref().expect("every row has a key");
    let is_surplus = key.process_guid == guid.as_bytes() && key.index >= left;
    is_surplus && row.presence() != Presence::Evacuating && has_container(row)
}

pub(super) fn stop_path(row: &proto::ActualLrp) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let guid = text(
        &row.actual_lrp_key
            .as_ref()
            .expect("every row has a key")
            .process_guid,
    );
    let instance = text(
        &row.actual_lrp_instance_key
            .as_ref()
            .expect("a container has a name")
            .instance_guid,
    );
    format!("/v1/lrps/{guid}/instances/{instance}/stop")
}

/// Asserts that no row without a container is left of `guid` from index `left` on.
pub(super) fn assert_no_surplus_unclaimed(guid: &str, left: i32, rows: &Snapshot) {
    assert_eq!(rows.desired(guid.as_bytes()).unwrap_or(0), left);
    for row in &rows.actual {
        let key = row.actual_lrp_key.as_ref().expect("every row has a key");
        let is_surplus = key.process_guid == guid.as_bytes() && key.index >= left;
        assert!(!is_surplus || has_container(row), "{row:?} is surplus");
    }
}
