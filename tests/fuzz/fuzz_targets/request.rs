//! Request bodies: decoded and validated.

#![no_main]

use bbs_fuzz::domain::validation::{Validate, check};
use bbs_proto::models as proto;
use libfuzzer_sys::fuzz_target;
use prost::Message;

fn validate<M: Message + Default + Validate>(body: &[u8]) {
    if let Ok(message) = M::decode(body) {
        let _ = check(&message);
        let again = M::decode(&message.encode_to_vec()[..]).expect("what was encoded decodes");
        assert_eq!(
            check(&again),
            check(&message),
            "validation is stable over a round trip"
        );
    }
}

macro_rules! each {
    ($body:expr, $($message:ident),* $(,)?) => { $(validate::<proto::$message>($body);)* };
}

fuzz_target!(|body: &[u8]| {
    each!(
        body,
        UpsertDomainRequest,
        EventsByCellId,
        DesiredLrPsRequest,
        DesiredLrpByProcessGuidRequest,
        DesireLrpRequest,
        UpdateDesiredLrpRequest,
        RemoveDesiredLrpRequest,
        CancelUpdateDesiredLrpRequest,
        RollbackDesiredLrpRequest,
        DesiredLrpUpdateStatusRequest,
        LrpDefinitionsRequest,
        ActualLrPsRequest,
        ActualLrPsByProcessGuidsRequest,
        ClaimActualLrpRequest,
        StartActualLrpRequest,
        CrashActualLrpRequest,
        FailActualLrpRequest,
        RetireActualLrpRequest,
        RemoveActualLrpRequest,
        EvacuateClaimedActualLrpRequest,
        EvacuateRunningActualLrpRequest,
        EvacuateStoppedActualLrpRequest,
        EvacuateCrashedActualLrpRequest,
        RemoveEvacuatingActualLrpRequest,
        TasksRequest,
        TaskByGuidRequest,
        TaskGuidRequest,
        DesireTaskRequest,
        StartTaskRequest,
        CompleteTaskRequest,
        FailTaskRequest,
        RejectTaskRequest,
        TaskDefinition,
    );
});
