//! The host as a child process on a free port of the loopback interface, killed at the end of the
//! test.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use bbs_proto::prost::Message;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::database::{Kind, TestDatabase, data_version};
use super::fixture;
use super::locket::certificate;
use super::on_each::block_on;
use super::output::text;

/// Far above what any wait here takes: reached only by a hang.
const PATIENCE: Duration = Duration::from_secs(120);

/// Lines of the host's log that a failed test prints.
const PRINTED_LINES: usize = 40;

/// A folder with the configuration of a host for one database.
pub struct Installation {
    folder: Arc<tempfile::TempDir>,
    pub database: TestDatabase,
    config: Value,
}

impl Installation {
    /// An installation with the modules of `modules_dir`, an empty database and the fixture's key.
    pub fn new(modules_dir: &Path, kind: Kind) -> Self {
        Self::on(TestDatabase::new(kind), modules_dir)
    }

    /// [`Self::new`] with the fixture, a database that Diego's BBS wrote and no host has opened.
    pub async fn of_diego(modules_dir: &Path, kind: Kind) -> Self {
        let installation = Self::new(modules_dir, kind);
        fixture::write_to(&installation.database).await;
        installation
    }

    /// [`Self::of_diego`] with a quarter of its records, for tests in which their number has no
    /// effect.
    pub async fn of_small_diego(modules_dir: &Path, kind: Kind) -> Self {
        let installation = Self::new(modules_dir, kind);
        fixture::write_small_to(&installation.database).await;
        installation
    }

    /// [`Self::new`] with a database that may have content.
    pub fn on(database: TestDatabase, modules_dir: &Path) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut config = json!({
            "data_dir": folder.path(),
            "listen_address": "127.0.0.1:0",
            "modules_dir": modules_dir,
            "module_cache_dir": super::modules::cache(),
            "encryption_keys": { "key-2024": "correct horse battery staple" },
            "active_key_label": "key-2024",
            "lock_retry_interval": "50ms",
            // BOSH's default. Servers end transactions that are idle for half of it, and a busy
            // machine gives a process no time for seconds.
            "lock_ttl": "15s",
            // Periodic convergence would change the state under test.
            "converge_repeat_interval": "1h",
            // Where that is shorter, tasks last as long as in a BOSH deployment. Without these keys
            // they end at once, as in Diego.
            "expire_pending_task_duration": "30m",
            "expire_completed_task_duration": "2m",
            // No route emitter is late.
            "update_overlap": "0s",
        });
        for (key, value) in database
            .configuration()
            .as_object()
            .expect("an object of keys")
        {
            config[key] = value.clone();
        }
        Self {
            folder: Arc::new(folder),
            database,
            config,
        }
    }

    /// Adds or replaces one key of the configuration.
    pub fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.config[key] = value.into();
        self
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn admin_socket(&self) -> PathBuf {
        self.folder.path().join("admin.sock")
    }

    /// A `bbs` command such as `migrate status --json` with this configuration.
    pub fn command(&self, arguments: &[&str]) -> Command {
        self.command_with(&self.folder.path().join("bbs.json"), arguments)
    }

    /// [`Self::command`] with the configuration in the file at `path`.
    pub fn command_with(&self, path: &Path, arguments: &[&str]) -> Command {
        std::fs::write(path, self.config.to_string()).expect("the configuration can be written");
        let mut command = Command::new(super::bbs());
        command
            .args(arguments)
            .arg("--config")
            .arg(path)
            .env_remove("RUST_LOG")
            // A start takes longer with the authorities of the system, which can be hundreds of
            // files; hosts of `bbs dev` in the tests read those.
            .env("SSL_CERT_FILE", certificate("ca.crt"))
            .env_remove("SSL_CERT_DIR");
        // Not the terminal of the tests, at which a command would wait for an answer.
        command.stdin(std::process::Stdio::null());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments)
            .output()
            .expect("the executable starts")
    }

    /// Runs a command that must succeed and returns its standard output.
    #[track_caller]
    pub fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(
            output.status.success(),
            "bbs {arguments:?}: {}",
            text(&output)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs a command that must fail and returns both streams of its output.
    #[track_caller]
    pub fn fail(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let text = text(&output);
        assert!(
            !output.status.success(),
            "bbs {arguments:?} should have failed: {text}"
        );
        text
    }

    /// The result of `migrate status --json`.
    #[track_caller]
    pub fn status(&self) -> Value {
        let status = self.succeed(&["migrate", "status", "--json"]);
        serde_json::from_str(&status).expect("the status is JSON")
    }

    /// The data version of the database, read without a process.
    #[track_caller]
    pub fn data_version(&self) -> u64 {
        let database = self.database.clone();
        block_on(move || async move {
            let opened = database.open().await;
            let version = data_version(&opened).await;
            opened.close().await;
            version
        })
    }

    /// Starts `bbs serve` and waits until it serves.
    #[track_caller]
    pub fn serve(&self) -> Host {
        let mut host = Host::start(self.command(&["serve"]), "serving");
        host.installed = Some((Arc::clone(&self.folder), self.database.clone()));
        host
    }
}

/// A running host. Killed when dropped.
pub struct Host {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
    pub address: SocketAddr,
    /// The folder and the database, which stay as long as it runs: without its lock file it ends.
    installed: Option<(Arc<tempfile::TempDir>, TestDatabase)>,
}

impl Host {
    /// Starts a command and waits for an output line that contains `sign` and an address, such as
    /// `http://127.0.0.1:1` or `address=127.0.0.1:1`.
    ///
    /// # Panics
    /// If the host ends before that line.
    #[track_caller]
    pub fn start(command: Command, sign: &str) -> Self {
        Self::try_start(command, sign).unwrap_or_else(|seen| panic!("the host ended: {seen:#?}"))
    }

    /// [`Self::start`] for a command that may end first.
    ///
    /// # Errors
    /// The output lines of a host that ended before the line.
    pub fn try_start(command: Command, sign: &str) -> Result<Self, Vec<String>> {
        let mut host = Self::begin(command);
        match host
            .next_line(|line| line.to_lowercase().contains(sign) && address_in(line).is_some())
        {
            Some(line) => host.address = address_in(&line).expect("the line has an address"),
            None => return Err(std::mem::take(&mut host.seen)),
        }
        Ok(host)
    }

    /// Starts a host, and waits for nothing: it may stand by, and its address is not known.
    pub fn begin(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the executable starts");
        let (sender, lines) = channel();
        let streams: [Box<dyn std::io::Read + Send>; 2] = [
            Box::new(child.stdout.take().expect("standard output is piped")),
            Box::new(child.stderr.take().expect("standard error is piped")),
        ];
        for stream in streams {
            let sender = sender.clone();
            std::thread::spawn(move || {
                BufReader::new(stream)
                    .lines()
                    .map_while(Result::ok)
                    .all(|line| sender.send(line).is_ok())
            });
        }
        // The threads hold the only senders: the channel disconnects when both output streams end.
        drop(sender);
        Self {
            child,
            lines,
            seen: Vec::new(),
            address: SocketAddr::from(([0, 0, 0, 0], 0)),
            installed: None,
        }
    }

    /// Waits for an output line that was not returned yet.
    #[track_caller]
    pub fn wait_for_line(&mut self, wanted: impl Fn(&str) -> bool) -> String {
        self.next_line(wanted)
            .unwrap_or_else(|| panic!("the host ended: {:#?}", self.seen))
    }

    /// `None` if the host has ended.
    #[track_caller]
    fn next_line(&mut self, wanted: impl Fn(&str) -> bool) -> Option<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self
                .lines
                .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if wanted(&line) {
                        return Some(line);
                    }
                }
                Err(RecvTimeoutError::Timeout) => panic!("the line did not come: {:#?}", self.seen),
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    /// Waits for an output line that is not available yet.
    #[track_caller]
    pub fn wait_for_new_line(&mut self, wanted: impl Fn(&str) -> bool) -> String {
        self.output();
        self.wait_for_line(wanted)
    }

    pub fn has_ended(&mut self) -> bool {
        self.child
            .try_wait()
            .expect("the host can be waited for")
            .is_some()
    }

    /// All output lines so far.
    pub fn output(&mut self) -> &[String] {
        self.seen.extend(self.lines.try_iter());
        &self.seen
    }

    /// Sends a signal by name, such as `STOP` or `CONT`.
    #[track_caller]
    pub fn signal(&self, name: &str) {
        signal(name, &self.child);
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops the process until it gets the signal `CONT`. Returns once all its threads have stopped:
    /// on a busy machine some run on for a moment.
    pub async fn freeze(&self) {
        self.signal("STOP");
        self.until_stopped().await;
    }

    /// Waits until `BBS_FAULT` has stopped the process.
    pub async fn until_stopped(&self) {
        super::until(|| self.is_stopped()).await;
    }

    /// Waits until `BBS_FAULT` has stopped the process. Returns false if it ends instead.
    pub async fn stops(&mut self) -> bool {
        let mut is_stopped = false;
        super::until(|| {
            is_stopped = self.is_stopped();
            is_stopped || self.has_ended()
        })
        .await;
        is_stopped
    }

    fn is_stopped(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.pid()));
        let mut threads = threads.expect("the process is there");
        threads.all(|thread| {
            let thread = thread.expect("the folder of threads is readable").path();
            // One that has ended meanwhile does not run on.
            let stat = std::fs::read_to_string(thread.join("stat")).unwrap_or_default();
            let state = stat.rsplit_once(')');
            state.is_none_or(|(_, state)| state.trim_start().starts_with('T'))
        })
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Makes a call, and returns its answer.
    pub async fn call<A: Message + Default>(&self, path: &str, request: &impl Message) -> A {
        let call = super::http_client()
            .post(self.url(path))
            .body(request.encode_to_vec());
        let answer = call.timeout(PATIENCE).send().await;
        let answer = answer.expect("the host answers");
        assert_eq!(answer.status().as_u16(), 200, "{path}");
        let body = answer.bytes().await.expect("a body");
        A::decode(body).unwrap_or_else(|fault| panic!("{path}: {fault}"))
    }

    /// Asserts that the host serves: it answers a ping with 200.
    pub async fn ping(&self) {
        self.call::<()>("/v1/ping", &()).await;
    }

    /// Sends `TERM` and waits until the host has ended. Prints its last lines if it fails.
    #[track_caller]
    pub fn terminate(mut self) -> std::process::ExitStatus {
        self.signal("TERM");
        let status = self.wait();
        if !status.success() {
            self.print_last_lines();
        }
        status
    }

    /// Sends `TERM`, and asserts that the host ends without an error.
    #[track_caller]
    pub fn stop(self) {
        let status = self.terminate();
        assert!(status.success(), "{status}");
    }

    /// As [`Self::stop`], while servers in the process of the test answer the host.
    pub async fn end(self) {
        let ended = tokio::task::spawn_blocking(move || self.stop()).await;
        ended.unwrap();
    }

    fn print_last_lines(&mut self) {
        let lines = self.output();
        println!(
            "last lines of the host: {:#?}",
            &lines[lines.len().saturating_sub(PRINTED_LINES)..]
        );
    }

    /// Waits until the host has ended.
    #[track_caller]
    pub fn wait(&mut self) -> std::process::ExitStatus {
        if !super::holds_within(PATIENCE, || self.has_ended()) {
            panic!("the host does not end: {:#?}", self.output());
        }
        self.child.wait().expect("the host can be waited for")
    }

    /// Waits until the host ends on its own; returns its exit status and its output.
    #[track_caller]
    pub fn wait_for_end(mut self) -> (std::process::ExitStatus, String) {
        assert_eq!(self.next_line(|_| false), None);
        (
            self.child.wait().expect("the host can be waited for"),
            self.seen.join("\n"),
        )
    }

    /// Kills the host with `KILL`.
    pub fn kill(mut self) {
        self.child.kill().expect("the host can be killed");
        self.child.wait().expect("the host can be waited for");
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.print_last_lines();
        }
        // Fails only if the host has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal by name to a process whose end was not waited for.
#[track_caller]
pub fn signal(name: &str, process: &Child) {
    let signal = match name {
        "CONT" => Signal::CONT,
        "HUP" => Signal::HUP,
        "INT" => Signal::INT,
        "KILL" => Signal::KILL,
        "QUIT" => Signal::QUIT,
        "STOP" => Signal::STOP,
        "TERM" => Signal::TERM,
        _ => panic!("no test sends {name}"),
    };
    kill_process(Pid::from_child(process), signal).expect("the process is there");
}

fn address_in(line: &str) -> Option<SocketAddr> {
    let start = line.find("127.0.0.1:")?;
    let end = line[start..]
        .find(|c: char| !c.is_ascii_digit() && c != '.' && c != ':')
        .map_or(line.len(), |at| start + at);
    line[start..end]
        .parse()
        .ok()
        .filter(|address: &SocketAddr| address.port() != 0)
}
