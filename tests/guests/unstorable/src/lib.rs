//! A migration after the default ones whose results a database cannot store, in the way that the
//! domain of a task names: `nul` and `long` in its label, the others in its mark, its note or its
//! residue.

use bbs_sdk::{Access, Column, Manifest, Migration, Refused, Run, Table, Unit, export_migration};

#[derive(Debug)]
pub struct Unstorable;

const MARKS: &str = "task_marks";
/// Bytes of residue that take more than 16 MiB once they are sealed.
const RESIDUE: usize = 14 << 20;
/// Characters of four bytes; PostgreSQL's index entries have 2,704 bytes at most.
const WIDE: u32 = 700;

impl Migration for Unstorable {
    fn manifest() -> Manifest {
        let marks = Table::new(MARKS)
            .column(Column::varchar("mark", 768))
            .column(Column::varchar("guid", 255))
            .column(Column::varchar("note", 768).nullable())
            .primary_key(["mark"])
            .index("task_marks_guid_idx", ["guid"])
            .index("task_marks_note_idx", ["note"])
            .partition_key("guid");
        Manifest::new(1_795_000_060, "unstorable")
            .summary("Labels and marks tasks")
            .add_column("tasks", Column::varchar("label", 10).nullable())
            .create_table(marks)
            .up(Access::to("tasks")
                .reads(["guid", "domain"])
                .writes(["label"]))
            .up(Access::to(MARKS)
                .writes(["mark", "guid", "note"])
                .reshapes())
            .down(Access::to("tasks").reads(["guid"]))
            .leaves_residue()
    }

    fn up(_run: &Run, unit: &mut Unit<'_>) -> Result<(), Refused> {
        for row in unit.rows("tasks")? {
            let (guid, domain) = (row.text("guid")?, row.text("domain")?);
            let label = match domain {
                "nul" => "a\0b",
                "long" => "12345678901",
                _ => "äöüäöüäöüä",
            };
            row.set_text("label", label)?;
            let mark = |mark: &str, note: Option<&str>| {
                let row = unit.add_row(MARKS)?;
                row.set_text("mark", mark)?;
                row.set_text("guid", guid)?;
                match note {
                    Some(note) => row.set_text("note", note),
                    None => row.set_null("note"),
                }
            };
            match domain {
                "shared" => mark("shared", None)?,
                "cases" => {
                    mark(&format!("mark-{guid}"), None)?;
                    mark(&format!("MARK-{guid}"), None)?;
                }
                "four-bytes" => mark(&format!("🙂-{guid}"), None)?,
                "wide-mark" => mark(&wide(guid), None)?,
                "wide-note" => mark(&format!("mark-{guid}"), Some(&wide(guid)))?,
                "residue" => {
                    mark(&format!("mark-{guid}"), None)?;
                    unit.set_residue(vec![b'r'; RESIDUE])?;
                }
                _ => mark(&format!("mark-{guid}"), None)?,
            }
        }
        Ok(())
    }
}

/// Characters of four bytes that no compression makes shorter.
fn wide(seed: &str) -> String {
    let mut state = seed.bytes().fold(1_u32, |state, byte| {
        state.wrapping_mul(31).wrapping_add(byte.into())
    });
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from_u32(0x2_0000 + (state >> 16) % 0xa000).unwrap_or('🙂')
    };
    (0..WIDE).map(|_| next()).collect()
}

export_migration!(Unstorable);
