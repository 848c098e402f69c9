//! The table `actual_lrps`: the instances of desired LRPs. A slot, one index of a process guid, has
//! up to three rows. Owns the mapping between instances and columns.

mod slots;

pub use slots::{ReadableSlot, ReadableSlots};

use bbs_model::actual_lrp::{ActualLrp, ActualLrpFilter, Presence, State};
use bbs_model::tags;

use super::filter::Filter;
use super::page::{Key, Listed, Range};
use super::record::{Projection, Record, RecordReadError};
use super::{EntityTable, Reader, StoreError, Writer};

pub(super) const TABLE: EntityTable = EntityTable {
    name: "actual_lrps",
    key: "process_guid",
    primary_key: &["process_guid", "instance_index", "presence"],
    heavy: &["net_info", "internal_routes", "metric_tags"],
    selective: &["cell_id"],
};

const WHOLE: Projection<ActualLrp> = TABLE.read(actual_lrp).columns(&[
    "process_guid",
    "instance_index",
    "domain",
    "instance_guid",
    "cell_id",
    "net_info",
    "crash_count",
    "crash_reason",
    "state",
    "placement_error",
    "since",
    "modification_tag_epoch",
    "modification_tag_index",
    "presence",
    "internal_routes",
    "metric_tags",
    "routable",
    "availability_zone",
    "desired_lrp_definition_id",
    "definition_uncertain",
]);

/// The columns that convergence needs: placement, state and definition, and for running instances,
/// and containers that an update replaces, their internal routes and metric tags. No other column
/// is read or decrypted.
const PARTS: Projection<ActualLrp> = TABLE.read(parts).columns(&[
    "process_guid",
    "instance_index",
    "domain",
    "instance_guid",
    "cell_id",
    "state",
    "since",
    "crash_count",
    "presence",
    "routable",
    "desired_lrp_definition_id",
    "definition_uncertain",
    "internal_routes",
    "metric_tags",
]);

/// The columns that the update of a desired LRP needs: placement, state, definition and failures.
/// Nothing is decrypted.
const PLAIN: Projection<ActualLrp> = TABLE.read(plain).columns(&[
    "process_guid",
    "instance_index",
    "domain",
    "instance_guid",
    "cell_id",
    "state",
    "since",
    "crash_count",
    "presence",
    "routable",
    "desired_lrp_definition_id",
    "definition_uncertain",
    "crash_reason",
    "placement_error",
]);

impl Reader {
    /// The last key of a page of instances; reads no instances.
    pub async fn instances_page_end(
        &mut self,
        after: Option<&Key>,
        units: u32,
    ) -> Result<Option<Key>, StoreError> {
        self.page_end(TABLE, after, units).await
    }

    /// Lists instances.
    ///
    /// # Errors
    /// The database fails. Unreadable records are left out.
    pub async fn actual_lrps(
        &mut self,
        filter: &ActualLrpFilter,
        range: &Range,
    ) -> Result<Listed<ActualLrp>, StoreError> {
        self.list(&WHOLE, &condition(filter), range).await
    }

    /// Incomplete instances, for convergence. Do not write them: a change reads the whole row.
    ///
    /// # Errors
    /// The database fails. Unreadable records are left out.
    pub async fn instance_parts(&mut self, range: &Range) -> Result<Vec<ActualLrp>, StoreError> {
        Ok(self
            .list(&PARTS, &Filter::everything(), range)
            .await?
            .records)
    }

    /// Incomplete instances, without their network, routes and tags. Do not write them: a change
    /// reads the whole row.
    ///
    /// # Errors
    /// The database fails. Records that are unreadable in these columns are left out.
    pub async fn plain_instances(
        &mut self,
        filter: &ActualLrpFilter,
    ) -> Result<Vec<ActualLrp>, StoreError> {
        Ok(self
            .list(&PLAIN, &condition(filter), &Range::default())
            .await?
            .records)
    }
}

impl Writer {
    /// Deletes the unclaimed and crashed instances from an index upwards.
    pub async fn delete_waiting(
        &mut self,
        process_guid: &[u8],
        from_index: i32,
    ) -> Result<(), StoreError> {
        let waiting = Filter::everything()
            .at_least("instance_index", from_index)
            .is("presence", Presence::Ordinary as i32)
            .one_of(
                "state",
                &[State::Unclaimed.name().into(), State::Crashed.name().into()],
            );
        self.delete(TABLE, process_guid, waiting).await.map(drop)
    }
}

fn condition(filter: &ActualLrpFilter) -> Filter {
    let condition = Filter::everything()
        .equals_if_any("domain", &filter.domain)
        .equals_if_any("cell_id", &filter.cell_id)
        .one_of(TABLE.key, &filter.process_guids);
    match filter.index {
        Some(index) => condition.is("instance_index", index),
        None => condition,
    }
}

fn actual_lrp(record: &Record<'_>) -> Result<ActualLrp, RecordReadError> {
    Ok(ActualLrp {
        process_guid: record.text("process_guid")?,
        index: record.number("instance_index")?,
        domain: record.text("domain")?,
        instance_guid: record.text("instance_guid")?,
        cell_id: record.text("cell_id")?,
        net_info: record.optional_message("net_info")?.unwrap_or_default(),
        crash_count: record.number("crash_count")?,
        crash_reason: record.text("crash_reason")?,
        state: record.text("state")?,
        placement_error: record.text("placement_error")?,
        since_ns: record.long("since")?,
        tag: record.tag()?,
        presence: record.number("presence")?,
        internal_routes: record.optional_json("internal_routes", tags::hostnames_from_json)?,
        metric_tags: record.optional_json("metric_tags", tags::text_map_from_json)?,
        routable: record.flag("routable")?,
        availability_zone: record.text("availability_zone")?,
        definition_id: record.text("desired_lrp_definition_id")?,
        definition_uncertain: record.flag("definition_uncertain")?,
    })
}

fn parts(record: &Record<'_>) -> Result<ActualLrp, RecordReadError> {
    let mut row = placed(record)?;
    let may_be_updated = match row.presence() {
        Some(Presence::Ordinary | Presence::Evacuating) => row.state() == Some(State::Running),
        Some(Presence::Suspect) | None => false,
    };
    if may_be_updated {
        row.internal_routes = record.optional_json("internal_routes", tags::hostnames_from_json)?;
        row.metric_tags = record.optional_json("metric_tags", tags::text_map_from_json)?;
    }
    Ok(row)
}

fn plain(record: &Record<'_>) -> Result<ActualLrp, RecordReadError> {
    let placed = placed(record)?;
    Ok(ActualLrp {
        crash_reason: record.text("crash_reason")?,
        placement_error: record.text("placement_error")?,
        ..placed
    })
}

/// The placement, state and definition of an instance.
fn placed(record: &Record<'_>) -> Result<ActualLrp, RecordReadError> {
    Ok(ActualLrp {
        process_guid: record.text("process_guid")?,
        index: record.number("instance_index")?,
        domain: record.text("domain")?,
        instance_guid: record.text("instance_guid")?,
        cell_id: record.text("cell_id")?,
        state: record.text("state")?,
        since_ns: record.long("since")?,
        crash_count: record.number("crash_count")?,
        presence: record.number("presence")?,
        routable: record.flag("routable")?,
        definition_id: record.text("desired_lrp_definition_id")?,
        definition_uncertain: record.flag("definition_uncertain")?,
        ..ActualLrp::default()
    })
}
