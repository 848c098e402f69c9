//! Changes of many rows of the host's own tables, in transactions of bounded size: a Galera cluster
//! limits a transaction (`wsrep_max_ws_size`), and clients that write the same units wait for its
//! end. Owns the bounds, and the removal of rows; which rows are not needed any more is decided by
//! the callers, and recorded before the first of them is removed.

use bbs_database::{SqlError, StatementResult, Transaction};
use bbs_lens::layout::schema::{ColumnType, Table};
use bbs_units::{KeyColumn, UnitKey, UnitPage, UnitSource, select_units};
use sea_query::{Alias, Cond, Expr, ExprTrait, Query};

use crate::lock::fence::Fence;
use crate::migrate::MigrateError;

/// The most keys whose rows are changed in one transaction.
const MOST_KEYS: u64 = 500;
/// The bytes of text that one transaction changes, unless the rows of one key have more.
const MOST_BYTES: u64 = 4 << 20;

/// Removes the rows that meet a condition, in the order of the first column of the primary key,
/// which is a text. Rows that share its value are removed in one transaction. Safe to interrupt and
/// to repeat.
///
/// # Errors
/// Another host has raised the fence, or the database fails. Some of the rows may be gone then.
pub(crate) async fn remove(
    fence: &Fence,
    table: &Table,
    condition: Cond,
) -> Result<(), MigrateError> {
    let pieces = Pieces { table, condition };
    let mut after = None;
    loop {
        let mut tx = fence.begin_relaxed().await?;
        let Some(last) = pieces
            .last_key(&mut tx, after.as_deref())
            .await
            .about(&table.name)?
        else {
            return Ok(());
        };
        let mut delete = Query::delete();
        delete
            .from_table(Alias::new(&table.name))
            .cond_where(pieces.rows(after.as_deref(), &last));
        tx.execute(&delete).await.about(&table.name)?;
        tx.commit().await.about(&table.name)?;
        assert!(
            after.is_none_or(|before| before != last),
            "each transaction removes rows of further keys"
        );
        after = Some(last);
    }
}

/// Rows of a table that meet a condition, in pieces of bounded size: by the order of the first
/// column of the primary key, which is a text.
pub(crate) struct Pieces<'a> {
    pub(crate) table: &'a Table,
    pub(crate) condition: Cond,
}

impl Pieces<'_> {
    fn key(&self) -> Alias {
        Alias::new(&self.table.primary_key[0])
    }

    /// The rows of the piece that ends with a key.
    pub(crate) fn rows(&self, after: Option<&str>, last: &str) -> Cond {
        let key = || Expr::col(self.key());
        Cond::all()
            .add(self.condition.clone())
            .add_option(after.map(|after| key().gt(after)))
            .add(key().lte(last))
    }

    /// The last key of the next piece: as many keys as are within the bounds, and at least one.
    /// `None` if there is no row.
    pub(crate) async fn last_key(
        &self,
        tx: &mut Transaction,
        after: Option<&str>,
    ) -> Result<Option<String>, SqlError> {
        let texts = self
            .table
            .columns
            .iter()
            .filter(|column| column.kind == ColumnType::LongText);
        let source = UnitSource {
            name: &self.table.name,
            key: KeyColumn::named(self.table, &self.table.primary_key[..1]),
            has_single_rows: false,
            texts: texts.map(|column| column.name.as_str()).collect(),
            condition: self.condition.clone(),
        };
        let after = after.map(UnitKey::text);
        let page = UnitPage {
            after: after.as_ref(),
            last: None,
            most: MOST_KEYS,
            is_measured: true,
        };
        let query = select_units(&[source], page, tx.dialect());
        let mut last = None;
        let mut sum = 0;
        for row in tx.fetch(&query).await? {
            sum += row.unsigned(1)?;
            if last.is_some() && sum > MOST_BYTES {
                break;
            }
            last = row.text(0)?.map(str::to_owned);
        }
        Ok(last)
    }
}
