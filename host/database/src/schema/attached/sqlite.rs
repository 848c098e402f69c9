//! SQLite: what a table has beyond its columns is in the text of its definition. A renamed table
//! takes its triggers along, and views that name it.

use super::{AttachedObject, Relation};
use crate::schema::postgres::identifier;
use crate::{Row, SqlError, Transaction, sql};

pub(super) const RELATIONS: &str =
    "SELECT name, type, sql FROM sqlite_master WHERE name COLLATE NOCASE IN (?)";

const DEPENDENT: &str =
    "SELECT type, name, sql FROM sqlite_master WHERE type IN ('view', 'trigger') ORDER BY name";

const REFERRERS: &str = "SELECT DISTINCT m.name FROM sqlite_master AS m, pragma_foreign_key_list(m.name) AS f \
     WHERE m.type = 'table' AND f.\"table\" = ? COLLATE NOCASE ORDER BY m.name";

const DEFINITION: &str =
    "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ? COLLATE NOCASE";

/// Words of a definition that stand for a property which no layout has.
const PROPERTIES: [(&str, &str); 7] = [
    ("CHECK", "a CHECK constraint"),
    ("REFERENCES", "a foreign key"),
    ("UNIQUE", "a unique constraint"),
    ("COLLATE", "a collation"),
    ("AUTOINCREMENT", "AUTOINCREMENT"),
    ("WITHOUT", "WITHOUT ROWID"),
    ("STRICT", "STRICT"),
];

pub(super) fn relation(row: &Row) -> Result<Relation, SqlError> {
    let definition = words(row.text_or_empty(2)?);
    let is_virtual = definition.get(1).is_some_and(|word| word == "VIRTUAL");
    let kind = match row.text_or_empty(1)? {
        "table" if is_virtual => "a virtual table",
        "table" => "a table",
        "view" => "a view",
        _ => "an index or trigger",
    };
    Ok(Relation {
        kind: kind.to_owned(),
        is_plain_table: kind == "a table",
        remedy: None,
    })
}

pub(super) async fn attached(
    tx: &mut Transaction,
    table: &str,
) -> Result<Vec<AttachedObject>, SqlError> {
    let mut objects = Vec::new();
    for row in tx.fetch(sql(DEPENDENT)).await? {
        if words(row.text_or_empty(2)?).contains(&table.to_uppercase()) {
            let kind = row.owned_text(0)?;
            let name = row.owned_text(1)?;
            let removal = format!("DROP {} {}", kind.to_uppercase(), identifier(&name));
            objects.push(AttachedObject::new(format!("{kind} {name}"), removal));
        }
    }
    for row in tx.fetch(sql(REFERRERS).bind(table)).await? {
        let name = row.owned_text(0)?;
        let removal = format!("DROP TABLE {}", identifier(&name));
        objects.push(AttachedObject::new(
            format!("foreign key of table {name}"),
            removal,
        ));
    }
    let definition = tx.fetch_optional(sql(DEFINITION).bind(table)).await?;
    let definition = definition.map(|row| row.owned_text(0)).transpose()?;
    let definition = words(&definition.unwrap_or_default());
    for (word, property) in PROPERTIES {
        if definition.iter().any(|found| found == word) {
            objects.push(AttachedObject::new(property.to_owned(), String::new()));
        }
    }
    Ok(objects)
}

/// The words of a statement in upper case, without its text literals.
fn words(statement: &str) -> Vec<String> {
    let code: String = statement
        .split('\'')
        .step_by(2)
        .collect::<Vec<_>>()
        .join(" ");
    code.split(|character: char| !character.is_alphanumeric() && character != '_')
        .filter(|word| !word.is_empty())
        .map(str::to_uppercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_statement_are_those_outside_of_its_texts() {
        let statement = r#"CREATE TABLE "apps_2" (a TEXT DEFAULT 'a check''s', CHECK (a <> ''))"#;
        assert_eq!(
            words(statement),
            [
                "CREATE", "TABLE", "APPS_2", "A", "TEXT", "DEFAULT", "CHECK", "A"
            ]
        );
    }
}
