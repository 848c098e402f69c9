//! Supervisor of the host: starts it again when it ends by itself, and publishes its address to the
//! components.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Mutex;
use tokio::task::block_in_place;

use crate::harness::diego::bbs_client::BbsClient;
use crate::harness::host::{Host, Installation};
use crate::harness::pause;

/// Lines of output that are printed of a host that ended by itself.
const PRINTED: usize = 3;

/// Clones share their state.
#[derive(Clone)]
pub struct Supervisor {
    state: Arc<Mutex<SupervisorState>>,
    /// How often a host ended by itself.
    ended: Arc<AtomicU64>,
}

struct SupervisorState {
    /// `None` only while one host is replaced by the next.
    host: Option<Host>,
    home: BbsClient,
    /// The installation of the running host, and that of the other one.
    installations: [Arc<Installation>; 2],
}

impl Supervisor {
    /// Keeps a host running until the runtime of the test ends.
    pub fn start(host: Host, home: &BbsClient, installations: [Arc<Installation>; 2]) -> Self {
        let state = SupervisorState {
            host: Some(host),
            home: home.clone(),
            installations,
        };
        let supervisor = Self {
            state: Arc::new(Mutex::new(state)),
            ended: Arc::default(),
        };
        tokio::spawn(supervisor.clone().watch());
        supervisor
    }

    async fn watch(self) {
        loop {
            pause().await;
            let mut state = self.state.lock().await;
            let host = state.host.as_mut().expect("a host is running");
            if host.has_ended() {
                let output = host.output();
                println!(
                    "the host ended: {:#?}",
                    &output[output.len().saturating_sub(PRINTED)..]
                );
                self.ended.fetch_add(1, Ordering::Relaxed);
                state.begin(0).await;
            }
        }
    }

    pub fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    /// Kills the host and starts the other.
    pub async fn kill(&self) {
        let mut state = self.state.lock().await;
        state.host.take().expect("a host is running").kill();
        state.begin(1).await;
    }

    /// Terminates the host and starts it again.
    pub async fn restart(&self) {
        let mut state = self.state.lock().await;
        let host = state.host.take().expect("a host is running");
        let ended = block_in_place(|| host.terminate());
        assert!(ended.success(), "{ended}");
        state.begin(0).await;
    }

    /// Starts the other host as a standby, and kills the master when `after` completes.
    pub async fn take_over(&self, after: impl Future<Output = ()>) {
        let mut state = self.state.lock().await;
        let mut standby = tokio::spawn(serve(Arc::clone(&state.installations[1])));
        tokio::select! {
            () = after => {
                state.host.take().expect("a host is running").kill();
                let host = standby.await.expect("the standby serves");
                state.adopt(host, 1);
            }
            // The master ended by itself.
            host = &mut standby => state.adopt(host.expect("the standby serves"), 1),
        }
    }

    /// Waits for a new line of the host's output.
    pub async fn wait_for_line(&self, wanted: impl Fn(&str) -> bool) {
        let mut state = self.state.lock().await;
        let host = state.host.as_mut().expect("a host is running");
        block_in_place(|| host.wait_for_new_line(wanted));
    }
}

impl SupervisorState {
    async fn begin(&mut self, which: usize) {
        let host = serve(Arc::clone(&self.installations[which])).await;
        self.adopt(host, which);
    }

    fn adopt(&mut self, host: Host, which: usize) {
        self.home.set_address(host.address);
        self.host = Some(host);
        self.installations.rotate_left(which);
    }
}

/// Starts a host, and retries while it cannot start, for example without its database.
pub async fn serve(installation: Arc<Installation>) -> Host {
    loop {
        let command = installation.command(&["serve"]);
        let started = tokio::task::spawn_blocking(|| Host::try_start(command, "serving"));
        match started.await.expect("the host is waited for") {
            Ok(host) => return host,
            Err(output) => println!("the host did not start: {output:?}"),
        }
        pause().await;
    }
}
