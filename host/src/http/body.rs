//! A list as a chunked body: the next page is read when the client has taken the last.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use http_body::Frame;
use tokio::sync::mpsc;
use tracing::Instrument;

use super::Gate;
use crate::api::Pages;

/// The host stopped serving: an end that a client cannot take for the end of the list.
#[derive(Debug, thiserror::Error)]
#[error("the host stopped serving while a list was on its way")]
struct CutOff;

struct Streamed(mpsc::Receiver<Result<Bytes, CutOff>>);

impl HttpBody for Streamed {
    type Data = Bytes;
    type Error = CutOff;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, CutOff>>> {
        self.0.poll_recv(cx).map(|page| page.map(|page| page.map(Frame::data)))
    }
}

/// No more than one page waits for the client while one is being read.
pub(super) fn streamed(mut pages: Pages, gate: Gate) -> Body {
    let (sender, receiver) = mpsc::channel(1);
    let produce = async move {
        while let Some(page) = pages.next().await {
            if !gate.is_open() {
                // Nothing is lost if the client has gone too.
                let _ = sender.send(Err(CutOff)).await;
                return;
            }
            if !page.is_empty() && sender.send(Ok(page.into())).await.is_err() {
                return;
            }
        }
    };
    tokio::spawn(produce.in_current_span());
    Body::new(Streamed(receiver))
}
