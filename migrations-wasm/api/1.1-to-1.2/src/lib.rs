//! API 1.1, Diego's current one, in terms of the API with definitions: a desired LRP has one scheduling info, also during an
//! update. Everything else passes as it is: clients skip the fields that they do not know.

use bbs_sdk::wire::{self, Field, WireError};
use bbs_sdk::{ApiVersion, Fault, Next, Translator, TranslatorManifest, export_translator};

/// Field numbers: the infos of an answer, whether it has one or a list; the key of an info; the process guid of a key.
const INFO: u32 = 2;
const KEY: u32 = 1;
const PROCESS_GUID: u32 = 1;

#[derive(Debug)]
pub struct WithoutDefinitions;

impl Translator for WithoutDefinitions {
    fn manifest() -> TranslatorManifest {
        TranslatorManifest::new(ApiVersion::new(1, 1), ApiVersion::new(1, 2), "without-definitions")
            .summary("One scheduling info for each desired LRP; no updates to other definitions")
            .paged_method("DesiredLRPSchedulingInfos", "/v1/desired_lrp_scheduling_infos/list")
            .method("DesiredLRPSchedulingInfoByProcessGuid", "/v1/desired_lrp_scheduling_infos/get_by_process_guid")
            .hides("DesiredLRPSchedulingInfos_r1")
            .hides("DesiredLRPSchedulingInfoByProcessGuid_r1")
            .hides("CancelUpdateDesiredLRP")
            .hides("RollbackDesiredLRP")
            .hides("DesiredLRPUpdateStatus")
            .hides("LRPDefinitions")
    }

    fn call(method: &str, request: &[u8], next: &dyn Next) -> Result<Vec<u8>, Fault> {
        let newer = match method {
            "DesiredLRPSchedulingInfos" => "DesiredLRPSchedulingInfos_r1",
            "DesiredLRPSchedulingInfoByProcessGuid" => "DesiredLRPSchedulingInfoByProcessGuid_r1",
            other => return Err(Fault::new(format!("API 1.1 has no method {other}"))),
        };
        let answer = next.call(newer, request)?;
        Ok(current_infos(&answer)?.unwrap_or(answer))
    }
}

/// The answer without the info of a previous definition, which follows that of the current one; `None` if it has none.
fn current_infos(answer: &[u8]) -> Result<Option<Vec<u8>>, WireError> {
    let mut current = Vec::new();
    // Up to here the answer is in `current`.
    let mut written = 0;
    let mut last = None;
    for field in wire::fields(answer) {
        let field = field?;
        if field.number != INFO {
            continue;
        }
        let process_guid = process_guid(field.bytes()?)?;
        if last == Some(process_guid) {
            current.extend_from_slice(&answer[written..field.at]);
            written = field.at + field.raw.len();
        }
        last = Some(process_guid);
    }
    if written == 0 {
        return Ok(None);
    }
    current.extend_from_slice(&answer[written..]);
    Ok(Some(current))
}

/// Reads no more of an info than its beginning: the host writes the key first, and the process guid first in it.
fn process_guid(info: &[u8]) -> Result<&[u8], WireError> {
    let Some(key) = first(info, KEY)? else { return Ok(b"") };
    first(key.bytes()?, PROCESS_GUID)?.map_or(Ok(&b""[..]), |guid| guid.bytes())
}

fn first(message: &[u8], number: u32) -> Result<Option<Field<'_>>, WireError> {
    let found = |field: &Result<Field<'_>, WireError>| field.as_ref().map_or(true, |field| field.number == number);
    wire::fields(message).find(found).transpose()
}

export_translator!(WithoutDefinitions);

#[cfg(test)]
mod tests;
