//! Connection strings in Diego's notation: the form of Go's MySQL driver, and PostgreSQL's two.
//! Owns parsing them; opens no connection. Errors and `Debug` never print the input, which holds a
//! password.

mod mysql;
mod postgres;

use std::path::PathBuf;

use bbs_database::{ClientCertificate, Tls};

pub(super) use mysql::mysql;
pub(super) use postgres::postgres;

/// A parsed connection string.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Dsn {
    pub host: String,
    pub port: u16,
    pub socket: Option<PathBuf>,
    pub user: String,
    pub password: String,
    pub schema: String,
    pub tls: Option<Tls>,
    pub client_certificate: Option<ClientCertificate>,
    /// Run-time parameters of each session.
    pub settings: Vec<(String, String)>,
    /// Parameters that only have a meaning for other drivers.
    pub ignored: Vec<String>,
}

/// Prints neither user nor password.
impl std::fmt::Debug for Dsn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dsn")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("socket", &self.socket)
            .field("schema", &self.schema)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

/// Why a connection string cannot be parsed; never contains a part of it except the name of a
/// parameter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DsnError {
    #[error("it names no schema, and which tables to use depends on that")]
    NoSchema,
    #[error("it names no user; add the user that this host connects as")]
    NoUser,
    #[error("it has none of the known forms")]
    Form,
    #[error("it belongs to another `database_driver`")]
    OtherDriver,
    #[error("it is a path, which begins without `sqlite:` or `file:`")]
    PathWithScheme,
    #[error("the protocol before its address is neither `tcp` nor `unix`")]
    Protocol,
    #[error("its address is empty")]
    NoAddress,
    #[error("its port is not a number from 1 to 65535")]
    Port,
    #[error("it names several hosts; name one, such as a proxy in front of them")]
    SeveralHosts,
    #[error("a quote in it is not closed")]
    Quote,
    #[error(
        "its `tls` has to be true, false, skip-verify or preferred; name a certificate with `sql_ca_cert_file`"
    )]
    Tls,
    #[error("its `sslmode` has to be disable, allow, prefer, require, verify-ca or verify-full")]
    SslMode,
    #[error(
        "it names a client certificate without its key, or the key alone; name both, with `sslcert` and `sslkey`"
    )]
    ClientCertificate,
    #[error(
        "its `options` has to consist of settings such as `-c search_path=diego`, without backslashes"
    )]
    Options,
    #[error("its parameter `{0}` is chosen by this host; take it out")]
    Setting(String),
}

/// Whether a text is a connection string of a server, and no path of a file. It may have a
/// password.
pub(super) fn is_of_a_server(text: &str) -> bool {
    let text = text.trim_start();
    let schemes = ["postgres://", "postgresql://", "mysql://"];
    schemes.into_iter().any(|scheme| text.starts_with(scheme))
        || text.contains("@tcp(")
        || text.contains("@unix(")
}

/// Whether a text is the address of a SQLite database as other programs write it, and no path.
pub(super) fn is_address_of_sqlite(text: &str) -> bool {
    ["sqlite:", "sqlite3:", "file:"]
        .into_iter()
        .any(|scheme| text.trim_start().starts_with(scheme))
}

/// Decodes percent-encoding. Returns text that is not validly encoded unchanged, since BOSH does
/// not encode.
fn unescaped(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digit = |at: usize| {
            tail.get(at)
                .and_then(|digit| char::from(*digit).to_digit(16))
        };
        let (Some(high), Some(low)) = (digit(0), digit(1)) else {
            return text.to_owned();
        };
        out.push((high * 16 + low) as u8);
        rest = &tail[2..];
    }
    String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
}

/// Splits host and port; the host may be an IPv6 address in brackets.
fn host_and_port(text: &str, default_port: u16) -> Result<(String, u16), DsnError> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or(DsnError::NoAddress)?;
            (host, port.strip_prefix(':'))
        }
        None => text
            .rsplit_once(':')
            .map_or((text, None), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() {
        return Err(DsnError::NoAddress);
    }
    let port = match port {
        None | Some("") => default_port,
        Some(port) => number(port)?,
    };
    Ok((host.to_owned(), port))
}

fn number(port: &str) -> Result<u16, DsnError> {
    port.parse()
        .ok()
        .filter(|port| *port > 0)
        .ok_or(DsnError::Port)
}

/// The decoded `name=value` pairs of a query.
fn pairs(query: &str) -> impl Iterator<Item = (String, String)> + '_ {
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (unescaped(name), unescaped(&value.replace('+', " ")))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_not_percent_encoded_stays_unchanged() {
        assert_eq!(unescaped("p%40ss"), "p@ss");
        for raw in ["100%", "50%zz", "%", "%f", "%ff", "%+1"] {
            assert_eq!(unescaped(raw), raw);
        }
    }

    #[test]
    fn debug_output_has_no_credentials() {
        let dsn = mysql("diego-user:hunter2@tcp(db:3306)/diego").unwrap();
        let printed = format!("{dsn:?}");
        assert!(
            !printed.contains("hunter2") && !printed.contains("diego-user"),
            "{printed}"
        );
        assert!(printed.contains("db") && printed.contains("3306"));
    }
}
