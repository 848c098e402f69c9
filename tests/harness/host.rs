//! The host as a process of its own, on a free port of the loopback interface, ended with the test.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::database::{Kind, TestDatabase};

/// Far above what anything here takes: only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(120);

/// Lines of a host's log that are told of a test that failed.
const SAID: usize = 40;

/// A folder with a configuration for one database.
pub struct Installation {
    folder: tempfile::TempDir,
    pub database: TestDatabase,
    config: Value,
}

impl Installation {
    /// Serves the modules of `modules_dir` from a database that is empty, with the fixture's key.
    pub fn new(modules_dir: &Path, kind: Kind) -> Self {
        Self::on(TestDatabase::new(kind), modules_dir)
    }

    pub fn on(database: TestDatabase, modules_dir: &Path) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut config = json!({
            "admin_socket": folder.path().join("admin.sock"),
            "listen_address": "127.0.0.1:0",
            "modules_dir": modules_dir,
            "module_cache_dir": super::modules::cache(),
            "encryption_keys": { "key-2024": "correct horse battery staple" },
            "active_key_label": "key-2024",
            "lock_retry_interval": "50ms",
            "lock_ttl": "5s",
            // What tests look at is not to move by itself.
            "converge_repeat_interval": "1h",
        });
        for (key, value) in database.configuration().as_object().expect("an object of keys") {
            config[key] = value.clone();
        }
        Self { folder, database, config }
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

    fn config_file(&self) -> PathBuf {
        let path = self.folder.path().join("bbs.json");
        std::fs::write(&path, self.config.to_string()).expect("the configuration can be written");
        path
    }

    /// A command such as `migrate status --json`, with this configuration.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(super::bbs());
        command.args(arguments).arg("--config").arg(self.config_file()).env_remove("RUST_LOG");
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the executable starts")
    }

    /// Runs a command that has to succeed, and gives what it printed.
    #[track_caller]
    pub fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "bbs {arguments:?}: {}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    }

    /// Starts `bbs serve` and returns once it serves.
    #[track_caller]
    pub fn serve(&self) -> Host {
        Host::start(self.command(&["serve"]), "serving")
    }
}

/// A running host. Killed when dropped.
pub struct Host {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
    pub address: SocketAddr,
}

impl Host {
    /// Starts a command and waits for a line that contains `sign` and an address, such as `http://127.0.0.1:1`
    /// or `address=127.0.0.1:1`.
    #[track_caller]
    pub fn start(command: Command, sign: &str) -> Self {
        Self::try_start(command, sign).unwrap_or_else(|seen| panic!("the host ended: {seen:#?}"))
    }

    /// The same for a command that may end first. Then it gives what was said.
    pub fn try_start(mut command: Command, sign: &str) -> Result<Self, Vec<String>> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the executable starts");
        let (sender, lines) = channel();
        let streams: [Box<dyn std::io::Read + Send>; 2] = [
            Box::new(child.stdout.take().expect("standard output is piped")),
            Box::new(child.stderr.take().expect("standard error is piped")),
        ];
        for stream in streams {
            let sender = sender.clone();
            std::thread::spawn(move || {
                BufReader::new(stream).lines().map_while(Result::ok).all(|line| sender.send(line).is_ok())
            });
        }
        // Only the threads keep one: when both have ended, so has the host.
        drop(sender);
        let mut host = Self { child, lines, seen: Vec::new(), address: SocketAddr::from(([0, 0, 0, 0], 0)) };
        match host.next_line(|line| line.to_lowercase().contains(sign) && address_in(line).is_some()) {
            Some(line) => host.address = address_in(&line).expect("the line has an address"),
            None => return Err(std::mem::take(&mut host.seen)),
        }
        Ok(host)
    }

    #[track_caller]
    pub fn wait_for_line(&mut self, wanted: impl Fn(&str) -> bool) -> String {
        self.next_line(wanted).unwrap_or_else(|| panic!("the host ended: {:#?}", self.seen))
    }

    /// Nothing: the host has ended.
    #[track_caller]
    fn next_line(&mut self, wanted: impl Fn(&str) -> bool) -> Option<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
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

    /// The same for what it says from now on.
    #[track_caller]
    pub fn wait_for_new_line(&mut self, wanted: impl Fn(&str) -> bool) -> String {
        self.said();
        self.wait_for_line(wanted)
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("the host can be waited for").is_some()
    }

    /// What it has said so far.
    pub fn said(&mut self) -> &[String] {
        self.seen.extend(self.lines.try_iter());
        &self.seen
    }

    /// Sends a signal, such as `STOP`, which takes the air away, and `CONT`, which gives it back.
    #[track_caller]
    pub fn signal(&self, name: &str) {
        let sent = Command::new("sh").args(["-c", &format!("kill -s {name} {}", self.pid())]).status();
        assert!(sent.expect("a shell starts").success());
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Asks the host to end, as an operator's supervisor does, and waits until it has.
    #[track_caller]
    pub fn terminate(mut self) -> std::process::ExitStatus {
        self.signal("TERM");
        self.child.wait().expect("the host can be waited for")
    }

    /// Waits until the host has ended by itself; gives how, and all that it said.
    #[track_caller]
    pub fn wait_for_end(mut self) -> (std::process::ExitStatus, String) {
        assert_eq!(self.next_line(|_| false), None);
        (self.child.wait().expect("the host can be waited for"), self.seen.join("\n"))
    }

    /// Ends the host as a power cut would.
    pub fn kill(mut self) {
        self.child.kill().expect("the host can be killed");
        self.child.wait().expect("the host can be waited for");
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Whoever looks into a failure wants to know how the host saw it.
            let said = self.said();
            println!("the host said last: {:#?}", &said[said.len().saturating_sub(SAID)..]);
        }
        // It may have ended by itself; then there is nothing to kill and nothing to say.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn address_in(line: &str) -> Option<SocketAddr> {
    let start = line.find("127.0.0.1:")?;
    let end =
        line[start..].find(|c: char| !c.is_ascii_digit() && c != '.' && c != ':').map_or(line.len(), |at| start + at);
    line[start..end].parse().ok().filter(|address: &SocketAddr| address.port() != 0)
}
