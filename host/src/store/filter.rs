//! Filters: conjunctions of conditions on single plain columns. Owns their SQL in each dialect, and
//! their evaluation on a row in memory.
//!
//! Texts are compared as bytes in memory. A text that a database cannot store (not UTF-8, or with a
//! NUL on PostgreSQL) matches no row. Other texts are compared as the database does, where a MySQL
//! collation may ignore case.

use bbs_database::{Dialect, of_few_lengths};
use bbs_units::operand;
use sea_query::extension::postgres::PgFunc;
use sea_query::{BinOper, Cond, Expr, ExprTrait, IntoColumnRef};

use super::StoreError;
use super::record::Columns;

/// MySQL has no list parameters and permits at most 65,535 parameters. Conditions with longer lists
/// are evaluated in memory.
const MOST_IN_LIST: usize = 10_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Condition {
    Equals(Vec<u8>),
    /// In ascending order.
    OneOf(Vec<Vec<u8>>),
    /// Begins with one of these texts or SQL `LIKE` patterns, case-sensitive and without an escape
    /// character.
    LikeOneOf {
        /// In ascending order. None begins with another.
        prefixes: Vec<Vec<u8>>,
        /// The patterns with a `%` or `_`. With them, the database evaluates the condition.
        wildcards: Vec<Vec<u8>>,
    },
    Is(i64),
    AtLeast(i64),
    AtMost(i64),
    Above(i64),
}

/// A conjunction of conditions; without any, every row matches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Filter(Vec<(&'static str, Condition)>);

impl Filter {
    pub(super) fn everything() -> Self {
        Self::default()
    }

    pub(super) fn equals(self, column: &'static str, text: impl Into<Vec<u8>>) -> Self {
        self.and(column, Condition::Equals(text.into()))
    }

    /// An empty text adds no condition.
    pub(super) fn equals_if_any(self, column: &'static str, text: &[u8]) -> Self {
        if text.is_empty() {
            self
        } else {
            self.equals(column, text)
        }
    }

    /// An empty list adds no condition.
    pub(super) fn one_of(self, column: &'static str, texts: &[Vec<u8>]) -> Self {
        if texts.is_empty() {
            self
        } else {
            let mut texts = texts.to_vec();
            texts.sort_unstable();
            texts.dedup();
            self.and(column, Condition::OneOf(texts))
        }
    }

    /// An empty list adds no condition.
    ///
    /// # Errors
    /// The list is too long for one with wildcards: in memory, each pattern would be tried on each
    /// row, many times over for each `%`, and no other task runs on the thread meanwhile.
    pub(super) fn like_one_of(
        self,
        column: &'static str,
        patterns: &[Vec<u8>],
    ) -> Result<Self, StoreError> {
        if patterns.is_empty() {
            return Ok(self);
        }
        let texts = patterns
            .iter()
            .filter(|pattern| std::str::from_utf8(pattern).is_ok());
        let (wildcards, mut prefixes): (Vec<_>, Vec<_>) = texts
            .cloned()
            .partition(|pattern| pattern.iter().any(|byte| b"%_".contains(byte)));
        if !wildcards.is_empty() && patterns.len() > MOST_IN_LIST {
            return Err(StoreError::TooManyPatterns { most: MOST_IN_LIST });
        }
        prefixes.sort_unstable();
        prefixes.dedup_by(|longer, prefix| longer.starts_with(prefix));
        let condition = Condition::LikeOneOf {
            prefixes,
            wildcards,
        };
        Ok(self.and(column, condition))
    }

    pub(super) fn is(self, column: &'static str, number: impl Into<i64>) -> Self {
        self.and(column, Condition::Is(number.into()))
    }

    pub(super) fn at_least(self, column: &'static str, number: impl Into<i64>) -> Self {
        self.and(column, Condition::AtLeast(number.into()))
    }

    pub(super) fn at_most(self, column: &'static str, number: impl Into<i64>) -> Self {
        self.and(column, Condition::AtMost(number.into()))
    }

    pub(super) fn above(self, column: &'static str, number: impl Into<i64>) -> Self {
        self.and(column, Condition::Above(number.into()))
    }

    fn and(mut self, column: &'static str, condition: Condition) -> Self {
        self.0.push((column, condition));
        self
    }

    pub(super) fn conditions(&self) -> impl Iterator<Item = &(&'static str, Condition)> {
        self.0.iter()
    }

    /// Without the conditions on a column that the database evaluates.
    pub(super) fn but_in_sql(&self, column: &str, dialect: Dialect) -> Self {
        let stays =
            |(of, condition): &&(&str, Condition)| *of != column || !condition.has_sql(dialect);
        Self(self.0.iter().filter(stays).cloned().collect())
    }

    /// Whether rows must have a certain text in one of these columns.
    pub(super) fn names_a_text_of(&self, columns: &[&str]) -> bool {
        self.0.iter().any(|(column, condition)| {
            columns.contains(column) && matches!(condition, Condition::Equals(_))
        })
    }

    /// Whether the database evaluates all conditions.
    pub(super) fn is_complete_in_sql(&self, dialect: Dialect) -> bool {
        self.0
            .iter()
            .all(|(_, condition)| condition.has_sql(dialect))
    }

    /// The conditions that the database evaluates.
    pub(super) fn to_sql(&self, dialect: Dialect) -> Cond {
        self.0.iter().fold(Cond::all(), |all, (column, condition)| {
            all.add_option(condition.to_sql(*column, dialect))
        })
    }

    /// Whether a row matches. It must have the filter's columns.
    pub(super) fn holds(&self, row: &impl Columns) -> bool {
        self.0
            .iter()
            .all(|(column, condition)| condition.holds(column, row))
    }
}

impl Condition {
    fn has_sql(&self, dialect: Dialect) -> bool {
        let operands = match self {
            Self::OneOf(texts) => texts.len(),
            Self::LikeOneOf {
                prefixes,
                wildcards,
            } => prefixes.len() + wildcards.len(),
            Self::Equals(_) | Self::Is(_) | Self::AtLeast(_) | Self::AtMost(_) | Self::Above(_) => {
                1
            }
        };
        dialect != Dialect::Mysql || operands <= MOST_IN_LIST
    }

    /// The SQL expression; none if it is evaluated in memory.
    pub(super) fn to_sql(&self, column: impl IntoColumnRef, dialect: Dialect) -> Option<Expr> {
        let col = Expr::col(column);
        self.has_sql(dialect).then(|| match self {
            Self::Equals(text) => operand(text, dialect).map_or_else(never, |text| col.eq(text)),
            Self::OneOf(texts) => one_of(col, &storable(texts, dialect), dialect),
            Self::LikeOneOf {
                prefixes,
                wildcards,
            } => {
                let patterns = storable(prefixes.iter().chain(wildcards), dialect);
                like_one_of(col, &patterns, dialect)
            }
            Self::Is(number) => col.eq(*number),
            Self::AtLeast(number) => col.gte(*number),
            Self::AtMost(number) => col.lte(*number),
            Self::Above(number) => col.gt(*number),
        })
    }

    fn holds(&self, column: &'static str, row: &impl Columns) -> bool {
        let text = |test: &dyn Fn(&[u8]) -> bool| matches!(row.bytes(column), Ok(Some(text)) if test(text));
        let number = |test: &dyn Fn(i64) -> bool| matches!(row.integer(column), Ok(Some(number)) if test(number));
        match self {
            Self::Equals(wanted) => text(&|text| text == wanted),
            // Clients list tens of thousands, and every row is compared.
            Self::OneOf(wanted) => text(&|text| {
                let found = wanted.binary_search_by(|wanted| wanted.as_slice().cmp(text));
                found.is_ok()
            }),
            Self::LikeOneOf {
                prefixes,
                wildcards,
            } => text(&|text| {
                begins_with_one_of(text, prefixes)
                    || wildcards.iter().any(|pattern| begins_like(text, pattern))
            }),
            Self::Is(wanted) => number(&|number| number == *wanted),
            Self::AtLeast(least) => number(&|number| number >= *least),
            Self::AtMost(most) => number(&|number| number <= *most),
            Self::Above(bound) => number(&|number| number > *bound),
        }
    }
}

fn never() -> Expr {
    Expr::cust("1 = 0")
}

/// The texts that the database can store.
fn storable<'a>(texts: impl IntoIterator<Item = &'a Vec<u8>>, dialect: Dialect) -> Vec<String> {
    let texts = texts
        .into_iter()
        .filter_map(|text| std::str::from_utf8(text).ok());
    texts
        .filter(|text| dialect != Dialect::Postgres || !text.contains('\0'))
        .map(str::to_owned)
        .collect()
}

fn one_of(column: Expr, texts: &[String], dialect: Dialect) -> Expr {
    match dialect {
        _ if texts.is_empty() => never(),
        Dialect::Postgres => column.eq(PgFunc::any(Expr::val(texts.to_vec()))),
        Dialect::Mysql => column.is_in(of_few_lengths(texts.to_vec())),
        Dialect::Sqlite => Expr::cust_with_exprs(
            "? IN (SELECT value FROM json_each(?))",
            [column, json_list(texts)],
        ),
    }
}

fn like_one_of(column: Expr, patterns: &[String], dialect: Dialect) -> Expr {
    match dialect {
        _ if patterns.is_empty() => never(),
        Dialect::Postgres => {
            let patterns: Vec<_> = patterns
                .iter()
                .map(|pattern| prefix_pattern(pattern))
                .collect();
            column.binary(BinOper::Like, PgFunc::any(Expr::val(patterns)))
        }
        Dialect::Mysql => {
            // A binary collation, not bytes: in bytes, `_` would match a part of a character.
            let exact = Expr::cust_with_exprs(
                "? COLLATE utf8mb4_bin",
                [Expr::cust_with_exprs("CONVERT(? USING utf8mb4)", [column])],
            );
            let likes: Vec<_> = of_few_lengths(patterns.to_vec())
                .iter()
                .map(|pattern| exact.clone().like(prefix_pattern(pattern)))
                .collect();
            // One expression: a chain of `or` is nested as deep as the list is long, and is cloned
            // and rendered by recursion, which exhausts the stack of a thread.
            Expr::cust_with_exprs(format!("({})", vec!["?"; likes.len()].join(" OR ")), likes)
        }
        Dialect::Sqlite => {
            let globs: Vec<_> = patterns.iter().map(|pattern| glob(pattern)).collect();
            Expr::cust_with_exprs(
                "EXISTS (SELECT 1 FROM json_each(?) AS pattern WHERE ? GLOB pattern.value)",
                [json_list(&globs), column],
            )
        }
    }
}

fn json_list(texts: &[String]) -> Expr {
    Expr::val(serde_json::to_string(texts).expect("a list of strings is JSON"))
}

/// A `LIKE` pattern for texts with this prefix. Backslash is the escape character of PostgreSQL and
/// MySQL.
fn prefix_pattern(pattern: &str) -> String {
    format!("{}%", pattern.replace('\\', r"\\"))
}

/// A `GLOB` pattern for texts with this prefix: SQLite's `LIKE` ignores case.
fn glob(like: &str) -> String {
    let mut glob = String::with_capacity(like.len() + 1);
    for character in like.chars() {
        match character {
            '%' => glob.push('*'),
            '_' => glob.push('?'),
            '*' | '?' | '[' => glob.extend(['[', character, ']']),
            _ => glob.push(character),
        }
    }
    glob.push('*');
    glob
}

/// Whether a text begins with one of these, which are in ascending order, and of which none begins
/// with another. Between such a prefix and the text there would be only longer ones that begin with
/// it, so that it is the last one that is not above the text.
fn begins_with_one_of(text: &[u8], prefixes: &[Vec<u8>]) -> bool {
    let above = prefixes.partition_point(|prefix| prefix.as_slice() <= text);
    let last = prefixes[..above].last();
    last.is_some_and(|prefix| text.starts_with(prefix))
}

/// Whether a text has a prefix that matches a pattern: `%` is any text and `_` any one character.
fn begins_like<'a>(mut text: &'a [u8], mut pattern: &'a [u8]) -> bool {
    // Positions in text and pattern for backtracking to the last `%`.
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        let rest = match (pattern.split_first(), text) {
            (None, _) => return true,
            (Some((b'%', rest)), _) => {
                retry = Some((text, rest));
                pattern = rest;
                continue;
            }
            (Some(_), []) => None,
            (Some((b'_', rest)), _) => Some((rest, after_character(text))),
            (Some((byte, rest)), _) => (text[0] == *byte).then(|| (rest, &text[1..])),
        };
        (pattern, text) = match (rest, &mut retry) {
            (Some(rest), _) => rest,
            (None, Some((from, pattern))) if !from.is_empty() => {
                *from = after_character(from);
                (*pattern, *from)
            }
            (None, _) => return false,
        };
    }
}

fn after_character(text: &[u8]) -> &[u8] {
    let more = text[1..]
        .iter()
        .take_while(|byte| **byte & 0xc0 == 0x80)
        .count();
    &text[1 + more..]
}

#[cfg(test)]
mod tests;
