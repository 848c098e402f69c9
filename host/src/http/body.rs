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

/// The host stopped serving, or failed to read a page. Aborts the body, so that the client does not
/// take the end for the end of the list.
#[derive(Debug, thiserror::Error)]
#[error("the host could not complete the list; request it again")]
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
    let produced = tokio::spawn(produce.in_current_span());
    let state = Some((receiver, produced, client));
    Body::from_stream(unfold(state, |state| async move {
        let (mut pages, produced, client) = state?;
        let page: Option<Result<Bytes, Aborted>> = pages.recv().await;
        if let Some(page) = page {
            return Some((page, Some((pages, produced, client))));
        }
        // The channel also ends when the task panics, or is dropped by the end of the process.
        let failed = produced.await.err()?;
        tracing::error!(name: "list_aborted", reason = %failed, "a list ended before its last page");
        Some((Err(Aborted), None))
    }))
}
