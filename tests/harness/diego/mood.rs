//! How a component of a simulated Diego behaves towards the host: well, or in one of the ways in which components fail.

use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::sync::watch;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    Sound,
    /// Answers nothing for as long as it is so.
    Slow,
    /// Answers that something went wrong, and does nothing.
    Refuses,
    /// Promises to do what it is asked, ends the connection within the answer, and does nothing.
    Cuts,
}

impl Behaviour {
    pub const FAULTS: [Self; 3] = [Self::Slow, Self::Refuses, Self::Cuts];
}

pub struct Mood {
    behaviour: watch::Sender<Behaviour>,
    /// Requests that were not carried out.
    failed: AtomicU64,
}

impl Default for Mood {
    fn default() -> Self {
        Self { behaviour: watch::Sender::new(Behaviour::Sound), failed: AtomicU64::new(0) }
    }
}

impl Mood {
    pub fn be(&self, behaviour: Behaviour) {
        self.behaviour.send_replace(behaviour);
    }

    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// The answer to a request that is not carried out.
    pub async fn meet(&self) -> Option<Response> {
        let behaviour = *self.behaviour.borrow();
        if behaviour != Behaviour::Sound {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        match behaviour {
            Behaviour::Sound => None,
            Behaviour::Slow => {
                // Whoever asked has gone by then.
                let _ = self.behaviour.subscribe().wait_for(|now| *now != Behaviour::Slow).await;
                Some(StatusCode::INTERNAL_SERVER_ERROR.into_response())
            }
            Behaviour::Refuses => Some(StatusCode::INTERNAL_SERVER_ERROR.into_response()),
            Behaviour::Cuts => Some((StatusCode::ACCEPTED, cut_body()).into_response()),
        }
    }
}

/// A body with whose beginning the connection ends.
pub fn cut_body() -> Body {
    Body::from_stream(stream::iter([Ok(Bytes::from_static(b"{")), Err(std::io::Error::other("cut"))]))
}
