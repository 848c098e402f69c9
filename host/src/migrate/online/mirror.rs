//! Writes of clients while rows are copied: what is written to the originals is written to the copies, too, in the
//! same transaction. The originals stay what counts: a unit that cannot be taken to the copies ends the migration, not
//! the call.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use sea_query::{Alias, Expr, Query};

use super::Following;
use crate::database::{SqlError, Transaction, sql};
use crate::layout::values::ColumnBuilder;
use crate::migrate::key::{Key, Part};
use crate::migrate::plan::{Strategy, TablePlan};
use crate::migrate::read::{Room, listed, load_one, unit_key};
use crate::migrate::tally::{self, Written};
use crate::migrate::transform::{Read, checksum_of_stored, transform};
use crate::migrate::{MigrateError, Work, quarantine, residue, state, write};
use crate::store;

#[derive(Debug)]
pub(crate) struct Mirror {
    work: Arc<Work>,
}

impl Mirror {
    pub(super) fn new(work: Arc<Work>) -> Self {
        Self { work }
    }

    fn following(&self) -> &Following {
        self.work.following.as_ref().expect("a mirror is of a migration that clients follow")
    }

    /// The unit that rows of a table with this partition key belong to, if the table is being copied.
    fn unit(&self, table: &str, key: &[u8]) -> Option<(usize, Key)> {
        let group = self.work.lens.groups.iter().position(|group| group.sources.iter().any(|name| name == table))?;
        self.work.has_copies(group).then(|| (group, Key(vec![Part::Text(key.to_vec())])))
    }

    /// Takes units that a transaction has changed to the copies.
    async fn take_changes(&self, tx: &mut Transaction, touched: &[(String, Vec<u8>)]) -> Result<(), MigrateError> {
        if self.following().is_broken() {
            return abandon_copies(tx).await;
        }
        if let Some(fault) = self.following().take_refusal() {
            return self.give_up(tx, fault).await;
        }
        let mut units: BTreeMap<usize, BTreeSet<Vec<u8>>> = BTreeMap::new();
        for (table, key) in touched {
            if let Some((group, _)) = self.unit(table, key) {
                units.entry(group).or_default().insert(key.clone());
            }
        }
        for (group, keys) in units {
            for key in keys {
                match self.take_across(tx, group, Key(vec![Part::Text(key)])).await {
                    // The transaction itself cannot go on after a statement failed, nor is there any harm in its end.
                    Err(fault @ (MigrateError::Sql { .. } | MigrateError::Database(_) | MigrateError::Fence(_))) => {
                        return Err(fault);
                    }
                    Err(fault) => return self.give_up(tx, fault).await,
                    Ok(()) => {}
                }
            }
        }
        Ok(())
    }

    /// From now on only the originals are written.
    async fn give_up(&self, tx: &mut Transaction, fault: MigrateError) -> Result<(), MigrateError> {
        abandon_copies(tx).await?;
        tracing::error!(reason = %fault, "a write cannot be taken to the copies of the migration under way, which ends");
        self.following().broken_by(fault);
        Ok(())
    }

    /// Takes one unit over, as the transaction has left it. Its rows are those that the database finds under the key,
    /// which it may spell in another way (MySQL's collations ignore case): they are one unit, under the key of its rows.
    async fn take_across(&self, tx: &mut Transaction, group: usize, asked: Key) -> Result<(), MigrateError> {
        let work = &self.work;
        tx.find_by_key().await.map_err(failed)?;
        let mut read = Read::default();
        let mut room = Room::new(&work.tuning, 1);
        let mut stored_under = None;
        for source in &work.lens.groups[group].sources {
            let table = &work.lens.near.tables[source];
            let (loaded, key) = load_one(tx, table, work.loads_of(source), &asked, &mut room).await?;
            stored_under = stored_under.or(key);
            read.tables.insert(source.clone(), loaded);
        }
        let key = stored_under.unwrap_or(asked);
        read.units = vec![key.clone()];
        let back = work.lens.direction.opposite();
        read.left = residue::load(tx, &work.keyring, back, work.versions(), &[key.name()]).await?;
        let worker = Arc::clone(work);
        let transformed = tokio::task::spawn_blocking(move || transform(&worker, group, &read)).await;
        let transformed = transformed.map_err(|_| MigrateError::Interrupted)??;
        let keys = [key];
        quarantine::forget(tx, work, group, &keys).await?;
        quarantine::store(tx, work, group, &transformed.refused, work.now_ns).await?;
        residue::store(tx, work.lens.direction, &transformed.residue).await?;
        for plan in work.plans.iter().filter(|plan| plan.group == group && plan.strategy == Strategy::Copy) {
            let before = self.remove(tx, plan, &keys).await?;
            if let Some((rows, checksum)) = transformed.tables.get(&plan.table.name) {
                write::write_rows(tx, plan, work.to, rows).await?;
                let after = Written { rows: rows.count as u64, checksum: *checksum };
                tally::note(tx, plan, before, after).await?;
            }
        }
        Ok(())
    }

    /// Takes units out of a copy, and says what was there.
    async fn remove(&self, tx: &mut Transaction, plan: &TablePlan, keys: &[Key]) -> Result<Written, MigrateError> {
        let staged = plan.staged(self.work.to);
        let key = unit_key(&plan.table);
        let listed = listed(&key, keys);
        let columns = plan.digested();
        let mut select = Query::select();
        select
            .exprs(columns.iter().map(|(column, _)| Expr::col(Alias::new(&column.name))))
            .from(Alias::new(&staged))
            .and_where(listed.clone());
        let rows = tx.fetch(&select).await.map_err(failed)?;
        if rows.is_empty() {
            return Ok(Written::default());
        }
        let mut builders: Vec<_> = columns.iter().map(|(column, _)| ColumnBuilder::new(column.kind.into())).collect();
        for row in &rows {
            for (at, ((column, _), builder)) in columns.iter().zip(&mut builders).enumerate() {
                builder.push(row.value(at, column.kind.into()).map_err(failed)?);
            }
        }
        let stored: Vec<_> = builders.into_iter().map(ColumnBuilder::finish).collect();
        let damaged = |source| MigrateError::Record {
            unit: keys[0].name(),
            table: staged.clone(),
            column: "any".to_owned(),
            source,
        };
        let checksum = checksum_of_stored(&self.work.keyring, plan, rows.len(), &stored).map_err(damaged)?;
        let delete = Query::delete().from_table(Alias::new(&staged)).and_where(listed).take();
        tx.execute(&delete).await.map_err(failed)?;
        Ok(Written { rows: rows.len() as u64, checksum })
    }
}

/// Gives the copies up in a transaction that does not write to them: what it commits is never without this. It need not be
/// the first to do so, but that one may still be undone.
async fn abandon_copies(tx: &mut Transaction) -> Result<(), MigrateError> {
    let failed = |source| MigrateError::Sql { what: "bbs_migration".to_owned(), source };
    let begun = state::Phase::Begun.name();
    let rows = tx.fetch(sql("SELECT phase FROM bbs_migration")).await.map_err(failed)?;
    for row in rows {
        if row.text(0).map_err(failed)? == Some(begun) {
            return Ok(());
        }
    }
    tx.execute(sql("UPDATE bbs_migration SET phase = ?").bind(begun)).await.map_err(failed)?;
    Ok(())
}

fn failed(source: SqlError) -> MigrateError {
    MigrateError::Sql { what: "rows of a copy that follow a write".to_owned(), source }
}

impl store::Mirror for Mirror {
    fn hold<'a>(&'a self, tables: Vec<&'a str>, key: &'a [u8]) -> BoxFuture<'a, Box<dyn Send + Sync>> {
        Box::pin(async move {
            let units: HashSet<_> = tables.iter().filter_map(|table| self.unit(table, key)).collect();
            Box::new(self.following().locks.take(units.into_iter().collect()).await) as Box<dyn Send + Sync>
        })
    }

    fn changed<'a>(
        &'a self,
        tx: &'a mut Transaction,
        touched: &'a [(String, Vec<u8>)],
    ) -> BoxFuture<'a, Result<(), store::MirrorError>> {
        Box::pin(async move {
            self.take_changes(tx, touched).await.map_err(|fault| {
                if !fault.is_refused_row() {
                    return store::MirrorError { is_transient: fault.is_transient(), source: Box::new(fault) };
                }
                // Not the client's: its call is done again, and the copies are given up with it.
                let source = fault.to_string().into();
                self.following().refused_by(fault);
                store::MirrorError { is_transient: true, source }
            })
        })
    }
}
