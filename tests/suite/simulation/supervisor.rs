//! Supervisor of the host: starts it again when it ends by itself, publishes its address to the
//! components, and installs other modules.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;
use tokio::sync::Mutex;
use tokio::task::block_in_place;

use crate::harness::diego::bbs_client::BbsClient;
use crate::harness::host::{Host, Installation};
use crate::harness::layouts::{NEWEST, SPLIT};
use crate::harness::output::text;
use crate::harness::{modules, pause, until_async};

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
    modules: InstalledModules,
}

/// The modules of both hosts, in a folder that is replaced at once: a link, as BOSH makes for a
/// package.
pub struct InstalledModules {
    folder: TempDir,
    /// The version of the newest migration.
    newest: u64,
}

impl InstalledModules {
    /// The modules up to a version, [`NEWEST`] or [`SPLIT`].
    pub fn up_to(version: u64) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut modules = Self {
            folder,
            newest: version,
        };
        modules.replace(version);
        modules
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("bbs-modules")
    }

    fn replace(&mut self, version: u64) {
        let modules = if version == SPLIT {
            modules::modules_with_split()
        } else {
            modules::modules()
        };
        let next = self.folder.path().join("next");
        symlink(modules, &next).expect("a link can be made");
        std::fs::rename(&next, self.path()).expect("a link can be replaced");
        self.newest = version;
    }
}

impl Supervisor {
    /// Keeps a host running until the runtime of the test ends.
    pub fn start(
        host: Host,
        home: &BbsClient,
        installations: [Arc<Installation>; 2],
        modules: InstalledModules,
    ) -> Self {
        let state = SupervisorState {
            host: Some(host),
            home: home.clone(),
            installations,
            modules,
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
        self.restart_after(|_, _| ()).await;
    }

    /// Terminates the host, makes a change without one, and starts it again.
    async fn restart_after(&self, change: impl FnOnce(&Installation, &mut InstalledModules)) {
        let mut state = self.state.lock().await;
        let host = state.host.take().expect("a host is running");
        let installation = Arc::clone(&state.installations[0]);
        block_in_place(|| {
            let ended = host.terminate();
            assert!(ended.success(), "{ended}");
            change(&installation, &mut state.modules);
        });
        state.begin(0).await;
    }

    /// Installs newer modules, which the host loads while it serves: an online migration begins. It
    /// may end at any time after this returns.
    pub async fn migrate_up(&self) {
        self.state.lock().await.modules.replace(SPLIT);
        // Refused while a host that has just begun to serve has other work, or is not there.
        until_async(async || {
            let state = self.state.lock().await;
            let reload = block_in_place(|| state.installations[0].run(&["module", "reload"]));
            if !reload.status.success() {
                println!("the modules were not loaded again: {}", text(&reload));
            }
            reload.status.success()
        })
        .await;
    }

    /// Takes the database down while no host runs, and installs the older modules.
    pub async fn migrate_down(&self) {
        self.wait_until_migrated().await;
        self.restart_after(|installation, modules| {
            installation.succeed(&["migrate", "down", "--to", &NEWEST.to_string()]);
            modules.replace(NEWEST);
        })
        .await;
    }

    /// Waits until the database is at the version of the newest migration.
    pub async fn wait_until_migrated(&self) {
        until_async(async || {
            let state = self.state.lock().await;
            let version = block_in_place(|| state.installations[0].data_version());
            version == state.modules.newest
        })
        .await;
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
            host = &mut standby => {
                self.ended.fetch_add(1, Ordering::Relaxed);
                state.adopt(host.expect("the standby serves"), 1);
            }
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
