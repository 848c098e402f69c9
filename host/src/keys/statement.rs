//! What is asked of the database, in each dialect's words: which rows have a text that is not under the active key,
//! how many texts there are under each label, and many rows rewritten at once. Owns the statements; names in them come
//! from the layout and values are always bound.

use sea_query::Value;

use super::row::{Part, Resealed, RowKey};
use super::tables::SealedTable;
use crate::database::{Dialect, Sql, sql};
use crate::layout::values::Encoding;
use crate::record::header::{Beginnings, HEADER_LENGTH};

/// A statement under construction: text and its values, in step.
#[derive(Default)]
struct Words {
    text: String,
    values: Vec<Value>,
}

impl Words {
    fn add(&mut self, text: impl AsRef<str>) -> &mut Self {
        self.text.push_str(text.as_ref());
        self
    }

    fn bind(&mut self, value: impl Into<Value>) -> &mut Self {
        self.text.push('?');
        self.values.push(value.into());
        self
    }

    /// Parts with something between them.
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

/// Whether a text begins in one of these ways. Base64 tells capitals from small letters, collations may not.
fn begins(words: &mut Words, dialect: Dialect, column: &str, beginnings: &Beginnings) {
    let column = quoted(dialect, column);
    match dialect {
        Dialect::Sqlite | Dialect::Postgres => words.add(format!("substr({column}, 1, {})", beginnings.length)),
        Dialect::Mysql => words.add(format!("CAST(LEFT({column}, {}) AS BINARY)", beginnings.length)),
    };
    words.add(" IN (");
    words.list(", ", &beginnings.texts, |words, text| {
        words.bind(text.as_str());
    });
    words.add(")");
}

fn not_empty(words: &mut Words, dialect: Dialect, column: &str) {
    // Not `<> ''`, which MySQL says of blanks too.
    let length = if dialect == Dialect::Sqlite { "length" } else { "octet_length" };
    words.add(format!("{length}({}) > 0", quoted(dialect, column)));
}

/// Whether a row has a text that is under none of these labels.
fn any_under_none(words: &mut Words, dialect: Dialect, columns: &[String], known: &[Beginnings]) {
    words.add("(").list(" OR ", columns, |words, column| under_none(words, dialect, column, known)).add(")");
}

fn under_none(words: &mut Words, dialect: Dialect, column: &str, known: &[Beginnings]) {
    words.add("(");
    not_empty(words, dialect, column);
    for beginnings in known {
        words.add(" AND NOT ");
        begins(words, dialect, column, beginnings);
    }
    words.add(")");
}

/// How many rows have a text that is not under the active key.
pub(super) fn count_stale(dialect: Dialect, table: &SealedTable, active: &Beginnings) -> Sql {
    let mut words = Words::default();
    words.add(format!("SELECT COUNT(*) FROM {} WHERE ", quoted(dialect, &table.name)));
    any_under_none(&mut words, dialect, &table.columns, std::slice::from_ref(active));
    words.finish()
}

/// The next rows, in the order of the key, of which a text is not under the active key: key first, then texts.
pub(super) fn fetch_stale(
    dialect: Dialect,
    table: &SealedTable,
    active: &Beginnings,
    after: Option<&RowKey>,
    most: usize,
) -> Sql {
    let key: Vec<_> = table.key.iter().map(|column| quoted(dialect, &column.name)).collect();
    let columns = table.columns.iter().map(|column| quoted(dialect, column));
    let selected: Vec<_> = key.iter().cloned().chain(columns).collect();
    let mut words = Words::default();
    words.add(format!("SELECT {} FROM {} WHERE ", selected.join(", "), quoted(dialect, &table.name)));
    any_under_none(&mut words, dialect, &table.columns, std::slice::from_ref(active));
    if let Some(after) = after {
        words.add(" AND ");
        is_after(&mut words, dialect, &key, &after.0);
    }
    words.add(format!(" ORDER BY {} LIMIT {most}", key.join(", ")));
    words.finish()
}

/// The sealed texts of the first rows by the primary key, or of the last.
pub(super) fn fetch_end(dialect: Dialect, table: &SealedTable, is_first: bool, most: usize) -> Sql {
    let columns: Vec<_> = table.columns.iter().map(|column| quoted(dialect, column)).collect();
    let order = if is_first { "ASC" } else { "DESC" };
    let key: Vec<_> = table.key.iter().map(|column| format!("{} {order}", quoted(dialect, &column.name))).collect();
    let name = quoted(dialect, &table.name);
    sql(format!("SELECT {} FROM {name} ORDER BY {} LIMIT {most}", columns.join(", "), key.join(", ")))
}

/// `(a, b) > (x, y)`. MySQL finds its way by an index only where that is written out.
fn is_after(words: &mut Words, dialect: Dialect, key: &[String], after: &[Part]) {
    if dialect != Dialect::Mysql {
        words.add(format!("({}) > (", key.join(", ")));
        words.list(", ", after, |words, part| bind_part(words, dialect, part)).add(")");
        return;
    }
    let (Some((column, columns)), Some((part, parts))) = (key.split_first(), after.split_first()) else { return };
    words.add(format!("({column} > "));
    bind_part(words, dialect, part);
    if !columns.is_empty() {
        words.add(format!(" OR ({column} = "));
        bind_part(words, dialect, part);
        words.add(" AND ");
        is_after(words, dialect, columns, parts);
        words.add(")");
    }
    words.add(")");
}

fn bind_part(words: &mut Words, dialect: Dialect, part: &Part) {
    match part {
        Part::Flag(flag) => words.bind(*flag),
        Part::Number(number) => words.bind(*number),
        Part::Text(bytes) => match String::from_utf8(bytes.clone()) {
            Ok(text) => words.bind(text),
            // Only SQLite keeps such a text; as bytes it would equal nothing.
            Err(bytes) if dialect == Dialect::Sqlite => words.add("CAST(").bind(bytes.into_bytes()).add(" AS TEXT)"),
            Err(bytes) => words.bind(bytes.into_bytes()),
        },
    };
}

/// One row: for each column, how many texts are under each label and how many there are.
pub(super) fn count_labels(dialect: Dialect, table: &SealedTable, labels: &[Beginnings]) -> Sql {
    let mut words = Words::default();
    words.add("SELECT ");
    words.list(", ", &table.columns, |words, column| {
        for beginnings in labels {
            words.add("COUNT(CASE WHEN ");
            begins(words, dialect, column, beginnings);
            words.add(" THEN 1 END), ");
        }
        words.add("COUNT(CASE WHEN ");
        not_empty(words, dialect, column);
        words.add(" THEN 1 END)");
    });
    words.add(format!(" FROM {}", quoted(dialect, &table.name)));
    words.finish()
}

/// The beginnings of a column's texts that are under none of these labels.
pub(super) fn fetch_others(dialect: Dialect, table: &SealedTable, column: &str, known: &[Beginnings]) -> Sql {
    let mut words = Words::default();
    let (name, text) = (quoted(dialect, &table.name), quoted(dialect, column));
    words.add(format!("SELECT substr({text}, 1, {HEADER_LENGTH}) FROM {name} WHERE "));
    under_none(&mut words, dialect, column, known);
    words.finish()
}

/// The most values in one statement of SQLite's.
const MOST_VALUES: usize = 32_766;
const MOST_ROWS: usize = 256;
/// Bounds what is bound at once.
const STATEMENT_BYTES: usize = 1 << 20;

/// Gives rows their new texts, each only where the old one still is: what was written meanwhile stays.
pub(super) fn updates<'a>(
    dialect: Dialect,
    table: &'a SealedTable,
    rows: &'a [Resealed],
) -> Box<dyn Iterator<Item = Sql> + Send + 'a> {
    match dialect {
        // An array a column: the statement is the same for any number of rows.
        Dialect::Postgres => Box::new((!rows.is_empty()).then(|| update_many(dialect, table, rows)).into_iter()),
        Dialect::Sqlite => {
            Box::new(portions(table, rows).into_iter().map(move |rows| update_many(dialect, table, rows)))
        }
        // A derived table of many rows costs it more than as many statements that are prepared once.
        Dialect::Mysql => Box::new(rows.iter().map(move |row| update_one(dialect, table, row))),
    }
}

/// The number of rows is part of the text, so it is a power of two: few different statements have to be prepared.
fn portions<'a>(table: &SealedTable, rows: &'a [Resealed]) -> Vec<&'a [Resealed]> {
    let most = (MOST_VALUES / (table.key.len() + 2 * table.columns.len())).clamp(1, MOST_ROWS);
    let (mut portions, mut rest) = (Vec::new(), rows);
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |row: &&Resealed| {
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

/// For the rest of a transaction on PostgreSQL: rows are found by their key, and nothing is compiled first. Its planner
/// does not know how many rows an array has, and without statistics a table may look small enough to be read whole.
pub(super) fn by_index() -> Sql {
    let settings = ["enable_hashjoin", "enable_mergejoin", "enable_seqscan", "jit"];
    let set: Vec<_> = settings.map(|name| format!("set_config('{name}', 'off', true)")).into();
    sql(format!("SELECT {}", set.join(", ")))
}

fn update_many(dialect: Dialect, table: &SealedTable, rows: &[Resealed]) -> Sql {
    let quote = |name: &str| quoted(dialect, name);
    let target = quote(&table.name);
    let mut words = Words::default();
    words.add(format!("UPDATE {target} SET "));
    words.list(", ", table.columns.iter().enumerate(), |words, (at, column)| {
        let column = quote(column);
        words.add(format!("{column} = CASE WHEN v.n{at} = '' THEN {target}.{column} ELSE v.n{at} END"));
    });
    words.add(" FROM ");
    if dialect == Dialect::Postgres {
        unnested(&mut words, table, rows)
    } else {
        listed(&mut words, table, rows)
    }
    words.add(" WHERE ");
    match_rows(&mut words, dialect, &target, table);
    words.finish()
}

/// Of the columns that are joined: `k` for the key, `o` for how the old text begins, `n` for the new one.
fn names(table: &SealedTable) -> Vec<String> {
    let keys = (0..table.key.len()).map(|at| format!("k{at}"));
    keys.chain((0..table.columns.len()).flat_map(|at| [format!("o{at}"), format!("n{at}")])).collect()
}

fn match_rows(words: &mut Words, dialect: Dialect, target: &str, table: &SealedTable) {
    words.list(" AND ", table.key.iter().enumerate(), |words, (at, column)| {
        words.add(format!("{target}.{} = v.k{at}", quoted(dialect, &column.name)));
    });
    for (at, column) in table.columns.iter().enumerate() {
        let column = format!("{target}.{}", quoted(dialect, column));
        words.add(format!(" AND (v.o{at} = '' OR substr({column}, 1, length(v.o{at})) = v.o{at})"));
    }
}

/// PostgreSQL: an array a column.
fn unnested(words: &mut Words, table: &SealedTable, rows: &[Resealed]) {
    words.add("UNNEST(");
    words.list(", ", table.key.iter().enumerate(), |words, (at, column)| {
        let parts = rows.iter().map(|row| &row.key.0[at]);
        match column.encoding {
            Encoding::Text => words.bind(parts.map(as_text).collect::<Vec<_>>()).add("::text[]"),
            Encoding::Integer => words.bind(parts.map(as_number).collect::<Vec<_>>()).add("::bigint[]"),
            Encoding::Boolean => {
                words.bind(parts.map(|part| *part == Part::Flag(true)).collect::<Vec<_>>()).add("::boolean[]")
            }
        };
    });
    for at in 0..table.columns.len() {
        let changes = rows.iter().map(|row| row.changes[at].as_ref());
        let (old, new): (Vec<_>, Vec<_>) = changes
            .map(|change| change.map_or_else(Default::default, |change| (change.identity.clone(), change.text.clone())))
            .unzip();
        words.add(", ").bind(old).add("::text[], ").bind(new).add("::text[]");
    }
    words.add(format!(") AS v({})", names(table).join(", ")));
}

/// A column's values are of one encoding, which the parts were read with.
fn as_text(part: &Part) -> String {
    match part {
        Part::Text(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Part::Flag(_) | Part::Number(_) => unreachable!("read as text"),
    }
}

fn as_number(part: &Part) -> i64 {
    match part {
        Part::Number(number) => *number,
        Part::Flag(_) | Part::Text(_) => unreachable!("read as a number"),
    }
}

/// SQLite: a list of rows.
fn listed(words: &mut Words, table: &SealedTable, rows: &[Resealed]) {
    let named = names(table).into_iter().enumerate().map(|(at, name)| format!("column{} AS {name}", at + 1));
    words.add(format!("(SELECT {} FROM (VALUES ", named.collect::<Vec<_>>().join(", ")));
    words.list(", ", rows, |words, row| {
        words.add("(");
        bind_row(words, Dialect::Sqlite, row);
        words.add(")");
    });
    words.add(")) AS v");
}

fn update_one(dialect: Dialect, table: &SealedTable, row: &Resealed) -> Sql {
    let columns = table.columns.iter().map(|column| quoted(dialect, column));
    let changes: Vec<_> =
        columns.zip(&row.changes).filter_map(|(name, change)| Some((name, change.as_ref()?))).collect();
    let mut words = Words::default();
    words.add(format!("UPDATE {} SET ", quoted(dialect, &table.name)));
    words.list(", ", &changes, |words, (name, change)| {
        words.add(format!("{name} = ")).bind(change.text.as_str());
    });
    words.add(" WHERE ");
    words.list(" AND ", table.key.iter().zip(&row.key.0), |words, (column, part)| {
        words.add(format!("{} = ", quoted(dialect, &column.name)));
        bind_part(words, dialect, part);
    });
    for (name, change) in &changes {
        words.add(format!(" AND CAST(LEFT({name}, {}) AS BINARY) = ", change.identity.len()));
        words.bind(change.identity.as_str());
    }
    words.finish()
}

fn bind_row(words: &mut Words, dialect: Dialect, row: &Resealed) {
    words.list(", ", &row.key.0, |words, part| bind_part(words, dialect, part));
    for change in &row.changes {
        let (old, new) = change.as_ref().map_or(("", ""), |change| (&change.identity, &change.text));
        words.add(", ").bind(old).add(", ").bind(new);
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::Change;
    use super::super::tables::KeyColumn;
    use super::*;

    const DIALECTS: [Dialect; 3] = [Dialect::Sqlite, Dialect::Postgres, Dialect::Mysql];

    fn table() -> SealedTable {
        let column = |name: &str, encoding| KeyColumn { name: name.to_owned(), encoding };
        let key = vec![column("guid", Encoding::Text), column("slot", Encoding::Integer)];
        SealedTable { name: "things".into(), key, columns: vec!["message".into(), "json".into()] }
    }

    fn row(text: &str) -> Resealed {
        let change = Change { identity: "02old".into(), text: text.into() };
        Resealed { key: RowKey(vec![Part::Text(b"g".to_vec()), Part::Number(1)]), changes: vec![Some(change), None] }
    }

    /// A statement has as many places as values, in every dialect, or the database refuses it.
    fn all_updates(dialect: Dialect, table: &SealedTable, rows: &[Resealed]) -> Vec<String> {
        updates(dialect, table, rows).map(|statement| format!("{statement:?}")).collect()
    }

    #[test]
    fn names_are_quoted_and_no_value_is_in_the_text() {
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
    fn no_row_is_lost_whatever_goes_together() {
        let rows: Vec<_> = (0..700).map(|_| row("02new")).collect();
        let sizes: Vec<_> = portions(&table(), &rows).iter().map(|portion| portion.len()).collect();
        assert_eq!(sizes, [256, 256, 128, 32, 16, 8, 4]);
        let count = |dialect| all_updates(dialect, &table(), &rows).len();
        assert_eq!(DIALECTS.map(count), [7, 1, 700]);
        assert!(DIALECTS.into_iter().all(|dialect| all_updates(dialect, &table(), &[]).is_empty()));
    }

    #[test]
    fn a_large_row_goes_alone() {
        let large = "x".repeat(STATEMENT_BYTES);
        let rows = [row("02new"), row(&large), row(&large), row("02new")];
        assert!(portions(&table(), &rows).iter().all(|portion| portion.len() == 1));
    }
}
