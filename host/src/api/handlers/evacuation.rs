//! Calls of a cell that is being evacuated. Each answer says whether to keep the container, also
//! when it has an error. Without an answer, Diego's client decides that as this host does.

use super::{
    DomainError, HandlerCall, HandlerResult, Message, Name, Service, Validate, errors, proto, wire,
};
use crate::api::methods::EvacuationCall;
use crate::domain::evacuation::{self, EvacuationAnswer};

pub(super) async fn call(
    service: &Service,
    method: EvacuationCall,
    call: HandlerCall<'_>,
) -> HandlerResult {
    let answer = match method {
        EvacuationCall::Claimed => claimed(service, call).await,
        EvacuationCall::Running => running(service, call).await,
        EvacuationCall::Crashed => crashed(service, call).await,
        EvacuationCall::Stopped => stopped(service, call).await,
    };
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

/// A container that may still run is kept until the cell sends a valid request.
fn valid<M: Message + Name + Default + Validate>(
    call: HandlerCall<'_>,
    keeps_container: bool,
) -> Result<M, EvacuationAnswer> {
    call.valid().map_err(|refusal| EvacuationAnswer {
        keeps_container,
        refusal: Some(refusal),
    })
}

async fn claimed(service: &Service, call: HandlerCall<'_>) -> EvacuationAnswer {
    let request: proto::EvacuateClaimedActualLrpRequest = match valid(call, true) {
        Ok(request) => request,
        Err(answer) => return answer,
    };
    let key = wire::lrp_key_from(request.actual_lrp_key);
    evacuation::evacuate_claimed(
        service,
        &key,
        &wire::instance_key_from(request.actual_lrp_instance_key),
    )
    .await
}

async fn running(service: &Service, call: HandlerCall<'_>) -> EvacuationAnswer {
    match valid(call, true) {
        Ok(request) => evacuation::evacuate_running(service, &wire::evacuated_from(request)).await,
        Err(answer) => answer,
    }
}

async fn crashed(service: &Service, call: HandlerCall<'_>) -> EvacuationAnswer {
    let request: proto::EvacuateCrashedActualLrpRequest = match valid(call, false) {
        Ok(request) => request,
        Err(answer) => return answer,
    };
    let key = wire::lrp_key_from(request.actual_lrp_key);
    let instance = wire::instance_key_from(request.actual_lrp_instance_key);
    evacuation::evacuate_crashed(service, &key, &instance, &request.error_message).await
}

async fn stopped(service: &Service, call: HandlerCall<'_>) -> EvacuationAnswer {
    let request: proto::EvacuateStoppedActualLrpRequest = match valid(call, false) {
        Ok(request) => request,
        Err(answer) => return answer,
    };
    let key = wire::lrp_key_from(request.actual_lrp_key);
    evacuation::evacuate_stopped(
        service,
        &key,
        &wire::instance_key_from(request.actual_lrp_instance_key),
    )
    .await
}
