//! What keeps a host running: one that ends by itself is started again, and everybody learns where it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::block_in_place;

use crate::harness::diego::home::Home;
use crate::harness::host::{Host, Installation};

const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Lines that are told of a host that ended by itself.
const TOLD: usize = 3;

/// Clones are the same.
#[derive(Clone)]
pub struct Supervisor {
    state: Arc<Mutex<State>>,
    /// How often a host ended by itself.
    ended: Arc<AtomicU64>,
}

struct State {
    /// Always there but while one is replaced by the next.
    host: Option<Host>,
    home: Home,
    /// The running host's, and another one's.
    installations: [Arc<Installation>; 2],
}

impl Supervisor {
    /// Keeps a host running until the runtime of the test ends.
    pub fn start(host: Host, home: &Home, installations: [Arc<Installation>; 2]) -> Self {
        let state = State { host: Some(host), home: home.clone(), installations };
        let supervisor = Self { state: Arc::new(Mutex::new(state)), ended: Arc::default() };
        tokio::spawn(supervisor.clone().watch());
        supervisor
    }

    async fn watch(self) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let mut state = self.state.lock().await;
            let host = state.host.as_mut().expect("there is one");
            if host.has_ended() {
                let said = host.said();
                println!("the host ended: {:#?}", &said[said.len().saturating_sub(TOLD)..]);
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
        state.host.take().expect("there is one").kill();
        state.begin(1).await;
    }

    /// Tells the host to end and starts it again.
    pub async fn restart(&self) {
        let mut state = self.state.lock().await;
        let host = state.host.take().expect("there is one");
        let ended = block_in_place(|| host.terminate());
        assert!(ended.success(), "{ended}");
        state.begin(0).await;
    }

    /// Has the other host wait for the lock, and after a while kills the one that has it.
    pub async fn take_over(&self, after: impl Future<Output = ()>) {
        let mut state = self.state.lock().await;
        let mut standby = tokio::spawn(serve(Arc::clone(&state.installations[1])));
        tokio::select! {
            () = after => {
                state.host.take().expect("there is one").kill();
                let host = standby.await.expect("the standby serves");
                state.adopt(host, 1);
            }
            // The other one ended by itself.
            host = &mut standby => state.adopt(host.expect("the standby serves"), 1),
        }
    }

    /// Waits until the host says something new.
    pub async fn hears(&self, wanted: impl Fn(&str) -> bool) {
        let mut state = self.state.lock().await;
        let host = state.host.as_mut().expect("there is one");
        block_in_place(|| host.wait_for_new_line(wanted));
    }
}

impl State {
    async fn begin(&mut self, which: usize) {
        let host = serve(Arc::clone(&self.installations[which])).await;
        self.adopt(host, which);
    }

    fn adopt(&mut self, host: Host, which: usize) {
        self.home.moved_to(host.address);
        self.host = Some(host);
        self.installations.rotate_left(which);
    }
}

/// Starts it again and again where it cannot, as without its database.
pub async fn serve(installation: Arc<Installation>) -> Host {
    loop {
        let command = installation.command(&["serve"]);
        let started = tokio::task::spawn_blocking(|| Host::try_start(command, "serving"));
        match started.await.expect("the host is waited for") {
            Ok(host) => return host,
            Err(said) => println!("the host did not start: {said:?}"),
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
