//! Moves the only part of `run_info` that an update may change, the credentials of the image, to
//! the mutable table. The rest is no complete run info, and no update writes it, so the column is
//! renamed. Not in the default catalog: it belongs to the split of `desired_lrps`, as the part that
//! needs a row function.

mod credentials;

use bbs_sdk::wire::{self, Value};
use bbs_sdk::{
    Access, Column, Manifest, Migration, Refused, Row, Run, Unit, Write, export_migration,
};

use credentials::{Parts, merge, split};

#[derive(Debug)]
pub struct ImageCredentials;

const IMMUTABLE: &str = "immutable_desired_lrps";
const MUTABLE: &str = "mutable_desired_lrps";

/// Field numbers of the residue: the column's value, if it was not NULL, and the message without
/// credentials.
const RESIDUE_CREDENTIALS: u32 = 1;
const RESIDUE_RUN_INFO: u32 = 2;

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
        let parts = match unit.residue() {
            Some(residue) => parts_of(residue)?,
            None => split(run_info)?,
        };
        immutable.set_bytes("immutable_run_info", &parts.run_info)?;
        match &parts.credentials {
            Some(credentials) => mutable.set_bytes("image_credentials", credentials)?,
            None => mutable.set_null("image_credentials")?,
        }
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
            unit.set_residue(residue_of(&parts))?;
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

fn residue_of(parts: &Parts) -> Vec<u8> {
    let mut residue = Vec::new();
    if let Some(credentials) = &parts.credentials {
        wire::append(&mut residue, RESIDUE_CREDENTIALS, Value::Bytes(credentials));
    }
    wire::append(
        &mut residue,
        RESIDUE_RUN_INFO,
        Value::Bytes(&parts.run_info),
    );
    residue
}

fn parts_of(residue: &[u8]) -> Result<Parts, Refused> {
    let damaged =
        |error: wire::WireError| Refused::new(format!("the residue cannot be read: {error}"));
    let field = |number| {
        let field = wire::get(residue, number).map_err(damaged)?;
        field
            .map(|field| field.bytes().map(<[u8]>::to_vec).map_err(damaged))
            .transpose()
    };
    let run_info =
        field(RESIDUE_RUN_INFO)?.ok_or_else(|| Refused::new("the residue holds no `run_info`"))?;
    Ok(Parts {
        run_info,
        credentials: field(RESIDUE_CREDENTIALS)?,
    })
}

export_migration!(ImageCredentials);

#[cfg(test)]
mod tests;
