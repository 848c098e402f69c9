//! A database for one test, on any of the engines. Owns its name and its removal; the content is
//! the test's.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bbs::testing::database::{
    Address, ConnectionLimits, Database, Dialect, Row, Server, Tls, schema, sql,
};
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection};
use tokio::time::timeout;

use super::engine::{PASSWORD, USER, place};
use super::{block_until, tests_all};

mod kind;
mod lock_waits;

pub(crate) use super::on_each::{on_each_database, on_each_server};
pub use kind::Kind;
pub use lock_waits::LockTimeout;

/// Environment variable for a test process: after how many seconds the server ends an idle
/// transaction.
pub const IDLE_LIMIT_S: &str = "BBS_TEST_IDLE_LIMIT_S";
/// PostgreSQL's code of an error about a database that another session uses.
const OBJECT_IN_USE: &str = "55006";
/// Size of a connection pool. Many tests share a server, which accepts 400 connections.
const CONNECTIONS: u32 = 20;
/// Far above what any statement here takes: reached only if the server waits for a lock.
const PATIENCE: Duration = Duration::from_secs(120);

/// A shared handle: the database is dropped with the last clone, or with its server.
#[derive(Clone)]
pub struct TestDatabase {
    pub kind: Kind,
    location: Arc<Location>,
}

enum Owner {
    Us,
    /// Emptied instead of dropped, for another test.
    UsForReuse,
    /// A handle to the same database through another address or in another process; does not drop
    /// it.
    Other {
        _kept: Option<Arc<Location>>,
    },
}

enum Location {
    /// Without a folder, the caller owns the file.
    File {
        path: PathBuf,
        _folder: Option<tempfile::TempDir>,
    },
    Server {
        kind: Kind,
        address: SocketAddr,
        name: String,
        owner: Owner,
    },
}

impl TestDatabase {
    /// Creates an empty database. All but SQLite's are on the server that all tests of this process
    /// share.
    pub fn new(kind: Kind) -> Self {
        match kind {
            Kind::Sqlite => {
                let folder = tempfile::tempdir_in(place()).expect("a temporary folder");
                Self::file(folder.path().join("bbs.db"), Some(folder))
            }
            Kind::Postgres => {
                let address = kind.engine().address();
                let reused = emptied().pop();
                Self::server(
                    kind,
                    address,
                    reused.unwrap_or_else(|| created(kind, address)),
                    Owner::UsForReuse,
                )
            }
            Kind::Mariadb | Kind::Mysql => Self::on(kind, kind.engine().address()),
        }
    }

    /// Creates an empty database on a server that the test started.
    pub fn on(kind: Kind, address: SocketAddr) -> Self {
        Self::server(kind, address, created(kind, address), Owner::Us)
    }

    /// Opens an SQLite file that the caller owns.
    pub fn at(path: &Path) -> Self {
        Self::file(path.to_owned(), None)
    }

    fn file(path: PathBuf, folder: Option<tempfile::TempDir>) -> Self {
        Self {
            kind: Kind::Sqlite,
            location: Arc::new(Location::File {
                path,
                _folder: folder,
            }),
        }
    }

    fn server(kind: Kind, address: SocketAddr, name: String, owner: Owner) -> Self {
        Self {
            kind,
            location: Arc::new(Location::Server {
                kind,
                address,
                name,
                owner,
            }),
        }
    }

    /// A handle to the same database through another address, such as a proxy.
    pub fn through(&self, address: SocketAddr) -> Self {
        match &*self.location {
            Location::File { .. } => panic!("an SQLite file has no address"),
            Location::Server { name, .. } => Self::server(
                self.kind,
                address,
                name.clone(),
                Owner::Other {
                    _kept: Some(Arc::clone(&self.location)),
                },
            ),
        }
    }

    /// Creates another database with the content of this one, which must have no open connection;
    /// one that is being closed is waited for.
    pub fn copy(&self) -> Self {
        match &*self.location {
            Location::File { path, .. } => {
                let copy = Self::new(Kind::Sqlite);
                std::fs::copy(path, copy.path()).expect("the database can be copied");
                copy
            }
            Location::Server { address, name, .. } if self.kind == Kind::Postgres => {
                let copy = new_name();
                let create = format!("CREATE DATABASE {copy} TEMPLATE {name}");
                let is_in_use = |error: &sqlx::Error| {
                    let code = error.as_database_error().and_then(|error| error.code());
                    code.is_some_and(|code| code == OBJECT_IN_USE)
                };
                let maintenance = self.kind.administrative();
                block_until(|| {
                    let statements = vec![create.clone()];
                    match try_administer(self.kind, *address, maintenance, statements) {
                        Err(error) if is_in_use(&error) => false,
                        created => created
                            .map(|_| true)
                            .unwrap_or_else(|error| panic!("{create}: {error}")),
                    }
                });
                Self::server(self.kind, *address, copy, Owner::Us)
            }
            Location::Server { address, name, .. } => copy_tables(self.kind, *address, name),
        }
    }

    /// The file of an SQLite database.
    pub fn path(&self) -> &Path {
        match &*self.location {
            Location::File { path, .. } => path,
            Location::Server { name, .. } => panic!("{name} is on a server"),
        }
    }

    /// The name of a database on its server.
    pub fn name(&self) -> &str {
        match &*self.location {
            Location::File { path, .. } => panic!("{} is a file", path.display()),
            Location::Server { name, .. } => name,
        }
    }

    pub fn address(&self) -> Address {
        match &*self.location {
            Location::File { path, .. } => Address::Sqlite(path.clone()),
            Location::Server { address, name, .. } => Address::Server(Box::new(Server {
                dialect: self.kind.dialect(),
                host: address.ip().to_string(),
                port: address.port(),
                socket: None,
                user: USER.to_owned(),
                password: PASSWORD.to_owned().into(),
                database: name.clone(),
                tls: Tls::Off,
                client_certificate: None,
                settings: Vec::new(),
                limits: ConnectionLimits {
                    max_connections: CONNECTIONS,
                    ..limits()
                },
            })),
        }
    }

    pub async fn open(&self) -> Database {
        Database::open(&self.address())
            .await
            .expect("the database can be opened")
    }

    /// Ends all sessions of this database, as an administrator or a proxy does.
    ///
    /// # Panics
    /// On SQLite, which has no sessions.
    pub fn end_sessions(&self) {
        let Location::Server {
            kind,
            address,
            name,
            ..
        } = &*self.location
        else {
            panic!("a file has no sessions")
        };
        if kind.dialect() == Dialect::Mysql {
            let sessions = format!(
                "SELECT CAST(id AS CHAR) FROM information_schema.processlist WHERE db = '{name}'"
            );
            for session in administer(*kind, *address, vec![sessions]) {
                // It may have ended by itself.
                let _ = try_administer(
                    *kind,
                    *address,
                    kind.administrative(),
                    vec![format!("KILL {session}")],
                );
            }
        } else {
            let ends = "SELECT pg_terminate_backend(pid)::text FROM pg_stat_activity";
            administer(
                *kind,
                *address,
                vec![format!("{ends} WHERE datname = '{name}'")],
            );
        }
    }

    /// The configuration keys that name this database, as in Diego's `bbs.json`.
    pub fn configuration(&self) -> serde_json::Value {
        json!({ "database_driver": self.kind.driver(), "database_connection_string": self.connection_string() })
    }

    /// The properties of a BOSH job that name this database, which must be on a server.
    pub fn properties(&self) -> serde_json::Value {
        let Location::Server { address, name, .. } = &*self.location else {
            panic!("BOSH deploys no file")
        };
        json!({
            "db_driver": self.kind.driver(),
            "db_host": address.ip().to_string(),
            "db_port": address.port(),
            "db_schema": name,
            "db_username": USER,
            "db_password": PASSWORD,
        })
    }

    fn connection_string(&self) -> String {
        match &*self.location {
            Location::File { path, .. } => path.display().to_string(),
            Location::Server { address, name, .. } => match self.kind.dialect() {
                Dialect::Mysql => format!("{USER}:{PASSWORD}@tcp({address})/{name}"),
                _ => format!("postgres://{USER}:{PASSWORD}@{address}/{name}"),
            },
        }
    }

    /// Encodes the address of this database for another process of the same test;
    /// [`Self::from_word`] decodes it.
    pub fn to_word(&self) -> String {
        match &*self.location {
            Location::File { path, .. } => format!("{},{}", self.kind.name(), path.display()),
            Location::Server { address, name, .. } => {
                format!("{},{address},{name}", self.kind.name())
            }
        }
    }

    pub fn from_word(word: &str) -> Self {
        let (kind, location) = word.split_once(',').expect("the word begins with a kind");
        let kind = Kind::named(kind).expect("a kind of database");
        if kind == Kind::Sqlite {
            return Self::at(location.as_ref());
        }
        let (address, name) = location
            .split_once(',')
            .expect("the word names a server and a database");
        let address = address.parse().expect("an address");
        Self::server(kind, address, name.to_owned(), Owner::Other { _kept: None })
    }
}

impl Drop for Location {
    fn drop(&mut self) {
        let Self::Server {
            kind,
            address,
            name,
            owner,
        } = self
        else {
            return;
        };
        if std::thread::panicking() {
            // The database may be in use still. The server removes it with its folder.
            return;
        }
        match owner {
            Owner::Other { .. } => return,
            // MySQL removes one table after the other. The folder of the server, which ends with the
            // tests, is removed whole; with `tests/run --all` it would get too large in memory.
            Owner::Us if *kind == Kind::Mysql && !tests_all() => return,
            Owner::Us => {}
            Owner::UsForReuse => {
                if let Ok(name) = empty_under_new_name(*address, name) {
                    return emptied().push(name);
                }
            }
        }
        // A server that the test started may have ended already, and its databases with it.
        let force = if *kind == Kind::Postgres {
            " WITH (FORCE)"
        } else {
            ""
        };
        let _ = try_administer(
            *kind,
            *address,
            kind.administrative(),
            vec![format!("DROP DATABASE {name}{force}")],
        );
    }
}

fn new_name() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    format!("test_{}", NUMBER.fetch_add(1, Ordering::Relaxed))
}

fn created(kind: Kind, address: SocketAddr) -> String {
    let name = new_name();
    administer(kind, address, vec![format!("CREATE DATABASE {name}")]);
    name
}

/// Databases of ended tests on the shared PostgreSQL server, which writes and removes some 300
/// files for each database.
fn emptied() -> MutexGuard<'static, Vec<String>> {
    static EMPTIED: Mutex<Vec<String>> = Mutex::new(Vec::new());
    EMPTIED.lock().expect("no lock holder panics")
}

/// The statements that empty a PostgreSQL database, including what other roles own in it. `DROP
/// OWNED` would also end memberships in roles, which other tests grant at the same time.
const EMPTYING: [&str; 3] = [
    "DO $$ DECLARE found record; BEGIN
         FOR found IN SELECT evtname AS name FROM pg_event_trigger LOOP
             EXECUTE format('DROP EVENT TRIGGER %I', found.name);
         END LOOP;
         FOR found IN SELECT pubname AS name FROM pg_publication LOOP
             EXECUTE format('DROP PUBLICATION %I', found.name);
         END LOOP;
         FOR found IN SELECT nspname AS name FROM pg_namespace
                      WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' LOOP
             EXECUTE format('DROP SCHEMA %I CASCADE', found.name);
         END LOOP;
     END $$",
    "CREATE SCHEMA public AUTHORIZATION pg_database_owner",
    "GRANT USAGE ON SCHEMA public TO PUBLIC",
];

/// Empties a PostgreSQL database. It gets a new name, under which connections of its test do not
/// find it again.
fn empty_under_new_name(address: SocketAddr, name: &str) -> Result<String, sqlx::Error> {
    let new = new_name();
    let disconnect = format!(
        "SELECT pg_terminate_backend(pid, 5000)::text FROM pg_stat_activity WHERE datname = '{name}'"
    );
    let rename = format!("ALTER DATABASE {name} RENAME TO {new}");
    try_administer(
        Kind::Postgres,
        address,
        "postgres",
        vec![disconnect, rename],
    )?;
    try_administer(
        Kind::Postgres,
        address,
        &new,
        EMPTYING.map(str::to_owned).to_vec(),
    )?;
    Ok(new)
}

/// The host's default limits; [`IDLE_LIMIT_S`] replaces the idle-in-transaction timeout.
fn limits() -> ConnectionLimits {
    let mut limits = ConnectionLimits::default();
    if let Ok(seconds) = std::env::var(IDLE_LIMIT_S) {
        limits.idle_in_transaction_timeout =
            Duration::from_secs(seconds.parse().expect("a number of seconds"));
    }
    limits
}

fn administer(kind: Kind, address: SocketAddr, statements: Vec<String>) -> Vec<String> {
    try_administer(kind, address, kind.administrative(), statements)
        .unwrap_or_else(|error| panic!("{kind:?} at {address}: {error}"))
}

/// Runs statements on a database; returns the first column of the last result.
fn try_administer(
    kind: Kind,
    address: SocketAddr,
    database: &str,
    statements: Vec<String>,
) -> Result<Vec<String>, sqlx::Error> {
    let path = format!("{USER}:{PASSWORD}@{address}/{database}");
    let description = statements.join("; ");
    // A separate thread and runtime: callers are inside a runtime or outside of one.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let work = async {
            let mut found = Vec::new();
            if kind.dialect() == Dialect::Mysql {
                let mut connection = MySqlConnection::connect(&format!("mysql://{path}")).await?;
                for statement in statements {
                    let rows = sqlx::raw_sql(AssertSqlSafe(statement))
                        .fetch_all(&mut connection)
                        .await?;
                    found = rows.iter().map(|row| sqlx::Row::get(row, 0)).collect();
                }
            } else {
                let mut connection = PgConnection::connect(&format!("postgres://{path}")).await?;
                for statement in statements {
                    let rows = sqlx::raw_sql(AssertSqlSafe(statement))
                        .fetch_all(&mut connection)
                        .await?;
                    found = rows.iter().map(|row| sqlx::Row::get(row, 0)).collect();
                }
            }
            Ok(found)
        };
        runtime.block_on(async { timeout(PATIENCE, work).await })
    })
    .join()
    .expect("a thread for statements does not panic")
    .unwrap_or_else(|_| panic!("{kind:?} at {address} does not answer: {description}"))
}

/// Copies a database table by table, with keys, indexes and rows: MySQL has no `CREATE DATABASE ...
/// TEMPLATE`.
fn copy_tables(kind: Kind, address: SocketAddr, from: &str) -> TestDatabase {
    let copy = TestDatabase::on(kind, address);
    let to = copy.name();
    let tables =
        format!("SELECT table_name FROM information_schema.tables WHERE table_schema = '{from}'");
    let mut statements = Vec::new();
    for table in administer(kind, address, vec![tables]) {
        statements.push(format!("CREATE TABLE {to}.{table} LIKE {from}.{table}"));
        statements.push(format!(
            "INSERT INTO {to}.{table} SELECT * FROM {from}.{table}"
        ));
    }
    administer(kind, address, statements);
    copy
}

/// Runs a statement that bypasses the host, as an operator or another BBS might.
pub async fn execute(database: &Database, statement: &str) {
    let mut tx = database.write().await.expect("a transaction");
    tx.execute(sql(statement.to_owned()))
        .await
        .unwrap_or_else(|error| panic!("{statement}: {error}"));
    tx.commit().await.expect("a commit");
}

/// The first column of each row, as text.
pub async fn texts(database: &Database, query: &str) -> Vec<String> {
    let mut tx = database.read().await.expect("a transaction");
    let rows = tx
        .fetch(sql(query.to_owned()))
        .await
        .unwrap_or_else(|error| panic!("{query}: {error}"));
    rows.iter()
        .map(|row| text_of(row).unwrap_or_default())
        .collect()
}

/// The data version of a database, according to its version row.
pub async fn data_version(database: &Database) -> u64 {
    let found = texts(
        database,
        "SELECT value FROM configurations WHERE id = 'version'",
    )
    .await;
    let row: serde_json::Value = serde_json::from_str(&found[0]).expect("the version is JSON");
    row["CurrentVersion"].as_u64().expect("a number")
}

/// The names of all tables of a database, in order.
pub async fn tables(database: &Database) -> Vec<String> {
    let query = match database.dialect() {
        Dialect::Sqlite => "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name",
        Dialect::Postgres => {
            "SELECT table_name::text FROM information_schema.tables WHERE table_schema = current_schema() ORDER BY 1"
        }
        Dialect::Mysql => {
            "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() ORDER BY 1"
        }
    };
    texts(database, query).await
}

/// The content of a database as text: for each table its definition, then its rows. Two dumps are
/// equal if and only if nothing changed in between.
pub async fn dump(database: &TestDatabase) -> Vec<String> {
    let opened = database.open().await;
    let mut dump = Vec::new();
    for table in tables(&opened).await {
        let mut reader = opened.read().await.expect("a transaction");
        let definition = schema::read_back(&mut reader, &table)
            .await
            .expect("the schema can be read");
        let definition = definition.expect("the table is there");
        drop(reader);
        let kind = if opened.dialect() == Dialect::Mysql {
            "CHAR"
        } else {
            "TEXT"
        };
        let columns = definition.columns.iter().map(|column| {
            let quote = if opened.dialect() == Dialect::Mysql {
                '`'
            } else {
                '"'
            };
            format!(
                "COALESCE(CAST({quote}{}{quote} AS {kind}), 'NULL')",
                column.name
            )
        });
        let columns = columns.collect::<Vec<_>>().join(", ");
        let rows = texts(
            &opened,
            &format!("SELECT CONCAT_WS('|', {columns}) FROM {table} ORDER BY 1"),
        )
        .await;
        dump.push(format!("{table}: {definition:?}"));
        dump.extend(rows.into_iter().map(|row| format!("{table}: {row}")));
    }
    opened.close().await;
    dump
}

/// The first value of a row as text, `None` for NULL.
fn text_of(row: &Row) -> Option<String> {
    use sqlx::{Row as _, TypeInfo, ValueRef};
    let is_number = match row {
        // SQLite converts every value to text on request.
        Row::Sqlite(_) => false,
        Row::Postgres(row) => {
            let raw = row.try_get_raw(0).expect("a row has a column");
            ["BOOL", "INT2", "INT4", "INT8"].contains(&raw.type_info().name())
        }
        Row::Mysql(row) => {
            let raw = row.try_get_raw(0).expect("a row has a column");
            raw.type_info().name().contains("INT") || raw.type_info().name() == "BOOLEAN"
        }
    };
    if is_number {
        return row
            .integer(0)
            .expect("a number")
            .map(|number| number.to_string());
    }
    row.bytes(0)
        .expect("a value")
        .map(|text| String::from_utf8_lossy(text).into_owned())
}
