//! A paged list as a chunked body: the next page is read when the client has taken the last.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use futures_util::stream::unfold;
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

/// Reads at most one page ahead of the client. Drops `client` with the body, or after the last
/// page.
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
    Body::from_stream(unfold((receiver, client), |(mut pages, client)| async {
        let page: Result<Bytes, Aborted> = pages.recv().await?;
        Some((page, (pages, client)))
    }))
}
