//! The table `actual_lrps`: the instances of desired LRPs, up to three rows a slot.

use std::ops::Range as Indices;

use bbs_proto::models::ActualLrpNetInfo;
use sea_query::{Cond, Expr, ExprTrait, OnConflict, Query};

use super::reader::{self, Key, Range, Reader, Table};
use super::record::{Record, RecordProblem};
use super::{StoreError, Writer};
use crate::model::actual_lrp::{ActualLrp, ActualLrpFilter, CRASHED, ORDINARY, UNCLAIMED};
use crate::model::{ModificationTag, tags};

const TABLE: Table =
    Table { name: "actual_lrps", key: "process_guid", heavy: &["net_info", "internal_routes", "metric_tags"] };

const COLUMNS: [&str; 18] = [
    "process_guid",
    "instance_index",
    "domain",
    "state",
    "instance_guid",
    "cell_id",
    "placement_error",
    "since",
    "net_info",
    "modification_tag_epoch",
    "modification_tag_index",
    "crash_count",
    "crash_reason",
    "presence",
    "internal_routes",
    "metric_tags",
    "routable",
    "availability_zone",
];

impl Reader {
    pub async fn actual_lrps_page_end(
        &mut self,
        filter: &ActualLrpFilter,
        after: Option<&Key>,
        units: u32,
    ) -> Result<Option<Key>, StoreError> {
        self.page_end(TABLE, condition(filter), after, units).await
    }

    pub async fn actual_lrps(&mut self, filter: &ActualLrpFilter, range: &Range) -> Result<Vec<ActualLrp>, StoreError> {
        let select = reader::scan(TABLE, &COLUMNS, condition(filter), range);
        let rows = self.fetch(select, "list actual LRPs").await?;
        let store = &self.store;
        store.readable(rows.iter().map(|row| Record::read(row, store, TABLE.name, TABLE.key, actual_lrp)))
    }
}

impl Writer {
    /// Instances that wait for a cell. A slot that is taken is left as it is.
    pub async fn insert_unclaimed(
        &mut self,
        process_guid: &[u8],
        domain: &[u8],
        indices: Indices<i32>,
    ) -> Result<(), StoreError> {
        let mut insert = Query::insert();
        let now_ns = self.store.now_ns();
        let process_guid = self.store.plain(TABLE.name, "process_guid", process_guid)?;
        let domain = self.store.plain(TABLE.name, "domain", domain)?;
        for index in indices {
            let epoch = String::from_utf8(ModificationTag::begin().epoch).expect("an epoch is a UUID");
            let mut columns = vec![
                "process_guid",
                "instance_index",
                "domain",
                "state",
                "since",
                "net_info",
                "modification_tag_epoch",
                "modification_tag_index",
                "presence",
                "internal_routes",
                "metric_tags",
                "routable",
            ];
            let mut values: Vec<Expr> = vec![
                process_guid.clone().into(),
                index.into(),
                domain.clone().into(),
                UNCLAIMED.into(),
                now_ns.into(),
                self.store.seal_message(&ActualLrpNetInfo::default()).into(),
                epoch.into(),
                0.into(),
                ORDINARY.into(),
                self.store.seal_json(b"[]").into(),
                self.store.seal_json(b"{}").into(),
                false.into(),
            ];
            self.stamp(TABLE.name, &mut columns, &mut values);
            insert.into_table(TABLE.name).columns(columns).values_panic(values);
        }
        insert.on_conflict(OnConflict::new().do_nothing().to_owned());
        self.insert(&insert, "insert actual LRPs").await.map(|_| ())
    }

    /// Deletes the instances from an index on that run nowhere.
    pub async fn delete_waiting(&mut self, process_guid: &[u8], from_index: i32) -> Result<(), StoreError> {
        let delete = Query::delete()
            .from_table(TABLE.name)
            .cond_where(
                Cond::all()
                    .add(Expr::col(TABLE.key).eq(reader::text(process_guid)))
                    .add(Expr::col("instance_index").gte(from_index))
                    .add(Expr::col("presence").eq(ORDINARY))
                    .add(Expr::col("state").is_in([UNCLAIMED, CRASHED])),
            )
            .to_owned();
        self.delete(&delete, "delete actual LRPs").await.map(|_| ())
    }
}

fn condition(filter: &ActualLrpFilter) -> Cond {
    Cond::all()
        .add_option(reader::equals("domain", &filter.domain))
        .add_option(reader::equals("cell_id", &filter.cell_id))
        .add_option(reader::one_of(TABLE.key, &filter.process_guids))
        .add_option(filter.index.map(|index| Expr::col("instance_index").eq(index)))
}

fn actual_lrp(record: &Record<'_>) -> Result<ActualLrp, RecordProblem> {
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
    })
}
