//! Whether handlers written for one layout can work on another as it is: everything they know is there, and what
//! they do not know asks nothing of them. Pure.

use super::schema::{Layout, Table};
use super::values::Encoding;

/// What keeps handlers of the layout `native` from working on `found`, for an operator. Empty: nothing.
pub fn obstacles(found: &Layout, native: &Layout) -> Vec<String> {
    native
        .tables
        .values()
        .flat_map(|table| match found.tables.get(&table.name) {
            None => vec![format!("there is no table {}", table.name)],
            Some(known) => in_table(known, table),
        })
        .collect()
}

fn in_table(found: &Table, native: &Table) -> Vec<String> {
    let name = &native.name;
    let mut obstacles = Vec::new();
    if found.primary_key != native.primary_key {
        obstacles.push(format!("{name} has the primary key ({})", found.primary_key.join(", ")));
    }
    for column in &native.columns {
        match found.column(&column.name) {
            None => obstacles.push(format!("{name} has no column {}", column.name)),
            Some(known) if Encoding::from(known.kind) != Encoding::from(column.kind) => {
                obstacles.push(format!("{name}.{} has another type", column.name));
            }
            Some(known) if known.sealing != column.sealing => {
                obstacles.push(format!("{name}.{} is sealed differently", column.name));
            }
            Some(_) => {}
        }
    }
    let unknown = found.columns.iter().filter(|column| native.column(&column.name).is_none());
    for column in unknown.filter(|column| !column.nullable && column.default.is_none()) {
        obstacles.push(format!("{name}.{} needs a value that these handlers do not give", column.name));
    }
    obstacles
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::schema::{Column, ColumnType, Literal, Sealing};

    fn column(name: &str) -> Column {
        let (nullable, default, sealing) = (false, None, Sealing::Plain);
        Column { name: name.into(), kind: ColumnType::Text, nullable, default, sealing }
    }

    fn layout(columns: Vec<Column>) -> Layout {
        let name = "things".to_owned();
        let primary_key = vec!["guid".to_owned()];
        let table = Table { name: name.clone(), columns, primary_key, indexes: vec![], partition_key: None };
        Layout { tables: [(name, table)].into() }
    }

    fn native() -> Layout {
        layout(vec![column("guid"), column("body")])
    }

    #[track_caller]
    fn refuses(found: &Layout, says: &str) {
        assert_eq!(obstacles(found, &native()), [says.to_owned()]);
    }

    #[test]
    fn the_same_layout_and_one_with_columns_that_fill_themselves_are_served() {
        assert!(obstacles(&native(), &native()).is_empty());
        let nullable = Column { nullable: true, ..column("owner") };
        let filled = Column { default: Some(Literal::Text("x".into())), ..column("colour") };
        let wider = Column { kind: ColumnType::LongText, ..column("body") };
        assert!(obstacles(&layout(vec![column("guid"), wider, nullable, filled]), &native()).is_empty());
    }

    #[test]
    fn whatever_handlers_would_miss_or_misread_is_named() {
        refuses(&Layout::default(), "there is no table things");
        refuses(&layout(vec![column("guid")]), "things has no column body");
        let number = Column { kind: ColumnType::Integer, ..column("body") };
        refuses(&layout(vec![column("guid"), number]), "things.body has another type");
        let sealed = Column { sealing: Sealing::Sealed, ..column("body") };
        refuses(&layout(vec![column("guid"), sealed]), "things.body is sealed differently");
        let demanding = layout(vec![column("guid"), column("body"), column("owner")]);
        refuses(&demanding, "things.owner needs a value that these handlers do not give");
        let mut rekeyed = native();
        rekeyed.tables.get_mut("things").unwrap().primary_key = vec!["body".into()];
        refuses(&rekeyed, "things has the primary key (body)");
    }
}
