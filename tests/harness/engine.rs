//! Servers that the tests start: real PostgreSQL, PgBouncer, MariaDB and MySQL, an OCI registry and
//! etcd, each with its data in a temporary folder, on a free port of the loopback interface. Owns
//! their start, crash and end; touches no server that it did not start.
//!
//! A server must not outlive the test process, however that process ends. Its parent is therefore a
//! shell that reads from a pipe whose other end only the test process holds: when the pipe closes,
//! the shell kills the server and removes the folder.

use std::ffi::OsString;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::once::{hash_of, made_once};
use super::ports::free_address;

/// Far above what any start takes: reached only by a server that cannot start.
const PATIENCE: Duration = Duration::from_secs(120);
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// Attempts to start a server: another process may bind the chosen port first.
const PORTS_TO_TRY: usize = 5;

/// The system user without privileges, spelled in two parts because `suite/tidy.rs` rejects the
/// word.
pub const UNPRIVILEGED_USER: &str = concat!("no", "body");

pub const USER: &str = "bbs";
pub const PASSWORD: &str = "secret";

/// `$1` is the folder, `$2` the signal that kills the server, `$3` the maximum size of a file in
/// blocks of 512 bytes, the rest is the server's command. A word on the pipe keeps the folder; end
/// of file removes it.
const GUARD: &str = r#"
folder=$1 signal=$2 blocks=$3
shift 3
(
    ulimit -f "$blocks"
    exec "$@"
) </dev/null >>"$folder/log" 2>&1 &
server=$!
read -r word
kill -s "$signal" "$server"
wait "$server"
[ -n "$word" ] || rm -rf "$folder"
"#;

/// The sources of the recipes: a template is initialised again after a change.
const SOURCES: [&str; 6] = [
    include_str!("postgres.rs"),
    include_str!("mariadb.rs"),
    include_str!("mysql.rs"),
    include_str!("pgbouncer.rs"),
    include_str!("registry.rs"),
    include_str!("etcd.rs"),
];

/// Sets the user that a command runs as.
pub type AsUser<'a> = &'a dyn Fn(&mut Command);

/// How one kind of server is initialised and run.
pub struct Recipe {
    pub name: &'static str,
    /// Users to run as, because servers refuse to run as root. The first one that the machine has
    /// is used.
    pub users: &'static [&'static str],
    /// Initialises `<folder>/data`.
    pub initialise: fn(&Path, AsUser<'_>),
    pub version: fn() -> String,
    /// Program and arguments.
    pub command: fn(&Path, u16) -> Vec<OsString>,
    /// The signal that ends the server without further writes.
    pub crash_signal: &'static str,
    /// Whether the server at the other end of a new connection accepts logins.
    pub ready: fn(&mut TcpStream) -> io::Result<bool>,
}

pub struct Engine {
    recipe: &'static Recipe,
    folder: PathBuf,
    port: u16,
    arguments: Vec<String>,
    guard: Mutex<Option<Guard>>,
}

struct Guard {
    shell: Child,
    pipe: ChildStdin,
}

impl Engine {
    /// Starts an empty server with additional arguments. The data folder is a copy of a template
    /// initialised once.
    pub fn start(recipe: &'static Recipe, arguments: &[&str]) -> Self {
        let state = hash_of(((recipe.version)(), owner(recipe), SOURCES));
        let template = made_once(recipe.name, state, |made| {
            let folder = new_folder(recipe);
            (recipe.initialise)(&folder, &|command| become_user(recipe, command));
            copy(&folder.join("data"), made);
            std::fs::remove_dir_all(&folder).expect("the temporary folder can be removed");
        });
        let folder = new_folder(recipe);
        copy(&template.join("data"), &folder);
        let arguments = arguments
            .iter()
            .map(|argument| (*argument).to_owned())
            .collect();
        let mut engine = Self {
            recipe,
            folder,
            port: 0,
            arguments,
            guard: Mutex::new(None),
        };
        for _ in 0..PORTS_TO_TRY {
            engine.port = free_address().port();
            if engine.try_run(None, &[]) {
                return engine;
            }
        }
        panic!("{}: no free port found: {}", recipe.name, engine.log());
    }

    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Kills the server. What it had acknowledged is on disk.
    pub fn crash(&self) {
        let Some(mut guard) = self
            .guard
            .lock()
            .expect("no test panics while it starts a server")
            .take()
        else {
            return;
        };
        guard
            .pipe
            .write_all(b"keep\n")
            .expect("the shell reads the pipe");
        guard.shell.wait().expect("the shell can be waited for");
    }

    /// Restarts the server with the same data and port.
    pub fn restart(&self) {
        self.restart_as(None, &[]);
    }

    /// Restarts the server with arguments that override its own.
    pub fn restart_with(&self, arguments: &[&str]) {
        self.restart_as(None, arguments);
    }

    /// Restarts the server with a maximum file size, which simulates a full disk.
    pub fn restart_with_largest_file(&self, bytes: u64) {
        self.restart_as(Some(bytes), &[]);
    }

    fn restart_as(&self, largest_file: Option<u64>, arguments: &[&str]) {
        self.crash();
        let runs = self.try_run(largest_file, arguments);
        assert!(
            runs,
            "{} does not start again: {}",
            self.recipe.name,
            self.log()
        );
    }

    /// Starts the server and waits until it accepts logins. Returns false if its port was in use.
    #[expect(
        clippy::disallowed_methods,
        reason = "outside a runtime, with nothing to wait on but another process"
    )]
    fn try_run(&self, largest_file: Option<u64>, arguments: &[&str]) -> bool {
        let log_before = self.log().len();
        let mut command = Command::new("sh");
        command
            .args(["-c", GUARD, "guard"])
            .arg(&self.folder)
            .arg(self.recipe.crash_signal);
        command.arg(largest_file.map_or("unlimited".to_owned(), |bytes| (bytes / 512).to_string()));
        command
            .args((self.recipe.command)(&self.folder, self.port))
            .args(&self.arguments)
            .args(arguments);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir(&self.folder);
        // In its own process group: a signal from the terminal ends the tests, and the guard then
        // ends the server.
        command.process_group(0);
        become_user(self.recipe, &mut command);
        let mut shell = command.spawn().expect("a shell starts");
        let pipe = shell.stdin.take().expect("standard input is piped");
        *self
            .guard
            .lock()
            .expect("no test panics while it starts a server") = Some(Guard { shell, pipe });
        let deadline = Instant::now() + PATIENCE;
        while !self.is_ready() {
            if self.log()[log_before..].contains("already in use") {
                self.crash();
                return false;
            }
            assert!(
                Instant::now() < deadline,
                "{} does not start: {}",
                self.recipe.name,
                self.log()
            );
            std::thread::sleep(RETRY_INTERVAL);
        }
        true
    }

    fn is_ready(&self) -> bool {
        let connect = || {
            let mut stream = TcpStream::connect_timeout(&self.address(), PATIENCE)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            (self.recipe.ready)(&mut stream)
        };
        connect().unwrap_or(false)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(Guard { mut shell, pipe }) =
            self.guard.lock().ok().and_then(|mut guard| guard.take())
        {
            drop(pipe);
            // Fails only if the shell has ended already.
            let _ = shell.wait();
        } else {
            // A crashed server leaves it for its restart.
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// The path of a program in `PATH` or in one of `folders`.
///
/// # Panics
/// If it is not installed; the message names the Debian package.
pub fn program(name: &str, folders: &[PathBuf], package: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .chain(folders.iter().cloned())
        .map(|folder| folder.join(name));
    found.into_iter().find(|program| program.is_file()).unwrap_or_else(|| {
        panic!(
            "{name} is not installed, and the tests start their own server with it; install it with \
             `apt-get install --no-install-recommends {package}` or by running tests/run"
        )
    })
}

/// The path of a program of a database server: below the folder that the environment variable
/// `root` names, as `tests/servers` prints it, or without the variable as in [`program`].
///
/// # Panics
/// If it is not there.
pub fn server_program(root: &str, name: &str, folders: &[PathBuf], package: &str) -> PathBuf {
    let Some(folder) = std::env::var_os(root).map(PathBuf::from) else {
        return program(name, folders, package);
    };
    let found = ["sbin", "bin"]
        .map(|programs| folder.join(programs).join(name))
        .into_iter()
        .find(|file| file.is_file());
    found.unwrap_or_else(|| {
        panic!(
            "{root} names {}, which has no {name} in sbin or bin",
            folder.display()
        )
    })
}

/// Runs a command that must succeed and returns its standard output.
pub fn output_of(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// Memory in the form of a file system, where servers have their data if the machine has enough of
/// it: a file system on a disk takes longer than the server for the files of the tables that tests
/// make and remove.
const MEMORY: &str = "/dev/shm";
/// Least free memory, in bytes, for another server: with its logs one takes up to 0.5 GiB, and
/// several tests start servers of their own at the same time.
const FREE_MEMORY: u64 = 4 << 30;

/// The folder of the folders of databases: in memory, unless there is little or `TMPDIR` names
/// another.
pub(super) fn place() -> PathBuf {
    let free = rustix::fs::statvfs(MEMORY).map_or(0, |found| found.f_bavail * found.f_frsize);
    if std::env::var_os("TMPDIR").is_none() && free.min(available_memory()) >= FREE_MEMORY {
        MEMORY.into()
    } else {
        std::env::temp_dir()
    }
}

/// Memory that processes can take, in bytes; 0 if unknown.
fn available_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:")?.strip_suffix("kB"));
    line.and_then(|kilobytes| kilobytes.trim().parse::<u64>().ok())
        .map_or(0, |kilobytes| kilobytes << 10)
}

/// Creates a folder owned by the server's user. The guard removes it.
fn new_folder(recipe: &Recipe) -> PathBuf {
    let folder = tempfile::Builder::new()
        .prefix(&format!("bbs-{}-", recipe.name))
        .tempdir_in(place());
    let folder = folder.expect("a temporary folder").keep();
    if let Some((user, group)) = owner(recipe) {
        chown(&folder, Some(user), Some(group)).expect("root may change a folder's owner");
    }
    folder
}

fn copy(from: &Path, into: &Path) {
    output_of(
        Command::new("cp")
            .args(["-a", "--reflink=auto", "--sparse=always"])
            .arg(from)
            .arg(into),
    );
}

fn become_user(recipe: &Recipe, command: &mut Command) {
    if let Some((user, group)) = owner(recipe) {
        command.uid(user).gid(group);
    }
}

/// User and group that the server runs as if the tests run as root; `None` if it runs as the tests'
/// user.
fn owner(recipe: &Recipe) -> Option<(u32, u32)> {
    let process = std::fs::metadata("/proc/self").expect("a process has a folder in /proc");
    if process.uid() != 0 {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").expect("the list of users");
    let found = recipe.users.iter().find_map(|name| {
        let fields: Vec<_> = users
            .lines()
            .map(|line| line.split(':').collect::<Vec<_>>())
            .find(|line| line[0] == *name)?;
        Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?))
    });
    Some(
        found
            .unwrap_or_else(|| panic!("{} needs one of the users {:?}", recipe.name, recipe.users)),
    )
}
