//! PgBouncer in front of the tests' shared PostgreSQL server.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::database::Kind;
use super::engine::{
    AsUser, Engine, PASSWORD, Recipe, UNPRIVILEGED_USER, USER, output_of, program,
};
use super::postgres;

/// A client has a session of the server for as long as it is connected.
static SESSION_MODE: Recipe = recipe(|folder, port| command(folder, port, "session"));
/// A client has one for each transaction.
static TRANSACTION_MODE: Recipe = recipe(|folder, port| command(folder, port, "transaction"));

const fn recipe(command: fn(&Path, u16) -> Vec<OsString>) -> Recipe {
    Recipe {
        name: "pgbouncer",
        users: &["postgres", UNPRIVILEGED_USER],
        initialise,
        version: || output_of(Command::new(find()).arg("--version")),
        command,
        crash_signal: "KILL",
        ready: postgres::ready,
    }
}

/// A running pooler, which ends with the test.
pub struct PgBouncer(Engine);

impl PgBouncer {
    pub fn in_session_mode() -> Self {
        Self(Engine::start(&SESSION_MODE, &[]))
    }

    pub fn in_transaction_mode() -> Self {
        Self(Engine::start(&TRANSACTION_MODE, &[]))
    }

    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

fn find() -> PathBuf {
    program("pgbouncer", &["/usr/sbin".into()], "pgbouncer")
}

fn initialise(folder: &Path, as_user: AsUser<'_>) {
    let data = folder.join("data");
    let mut made = Command::new("mkdir");
    // The guard, which removes the folder, runs as that user.
    as_user(made.arg(&data));
    output_of(&mut made);
    let users = format!("\"{USER}\" \"{PASSWORD}\"\n");
    std::fs::write(data.join("users"), users).expect("the new folder can be written");
}

/// Writes the configuration too, which names the port.
fn command(folder: &Path, port: u16, mode: &str) -> Vec<OsString> {
    let server = Kind::Postgres.engine().address().port();
    let users = folder.join("data/users");
    // More connections to the server than a host opens, because each of its own keeps one.
    let settings = format!(
        "[databases]\n* = host=127.0.0.1 port={server}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
         unix_socket_dir =\nauth_type = scram-sha-256\nauth_file = {}\npool_mode = {mode}\ndefault_pool_size = 50\n",
        users.display()
    );
    let file = folder.join("data/pgbouncer.ini");
    std::fs::write(&file, settings).expect("the folder can be written");
    vec![find().into(), file.into()]
}
