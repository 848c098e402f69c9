//! Observes a host from outside while it is attacked: its memory, and whether it answers native
//! calls. How long a call takes is measured here and asserted by the soak only.

use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use super::PATIENCE;
use super::host::Host;

/// Largest peak memory of a host, whatever a client, a module or a peer sends.
const PEAK_MEMORY_MB: u64 = 512;

/// Memory of a process beside its data, which alone the compiler's limit counts: its code, as far
/// as it is used.
const CODE_MB: u64 = 64;

/// Pause between two samples of the memory of a command.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(1);

/// Pause between two native calls.
const INTERVAL: Duration = Duration::from_millis(50);

/// Calls a host's native `ping` repeatedly until it is checked.
pub struct Watch {
    pid: u32,
    task: JoinHandle<()>,
    answers: tokio::sync::watch::Receiver<Answers>,
    /// The host's resident memory after each call, in MiB.
    resident_mb: Arc<Mutex<Vec<u64>>>,
}

/// The native calls that the host has answered.
#[derive(Debug, Clone, Copy, Default)]
struct Answers {
    count: u64,
    slowest: Duration,
}

impl Watch {
    /// Starts the calls. The peak memory before this does not count.
    pub fn on(host: &Host) -> Self {
        Self::of(host.pid(), host.url("/v1/ping"), super::http_client())
    }

    /// [`Self::on`] for a host that is reached at `ping` by `client`.
    pub fn of(pid: u32, ping: String, client: reqwest::Client) -> Self {
        // If the kernel refuses, the peak is that of the whole run.
        let _ = std::fs::write(format!("/proc/{pid}/clear_refs"), "5");
        let (sender, answers) = tokio::sync::watch::channel(Answers::default());
        let resident_mb = Arc::<Mutex<Vec<u64>>>::default();
        let samples = Arc::clone(&resident_mb);
        let task = tokio::spawn(async move {
            loop {
                let began = Instant::now();
                let answer = client
                    .post(&ping)
                    .send()
                    .await
                    .expect("the host answers a ping");
                assert!(
                    answer.status().is_success(),
                    "a ping was answered with {}",
                    answer.status()
                );
                sender.send_modify(|answers| {
                    answers.count += 1;
                    answers.slowest = answers.slowest.max(began.elapsed());
                });
                samples.lock().unwrap().extend(memory_mb(pid, "VmRSS"));
                tokio::time::sleep(INTERVAL).await;
            }
        });
        Self {
            pid,
            task,
            answers,
            resident_mb,
        }
    }

    /// Waits for the first answer: the calls have a connection of their own from then on.
    pub async fn has_begun(&mut self) {
        self.answers_after(0).await;
    }

    /// Waits until the host has answered more than these calls.
    async fn answers_after(&mut self, count: u64) {
        let answered = tokio::time::timeout(
            PATIENCE,
            self.answers.wait_for(|answers| answers.count > count),
        );
        answered
            .await
            .expect("the host answers a ping")
            .expect("the host answered each ping");
    }

    /// The host's peak memory since the start of the watch, in MiB.
    pub fn peak_memory_mb(&self) -> u64 {
        memory_mb(self.pid, "VmHWM").expect("the host runs")
    }

    /// The median of the host's resident memory since the start of the watch or the last call of
    /// this, in MiB.
    pub fn median_memory_mb(&self) -> u64 {
        let mut samples = std::mem::take(&mut *self.resident_mb.lock().unwrap());
        samples.sort_unstable();
        samples[samples.len() / 2]
    }

    /// The longest time that a native call took.
    pub fn slowest_call(&self) -> Duration {
        self.answers.borrow().slowest
    }

    /// Asserts that the host runs, has answered each call, answers one that begins now, and stayed
    /// below the limit of memory. Ends the calls.
    pub async fn assert_unharmed(mut self) {
        // The next answer may be to a call that has begun already.
        let count = self.answers.borrow().count + 1;
        self.answers_after(count).await;
        self.task.abort();
        let peak = self.peak_memory_mb();
        let slowest = self.slowest_call();
        println!("peak memory {peak} MiB, slowest native call {slowest:?}");
        assert!(peak <= PEAK_MEMORY_MB, "peak memory {peak} MiB");
    }
}

/// A size in the status of a process, in MiB; `None` if it has ended.
fn memory_mb(pid: u32, name: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with(name))?;
    let kb = line
        .split_whitespace()
        .nth(1)
        .and_then(|kb| kb.parse::<u64>().ok());
    Some(kb.expect("the size is a number of kB") >> 10)
}

/// The processes that a process has started and that have not ended.
pub fn children(pid: u32) -> Vec<u32> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    // A thread may end meanwhile.
    let lists = threads
        .flatten()
        .flat_map(|thread| std::fs::read_to_string(thread.path().join("children")));
    lists
        .flat_map(|list| {
            list.split_whitespace()
                .map(|pid| pid.parse().expect("a number"))
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Runs a command to its end, and asserts that it and the processes that it starts stayed below the
/// limit of memory.
pub async fn run_within_memory(command: Command) -> Output {
    let (output, peak) = run_watched(command).await;
    println!("peak memory {peak} MiB");
    assert!(peak <= PEAK_MEMORY_MB + CODE_MB, "peak memory {peak} MiB");
    output
}

/// Runs a command to its end; returns its output and its peak memory in MiB, or that of a process
/// that it started. The last sample of the peak may miss what it takes in its last millisecond.
pub async fn run_watched(command: Command) -> (Output, u64) {
    let mut command = tokio::process::Command::from(command);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    let child = child.expect("the executable starts");
    let pid = child.id().expect("it was not waited for");
    let mut output = std::pin::pin!(child.wait_with_output());
    let mut peak = 0;
    loop {
        let peaks = children(pid)
            .into_iter()
            .chain([pid])
            .filter_map(|pid| memory_mb(pid, "VmHWM"));
        peak = peaks.fold(peak, u64::max);
        tokio::select! {
            output = &mut output => return (output.expect("the command can be waited for"), peak),
            () = tokio::time::sleep(SAMPLE_INTERVAL) => {}
        }
    }
}
