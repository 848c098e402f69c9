//! Measures a host from outside while it is attacked: its peak memory, and how long a native call takes.

use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use super::host::Host;

/// Largest peak memory of a host, whatever a client, a module or a peer sends.
const PEAK_MEMORY_MB: u64 = 512;

/// Pause between two samples of the memory of a command.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(1);

/// Pause between two native calls.
const INTERVAL: Duration = Duration::from_millis(50);

/// Far above the delay of a native call on a busy machine, and far below that of a host that is blocked.
const LONGEST_CALL: Duration = Duration::from_secs(5);

/// Calls a host's native `ping` repeatedly until it is checked.
pub struct Watch {
    pid: u32,
    calls: JoinHandle<()>,
    slowest: tokio::sync::watch::Receiver<Duration>,
    /// The host's resident memory after each call, in MiB.
    resident_mb: Arc<Mutex<Vec<u64>>>,
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
        let (sender, slowest) = tokio::sync::watch::channel(Duration::ZERO);
        let resident_mb = Arc::<Mutex<Vec<u64>>>::default();
        let samples = Arc::clone(&resident_mb);
        let calls = tokio::spawn(async move {
            loop {
                let began = Instant::now();
                let answer = client.post(&ping).send().await.expect("the host answers a ping");
                assert!(answer.status().is_success(), "a ping was answered with {}", answer.status());
                sender.send_if_modified(|slowest| {
                    let is_slower = began.elapsed() > *slowest;
                    *slowest = (*slowest).max(began.elapsed());
                    is_slower
                });
                samples.lock().unwrap().extend(memory_mb(pid, "VmRSS"));
                tokio::time::sleep(INTERVAL).await;
            }
        });
        Self { pid, calls, slowest, resident_mb }
    }

    /// The host's peak memory since the start of the watch, in MiB.
    pub fn peak_memory_mb(&self) -> u64 {
        memory_mb(self.pid, "VmHWM").expect("the host runs")
    }

    /// The median of the host's resident memory since the start of the watch or the last call of this, in MiB.
    pub fn median_memory_mb(&self) -> u64 {
        let mut samples = std::mem::take(&mut *self.resident_mb.lock().unwrap());
        samples.sort_unstable();
        samples[samples.len() / 2]
    }

    /// The longest time that a native call took.
    pub fn slowest_call(&self) -> Duration {
        *self.slowest.borrow()
    }

    /// Ends the calls, and asserts that the host runs, answered each of them, and stayed below the limit of memory.
    #[track_caller]
    pub fn assert_unharmed(self) {
        assert!(!self.calls.is_finished(), "the host did not answer a ping");
        self.calls.abort();
        let (peak, slowest) = (self.peak_memory_mb(), self.slowest_call());
        println!("peak memory {peak} MiB, slowest native call {slowest:?}");
        assert!(peak <= PEAK_MEMORY_MB, "peak memory {peak} MiB");
        assert!(slowest < LONGEST_CALL, "a native call took {slowest:?}");
    }
}

/// A size in the status of a process, in MiB; `None` if it has ended.
fn memory_mb(pid: u32, name: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with(name))?;
    let kb = line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok());
    Some(kb.expect("the size is a number of kB") >> 10)
}

/// Runs a command to its end, and asserts that it stayed below the limit of memory.
pub async fn run_within_memory(command: Command) -> Output {
    let (output, peak) = run_watched(command).await;
    println!("peak memory {peak} MiB");
    assert!(peak <= PEAK_MEMORY_MB, "peak memory {peak} MiB");
    output
}

/// Runs a command to its end; returns its output and its peak memory in MiB. The last sample of the peak may miss what it takes
/// in its last millisecond.
pub async fn run_watched(command: Command) -> (Output, u64) {
    let mut command = tokio::process::Command::from(command);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn();
    let child = child.expect("the executable starts");
    let pid = child.id().expect("it was not waited for");
    let mut output = std::pin::pin!(child.wait_with_output());
    let mut peak = 0;
    loop {
        peak = peak.max(memory_mb(pid, "VmHWM").unwrap_or_default());
        tokio::select! {
            output = &mut output => return (output.expect("the command can be waited for"), peak),
            () = tokio::time::sleep(SAMPLE_INTERVAL) => {}
        }
    }
}
