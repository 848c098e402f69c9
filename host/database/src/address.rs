//! The address of a database, its TLS mode and its limits. Owns the settings; `config` parses them,
//! and the drivers use them.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use zeroize::Zeroizing;

use super::Dialect;

/// The address of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// The path of the SQLite file.
    Sqlite(PathBuf),
    /// A PostgreSQL, MariaDB or MySQL server.
    Server(Box<Server>),
}

impl Address {
    /// The dialect of the database at this address.
    pub fn dialect(&self) -> Dialect {
        match self {
            Self::Sqlite(_) => Dialect::Sqlite,
            Self::Server(server) => server.dialect,
        }
    }
}

/// For messages to people: without user and password.
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

/// A database server and the settings of a session with it.
#[derive(Clone, PartialEq, Eq)]
pub struct Server {
    /// PostgreSQL or MySQL.
    pub dialect: Dialect,
    /// A host name or an IP address.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// A Unix socket (for PostgreSQL: its folder), instead of host and port.
    pub socket: Option<PathBuf>,
    /// The user to log in as.
    pub user: String,
    /// Left out of the `Debug` form, and zeroized when it is dropped.
    pub password: Zeroizing<String>,
    /// The name of the database on the server.
    pub database: String,
    /// Whether the connection is encrypted, and what is verified.
    pub tls: Tls,
    /// How this client shows who it is, besides the password. PostgreSQL only.
    pub client_certificate: Option<ClientCertificate>,
    /// Run-time parameters and their values, which each session sets after those of this host.
    /// PostgreSQL only.
    pub settings: Vec<(String, String)>,
    /// Bounds of the pool and of each session.
    pub limits: ConnectionLimits,
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
            .field("client_certificate", &self.client_certificate)
            .field("settings", &self.settings)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// The files of a client's certificate and its key, as PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// How the connection to a server is encrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tls {
    /// No encryption.
    Off,
    /// Encrypted if the server offers it; the server's certificate is not verified.
    Preferred,
    /// Encrypted; the server's certificate is not verified.
    Required,
    /// Encrypted; the server's certificate has to be signed by this authority, or by one that the
    /// system trusts if absent.
    Verified {
        /// Certificates of authorities, as PEM.
        ca_file: Option<PathBuf>,
        /// Whether the certificate has to name the host that the connection goes to.
        identity: bool,
    },
}

/// Number of connections, and time limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Most connections in the pool.
    pub max_connections: u32,
    /// Most connections for the lease, besides those in the pool.
    pub lease_connections: u32,
    /// Connections that stay open while idle.
    pub min_connections: u32,
    /// The age at which a connection is replaced; unlimited if absent.
    pub max_lifetime: Option<Duration>,
    /// Longest wait for a connection.
    pub connect_timeout: Duration,
    /// Longest run time of one statement.
    pub statement_timeout: Duration,
    /// How long the server keeps a transaction open that is waiting for this host. Below the
    /// lifetime of the master lock, so that a host that froze within a transaction does not block
    /// its successor.
    pub idle_in_transaction_timeout: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            max_connections: 97,
            lease_connections: 3,
            min_connections: 0,
            max_lifetime: None,
            connect_timeout: Duration::from_secs(30),
            statement_timeout: Duration::from_secs(600),
            idle_in_transaction_timeout: Duration::from_secs(8),
        }
    }
}
