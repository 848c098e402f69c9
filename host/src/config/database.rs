//! The keys that say where the database is and how to use it. Owns reading them into an address; opens nothing.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::dsn::{self, Dsn};
use super::duration::GoDuration;
use super::{ConfigError, Lock};
use crate::database::{Address, Dialect, Limits, Server, Tls};

/// Diego keeps up to `max_idle_database_connections` open while nothing uses them. Opening 200 when the host starts
/// would take a whole server's worth, so this many are kept, and the others go after a while.
const MOST_KEPT: u32 = 10;
/// The lock, a reader and a writer each need one at the same time, and a change of the schema a fourth.
const FEWEST: u32 = 4;

/// The keys as written.
#[derive(Default, Deserialize)]
pub(super) struct DatabaseKeys {
    database_driver: Option<String>,
    database_connection_string: Option<String>,
    sql_ca_cert_file: Option<PathBuf>,
    #[serde(default)]
    sql_enable_identity_verification: bool,
    #[serde(default)]
    max_open_database_connections: u32,
    #[serde(default)]
    max_idle_database_connections: u32,
    max_database_connection_lifetime: Option<GoDuration>,
    db_connection_timeout: Option<GoDuration>,
    db_read_timeout: Option<GoDuration>,
    db_write_timeout: Option<GoDuration>,
}

impl DatabaseKeys {
    /// The address, with relative paths made relative to `base`, and the names of what has no meaning here.
    pub(super) fn address(self, base: &Path, lock: &Lock) -> Result<(Address, Vec<String>), ConfigError> {
        let driver = self.database_driver.as_deref().unwrap_or("sqlite");
        let what = match driver {
            "sqlite" => "the path of the SQLite database file",
            "mysql" => "user:password@tcp(host:port)/schema",
            "postgres" => "postgres://user:password@host:port/schema",
            other => return Err(ConfigError::Driver(other.to_owned())),
        };
        let key = "database_connection_string";
        let text = self.database_connection_string.as_deref().filter(|text| !text.trim().is_empty());
        let text = text.ok_or(ConfigError::Missing { key, what })?;
        let dialect = match driver {
            "mysql" => Dialect::Mysql,
            "postgres" => Dialect::Postgres,
            _ => return Ok((Address::Sqlite(base.join(text)), Vec::new())),
        };
        let parsed = if dialect == Dialect::Mysql { dsn::mysql(text) } else { dsn::postgres(text) };
        let dsn = parsed.map_err(|source| ConfigError::ConnectionString { form: what, source })?;
        let ignored = dsn.ignored.iter().map(|name| format!("{key}: {name}")).collect();
        Ok((Address::Server(Box::new(self.server(dialect, dsn, base, lock))), ignored))
    }

    fn server(&self, dialect: Dialect, dsn: Dsn, base: &Path, lock: &Lock) -> Server {
        let tls = self.tls(dialect, dsn.tls, base);
        let Dsn { host, port, socket, user, password, schema, .. } = dsn;
        Server { dialect, host, port, socket, user, password, database: schema, tls, limits: self.limits(lock) }
    }

    /// A certificate in the configuration goes before what the connection string asks for. Without either, Diego
    /// speaks plainly to MySQL, and encrypted to a PostgreSQL that offers it.
    fn tls(&self, dialect: Dialect, asked: Option<Tls>, base: &Path) -> Tls {
        let identity = self.sql_enable_identity_verification;
        match &self.sql_ca_cert_file {
            Some(file) if !file.as_os_str().is_empty() => Tls::Verified { ca_file: Some(base.join(file)), identity },
            _ if identity => Tls::Verified { ca_file: None, identity },
            _ => asked.unwrap_or(if dialect == Dialect::Mysql { Tls::Off } else { Tls::Preferred }),
        }
    }

    fn limits(&self, lock: &Lock) -> Limits {
        let default = Limits::default();
        let given = |value: Option<GoDuration>| value.map(|value| value.0).filter(|value| !value.is_zero());
        let max_connections = match self.max_open_database_connections {
            0 => default.max_connections,
            given => given.max(FEWEST),
        };
        Limits {
            max_connections,
            min_connections: self.max_idle_database_connections.min(max_connections).min(MOST_KEPT),
            max_lifetime: given(self.max_database_connection_lifetime),
            connect_timeout: given(self.db_connection_timeout).unwrap_or(default.connect_timeout),
            statement_timeout: given(self.db_read_timeout)
                .max(given(self.db_write_timeout))
                .unwrap_or(default.statement_timeout),
            idle_in_transaction_timeout: (lock.ttl / 2).max(Duration::from_secs(1)),
        }
    }
}
