//! Where a database is, and how many connections to it there may be. Owns the settings; reading them from a
//! configuration is `config`'s, and using them the drivers'.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::Dialect;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    Sqlite(PathBuf),
    Server(Box<Server>),
}

impl Address {
    pub fn dialect(&self) -> Dialect {
        match self {
            Self::Sqlite(_) => Dialect::Sqlite,
            Self::Server(server) => server.dialect,
        }
    }
}

/// As people are told: never with a password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "{}", path.display()),
            Self::Server(server) => {
                write!(f, "{} ", server.dialect)?;
                match &server.socket {
                    Some(socket) => write!(f, "{}", socket.display())?,
                    None => write!(f, "{}:{}", server.host, server.port)?,
                }
                write!(f, "/{}", server.database)
            }
        }
    }
}

/// A database server, and the session that this host wants with it.
#[derive(Clone, PartialEq, Eq)]
pub struct Server {
    /// PostgreSQL or MySQL.
    pub dialect: Dialect,
    pub host: String,
    pub port: u16,
    /// A Unix socket (for PostgreSQL: its folder), instead of host and port.
    pub socket: Option<PathBuf>,
    pub user: String,
    pub password: String,
    pub database: String,
    pub tls: Tls,
    pub limits: Limits,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("dialect", &self.dialect)
            .field("host", &self.host)
            .field("port", &self.port)
            .field("socket", &self.socket)
            .field("user", &self.user)
            .field("database", &self.database)
            .field("tls", &self.tls)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// How the connection is protected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tls {
    Off,
    /// Encrypted where the server offers it, without a check of who it is.
    Preferred,
    /// Encrypted, without a check of who the server is.
    Required,
    /// Encrypted, the server's certificate signed by this authority (or one of the system's).
    Verified {
        ca_file: Option<PathBuf>,
        identity: bool,
    },
}

/// Connections, and how long each thing may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    pub max_connections: u32,
    /// Connections that are kept while nothing uses them.
    pub min_connections: u32,
    /// Forever where absent.
    pub max_lifetime: Option<Duration>,
    /// How long to wait for a connection.
    pub connect_timeout: Duration,
    /// How long one statement may take.
    pub statement_timeout: Duration,
    /// How long the server lets an open transaction wait for this host. Below the time a lock is held for, so that a
    /// host that froze within a transaction does not block its successor.
    pub idle_in_transaction_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: 100,
            min_connections: 0,
            max_lifetime: None,
            connect_timeout: Duration::from_secs(30),
            statement_timeout: Duration::from_secs(600),
            idle_in_transaction_timeout: Duration::from_secs(8),
        }
    }
}
