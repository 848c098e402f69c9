//! Asynchronous output of lines to a file or a pipe, from a thread of its own, so that a slow disk
//! or a reader that has stopped never blocks the API. Owns the queue, which is bounded: lines that
//! find it full, and those that the output refuses, are dropped and counted.

use std::io::{ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::time::{Duration, Instant};

/// Lines in the queue; more than a busy second produces.
const QUEUE: usize = 16 * 1024;
/// Bytes that are collected before a write.
const BUFFER: usize = 64 * 1024;
/// How long the end of the process waits for a reader that has stopped.
const PATIENCE: Duration = Duration::from_secs(5);
/// Interval at which a flush looks for room in a full queue.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

enum Item {
    Line(String),
    /// Acknowledged once everything before it is written.
    Flush(SyncSender<()>),
}

/// A handle to the output; clones write to the same output, in the order in which they send lines.
#[derive(Debug, Clone)]
pub struct LineWriter {
    queue: SyncSender<Item>,
    lost: Arc<LostLines>,
}

/// Lines that were dropped.
#[derive(Debug, Default)]
struct LostLines {
    count: AtomicU64,
    /// Whether the output refused the last ones.
    is_refusing: AtomicBool,
}

impl LineWriter {
    /// Starts the thread that writes to `to`.
    ///
    /// # Panics
    /// If the thread cannot be started.
    pub fn start(name: &str, to: impl Write + Send + 'static) -> Self {
        let (queue, items) = sync_channel(QUEUE);
        let lost = Arc::<LostLines>::default();
        let refused = Arc::clone(&lost);
        let thread = std::thread::Builder::new().name(name.to_owned());
        thread
            .spawn(move || write(&items, to, &refused))
            .expect("a process that starts has room for a thread");
        Self { queue, lost }
    }

    /// Queues a line, which includes its newline. Never blocks.
    pub fn line(&self, line: String) {
        if self.queue.try_send(Item::Line(line)).is_err() {
            self.lost.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether lines were dropped since the last call of [`take_left_out`](Self::take_left_out).
    pub fn has_left_out(&self) -> bool {
        self.lost.count.load(Ordering::Relaxed) > 0
    }

    /// Whether the output refuses lines, so that a report in it would be lost, too.
    pub fn is_refusing(&self) -> bool {
        self.lost.is_refusing.load(Ordering::Relaxed)
    }

    /// Returns how many lines were dropped since the last call.
    pub fn take_left_out(&self) -> u64 {
        self.lost.count.swap(0, Ordering::Relaxed)
    }

    /// Waits until all queued lines are written, for up to 5 s.
    pub fn flush(&self) {
        self.flush_within(PATIENCE);
    }

    fn flush_within(&self, patience: Duration) {
        let deadline = Instant::now() + patience;
        let (written, wait) = sync_channel(1);
        let mut flush = Item::Flush(written);
        // `send` would block for ever on a full queue that a reader which has stopped does not
        // empty.
        while let Err(TrySendError::Full(unsent)) = self.queue.try_send(flush) {
            if Instant::now() >= deadline {
                return;
            }
            flush = unsent;
            std::thread::park_timeout(RETRY_INTERVAL);
        }
        // A reader that has stopped reads neither this nor anything before it.
        let _ = wait.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

/// Writes until every sender is gone. Lines that the output does not take, such as a full disk, are
/// dropped and counted.
fn write(items: &Receiver<Item>, mut to: impl Write, lost: &LostLines) {
    let mut buffer = Vec::new();
    // Whether the output has taken a part of a line, and not its end.
    let mut is_inside_line = false;
    let mut put = |buffer: &mut Vec<u8>| {
        if buffer.is_empty() {
            return;
        }
        let ends_line = is_inside_line;
        if ends_line {
            buffer.insert(0, b'\n');
        }
        let taken = write_until_refused(&mut to, buffer);
        if let Some(last) = buffer[..taken].last() {
            is_inside_line = *last != b'\n';
        }
        let is_refused = taken < buffer.len() || to.flush().is_err();
        let refused = &buffer[taken.max(usize::from(ends_line))..];
        let lines = refused.iter().filter(|byte| **byte == b'\n').count();
        lost.count.fetch_add(lines as u64, Ordering::Relaxed);
        lost.is_refusing.store(is_refused, Ordering::Relaxed);
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
                // The flush may have timed out.
                let _ = written.try_send(());
            }
        }
        if buffer.len() >= BUFFER {
            put(&mut buffer);
        }
    }
}

/// Writes until the output refuses; returns how many bytes it has taken.
fn write_until_refused(to: &mut impl Write, bytes: &[u8]) -> usize {
    let mut taken = 0;
    while taken < bytes.len() {
        match to.write(&bytes[taken..]) {
            Ok(0) => break,
            Ok(more) => taken += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    taken
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Blocks writers while it is locked.
    #[derive(Clone, Default)]
    struct BlockedOutput(Arc<Mutex<Vec<u8>>>);

    impl Write for BlockedOutput {
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
        let place = BlockedOutput::default();
        let writer = LineWriter::start("test", place.clone());
        (0..1000).for_each(|number| writer.line(format!("{number}\n")));
        writer.flush();
        let expected: String = (0..1000).map(|number| format!("{number}\n")).collect();
        assert_eq!(
            String::from_utf8(place.0.lock().unwrap().clone()).unwrap(),
            expected
        );
    }

    #[test]
    fn lines_that_the_output_refuses_are_counted() {
        let full: &'static mut [u8] = &mut [];
        let writer = LineWriter::start("test", full);
        (0..3).for_each(|_| writer.line("x\n".to_owned()));
        writer.flush();
        assert!(writer.has_left_out() && writer.is_refusing());
        assert_eq!(writer.take_left_out(), 3);
        assert!(!writer.has_left_out());
    }

    /// A disk that is full, then has room for five bytes, is full again, and then has room.
    struct FullDisk {
        written: BlockedOutput,
        writes: usize,
    }

    impl Write for FullDisk {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.writes += 1;
            match self.writes {
                1 | 3 => Err(ErrorKind::StorageFull.into()),
                2 => self.written.write(&bytes[..5]),
                _ => self.written.write(bytes),
            }
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn part_of_a_line_that_the_output_took_is_ended_before_the_next_line() {
        let written = BlockedOutput::default();
        let disk = FullDisk {
            written: written.clone(),
            writes: 0,
        };
        let writer = LineWriter::start("test", disk);
        for (line, left_out) in [("refused\n", 1), ("cut off\n", 1), ("whole\n", 0)] {
            writer.line(line.to_owned());
            writer.flush();
            assert_eq!(writer.take_left_out(), left_out, "{line}");
            assert_eq!(writer.is_refusing(), left_out > 0, "{line}");
        }
        assert_eq!(&**written.0.lock().unwrap(), b"cut o\nwhole\n");
    }

    #[test]
    fn blocked_output_does_not_block_callers() {
        let place = BlockedOutput::default();
        let writer = LineWriter::start("test", place.clone());
        let stopped = place.0.lock().unwrap();
        let line = "x\n";
        // Lines in the queue, plus those that the thread may have taken already.
        let held = QUEUE + BUFFER / line.len() + 1;
        (0..held + QUEUE).for_each(|_| writer.line(line.to_owned()));
        let left_out = writer.take_left_out() as usize;
        assert!(left_out >= QUEUE, "{left_out}");
        // Ends although the queue is full.
        writer.flush_within(2 * RETRY_INTERVAL);
        drop(stopped);
        writer.flush();
        assert_eq!(
            place.0.lock().unwrap().len(),
            line.len() * (held + QUEUE - left_out)
        );
        assert_eq!(writer.take_left_out(), 0);
    }
}
