//! A BOSH machine with the job `bbs` under bpm: read-only packages, a data folder from which
//! nothing can be executed, and a kill some time after the signals. `/var/vcap` of its processes is
//! a folder of the test, in a mount namespace of their own.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::RenderedJob;
use super::package::parse_yaml;
use crate::harness::certificates::{Authority, VALID, client_builder};
use crate::harness::database::{Kind, TestDatabase};
use crate::harness::deployment::{link, link_files};
use crate::harness::host::Host;
use crate::harness::locket::Locket;
use crate::harness::modules;
use crate::harness::ports::free_address;

/// Mounts the machine's folders, and becomes the command.
const ENTER: &str = "mount -t tmpfs none /var && mkdir /var/vcap && mount --bind \"$0\" /var/vcap && cd /var/vcap && \
     mount --bind packages packages && mount -o remount,bind,ro packages && \
     mount --bind data data && mount -o remount,bind,noexec data && cd / && exec \"$@\"";

/// `bpm stop`: SIGTERM, SIGQUIT after 15 s, and SIGKILL 2 s later. Each signal is logged. A process
/// that has ended, and that the test has not waited for yet, does not run.
const BPM: &str = r#"#!/bin/sh
[ "$1 $2" = "stop bbs" ] || exit 1
pid=$(cat /var/vcap/sys/run/bpm/bbs/bbs.pid) || exit 0

runs() {
    state=$(sed -n 's/^State:[[:space:]]*//p' "/proc/$pid/status" 2>/dev/null) && [ -n "$state" ] && [ "${state%% *}" != Z ]
}

# end_with SIGNAL TENTHS: the signal, and that many tenths of a second for the process to end.
end_with() {
    runs || exit 0
    echo "$1" >> /var/vcap/sys/log/bbs/bpm.signals
    kill -s "$1" "$pid"
    for _ in $(seq "$2"); do
        runs || exit 0
        sleep 0.1
    done
}
end_with TERM 150
end_with QUIT 20
end_with KILL 0
"#;

/// The machine has one user.
const SETPRIV: &str = r#"#!/bin/sh
[ "$1 $2 $3 $4 $5" = "--reuid vcap --regid vcap --init-groups" ] || exit 1
shift 5
exec "$@"
"#;

pub struct BpmWorld {
    folder: tempfile::TempDir,
    pub database: TestDatabase,
    pub authority: Authority,
    pub locket: Locket,
    properties: Value,
}

impl BpmWorld {
    /// Installs the packages, makes the database and starts Locket.
    pub fn new(kind: Kind) -> Self {
        bbs::choose_cryptography();
        // On the executable's file system, so that hard links work.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder");
        let database = TestDatabase::new(kind);
        let authority = Authority::new("Diego's");
        let locket = Locket::start();
        let properties = properties(&database, &authority);
        let world = Self {
            folder,
            database,
            authority,
            locket,
            properties,
        };
        for folder in [
            "packages/bbs/bin",
            "packages/bbs-modules",
            "data/bbs/tmp/module-cache",
            "sys/log/bbs",
            "sys/run/bpm/bbs",
        ] {
            std::fs::create_dir_all(world.path(folder)).expect("a folder");
        }
        link(crate::harness::bbs(), &world.path("packages/bbs/bin/bbs"));
        link_files(&modules::modules(), &world.path("packages/bbs-modules"));
        link_files(&modules::cache(), &world.path("data/bbs/tmp/module-cache"));
        world.write("jobs/bpm/bin/bpm", BPM);
        world.write("bosh/bin/setpriv", SETPRIV);
        world
    }

    /// Sets properties below `diego.bbs`.
    pub fn set(mut self, name: &str, value: Value) -> Self {
        self.properties["diego"]["bbs"][name] = value;
        self
    }

    /// Sets a property of the job itself.
    pub fn set_of_the_job(mut self, name: &str, value: Value) -> Self {
        self.properties[name] = value;
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(&path, text).expect("a file");
        let mode = if name.contains("/bin/") { 0o755 } else { 0o640 };
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))
            .expect("a file of this user");
    }

    /// Renders the job's templates, as before each start of a deployment.
    pub fn install(&self) {
        self.install_job("bbs", &self.properties);
        let rendered = std::fs::read_to_string(self.path("jobs/bbs/config/bbs.json"))
            .expect("it was rendered");
        let mut config: Value = serde_json::from_str(&rendered).expect("it is JSON");
        // Certificates of the test's Locket are those of another authority.
        for (key, value) in self.locket.configuration().as_object().expect("an object") {
            config[key] = value.clone();
        }
        self.write("jobs/bbs/config/bbs.json", &config.to_string());
    }

    /// Renders the errand's templates.
    pub fn install_errand(&self, properties: &Value) {
        self.install_job("bbs-migrate", properties);
    }

    fn install_job(&self, job: &str, properties: &Value) {
        for (path, text) in RenderedJob::render(job, properties).texts() {
            self.write(&format!("jobs/{job}/{path}"), text);
        }
    }

    /// A command within the machine.
    pub fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--map-root-user", "sh", "-c", ENTER])
            .arg(self.folder.path());
        command.arg(program).args(arguments);
        // A stemcell has the tools of the agent in the search path of scripts.
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("/var/vcap/bosh/bin:{path}"));
        command
    }

    pub fn run(&self, program: &str, arguments: &[&str]) -> Output {
        self.command(program, arguments)
            .output()
            .expect("`unshare` is part of Debian")
    }

    /// The signals that bpm has sent so far.
    pub fn signals(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.path("sys/log/bbs/bpm.signals")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    /// Adds a program that the job's scripts find before those of the system.
    pub fn add_program(&self, name: &str, script: &str) {
        self.write(&format!("bosh/bin/{name}"), script);
    }

    /// The address in a property below `diego.bbs`, such as `health_addr`.
    pub fn address(&self, property: &str) -> SocketAddr {
        let text = self.properties["diego"]["bbs"][property]
            .as_str()
            .expect("an address");
        text.parse().expect("an address")
    }

    /// The URL of a path of the API.
    pub fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address("listen_addr"))
    }

    /// A client with a certificate that the host accepts.
    pub fn client(&self) -> reqwest::Client {
        let pair = self.authority.issue("cell-1", VALID);
        client_builder(&self.authority, Some(&pair))
            .build()
            .expect("a client")
    }

    /// The scripts of the job in a network of its own, whose parameters they may change.
    pub fn run_in_own_network(&self, program: &str, arguments: &[&str]) -> Output {
        let inside = self.command(program, arguments);
        let mut command = Command::new("unshare");
        command
            .args(["--net", "--map-root-user"])
            .arg(inside.get_program())
            .args(inside.get_args());
        command.output().expect("`unshare` is part of Debian")
    }

    /// A script of the job.
    pub fn script(&self, name: &str) -> Output {
        self.run(&format!("/var/vcap/jobs/bbs/bin/{name}"), &[])
    }

    /// `bbs migrate`, as the errand runs it.
    pub fn migrate(&self, arguments: &[&str]) -> Output {
        let config = ["--config", "/var/vcap/jobs/bbs/config/bbs.json"];
        self.run(
            "/var/vcap/packages/bbs/bin/bbs",
            &[&["migrate"], arguments, &config[..]].concat(),
        )
    }

    /// Starts the host as `bpm.yml` says, and waits until it serves.
    pub fn start(&self) -> Host {
        let host = Host::start(self.process(), "bbs.started");
        self.write("sys/run/bpm/bbs/bbs.pid", &host.pid().to_string());
        host
    }

    /// Starts the host as [`Self::start`] does, and waits for nothing.
    pub fn begin(&self) -> Host {
        Host::begin(self.process())
    }

    /// The process of `bpm.yml`, whose hook has run.
    fn process(&self) -> Command {
        let text =
            std::fs::read_to_string(self.path("jobs/bbs/config/bpm.yml")).expect("it was rendered");
        let process = parse_yaml(&text)["processes"][0].take();
        let hook = self.run(process["hooks"]["pre_start"].as_str().expect("a hook"), &[]);
        assert!(hook.status.success(), "{hook:?}");
        let arguments: Vec<_> = process["args"]
            .as_array()
            .expect("arguments")
            .iter()
            .map(|argument| argument.as_str().expect("text"))
            .collect();
        self.command(
            process["executable"].as_str().expect("a program"),
            &arguments,
        )
    }

    /// Stops the job as `monit stop bbs` does.
    pub fn bpm_stop(&self) -> Output {
        self.run("/var/vcap/jobs/bpm/bin/bpm", &["stop", "bbs"])
    }
}

fn properties(database: &TestDatabase, authority: &Authority) -> Value {
    let server = authority.issue("server", VALID);
    json!({
        "set_kernel_parameters": false,
        "diego": { "bbs": {
            "listen_addr": free_address().to_string(),
            "health_addr": free_address().to_string(),
            "debug_addr": free_address().to_string(),
            "ca_cert": authority.certificate(),
            "server_cert": server.certificate,
            "server_key": server.key,
            "active_key_label": "key-2024",
            "encryption_keys": [{ "label": "key-2024", "passphrase": "correct horse battery staple" }],
            "locket": { "api_location": "127.0.0.1:1" },
            "auctioneer": {
                "api_location": "127.0.0.1:1",
                "ca_cert": authority.certificate(), "client_cert": server.certificate, "client_key": server.key,
            },
            "sql": database.properties(),
        } },
    })
}
