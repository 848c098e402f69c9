//! The way through a lens, for data of another version than the handlers': newer, because modules were shipped ahead of
//! the host, or older, because it is pinned. Owns which units have to be taken together, and taking them to the
//! handlers' layout; what is then read or written is as on the direct way.
//!
//! A unit that the lens cannot take is a record that cannot be read, with all its rows.

mod keys;
mod pin;
mod read;
mod write;

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

pub(super) use read::{get, list, page_end};
pub(super) use write::Session;

use super::{NATIVE, StoreError, TABLES};
use crate::database::Transaction;
use crate::layout::fold::Line;
use crate::layout::manifest::DataVersion;
use crate::layout::schema::{Layout, Table};
use crate::lens::transform::Transform;
use crate::lens::{Arguments, Lens, Provenance, Residue, ResidueEntry};
use crate::record::Keyring;
use crate::rows::{
    self, ByteLimits, Passage, Place, RecordVersions, RowLock, RowsError, UnitBatch, UnitKey, WantedColumns, residue,
};

/// Both ways between the data and the handlers.
pub struct Lenses {
    version: DataVersion,
    is_pinned: bool,
    /// From the data to the handlers.
    lift: Lens,
    /// From the handlers to the data.
    lower: Lens,
    arguments: Arguments,
    place: Place,
    clusters: Vec<Cluster>,
}

/// Tables whose units are taken together, whichever the way.
#[derive(Debug, Clone, Default)]
struct Cluster {
    /// At the handlers' layout.
    native: BTreeSet<String>,
    /// At the data's.
    stored: BTreeSet<String>,
    lift: Vec<usize>,
    lower: Vec<usize>,
    /// Where lowering may keep something that lifting gives back.
    keeps: residue::Places,
}

/// Units at the handlers' layout.
#[derive(Debug, Default)]
struct Lifted {
    batch: UnitBatch,
    /// What lifting lost, for the way back.
    kept: Vec<ResidueEntry>,
    damaged: Vec<(UnitKey, RowsError)>,
}

impl std::fmt::Debug for Lenses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lenses").field("lift", &self.lift).field("lower", &self.lower).finish_non_exhaustive()
    }
}

impl Lenses {
    /// Whether the handlers cannot work on the data as it is: a table or column that they know is not there under its
    /// name, or went through a row function, or what they do not know asks something of them.
    pub fn are_needed(line: &Line, migrations: &[Arc<dyn Transform>], version: DataVersion) -> bool {
        !is_nothing(&Lens::restoring(line, migrations, version, NATIVE))
    }

    /// Both versions are of the line. `record_versions` is what rows that are written are marked with.
    pub fn new(
        line: &Line,
        migrations: &[Arc<dyn Transform>],
        version: DataVersion,
        record_versions: RecordVersions,
        arguments: Arguments,
    ) -> Self {
        let lift = Lens::restoring(line, migrations, version, NATIVE);
        let lower = Lens::restoring(line, migrations, NATIVE, version);
        let place = Place::new(lift.source.clone()).stamping(record_versions);
        let clusters = clusters(&lift, &lower);
        let is_pinned = version < NATIVE;
        Self { version, is_pinned, lift, lower, arguments, place, clusters }
    }

    /// The versions of the migrations in between, whose run arguments the lenses need.
    pub fn versions(version: DataVersion) -> RangeInclusive<DataVersion> {
        version.min(NATIVE) + 1..=version.max(NATIVE)
    }

    /// Whether what the data's layout has no place for is refused. Otherwise it is kept beside the record, for when
    /// the data comes to the handlers' version: on the way there, nobody is refused anything.
    #[must_use]
    pub fn pinned(mut self, is_pinned: bool) -> Self {
        self.is_pinned = is_pinned && self.version < NATIVE;
        self
    }

    /// The tables of the database that hold what entities are made of.
    pub(super) fn stored_tables(&self) -> Vec<&str> {
        let tables: BTreeSet<_> = TABLES.iter().flat_map(|table| self.stored_for(table)).collect();
        tables.into_iter().collect()
    }

    /// The tables of the database that hold a unit of this table.
    pub(super) fn stored_for(&self, table: &str) -> Vec<&str> {
        self.clusters[self.cluster(table)].stored.iter().map(String::as_str).collect()
    }

    pub(super) fn native(&self) -> &Layout {
        &self.lift.target
    }

    fn table(&self, name: &str) -> &Table {
        &self.native().tables[name]
    }

    fn cluster(&self, table: &str) -> usize {
        let found = self.clusters.iter().position(|cluster| cluster.native.contains(table));
        found.expect("every table of the handlers is in a cluster")
    }

    /// Reads units and takes them to the handlers' layout. With `columns`, only those of `table` are wanted.
    async fn load(
        self: &Arc<Self>,
        tx: &mut Transaction,
        keyring: &Arc<Keyring>,
        cluster: usize,
        units: Vec<UnitKey>,
        columns: Option<(&str, &[&'static str])>,
    ) -> Result<Lifted, RowsError> {
        let wanted = self.wanted(cluster, columns);
        let stored = rows::load(tx, &self.place, &wanted, &units, RowLock::None, ByteLimits::NONE).await?;
        let left = self.left(tx, keyring, cluster, &stored).await?;
        self.lifted(keyring, cluster, stored, left).await
    }

    async fn lifted(
        self: &Arc<Self>,
        keyring: &Arc<Keyring>,
        cluster: usize,
        stored: UnitBatch,
        left: Vec<ResidueEntry>,
    ) -> Result<Lifted, RowsError> {
        let (lenses, keyring) = (Arc::clone(self), Arc::clone(keyring));
        let work = move || lenses.lift_readable(&keyring, cluster, &stored, left);
        tokio::task::spawn_blocking(work).await.map_err(|_| RowsError::Interrupted)
    }

    /// The columns that have to be read: what the lens has to see, and what the wanted ones are made of.
    fn wanted(&self, cluster: usize, columns: Option<(&str, &[&'static str])>) -> WantedColumns {
        let cluster = &self.clusters[cluster];
        let mut wanted = WantedColumns::new();
        for name in &cluster.stored {
            let needed = self.lift.needed.get(name).cloned().unwrap_or_default();
            let table = &self.place.layout.tables[name];
            let all = || table.columns.iter().map(|column| column.name.clone()).collect();
            let mut names = if columns.is_some() { needed } else { all() };
            names.extend(table.primary_key.iter().cloned());
            wanted.insert(name.clone(), names);
        }
        let Some((table, columns)) = columns else { return wanted };
        for (column, provenance) in &self.lift.tables[table].columns {
            if let Provenance::Raw { table, column: name } = provenance
                && columns.contains(&column.name.as_str())
            {
                wanted.entry(table.clone()).or_default().insert(name.clone());
            }
        }
        wanted
    }

    /// What was kept of the units when they were last taken the other way.
    async fn left(
        &self,
        tx: &mut Transaction,
        keyring: &Keyring,
        cluster: usize,
        batch: &UnitBatch,
    ) -> Result<Vec<ResidueEntry>, RowsError> {
        let keeps = &self.clusters[cluster].keeps;
        if keeps.is_empty() || batch.units.is_empty() {
            return Ok(Vec::new());
        }
        let versions = Self::versions(self.version);
        let mut kept = residue::load(tx, keyring, self.lower.direction, &versions, &batch.names()).await?;
        kept.retain(|kept| keeps.contains(&(kept.version, kept.table.clone())));
        Ok(kept)
    }

    /// Takes to the handlers' layout the units that can be taken.
    fn lift_readable(&self, keyring: &Keyring, cluster: usize, stored: &UnitBatch, left: Vec<ResidueEntry>) -> Lifted {
        let groups = &self.clusters[cluster].lift;
        let sifted = self.passage(&self.lift, groups, keyring).sift(stored, &Residue::from(left));
        let damaged = sifted.refused.into_iter().map(|(unit, fault)| (stored.units[unit].clone(), fault));
        Lifted { batch: sifted.transformed.batch, kept: sifted.transformed.residue, damaged: damaged.collect() }
    }

    fn lift(
        &self,
        keyring: &Keyring,
        cluster: usize,
        stored: &UnitBatch,
        left: Vec<ResidueEntry>,
    ) -> Result<UnitBatch, RowsError> {
        let groups = &self.clusters[cluster].lift;
        let lifted = self.passage(&self.lift, groups, keyring).all(stored, &Residue::from(left));
        lifted.map(|lifted| lifted.batch).map_err(|(_, fault)| fault)
    }

    /// What the units of a cluster are at the data's layout, and what has to be kept of them.
    fn lower(
        &self,
        keyring: &Keyring,
        cluster: usize,
        native: &UnitBatch,
        kept: Vec<ResidueEntry>,
    ) -> Result<(UnitBatch, Vec<ResidueEntry>), RowsError> {
        let groups = &self.clusters[cluster].lower;
        let lowered = self.passage(&self.lower, groups, keyring).all(native, &Residue::from(kept).of_edited());
        lowered.map(|lowered| (lowered.batch, lowered.residue)).map_err(|(_, fault)| fault)
    }

    fn passage<'a>(&'a self, lens: &'a Lens, groups: &'a [usize], keyring: &'a Keyring) -> Passage<'a> {
        Passage { lens, groups, arguments: &self.arguments, keyring }
    }
}

/// Whether the target can be read and written in the tables of the source as they are.
fn is_nothing(lift: &Lens) -> bool {
    let serves = |name: &&str| {
        let (Some(composed), Some(stored)) = (lift.tables.get(*name), lift.source.tables.get(*name)) else {
            return false;
        };
        let as_it_is = composed.columns.iter().all(|(column, provenance)| {
            *provenance == Provenance::Raw { table: (*name).to_owned(), column: column.name.clone() }
        });
        let mut unknown = stored.columns.iter().filter(|column| composed.table.column(&column.name).is_none());
        as_it_is
            && !composed.reshaped
            && composed.table.primary_key == stored.primary_key
            && unknown.all(|column| column.nullable || column.default.is_some())
    };
    TABLES.iter().all(serves)
}

/// The groups of both lenses that have a table in common, together.
fn clusters(lift: &Lens, lower: &Lens) -> Vec<Cluster> {
    let of_lift = lift.groups.iter().enumerate().map(|(at, group)| Cluster {
        native: group.targets.iter().cloned().collect(),
        stored: group.sources.iter().cloned().collect(),
        lift: vec![at],
        ..Cluster::default()
    });
    let of_lower = lower.groups.iter().enumerate().map(|(at, group)| Cluster {
        native: group.sources.iter().cloned().collect(),
        stored: group.targets.iter().cloned().collect(),
        lower: vec![at],
        keeps: group.keeps.clone(),
        ..Cluster::default()
    });
    let mut clusters: Vec<Cluster> = Vec::new();
    for mut cluster in of_lift.chain(of_lower) {
        let meets = |other: &mut Cluster| {
            !other.native.is_disjoint(&cluster.native) || !other.stored.is_disjoint(&cluster.stored)
        };
        for other in clusters.extract_if(.., meets).collect::<Vec<_>>() {
            cluster.native.extend(other.native);
            cluster.stored.extend(other.stored);
            cluster.lift.extend(other.lift);
            cluster.lower.extend(other.lower);
            cluster.keeps.extend(other.keeps);
        }
        clusters.push(cluster);
    }
    clusters
}

fn failed(what: &'static str) -> impl Fn(RowsError) -> StoreError {
    move |source| StoreError::Units { what, source: Box::new(source) }
}
