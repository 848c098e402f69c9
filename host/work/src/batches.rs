//! Long work in batches: each is read, worked on and written, and while one is written, the next is
//! worked on and the one after it is read, unless clients are served meanwhile. Owns the stages, the
//! size of batches and their rate; what a batch is, and the transaction that writes it together with
//! its cursor, belong to the callers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::watch;
use tokio::task::JoinError;
use tokio::time::Instant;

use crate::blocking;
use crate::pauses;
use crate::progress::Progress;
use crate::throttle::Throttle;

/// Batches that wait between two stages: with one in each stage, at most five are in memory.
const WAITING: usize = 1;
/// One slow or fast batch is weak evidence: the next one has at most this many times its units.
const MOST_GROWTH: f64 = 2.0;

/// The size, the rate and the progress of batches, in the units of the work.
#[derive(Debug, Clone)]
pub struct BatchPace {
    /// The size of the first batch.
    pub first: u64,
    /// Below it the fixed cost of a transaction dominates.
    pub least: u64,
    pub most: u64,
    /// The time that writing a batch should take; batches grow or shrink towards it.
    pub time: Duration,
    /// Whether clients are served meanwhile. Then batches do not overlap, the work rests after each,
    /// and its threads have a low priority.
    pub beside_clients: bool,
    /// Awaited before each batch is read.
    pub throttle: Throttle,
    /// Receives each batch that is written.
    pub progress: Progress,
}

impl BatchPace {
    /// The size of the batch after one of `units` that took `spent`.
    fn next_size(&self, units: u64, spent: Duration) -> u64 {
        debug_assert!(self.least <= self.most, "{self:?}");
        let ratio = self.time.as_secs_f64() / spent.as_secs_f64();
        let ratio = ratio.clamp(1.0 / MOST_GROWTH, MOST_GROWTH);
        ((units as f64 * ratio) as u64).clamp(self.least, self.most)
    }
}

/// The result of the work on a batch.
#[derive(Debug)]
pub enum Worked<R, W> {
    Done(W),
    /// The batch is too large for the work; its parts, in order, may not be.
    Divided([R; 2]),
}

/// The pace, and the size of the next batch.
#[derive(Debug, Clone)]
struct PacedSize {
    pace: BatchPace,
    size: Arc<AtomicU64>,
}

/// Sender of the batches that the first stage reads.
#[derive(Debug)]
pub struct ReadBatches<R> {
    shared: PacedSize,
    to_work: Sender<R>,
    /// The units that were handed over, and those of them that are written.
    sent: u64,
    written: watch::Receiver<u64>,
    /// When the last batch was begun.
    began: Instant,
}

impl<R> ReadBatches<R> {
    /// The number of units that the next batch has at most, once the rate permits one.
    pub async fn next_size(&mut self) -> u64 {
        if self.shared.pace.beside_clients && self.sent > 0 {
            // If a later stage has failed, none is written any more, and `send` says so.
            let _ = self.written.wait_for(|written| *written >= self.sent).await;
            pauses::rest_after(self.began.elapsed()).await;
        }
        // Before a batch is read and not before it is written: what clients change in between is
        // copied again.
        let PacedSize { pace, size } = &self.shared;
        pace.throttle.ready(&pace.progress).await;
        self.began = Instant::now();
        pace.throttle.most_units().min(size.load(Ordering::Relaxed))
    }

    /// Hands over a batch. Returns false if a later stage has failed, which returns the error.
    pub async fn send(&mut self, batch: R, units: u64) -> bool {
        self.sent += units;
        self.shared.pace.throttle.take(units);
        self.to_work.send(batch).await.is_ok()
    }
}

/// Receiver of the batches that the last stage writes.
#[derive(Debug)]
pub struct WorkedBatches<W> {
    shared: PacedSize,
    from_work: Receiver<W>,
    written: watch::Sender<u64>,
    began: Instant,
}

impl<W> WorkedBatches<W> {
    /// The next batch; none at the end.
    pub async fn next(&mut self) -> Option<W> {
        let batch = self.from_work.recv().await;
        self.began = Instant::now();
        batch
    }

    /// Records that the batch is durable.
    pub fn written(&self, units: u64) {
        let PacedSize { pace, size } = &self.shared;
        // Never zero, by which the next size would be divided.
        let spent = self.began.elapsed().max(Duration::from_micros(1));
        pace.progress.batch_done(units, spent);
        self.written.send_modify(|written| *written += units);
        size.store(pace.next_size(units, spent), Ordering::Relaxed);
    }
}

/// Takes batches through the three stages: `read` in a task of its own, `work` on [threads
/// for blocking work](blocking), and `write` in the task of the caller. Returns the result of
/// `read` once everything is written.
///
/// # Errors
/// The first error of a stage. The batches before it are written.
pub async fn run<R, W, T, E, Reading, Writing>(
    pace: BatchPace,
    read: impl FnOnce(ReadBatches<R>) -> Reading,
    work: impl Fn(R) -> Result<Worked<R, W>, E> + Send + Sync + 'static,
    write: impl FnOnce(WorkedBatches<W>) -> Writing,
) -> Result<T, E>
where
    R: Send + 'static,
    W: Send + 'static,
    T: Send + 'static,
    E: From<JoinError> + Send + 'static,
    Reading: Future<Output = Result<T, E>> + Send + 'static,
    Writing: Future<Output = Result<(), E>>,
{
    let size = Arc::new(AtomicU64::new(pace.first));
    let beside_clients = pace.beside_clients;
    let shared = PacedSize { pace, size };
    let (to_work, from_read) = channel(WAITING);
    let (to_write, from_work) = channel(WAITING);
    let written = watch::Sender::new(0);
    let found = ReadBatches {
        shared: shared.clone(),
        to_work,
        sent: 0,
        written: written.subscribe(),
        began: Instant::now(),
    };
    let worked = WorkedBatches {
        shared,
        from_work,
        written,
        began: Instant::now(),
    };
    // In tasks of their own, so that one core decodes rows while another encodes them.
    let reading = tokio::spawn(read(found));
    let working = work_on_all(beside_clients, Arc::new(work), from_read, to_write);
    let working = tokio::spawn(working);
    let written = write(worked).await;
    // Each stage runs to its end whatever happens to the others: no statement is abandoned on a
    // connection. A stage that fails or is cancelled drops its channel, which ends the others; the
    // error of the last stage is the most specific.
    let read = reading.await;
    let worked = working.await;
    written?;
    worked??;
    read?
}

async fn work_on_all<R, W, E>(
    beside_clients: bool,
    work: Arc<impl Fn(R) -> Result<Worked<R, W>, E> + Send + Sync + 'static>,
    mut from_read: Receiver<R>,
    to_write: Sender<W>,
) -> Result<(), E>
where
    R: Send + 'static,
    W: Send + 'static,
    E: From<JoinError> + Send + 'static,
{
    while let Some(batch) = from_read.recv().await {
        // In order, the next part last.
        let mut waiting = vec![batch];
        while let Some(batch) = waiting.pop() {
            let work = Arc::clone(&work);
            match blocking::spawn(beside_clients, move || work(batch)).await?? {
                Worked::Divided([first, second]) => waiting.extend([second, first]),
                Worked::Done(done) => {
                    if to_write.send(done).await.is_err() {
                        return Ok(());
                    }
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustix::process::getpriority_process;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum TestFault {
        #[error("the batch from {0} on cannot be written")]
        Write(u64),
        #[error(transparent)]
        Join(#[from] JoinError),
    }

    fn pace() -> BatchPace {
        BatchPace {
            first: 10,
            least: 2,
            most: 20,
            time: Duration::from_millis(100),
            beside_clients: false,
            throttle: Throttle::default(),
            progress: Progress::default(),
        }
    }

    async fn count(end: u64, mut found: ReadBatches<Vec<u64>>) -> Result<u64, TestFault> {
        let mut next = 0;
        while next < end {
            let batch: Vec<_> = (next..end).take(found.next_size().await as usize).collect();
            next += batch.len() as u64;
            let units = batch.len() as u64;
            if !found.send(batch, units).await {
                break;
            }
        }
        Ok(next)
    }

    /// Divides batches of more than three numbers.
    fn divide(mut batch: Vec<u64>) -> Result<Worked<Vec<u64>, Vec<u64>>, TestFault> {
        if batch.len() <= 3 {
            return Ok(Worked::Done(batch));
        }
        let rest = batch.split_off(batch.len() / 2);
        Ok(Worked::Divided([batch, rest]))
    }

    /// Collects numbers up to the batch that has the last one.
    async fn collect(
        numbers: &mut Vec<u64>,
        last: u64,
        mut worked: WorkedBatches<Vec<u64>>,
    ) -> Result<(), TestFault> {
        while let Some(batch) = worked.next().await {
            if batch.contains(&last) {
                return Err(TestFault::Write(batch[0]));
            }
            numbers.extend(&batch);
            worked.written(batch.len() as u64);
        }
        Ok(())
    }

    #[tokio::test]
    async fn work_beside_clients_has_a_low_priority() {
        let mut priorities = Vec::new();
        for beside_clients in [false, true] {
            let pace = BatchPace {
                beside_clients,
                ..pace()
            };
            let work = |_| {
                let priority = getpriority_process(None).expect("a thread has a priority");
                Ok(Worked::Done(priority))
            };
            let write = async |mut worked: WorkedBatches<i32>| {
                while let Some(priority) = worked.next().await {
                    priorities.push(priority);
                    worked.written(100);
                }
                Ok::<_, TestFault>(())
            };
            let read = async |mut found: ReadBatches<()>| {
                found.next_size().await;
                found.send((), 100).await;
                Ok(())
            };
            run(pace, read, work, write).await.unwrap();
        }
        let low = priorities[0].max(blocking::NICENESS);
        assert_eq!(priorities, [priorities[0], low]);
    }

    #[test]
    fn size_follows_the_time_of_a_batch_by_a_factor_of_two_within_its_bounds() {
        let time = pace().time;
        let next = |units, spent| pace().next_size(units, spent);
        assert_eq!(next(8, time), 8);
        assert_eq!(next(8, time * 4 / 3), 6);
        assert_eq!(next(8, time * 100), 4);
        assert_eq!(next(8, time / 100), 16);
        assert_eq!(next(16, time / 100), 20);
        assert_eq!(next(0, time), 2);
    }

    #[tokio::test]
    async fn divided_batches_are_written_in_order() {
        let mut numbers = Vec::new();
        let pace = pace();
        let progress = pace.progress.clone();
        let read = run(
            pace,
            |found| count(100, found),
            divide,
            |worked| collect(&mut numbers, u64::MAX, worked),
        );
        assert_eq!(read.await.unwrap(), 100);
        assert!(numbers.into_iter().eq(0..100));
        assert_eq!(progress.snapshot().done, 100);
    }

    /// Method: each write takes a second, and so the work rests for one; no time passes.
    #[tokio::test(start_paused = true)]
    async fn beside_clients_a_batch_is_read_once_the_one_before_is_written_and_after_a_rest() {
        let pace = BatchPace {
            first: 10,
            least: 10,
            most: 10,
            beside_clients: true,
            ..pace()
        };
        let began = Instant::now();
        let (reads, mut read_at) = tokio::sync::mpsc::unbounded_channel();
        let read = async move |mut found: ReadBatches<u64>| {
            for _ in 0..3 {
                let units = found.next_size().await;
                reads.send(began.elapsed().as_secs()).unwrap();
                if !found.send(units, units).await {
                    break;
                }
            }
            Ok(())
        };
        let write = async |mut worked: WorkedBatches<u64>| {
            while let Some(units) = worked.next().await {
                tokio::time::sleep(Duration::from_secs(1)).await;
                // In parts, as a batch is that was divided.
                worked.written(units / 2);
                worked.written(units - units / 2);
            }
            Ok(())
        };
        let work = |units| Ok::<_, TestFault>(Worked::Done(units));
        run(pace, read, work, write).await.unwrap();
        let mut times = Vec::new();
        while let Some(at) = read_at.recv().await {
            times.push(at);
        }
        assert_eq!(times, [0, 2, 4]);
    }

    #[tokio::test]
    async fn failed_write_ends_all_stages_after_the_batches_before_it() {
        for beside_clients in [false, true] {
            let mut numbers = Vec::new();
            let pace = BatchPace {
                beside_clients,
                ..pace()
            };
            let read = run(
                pace,
                |found| count(u64::MAX, found),
                divide,
                |worked| collect(&mut numbers, 50, worked),
            );
            let Err(TestFault::Write(first)) = read.await else {
                panic!("the batch with 50 is not written")
            };
            assert!(numbers.into_iter().eq(0..first));
        }
    }
}
