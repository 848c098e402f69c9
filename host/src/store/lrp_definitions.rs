//! The tables `bbs_lrp_definitions`, the definitions of desired LRPs that are not the current one,
//! and `bbs_lrp_updates`, the updates under way. A stored layout of an older version has neither:
//! then there are no such records, and none can be written.

use std::collections::BTreeMap;

use bbs_model::desired_lrp::{ArchivedDefinition, Definition, DesiredLrp};
use bbs_model::lrp_update::UpdateRecord;
use bbs_model::slot::DefinitionCount;
use bbs_model::{Text, tags};
use bbs_proto::models::VolumePlacement;

use super::column_values::{ColumnValue, ColumnValues, Conflict, json, message, number};
use super::filter::Filter;
use super::page::{Listed, Range};
use super::record::{Record, RecordReadError};
use super::{EntityTable, Reader, StoreError, Writer};
use crate::store::record::Projection;

const DEFINITIONS: EntityTable = EntityTable {
    name: "bbs_lrp_definitions",
    key: "process_guid",
    primary_key: &["process_guid", "definition_id"],
    heavy: &["run_info", "metric_tags"],
    selective: &[],
};

const UPDATES: EntityTable = EntityTable {
    name: "bbs_lrp_updates",
    key: "process_guid",
    primary_key: &["process_guid"],
    heavy: &[],
    selective: &[],
};

/// The columns that hold text.
const TEXTS: [&str; 8] = [
    "process_guid",
    "definition_id",
    "log_guid",
    "rootfs",
    "volume_placement",
    "placement_tags",
    "metric_tags",
    "run_info",
];

/// The time at which the previous definition was last active: it still is.
const IS_PREVIOUS: i64 = 0;

const WHOLE: Projection<ArchivedDefinition> = DEFINITIONS.read(archived).columns(&[
    "process_guid",
    "definition_id",
    "log_guid",
    "memory_mb",
    "disk_mb",
    "max_pids",
    "rootfs",
    "volume_placement",
    "placement_tags",
    "metric_tags",
    "run_info",
    "last_active_at",
]);

/// The scheduling part, without the run information.
const RESOURCES: Projection<(Text, Definition)> = DEFINITIONS
    .read(|record| Ok((record.text("process_guid")?, resources(record)?)))
    .columns(&[
        "process_guid",
        "definition_id",
        "log_guid",
        "memory_mb",
        "disk_mb",
        "max_pids",
        "rootfs",
        "volume_placement",
        "placement_tags",
        "last_active_at",
    ]);

const AGES: Projection<DefinitionAge> =
    DEFINITIONS
        .read(age)
        .columns(&["process_guid", "definition_id", "last_active_at"]);

const UPDATE: Projection<UpdateRecord> =
    UPDATES
        .read(update)
        .columns(&["process_guid", "started_at", "cancelled"]);

/// When a definition was last active.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinitionAge {
    /// The process guid of the desired LRP.
    pub process_guid: Text,
    /// The id of the definition.
    pub id: Text,
    /// In nanoseconds since 1970; `None` while it is the previous one.
    pub last_active_ns: Option<i64>,
}

/// Definitions other than the current one are stored, also while an update replaces the previous
/// one.
fn count(others: &[Result<DefinitionAge, StoreError>]) -> DefinitionCount {
    if others.is_empty() {
        DefinitionCount::One
    } else {
        DefinitionCount::Several
    }
}

impl Reader {
    /// The definitions of a process guid that are not the current one.
    ///
    /// # Errors
    /// The database fails, or a record is damaged ([`StoreError::Unreadable`]).
    pub async fn definitions(
        &mut self,
        process_guid: &[u8],
    ) -> Result<Vec<ArchivedDefinition>, StoreError> {
        self.rows(&WHOLE, process_guid, Filter::everything())
            .await?
            .into_iter()
            .collect()
    }

    /// The resources of the previous definitions of some process guids; does not decrypt the run
    /// information.
    ///
    /// # Errors
    /// The database fails. Unreadable records are left out.
    pub async fn previous_definitions(
        &mut self,
        process_guids: &[Text],
    ) -> Result<BTreeMap<Text, Definition>, StoreError> {
        if process_guids.is_empty() {
            return Ok(BTreeMap::new());
        }
        let previous = Filter::everything()
            .one_of(DEFINITIONS.key, process_guids)
            .is("last_active_at", IS_PREVIOUS);
        Ok(self
            .list(&RESOURCES, &previous, &Range::default())
            .await?
            .records
            .into_iter()
            .collect())
    }

    /// How many definitions the desired LRP of a process guid has had, as far as they are kept.
    pub async fn definitions_of(
        &mut self,
        process_guid: &[u8],
    ) -> Result<DefinitionCount, StoreError> {
        Ok(count(
            &self.rows(&AGES, process_guid, Filter::everything()).await?,
        ))
    }

    /// The ages of the definitions in a range.
    ///
    /// # Errors
    /// The database fails. Unreadable records are left out.
    pub async fn definition_ages(
        &mut self,
        range: &Range,
    ) -> Result<Listed<DefinitionAge>, StoreError> {
        self.list(&AGES, &Filter::everything(), range).await
    }

    /// The updates under way in a range.
    ///
    /// # Errors
    /// The database fails. Unreadable records are left out.
    pub async fn updates(&mut self, range: &Range) -> Result<Listed<UpdateRecord>, StoreError> {
        self.list(&UPDATE, &Filter::everything(), range).await
    }

    /// The update of a process guid.
    ///
    /// # Errors
    /// The database fails, or the record is damaged ([`StoreError::Unreadable`]).
    pub async fn lrp_update(
        &mut self,
        process_guid: &[u8],
    ) -> Result<Option<UpdateRecord>, StoreError> {
        self.get(&UPDATE, process_guid).await
    }
}

impl Writer {
    /// A definition that is not the current one.
    ///
    /// # Errors
    /// As of [`Writer`]; [`StoreError::Unreadable`] for a damaged record.
    pub async fn definition(
        &mut self,
        process_guid: &[u8],
        id: &[u8],
    ) -> Result<Option<ArchivedDefinition>, StoreError> {
        let filter = Filter::everything().equals("definition_id", id);
        self.rows(&WHOLE, process_guid, filter)
            .await?
            .into_iter()
            .next()
            .transpose()
    }

    /// As [`Reader::definitions_of`].
    pub async fn definitions_of(
        &mut self,
        process_guid: &[u8],
    ) -> Result<DefinitionCount, StoreError> {
        Ok(count(
            &self.rows(&AGES, process_guid, Filter::everything()).await?,
        ))
    }

    /// The ages of the definitions of a process guid.
    ///
    /// # Errors
    /// As of [`Writer`]. Unreadable records are left out.
    pub async fn definition_ages(
        &mut self,
        process_guid: &[u8],
    ) -> Result<Vec<DefinitionAge>, StoreError> {
        let ages = match self.rows(&AGES, process_guid, Filter::everything()).await {
            // A lens reads all of them or none.
            Err(damage @ StoreError::Unreadable { .. }) => vec![Err(damage)],
            ages => ages?,
        };
        self.session.store.readable(ages.into_iter())
    }

    /// The bytes of text of all definitions of a process guid that are not the current one, as
    /// stored.
    ///
    /// # Errors
    /// As of [`Writer`]; [`StoreError::Unreadable`] if a lens cannot transform them.
    pub async fn definition_bytes(&mut self, process_guid: &[u8]) -> Result<u64, StoreError> {
        self.unit_bytes(DEFINITIONS, process_guid, &TEXTS).await
    }

    /// Stores a definition that is or was the current one, in place of one of the same id.
    ///
    /// # Errors
    /// As of [`Writer`]; [`StoreError::NotHeld`] if the stored layout has no place for definitions.
    pub async fn put_definition(
        &mut self,
        process_guid: &[u8],
        definition: &Definition,
        last_active_ns: Option<i64>,
    ) -> Result<(), StoreError> {
        self.access.require_definitions(DEFINITIONS)?;
        self.delete_definition(process_guid, &definition.id).await?;
        let lrp = DesiredLrp::default().with_definition(definition.clone());
        let mut values = self.definition_columns(DEFINITIONS, &lrp)?;
        values.extend([
            self.plain(DEFINITIONS, "process_guid", process_guid)?,
            ("created_at", number(definition.run_info.created_at)),
            (
                "last_active_at",
                number(last_active_ns.unwrap_or(IS_PREVIOUS)),
            ),
        ]);
        self.insert_unmeasured(DEFINITIONS, process_guid, vec![values], Conflict::Fails)
            .await
    }

    /// The columns of the current definition of `lrp` in `table`, which has the current or the other
    /// definitions. Takes the LRP, since a [`Definition`] would have to be copied out of each new
    /// one.
    pub(super) fn definition_columns(
        &self,
        table: EntityTable,
        lrp: &DesiredLrp,
    ) -> Result<ColumnValues, StoreError> {
        let info = &lrp.scheduling;
        let placement = VolumePlacement {
            driver_names: info.volume_drivers.clone(),
        };
        let placement_tags = tags::texts_to_json(&info.placement_tags);
        Ok(vec![
            ("run_info", message(&lrp.run_info)),
            (
                "metric_tags",
                json(tags::metric_tags_to_json(&lrp.metric_tags)),
            ),
            self.plain(table, "log_guid", &info.log_guid)?,
            ("memory_mb", number(info.memory_mb)),
            ("disk_mb", number(info.disk_mb)),
            ("max_pids", number(info.max_pids)),
            self.plain(table, "rootfs", &info.root_fs)?,
            ("volume_placement", message(&placement)),
            self.plain(table, "placement_tags", &placement_tags)?,
            self.plain(table, "definition_id", &info.definition_id)?,
        ])
    }

    /// Sets when a definition was last active.
    pub async fn archive_definition(
        &mut self,
        process_guid: &[u8],
        id: &[u8],
        last_active_ns: i64,
    ) -> Result<(), StoreError> {
        let values = vec![("last_active_at", number(last_active_ns))];
        let filter = Filter::everything().equals("definition_id", id);
        self.update(DEFINITIONS, process_guid, filter, values)
            .await
            .map(drop)
    }

    /// Deletes a definition.
    pub async fn delete_definition(
        &mut self,
        process_guid: &[u8],
        id: &[u8],
    ) -> Result<(), StoreError> {
        let filter = Filter::everything().equals("definition_id", id);
        self.delete(DEFINITIONS, process_guid, filter)
            .await
            .map(drop)
    }

    /// Deletes all definitions of a process guid that are not the current one.
    pub async fn delete_definitions(&mut self, process_guid: &[u8]) -> Result<(), StoreError> {
        self.delete(DEFINITIONS, process_guid, Filter::everything())
            .await
            .map(drop)
    }

    /// The update of a process guid.
    pub async fn lrp_update(
        &mut self,
        process_guid: &[u8],
    ) -> Result<Option<UpdateRecord>, StoreError> {
        self.get(&UPDATE, process_guid).await
    }

    /// Stores the update of a process guid, in place of an earlier one.
    ///
    /// # Errors
    /// As of [`Writer`]; [`StoreError::NotHeld`] if the stored layout has no place for updates.
    pub async fn put_update(&mut self, update: &UpdateRecord) -> Result<(), StoreError> {
        self.access.require_definitions(UPDATES)?;
        self.end_update(&update.process_guid).await?;
        let values = vec![
            self.plain(UPDATES, "process_guid", &update.process_guid)?,
            ("started_at", number(update.started_at_ns)),
            ("cancelled", ColumnValue::Flag(update.is_cancelled)),
        ];
        self.insert(UPDATES, &update.process_guid, vec![values], Conflict::Fails)
            .await
    }

    /// Deletes the update of a process guid.
    pub async fn end_update(&mut self, process_guid: &[u8]) -> Result<(), StoreError> {
        self.delete(UPDATES, process_guid, Filter::everything())
            .await
            .map(drop)
    }
}

fn archived(record: &Record<'_>) -> Result<ArchivedDefinition, RecordReadError> {
    let definition = Definition {
        metric_tags: record.optional_json("metric_tags", tags::metric_tags_from_json)?,
        run_info: record.message("run_info")?,
        ..resources(record)?
    };
    Ok(ArchivedDefinition {
        definition,
        last_active_ns: last_active_ns(record)?,
    })
}

fn last_active_ns(record: &Record<'_>) -> Result<Option<i64>, RecordReadError> {
    Ok(Some(record.long("last_active_at")?).filter(|time| *time != IS_PREVIOUS))
}

fn resources(record: &Record<'_>) -> Result<Definition, RecordReadError> {
    let placement: VolumePlacement = record.message("volume_placement")?;
    Ok(Definition {
        id: record.text("definition_id")?,
        log_guid: record.text("log_guid")?,
        memory_mb: record.number("memory_mb")?,
        disk_mb: record.number("disk_mb")?,
        max_pids: record.number("max_pids")?,
        root_fs: record.text("rootfs")?,
        volume_drivers: placement.driver_names,
        placement_tags: record.plain_json("placement_tags", tags::texts_from_json)?,
        ..Definition::default()
    })
}

fn age(record: &Record<'_>) -> Result<DefinitionAge, RecordReadError> {
    Ok(DefinitionAge {
        process_guid: record.text("process_guid")?,
        id: record.text("definition_id")?,
        last_active_ns: last_active_ns(record)?,
    })
}

fn update(record: &Record<'_>) -> Result<UpdateRecord, RecordReadError> {
    Ok(UpdateRecord {
        process_guid: record.text("process_guid")?,
        started_at_ns: record.long("started_at")?,
        is_cancelled: record.flag("cancelled")?,
    })
}
