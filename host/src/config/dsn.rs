//! Connection strings as Diego writes them: Go's MySQL form, and PostgreSQL's two. Owns taking them apart; connects
//! to nothing, and never repeats what it was given, for it holds a password.

mod mysql;
mod postgres;

use std::path::PathBuf;

use crate::database::Tls;

pub(super) use mysql::mysql;
pub(super) use postgres::postgres;

/// Where a database server is, and who asks.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Dsn {
    pub host: String,
    pub port: u16,
    pub socket: Option<PathBuf>,
    pub user: String,
    pub password: String,
    pub schema: String,
    pub tls: Option<Tls>,
    /// Parameters that mean something to another driver only.
    pub ignored: Vec<String>,
}

/// Without user and password.
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

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DsnError {
    #[error("it names no schema, and which tables to use depends on that")]
    NoSchema,
    #[error("it names no user")]
    NoUser,
    #[error("it has no form that is known")]
    Form,
    #[error("it belongs to another `database_driver`")]
    OtherDriver,
    #[error("what stands before its address is neither `tcp` nor `unix`")]
    Protocol,
    #[error("its address is empty")]
    NoAddress,
    #[error("its port is not a number from 1 to 65535")]
    Port,
    #[error("it names several hosts; name one, such as a proxy in front of them")]
    SeveralHosts,
    #[error("a quote in it is not closed")]
    Quote,
    #[error("its `tls` has to be true, false, skip-verify or preferred; name a certificate with `sql_ca_cert_file`")]
    Tls,
    #[error("its `sslmode` has to be disable, allow, prefer, require, verify-ca or verify-full")]
    SslMode,
    #[error(
        "its parameter `{0}` cannot be honoured; take it out, and set it for the user in the database if it matters"
    )]
    Setting(String),
}

/// Undoes `%40` and the like. Text that was never escaped, as BOSH writes it, stays as it is.
fn unescaped(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digit = |at: usize| tail.get(at).and_then(|digit| char::from(*digit).to_digit(16));
        let (Some(high), Some(low)) = (digit(0), digit(1)) else { return text.to_owned() };
        out.push((high * 16 + low) as u8);
        rest = &tail[2..];
    }
    String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
}

/// Host and port, where the host may be an IPv6 address in brackets.
fn host_and_port(text: &str, default_port: u16) -> Result<(String, u16), DsnError> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or(DsnError::NoAddress)?;
            (host, port.strip_prefix(':'))
        }
        None => text.rsplit_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
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
    port.parse().ok().filter(|port| *port > 0).ok_or(DsnError::Port)
}

/// `name=value` pairs of a query, unescaped.
fn pairs(query: &str) -> impl Iterator<Item = (String, String)> + '_ {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (unescaped(name), unescaped(&value.replace('+', " ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_escaped_stays_as_it_is() {
        assert_eq!(unescaped("p%40ss"), "p@ss");
        for raw in ["100%", "50%zz", "%", "%f", "%ff", "%+1"] {
            assert_eq!(unescaped(raw), raw);
        }
    }

    #[test]
    fn nothing_secret_is_in_what_is_printed() {
        let dsn = mysql("diego-user:hunter2@tcp(db:3306)/diego").unwrap();
        let printed = format!("{dsn:?}");
        assert!(!printed.contains("hunter2") && !printed.contains("diego-user"), "{printed}");
        assert!(printed.contains("db") && printed.contains("3306"));
    }
}
