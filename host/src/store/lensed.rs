//! The way through a lens, for data of another version than the handlers': newer, because modules were shipped ahead of
//! the host, or older, because it is pinned. Owns which units have to be taken together, and taking them to the
//! handlers' layout; what is then read or written is as on the direct way.
//!
//! A unit that the lens cannot take is a record that cannot be read, with all its rows.

mod keys;
mod pin;
mod read;
mod write;

use std::collections::{BTreeMap, BTreeSet};
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
use crate::lens::{Arguments, Kept, Left, Lens, Provenance};
use crate::record::Keyring;
use crate::units::{self, Batch, Key, Place, RecordVersions, UnitsError, Wanted, residue};

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
    batch: Batch,
    /// What lifting lost, for the way back.
    kept: Vec<Kept>,
    damaged: Vec<(Key, UnitsError)>,
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
        let place = Place::new(lift.near.clone()).stamping(record_versions);
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
        &self.lift.far
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
        units: Vec<Key>,
        columns: Option<(&str, &[&'static str])>,
    ) -> Result<Lifted, UnitsError> {
        let wanted = self.wanted(cluster, columns);
        let stored = units::load(tx, &self.place, &wanted, &units).await?;
        let left = self.left(tx, keyring, cluster, &units).await?;
        self.lifted(keyring, cluster, stored, left).await
    }

    async fn lifted(
        self: &Arc<Self>,
        keyring: &Arc<Keyring>,
        cluster: usize,
        stored: Batch,
        left: Vec<Kept>,
    ) -> Result<Lifted, UnitsError> {
        let (lenses, keyring) = (Arc::clone(self), Arc::clone(keyring));
        let work = move || lenses.lift_readable(&keyring, cluster, stored, left);
        tokio::task::spawn_blocking(work).await.map_err(|_| UnitsError::Interrupted)?
    }

    /// The columns that have to be read: what the lens has to see, and what the wanted ones are made of.
    fn wanted(&self, cluster: usize, columns: Option<(&str, &[&'static str])>) -> Wanted {
        let cluster = &self.clusters[cluster];
        let mut wanted = Wanted::new();
        for name in &cluster.stored {
            let needed = self.lift.needed.get(name).cloned().unwrap_or_default();
            let all = || self.place.layout.tables[name].columns.iter().map(|column| column.name.clone()).collect();
            wanted.insert(name.clone(), if columns.is_some() { needed } else { all() });
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
        units: &[Key],
    ) -> Result<Vec<Kept>, UnitsError> {
        let keeps = &self.clusters[cluster].keeps;
        if keeps.is_empty() || units.is_empty() {
            return Ok(Vec::new());
        }
        let names: Vec<_> = units.iter().map(units::name).collect();
        let versions = Self::versions(self.version);
        let mut kept = residue::load(tx, keyring, self.lower.direction, &versions, &names).await?;
        kept.retain(|kept| keeps.contains(&(kept.version, kept.table.clone())));
        Ok(kept)
    }

    /// Takes all units together, and if that fails finds those that cannot be taken, each on its own.
    fn lift_readable(
        &self,
        keyring: &Keyring,
        cluster: usize,
        stored: Batch,
        left: Vec<Kept>,
    ) -> Result<Lifted, UnitsError> {
        match self.lift(keyring, cluster, &stored, left.clone()) {
            Err(fault) if fault.unit().is_some() => {}
            lifted => return lifted,
        }
        let (mut readable, mut damaged) = (Vec::new(), Vec::new());
        for unit in 0..stored.units.len() {
            let alone = stored.only(&self.place.layout, &[unit]);
            match self.lift(keyring, cluster, &alone, of_units(&left, &[unit])) {
                Ok(_) => readable.push(unit),
                Err(fault) if fault.unit().is_some() => damaged.push((stored.units[unit].clone(), fault)),
                Err(fault) => return Err(fault),
            }
        }
        let rest = stored.only(&self.place.layout, &readable);
        let lifted = self.lift(keyring, cluster, &rest, of_units(&left, &readable))?;
        Ok(Lifted { damaged, ..lifted })
    }

    fn lift(&self, keyring: &Keyring, cluster: usize, stored: &Batch, left: Vec<Kept>) -> Result<Lifted, UnitsError> {
        let groups = &self.clusters[cluster].lift;
        let (batch, kept) = self.through(&self.lift, groups, stored, &Left::from(left), keyring)?;
        Ok(Lifted { batch, kept, damaged: Vec::new() })
    }

    /// What the units of a cluster are at the data's layout, and what has to be kept of them.
    fn lower(
        &self,
        keyring: &Keyring,
        cluster: usize,
        native: &Batch,
        kept: Vec<Kept>,
    ) -> Result<(Batch, Vec<Kept>), UnitsError> {
        let groups = &self.clusters[cluster].lower;
        self.through(&self.lower, groups, native, &Left::from(kept).of_edited(), keyring)
    }

    fn through(
        &self,
        lens: &Lens,
        groups: &[usize],
        near: &Batch,
        left: &Left,
        keyring: &Keyring,
    ) -> Result<(Batch, Vec<Kept>), UnitsError> {
        let mut far = Batch { units: near.units.clone(), tables: BTreeMap::new() };
        let mut kept = Vec::new();
        for &group in groups {
            let transformed = units::transform(lens, group, near, left, &self.arguments, keyring)?;
            far.tables.extend(transformed.batch.tables);
            kept.extend(transformed.kept);
        }
        Ok((far, kept))
    }
}

/// Entries of some units, which are then counted anew.
fn of_units(kept: &[Kept], units: &[usize]) -> Vec<Kept> {
    let place = |kept: &Kept| units.iter().position(|unit| *unit == kept.unit);
    kept.iter().filter_map(|kept| place(kept).map(|unit| Kept { unit, ..kept.clone() })).collect()
}

/// Whether the far end can be read and written in the tables of the near end as they are.
fn is_nothing(lift: &Lens) -> bool {
    let serves = |name: &&str| {
        let (Some(composed), Some(stored)) = (lift.tables.get(*name), lift.near.tables.get(*name)) else {
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

fn failed(what: &'static str) -> impl Fn(UnitsError) -> StoreError {
    move |source| StoreError::Units { what, source: Box::new(source) }
}
