//! Slots in the table `actual_lrps`: read whole, written as the difference between two. What differs is written, and
//! nothing else.

use std::collections::{BTreeMap, BTreeSet};

use super::{COLUMNS, TABLE, actual_lrp};
use crate::model::actual_lrp::{ActualLrp, Presence, State};
use crate::model::slot::Slot;
use crate::model::{Text, tags};
use crate::store::column_values::{ColumnValue, ColumnValues, json, message, number};
use crate::store::filter::Filter;
use crate::store::reader::Reader;
use crate::store::record::{Record, RecordProblem};
use crate::store::writer::Conflict;
use crate::store::{StoreError, Writer};

/// A slot as far as it can be read.
#[derive(Debug)]
pub struct Seen {
    pub slot: Slot,
    /// Why a row of it cannot be read.
    pub damage: Option<StoreError>,
}

impl Reader {
    pub async fn slot(&mut self, process_guid: &[u8], index: i32) -> Result<Seen, StoreError> {
        let filter = Filter::everything().is("instance_index", index);
        let (mut rows, mut damage) = (Vec::new(), None);
        for row in self.rows(TABLE, &COLUMNS, process_guid, filter, actual_lrp).await? {
            match row {
                Ok(row) => rows.push(row),
                Err(fault) => damage = Some(fault),
            }
        }
        Ok(Seen { slot: Slot::of(rows), damage })
    }
}

impl Writer {
    /// A slot that is about to change. One with a row that cannot be read does not.
    pub async fn slot(&mut self, process_guid: &[u8], index: i32) -> Result<Slot, StoreError> {
        let filter = Filter::everything().is("instance_index", index);
        let rows = self.rows(TABLE, &COLUMNS, process_guid, filter, actual_lrp).await?;
        Ok(Slot::of(rows.into_iter().collect::<Result<Vec<_>, _>>()?))
    }

    /// The slots of a process guid, which are about to change, and whether those are all of them: one with a row that
    /// cannot be read is left out.
    pub async fn slots(&mut self, process_guid: &[u8]) -> Result<(BTreeMap<i32, Box<Slot>>, bool), StoreError> {
        let rows = self.rows(TABLE, &COLUMNS, process_guid, Filter::everything(), with_index).await?;
        let mut damaged = BTreeSet::new();
        let rows = rows.into_iter().map(|row| {
            let (index, row) = row?;
            row.map_err(|source| {
                damaged.insert(index);
                let key = String::from_utf8_lossy(process_guid).into_owned();
                StoreError::Unreadable { table: TABLE.name, key, source }
            })
        });
        let mut slots = Slot::by_index(self.store.readable(rows)?);
        slots.retain(|index, _| !damaged.contains(index));
        Ok((slots, damaged.is_empty()))
    }

    /// Which indices of a process guid are taken, whether or not the rest of their rows can be read.
    pub async fn indices(&mut self, process_guid: &[u8]) -> Result<BTreeSet<i32>, StoreError> {
        let ordinary = Filter::everything().is("presence", Presence::Ordinary as i32);
        let columns = [TABLE.key, "instance_index", "presence"];
        let rows = self.rows(TABLE, &columns, process_guid, ordinary, |record| record.number("instance_index"));
        rows.await?.into_iter().collect()
    }

    /// New rows of one process guid, where there are none.
    pub async fn insert_slots(&mut self, rows: &[ActualLrp]) -> Result<(), StoreError> {
        let Some(first) = rows.first() else { return Ok(()) };
        let values = rows.iter().map(|row| self.differing(None, row)).collect::<Result<_, _>>()?;
        self.insert(TABLE, &first.process_guid, values, Conflict::Fails).await
    }

    /// How many of the managed instances of a process guid run.
    pub async fn running(&mut self, process_guid: &[u8]) -> Result<usize, StoreError> {
        let running = Filter::everything()
            .is("presence", Presence::Ordinary as i32)
            .equals("state", State::Running.name().as_bytes());
        Ok(self.rows(TABLE, &[TABLE.key, "presence", "state"], process_guid, running, |_| Ok(())).await?.len())
    }

    /// Nothing is written where a row is not what it was when the slot was read.
    pub async fn put_slot(&mut self, before: &Slot, after: &Slot) -> Result<(), StoreError> {
        for presence in Presence::ALL {
            let meant = match (before.at(presence), after.at(presence)) {
                (Some(row), None) => self.delete(TABLE, &row.process_guid, this(row)).await?,
                (Some(then), Some(now)) if then != now => {
                    let values = self.differing(Some(then), now)?;
                    self.update(TABLE, &then.process_guid, this(then), values).await?
                }
                (None, Some(row)) => {
                    let values = self.differing(None, row)?;
                    self.insert(TABLE, &row.process_guid, vec![values], Conflict::Fails).await?;
                    continue;
                }
                (Some(_), Some(_)) | (None, None) => continue,
            };
            if meant == 0 {
                return Err(StoreError::Raced);
            }
        }
        Ok(())
    }

    /// The columns that change.
    fn differing(&self, then: Option<&ActualLrp>, now: &ActualLrp) -> Result<ColumnValues, StoreError> {
        let mut difference = Difference { writer: self, then, now, values: ColumnValues::new() };
        difference.texts()?;
        difference.numbers();
        difference.sealed();
        Ok(difference.values)
    }
}

/// This image of one row, to its unit.
fn this(row: &ActualLrp) -> Filter {
    let row_alone = Filter::everything().is("instance_index", row.index).is("presence", row.presence);
    let in_state = row_alone.equals("state", row.state.clone());
    match row.tag.index {
        // It may be NULL as well.
        0 => in_state,
        index => in_state.is("modification_tag_index", index),
    }
}

fn with_index(record: &Record<'_>) -> Result<(i32, Result<ActualLrp, RecordProblem>), RecordProblem> {
    Ok((record.number("instance_index")?, actual_lrp(record)))
}

type TextOf = fn(&ActualLrp) -> &Text;
type NumberOf = fn(&ActualLrp) -> i64;

/// What is to be written of a row, given what is there.
struct Difference<'a> {
    writer: &'a Writer,
    then: Option<&'a ActualLrp>,
    now: &'a ActualLrp,
    values: ColumnValues,
}

impl<'a> Difference<'a> {
    fn texts(&mut self) -> Result<(), StoreError> {
        let plain: [(&'static str, TextOf); 7] = [
            ("process_guid", |row| &row.process_guid),
            ("domain", |row| &row.domain),
            ("state", |row| &row.state),
            ("instance_guid", |row| &row.instance_guid),
            ("cell_id", |row| &row.cell_id),
            ("modification_tag_epoch", |row| &row.tag.epoch),
            ("availability_zone", |row| &row.availability_zone),
        ];
        for (column, text) in plain {
            if let Some(text) = self.new_value(text) {
                self.values.push((column, self.writer.plain(TABLE, column, text)?));
            }
        }
        let told: [(&'static str, TextOf); 2] =
            [("placement_error", |row| &row.placement_error), ("crash_reason", |row| &row.crash_reason)];
        for (column, text) in told {
            if let Some(text) = self.new_value(text) {
                self.values.push((column, self.writer.excerpt(text)));
            }
        }
        Ok(())
    }

    fn numbers(&mut self) {
        let numbers: [(&'static str, NumberOf); 5] = [
            ("instance_index", |row| row.index.into()),
            ("since", |row| row.since_ns),
            ("modification_tag_index", |row| row.tag.index.into()),
            ("crash_count", |row| row.crash_count.into()),
            ("presence", |row| row.presence.into()),
        ];
        for (column, value) in numbers {
            let now = value(self.now);
            if self.then.is_none_or(|then| value(then) != now) {
                self.values.push((column, number(now)));
            }
        }
        if self.then.is_none_or(|then| then.routable != self.now.routable) {
            self.values.push(("routable", ColumnValue::Flag(self.now.routable)));
        }
    }

    /// Sealed anew only where they change.
    fn sealed(&mut self) {
        if let Some(net_info) = self.new_value(|row| &row.net_info) {
            self.values.push(("net_info", message(net_info)));
        }
        if let Some(hostnames) = self.new_value(|row| &row.internal_routes) {
            self.values.push(("internal_routes", json(tags::hostnames_to_json(hostnames))));
        }
        if let Some(metric_tags) = self.new_value(|row| &row.metric_tags) {
            self.values.push(("metric_tags", json(tags::text_map_to_json(metric_tags))));
        }
    }

    fn new_value<T: PartialEq>(&self, value: fn(&ActualLrp) -> &T) -> Option<&'a T> {
        let now = value(self.now);
        self.then.is_none_or(|then| value(then) != now).then_some(now)
    }
}
