//! Whole rows of the far end: what the lens computed beside what travelled unopened. For whoever holds every column of
//! the near end in memory; a copy inside the database needs none of it.

use super::{Applied, AppliedTable, Lens, Provenance, Source, SourceTable};
use crate::layout::columns::ColumnData;
use crate::layout::schema::Column;
use crate::layout::values::{Encoding, Value};

impl Lens {
    /// The tables of a group at the far end, plain, as a source for the next lens. `source` holds every column of every
    /// table that has rows.
    pub fn whole(&self, group: usize, source: &Source, applied: &Applied) -> Source {
        let mut far = Source { units: source.units, ..Source::default() };
        for name in &self.groups[group].targets {
            let table = &applied.tables[name];
            let composed = &self.tables[name];
            let columns = composed.columns.iter().map(|(column, provenance)| {
                (column.name.clone(), whole_column(&composed.sources, table, source, column, provenance))
            });
            let whole = SourceTable { unit_offsets: table.unit_offsets.clone(), columns: columns.collect() };
            far.tables.insert(name.clone(), whole);
        }
        far
    }
}

fn whole_column(
    sources: &[String],
    table: &AppliedTable,
    source: &Source,
    column: &Column,
    provenance: &Provenance,
) -> ColumnData {
    let encoding = Encoding::from(column.kind);
    let rows = table.unit_offsets.last().map_or(0, |&rows| rows as usize);
    match provenance {
        Provenance::Computed => table.computed[&column.name].clone(),
        Provenance::Fill(literal) => ColumnData::repeat(encoding, Value::of(literal.as_ref()), rows),
        Provenance::Raw { table: near, column: name } => {
            let at = sources.iter().position(|known| known == near).expect("a source of the table");
            let Some(loaded) = source.tables.get(near) else {
                return ColumnData::repeat(encoding, Value::Null, 0);
            };
            loaded.columns[name].pick(encoding, &table.origins[at], Value::of(column.default.as_ref()))
        }
    }
}

impl Source {
    /// Only these units, in this order.
    #[must_use]
    pub fn only(&self, units: &[usize], encoding: impl Fn(&str, &str) -> Encoding) -> Self {
        let mut kept = Self { units: units.len(), ..Self::default() };
        for (name, table) in &self.tables {
            let mut unit_offsets = vec![0];
            let mut rows = Vec::new();
            for &unit in units {
                rows.extend(table.unit_offsets[unit]..table.unit_offsets[unit + 1]);
                unit_offsets.push(u32::try_from(rows.len()).expect("batches are bounded"));
            }
            let columns = table
                .columns
                .iter()
                .map(|(column, data)| (column.clone(), data.pick(encoding(name, column), &rows, Value::Null)));
            kept.tables.insert(name.clone(), SourceTable { unit_offsets, columns: columns.collect() });
        }
        kept
    }
}
