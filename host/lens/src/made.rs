//! The parts of the rows of a target that no table of the source has had. A database may be unable
//! to store these; it has stored the others.

use super::{Composed, Lens, Provenance};
use crate::layout::schema::Column;

impl Lens {
    /// Whether a column of the target has values that no column of its type has stored.
    pub fn makes_values(&self, column: &Column, provenance: &Provenance) -> bool {
        match provenance {
            Provenance::Computed => true,
            Provenance::Raw {
                table,
                column: name,
            } => self.source.tables[table]
                .find_column(name)
                .is_none_or(|source| source.kind != column.kind),
            // A default, which the layout's tables are created with. Without one it is NULL.
            Provenance::Fill(default) => default.is_none() && !column.nullable,
        }
    }

    /// Whether two rows of a table of the target may have the same primary key. Keys that come
    /// unchanged from the rows of one table are unique already.
    pub fn makes_keys(&self, composed: &Composed) -> bool {
        let origin = |name: &String| {
            let (_, provenance) = composed
                .columns
                .iter()
                .find(|(column, _)| column.name == *name)?;
            match provenance {
                Provenance::Raw { table, column } => Some((table, column)),
                Provenance::Fill(_) | Provenance::Computed => None,
            }
        };
        let origins: Option<Vec<_>> = composed.table.primary_key.iter().map(origin).collect();
        let is_unique = origins.is_some_and(|origins| {
            let one = origins.first().map(|(table, _)| *table);
            one.is_some_and(|one| {
                let mut key = self.source.tables[one].primary_key.iter();
                key.all(|name| {
                    origins
                        .iter()
                        .any(|(table, column)| *table == one && *column == name)
                })
            })
        });
        composed.reshaped || !is_unique
    }
}
