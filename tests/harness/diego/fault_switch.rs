//! Fault injection for a component of a simulated Diego: how it answers the host's requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::sync::watch;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Behaviour {
    Sound,
    /// Delays every answer until the behaviour changes.
    Slow,
    /// Answers 500 and does nothing.
    Refuses,
    /// Answers 202, breaks the connection within the body, and does nothing.
    Cuts,
    /// Answers 202 with a body that does not end, and does nothing.
    Endless,
    /// Redirects every request to itself.
    Redirects,
}

impl Behaviour {
    pub const FAULTS: [Self; 3] = [Self::Slow, Self::Refuses, Self::Cuts];
    /// Behaviours of a component with no good intentions.
    pub const HOSTILE: [Self; 3] = [Self::Slow, Self::Endless, Self::Redirects];
}

/// The behaviour of one component, which the test changes.
pub struct FaultSwitch {
    behaviour: watch::Sender<Behaviour>,
    requests: AtomicU64,
    /// Number of requests that were not carried out.
    failed: AtomicU64,
    /// Number of requests that the host gave up before their answer was complete.
    given_up: Arc<AtomicU64>,
}

/// Counts a request as given up when it is dropped before its answer is complete.
struct UnfinishedAnswer(Option<Arc<AtomicU64>>);

impl UnfinishedAnswer {
    fn complete(mut self) {
        self.0 = None;
    }
}

impl Drop for UnfinishedAnswer {
    fn drop(&mut self) {
        if let Some(given_up) = &self.0 {
            given_up.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Default for FaultSwitch {
    fn default() -> Self {
        Self {
            behaviour: watch::Sender::new(Behaviour::Sound),
            requests: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            given_up: Arc::default(),
        }
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

    pub fn given_up(&self) -> u64 {
        self.given_up.load(Ordering::Relaxed)
    }

    fn unfinished(&self) -> UnfinishedAnswer {
        UnfinishedAnswer(Some(Arc::clone(&self.given_up)))
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
                let answer = self.unfinished();
                // The host's request has usually timed out by then.
                let _ = self
                    .behaviour
                    .subscribe()
                    .wait_for(|now| *now != Behaviour::Slow)
                    .await;
                answer.complete();
                Some(StatusCode::INTERNAL_SERVER_ERROR.into_response())
            }
            Behaviour::Refuses => Some(StatusCode::INTERNAL_SERVER_ERROR.into_response()),
            Behaviour::Cuts => Some((StatusCode::ACCEPTED, cut_body()).into_response()),
            Behaviour::Endless => {
                Some((StatusCode::ACCEPTED, endless_body(self.unfinished())).into_response())
            }
            // To the same path.
            Behaviour::Redirects => {
                Some((StatusCode::TEMPORARY_REDIRECT, [(LOCATION, "?again")]).into_response())
            }
        }
    }
}

fn endless_body(answer: UnfinishedAnswer) -> Body {
    const CHUNK: &[u8] = &[b' '; 16 << 10];
    Body::from_stream(stream::unfold(answer, async |answer| {
        Some((Ok::<_, std::io::Error>(Bytes::from_static(CHUNK)), answer))
    }))
}

/// A body that fails after its first byte, so that the connection breaks within the response.
pub fn cut_body() -> Body {
    Body::from_stream(stream::iter([
        Ok(Bytes::from_static(b"{")),
        Err(std::io::Error::other("cut")),
    ]))
}
