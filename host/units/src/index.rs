//! Which unit of a batch a row belongs to, by the database's own equality: a collation of MySQL may
//! treat keys as equal that differ in case, accents or trailing spaces. All paths from rows to
//! units lead through [`UnitIndex`]. Owns also which of some units a table has rows of.
//!
//! A key is looked up by its bytes. A key that is spelled like none of the units is compared with
//! them by the database, once for each spelling, so that the usual case costs nothing.

use std::collections::{HashMap, HashSet};

use bbs_database::{Dialect, SqlError, Transaction};
use bbs_lens::layout::schema::Table;
use sea_query::{Alias, CaseStatement, Expr, Query};

use super::key::{KeyColumn, UnitKey, among, is_one_of, unit_key};
use super::{RowsError, failed};

/// The keys of one statement on either side of a comparison; MySQL permits at most 65,535
/// parameters.
const KEYS: usize = 1_000;

/// Which unit a key belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Membership {
    /// The unit at this place.
    Unit(usize),
    /// None of the units.
    None,
    /// The database has not compared this spelling with the units yet.
    Unknown,
}

/// The units of a batch by their keys.
#[derive(Debug)]
pub(super) struct UnitIndex<'a> {
    units: &'a [UnitKey],
    exact: HashMap<&'a UnitKey, usize>,
    /// Other spellings that the database has compared with the units. None where keys of different
    /// bytes are different.
    spellings: Option<HashMap<UnitKey, Membership>>,
}

impl<'a> UnitIndex<'a> {
    /// An index of units that are distinct for the database.
    pub(super) fn new(units: &'a [UnitKey], dialect: Dialect) -> Self {
        let exact = units
            .iter()
            .enumerate()
            .map(|(place, unit)| (unit, place))
            .collect();
        let spellings = match dialect {
            Dialect::Mysql => Some(HashMap::new()),
            Dialect::Sqlite | Dialect::Postgres => None,
        };
        Self {
            units,
            exact,
            spellings,
        }
    }

    pub(super) fn of(&self, key: &UnitKey) -> Membership {
        if let Some(place) = self.exact.get(key) {
            return Membership::Unit(*place);
        }
        match &self.spellings {
            Some(spellings) => spellings.get(key).copied().unwrap_or(Membership::Unknown),
            None => Membership::None,
        }
    }

    /// Has the database compare spellings with the units. Each is the key of a row of the table.
    pub(super) async fn learn(
        &mut self,
        tx: &mut Transaction,
        table: &str,
        key: &[KeyColumn],
        unknown: HashSet<UnitKey>,
    ) -> Result<(), SqlError> {
        let unknown: Vec<_> = unknown.into_iter().collect();
        // None if one of them may equal any unit.
        let classes: Option<HashSet<_>> = unknown.iter().map(UnitKey::collation_class).collect();
        let may_equal = |unit: &UnitKey| match (&classes, unit.collation_class()) {
            (Some(classes), Some(class)) => classes.contains(&class),
            (None, _) | (_, None) => true,
        };
        let candidates: Vec<_> = (0..self.units.len())
            .filter(|place| may_equal(&self.units[*place]))
            .collect();
        let mut found = HashMap::new();
        for places in candidates.chunks(KEYS) {
            for spellings in unknown.chunks(KEYS) {
                let case = places.iter().fold(CaseStatement::new(), |case, place| {
                    let unit = std::slice::from_ref(&self.units[*place]);
                    case.case(
                        among(key, unit, tx.dialect()),
                        Expr::cust(place.to_string()),
                    )
                });
                let mut query = Query::select();
                query
                    .columns(key.iter().map(KeyColumn::alias))
                    .expr(case)
                    .from(Alias::new(table))
                    .and_where(among(key, spellings, tx.dialect()));
                for row in tx.fetch(&query).await? {
                    if let Some(place) = row.integer(key.len())? {
                        let unit = Membership::Unit(place as usize);
                        found.insert(UnitKey::read(&row, key)?, unit);
                    }
                }
            }
        }
        if let Some(spellings) = &mut self.spellings {
            spellings.extend(unknown.into_iter().map(|spelling| {
                let unit = found.get(&spelling).copied();
                (spelling, unit.unwrap_or(Membership::None))
            }));
        }
        Ok(())
    }
}

/// The places of those of some units of which a table has rows.
///
/// # Errors
/// The database fails, or a key is NULL.
pub async fn places_among(
    tx: &mut Transaction,
    table: &Table,
    name: &str,
    units: &[UnitKey],
) -> Result<HashSet<usize>, RowsError> {
    let found = units_among(tx, table, name, units).await?;
    let mut index = UnitIndex::new(units, tx.dialect());
    let unknown = found
        .iter()
        .filter(|key| index.of(key) == Membership::Unknown)
        .cloned()
        .collect::<HashSet<_>>();
    if !unknown.is_empty() {
        index
            .learn(tx, name, &unit_key(table), unknown)
            .await
            .map_err(failed(name))?;
    }
    let place = |key| match index.of(key) {
        Membership::Unit(place) => Some(place),
        Membership::None | Membership::Unknown => None,
    };
    Ok(found.iter().filter_map(place).collect())
}

/// The units among some of which a table has rows, as the rows spell their keys.
///
/// # Errors
/// The database fails, or a key is NULL.
pub async fn units_among(
    tx: &mut Transaction,
    table: &Table,
    name: &str,
    units: &[UnitKey],
) -> Result<Vec<UnitKey>, RowsError> {
    let condition = is_one_of(table, units, tx.dialect());
    units_where(tx, table, name, condition).await
}

/// The units of which a table has rows that meet a condition.
///
/// # Errors
/// The database fails, or a key is NULL.
pub async fn units_where(
    tx: &mut Transaction,
    table: &Table,
    name: &str,
    condition: Expr,
) -> Result<Vec<UnitKey>, RowsError> {
    let key = unit_key(table);
    let query = Query::select()
        .distinct()
        .columns(key.iter().map(KeyColumn::alias))
        .from(Alias::new(name))
        .and_where(condition)
        .to_owned();
    let rows = tx.fetch(&query).await.map_err(failed(name))?;
    rows.iter()
        .map(|row| UnitKey::read(row, &key))
        .collect::<Result<_, _>>()
        .map_err(failed(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spelling_of_no_unit_is_compared_by_the_database_on_mysql_alone() {
        let units = [UnitKey::text("App"), UnitKey::text("other")];
        let of = |dialect, key: &str| UnitIndex::new(&units, dialect).of(&UnitKey::text(key));
        for dialect in [Dialect::Sqlite, Dialect::Postgres] {
            assert_eq!(of(dialect, "other"), Membership::Unit(1));
            assert_eq!(of(dialect, "other "), Membership::None);
        }
        assert_eq!(of(Dialect::Mysql, "App"), Membership::Unit(0));
        assert_eq!(of(Dialect::Mysql, "aPP"), Membership::Unknown);
    }
}
