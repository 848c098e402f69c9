//! Benchmark: rewrites one short column of every row, up and down.

use bbs_sdk::{Access, Manifest, Migration, Refused, Run, Unit, export_migration};

#[derive(Debug)]
pub struct TouchAnnotation;

impl Migration for TouchAnnotation {
    fn manifest() -> Manifest {
        let annotation = || {
            Access::to("desired_lrps")
                .reads(["annotation"])
                .writes(["annotation"])
        };
        Manifest::new(1_900_000_001, "touch-annotation")
            .summary("Appends a dot to desired_lrps.annotation")
            .up(annotation())
            .down(annotation())
    }

    fn up(_run: &Run, unit: &mut Unit<'_>) -> Result<(), Refused> {
        for row in unit.rows("desired_lrps")? {
            if let Some(text) = row.bytes_or_null("annotation")? {
                row.set_bytes("annotation", &[text, b"."].concat())?;
            }
        }
        Ok(())
    }

    fn down(_run: &Run, unit: &mut Unit<'_>) -> Result<(), Refused> {
        for row in unit.rows("desired_lrps")? {
            if let Some(text) = row.bytes_or_null("annotation")? {
                row.set_bytes("annotation", text.strip_suffix(b".").unwrap_or(text))?;
            }
        }
        Ok(())
    }
}

export_migration!(TouchAnnotation);
