//! The SQL of a rotation in each dialect: rows with a text that is not under the active key, counts of texts by label, and
//! the update of many rows. Owns the statements; identifiers come from the layout and values are always bound.

use sea_query::Value;

use super::row::{ResealedRow, RowKey, RowKeyPart};
use super::tables::SealedTable;
use crate::database::{Dialect, Sql, sql};
use crate::encryption::header::{HEADER_LENGTH, LabelPrefixes};
use crate::layout::values::Encoding;

/// A statement under construction. Each `?` of the text has its value at the same position.
#[derive(Default)]
struct SqlBuilder {
    text: String,
    values: Vec<Value>,
}

impl SqlBuilder {
    fn add(&mut self, text: impl AsRef<str>) -> &mut Self {
        self.text.push_str(text.as_ref());
        self
    }

    fn bind(&mut self, value: impl Into<Value>) -> &mut Self {
        self.text.push('?');
        self.values.push(value.into());
        self
    }

    /// Appends parts with a separator.
    fn list<T>(
        &mut self,
        between: &str,
        parts: impl IntoIterator<Item = T>,
        mut add: impl FnMut(&mut Self, T),
    ) -> &mut Self {
        for (at, part) in parts.into_iter().enumerate() {
            if at > 0 {
                self.add(between);
            }
            add(self, part);
        }
        self
    }

    fn finish(self) -> Sql {
        self.values.into_iter().fold(sql(self.text), Sql::bind)
    }
}

pub(super) fn quoted(dialect: Dialect, name: &str) -> String {
    match dialect {
        Dialect::Sqlite | Dialect::Postgres => format!("\"{}\"", name.replace('"', "\"\"")),
        Dialect::Mysql => format!("`{}`", name.replace('`', "``")),
    }
}

/// Condition: the column has one of these prefixes. Compared as bytes, since base64 is case-sensitive and a collation may
/// not be.
fn has_prefix(query: &mut SqlBuilder, dialect: Dialect, column: &str, prefixes: &LabelPrefixes) {
    let column = quoted(dialect, column);
    match dialect {
        Dialect::Sqlite | Dialect::Postgres => query.add(format!("substr({column}, 1, {})", prefixes.length)),
        Dialect::Mysql => query.add(format!("CAST(LEFT({column}, {}) AS BINARY)", prefixes.length)),
    };
    query.add(" IN (");
    query.list(", ", &prefixes.texts, |query, text| {
        query.bind(text.as_str());
    });
    query.add(")");
}

fn not_empty(query: &mut SqlBuilder, dialect: Dialect, column: &str) {
    // Not `<> ''`, which is false for blanks on MySQL.
    let length = if dialect == Dialect::Sqlite { "length" } else { "octet_length" };
    query.add(format!("{length}({}) > 0", quoted(dialect, column)));
}

/// Condition: one of the columns has a text that is under none of these labels.
fn any_under_none(query: &mut SqlBuilder, dialect: Dialect, columns: &[String], known: &[LabelPrefixes]) {
    query.add("(").list(" OR ", columns, |query, column| under_none(query, dialect, column, known)).add(")");
}

fn under_none(query: &mut SqlBuilder, dialect: Dialect, column: &str, known: &[LabelPrefixes]) {
    query.add("(");
    not_empty(query, dialect, column);
    for prefixes in known {
        query.add(" AND NOT ");
        has_prefix(query, dialect, column, prefixes);
    }
    query.add(")");
}

/// Counts the rows with a text that is not under the active key.
pub(super) fn count_stale(dialect: Dialect, table: &SealedTable, active: &LabelPrefixes) -> Sql {
    let mut query = SqlBuilder::default();
    query.add(format!("SELECT COUNT(*) FROM {} WHERE ", quoted(dialect, &table.name)));
    any_under_none(&mut query, dialect, &table.columns, std::slice::from_ref(active));
    query.finish()
}

/// Selects the next rows with a text that is not under the active key, in key order: key columns, then texts.
pub(super) fn fetch_stale(
    dialect: Dialect,
    table: &SealedTable,
    active: &LabelPrefixes,
    after: Option<&RowKey>,
    most: usize,
) -> Sql {
    let key: Vec<_> = table.key.iter().map(|column| quoted(dialect, &column.name)).collect();
    let columns = table.columns.iter().map(|column| quoted(dialect, column));
    let selected: Vec<_> = key.iter().cloned().chain(columns).collect();
    let mut query = SqlBuilder::default();
    query.add(format!("SELECT {} FROM {} WHERE ", selected.join(", "), quoted(dialect, &table.name)));
    any_under_none(&mut query, dialect, &table.columns, std::slice::from_ref(active));
    if let Some(after) = after {
        query.add(" AND ");
        is_after(&mut query, dialect, &key, &after.0);
    }
    query.add(format!(" ORDER BY {} LIMIT {most}", key.join(", ")));
    query.finish()
}

/// Selects the sealed texts of the first or the last rows by primary key.
pub(super) fn fetch_end(dialect: Dialect, table: &SealedTable, is_first: bool, most: usize) -> Sql {
    let columns: Vec<_> = table.columns.iter().map(|column| quoted(dialect, column)).collect();
    let order = if is_first { "ASC" } else { "DESC" };
    let key: Vec<_> = table.key.iter().map(|column| format!("{} {order}", quoted(dialect, &column.name))).collect();
    let name = quoted(dialect, &table.name);
    sql(format!("SELECT {} FROM {name} ORDER BY {} LIMIT {most}", columns.join(", "), key.join(", ")))
}

/// Condition: `(a, b) > (x, y)`. Expanded for MySQL, which does not use an index for the row comparison.
fn is_after(query: &mut SqlBuilder, dialect: Dialect, key: &[String], after: &[RowKeyPart]) {
    if dialect != Dialect::Mysql {
        query.add(format!("({}) > (", key.join(", ")));
        query.list(", ", after, |query, part| bind_part(query, dialect, part)).add(")");
        return;
    }
    let (Some((column, columns)), Some((part, parts))) = (key.split_first(), after.split_first()) else { return };
    query.add(format!("({column} > "));
    bind_part(query, dialect, part);
    if !columns.is_empty() {
        query.add(format!(" OR ({column} = "));
        bind_part(query, dialect, part);
        query.add(" AND ");
        is_after(query, dialect, columns, parts);
        query.add(")");
    }
    query.add(")");
}

fn bind_part(query: &mut SqlBuilder, dialect: Dialect, part: &RowKeyPart) {
    match part {
        RowKeyPart::Flag(flag) => query.bind(*flag),
        RowKeyPart::Number(number) => query.bind(*number),
        RowKeyPart::Text(bytes) => match String::from_utf8(bytes.clone()) {
            Ok(text) => query.bind(text),
            // Only SQLite stores text that is not UTF-8; bound as a blob it would equal no text.
            Err(bytes) if dialect == Dialect::Sqlite => query.add("CAST(").bind(bytes.into_bytes()).add(" AS TEXT)"),
            Err(bytes) => query.bind(bytes.into_bytes()),
        },
    };
}

/// Selects one row: for each column, the number of texts under each label, then the number of all texts.
pub(super) fn count_labels(dialect: Dialect, table: &SealedTable, labels: &[LabelPrefixes]) -> Sql {
    let mut query = SqlBuilder::default();
    query.add("SELECT ");
    query.list(", ", &table.columns, |query, column| {
        for prefixes in labels {
            query.add("COUNT(CASE WHEN ");
            has_prefix(query, dialect, column, prefixes);
            query.add(" THEN 1 END), ");
        }
        query.add("COUNT(CASE WHEN ");
        not_empty(query, dialect, column);
        query.add(" THEN 1 END)");
    });
    query.add(format!(" FROM {}", quoted(dialect, &table.name)));
    query.finish()
}

/// Selects the headers of a column's texts that are under none of these labels.
pub(super) fn fetch_others(dialect: Dialect, table: &SealedTable, column: &str, known: &[LabelPrefixes]) -> Sql {
    let mut query = SqlBuilder::default();
    let (name, text) = (quoted(dialect, &table.name), quoted(dialect, column));
    query.add(format!("SELECT substr({text}, 1, {HEADER_LENGTH}) FROM {name} WHERE "));
    under_none(&mut query, dialect, column, known);
    query.finish()
}

/// SQLite's limit of bound values in a statement.
const MOST_VALUES: usize = 32_766;
const MOST_ROWS: usize = 256;
/// Bounds the bytes bound to one statement.
const STATEMENT_BYTES: usize = 1 << 20;

/// Updates rows with their new texts, each only if the old text is unchanged, so that an API call's write is kept.
pub(super) fn updates<'a>(
    dialect: Dialect,
    table: &'a SealedTable,
    rows: &'a [ResealedRow],
) -> Box<dyn Iterator<Item = Sql> + Send + 'a> {
    match dialect {
        // One array for each column, so that the statement is the same for any number of rows.
        Dialect::Postgres => Box::new((!rows.is_empty()).then(|| update_many(dialect, table, rows)).into_iter()),
        Dialect::Sqlite => {
            Box::new(portions(table, rows).into_iter().map(move |rows| update_many(dialect, table, rows)))
        }
        // On MySQL, a derived table of many rows is slower than as many executions of one prepared statement.
        Dialect::Mysql => Box::new(rows.iter().map(move |row| update_one(dialect, table, row))),
    }
}

/// Splits rows into portions of a power of two: the number of rows is part of the statement's text, so that few different
/// statements have to be prepared.
fn portions<'a>(table: &SealedTable, rows: &'a [ResealedRow]) -> Vec<&'a [ResealedRow]> {
    let most = (MOST_VALUES / (table.key.len() + 2 * table.columns.len())).clamp(1, MOST_ROWS);
    let (mut portions, mut rest) = (Vec::new(), rows);
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |row: &&ResealedRow| {
            bytes +=
                row.changes.iter().flatten().map(|change| change.identity.len() + change.text.len()).sum::<usize>();
            bytes <= STATEMENT_BYTES
        };
        let fitting = rest.iter().take(most).take_while(fits).count().max(1);
        let (portion, others) = rest.split_at(1 << fitting.ilog2());
        portions.push(portion);
        rest = others;
    }
    portions
}

/// PostgreSQL: makes the rest of the transaction find rows by index, without JIT compilation. The planner does not know how
/// many rows an array has, and without statistics it may estimate a table as small enough for a sequential scan.
pub(super) fn force_index_lookups() -> Sql {
    let settings = ["enable_hashjoin", "enable_mergejoin", "enable_seqscan", "jit"];
    let set: Vec<_> = settings.map(|name| format!("set_config('{name}', 'off', true)")).into();
    sql(format!("SELECT {}", set.join(", ")))
}

fn update_many(dialect: Dialect, table: &SealedTable, rows: &[ResealedRow]) -> Sql {
    let quote = |name: &str| quoted(dialect, name);
    let target = quote(&table.name);
    let mut query = SqlBuilder::default();
    query.add(format!("UPDATE {target} SET "));
    query.list(", ", table.columns.iter().enumerate(), |query, (at, column)| {
        let column = quote(column);
        query.add(format!("{column} = CASE WHEN v.n{at} = '' THEN {target}.{column} ELSE v.n{at} END"));
    });
    query.add(" FROM ");
    if dialect == Dialect::Postgres {
        unnested(&mut query, table, rows)
    } else {
        listed(&mut query, table, rows)
    }
    query.add(" WHERE ");
    match_rows(&mut query, dialect, &target, table);
    query.finish()
}

/// The names of the joined columns: `k` for key columns, `o` for the prefix of the old text, `n` for the new text.
fn names(table: &SealedTable) -> Vec<String> {
    let keys = (0..table.key.len()).map(|at| format!("k{at}"));
    keys.chain((0..table.columns.len()).flat_map(|at| [format!("o{at}"), format!("n{at}")])).collect()
}

fn match_rows(query: &mut SqlBuilder, dialect: Dialect, target: &str, table: &SealedTable) {
    query.list(" AND ", table.key.iter().enumerate(), |query, (at, column)| {
        query.add(format!("{target}.{} = v.k{at}", quoted(dialect, &column.name)));
    });
    for (at, column) in table.columns.iter().enumerate() {
        let column = format!("{target}.{}", quoted(dialect, column));
        query.add(format!(" AND (v.o{at} = '' OR substr({column}, 1, length(v.o{at})) = v.o{at})"));
    }
}

/// PostgreSQL: rows as one array for each column.
fn unnested(query: &mut SqlBuilder, table: &SealedTable, rows: &[ResealedRow]) {
    query.add("UNNEST(");
    query.list(", ", table.key.iter().enumerate(), |query, (at, column)| {
        let parts = rows.iter().map(|row| &row.key.0[at]);
        match column.encoding {
            Encoding::Text => query.bind(parts.map(as_text).collect::<Vec<_>>()).add("::text[]"),
            Encoding::Integer => query.bind(parts.map(as_number).collect::<Vec<_>>()).add("::bigint[]"),
            Encoding::Boolean => {
                query.bind(parts.map(|part| *part == RowKeyPart::Flag(true)).collect::<Vec<_>>()).add("::boolean[]")
            }
        };
    });
    for at in 0..table.columns.len() {
        let changes = rows.iter().map(|row| row.changes[at].as_ref());
        let (old, new): (Vec<_>, Vec<_>) = changes
            .map(|change| change.map_or_else(Default::default, |change| (change.identity.clone(), change.text.clone())))
            .unzip();
        query.add(", ").bind(old).add("::text[], ").bind(new).add("::text[]");
    }
    query.add(format!(") AS v({})", names(table).join(", ")));
}

/// All values of a column have the encoding that they were read with.
fn as_text(part: &RowKeyPart) -> String {
    match part {
        RowKeyPart::Text(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        RowKeyPart::Flag(_) | RowKeyPart::Number(_) => unreachable!("read as text"),
    }
}

fn as_number(part: &RowKeyPart) -> i64 {
    match part {
        RowKeyPart::Number(number) => *number,
        RowKeyPart::Flag(_) | RowKeyPart::Text(_) => unreachable!("read as a number"),
    }
}

/// SQLite: rows as `VALUES`.
fn listed(query: &mut SqlBuilder, table: &SealedTable, rows: &[ResealedRow]) {
    let named = names(table).into_iter().enumerate().map(|(at, name)| format!("column{} AS {name}", at + 1));
    query.add(format!("(SELECT {} FROM (VALUES ", named.collect::<Vec<_>>().join(", ")));
    query.list(", ", rows, |query, row| {
        query.add("(");
        bind_row(query, Dialect::Sqlite, row);
        query.add(")");
    });
    query.add(")) AS v");
}

fn update_one(dialect: Dialect, table: &SealedTable, row: &ResealedRow) -> Sql {
    let columns = table.columns.iter().map(|column| quoted(dialect, column));
    let changes: Vec<_> =
        columns.zip(&row.changes).filter_map(|(name, change)| Some((name, change.as_ref()?))).collect();
    let mut query = SqlBuilder::default();
    query.add(format!("UPDATE {} SET ", quoted(dialect, &table.name)));
    query.list(", ", &changes, |query, (name, change)| {
        query.add(format!("{name} = ")).bind(change.text.as_str());
    });
    query.add(" WHERE ");
    query.list(" AND ", table.key.iter().zip(&row.key.0), |query, (column, part)| {
        query.add(format!("{} = ", quoted(dialect, &column.name)));
        bind_part(query, dialect, part);
    });
    for (name, change) in &changes {
        query.add(format!(" AND CAST(LEFT({name}, {}) AS BINARY) = ", change.identity.len()));
        query.bind(change.identity.as_str());
    }
    query.finish()
}

fn bind_row(query: &mut SqlBuilder, dialect: Dialect, row: &ResealedRow) {
    query.list(", ", &row.key.0, |query, part| bind_part(query, dialect, part));
    for change in &row.changes {
        let (old, new) = change.as_ref().map_or(("", ""), |change| (&change.identity, &change.text));
        query.add(", ").bind(old).add(", ").bind(new);
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::ResealedText;
    use super::super::tables::KeyColumn;
    use super::*;

    const DIALECTS: [Dialect; 3] = [Dialect::Sqlite, Dialect::Postgres, Dialect::Mysql];

    fn table() -> SealedTable {
        let column = |name: &str, encoding| KeyColumn { name: name.to_owned(), encoding };
        let key = vec![column("guid", Encoding::Text), column("slot", Encoding::Integer)];
        SealedTable { name: "things".into(), key, columns: vec!["message".into(), "json".into()] }
    }

    fn row(text: &str) -> ResealedRow {
        let change = ResealedText { identity: "02old".into(), text: text.into() };
        ResealedRow {
            key: RowKey(vec![RowKeyPart::Text(b"g".to_vec()), RowKeyPart::Number(1)]),
            changes: vec![Some(change), None],
        }
    }

    fn all_updates(dialect: Dialect, table: &SealedTable, rows: &[ResealedRow]) -> Vec<String> {
        updates(dialect, table, rows).map(|statement| format!("{statement:?}")).collect()
    }

    #[test]
    fn names_are_quoted_and_values_are_bound() {
        let mut odd = table();
        odd.name = "a\"b`c".into();
        for dialect in DIALECTS {
            let statement = &all_updates(dialect, &odd, &[row("02new")])[0];
            let quoted = if dialect == Dialect::Mysql { r#"`a\"b``c`"# } else { r#"\"a\"\"b`c\""# };
            assert!(statement.contains(quoted), "{statement}");
            let text = statement.split("values").next().unwrap();
            assert!(!text.contains("02new") && !text.contains("02old"), "{text}");
        }
    }

    #[test]
    fn every_row_is_in_exactly_one_portion() {
        let rows: Vec<_> = (0..700).map(|_| row("02new")).collect();
        let sizes: Vec<_> = portions(&table(), &rows).iter().map(|portion| portion.len()).collect();
        assert_eq!(sizes, [256, 256, 128, 32, 16, 8, 4]);
        let count = |dialect| all_updates(dialect, &table(), &rows).len();
        assert_eq!(DIALECTS.map(count), [7, 1, 700]);
        assert!(DIALECTS.into_iter().all(|dialect| all_updates(dialect, &table(), &[]).is_empty()));
    }

    #[test]
    fn large_row_gets_a_statement_of_its_own() {
        let large = "x".repeat(STATEMENT_BYTES);
        let rows = [row("02new"), row(&large), row(&large), row("02new")];
        assert!(portions(&table(), &rows).iter().all(|portion| portion.len() == 1));
    }
}
