//! Moves the only part of `run_info` that an update may change, the credentials of the image, to
//! the mutable table. The rest is no complete run info, and no update writes it, so the column is
//! renamed. Not in the default catalog: it belongs to the split of `desired_lrps`, as the part that
//! needs a row function.

mod credentials;

use bbs_sdk::{
    Access, Column, Manifest, Migration, Refused, Row, Run, Unit, Write, export_migration,
};

use credentials::{Parts, merge, split};

#[derive(Debug)]
pub struct ImageCredentials;

const IMMUTABLE: &str = "immutable_desired_lrps";
const MUTABLE: &str = "mutable_desired_lrps";

impl Migration for ImageCredentials {
    fn manifest() -> Manifest {
        Manifest::new(1_795_000_200, "image-credentials")
            .summary("Moves image credentials out of run_info, from the immutable to the mutable desired LRPs")
            .rename_column(IMMUTABLE, "run_info", "immutable_run_info")
            .add_column(MUTABLE, Column::medium_text("image_credentials").nullable().enveloped())
            .up(Access::to(IMMUTABLE).reads(["run_info"]).writes([Write::text("immutable_run_info")]))
            .up(Access::to(MUTABLE).writes(["image_credentials"]))
            .down(Access::to(IMMUTABLE).reads(["immutable_run_info"]).writes([Write::text("run_info")]))
            .down(Access::to(MUTABLE).reads(["image_credentials"]))
            .leaves_residue()
    }

    fn up(_run: &Run, unit: &mut Unit<'_>) -> Result<(), Refused> {
        let Some((immutable, mutable)) = both(unit)? else {
            return Ok(());
        };
        let run_info = immutable.bytes("run_info")?;
        let parts = match unit.decode_residue()? {
            Some(Residue {
                run_info: Some(run_info),
                credentials,
            }) => Parts {
                run_info,
                credentials,
            },
            Some(_) => return Err(Refused::new("the residue holds no `run_info`")),
            None => split(run_info)?,
        };
        immutable.set_bytes("immutable_run_info", &parts.run_info)?;
        mutable.set_bytes_or_null("image_credentials", parts.credentials.as_deref())?;
        // The fields of the message are in an order that `merge` does not write.
        if merge(&parts)? != run_info {
            unit.set_residue(run_info.to_vec())?;
        }
        Ok(())
    }

    fn down(_run: &Run, unit: &mut Unit<'_>) -> Result<(), Refused> {
        let Some((immutable, mutable)) = both(unit)? else {
            return Ok(());
        };
        let credentials = mutable
            .bytes_or_null("image_credentials")?
            .map(<[u8]>::to_vec);
        let parts = Parts {
            run_info: immutable.bytes("immutable_run_info")?.to_vec(),
            credentials,
        };
        let run_info = match unit.residue() {
            Some(residue) => residue.to_vec(),
            None => merge(&parts)?,
        };
        immutable.set_bytes("run_info", &run_info)?;
        if split(&run_info)? != parts {
            unit.encode_residue(&Residue {
                credentials: parts.credentials,
                run_info: Some(parts.run_info),
            })?;
        }
        Ok(())
    }
}

/// The two rows of a desired LRP, if there is one.
fn both<'u>(unit: &'u Unit<'_>) -> Result<Option<(Row<'u>, Row<'u>)>, Refused> {
    if unit.rows(IMMUTABLE)?.next().is_none() && unit.rows(MUTABLE)?.next().is_none() {
        return Ok(None);
    }
    Ok(Some((unit.row(IMMUTABLE)?, unit.row(MUTABLE)?)))
}

/// The residue of `down`.
#[derive(Clone, PartialEq, prost::Message)]
struct Residue {
    /// `None` for NULL.
    #[prost(bytes = "vec", optional, tag = "1")]
    credentials: Option<Vec<u8>>,
    /// The message without credentials.
    #[prost(bytes = "vec", optional, tag = "2")]
    run_info: Option<Vec<u8>>,
}

export_migration!(ImageCredentials);

#[cfg(test)]
mod tests;
