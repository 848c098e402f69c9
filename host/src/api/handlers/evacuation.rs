//! Calls of a cell that is being evacuated. Each answer says whether to keep the container, also
//! when it has an error. Without an answer, Diego's client decides that as this host does.

use super::{DomainError, HandlerCall, HandlerResult, Message, Service, errors, proto, wire};
use crate::api::methods::EvacuationCall;
use crate::domain::evacuation::{self, EvacuationAnswer};

pub(super) async fn call(
    service: &Service,
    method: EvacuationCall,
    call: HandlerCall<'_>,
) -> HandlerResult {
    let answer = answer(service, method, call)
        .await
        .unwrap_or_else(|refusal| EvacuationAnswer {
            // A container that may still run is kept until the cell sends a valid request.
            keeps_container: matches!(method, EvacuationCall::Claimed | EvacuationCall::Running),
            refusal: Some(refusal),
        });
    let error = match answer.refusal {
        None => None,
        Some(refusal @ DomainError::NotHeld(_)) => return Err(refusal),
        Some(refusal) if refusal.is_to_be_repeated() => return Err(refusal),
        Some(refusal) => {
            super::end_if_unrecoverable(service, &refusal);
            Some(errors::error(&refusal))
        }
    };
    Ok(proto::EvacuationResponse {
        error,
        keep_container: answer.keeps_container,
    }
    .encode_to_vec())
}

/// The answer to a valid request.
async fn answer(
    service: &Service,
    method: EvacuationCall,
    call: HandlerCall<'_>,
) -> Result<EvacuationAnswer, DomainError> {
    Ok(match method {
        EvacuationCall::Claimed => {
            let request: proto::EvacuateClaimedActualLrpRequest = call.valid()?;
            let key = wire::lrp_key_from(request.actual_lrp_key);
            let instance = wire::instance_key_from(request.actual_lrp_instance_key);
            evacuation::evacuate_claimed(service, &key, &instance).await
        }
        EvacuationCall::Running => {
            evacuation::evacuate_running(service, &wire::evacuated_from(call.valid()?)).await
        }
        EvacuationCall::Crashed => {
            let request: proto::EvacuateCrashedActualLrpRequest = call.valid()?;
            let key = wire::lrp_key_from(request.actual_lrp_key);
            let instance = wire::instance_key_from(request.actual_lrp_instance_key);
            evacuation::evacuate_crashed(service, &key, &instance, &request.error_message).await
        }
        EvacuationCall::Stopped => {
            let request: proto::EvacuateStoppedActualLrpRequest = call.valid()?;
            let key = wire::lrp_key_from(request.actual_lrp_key);
            let instance = wire::instance_key_from(request.actual_lrp_instance_key);
            evacuation::evacuate_stopped(service, &key, &instance).await
        }
    })
}
