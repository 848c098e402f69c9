//! Columns and indexes of a database that no migration declares, as a layout describes them; those
//! that it cannot describe exactly have no such form. And types that are wider than declared.

use bbs_lens::layout::schema::{Column, ColumnType, Index, Literal, Sealing, Table};

use super::{ColumnChange, PhysicalColumn, PhysicalIndex, PhysicalTable, column_change, type_name};
use crate::Dialect;

/// The types without a length.
const TYPES: [ColumnType; 6] = [
    ColumnType::Boolean,
    ColumnType::Integer,
    ColumnType::BigInteger,
    ColumnType::Text,
    ColumnType::MediumText,
    ColumnType::LongText,
];

impl PhysicalColumn {
    /// The column of a layout that is the same in this database; `None` for another type, a default
    /// that is an expression, or a property beyond those.
    pub fn portable(&self, dialect: Dialect) -> Option<Column> {
        if self.special.is_some() {
            return None;
        }
        let kind = column_type(dialect, &self.kind)?;
        let default = match &self.default {
            Some(default) => Some(literal(kind, default)?),
            None => None,
        };
        let name = self.name.clone();
        Some(Column {
            name,
            kind,
            nullable: self.nullable,
            default,
            sealing: Sealing::Plain,
        })
    }
}

impl PhysicalTable {
    /// A layout's table with the lengths of texts that are larger here. On MariaDB and MySQL a
    /// migration that is given up may have changed them in place, and leaves them: every value
    /// fits.
    #[must_use]
    pub fn widened(&self, dialect: Dialect, table: &Table) -> Table {
        let mut table = table.clone();
        if dialect != Dialect::Mysql {
            return table;
        }
        for column in &mut table.columns {
            let found = self.columns.iter().find(|found| found.name == column.name);
            let Some(kind) = found.and_then(|found| column_type(dialect, &found.kind)) else {
                continue;
            };
            let widened = Column {
                kind,
                ..column.clone()
            };
            if column_change(dialect, column, &widened) == ColumnChange::Widening {
                *column = widened;
            }
        }
        table
    }
}

impl PhysicalIndex {
    /// The index of a layout that is the same in this database; `None` for one that is more than a
    /// list of columns.
    pub fn portable(&self, table: &PhysicalTable) -> Option<Index> {
        let is_plain = !self.unique && self.columns.iter().all(|name| table.has_column(name));
        is_plain.then(|| Index {
            name: self.name.clone(),
            columns: self.columns.clone(),
        })
    }
}

fn column_type(dialect: Dialect, name: &str) -> Option<ColumnType> {
    let length = name
        .strip_prefix("VARCHAR(")
        .and_then(|rest| rest.strip_suffix(')'));
    match length {
        Some(length) => length.parse().ok().map(ColumnType::Varchar),
        // The last of several with the same name, which is the one without a limit.
        None => TYPES
            .into_iter()
            .rfind(|kind| type_name(dialect, *kind) == name),
    }
}

fn literal(kind: ColumnType, default: &str) -> Option<Literal> {
    if kind.is_text() {
        let text = default.strip_prefix('\'')?.strip_suffix('\'')?;
        return Some(Literal::Text(text.replace("''", "'")));
    }
    let number: i64 = default.parse().ok()?;
    match kind {
        ColumnType::Boolean => Some(Literal::Boolean(number != 0)),
        _ => Some(Literal::Integer(number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::ColumnOptions;

    fn column(kind: &str, default: Option<&str>) -> PhysicalColumn {
        let default = default.map(str::to_owned);
        PhysicalColumn {
            name: "note".to_owned(),
            kind: kind.to_owned(),
            nullable: true,
            default,
            options: ColumnOptions::default(),
            special: None,
        }
    }

    #[test]
    fn length_that_the_server_makes_larger_in_place_may_be_found() {
        let found = |kind| PhysicalTable {
            columns: vec![column(kind, None)],
            ..PhysicalTable::default()
        };
        let widened = |dialect, declared, kind| {
            let note = Column::varchar("note", declared).nullable();
            let table = Table::new("things").column(note);
            found(kind).widened(dialect, &table).columns[0].kind
        };
        for (declared, kind, allowed) in [
            (300, "VARCHAR(600)", 600),
            (300, "VARCHAR(300)", 300),
            (600, "VARCHAR(300)", 600),
            (100, "VARCHAR(200)", 200),
            (255, "VARCHAR(600)", 255),
            (300, "LONGTEXT", 300),
        ] {
            let allowed = ColumnType::Varchar(allowed);
            assert_eq!(widened(Dialect::Mysql, declared, kind), allowed, "{kind}");
        }
        for dialect in [Dialect::Postgres, Dialect::Sqlite] {
            let kept = ColumnType::Varchar(300);
            assert_eq!(widened(dialect, 300, "VARCHAR(600)"), kept);
        }
    }

    #[test]
    fn column_of_a_portable_type_is_that_of_a_layout() {
        let kind = |dialect, kind| {
            column(kind, None)
                .portable(dialect)
                .map(|column| column.kind)
        };
        assert_eq!(
            kind(Dialect::Mysql, "VARCHAR(40)"),
            Some(ColumnType::Varchar(40))
        );
        assert_eq!(
            kind(Dialect::Mysql, "MEDIUMTEXT"),
            Some(ColumnType::MediumText)
        );
        assert_eq!(kind(Dialect::Postgres, "TEXT"), Some(ColumnType::LongText));
        assert_eq!(
            kind(Dialect::Postgres, "INTEGER"),
            Some(ColumnType::Integer)
        );
        assert_eq!(
            kind(Dialect::Sqlite, "BIGINT"),
            Some(ColumnType::BigInteger)
        );
        for foreign in ["TIMESTAMP", "INT UNSIGNED", "VARCHAR", "JSON", "TINYINT(4)"] {
            assert_eq!(kind(Dialect::Mysql, foreign), None, "{foreign}");
        }
        let generated = PhysicalColumn {
            special: Some("GENERATED".to_owned()),
            ..column("INT", None)
        };
        assert_eq!(generated.portable(Dialect::Mysql), None);
    }

    #[test]
    fn default_is_carried_over_unless_it_is_an_expression() {
        let default = |kind, default| {
            column(kind, Some(default))
                .portable(Dialect::Mysql)
                .map(|column| column.default)
        };
        assert_eq!(
            default("VARCHAR(9)", "'it''s'"),
            Some(Some(Literal::Text("it's".to_owned())))
        );
        assert_eq!(default("INT", "-3"), Some(Some(Literal::Integer(-3))));
        assert_eq!(default("BOOLEAN", "1"), Some(Some(Literal::Boolean(true))));
        assert_eq!(default("BIGINT", "unix_timestamp()"), None);
        assert_eq!(default("VARCHAR(36)", "uuid()"), None);
    }

    #[test]
    fn only_an_index_of_columns_is_that_of_a_layout() {
        let table = PhysicalTable {
            columns: vec![column("INT", None)],
            primary_key: Vec::new(),
            indexes: Vec::new(),
        };
        let index = |columns: &[&str], unique| PhysicalIndex {
            name: "op_idx".to_owned(),
            columns: columns.iter().map(ToString::to_string).collect(),
            unique,
        };
        let portable = |index: PhysicalIndex| index.portable(&table).map(|index| index.columns);
        assert_eq!(
            portable(index(&["note"], false)),
            Some(vec!["note".to_owned()])
        );
        assert_eq!(portable(index(&["note"], true)), None);
        assert_eq!(portable(index(&["note(10)"], false)), None);
    }
}
