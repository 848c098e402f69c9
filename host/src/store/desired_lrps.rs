//! The table `desired_lrps`: the one place that knows which part of a desired LRP rests where.

use bbs_proto::models::{DesiredLrpRunInfo, VolumePlacement};
use sea_query::{Cond, Expr, ExprTrait, Query};

use super::reader::{self, Key, Range, Reader, Table};
use super::record::{Record, RecordProblem};
use super::{Store, StoreError, Writer};
use crate::database::Row;
use crate::model::desired_lrp::{DesiredLrp, DesiredLrpFilter, DesiredLrpUpdate, RoutingInfo, SchedulingInfo};
use crate::model::routes::Routes;
use crate::model::{Text, tags};

const TABLE: Table =
    Table { name: "desired_lrps", key: "process_guid", heavy: &["run_info", "routes", "metric_tags", "annotation"] };

const SCHEDULING: [&str; 14] = [
    "process_guid",
    "domain",
    "log_guid",
    "annotation",
    "instances",
    "memory_mb",
    "disk_mb",
    "max_pids",
    "rootfs",
    "routes",
    "modification_tag_epoch",
    "modification_tag_index",
    "volume_placement",
    "placement_tags",
];

const WHOLE: [&str; 17] = {
    let mut columns =
        ["run_info", "metric_tags", "update_strategy", "", "", "", "", "", "", "", "", "", "", "", "", "", ""];
    let mut at = 0;
    while at < SCHEDULING.len() {
        columns[3 + at] = SCHEDULING[at];
        at += 1;
    }
    columns
};

const ROUTING: [&str; 8] = [
    "process_guid",
    "domain",
    "log_guid",
    "instances",
    "routes",
    "modification_tag_epoch",
    "modification_tag_index",
    "metric_tags",
];

type Read<T> = fn(&Record<'_>) -> Result<T, RecordProblem>;

impl Reader {
    pub async fn desired_lrps_page_end(
        &mut self,
        filter: &DesiredLrpFilter,
        after: Option<&Key>,
        units: u32,
    ) -> Result<Option<Key>, StoreError> {
        self.page_end(TABLE, condition(filter), after, units).await
    }

    pub async fn desired_lrps(
        &mut self,
        filter: &DesiredLrpFilter,
        range: &Range,
    ) -> Result<Vec<DesiredLrp>, StoreError> {
        self.desired(&WHOLE, condition(filter), range, whole).await
    }

    pub async fn scheduling_infos(
        &mut self,
        filter: &DesiredLrpFilter,
        range: &Range,
    ) -> Result<Vec<SchedulingInfo>, StoreError> {
        self.desired(&SCHEDULING, condition(filter), range, scheduling).await
    }

    pub async fn routing_infos(
        &mut self,
        filter: &DesiredLrpFilter,
        range: &Range,
    ) -> Result<Vec<RoutingInfo>, StoreError> {
        self.desired(&ROUTING, condition(filter), range, routing).await
    }

    pub async fn desired_lrp(&mut self, process_guid: &[u8]) -> Result<Option<DesiredLrp>, StoreError> {
        self.one_desired(&WHOLE, process_guid, whole).await
    }

    pub async fn scheduling_info(&mut self, process_guid: &[u8]) -> Result<Option<SchedulingInfo>, StoreError> {
        self.one_desired(&SCHEDULING, process_guid, scheduling).await
    }

    async fn desired<T>(
        &mut self,
        columns: &[&'static str],
        condition: Cond,
        range: &Range,
        read: Read<T>,
    ) -> Result<Vec<T>, StoreError> {
        let rows = self.fetch(reader::scan(TABLE, columns, condition, range), "list desired LRPs").await?;
        let store = &self.store;
        store.readable(rows.iter().map(|row| read_row(store, row, read)))
    }

    async fn one_desired<T>(
        &mut self,
        columns: &[&'static str],
        process_guid: &[u8],
        read: Read<T>,
    ) -> Result<Option<T>, StoreError> {
        let select = reader::scan(TABLE, columns, is(process_guid), &Range::default());
        let row = self.fetch(select, "get a desired LRP").await?.pop();
        row.map(|row| read_row(&self.store, &row, read)).transpose()
    }
}

impl Writer {
    pub async fn desired_lrp(&mut self, process_guid: &[u8]) -> Result<Option<DesiredLrp>, StoreError> {
        let select = reader::scan(TABLE, &WHOLE, is(process_guid), &Range::default());
        let row = reader::fetch(&mut self.tx, select, "get a desired LRP to change it").await?.pop();
        row.map(|row| read_row(&self.store, &row, whole)).transpose()
    }

    /// How many instances are desired, whether or not the rest of the record can be read.
    pub async fn desired_instances(&mut self, process_guid: &[u8]) -> Result<Option<i32>, StoreError> {
        let select = reader::scan(TABLE, &[TABLE.key, "instances"], is(process_guid), &Range::default());
        let row = reader::fetch(&mut self.tx, select, "count the desired instances").await?.pop();
        row.map(|row| read_row(&self.store, &row, |record| record.number("instances"))).transpose()
    }

    pub async fn insert_desired_lrp(&mut self, lrp: &DesiredLrp) -> Result<(), StoreError> {
        let info = &lrp.scheduling;
        let placement = VolumePlacement { driver_names: info.volume_drivers.clone() };
        let mut columns = WHOLE.to_vec();
        let mut values: Vec<Expr> = vec![
            self.store.seal_message(&lrp.run_info).into(),
            self.store.seal_json(&tags::metric_tags_to_json(&lrp.metric_tags)).into(),
            lrp.update_strategy.into(),
            self.plain("process_guid", &info.process_guid)?,
            self.plain("domain", &info.domain)?,
            self.plain("log_guid", &info.log_guid)?,
            self.plain("annotation", &info.annotation)?,
            info.instances.into(),
            info.memory_mb.into(),
            info.disk_mb.into(),
            info.max_pids.into(),
            self.plain("rootfs", &info.root_fs)?,
            self.store.seal_json(&routes_at_rest(info.routes.as_ref())?).into(),
            self.plain("modification_tag_epoch", &info.tag.epoch)?,
            info.tag.index.into(),
            self.store.seal_message(&placement).into(),
            self.plain("placement_tags", &tags::texts_to_json(&info.placement_tags))?,
        ];
        self.stamp(TABLE.name, &mut columns, &mut values);
        let insert = Query::insert().into_table(TABLE.name).columns(columns).values_panic(values).to_owned();
        self.insert(&insert, "insert a desired LRP").await.map(|_| ())
    }

    /// Writes what the update names, and `run_info` where it changed with it.
    pub async fn update_desired_lrp(
        &mut self,
        process_guid: &[u8],
        tag_index: u32,
        update: &DesiredLrpUpdate,
        run_info: Option<&DesiredLrpRunInfo>,
    ) -> Result<(), StoreError> {
        let mut statement = Query::update();
        statement.table(TABLE.name).cond_where(is(process_guid)).value("modification_tag_index", tag_index);
        if let Some(instances) = update.instances {
            statement.value("instances", instances);
        }
        if let Some(annotation) = &update.annotation {
            statement.value("annotation", self.plain("annotation", annotation)?);
        }
        if let Some(routes) = &update.routes {
            statement.value("routes", self.store.seal_json(&routes_at_rest(Some(routes))?));
        }
        if let Some(metric_tags) = &update.metric_tags {
            statement.value("metric_tags", self.store.seal_json(&tags::metric_tags_to_json(metric_tags)));
        }
        if let Some(run_info) = run_info {
            statement.value("run_info", self.store.seal_message(run_info));
        }
        self.update(&statement, "update a desired LRP").await.map(|_| ())
    }

    /// Whether there was one.
    pub async fn delete_desired_lrp(&mut self, process_guid: &[u8]) -> Result<bool, StoreError> {
        let delete = Query::delete().from_table(TABLE.name).cond_where(is(process_guid)).to_owned();
        Ok(self.delete(&delete, "delete a desired LRP").await? > 0)
    }

    fn plain(&self, column: &'static str, text: &[u8]) -> Result<Expr, StoreError> {
        self.store.plain(TABLE.name, column, text).map(Expr::from)
    }
}

fn is(process_guid: &[u8]) -> Cond {
    Cond::all().add(Expr::col(TABLE.key).eq(reader::text(process_guid)))
}

fn condition(filter: &DesiredLrpFilter) -> Cond {
    Cond::all()
        .add_option(reader::equals("domain", &filter.domain))
        .add_option(reader::one_of(TABLE.key, &filter.process_guids))
        .add_option(reader::begins_with_one_of(TABLE.key, &filter.app_guids))
}

fn routes_at_rest(routes: Option<&Routes>) -> Result<Vec<u8>, StoreError> {
    Routes::to_json(routes).map_err(|source| StoreError::NotJson { table: TABLE.name, column: "routes", source })
}

fn read_row<T>(store: &Store, row: &Row, read: Read<T>) -> Result<T, StoreError> {
    Record::read(row, store, TABLE.name, TABLE.key, read)
}

fn whole(record: &Record<'_>) -> Result<DesiredLrp, RecordProblem> {
    Ok(DesiredLrp {
        scheduling: scheduling(record)?,
        metric_tags: record.optional_json("metric_tags", tags::metric_tags_from_json)?,
        update_strategy: record.number("update_strategy")?,
        run_info: record.message("run_info")?,
    })
}

fn scheduling(record: &Record<'_>) -> Result<SchedulingInfo, RecordProblem> {
    let placement: VolumePlacement = record.message("volume_placement")?;
    let placement_tags: Vec<Text> = record.plain_json("placement_tags", tags::texts_from_json)?;
    Ok(SchedulingInfo {
        process_guid: record.text("process_guid")?,
        domain: record.text("domain")?,
        log_guid: record.text("log_guid")?,
        annotation: record.text("annotation")?,
        instances: record.number("instances")?,
        memory_mb: record.number("memory_mb")?,
        disk_mb: record.number("disk_mb")?,
        max_pids: record.number("max_pids")?,
        root_fs: record.text("rootfs")?,
        routes: record.json("routes", Routes::from_json)?,
        tag: record.tag()?,
        volume_drivers: placement.driver_names,
        placement_tags,
    })
}

fn routing(record: &Record<'_>) -> Result<RoutingInfo, RecordProblem> {
    Ok(RoutingInfo {
        process_guid: record.text("process_guid")?,
        domain: record.text("domain")?,
        log_guid: record.text("log_guid")?,
        instances: record.number("instances")?,
        routes: record.json("routes", Routes::from_json)?,
        tag: record.tag()?,
        metric_tags: record.optional_json("metric_tags", tags::metric_tags_from_json)?,
    })
}
