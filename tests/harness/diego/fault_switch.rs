//! Fault injection for a component of a simulated Diego: how it answers the host's requests.

use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::sync::watch;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    Sound,
    /// Delays every answer until the behaviour changes.
    Slow,
    /// Answers 500 and does nothing.
    Refuses,
    /// Answers 202, breaks the connection within the body, and does nothing.
    Cuts,
}

impl Behaviour {
    pub const FAULTS: [Self; 3] = [Self::Slow, Self::Refuses, Self::Cuts];
}

/// The behaviour of one component, which the test changes.
pub struct FaultSwitch {
    behaviour: watch::Sender<Behaviour>,
    requests: AtomicU64,
    /// Number of requests that were not carried out.
    failed: AtomicU64,
}

impl Default for FaultSwitch {
    fn default() -> Self {
        Self { behaviour: watch::Sender::new(Behaviour::Sound), requests: AtomicU64::new(0), failed: AtomicU64::new(0) }
    }
}

impl FaultSwitch {
    pub fn set(&self, behaviour: Behaviour) {
        self.behaviour.send_replace(behaviour);
    }

    /// Number of requests so far.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// The answer to a request that is not carried out; `None` if the component is to process it.
    pub async fn intercept(&self) -> Option<Response> {
        let behaviour = *self.behaviour.borrow();
        self.requests.fetch_add(1, Ordering::Relaxed);
        if behaviour != Behaviour::Sound {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        match behaviour {
            Behaviour::Sound => None,
            Behaviour::Slow => {
                // The host's request has usually timed out by then.
                let _ = self.behaviour.subscribe().wait_for(|now| *now != Behaviour::Slow).await;
                Some(StatusCode::INTERNAL_SERVER_ERROR.into_response())
            }
            Behaviour::Refuses => Some(StatusCode::INTERNAL_SERVER_ERROR.into_response()),
            Behaviour::Cuts => Some((StatusCode::ACCEPTED, cut_body()).into_response()),
        }
    }
}

/// A body that fails after its first byte, so that the connection breaks within the response.
pub fn cut_body() -> Body {
    Body::from_stream(stream::iter([Ok(Bytes::from_static(b"{")), Err(std::io::Error::other("cut"))]))
}
