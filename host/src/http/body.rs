//! A paged list as a chunked body: the next page is read when the client has taken the last.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use http_body::Frame;
use tokio::sync::mpsc;
use tokio_util::sync::DropGuard;
use tracing::Instrument;

use super::Gate;
use super::answers::Answers;
use super::connections::Connection;
use crate::api::Pages;

/// The host stopped serving. Aborts the body, so that the client does not take the end for the end
/// of the list.
#[derive(Debug, thiserror::Error)]
#[error("the host stopped serving before the list was complete; request it again")]
struct Aborted;

struct Streamed {
    pages: mpsc::Receiver<Result<Bytes, Aborted>>,
    #[expect(
        dead_code,
        reason = "held for its destructor: the client has disconnected, or has all pages"
    )]
    client: DropGuard,
}

impl HttpBody for Streamed {
    type Data = Bytes;
    type Error = Aborted;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        self.pages
            .poll_recv(cx)
            .map(|page| page.map(|page| page.map(Frame::data)))
    }
}

/// Reads at most one page ahead of the client. Drops `client` with the body.
pub(super) fn streamed(
    mut pages: Box<Pages>,
    gate: Gate,
    client: DropGuard,
    answers: Answers,
    connection: Arc<Connection>,
) -> Body {
    let (sender, receiver) = mpsc::channel(1);
    let produce = async move {
        // Fails if the client has disconnected.
        while let Ok(place) = pages.wait_for(sender.reserve()).await {
            let Some(page) = pages.next().await else {
                return;
            };
            if !gate.is_open() {
                place.send(Err(Aborted));
                return;
            }
            if !page.is_empty() {
                place.send(Ok(answers.counted(page, &connection)));
            }
        }
    };
    tokio::spawn(produce.in_current_span());
    Body::new(Streamed {
        pages: receiver,
        client,
    })
}
