//! The identity of a method of the API: its path, the versions that have it, and its messages.

use std::marker::PhantomData;

use bbs_proto::models;
use bbs_proto::prost::Message;

/// A version of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// Diego's current one, which every BBS serves.
    Diego,
    /// 1.2: Diego's with definitions of desired LRPs, which this project's BBS adds.
    Definitions,
}

impl Version {
    /// The first part of the paths of its methods.
    #[must_use]
    pub const fn root(self) -> &'static str {
        match self {
            Self::Diego => "v1",
            Self::Definitions => "v1.2",
        }
    }
}

/// A method's place in the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Diego's name, with the revision if there is one, such as `DesireTask_r2`.
    pub name: &'static str,
    /// The path below the root of a version, such as `tasks/desire.r2`.
    pub path: &'static str,
    /// The only version that has it; `None` if all have it.
    pub only: Option<Version>,
}

/// A method that is called with a message of type `Q` and answers with one of type `A`.
#[derive(Debug)]
pub struct Method<Q, A> {
    /// Its place in the API.
    pub route: Route,
    messages: PhantomData<fn(Q) -> A>,
}

impl<Q, A> Clone for Method<Q, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Q, A> Copy for Method<Q, A> {}

impl<Q, A> Method<Q, A> {
    pub(crate) const fn new(name: &'static str, path: &'static str, only: Option<Version>) -> Self {
        Self {
            route: Route { name, path, only },
            messages: PhantomData,
        }
    }
}

/// A message that a method answers with.
pub trait Answer: Message + Default {
    /// Takes the error out of the answer; `None` if the call succeeded.
    fn take_error(&mut self) -> Option<models::Error>;
}

impl Answer for models::PingResponse {
    fn take_error(&mut self) -> Option<models::Error> {
        None
    }
}

macro_rules! answers {
    ($($name:ident),* $(,)?) => {
        $(impl Answer for models::$name {
            fn take_error(&mut self) -> Option<models::Error> {
                self.error.take()
            }
        })*
    };
}

answers!(
    ActualLrpLifecycleResponse,
    ActualLrPsByProcessGuidsResponse,
    ActualLrPsResponse,
    CellsResponse,
    DesiredLrpLifecycleResponse,
    DesiredLrpResponse,
    DesiredLrpSchedulingInfoByProcessGuidResponse,
    DesiredLrpSchedulingInfosResponse,
    DesiredLrpUpdateStatusResponse,
    DesiredLrPsResponse,
    DomainsResponse,
    EvacuationResponse,
    LrpDefinitionsResponse,
    RemoveEvacuatingActualLrpResponse,
    StartTaskResponse,
    TaskLifecycleResponse,
    TaskResponse,
    TasksResponse,
    UpsertDomainResponse,
);
