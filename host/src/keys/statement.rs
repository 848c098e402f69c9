//! The SQL of a rotation in each dialect: rows with a text that is not under the active key, counts
//! of texts by label, and the update of many rows. Owns the statements; identifiers come from the
//! layout and values are always bound.

use std::iter::repeat;

use bbs_database::bulk::{MOST_VALUES_SQLITE, rows_of_statement};
use bbs_database::{Dialect, Sql, sql};
use bbs_encryption::header::{HEADER_LENGTH, LabelPrefixes};
use bbs_lens::layout::values::Encoding;
use bbs_units::{UnitKey, within};
use sea_query::{
    Alias, ArrayType, Asterisk, CaseStatement, CommonTableExpression, Cond, Expr, ExprTrait, Func,
    FunctionCall, Order, SelectStatement, UpdateStatement, Value, Values,
};

use super::row::ResealedRow;
use super::tables::SealedTable;

fn column(name: &str) -> Expr {
    Expr::col(Alias::new(name))
}

/// A value in the text of the statement. Not for data.
fn literal(value: impl Into<Value>) -> Expr {
    Expr::Constant(value.into())
}

fn substr(text: Expr, length: impl Into<Expr>) -> FunctionCall {
    Func::cust("substr").args([text, literal(1), length.into()])
}

/// The first characters of a text. Compared as bytes, since base64 is case-sensitive and a
/// collation may not be.
fn prefix(dialect: Dialect, text: Expr, length: Expr) -> Expr {
    match dialect {
        Dialect::Sqlite | Dialect::Postgres => substr(text, length).into(),
        Dialect::Mysql => Func::cust("LEFT").args([text, length]).cast_as("BINARY"),
    }
}

fn has_prefix(dialect: Dialect, name: &str, prefixes: &LabelPrefixes) -> Expr {
    prefix(dialect, column(name), literal(prefixes.length as u64))
        .is_in(prefixes.texts.iter().map(String::as_str))
}

fn not_empty(dialect: Dialect, name: &str) -> Expr {
    // Not `<> ''`, which is false for blanks on MySQL.
    let length = if dialect == Dialect::Sqlite {
        "length"
    } else {
        "octet_length"
    };
    Func::cust(length).arg(column(name)).gt(literal(0))
}

/// Condition: the column has a text that is under none of these labels.
fn under_none(dialect: Dialect, name: &str, known: &[LabelPrefixes]) -> Expr {
    known
        .iter()
        .fold(not_empty(dialect, name), |none, prefixes| {
            none.and(has_prefix(dialect, name, prefixes).not())
        })
}

/// Condition: one of the columns has a text that is not under the active key.
fn is_stale(dialect: Dialect, table: &SealedTable, active: &LabelPrefixes) -> Cond {
    let stale = table
        .columns
        .iter()
        .map(|name| under_none(dialect, name, std::slice::from_ref(active)));
    stale.fold(Cond::any(), Cond::add)
}

/// Counts the rows with a text that is not under the active key.
pub(super) fn count_stale(
    dialect: Dialect,
    table: &SealedTable,
    active: &LabelPrefixes,
) -> SelectStatement {
    let mut query = SelectStatement::new();
    query
        .expr(Func::count(Expr::col(Asterisk)))
        .from(Alias::new(&table.name));
    query.cond_where(is_stale(dialect, table, active)).take()
}

/// Selects the next rows with a text that is not under the active key, in key order: key columns,
/// then texts.
pub(super) fn fetch_stale(
    dialect: Dialect,
    table: &SealedTable,
    active: &LabelPrefixes,
    after: Option<&UnitKey>,
    most: u64,
) -> SelectStatement {
    let mut query = SelectStatement::new();
    let key = || table.key.iter().map(|column| Alias::new(&column.name));
    query
        .columns(key())
        .columns(table.columns.iter().map(Alias::new))
        .from(Alias::new(&table.name));
    query.cond_where(is_stale(dialect, table, active));
    query.cond_where(within(&table.key, after, None, dialect));
    query
        .order_by_columns(key().map(|name| (name, Order::Asc)))
        .limit(most)
        .take()
}

/// Selects the sealed texts of the first or the last rows by primary key.
pub(super) fn fetch_end(table: &SealedTable, order: &Order, most: usize) -> SelectStatement {
    let key = table
        .key
        .iter()
        .map(|column| (Alias::new(&column.name), order.clone()));
    let mut query = SelectStatement::new();
    query
        .columns(table.columns.iter().map(Alias::new))
        .from(Alias::new(&table.name));
    query.order_by_columns(key).limit(most as u64).take()
}

/// Selects one row: for each column, the number of texts under each label, then the number of all
/// texts.
pub(super) fn count_labels(
    dialect: Dialect,
    table: &SealedTable,
    labels: &[LabelPrefixes],
) -> SelectStatement {
    let count = |condition: Expr| Func::count(CaseStatement::new().case(condition, literal(1)));
    let mut query = SelectStatement::new();
    for name in &table.columns {
        query.exprs(
            labels
                .iter()
                .map(|prefixes| count(has_prefix(dialect, name, prefixes))),
        );
        query.expr(count(not_empty(dialect, name)));
    }
    query.from(Alias::new(&table.name)).take()
}

/// Selects the headers of a column's texts that are under none of these labels.
pub(super) fn fetch_others(
    dialect: Dialect,
    table: &SealedTable,
    name: &str,
    known: &[LabelPrefixes],
) -> SelectStatement {
    let mut query = SelectStatement::new();
    query
        .expr(substr(column(name), literal(HEADER_LENGTH as u64)))
        .from(Alias::new(&table.name));
    query.and_where(under_none(dialect, name, known)).take()
}

/// Bounds the bytes bound to one statement.
const STATEMENT_BYTES: usize = 1 << 20;

/// Updates rows with their new texts, each only if the old text is unchanged, so that an API call's
/// write is kept.
pub(super) fn updates<'a>(
    dialect: Dialect,
    table: &'a SealedTable,
    rows: &'a [ResealedRow],
) -> Box<dyn Iterator<Item = UpdateStatement> + Send + 'a> {
    match dialect {
        // One array for each column, so that the statement is the same for any number of rows.
        Dialect::Postgres => Box::new(
            (!rows.is_empty())
                .then(|| update_many(dialect, table, rows))
                .into_iter(),
        ),
        Dialect::Sqlite => Box::new(
            portions(table, rows)
                .into_iter()
                .map(move |rows| update_many(dialect, table, rows)),
        ),
        // On MySQL, a derived table of many rows is slower than as many executions of one prepared
        // statement.
        Dialect::Mysql => Box::new(rows.iter().map(move |row| update_one(table, row))),
    }
}

/// The rows of each statement.
fn portions<'a>(table: &SealedTable, rows: &'a [ResealedRow]) -> Vec<&'a [ResealedRow]> {
    let most = MOST_VALUES_SQLITE / (table.key.len() + 2 * table.columns.len());
    let mut portions = Vec::new();
    let mut rest = rows;
    while !rest.is_empty() {
        let bytes = rest.iter().map(|row| {
            let changes = row.changes.iter().flatten();
            changes
                .map(|change| change.identity.len() + change.text.len())
                .sum()
        });
        let (portion, others) = rest.split_at(rows_of_statement(bytes, most, STATEMENT_BYTES));
        portions.push(portion);
        rest = others;
    }
    portions
}

/// PostgreSQL: makes the rest of the transaction find the rows of a join by index. The planner does
/// not know how many rows an array has.
pub(super) fn force_index_lookups() -> Sql {
    let settings = ["enable_hashjoin", "enable_mergejoin"];
    let set: Vec<_> = settings
        .map(|name| format!("set_config('{name}', 'off', true)"))
        .into();
    sql(format!("SELECT {}", set.join(", ")))
}

/// The name of the joined rows, in the statement, and of each joined column: `k` for key columns,
/// `o` for the prefix of the old text, `n` for the new text.
const JOINED: &str = "v";

fn joined(kind: char, at: usize) -> Expr {
    Expr::col((JOINED, format!("{kind}{at}")))
}

fn update_many(dialect: Dialect, table: &SealedTable, rows: &[ResealedRow]) -> UpdateStatement {
    let target = |name: &str| Expr::col((Alias::new(&table.name), Alias::new(name)));
    let mut update = UpdateStatement::new();
    update
        .with_cte(joined_rows(dialect, table, rows))
        .table(Alias::new(&table.name))
        .from(JOINED);
    for (at, column) in table.key.iter().enumerate() {
        // Text that is not UTF-8 is bound as a blob, and the list of values has no place for a
        // cast.
        let is_cast = dialect == Dialect::Sqlite && column.encoding == Encoding::Text;
        let part = if is_cast {
            joined('k', at).cast_as("TEXT")
        } else {
            joined('k', at)
        };
        update.and_where(target(&column.name).eq(part));
    }
    for (at, name) in table.columns.iter().enumerate() {
        let current = target(name);
        let old = joined('o', at);
        let new = joined('n', at);
        let text = CaseStatement::new()
            .case(new.clone().eq(literal("")), current.clone())
            .finally(new);
        update.value(Alias::new(name), text);
        let has_old = substr(current, Func::cust("length").arg(old.clone())).eq(old.clone());
        update.and_where(old.eq(literal("")).or(has_old));
    }
    update
}

/// The rows to join: as `VALUES` on SQLite; on PostgreSQL as one array for each column.
fn joined_rows(
    dialect: Dialect,
    table: &SealedTable,
    rows: &[ResealedRow],
) -> CommonTableExpression {
    let keys = (0..table.key.len()).map(|at| format!("k{at}"));
    let names: Vec<_> = keys
        .chain((0..table.columns.len()).flat_map(|at| [format!("o{at}"), format!("n{at}")]))
        .collect();
    let rows = rows.iter().map(|row| row_values(table, row));
    let mut joined = CommonTableExpression::new();
    if dialect == Dialect::Postgres {
        let encodings = table
            .key
            .iter()
            .map(|column| column.encoding)
            .chain(repeat(Encoding::Text));
        let mut rows: Vec<_> = rows.map(Vec::into_iter).collect();
        let arrays = encodings
            .take(names.len())
            .map(|encoding| array(encoding, rows.iter_mut().flat_map(Iterator::next)));
        let unnested = Func::cust("UNNEST").args(arrays);
        joined.query(
            SelectStatement::new()
                .column(Asterisk)
                .from_function(unnested, JOINED)
                .take(),
        );
    } else {
        joined.values(rows.map(Values).collect());
    }
    joined.table_name(JOINED).columns(names).to_owned()
}

/// Key, then the prefix of the old text and the new text of each column; both are empty for a text
/// that stays as it is.
fn row_values(table: &SealedTable, row: &ResealedRow) -> Vec<Value> {
    let texts = row.changes.iter().flat_map(|change| {
        change
            .as_ref()
            .map_or(["", ""], |change| [&change.identity, &change.text])
            .map(Value::from)
    });
    row.key.bound(&table.key).chain(texts).collect()
}

/// All values of a column have the encoding that they were read with.
fn array(encoding: Encoding, values: impl Iterator<Item = Value>) -> Expr {
    let (element, name) = match encoding {
        Encoding::Text => (ArrayType::String, "text[]"),
        Encoding::Integer => (ArrayType::BigInt, "bigint[]"),
        Encoding::Boolean => (ArrayType::Bool, "boolean[]"),
    };
    let values = values.map(|value| match value {
        // An array has one type. Text that is not UTF-8 becomes NULL, which equals no key.
        Value::Bytes(_) => Value::String(None),
        value => value,
    });
    Expr::val(Value::Array(element, Some(Box::new(values.collect())))).cast_as(name)
}

fn update_one(table: &SealedTable, row: &ResealedRow) -> UpdateStatement {
    let mut update = UpdateStatement::new();
    update.table(Alias::new(&table.name));
    for (key, value) in table.key.iter().zip(row.key.bound(&table.key)) {
        update.and_where(column(&key.name).eq(value));
    }
    for (name, change) in table.columns.iter().zip(&row.changes) {
        let Some(change) = change else { continue };
        let old = prefix(
            Dialect::Mysql,
            column(name),
            literal(change.identity.len() as u64),
        );
        update
            .value(Alias::new(name), change.text.as_str())
            .and_where(old.eq(change.identity.as_str()));
    }
    update
}

#[cfg(test)]
mod tests {
    use bbs_database::IntoStatement;
    use bbs_units::KeyColumn;

    use super::super::row::ResealedText;
    use super::*;

    const DIALECTS: [Dialect; 3] = [Dialect::Sqlite, Dialect::Postgres, Dialect::Mysql];

    fn table() -> SealedTable {
        let column = |name: &str, encoding| KeyColumn {
            name: name.to_owned(),
            encoding,
        };
        let key = vec![
            column("guid", Encoding::Text),
            column("slot", Encoding::Integer),
        ];
        SealedTable {
            name: "things".into(),
            key,
            columns: vec!["message".into(), "json".into()],
        }
    }

    fn row(text: &str) -> ResealedRow {
        let change = ResealedText {
            identity: "02old".into(),
            text: text.into(),
        };
        ResealedRow {
            key: UnitKey::from_json(r#"["g",1]"#, &table().key).unwrap(),
            changes: vec![Some(change), None],
        }
    }

    fn all_updates(dialect: Dialect, table: &SealedTable, rows: &[ResealedRow]) -> Vec<String> {
        updates(dialect, table, rows)
            .map(|statement| format!("{:?}", (&statement).into_statement(dialect)))
            .collect()
    }

    #[test]
    fn names_are_quoted_and_values_are_bound() {
        let mut odd = table();
        odd.name = "a\"b`c".into();
        for dialect in DIALECTS {
            let statement = &all_updates(dialect, &odd, &[row("02new")])[0];
            let quoted = if dialect == Dialect::Mysql {
                r#"`a\"b``c`"#
            } else {
                r#"\"a\"\"b`c\""#
            };
            assert!(statement.contains(quoted), "{statement}");
            let text = statement.split("values").next().unwrap();
            assert!(!text.contains("02new") && !text.contains("02old"), "{text}");
        }
    }

    #[test]
    fn every_row_is_in_exactly_one_portion() {
        let rows: Vec<_> = (0..700).map(|_| row("02new")).collect();
        let sizes: Vec<_> = portions(&table(), &rows)
            .iter()
            .map(|portion| portion.len())
            .collect();
        assert_eq!(sizes, [256, 256, 128, 32, 16, 8, 4]);
        let count = |dialect| all_updates(dialect, &table(), &rows).len();
        assert_eq!(DIALECTS.map(count), [7, 1, 700]);
        assert!(
            DIALECTS
                .into_iter()
                .all(|dialect| all_updates(dialect, &table(), &[]).is_empty())
        );
    }

    #[test]
    fn large_row_gets_a_statement_of_its_own() {
        let large = "x".repeat(STATEMENT_BYTES);
        let rows = [row("02new"), row(&large), row(&large), row("02new")];
        assert!(
            portions(&table(), &rows)
                .iter()
                .all(|portion| portion.len() == 1)
        );
    }
}
