//! Access through a lens, for data of another version than the handlers': newer, because modules
//! were shipped before the host, or older, because it is pinned. Owns the groups of tables whose
//! units are transformed together, and their transformation between the stored layout and the
//! native one, which the handlers are compiled for.
//!
//! If the lens cannot transform a unit, all its records count as unreadable.

mod keys;
mod pin;
mod read;
mod transformations;
mod write;

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

pub(super) use write::LoadedUnits;

use bbs_database::{Transaction, refused_characters};
use bbs_encryption::Keyring;
use bbs_lens::layout::history::{LayoutHistory, Way};
use bbs_lens::layout::manifest::DataVersion;
use bbs_lens::layout::schema::{Layout, Table};
use bbs_lens::transform::Transform;
use bbs_lens::{Arguments, ComposeError, Lens, Provenance, Residue, ResidueEntry};
use bbs_units::{
    Passage, Place, RecordVersions, RowLock, RowsError, UnitBatch, UnitKey, WantedColumns, residue,
};

use self::transformations::{TransformPermit, Transformations};
use super::{NATIVE, StoreError, TABLES};

/// The lenses in both directions between the stored layout and the native one.
pub struct Lenses {
    version: DataVersion,
    is_pinned: bool,
    /// From the stored layout to the native one.
    to_native: Lens,
    /// From the native layout to the stored one.
    to_stored: Lens,
    arguments: Arguments,
    place: Place,
    table_groups: Vec<MergedTableGroup>,
    transformations: Transformations,
}

/// A table group of either lens, merged with all that share a table with it: their units are
/// transformed together in both directions.
#[derive(Debug, Clone, Default)]
struct MergedTableGroup {
    /// Its tables in the native layout.
    native: BTreeSet<String>,
    /// Its tables in the stored layout.
    stored: BTreeSet<String>,
    /// The indices of its groups in `Lenses::to_native`.
    to_native: Vec<usize>,
    /// The indices of its groups in `Lenses::to_stored`.
    to_stored: Vec<usize>,
    /// The places of residue that the transformation to the stored layout may leave.
    residue_places: residue::Places,
}

/// Units at the native layout.
#[derive(Debug, Default)]
struct NativeUnits {
    batch: UnitBatch,
    /// The residue of the transformation to the native layout, which the opposite direction needs.
    residue: Vec<ResidueEntry>,
    /// The units that could not be transformed.
    damaged: Vec<(UnitKey, RowsError)>,
}

impl std::fmt::Debug for Lenses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lenses")
            .field("to_native", &self.to_native)
            .field("to_stored", &self.to_stored)
            .finish_non_exhaustive()
    }
}

impl Lenses {
    /// Whether data of a version cannot be accessed directly: a native table or column is absent,
    /// has another name or is computed by a row function, or the stored layout has a column of
    /// which every new row needs a value.
    ///
    /// # Errors
    /// The migrations between them cannot be composed.
    ///
    /// # Panics
    /// If the layout history does not have `version` and [`NATIVE`].
    pub fn are_needed(
        layouts: &LayoutHistory,
        migrations: &[Arc<dyn Transform>],
        version: DataVersion,
    ) -> Result<bool, ComposeError> {
        let to_native = Lens::restoring(Way::within(layouts, version, NATIVE), migrations);
        to_native.map(|to_native| !is_identity(&to_native))
    }

    /// Lenses between `version` and [`NATIVE`]. Rows that are written are stamped with
    /// `record_versions`.
    ///
    /// # Errors
    /// The migrations between them cannot be composed.
    ///
    /// # Panics
    /// If the layout history does not have both versions.
    pub fn new(
        layouts: &LayoutHistory,
        migrations: &[Arc<dyn Transform>],
        version: DataVersion,
        record_versions: RecordVersions,
        arguments: Arguments,
    ) -> Result<Self, ComposeError> {
        let to_native = Lens::restoring(Way::within(layouts, version, NATIVE), migrations)?;
        let to_stored = Lens::restoring(Way::within(layouts, NATIVE, version), migrations)?;
        let place = Place::new(to_native.source.clone()).stamping(record_versions);
        let table_groups = table_groups(&to_native, &to_stored);
        let is_pinned = version < NATIVE;
        Ok(Self {
            version,
            is_pinned,
            to_native,
            to_stored,
            arguments,
            place,
            table_groups,
            transformations: Transformations::default(),
        })
    }

    /// The versions of the migrations between `version` and [`NATIVE`], whose run arguments the
    /// lenses need.
    pub fn versions(version: DataVersion) -> RangeInclusive<DataVersion> {
        version.min(NATIVE) + 1..=version.max(NATIVE)
    }

    /// Sets whether a write that the stored layout cannot hold is rejected. Otherwise the excess is
    /// stored as residue until the data reaches the native version: while a migration is under way,
    /// no write is rejected for it.
    #[must_use]
    pub fn pinned(mut self, is_pinned: bool) -> Self {
        self.is_pinned = is_pinned && self.version < NATIVE;
        self
    }

    /// Whether the stored layout has a native table, under whatever name and in whatever form.
    pub(super) fn holds(&self, table: &str) -> bool {
        self.table_groups
            .iter()
            .any(|group| group.native.contains(table) && !group.stored.is_empty())
    }

    /// The error for a field that the stored layout has no place for.
    pub(super) fn not_held(&self, fields: impl Into<String>) -> StoreError {
        StoreError::NotHeld {
            fields: fields.into(),
            version: self.version,
        }
    }

    /// The stored tables that hold the units of native tables.
    pub(super) fn stored(&self, tables: &[&str]) -> Vec<&str> {
        let held = tables.iter().filter(|table| self.holds(table));
        let stored: BTreeSet<_> = held
            .flat_map(|table| &self.table_groups[self.group(table)].stored)
            .collect();
        stored.into_iter().map(String::as_str).collect()
    }

    pub(super) fn native(&self) -> &Layout {
        &self.to_native.target
    }

    fn table(&self, name: &str) -> &Table {
        &self.native().tables[name]
    }

    fn group(&self, table: &str) -> usize {
        let found = self
            .table_groups
            .iter()
            .position(|group| group.native.contains(table));
        found.expect("every native table is in a group")
    }

    /// Loads units and transforms them to the native layout: all columns, or only the given columns
    /// of a table.
    async fn load(
        self: &Arc<Self>,
        tx: &mut Transaction,
        keyring: &Arc<Keyring>,
        group: usize,
        units: Vec<UnitKey>,
        columns: Option<(&str, &[&'static str])>,
    ) -> Result<NativeUnits, RowsError> {
        let wanted = self.wanted(group, columns);
        let stored = bbs_units::load(tx, &self.place, &wanted, &units, RowLock::None).await?;
        let residue_before = self.load_residue(tx, keyring, group, &stored).await?;
        self.transform_loaded(keyring, group, stored, residue_before)
            .await
    }

    async fn transform_loaded(
        self: &Arc<Self>,
        keyring: &Arc<Keyring>,
        group: usize,
        stored: UnitBatch,
        residue_before: Vec<ResidueEntry>,
    ) -> Result<NativeUnits, RowsError> {
        let lenses = Arc::clone(self);
        let keyring = Arc::clone(keyring);
        let units = stored.units.len();
        let work = move |permit: TransformPermit| {
            lenses.transform_readable(&keyring, group, &stored, residue_before, &permit)
        };
        self.transformations.run(units, work).await?
    }

    /// The stored columns to load: those that the lens reads, and those that hold the wanted native
    /// columns.
    fn wanted(&self, group: usize, columns: Option<(&str, &[&'static str])>) -> WantedColumns {
        let group = &self.table_groups[group];
        let mut wanted = WantedColumns::new();
        for name in &group.stored {
            let needed = self.to_native.needed.get(name).cloned().unwrap_or_default();
            let table = &self.place.layout.tables[name];
            let all = || {
                table
                    .columns
                    .iter()
                    .map(|column| column.name.clone())
                    .collect()
            };
            let mut names = if columns.is_some() { needed } else { all() };
            names.extend(table.primary_key.iter().cloned());
            wanted.insert(name.clone(), names);
        }
        let Some((table, columns)) = columns else {
            return wanted;
        };
        for (column, provenance) in &self.to_native.tables[table].columns {
            if let Provenance::Raw {
                table,
                column: name,
            } = provenance
                && columns.contains(&column.name.as_str())
            {
                wanted
                    .entry(table.clone())
                    .or_default()
                    .insert(name.clone());
            }
        }
        wanted
    }

    /// The residue that the last transformation to the stored layout left of these units.
    async fn load_residue(
        &self,
        tx: &mut Transaction,
        keyring: &Keyring,
        group: usize,
        batch: &UnitBatch,
    ) -> Result<Vec<ResidueEntry>, RowsError> {
        let residue_places = &self.table_groups[group].residue_places;
        if residue_places.is_empty() || batch.units.is_empty() {
            return Ok(Vec::new());
        }
        let mut residue_entries =
            residue::load(tx, keyring, &self.to_native.returning, &batch.names()).await?;
        residue_entries
            .retain(|entry| residue_places.contains(&(entry.left_by.version, entry.table.clone())));
        Ok(residue_entries)
    }

    /// Transforms units to the native layout. Those that cannot be transformed are returned as
    /// damaged.
    ///
    /// # Errors
    /// The units cannot be transformed at once; half of them may.
    fn transform_readable(
        &self,
        keyring: &Keyring,
        group: usize,
        stored: &UnitBatch,
        residue_before: Vec<ResidueEntry>,
        permit: &TransformPermit,
    ) -> Result<NativeUnits, RowsError> {
        let groups = &self.table_groups[group].to_native;
        let transformed = self
            .passage(&self.to_native, groups, keyring, permit)
            .sift(stored, &Residue::from(residue_before))?;
        let damaged = transformed
            .refused
            .into_iter()
            .map(|(unit, fault)| (stored.units[unit].clone(), fault));
        Ok(NativeUnits {
            batch: transformed.batch,
            residue: transformed.residue,
            damaged: damaged.collect(),
        })
    }

    fn transform_to_native(
        &self,
        keyring: &Keyring,
        group: usize,
        stored: &UnitBatch,
        residue_before: Vec<ResidueEntry>,
        permit: &TransformPermit,
    ) -> Result<UnitBatch, RowsError> {
        let groups = &self.table_groups[group].to_native;
        let transformed = self
            .passage(&self.to_native, groups, keyring, permit)
            .all(stored, &Residue::from(residue_before));
        transformed
            .map(|transformed| transformed.batch)
            .map_err(|(_, fault)| fault)
    }

    /// Transforms units to the stored layout; also returns their residue.
    fn transform_to_stored(
        &self,
        keyring: &Keyring,
        group: usize,
        native: &UnitBatch,
        residue_entries: Vec<ResidueEntry>,
        permit: &TransformPermit,
    ) -> Result<(UnitBatch, Vec<ResidueEntry>), RowsError> {
        let groups = &self.table_groups[group].to_stored;
        let transformed = self
            .passage(&self.to_stored, groups, keyring, permit)
            .all(native, &Residue::from(residue_entries).of_edited());
        transformed
            .map(|transformed| (transformed.batch, transformed.residue))
            .map_err(|(_, fault)| fault)
    }

    fn passage<'a>(
        &'a self,
        lens: &'a Lens,
        groups: &'a [usize],
        keyring: &'a Keyring,
        _permit: &TransformPermit,
    ) -> Passage<'a> {
        Passage {
            lens,
            groups,
            arguments: &self.arguments,
            keyring,
            writes_to: None,
        }
    }
}

/// Whether the native tables can be read and written directly in the stored ones.
fn is_identity(to_native: &Lens) -> bool {
    let serves = |name: &&str| {
        let (Some(composed), Some(stored)) = (
            to_native.tables.get(*name),
            to_native.source.tables.get(*name),
        ) else {
            return false;
        };
        let as_it_is = composed.columns.iter().all(|(column, provenance)| {
            *provenance
                == Provenance::Raw {
                    table: (*name).to_owned(),
                    column: column.name.clone(),
                }
        });
        let mut unknown = stored
            .columns
            .iter()
            .filter(|column| composed.table.find_column(&column.name).is_none());
        as_it_is
            && !composed.reshaped
            && composed.table.primary_key == stored.primary_key
            && unknown.all(|column| column.nullable || column.default.is_some())
    };
    TABLES.iter().all(serves)
}

/// Merges the groups of both lenses that have a table in common.
fn table_groups(to_native: &Lens, to_stored: &Lens) -> Vec<MergedTableGroup> {
    let of_to_native = to_native
        .groups
        .iter()
        .enumerate()
        .map(|(at, group)| MergedTableGroup {
            native: group.targets.iter().cloned().collect(),
            stored: group.sources.iter().cloned().collect(),
            to_native: vec![at],
            ..MergedTableGroup::default()
        });
    let of_to_stored = to_stored
        .groups
        .iter()
        .enumerate()
        .map(|(at, group)| MergedTableGroup {
            native: group.sources.iter().cloned().collect(),
            stored: group.targets.iter().cloned().collect(),
            to_stored: vec![at],
            residue_places: group.keeps.clone(),
            ..MergedTableGroup::default()
        });
    let mut table_groups: Vec<MergedTableGroup> = Vec::new();
    for mut group in of_to_native.chain(of_to_stored) {
        let meets = |other: &mut MergedTableGroup| {
            !other.native.is_disjoint(&group.native) || !other.stored.is_disjoint(&group.stored)
        };
        for other in table_groups.extract_if(.., meets).collect::<Vec<_>>() {
            group.native.extend(other.native);
            group.stored.extend(other.stored);
            group.to_native.extend(other.to_native);
            group.to_stored.extend(other.to_stored);
            group.residue_places.extend(other.residue_places);
        }
        table_groups.push(group);
    }
    table_groups
}

fn failed(what: &'static str) -> impl Fn(RowsError) -> StoreError {
    move |source| match &source {
        RowsError::Rows { source, .. } if let Some(column) = refused_characters(source) => {
            StoreError::Characters { column }
        }
        _ => StoreError::Units {
            what,
            source: Box::new(source),
        },
    }
}
