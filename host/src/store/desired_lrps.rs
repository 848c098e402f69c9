//! The table `desired_lrps`. Owns the mapping between desired LRPs and columns.

use bbs_model::convergence::{DesiredInstances, InstanceTarget};
use bbs_model::desired_lrp::{
    Definition, DesiredLrp, DesiredLrpFilter, DesiredLrpUpdate, RoutingInfo, SchedulingInfo,
};
use bbs_model::lrp_update::UpdateTarget;
use bbs_model::routes::{INTERNAL_ROUTER, Routes};
use bbs_model::{Text, tags};
use bbs_proto::models::{DesiredLrpRunInfo, VolumePlacement};

use super::column_values::{ColumnValues, Conflict, check_size, json, message, number};
use super::filter::Filter;
use super::page::{Listed, Range};
use super::record::{Projection, Record, RecordReadError};
use super::{EntityTable, Reader, StoreError, Writer};

pub(super) const TABLE: EntityTable = EntityTable {
    name: "desired_lrps",
    key: "process_guid",
    primary_key: &["process_guid"],
    heavy: &[
        "run_info",
        "routes",
        "metric_tags",
        "annotation",
        "volume_placement",
        "placement_tags",
    ],
    selective: &[],
};

const SCHEDULING: Projection<SchedulingInfo> = TABLE.read(scheduling).columns(&[
    "process_guid",
    "domain",
    "memory_mb",
    "disk_mb",
    "max_pids",
    "rootfs",
    "volume_placement",
    "placement_tags",
    "log_guid",
    "annotation",
    "instances",
    "routes",
    "modification_tag_epoch",
    "modification_tag_index",
    "definition_id",
    "previous_definition_id",
]);

pub(super) const WHOLE: Projection<DesiredLrp> = TABLE.read(whole).columns(&WHOLE_COLUMNS);
const WHOLE_COLUMNS: [&str; 19] = {
    let mut columns = [""; 19];
    [columns[0], columns[1], columns[2]] = ["run_info", "metric_tags", "update_strategy"];
    let mut at = 0;
    while at < SCHEDULING.columns.len() {
        columns[3 + at] = SCHEDULING.columns[at];
        at += 1;
    }
    columns
};

/// The columns that an auction needs: without the annotation and the routes, which are most of a
/// scheduling part.
const AUCTION: Projection<SchedulingInfo> = TABLE.read(auction_info).columns(&[
    "process_guid",
    "domain",
    "memory_mb",
    "disk_mb",
    "max_pids",
    "rootfs",
    "volume_placement",
    "placement_tags",
]);

const ROUTING: Projection<RoutingInfo> = TABLE.read(routing).columns(&[
    "process_guid",
    "domain",
    "log_guid",
    "instances",
    "routes",
    "modification_tag_epoch",
    "modification_tag_index",
    "metric_tags",
    "definition_id",
]);

/// The columns that convergence compares instances with. A sealed column that cannot be read is
/// `None`; the others still count, so that no instance is removed because the record of its desired
/// LRP is damaged.
const DESIRED_INSTANCES: Projection<DesiredInstances> = TABLE.read(desired_instances).columns(&[
    "process_guid",
    "domain",
    "instances",
    "definition_id",
    "routes",
    "metric_tags",
]);
const UPDATE_TARGET: Projection<UpdateTarget> = TABLE.read(update_target).columns(&[
    "process_guid",
    "domain",
    "instances",
    "definition_id",
    "previous_definition_id",
    "update_strategy",
]);
const INSTANCE_TARGET: Projection<InstanceTarget> =
    TABLE
        .read(instance_target)
        .columns(&["process_guid", "domain", "instances", "definition_id"]);

impl Reader {
    /// Lists desired LRPs.
    ///
    /// # Errors
    /// The filter has too many patterns ([`StoreError::TooManyPatterns`]), or the database fails.
    /// Unreadable records are left out.
    pub async fn desired_lrps(
        &mut self,
        filter: &DesiredLrpFilter,
        range: &Range,
    ) -> Result<Listed<DesiredLrp>, StoreError> {
        self.list(&WHOLE, &condition(filter)?, range).await
    }

    /// Lists the scheduling part of desired LRPs; does not decrypt the run information.
    ///
    /// # Errors
    /// The database fails. Unreadable records are left out.
    pub async fn scheduling_infos(
        &mut self,
        filter: &DesiredLrpFilter,
        range: &Range,
    ) -> Result<Listed<SchedulingInfo>, StoreError> {
        self.list(&SCHEDULING, &condition(filter)?, range).await
    }

    /// Lists the routing part of desired LRPs.
    ///
    /// # Errors
    /// The database fails. Unreadable records are left out.
    pub async fn routing_infos(
        &mut self,
        filter: &DesiredLrpFilter,
        range: &Range,
    ) -> Result<Listed<RoutingInfo>, StoreError> {
        self.list(&ROUTING, &condition(filter)?, range).await
    }

    /// The desired LRP of a process guid.
    ///
    /// # Errors
    /// The database fails, or the record is damaged ([`StoreError::Unreadable`]).
    pub async fn desired_lrp(
        &mut self,
        process_guid: &[u8],
    ) -> Result<Option<DesiredLrp>, StoreError> {
        self.get(&WHOLE, process_guid).await
    }

    /// The scheduling part of the desired LRP of a process guid.
    ///
    /// # Errors
    /// The database fails, or the record is damaged ([`StoreError::Unreadable`]).
    pub async fn scheduling_info(
        &mut self,
        process_guid: &[u8],
    ) -> Result<Option<SchedulingInfo>, StoreError> {
        self.get(&SCHEDULING, process_guid).await
    }

    /// The scheduling part of the desired LRP of a process guid, with the fields alone that an
    /// auction needs.
    ///
    /// # Errors
    /// The database fails, or the record is damaged in these columns ([`StoreError::Unreadable`]).
    pub async fn auction_info(
        &mut self,
        process_guid: &[u8],
    ) -> Result<Option<SchedulingInfo>, StoreError> {
        self.get(&AUCTION, process_guid).await
    }

    /// As [`Self::auction_info`], of several process guids.
    ///
    /// # Errors
    /// The database fails. Records that are unreadable in these columns are left out.
    pub async fn auction_infos(
        &mut self,
        process_guids: &[Text],
    ) -> Result<Vec<SchedulingInfo>, StoreError> {
        if process_guids.is_empty() {
            return Ok(Vec::new());
        }
        let named = Filter::everything().one_of(TABLE.key, process_guids);
        Ok(self
            .list(&AUCTION, &named, &Range::default())
            .await?
            .records)
    }

    /// The current definition of a desired LRP and how its instances are replaced.
    ///
    /// # Errors
    /// The database fails, or the record is damaged ([`StoreError::Unreadable`]).
    pub async fn update_target(
        &mut self,
        process_guid: &[u8],
    ) -> Result<Option<UpdateTarget>, StoreError> {
        self.get(&UPDATE_TARGET, process_guid).await
    }

    /// Lists the columns of desired LRPs that convergence needs.
    ///
    /// # Errors
    /// The database fails. Unreadable records are left out.
    pub async fn desired_instances(
        &mut self,
        range: &Range,
    ) -> Result<Listed<DesiredInstances>, StoreError> {
        self.list(&DESIRED_INSTANCES, &Filter::everything(), range)
            .await
    }

    /// As [`Self::desired_instances`], of one process guid.
    ///
    /// # Errors
    /// The database fails, or the record is damaged ([`StoreError::Unreadable`]).
    pub async fn desired_instances_of(
        &mut self,
        process_guid: &[u8],
    ) -> Result<Option<DesiredInstances>, StoreError> {
        self.get(&DESIRED_INSTANCES, process_guid).await
    }
}

impl Writer {
    /// The desired LRP of a process guid, locked until the transaction ends.
    ///
    /// # Errors
    /// As of [`Writer`]; [`StoreError::Unreadable`] for a damaged record.
    pub async fn desired_lrp(
        &mut self,
        process_guid: &[u8],
    ) -> Result<Option<DesiredLrp>, StoreError> {
        self.get(&WHOLE, process_guid).await
    }

    /// The desired number of instances, the domain and the current definition, also of a record
    /// that is otherwise unreadable; locked until the transaction ends.
    ///
    /// # Errors
    /// The database fails, or the record is damaged ([`StoreError::Unreadable`]).
    pub async fn instance_target(
        &mut self,
        process_guid: &[u8],
    ) -> Result<Option<InstanceTarget>, StoreError> {
        self.get(&INSTANCE_TARGET, process_guid).await
    }

    /// Inserts a desired LRP.
    ///
    /// # Errors
    /// As of [`Writer`]; [`StoreError::NotJson`] if a route cannot be stored.
    pub async fn insert_desired_lrp(&mut self, lrp: &DesiredLrp) -> Result<(), StoreError> {
        let info = &lrp.scheduling;
        let mut values = self.definition_columns(TABLE, lrp)?;
        values.extend([
            ("update_strategy", number(lrp.update_strategy)),
            self.plain(TABLE, "process_guid", &info.process_guid)?,
            self.plain(TABLE, "domain", &info.domain)?,
            self.plain(TABLE, "annotation", &info.annotation)?,
            ("instances", number(info.instances)),
            ("routes", json(routes_to_json(info.routes.as_ref())?)),
            self.plain(TABLE, "modification_tag_epoch", &info.tag.epoch)?,
            ("modification_tag_index", number(info.tag.index)),
        ]);
        self.insert(TABLE, &info.process_guid, vec![values], Conflict::Fails)
            .await
    }

    /// Checks that a definition which is not stored yet is not too large to become the current one.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`], or the error of a text that its column cannot hold.
    pub fn check_new_definition(&self, definition: &Definition) -> Result<(), StoreError> {
        let lrp = DesiredLrp::default().with_definition(definition.clone());
        check_size(TABLE, &self.definition_columns(TABLE, &lrp)?)
    }

    /// Writes the current definition of a desired LRP, the id of the previous one, and the
    /// modification tag. The definition may be one that is stored already, so its size is not
    /// checked.
    pub async fn switch_definition(&mut self, lrp: &DesiredLrp) -> Result<(), StoreError> {
        let info = &lrp.scheduling;
        let mut values = self.definition_columns(TABLE, lrp)?;
        values.extend([
            self.plain(
                TABLE,
                "previous_definition_id",
                &info.previous_definition_id,
            )?,
            ("modification_tag_index", number(info.tag.index)),
        ]);
        self.update_unmeasured(TABLE, &info.process_guid, Filter::everything(), values)
            .await
            .map(drop)
    }

    /// Ends the update of a desired LRP: it has no previous definition any more.
    pub async fn forget_previous_definition(
        &mut self,
        process_guid: &[u8],
        tag_index: u32,
    ) -> Result<(), StoreError> {
        let values = vec![
            self.plain(TABLE, "previous_definition_id", b"")?,
            ("modification_tag_index", number(tag_index)),
        ];
        self.update(TABLE, process_guid, Filter::everything(), values)
            .await
            .map(drop)
    }

    /// The current definition of a desired LRP and how its instances are replaced, also of a record
    /// that is otherwise unreadable; locked until the transaction ends.
    pub async fn update_target(
        &mut self,
        process_guid: &[u8],
    ) -> Result<Option<UpdateTarget>, StoreError> {
        self.get(&UPDATE_TARGET, process_guid).await
    }

    /// Writes the fields of the update, and `run_info` if given.
    ///
    /// # Errors
    /// As of [`Writer`]; [`StoreError::NotJson`] if a route cannot be stored.
    pub async fn update_desired_lrp(
        &mut self,
        process_guid: &[u8],
        tag_index: u32,
        update: &DesiredLrpUpdate,
        run_info: Option<&DesiredLrpRunInfo>,
    ) -> Result<(), StoreError> {
        let mut values: ColumnValues = vec![("modification_tag_index", number(tag_index))];
        if let Some(instances) = update.instances {
            values.push(("instances", number(instances)));
        }
        if let Some(annotation) = &update.annotation {
            values.push(self.plain(TABLE, "annotation", annotation)?);
        }
        if let Some(routes) = &update.routes {
            values.push(("routes", json(routes_to_json(Some(routes))?)));
        }
        if let Some(metric_tags) = &update.metric_tags {
            values.push(("metric_tags", json(tags::metric_tags_to_json(metric_tags))));
        }
        if let Some(run_info) = run_info {
            values.push(("run_info", message(run_info)));
        }
        self.update(TABLE, process_guid, Filter::everything(), values)
            .await
            .map(drop)
    }

    /// Deletes a desired LRP and returns it, or the error if it was unreadable; none if there was
    /// none.
    ///
    /// # Errors
    /// As of [`Writer`], except for an unreadable record.
    pub async fn take_desired_lrp(
        &mut self,
        process_guid: &[u8],
    ) -> Result<Option<Result<DesiredLrp, StoreError>>, StoreError> {
        self.take(&WHOLE, process_guid).await
    }
}

fn condition(filter: &DesiredLrpFilter) -> Result<Filter, StoreError> {
    Filter::everything()
        .equals_if_any("domain", &filter.domain)
        .one_of(TABLE.key, &filter.process_guids)
        .like_one_of(TABLE.key, &filter.app_guids)
}

fn routes_to_json(routes: Option<&Routes>) -> Result<Vec<u8>, StoreError> {
    Routes::to_json(routes).map_err(|source| StoreError::NotJson {
        table: TABLE.name,
        column: "routes",
        source,
    })
}

fn whole(record: &Record<'_>) -> Result<DesiredLrp, RecordReadError> {
    Ok(DesiredLrp {
        scheduling: scheduling(record)?,
        metric_tags: record.optional_json("metric_tags", tags::metric_tags_from_json)?,
        update_strategy: record.number("update_strategy")?,
        run_info: record.message("run_info")?,
    })
}

fn scheduling(record: &Record<'_>) -> Result<SchedulingInfo, RecordReadError> {
    let auctioned = auction_info(record)?;
    Ok(SchedulingInfo {
        log_guid: record.text("log_guid")?,
        annotation: record.text("annotation")?,
        instances: record.number("instances")?,
        routes: record.json("routes", Routes::from_json)?,
        tag: record.tag()?,
        definition_id: record.text("definition_id")?,
        previous_definition_id: record.text("previous_definition_id")?,
        ..auctioned
    })
}

fn auction_info(record: &Record<'_>) -> Result<SchedulingInfo, RecordReadError> {
    Ok(SchedulingInfo {
        process_guid: record.text("process_guid")?,
        domain: record.text("domain")?,
        memory_mb: record.number("memory_mb")?,
        disk_mb: record.number("disk_mb")?,
        max_pids: record.number("max_pids")?,
        root_fs: record.text("rootfs")?,
        volume_drivers: record
            .message::<VolumePlacement>("volume_placement")?
            .driver_names,
        placement_tags: record.plain_json("placement_tags", tags::texts_from_json)?,
        ..SchedulingInfo::default()
    })
}

fn routing(record: &Record<'_>) -> Result<RoutingInfo, RecordReadError> {
    Ok(RoutingInfo {
        process_guid: record.text("process_guid")?,
        domain: record.text("domain")?,
        log_guid: record.text("log_guid")?,
        instances: record.number("instances")?,
        routes: record.json("routes", Routes::from_json)?,
        tag: record.tag()?,
        metric_tags: record.optional_json("metric_tags", tags::metric_tags_from_json)?,
        definition_id: record.text("definition_id")?,
    })
}

fn instance_target(record: &Record<'_>) -> Result<InstanceTarget, RecordReadError> {
    Ok(InstanceTarget {
        process_guid: record.text("process_guid")?,
        domain: record.text("domain")?,
        instances: record.number("instances")?,
        definition_id: record.text("definition_id")?,
    })
}

fn update_target(record: &Record<'_>) -> Result<UpdateTarget, RecordReadError> {
    Ok(UpdateTarget {
        domain: record.text("domain")?,
        instances: record.number("instances")?,
        definition_id: record.text("definition_id")?,
        previous_definition_id: record.text("previous_definition_id")?,
        update_strategy: record.number("update_strategy")?,
    })
}

fn desired_instances(record: &Record<'_>) -> Result<DesiredInstances, RecordReadError> {
    let routes: Option<Option<Routes>> = record.json("routes", Routes::from_json).ok();
    let hostnames = routes.and_then(|routes| {
        match routes
            .as_ref()
            .and_then(|routes| routes.of(INTERNAL_ROUTER))
        {
            None => Some(Vec::new()),
            Some(value) => tags::hostnames_from_json(value).ok(),
        }
    });
    let metric_tags = record
        .optional_json("metric_tags", tags::metric_tags_from_json)
        .ok();
    Ok(DesiredInstances {
        target: instance_target(record)?,
        hostnames,
        metric_tags,
    })
}
