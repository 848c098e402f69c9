//! The MySQL server of the tests, with the case-insensitive collation that is its default. Its
//! users are those of the MariaDB server.
//!
//! The server is an installed one, or that of the folder in [`ROOT`].

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::engine::{AsUser, Recipe, UNPRIVILEGED_USER, output_of, server_program};
use super::mariadb;

/// Environment variable with the folder that MySQL is installed in, as `tests/servers mysql` prints
/// it.
const ROOT: &str = "BBS_TEST_MYSQL";

pub static MYSQL: Recipe = Recipe {
    name: "mysql",
    users: &["mysql", UNPRIVILEGED_USER],
    initialise,
    version,
    command,
    crash_signal: "KILL",
    ready: mariadb::ready,
};

/// Reduces durability for speed: commits survive a crash of the server, not a loss of power.
const SETTINGS: [&str; 16] = [
    "--bind-address=127.0.0.1",
    "--skip-name-resolve",
    "--innodb-flush-log-at-trx-commit=2",
    "--innodb-doublewrite=OFF",
    "--innodb-flush-method=nosync",
    "--innodb-buffer-pool-size=128M",
    LOG_SIZE,
    "--innodb-fast-shutdown=2",
    "--performance-schema=OFF",
    "--skip-log-bin",
    "--max-connections=400",
    "--innodb-buffer-pool-load-at-startup=OFF",
    // Many small tables beside each other gain nothing by threads for one of them.
    "--innodb-ddl-threads=1",
    "--innodb-parallel-read-threads=1",
    "--innodb-sync-spin-loops=0",
    // The X protocol has a port of its own, and a socket in a folder of the system.
    "--mysqlx=OFF",
];
const LOG_SIZE: &str = "--innodb-redo-log-capacity=100M";
/// Otherwise the server uses a folder of the system.
const NO_FILES: &str = "--secure-file-priv=NULL";

fn find() -> PathBuf {
    server_program(ROOT, "mysqld", &["/usr/sbin".into()], "mysql-server-core")
}

/// # Panics
/// If the server is MariaDB, whose packages have a program of the same name.
fn version() -> String {
    let version = output_of(Command::new(find()).args(["--no-defaults", "--version"]));
    assert!(
        !version.contains("MariaDB"),
        "{} is no MySQL; set {ROOT} to what `tests/servers mysql` prints",
        version.trim()
    );
    version
}

fn initialise(folder: &Path, as_user: AsUser<'_>) {
    let mut install = Command::new(find());
    install.args(["--no-defaults", "--initialize-insecure", LOG_SIZE, NO_FILES]);
    install
        .arg(format!("--datadir={}", folder.join("data").display()))
        .current_dir("/");
    as_user(&mut install);
    output_of(&mut install);
    mariadb::write_users(folder);
}

fn command(folder: &Path, port: u16) -> Vec<OsString> {
    let mut words = vec![
        find().into(),
        "--no-defaults".into(),
        format!("--port={port}").into(),
        NO_FILES.into(),
    ];
    words.extend(SETTINGS.map(OsString::from));
    words.extend(mariadb::places(folder));
    words
}
