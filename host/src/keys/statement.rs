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
/// Well below the smallest `max_allowed_packet` that anybody runs with.
const STATEMENT_BYTES: usize = 1 << 20;

/// The rows as [`update`] takes them. Where the number of rows is part of the text it is a power of two, so that few
/// different statements ever have to be prepared.
pub(super) fn portions<'a>(dialect: Dialect, table: &SealedTable, rows: &'a [Resealed]) -> Vec<&'a [Resealed]> {
    if dialect == Dialect::Postgres {
        return if rows.is_empty() { Vec::new() } else { vec![rows] };
    }
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

/// For the rest of a transaction on PostgreSQL: rows are found by their key. Its planner does not know how many rows
/// an array has, and without statistics a table may look small enough to be read whole.
pub(super) fn by_index() -> Sql {
    sql("SELECT set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true), \
         set_config('enable_seqscan', 'off', true)")
}

/// Gives rows their new texts, each only where the old one still is: what was written meanwhile stays.
pub(super) fn update(dialect: Dialect, table: &SealedTable, rows: &[Resealed]) -> Sql {
    let quote = |name: &str| quoted(dialect, name);
    let target = quote(&table.name);
    let mut words = Words::default();
    if dialect == Dialect::Mysql {
        words.add(format!("UPDATE {target} AS t JOIN "));
        derived(&mut words, table, rows);
        words.add(" AS v ON ");
        match_rows(&mut words, dialect, "t", table);
        words.add(" SET ").list(", ", table.columns.iter().enumerate(), |words, (at, column)| {
            let column = quote(column);
            words.add(format!("t.{column} = CASE WHEN v.n{at} = '' THEN t.{column} ELSE v.n{at} END"));
        });
        return words.finish();
    }
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
        words.add(match dialect {
            Dialect::Sqlite | Dialect::Postgres => {
                format!(" AND (v.o{at} = '' OR substr({column}, 1, length(v.o{at})) = v.o{at})")
            }
            Dialect::Mysql => format!(
                " AND (v.o{at} = '' OR CAST(LEFT({column}, CHAR_LENGTH(v.o{at})) AS BINARY) = CAST(v.o{at} AS BINARY))"
            ),
        });
    }
}

/// PostgreSQL: an array a column, so that the statement is the same for any number of rows.
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

/// MySQL: rows of a union that begins with the table itself, and no row of it, so that each column has the type and
/// the collation of the one that it is compared with.
fn derived(words: &mut Words, table: &SealedTable, rows: &[Resealed]) {
    let quote = |name: &str| quoted(Dialect::Mysql, name);
    let columns = table.columns.iter().flat_map(|column| [quote(column), quote(column)]);
    let sources = table.key.iter().map(|column| quote(&column.name)).chain(columns);
    let named: Vec<_> = sources.zip(names(table)).map(|(source, name)| format!("{source} AS {name}")).collect();
    words.add(format!("(SELECT {} FROM {} WHERE 1 = 0", named.join(", "), quote(&table.name)));
    for row in rows {
        words.add(" UNION ALL SELECT ");
        bind_row(words, Dialect::Mysql, row);
    }
    words.add(")");
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
    #[test]
    fn names_are_quoted_and_nothing_else_is_in_the_text() {
        let mut odd = table();
        odd.name = "a\"b`c".into();
        for dialect in DIALECTS {
            let text = format!("{:?}", update(dialect, &odd, &[row("02new")]));
            let quoted = if dialect == Dialect::Mysql { "`a\\\"b``c`" } else { "\\\"a\\\"\\\"b`c\\\"" };
            assert!(text.contains(quoted), "{text}");
            let text = text.split("values").next().unwrap();
            assert!(!text.contains("02new") && !text.contains("02old"), "{text}");
        }
    }

    #[test]
    fn portions_are_powers_of_two_and_lose_no_row() {
        let rows: Vec<_> = (0..700).map(|_| row("02new")).collect();
        for dialect in [Dialect::Sqlite, Dialect::Mysql] {
            let sizes: Vec<_> = portions(dialect, &table(), &rows).iter().map(|portion| portion.len()).collect();
            assert_eq!(sizes, [256, 256, 128, 32, 16, 8, 4]);
        }
        assert_eq!(portions(Dialect::Postgres, &table(), &rows).len(), 1);
        assert!(DIALECTS.into_iter().all(|dialect| portions(dialect, &table(), &[]).is_empty()));
    }

    #[test]
    fn a_large_row_goes_alone() {
        let large = "x".repeat(STATEMENT_BYTES);
        let rows = [row("02new"), row(&large), row(&large), row("02new")];
        let sizes: Vec<_> = portions(Dialect::Mysql, &table(), &rows).iter().map(|portion| portion.len()).collect();
        assert_eq!(sizes, [1, 1, 1, 1]);
    }
}
