//! Answers that wait for their clients: the memory of all together. Where they take more, the
//! connections whose answers have waited longest are closed; a client that reads has its answer by
//! then.

use std::collections::BTreeMap;
use std::sync::Arc;

use bbs_work::log_sampling::LineLimit;
use bytes::Bytes;
use parking_lot::Mutex;

use super::bodies::UNCOUNTED;
use super::connections::Connection;

/// Bytes of all answers that wait for their clients.
const MOST_BYTES: usize = 128 << 20;
/// Log lines about closed connections, at once and then each minute.
const CLOSED_LINES: u32 = 10;

/// Clones share the memory.
#[derive(Debug, Clone)]
pub(super) struct Answers(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    waiting: Mutex<Waiting>,
    closed: LineLimit,
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: usize,
    next: u64,
    /// Oldest first.
    answers: BTreeMap<u64, WaitingAnswer>,
}

#[derive(Debug)]
struct WaitingAnswer {
    bytes: usize,
    connection: Arc<Connection>,
}

/// An answer, or a page of it, until it has been sent.
struct CountedAnswer {
    bytes: Vec<u8>,
    number: u64,
    answers: Answers,
}

impl AsRef<[u8]> for CountedAnswer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for CountedAnswer {
    fn drop(&mut self) {
        self.answers.0.waiting.lock().remove(self.number);
    }
}

impl Default for Answers {
    fn default() -> Self {
        Self(Arc::new(Shared {
            waiting: Mutex::default(),
            closed: LineLimit::new(CLOSED_LINES, CLOSED_LINES),
        }))
    }
}

impl Answers {
    /// Counts an answer, or a page of it, until its last copy is dropped. Closes connections if
    /// there is no memory for it.
    pub(super) fn counted(&self, bytes: Vec<u8>, connection: &Arc<Connection>) -> Bytes {
        if bytes.len() <= UNCOUNTED {
            return bytes.into();
        }
        let (number, displaced) = self.0.waiting.lock().add(bytes.len(), connection);
        for connection in &displaced {
            connection.close();
        }
        if !displaced.is_empty()
            && let Some(left_out) = self.0.closed.admit()
        {
            tracing::warn!(name: "answers.displaced", left_out,
                "clients read their answers too slowly: the connections of those that have waited longest are closed, \
                 since all answers together take the memory that they may take");
        }
        Bytes::from_owner(CountedAnswer {
            bytes,
            number,
            answers: self.clone(),
        })
    }
}

impl Waiting {
    /// Returns the number of the answer, and the connections to be closed for it.
    fn add(&mut self, bytes: usize, connection: &Arc<Connection>) -> (u64, Vec<Arc<Connection>>) {
        let mut displaced = Vec::new();
        // Not counted any more: their memory is freed at once.
        while self.bytes + bytes > MOST_BYTES
            && let Some((_, oldest)) = self.answers.pop_first()
        {
            self.bytes -= oldest.bytes;
            displaced.push(oldest.connection);
        }
        let number = self.next;
        self.next += 1;
        self.bytes += bytes;
        self.answers.insert(
            number,
            WaitingAnswer {
                bytes,
                connection: Arc::clone(connection),
            },
        );
        (number, displaced)
    }

    fn remove(&mut self, number: u64) {
        if let Some(answer) = self.answers.remove(&number) {
            self.bytes -= answer.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn answers_that_have_waited_longest_give_way() {
        let answers = Answers::default();
        let [first, second, third] = [(); 3].map(|()| Arc::new(Connection::new()));
        let is_closed = |connection: &Connection| connection.closed().now_or_never().is_some();
        let half = || vec![0; MOST_BYTES / 2];
        let _first = answers.counted(half(), &first);
        drop(answers.counted(half(), &second));
        let _third = answers.counted(half(), &third);
        assert!(!is_closed(&first), "the answer to the second was sent");
        let _fourth = answers.counted(half(), &second);
        assert!(is_closed(&first) && !is_closed(&second) && !is_closed(&third));
        drop(_first);
        let _small = answers.counted(vec![0; UNCOUNTED], &second);
        assert!(!is_closed(&third), "a small answer is not counted");
        let waiting = answers.0.waiting.lock();
        assert_eq!((waiting.bytes, waiting.answers.len()), (MOST_BYTES, 2));
    }

    #[tokio::test]
    async fn answer_above_the_limit_is_sent() {
        let answers = Answers::default();
        let connection = Arc::new(Connection::new());
        let large = answers.counted(vec![0; MOST_BYTES + 1], &connection);
        assert_eq!(large.len(), MOST_BYTES + 1);
        assert!(connection.closed().now_or_never().is_none());
    }
}
