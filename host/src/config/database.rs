//! Keys for the database: address, TLS, limits. Owns parsing them into an [`Address`]; opens no connection.

use std::path::{Path, PathBuf};
use std::time::Duration;

use zeroize::Zeroizing;

use super::dsn::{self, Dsn};
use super::keys::Keys;
use super::{ConfigError, Lock};
use crate::database::{Address, ClientCertificate, ConnectionLimits, Dialect, Server, Tls};

/// Upper bound of idle connections. Diego allows `max_idle_database_connections`; opening 200 at start would use up the
/// connections of a whole server.
const MOST_KEPT: u32 = 10;
/// The lock, a reader and a writer each need a connection at the same time, and a schema change a fourth.
const FEWEST: u32 = 4;
/// The pool reserves memory for each; no server allows one client more.
const MOST: u32 = 10_000;

/// The values of the keys.
pub(super) struct DatabaseKeys {
    driver: Option<String>,
    connection_string: Option<Zeroizing<String>>,
    ca_cert_file: Option<PathBuf>,
    enable_identity_verification: bool,
    max_open_connections: Option<u32>,
    max_idle_connections: Option<u32>,
    max_connection_lifetime: Option<Duration>,
    connection_timeout: Option<Duration>,
    read_timeout: Option<Duration>,
    write_timeout: Option<Duration>,
}

impl DatabaseKeys {
    pub(super) fn read(keys: &mut Keys) -> Result<Self, ConfigError> {
        Ok(Self {
            driver: keys.text("database_driver")?,
            connection_string: keys.take("database_connection_string")?.map(Zeroizing::new),
            ca_cert_file: keys.file("sql_ca_cert_file")?,
            enable_identity_verification: keys.flag("sql_enable_identity_verification")?,
            max_open_connections: keys.count("max_open_database_connections")?,
            max_idle_connections: keys.count("max_idle_database_connections")?,
            max_connection_lifetime: keys.duration("max_database_connection_lifetime")?,
            connection_timeout: keys.duration("db_connection_timeout")?,
            read_timeout: keys.duration("db_read_timeout")?,
            write_timeout: keys.duration("db_write_timeout")?,
        })
    }

    pub(super) fn names_driver(&self) -> bool {
        self.driver.is_some()
    }

    pub(super) fn connection_timeout(&self) -> Option<Duration> {
        self.connection_timeout
    }

    /// Returns the address, with a relative path resolved against `base`, and the names of ignored connection parameters.
    pub(super) fn address(
        self,
        keys: &mut Keys,
        base: &Path,
        lock: &Lock,
    ) -> Result<(Address, Vec<String>), ConfigError> {
        let driver = self.driver.as_deref().unwrap_or("sqlite");
        let what = match driver {
            "sqlite" => "the path of the SQLite database file",
            "mysql" => "user:password@tcp(host:port)/schema",
            "postgres" => "postgres://user:password@host:port/schema",
            other => return Err(ConfigError::Driver(other.to_owned())),
        };
        let key = "database_connection_string";
        let text = self.connection_string.as_ref().map(|text| text.as_str()).filter(|text| !text.trim().is_empty());
        let text = text.ok_or(ConfigError::Missing { key, what })?;
        let dialect = match driver {
            "mysql" => Dialect::Mysql,
            "postgres" => Dialect::Postgres,
            _ => return Ok((Address::Sqlite(base.join(text)), Vec::new())),
        };
        let parsed = if dialect == Dialect::Mysql { dsn::mysql(text) } else { dsn::postgres(text) };
        let mut dsn = parsed.map_err(|source| ConfigError::ConnectionString { form: what, source })?;
        if let Some(Tls::Verified { ca_file: Some(file), .. }) = &mut dsn.tls {
            *file = keys.find(key, file);
        }
        if let Some(ClientCertificate { certificate, key: private }) = &mut dsn.client_certificate {
            *certificate = keys.find(key, certificate);
            *private = keys.find(key, private);
        }
        let mut ignored: Vec<_> = dsn.ignored.iter().map(|name| format!("{key}: {name}")).collect();
        if self.enable_identity_verification && self.ca_cert_file.is_none() {
            ignored.push("sql_enable_identity_verification: without sql_ca_cert_file".to_owned());
        }
        Ok((Address::Server(Box::new(self.server(dialect, dsn, lock))), ignored))
    }

    fn server(&self, dialect: Dialect, dsn: Dsn, lock: &Lock) -> Server {
        let tls = self.tls(dialect, dsn.tls);
        let Dsn { host, port, socket, user, password, schema, client_certificate, settings, .. } = dsn;
        Server {
            dialect,
            host,
            port,
            socket,
            user,
            password: Zeroizing::new(password),
            database: schema,
            tls,
            client_certificate,
            settings,
            limits: self.limits(lock),
        }
    }

    /// A certificate in the configuration takes precedence over the connection string. Without either, Diego uses no TLS with
    /// MySQL, and TLS if the server offers it with PostgreSQL, also where it is to verify the server's identity.
    fn tls(&self, dialect: Dialect, asked: Option<Tls>) -> Tls {
        match &self.ca_cert_file {
            Some(file) => Tls::Verified { ca_file: Some(file.clone()), identity: self.enable_identity_verification },
            None => asked.unwrap_or(if dialect == Dialect::Mysql { Tls::Off } else { Tls::Preferred }),
        }
    }

    fn limits(&self, lock: &Lock) -> ConnectionLimits {
        let default = ConnectionLimits::default();
        let max_connections =
            self.max_open_connections.map_or(default.max_connections, |given| given.clamp(FEWEST, MOST));
        ConnectionLimits {
            max_connections,
            min_connections: self.max_idle_connections.unwrap_or_default().min(max_connections).min(MOST_KEPT),
            max_lifetime: self.max_connection_lifetime,
            connect_timeout: self.connection_timeout.unwrap_or(default.connect_timeout),
            statement_timeout: self.read_timeout.max(self.write_timeout).unwrap_or(default.statement_timeout),
            idle_in_transaction_timeout: (lock.ttl / 2).max(Duration::from_secs(1)),
        }
    }
}
