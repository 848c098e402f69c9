//! The PostgreSQL server of the tests. Its collation is that of a language, not of bytes, as in
//! many installations; its user may create databases and use [`TABLESPACE`], and has no other
//! privilege.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::engine::{AsUser, PASSWORD, Recipe, UNPRIVILEGED_USER, USER, output_of, server_program};

/// How the server keeps [`PASSWORD`]: with one round of hashing in the place of 4,096, which the
/// client too computes for each connection.
const VERIFIER: &str = "SCRAM-SHA-256$1:c2FsdCBvZiB0aGUgdGVzdA==$iQlZ3CVsHzdJO/dh16Fv7He8zWqRsL7rja9Ng9jYuBU=:OBAVJMIGw2q/47wjdZmxCbA26IKfucdvYcnKtBaKPz0=";

/// A tablespace beside the one by default. It is within the server's folder, so that it is copied
/// with it.
const TABLESPACE: &str = "op_space";

/// Environment variable with the folder of another PostgreSQL, as `tests/servers` prints it.
const ROOT: &str = "BBS_TEST_POSTGRES";

pub static POSTGRES: Recipe = Recipe {
    name: "postgres",
    users: &["postgres", UNPRIVILEGED_USER],
    initialise,
    version: || output_of(Command::new(find("postgres")).arg("--version")),
    command,
    crash_signal: "QUIT",
    ready,
};

/// Reduces durability for speed: commits survive a crash of the server, not a loss of power.
const SETTINGS: [&str; 8] = [
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "fsync=off",
    "full_page_writes=off",
    "shared_buffers=64MB",
    "max_connections=400",
    "max_wal_size=256MB",
    // Recovery after a crash refuses one otherwise.
    IN_PLACE_TABLESPACES,
];
const IN_PLACE_TABLESPACES: &str = "allow_in_place_tablespaces=on";

fn find(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten();
    let mut folders: Vec<_> = versions
        .filter_map(Result::ok)
        .map(|version| version.path().join("bin"))
        .collect();
    folders.sort();
    folders.reverse();
    server_program(ROOT, name, &folders, "postgresql")
}

fn initialise(folder: &Path, as_user: AsUser<'_>) {
    let data = folder.join("data");
    let password = folder.join("password");
    std::fs::write(&password, PASSWORD).expect("the new folder can be written");
    let mut initdb = Command::new(find("initdb"));
    initdb.args([
        "--username=postgres",
        "--encoding=UTF8",
        "--locale=C",
        "--locale-provider=icu",
        "--icu-locale=en",
    ]);
    initdb
        .args([
            "--no-sync",
            "--wal-segsize=1",
            "--auth=scram-sha-256",
            "--pwfile",
        ])
        .arg(password)
        .arg("--pgdata")
        .arg(&data);
    initdb.current_dir("/");
    as_user(&mut initdb);
    output_of(&mut initdb);
    let mut single = Command::new(find("postgres"));
    single.args(["--single", "-c", IN_PLACE_TABLESPACES, "-D"]);
    single.arg(&data).arg("postgres");
    as_user(&mut single);
    let mut child = single
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .current_dir("/")
        .spawn()
        .expect("it starts");
    let statements = format!(
        "CREATE ROLE {USER} LOGIN CREATEDB CREATEROLE PASSWORD '{VERIFIER}'\n\
         CREATE TABLESPACE {TABLESPACE} LOCATION ''\n\
         GRANT CREATE ON TABLESPACE {TABLESPACE} TO {USER}\n"
    );
    child
        .stdin
        .take()
        .expect("standard input is piped")
        .write_all(statements.as_bytes())
        .expect("it reads its input");
    let status = child.wait().expect("it can be waited for");
    assert!(status.success(), "{single:?}: {status}");
}

fn command(folder: &Path, port: u16) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec![
        find("postgres").into(),
        "-D".into(),
        folder.join("data").into(),
        "-p".into(),
        port.to_string().into(),
    ];
    for setting in SETTINGS {
        words.extend(["-c".into(), setting.into()]);
    }
    words
}

/// A server that accepts logins answers a start-up message with an authentication request (`R`),
/// one that still starts with an error.
pub fn ready(stream: &mut TcpStream) -> io::Result<bool> {
    let version = 196_608_u32.to_be_bytes();
    let parameters = format!("user\0{USER}\0\0");
    let length = u32::try_from(8 + parameters.len())
        .expect("a short message")
        .to_be_bytes();
    stream.write_all(&[&length[..], &version, parameters.as_bytes()].concat())?;
    let mut kind = [0];
    stream.read_exact(&mut kind)?;
    Ok(kind == *b"R")
}
