//! The way of lines to a file or a pipe: a thread of their own, so that a disk that is slow or a reader that has stopped
//! never holds up the API. Owns the queue, which is bounded: what finds it full is counted and left out.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

/// Lines that wait. More than a busy second says.
const QUEUE: usize = 16 * 1024;
/// Written at once at most.
const BUFFER: usize = 64 * 1024;
/// How long the end of the process waits for a reader that has stopped.
const PATIENCE: Duration = Duration::from_secs(5);

enum Item {
    Line(String),
    /// Answered once everything before it is written.
    Flush(SyncSender<()>),
}

/// Clones write to the same place, in the order in which they are given lines.
#[derive(Debug, Clone)]
pub struct Writer {
    queue: SyncSender<Item>,
    left_out: Arc<AtomicU64>,
}

impl Writer {
    pub fn start(name: &str, to: impl Write + Send + 'static) -> Self {
        let (queue, items) = sync_channel(QUEUE);
        let thread = std::thread::Builder::new().name(name.to_owned());
        thread.spawn(move || write(&items, to)).expect("a process that starts has room for a thread");
        Self { queue, left_out: Arc::default() }
    }

    /// A line with its end.
    pub fn line(&self, line: String) {
        if self.queue.try_send(Item::Line(line)).is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many lines were left out since somebody last asked.
    pub fn take_left_out(&self) -> u64 {
        self.left_out.swap(0, Ordering::Relaxed)
    }

    /// Waits until what was said so far is written, within reason.
    pub fn flush(&self) {
        let (written, wait) = sync_channel(1);
        if self.queue.send(Item::Flush(written)).is_ok() {
            // Whoever does not read any more will not read this either.
            let _ = wait.recv_timeout(PATIENCE);
        }
    }
}

/// Until nobody is left who could say something. A place that cannot be written to is nowhere to say so.
fn write(items: &Receiver<Item>, mut to: impl Write) {
    let mut buffer = Vec::new();
    let mut put = |buffer: &mut Vec<u8>| {
        let _ = to.write_all(buffer).and_then(|()| to.flush());
        buffer.clear();
    };
    loop {
        let item = match items.try_recv() {
            Ok(item) => item,
            Err(TryRecvError::Disconnected) => return put(&mut buffer),
            Err(TryRecvError::Empty) => {
                put(&mut buffer);
                let Ok(item) = items.recv() else { return };
                item
            }
        };
        match item {
            Item::Line(line) => buffer.extend_from_slice(line.as_bytes()),
            Item::Flush(written) => {
                put(&mut buffer);
                // Nobody waits any more.
                let _ = written.try_send(());
            }
        }
        if buffer.len() >= BUFFER {
            put(&mut buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Takes nothing while it is locked.
    #[derive(Clone, Default)]
    struct Place(Arc<Mutex<Vec<u8>>>);

    impl Write for Place {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_are_written_in_order() {
        let place = Place::default();
        let writer = Writer::start("test", place.clone());
        (0..1000).for_each(|number| writer.line(format!("{number}\n")));
        writer.flush();
        let expected: String = (0..1000).map(|number| format!("{number}\n")).collect();
        assert_eq!(String::from_utf8(place.0.lock().unwrap().clone()).unwrap(), expected);
    }

    #[test]
    fn a_place_that_takes_nothing_holds_nobody_up() {
        let place = Place::default();
        let writer = Writer::start("test", place.clone());
        let stopped = place.0.lock().unwrap();
        let line = "x\n";
        // What waits in the queue and what the thread has in its hands, if it is quick.
        let held = QUEUE + BUFFER / line.len() + 1;
        (0..held + QUEUE).for_each(|_| writer.line(line.to_owned()));
        let left_out = writer.take_left_out() as usize;
        assert!(left_out >= QUEUE, "{left_out}");
        drop(stopped);
        writer.flush();
        assert_eq!(place.0.lock().unwrap().len(), line.len() * (held + QUEUE - left_out));
        assert_eq!(writer.take_left_out(), 0);
    }
}
