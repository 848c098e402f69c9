//! Slots in the table `actual_lrps`. Read whole in order to be written: as the difference between
//! two slots, changed columns only.

use std::collections::{BTreeMap, BTreeSet};

use bbs_model::actual_lrp::{ActualLrp, Presence, State};
use bbs_model::slot::Slot;
use bbs_model::{Text, bounds, tags};

use super::{PLAIN, TABLE, WHOLE, actual_lrp, plain};
use crate::store::column_values::{ColumnValue, ColumnValues, Conflict, json, message, number};
use crate::store::filter::Filter;
use crate::store::record::{Projection, Record, RecordReadError};
use crate::store::{Reader, StoreError, UnreadableRow, Writer};

const WHOLE_ROWS: Projection<IndexedRow> = TABLE
    .read(|record| IndexedRow::of(record, actual_lrp))
    .columns(WHOLE.columns);

const PLAIN_ROWS: Projection<IndexedRow> = TABLE
    .read(|record| IndexedRow::of(record, plain))
    .columns(PLAIN.columns);

/// The columns that hold text.
const TEXTS: [&str; 13] = [
    "process_guid",
    "domain",
    "state",
    "instance_guid",
    "cell_id",
    "placement_error",
    "net_info",
    "modification_tag_epoch",
    "crash_reason",
    "internal_routes",
    "metric_tags",
    "availability_zone",
    "desired_lrp_definition_id",
];

/// The readable rows of a slot.
#[derive(Debug)]
pub struct ReadableSlot {
    /// Without the unreadable rows.
    pub slot: Slot,
    /// The error of an unreadable row.
    pub damage: Option<StoreError>,
}

/// The slots of a process guid.
#[derive(Debug)]
pub struct ReadableSlots {
    /// By index, without those that have an unreadable row.
    pub slots: BTreeMap<i32, Box<Slot>>,
    /// The indices of slots that have an unreadable row.
    pub unreadable: BTreeSet<i32>,
}

/// A row whose index can be read.
struct IndexedRow {
    index: i32,
    row: Result<ActualLrp, RecordReadError>,
}

impl IndexedRow {
    fn of(
        record: &Record<'_>,
        read: fn(&Record<'_>) -> Result<ActualLrp, RecordReadError>,
    ) -> Result<Self, RecordReadError> {
        Ok(Self {
            index: record.number("instance_index")?,
            row: read(record),
        })
    }
}

impl Reader {
    /// Reads a slot, without its unreadable rows.
    ///
    /// # Errors
    /// The database fails. The error of an unreadable row is part of the result.
    pub async fn slot(
        &mut self,
        process_guid: &[u8],
        index: i32,
    ) -> Result<ReadableSlot, StoreError> {
        let filter = Filter::everything().is("instance_index", index);
        let mut rows = Vec::new();
        let mut damage = None;
        for row in self.rows(&WHOLE, process_guid, filter).await? {
            match row {
                Ok(row) => rows.push(row),
                Err(fault) => damage = Some(fault),
            }
        }
        Ok(ReadableSlot {
            slot: Slot::of(rows),
            damage,
        })
    }
}

impl Writer {
    /// Reads a slot in order to change it.
    ///
    /// # Errors
    /// If a row of it cannot be read.
    pub async fn slot(&mut self, process_guid: &[u8], index: i32) -> Result<Slot, StoreError> {
        let filter = Filter::everything().is("instance_index", index);
        let rows = self.rows(&WHOLE, process_guid, filter).await?;
        let rows: Result<Vec<_>, _> = rows.into_iter().collect();
        // A lens does not note it.
        if let Err(StoreError::Unreadable { .. }) = &rows {
            let store = &self.session.store;
            store.note_unreadable(TABLE.name, process_guid);
        }
        Ok(Slot::of(rows?))
    }

    /// Reads the slots of a process guid in order to change them.
    ///
    /// # Errors
    /// As of [`Writer`], except for unreadable rows.
    pub async fn slots(&mut self, process_guid: &[u8]) -> Result<ReadableSlots, StoreError> {
        self.readable_slots(&WHOLE_ROWS, process_guid, Filter::everything())
            .await
    }

    /// As [`Self::slots`], from an index upwards.
    ///
    /// # Errors
    /// As of [`Writer`], except for unreadable rows.
    pub async fn slots_from(
        &mut self,
        process_guid: &[u8],
        from_index: i32,
    ) -> Result<ReadableSlots, StoreError> {
        let filter = Filter::everything().at_least("instance_index", from_index);
        self.readable_slots(&WHOLE_ROWS, process_guid, filter).await
    }

    /// As [`Self::slots`], without network, routes and tags. Do not write them.
    ///
    /// # Errors
    /// As of [`Writer`], except for unreadable rows.
    pub async fn plain_slots(&mut self, process_guid: &[u8]) -> Result<ReadableSlots, StoreError> {
        self.readable_slots(&PLAIN_ROWS, process_guid, Filter::everything())
            .await
    }

    async fn readable_slots(
        &mut self,
        projection: &Projection<IndexedRow>,
        process_guid: &[u8],
        filter: Filter,
    ) -> Result<ReadableSlots, StoreError> {
        let rows = self.rows(projection, process_guid, filter).await?;
        let mut unreadable = BTreeSet::new();
        let store = self.session.store.clone();
        let rows = rows.into_iter().map(|row| {
            let IndexedRow { index, row } = row?;
            row.map_err(|source| {
                unreadable.insert(index);
                store.note_unreadable(TABLE.name, process_guid);
                StoreError::Unreadable {
                    table: TABLE.name,
                    key: process_guid.to_vec(),
                    source,
                }
            })
        });
        let mut slots = Slot::by_index(store.readable(rows)?);
        slots.retain(|index, _| !unreadable.contains(index));
        Ok(ReadableSlots { slots, unreadable })
    }

    /// The unreadable rows of a process guid, whose index and presence can be read.
    pub(in crate::store) async fn unreadable_instances(
        &mut self,
        process_guid: &[u8],
    ) -> Result<Vec<UnreadableRow>, StoreError> {
        let placed = TABLE.read(|record| {
            let place = vec![
                ("instance_index", record.long("instance_index")?),
                ("presence", record.long("presence")?),
            ];
            Ok(actual_lrp(record)
                .err()
                .map(|source| UnreadableRow { place, source }))
        });
        let rows = self
            .rows(
                &placed.columns(WHOLE.columns),
                process_guid,
                Filter::everything(),
            )
            .await?;
        Ok(rows.into_iter().filter_map(Result::ok).flatten().collect())
    }

    /// The indices of a process guid, from one upwards, that have an ordinary instance, including
    /// unreadable ones.
    pub async fn indices(
        &mut self,
        process_guid: &[u8],
        from_index: i32,
    ) -> Result<BTreeSet<i32>, StoreError> {
        let ordinary = Filter::everything()
            .at_least("instance_index", from_index)
            .is("presence", Presence::Ordinary as i32);
        let index = TABLE.read(|record| record.number("instance_index"));
        let index = index.columns(&[TABLE.key, "instance_index", "presence"]);
        self.rows(&index, process_guid, ordinary)
            .await?
            .into_iter()
            .collect()
    }

    /// Inserts rows of one process guid.
    ///
    /// # Errors
    /// [`StoreError::Exists`] if there is one of these rows.
    pub async fn insert_slots(&mut self, rows: &[ActualLrp]) -> Result<(), StoreError> {
        let Some(first) = rows.first() else {
            return Ok(());
        };
        let values = rows
            .iter()
            .map(|row| self.differing(None, row))
            .collect::<Result<_, _>>()?;
        self.insert(TABLE, &first.process_guid, values, Conflict::Fails)
            .await
    }

    /// The number of ordinary instances of a process guid that are running.
    pub async fn running(&mut self, process_guid: &[u8]) -> Result<usize, StoreError> {
        let running = Filter::everything()
            .is("presence", Presence::Ordinary as i32)
            .equals("state", State::Running.name().as_bytes());
        let columns = TABLE
            .read(|_| Ok(()))
            .columns(&[TABLE.key, "presence", "state"]);
        Ok(self.rows(&columns, process_guid, running).await?.len())
    }

    /// Leaves open which definition the instances of a process guid run, whose desired LRP is
    /// removed. No change that a client of Diego sees.
    pub async fn forget_definitions(&mut self, process_guid: &[u8]) -> Result<(), StoreError> {
        let values = vec![
            self.plain(TABLE, "desired_lrp_definition_id", b"")?,
            ("definition_uncertain", ColumnValue::Flag(false)),
        ];
        self.update(TABLE, process_guid, Filter::everything(), values)
            .await
            .map(drop)
    }

    /// Writes the difference between two slots.
    ///
    /// # Errors
    /// [`StoreError::Raced`] if a row has changed since `before` was read; [`StoreError::TooLarge`]
    /// if the instances of the process guid would be too large together;
    /// [`StoreError::IndexTooHigh`] for a new row at an index that no LRP has.
    pub async fn put_slot(&mut self, before: &Slot, after: &Slot) -> Result<(), StoreError> {
        for presence in Presence::ALL {
            self.check_growth(before.at(presence), after.at(presence))
                .await?;
            let changed = match (before.at(presence), after.at(presence)) {
                (Some(row), None) => {
                    self.delete(TABLE, &row.process_guid, unchanged(row))
                        .await?
                }
                (Some(then), Some(now)) if then != now => {
                    let values = self.differing(Some(then), now)?;
                    self.update(TABLE, &then.process_guid, unchanged(then), values)
                        .await?
                }
                (None, Some(row)) => {
                    let values = self.differing(None, row)?;
                    self.insert(TABLE, &row.process_guid, vec![values], Conflict::Fails)
                        .await?;
                    continue;
                }
                (Some(_), Some(_)) | (None, None) => continue,
            };
            if changed == 0 {
                return Err(StoreError::Raced);
            }
        }
        Ok(())
    }

    /// Bounds the instances of one process guid, which a migration carries together. Only a large
    /// row, or one at a high index, has the others measured: in the usual case this costs no
    /// statement.
    async fn check_growth(
        &mut self,
        before: Option<&ActualLrp>,
        after: Option<&ActualLrp>,
    ) -> Result<(), StoreError> {
        let Some(after) = after else { return Ok(()) };
        if before.is_none() && after.index >= bounds::INSTANCES {
            return Err(StoreError::IndexTooHigh {
                index: after.index,
                limit: bounds::INSTANCES,
            });
        }
        let was = before.map_or(0, ActualLrp::stored_bytes);
        let is = after.stored_bytes();
        let accepted = if after.index < bounds::ALWAYS_ACCEPTED_INDEX {
            bounds::ALWAYS_ACCEPTED_BYTES
        } else {
            bounds::SMALL_INSTANCE_BYTES
        };
        if is <= was || is <= accepted {
            return Ok(());
        }
        let all = self.unit_bytes(TABLE, &after.process_guid, &TEXTS).await?;
        let bytes = usize::try_from(all)
            .unwrap_or(usize::MAX)
            .saturating_add(is - was);
        match bounds::INSTANCES_BYTES {
            limit if bytes > limit => Err(StoreError::TooLarge {
                table: TABLE.name,
                bytes,
                limit,
            }),
            _ => Ok(()),
        }
    }

    /// The columns that differ, with their new values.
    fn differing(
        &self,
        before: Option<&ActualLrp>,
        now: &ActualLrp,
    ) -> Result<ColumnValues, StoreError> {
        let mut columns = ChangedColumns {
            writer: self,
            before,
            now,
            values: ColumnValues::new(),
        };
        columns.texts()?;
        columns.numbers();
        columns.sealed();
        Ok(columns.values)
    }
}

/// Selects a row within its unit, provided that its state and modification tag are unchanged.
fn unchanged(row: &ActualLrp) -> Filter {
    let row_alone = Filter::everything()
        .is("instance_index", row.index)
        .is("presence", row.presence);
    let in_state = row_alone.equals("state", row.state.clone());
    match row.tag.index {
        // 0 is also read from NULL, which the condition would not match.
        0 => in_state,
        index => in_state.is("modification_tag_index", index),
    }
}

type TextOf = fn(&ActualLrp) -> &Text;
type ValueOf = fn(&ActualLrp) -> ColumnValue;

/// Collects the columns of a row that differ from those stored.
struct ChangedColumns<'a> {
    writer: &'a Writer,
    before: Option<&'a ActualLrp>,
    now: &'a ActualLrp,
    values: ColumnValues,
}

impl<'a> ChangedColumns<'a> {
    fn texts(&mut self) -> Result<(), StoreError> {
        let plain: [(&'static str, TextOf); 8] = [
            ("process_guid", |row| &row.process_guid),
            ("domain", |row| &row.domain),
            ("state", |row| &row.state),
            ("instance_guid", |row| &row.instance_guid),
            ("cell_id", |row| &row.cell_id),
            ("modification_tag_epoch", |row| &row.tag.epoch),
            ("availability_zone", |row| &row.availability_zone),
            ("desired_lrp_definition_id", |row| &row.definition_id),
        ];
        for (column, text) in plain {
            if let Some(text) = self.new_value(text) {
                self.values.push(self.writer.plain(TABLE, column, text)?);
            }
        }
        let excerpts: [(&'static str, TextOf); 2] = [
            ("placement_error", |row| &row.placement_error),
            ("crash_reason", |row| &row.crash_reason),
        ];
        for (column, text) in excerpts {
            if let Some(text) = self.new_value(text) {
                let text = ColumnValue::Text(self.writer.excerpt(text));
                self.values.push((column, text));
            }
        }
        Ok(())
    }

    fn numbers(&mut self) {
        let numbers: [(&'static str, ValueOf); 7] = [
            ("instance_index", |row| number(row.index)),
            ("since", |row| number(row.since_ns)),
            ("modification_tag_index", |row| number(row.tag.index)),
            ("crash_count", |row| number(row.crash_count)),
            ("presence", |row| number(row.presence)),
            ("routable", |row| ColumnValue::Flag(row.routable)),
            ("definition_uncertain", |row| {
                ColumnValue::Flag(row.definition_uncertain)
            }),
        ];
        for (column, value) in numbers {
            let now = value(self.now);
            if self.before.is_none_or(|before| value(before) != now) {
                self.values.push((column, now));
            }
        }
    }

    /// Sealed columns are encrypted only if their plaintext differs.
    fn sealed(&mut self) {
        if let Some(net_info) = self.new_value(|row| &row.net_info) {
            self.values.push(("net_info", message(net_info)));
        }
        if let Some(hostnames) = self.new_value(|row| &row.internal_routes) {
            self.values
                .push(("internal_routes", json(tags::hostnames_to_json(hostnames))));
        }
        if let Some(metric_tags) = self.new_value(|row| &row.metric_tags) {
            self.values
                .push(("metric_tags", json(tags::text_map_to_json(metric_tags))));
        }
    }

    fn new_value<T: PartialEq>(&self, value: fn(&ActualLrp) -> &T) -> Option<&'a T> {
        let now = value(self.now);
        self.before
            .is_none_or(|before| value(before) != now)
            .then_some(now)
    }
}
