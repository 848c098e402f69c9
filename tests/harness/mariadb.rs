//! The MariaDB server of the tests, with the case-insensitive collation that most installations
//! have. Its user has all privileges on the databases of tests, and no others; another one observes
//! the transactions.

use std::ffi::OsString;
use std::io::{self, Read};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use sqlx::mysql::MySqlConnectOptions;
use sqlx::{Connection, MySqlConnection};

use super::engine::{
    AsUser, Engine, PASSWORD, Recipe, UNPRIVILEGED_USER, USER, output_of, server_program,
};

/// Environment variable with the folder of another MariaDB, as `tests/servers` prints it.
const ROOT: &str = "BBS_TEST_MARIADB";

/// A user that sees which transactions wait, which the tests' own user may not.
pub const OBSERVER: &str = "observer";
/// A user that may do everything but drop tables.
pub const NO_DROP: &str = "no_drop";

pub static MARIADB: Recipe = Recipe {
    name: "mariadb",
    users: &["mysql", UNPRIVILEGED_USER],
    initialise,
    version: || output_of(Command::new(find("mariadbd")).args(["--no-defaults", "--version"])),
    command,
    crash_signal: "KILL",
    ready,
};

/// Reduces durability for speed: commits survive a crash of the server, not a loss of power.
const SETTINGS: [&str; 13] = [
    "--bind-address=127.0.0.1",
    "--skip-name-resolve",
    "--character-set-server=utf8mb4",
    "--collation-server=utf8mb4_general_ci",
    "--innodb-flush-log-at-trx-commit=2",
    "--innodb-doublewrite=OFF",
    "--innodb-buffer-pool-size=128M",
    LOG_SIZE,
    "--innodb-fast-shutdown=2",
    "--performance-schema=OFF",
    "--skip-log-bin",
    "--max-connections=400",
    "--loose-innodb-buffer-pool-load-at-startup=OFF",
];
const LOG_SIZE: &str = "--innodb-log-file-size=48M";

fn find(name: &str) -> PathBuf {
    server_program(
        ROOT,
        name,
        &["/usr/sbin".into(), "/usr/bin".into(), "/usr/libexec".into()],
        "mariadb-server",
    )
}

/// Without the variable, the folder is that of the system's MariaDB.
fn base() -> Option<String> {
    std::env::var(ROOT)
        .ok()
        .map(|root| format!("--basedir={root}"))
}

fn initialise(folder: &Path, as_user: AsUser<'_>) {
    let mut install = Command::new(find("mariadb-install-db"));
    install.args([
        "--no-defaults",
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
        LOG_SIZE,
    ]);
    install
        .args(base())
        .arg(format!("--datadir={}", folder.join("data").display()))
        .current_dir("/");
    as_user(&mut install);
    output_of(&mut install);
    write_users(folder);
}

/// Writes the statements that the server runs at its start.
pub(super) fn write_users(folder: &Path) {
    let users = format!(
        "CREATE USER IF NOT EXISTS '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';\n\
         GRANT ALL ON `test\\_%`.* TO '{USER}'@'%';\n\
         CREATE USER IF NOT EXISTS '{OBSERVER}'@'%' IDENTIFIED BY '{PASSWORD}';\n\
         GRANT PROCESS ON *.* TO '{OBSERVER}'@'%';\n\
         CREATE USER IF NOT EXISTS '{NO_DROP}'@'%' IDENTIFIED BY '{PASSWORD}';\n\
         GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX ON `test\\_%`.* TO '{NO_DROP}'@'%';\n"
    );
    std::fs::write(folder.join("data/users.sql"), users).expect("the new folder can be written");
}

fn command(folder: &Path, port: u16) -> Vec<OsString> {
    let mut words = vec![
        find("mariadbd").into(),
        "--no-defaults".into(),
        format!("--port={port}").into(),
    ];
    words.extend(
        base()
            .into_iter()
            .chain(SETTINGS.map(str::to_owned))
            .map(OsString::from),
    );
    words.extend(places(folder));
    words
}

/// The arguments with a server's files and folders.
pub(super) fn places(folder: &Path) -> [OsString; 5] {
    let at = |option: &str, path: PathBuf| format!("--{option}={}", path.display()).into();
    [
        at("datadir", folder.join("data")),
        at("init-file", folder.join("data/users.sql")),
        at("socket", folder.join("socket")),
        at("pid-file", folder.join("pid")),
        at("tmpdir", folder.to_owned()),
    ]
}

/// A server that accepts logins sends its greeting first.
pub(super) fn ready(stream: &mut TcpStream) -> io::Result<bool> {
    let mut greeting = [0; 5];
    stream.read_exact(&mut greeting)?;
    // After the packet's length and number: the protocol version, 10 in a greeting and 255 in an
    // error.
    Ok(greeting[4] == 10)
}

/// A connection to MySQL or MariaDB as its administrator.
pub async fn administrator(engine: &Engine) -> MySqlConnection {
    let options = MySqlConnectOptions::new()
        .socket(engine.folder().join("socket"))
        .username("root");
    MySqlConnection::connect_with(&options)
        .await
        .expect("the administrator has no password")
}
