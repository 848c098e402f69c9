//! A statement with its values, built for one dialect. Owns the conversion of `sea_query`
//! statements and of SQL text into text and bound values; values never become text.

use std::borrow::Cow;

use sea_query::{
    Expr, InsertStatement, MysqlQueryBuilder, OnConflict, PostgresQueryBuilder,
    QueryStatementWriter, SqliteQueryBuilder, Value, Values, inject_parameters,
};

use super::Dialect;

/// Values of one statement of many rows, in bytes. More do not make a copy faster.
pub(super) const STATEMENT_BYTES: usize = 2 << 20;

/// The bytes of values that one statement may have.
#[derive(Debug, Clone, Copy)]
pub(super) struct StatementLimits {
    /// Most bytes of several rows.
    pub(super) rows: usize,
    /// Most bytes that the server accepts at once, with everything that belongs to the statement.
    /// It ends the session of a client that sends more.
    pub(super) packet: usize,
}

impl Default for StatementLimits {
    fn default() -> Self {
        Self {
            rows: STATEMENT_BYTES,
            packet: usize::MAX,
        }
    }
}

/// Statement text with its bound values, for one dialect.
#[derive(Debug, Clone, PartialEq)]
pub struct Statement {
    pub(super) text: String,
    pub(super) values: Values,
}

/// A statement that can be built for a dialect.
pub trait IntoStatement {
    /// Builds the statement.
    fn into_statement(self, dialect: Dialect) -> Statement;
}

/// SQL text with `?` as the placeholder of each value. The text has to be valid in every dialect
/// that it runs in, and must not contain another question mark.
#[derive(Debug, Clone, PartialEq)]
pub struct Sql {
    text: Cow<'static, str>,
    values: Vec<Value>,
}

/// A number as databases store it. Versions are timestamps, and counts are of rows, both well below
/// the range of the sign.
pub fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Creates a statement from SQL text; see [`Sql`].
pub fn sql(text: impl Into<Cow<'static, str>>) -> Sql {
    Sql {
        text: text.into(),
        values: Vec::new(),
    }
}

impl Sql {
    /// Binds the value of the next placeholder.
    #[must_use]
    pub fn bind(mut self, value: impl Into<Value>) -> Self {
        self.values.push(value.into());
        self
    }

    /// Writes the values into the text on MySQL, so that the statement needs no preparation there:
    /// the server limits the prepared statements of all of its clients together. The text must have
    /// no quotes.
    #[must_use]
    pub fn unprepared(self, dialect: Dialect) -> Self {
        if dialect != Dialect::Mysql {
            return self;
        }
        let text = inject_parameters(&self.text, &self.values, &MysqlQueryBuilder);
        Self {
            text: text.into(),
            values: Vec::new(),
        }
    }
}

/// The most operands of a list that is made longer; the database allows no more than some ten
/// thousand values in all.
const MOST_LENGTHENED: usize = 4096;

/// Makes a list of operands as long as the next power of two, by repeating the last one. A list of
/// any length would make a statement of its own, and each connection keeps statements prepared, of
/// which the server allows a limited number.
pub fn of_few_lengths<T: Clone>(mut operands: Vec<T>) -> Vec<T> {
    if let Some(last) = operands.last().cloned() {
        let length = operands
            .len()
            .next_power_of_two()
            .min(MOST_LENGTHENED.max(operands.len()));
        operands.resize(length, last);
    }
    operands
}

/// Inserts a row, or updates these values of the row with that key.
pub fn upsert<const K: usize, const V: usize>(
    table: &'static str,
    key: [(&'static str, Value); K],
    values: [(&'static str, Value); V],
) -> InsertStatement {
    let on_conflict = OnConflict::columns(key.iter().map(|(name, _)| *name))
        .update_columns(values.iter().map(|(name, _)| *name))
        .to_owned();
    let (names, values): (Vec<_>, Vec<_>) = key.into_iter().chain(values).unzip();
    let mut insert = InsertStatement::new();
    insert
        .into_table(table)
        .columns(names)
        .values_panic(values.into_iter().map(Expr::value))
        .on_conflict(on_conflict);
    insert
}

impl IntoStatement for Sql {
    fn into_statement(self, dialect: Dialect) -> Statement {
        let text = match dialect {
            Dialect::Postgres if !self.values.is_empty() => numbered(&self.text),
            Dialect::Sqlite | Dialect::Mysql | Dialect::Postgres => self.text.into_owned(),
        };
        Statement {
            text,
            values: Values(self.values),
        }
    }
}

fn numbered(text: &str) -> String {
    let mut parts = text.split('?');
    let mut numbered = parts.next().unwrap_or_default().to_owned();
    for (at, part) in parts.enumerate() {
        numbered.push_str(&format!("${}", at + 1));
        numbered.push_str(part);
    }
    numbered
}

impl IntoStatement for Statement {
    fn into_statement(self, _: Dialect) -> Statement {
        self
    }
}

impl<S: QueryStatementWriter> IntoStatement for &S {
    fn into_statement(self, dialect: Dialect) -> Statement {
        let (text, values) = match dialect {
            Dialect::Sqlite => self.build(SqliteQueryBuilder),
            Dialect::Postgres => self.build(PostgresQueryBuilder),
            Dialect::Mysql => self.build(MysqlQueryBuilder),
        };
        Statement { text, values }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_get_few_lengths_and_no_other_members() {
        assert_eq!(of_few_lengths(vec![1, 2, 3]), [1, 2, 3, 3]);
        assert_eq!(of_few_lengths(vec![1]), [1]);
        assert_eq!(of_few_lengths(Vec::<i32>::new()), [] as [i32; 0]);
        assert_eq!(of_few_lengths(vec![0; 3000]).len(), 4096);
        assert_eq!(of_few_lengths(vec![0; 5000]).len(), 5000);
    }

    #[test]
    fn unprepared_statement_has_its_values_in_the_text_on_mysql_only() {
        let statement = sql("UPDATE t SET a = a + 1 WHERE b = ? AND c = ?")
            .bind(r"it's a \")
            .bind(-1_i64);
        let built = |dialect| {
            statement
                .clone()
                .unprepared(dialect)
                .into_statement(dialect)
        };
        assert_eq!(
            built(Dialect::Mysql).text,
            r"UPDATE t SET a = a + 1 WHERE b = 'it\'s a \\' AND c = -1"
        );
        assert!(built(Dialect::Mysql).values.0.is_empty());
        assert_eq!(
            built(Dialect::Postgres),
            statement.clone().into_statement(Dialect::Postgres)
        );
    }

    #[test]
    fn placeholders_are_numbered_for_postgresql_only() {
        let statement = sql("SELECT a FROM t WHERE b = ? AND c > ?")
            .bind("x")
            .bind(1_i64);
        let text = |dialect| statement.clone().into_statement(dialect).text;
        assert_eq!(
            text(Dialect::Postgres),
            "SELECT a FROM t WHERE b = $1 AND c > $2"
        );
        assert_eq!(
            text(Dialect::Mysql),
            "SELECT a FROM t WHERE b = ? AND c > ?"
        );
        assert_eq!(text(Dialect::Sqlite), text(Dialect::Mysql));
        let comment = "COMMENT ON TABLE t IS 'why?'";
        assert_eq!(
            sql(comment).into_statement(Dialect::Postgres).text,
            comment,
            "a statement without values"
        );
    }
}
