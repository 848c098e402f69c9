//! Bodies of requests: their size, the time to send one, and the memory of all bodies and calls in
//! flight. A body that exceeds its limits is rejected before it is decoded.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use bbs_work::log_sampling::LineLimit;
use bytes::BytesMut;
use http_body_util::{BodyExt, Limited};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

use crate::api;

/// `Retry-After` in seconds when other requests take all memory, or a call is to be repeated soon.
pub(super) const BUSY_RETRY_AFTER_S: u64 = 1;
/// Bytes of a body, and of an answer, that are not counted, so that small calls, such as those of
/// cells, are served whatever others send. The number of connections bounds them.
pub(super) const UNCOUNTED: usize = 16 << 10;
/// Bytes of all incomplete bodies, in KiB. A body takes up to twice as much while it grows.
const INCOMPLETE_KIB: usize = 32 << 10;
/// Memory of all calls that run or wait for the database, in KiB.
const CALLS_KIB: usize = 144 << 10;
/// Memory of small calls, in KiB. They have their own, so that they wait for no large one: calls
/// that take less than [`SMALL_CALL_KIB`], as nearly all do.
const SMALL_CALLS_KIB: usize = 48 << 10;
const SMALL_CALL_KIB: u32 = 1 << 10;
/// Log lines about rejected requests, at once and then each minute.
const REJECTED_LINES: u32 = 10;
/// Bytes of the body of a refused request that are read, as many as Go's servers read.
const LARGEST_REFUSED: u64 = 256 << 10;
/// Copies of a body that a call makes at once: message, record, row, sealed text, statement.
const COPIES: usize = 6;

/// Longest time without a byte of a body.
const LONGEST_STALL: Duration = Duration::from_secs(20);
/// Longest time from the head of a request to the end of its body: 35 KB/s for the largest one.
const LONGEST_BODY: Duration = Duration::from_secs(120);
/// Longest wait of a complete request for memory; also for the rest of a body for which there is
/// none.
const LONGEST_MEMORY_WAIT: Duration = Duration::from_secs(5);

/// The memory of bodies and calls. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Memory {
    incomplete: Arc<Semaphore>,
    calls: Arc<Semaphore>,
    small_calls: Arc<Semaphore>,
    rejected: Arc<LineLimit>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            incomplete: semaphore(INCOMPLETE_KIB),
            calls: semaphore(CALLS_KIB),
            small_calls: semaphore(SMALL_CALLS_KIB),
            rejected: Arc::new(LineLimit::new(REJECTED_LINES, REJECTED_LINES)),
        }
    }
}

fn semaphore(permits: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(permits))
}

/// Why a body was not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error("the body is larger than the {largest} bytes that this method reads")]
    TooLarge { largest: usize },
    #[error("the body was not sent in time")]
    Slow,
    /// Other bodies or calls take all of the memory.
    #[error(
        "this host has no memory for the request now, because of other requests; send it again in {BUSY_RETRY_AFTER_S} s"
    )]
    Busy,
    #[error("the body ended unexpectedly")]
    Interrupted(#[source] axum::Error),
}

/// A complete body whose memory is counted.
struct CountedBytes {
    bytes: Bytes,
    _counted: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Memory {
    /// Reads a body of at most `largest` bytes. One whose announced size is too large is rejected
    /// before its first byte. Its memory is counted until the last copy of the bytes is dropped.
    pub(super) async fn read(&self, mut body: Body, largest: usize) -> Result<Bytes, BodyError> {
        if body.is_end_stream() {
            return Ok(Bytes::new());
        }
        if body.size_hint().lower() > largest as u64 {
            return Err(BodyError::TooLarge { largest });
        }
        let mut reading = Reading {
            memory: self,
            largest,
            first: Bytes::new(),
            rest: BytesMut::new(),
            counted: None,
        };
        match timeout(LONGEST_BODY, reading.all(&mut body))
            .await
            .unwrap_or(Err(BodyError::Slow))
        {
            Ok(()) => Ok(reading.counted_bytes()),
            Err(BodyError::Busy) => {
                drop(reading);
                self.discard(body).await;
                Err(BodyError::Busy)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads the rest of a body without keeping it, so that the client reads the answer, and can
    /// send its next request on the same connection.
    async fn discard(&self, mut body: Body) {
        let rest = async { while let Some(Ok(_)) = body.frame().await {} };
        let _ = timeout(LONGEST_MEMORY_WAIT, rest).await;
    }

    /// Reads the body of a request that is refused whatever it says. With unread bytes the system
    /// resets the connection, and the client may lose the answer. A large one is not worth it.
    pub(super) async fn discard_refused(&self, body: Body) {
        if body.size_hint().lower() <= LARGEST_REFUSED {
            let body = Body::new(Limited::new(body, LARGEST_REFUSED as usize));
            self.discard(body).await;
        }
    }

    /// Waits until there is memory for a call with this body. `waits_until` is the end of all waits
    /// of the call.
    pub(super) async fn for_call(
        &self,
        body: &[u8],
        waits_until: Instant,
    ) -> Result<OwnedSemaphorePermit, BodyError> {
        let wanted = permits(body.len() * COPIES + api::decoded_bytes(body)).max(1);
        let calls = if wanted < SMALL_CALL_KIB {
            &self.small_calls
        } else {
            &self.calls
        };
        let waiting = Arc::clone(calls).acquire_many_owned(wanted);
        let end = waits_until.min(Instant::now() + LONGEST_MEMORY_WAIT);
        let acquired = timeout_at(end, waiting).await.map_err(|_| self.busy())?;
        Ok(acquired.expect("the semaphore is never closed"))
    }

    fn busy(&self) -> BodyError {
        if let Some(left_out) = self.rejected.admit() {
            tracing::warn!(name: "requests.rejected", left_out,
                "requests are rejected: those in flight take all memory that they may take");
        }
        BodyError::Busy
    }
}

/// Whole KiB.
fn permits(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1 << 10))
        .unwrap_or(u32::MAX)
        .min(CALLS_KIB as u32)
}

/// A body of which a part was read.
struct Reading<'a> {
    memory: &'a Memory,
    largest: usize,
    /// Not copied if it is the only one, as of most requests.
    first: Bytes,
    rest: BytesMut,
    counted: Option<OwnedSemaphorePermit>,
}

impl Reading<'_> {
    async fn all(&mut self, body: &mut Body) -> Result<(), BodyError> {
        loop {
            let frame = timeout(LONGEST_STALL, body.frame())
                .await
                .map_err(|_| BodyError::Slow)?;
            let Some(frame) = frame else { return Ok(()) };
            // Trailers are ignored.
            if let Ok(data) = frame.map_err(BodyError::Interrupted)?.into_data() {
                self.push(data)?;
            }
        }
    }

    fn push(&mut self, data: Bytes) -> Result<(), BodyError> {
        let length = self.first.len() + self.rest.len() + data.len();
        if length > self.largest {
            return Err(BodyError::TooLarge {
                largest: self.largest,
            });
        }
        self.count(length)?;
        if self.first.is_empty() && self.rest.is_empty() {
            self.first = data;
            return Ok(());
        }
        self.rest
            .extend_from_slice(&std::mem::take(&mut self.first));
        self.rest.extend_from_slice(&data);
        Ok(())
    }

    fn count(&mut self, length: usize) -> Result<(), BodyError> {
        let counted = self
            .counted
            .as_ref()
            .map_or(0, |permit| permit.num_permits());
        let wanted = permits(length.saturating_sub(UNCOUNTED)) as usize;
        if wanted > counted {
            let more = u32::try_from(wanted - counted).expect("it was a u32");
            let more = Arc::clone(&self.memory.incomplete).try_acquire_many_owned(more);
            let more = more.map_err(|_| self.memory.busy())?;
            match &mut self.counted {
                Some(counted) => counted.merge(more),
                None => self.counted = Some(more),
            }
        }
        Ok(())
    }

    fn counted_bytes(mut self) -> Bytes {
        let bytes = if self.rest.is_empty() {
            self.first
        } else {
            self.rest.split().freeze()
        };
        match self.counted {
            Some(counted) => Bytes::from_owner(CountedBytes {
                bytes,
                _counted: counted,
            }),
            None => bytes,
        }
    }
}

#[cfg(test)]
mod tests;
