//! The options and errors that the commands share which call a BBS: this host or another one, also
//! Diego's. Owns which BBS is called, with which certificates, and what a user may do about a call
//! that failed.

pub(super) mod input;

use std::error::Error;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::bail;
use bbs_client::{CallError, Client, Identity, Options, TlsFiles, Version};
use clap::Args;

use crate::config::{Config, Listeners, ServerTls};
use crate::printable;
use crate::tls;

/// The address of `bbs dev`.
const DEFAULT_URL: &str = "http://127.0.0.1:8889";

/// The BBS that is called. The environment variables are those of `cfdot`.
#[derive(Debug, Args)]
pub(super) struct BbsOptions {
    /// The address of the BBS [default: BBS_URL of the environment, or that of `bbs dev`,
    /// http://127.0.0.1:8889]
    #[arg(
        long,
        value_name = "URL",
        conflicts_with = "config",
        help_heading = "The BBS"
    )]
    url: Option<String>,
    /// The authority of the BBS's certificate, as PEM [default: CA_CERT_FILE of the environment]
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "config",
        help_heading = "The BBS"
    )]
    ca: Option<PathBuf>,
    /// The certificate of this client, as PEM [default: CLIENT_CERT_FILE of the environment]
    #[arg(
        long,
        value_name = "FILE",
        requires = "key",
        conflicts_with = "config",
        help_heading = "The BBS"
    )]
    cert: Option<PathBuf>,
    /// The key of that certificate, as PEM [default: CLIENT_KEY_FILE of the environment]
    #[arg(
        long,
        value_name = "FILE",
        requires = "cert",
        conflicts_with = "config",
        help_heading = "The BBS"
    )]
    key: Option<PathBuf>,
    /// The JSON configuration file of a BBS on this machine, for its address and its certificates.
    #[arg(long, value_name = "FILE", help_heading = "The BBS")]
    config: Option<PathBuf>,
}

impl BbsOptions {
    /// A client of Diego's API. Calls that need definitions name their version themselves.
    ///
    /// # Errors
    /// The address or a file cannot be used.
    pub(super) fn client(&self) -> anyhow::Result<Client> {
        if let Some(path) = &self.config {
            return local_client(path, &Config::read(path)?.listeners);
        }
        let url = self
            .url
            .clone()
            .or_else(|| std::env::var("BBS_URL").ok().filter(|url| !url.is_empty()));
        let named = |option: &Option<PathBuf>, variable| {
            option.clone().or_else(|| environment_path(variable))
        };
        let cert_file = named(&self.cert, "CLIENT_CERT_FILE");
        let key_file = named(&self.key, "CLIENT_KEY_FILE");
        let identity = match (cert_file, key_file) {
            (Some(cert_file), Some(key_file)) => Some(Identity {
                cert_file,
                key_file,
            }),
            (None, None) => None,
            _ => bail!(
                "of CLIENT_CERT_FILE and CLIENT_KEY_FILE one is set; set both, or give `--cert` and `--key`"
            ),
        };
        let tls = TlsFiles {
            ca_file: named(&self.ca, "CA_CERT_FILE"),
            identity,
        };
        let url = url.as_deref().unwrap_or(DEFAULT_URL);
        Ok(Client::new(
            url,
            Options {
                tls,
                ..Options::default()
            },
        )?)
    }
}

fn environment_path(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable)
        .filter(|path| !path.is_empty())
        .map(PathBuf::from)
}

/// A client of the host with this configuration, on this machine. It presents the host's own
/// certificate.
fn local_client(path: &Path, listeners: &Listeners) -> anyhow::Result<Client> {
    let address = reachable(listeners.api);
    if address.port() == 0 {
        bail!(
            "`listen_address` in {} has no port; name the address of the BBS with `--url`",
            path.display()
        );
    }
    let Some(ServerTls {
        cert_file,
        key_file,
        ca_file,
    }) = listeners.tls.clone()
    else {
        return Ok(Client::new(
            &format!("http://{address}"),
            Options::default(),
        )?);
    };
    let name = tls::name_of_server(&cert_file)?;
    let url = name.map_or_else(
        || format!("https://{address}"),
        |name| format!("https://{name}:{}", address.port()),
    );
    let tls = TlsFiles {
        ca_file: Some(ca_file),
        identity: Some(Identity {
            cert_file,
            key_file,
        }),
    };
    Ok(Client::new(
        &url,
        Options {
            tls,
            connect_to: Some(address),
            ..Options::default()
        },
    )?)
}

/// The address at which a client on this machine reaches a server.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// A failed call, with what to do about it.
pub(super) fn explained(error: CallError) -> anyhow::Error {
    let advice = match &error {
        CallError::NoAnswer { .. } | CallError::TimedOut { .. } => {
            "check that the BBS runs there and serves; another one is named with `--url` or `--config`".to_owned()
        }
        CallError::NotReady { retry_after, .. } => {
            let when = retry_after.map_or_else(String::new, |after| format!(" in {} s", after.as_secs()));
            format!("try again{when}; `bbs migrate watch` shows a migration of a host on this machine")
        }
        CallError::NotServed { url, .. } if url.contains(&format!("/{}/", Version::Definitions.root())) => {
            "definitions need version 1.2 of the API, which Diego's own BBS does not have, nor a host that is pinned below it"
                .to_owned()
        }
        CallError::NotServed { .. } => "check that the address is that of a BBS".to_owned(),
        CallError::Router { .. } | CallError::Status { .. } | CallError::Undecodable { .. } => {
            "check that the address is that of a BBS, and of its API".to_owned()
        }
        CallError::Refused(_) | CallError::Event { .. } => return error.into(),
    };
    FailedCall {
        failure: error,
        advice,
    }
    .into()
}

/// A failed call and what to do about it.
#[derive(Debug)]
struct FailedCall {
    failure: CallError,
    advice: String,
}

impl fmt::Display for FailedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.failure, self.advice)
    }
}

impl Error for FailedCall {
    /// The failure is part of the text.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.failure.source()
    }
}

/// Text of a client of the BBS, as one line.
pub(super) fn printable(text: &[u8]) -> String {
    printable::line(&String::from_utf8_lossy(text))
}

/// Rows in columns, the first row being the heads.
pub(super) fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at: usize| {
        rows.iter()
            .filter_map(|row| row.get(at))
            .map(|text| text.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<_> = (0..count).map(width).collect();
    rows.iter()
        .map(|row| {
            let cells = row
                .iter()
                .zip(&widths)
                .map(|(text, width)| format!("{text:width$}"));
            format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unspecified_address_is_reached_on_the_loopback_interface() {
        for (listened, reached) in [
            ("0.0.0.0:8889", "127.0.0.1:8889"),
            ("[::]:8889", "[::1]:8889"),
            ("10.0.0.4:8889", "10.0.0.4:8889"),
        ] {
            assert_eq!(
                reachable(listened.parse().unwrap()),
                reached.parse().unwrap()
            );
        }
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_text() {
        let rows = [
            vec!["A".into(), "B".into()],
            vec!["long".into(), "é".into()],
            vec!["x".into(), String::new()],
        ];
        assert_eq!(columns(&rows), "A     B\nlong  é\nx\n");
    }
}
