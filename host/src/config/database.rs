//! Keys for the database: address, TLS, limits. Owns parsing them into an [`Address`]; opens no
//! connection.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bbs_database::{Address, ClientCertificate, ConnectionLimits, Dialect, Server, Tls};
use zeroize::Zeroizing;

use super::dsn::{self, Dsn, DsnError};
use super::keys::Keys;
use super::{ConfigError, Lock};

const CONNECTION_STRING: &str = "database_connection_string";
/// Upper bound of idle connections. Diego allows `max_idle_database_connections`; opening 200 at
/// start would use up the connections of a whole server.
const MOST_KEPT: u32 = 10;
/// Connections for the lease, if there are enough: others for the case that one hangs.
const MOST_FOR_LEASE: u32 = 3;
/// The share of the lease in few connections.
const SHARE_OF_LEASE: u32 = 4;
/// A schema change on MySQL, whose fence another connection holds, and the verification of a copy
/// use two at once, for as long as they take.
const FEWEST_IN_POOL: u32 = 2;
/// The pool reserves memory for each; no server allows one client more.
const MOST: u32 = 10_000;

/// A limit of connections that is too low for this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RaisedConnections {
    /// `max_open_database_connections`.
    pub configured: u32,
    /// The fewest that the host needs, which it uses instead.
    pub used: u32,
}

/// An address, and the parts of its configuration that have no effect or another one.
pub(super) struct ConfiguredAddress {
    pub(super) address: Address,
    /// Names of connection parameters.
    pub(super) ignored: Vec<String>,
    pub(super) raised_connections: Option<RaisedConnections>,
}

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
    pub(super) fn read(keys: &mut Keys) -> Self {
        Self {
            driver: keys.text("database_driver"),
            connection_string: keys.take(CONNECTION_STRING).map(Zeroizing::new),
            ca_cert_file: keys.file("sql_ca_cert_file"),
            enable_identity_verification: keys.flag("sql_enable_identity_verification"),
            max_open_connections: keys.count("max_open_database_connections"),
            max_idle_connections: keys.count("max_idle_database_connections"),
            max_connection_lifetime: keys.duration("max_database_connection_lifetime"),
            connection_timeout: keys.duration("db_connection_timeout"),
            read_timeout: keys.duration("db_read_timeout"),
            write_timeout: keys.duration("db_write_timeout"),
        }
    }

    pub(super) fn connection_timeout(&self) -> Option<Duration> {
        self.connection_timeout
    }

    /// Returns the address, with a relative path resolved against `base`.
    pub(super) fn address(self, keys: &mut Keys, base: &Path, lock: &Lock) -> ConfiguredAddress {
        self.parsed(keys, base, lock).unwrap_or_else(|fault| {
            keys.fault(fault);
            // With a fault, the configuration is not used.
            ConfiguredAddress {
                address: Address::Sqlite(PathBuf::new()),
                ignored: Vec::new(),
                raised_connections: None,
            }
        })
    }

    fn parsed(
        &self,
        keys: &mut Keys,
        base: &Path,
        lock: &Lock,
    ) -> Result<ConfiguredAddress, ConfigError> {
        let driver = self.driver.as_deref().unwrap_or("sqlite");
        let form = match driver {
            "sqlite" => "the path of the SQLite database file",
            "mysql" => "user:password@tcp(host:port)/schema",
            "postgres" => "postgres://user:password@host:port/schema",
            other => return Err(ConfigError::Driver(other.to_owned())),
        };
        let text = self
            .connection_string
            .as_ref()
            .map(|text| text.as_str())
            .filter(|text| !text.trim().is_empty())
            .ok_or(ConfigError::Missing {
                key: CONNECTION_STRING,
                what: form,
            })?;
        let refused = |reason| ConfigError::ConnectionString { form, reason };
        match driver {
            "mysql" => {
                let dsn = dsn::mysql(text).map_err(refused)?;
                Ok(self.server_address(Dialect::Mysql, dsn, keys, lock))
            }
            "postgres" => {
                let dsn = dsn::postgres(text).map_err(refused)?;
                Ok(self.server_address(Dialect::Postgres, dsn, keys, lock))
            }
            _ if dsn::is_of_a_server(text) => Err(if self.driver.is_some() {
                refused(DsnError::OtherDriver)
            } else {
                ConfigError::Missing {
                    key: "database_driver",
                    what: "\"postgres\" or \"mysql\", whose server `database_connection_string` names",
                }
            }),
            _ if dsn::is_address_of_sqlite(text) => Err(refused(DsnError::PathWithScheme)),
            _ => Ok(ConfiguredAddress {
                address: Address::Sqlite(base.join(text)),
                ignored: Vec::new(),
                raised_connections: None,
            }),
        }
    }

    /// The address of a server, with the parameters of the connection string that have no effect.
    fn server_address(
        &self,
        dialect: Dialect,
        mut dsn: Dsn,
        keys: &mut Keys,
        lock: &Lock,
    ) -> ConfiguredAddress {
        if let Some(Tls::Verified {
            ca_file: Some(file),
            ..
        }) = &mut dsn.tls
        {
            *file = keys.find(CONNECTION_STRING, file);
        }
        if let Some(ClientCertificate {
            certificate,
            key: private,
        }) = &mut dsn.client_certificate
        {
            *certificate = keys.find(CONNECTION_STRING, certificate);
            *private = keys.find(CONNECTION_STRING, private);
        }
        let mut ignored: Vec<_> = dsn
            .ignored
            .iter()
            .map(|name| format!("{CONNECTION_STRING}: {name}"))
            .collect();
        if self.enable_identity_verification && self.ca_cert_file.is_none() {
            ignored.push("sql_enable_identity_verification: without sql_ca_cert_file".to_owned());
        }
        let used = self.connections(lock);
        let raised_connections = self
            .max_open_connections
            .filter(|configured| *configured < used)
            .map(|configured| RaisedConnections { configured, used });
        ConfiguredAddress {
            address: Address::Server(Box::new(self.server(dialect, dsn, lock))),
            ignored,
            raised_connections,
        }
    }

    fn server(&self, dialect: Dialect, dsn: Dsn, lock: &Lock) -> Server {
        Server {
            dialect,
            host: dsn.host,
            port: dsn.port,
            socket: dsn.socket,
            user: dsn.user,
            password: Zeroizing::new(dsn.password),
            database: dsn.schema,
            tls: self.tls(dialect, dsn.tls),
            client_certificate: dsn.client_certificate,
            settings: dsn.settings,
            limits: self.limits(lock),
        }
    }

    /// A certificate in the configuration takes precedence over the connection string. Without
    /// either, Diego uses no TLS with MySQL, and TLS if the server offers it with PostgreSQL, also
    /// where it is to verify the server's identity.
    fn tls(&self, dialect: Dialect, asked: Option<Tls>) -> Tls {
        match &self.ca_cert_file {
            Some(file) => Tls::Verified {
                ca_file: Some(file.clone()),
                identity: self.enable_identity_verification,
            },
            None => asked.unwrap_or(if dialect == Dialect::Mysql {
                Tls::Off
            } else {
                Tls::Preferred
            }),
        }
    }

    /// The most connections of the host, those of the lease included.
    fn connections(&self, lock: &Lock) -> u32 {
        let default = ConnectionLimits::default();
        let fewest = FEWEST_IN_POOL + u32::from(lock.locket.is_none());
        let configured = self
            .max_open_connections
            .unwrap_or(default.max_connections + default.lease_connections);
        configured.clamp(fewest, MOST)
    }

    fn limits(&self, lock: &Lock) -> ConnectionLimits {
        let default = ConnectionLimits::default();
        let all = self.connections(lock);
        let lease_connections = if lock.locket.is_none() {
            (all / SHARE_OF_LEASE).clamp(1, MOST_FOR_LEASE)
        } else {
            0
        };
        let max_connections = all - lease_connections;
        ConnectionLimits {
            max_connections,
            lease_connections,
            min_connections: self
                .max_idle_connections
                .unwrap_or_default()
                .min(max_connections)
                .min(MOST_KEPT),
            max_lifetime: self.max_connection_lifetime,
            connect_timeout: self.connection_timeout.unwrap_or(default.connect_timeout),
            // An absent key has the default, so that one short key does not limit the other
            // direction.
            statement_timeout: self
                .read_timeout
                .unwrap_or(default.statement_timeout)
                .max(self.write_timeout.unwrap_or(default.statement_timeout)),
            idle_in_transaction_timeout: (lock.ttl / 2).max(Duration::from_secs(1)),
        }
    }
}
