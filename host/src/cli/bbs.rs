//! The options and errors that the commands share which call a BBS: this host or another one, also
//! Diego's. Owns which BBS is called, with which certificates, and what a user may do about a call
//! that failed.

pub(super) mod input;

use std::error::Error;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use bbs_client::models::error::Type;
use bbs_client::{CallError, Client, ConnectError, Identity, Options, TlsFiles, Version};
use bbs_work::printable;
use clap::Args;

use super::output::OutputForm;
use crate::config::{CertificateFiles, Config, Listeners};
use crate::tls;

/// The address of `bbs dev`.
const DEFAULT_URL: &str = "http://127.0.0.1:8889";

/// A command that calls a BBS: its own arguments, the form of its result, and the BBS.
#[derive(Debug, Args)]
pub(super) struct BbsCommand<A: Args> {
    #[command(flatten)]
    arguments: A,
    #[command(flatten)]
    form: OutputForm,
    #[command(flatten)]
    bbs: BbsOptions,
}

/// The BBS that a command calls, and the form of the command's result.
pub(super) struct CalledBbs {
    /// A client of Diego's API. Calls that need definitions name their version themselves.
    pub(super) client: Client,
    pub(super) form: OutputForm,
}

impl<A: Args> BbsCommand<A> {
    /// Runs the command.
    ///
    /// # Errors
    /// The address or a certificate cannot be used, or the command fails.
    pub(super) async fn run(
        self,
        command: impl AsyncFnOnce(A, CalledBbs) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let client = self.bbs.client()?;
        let form = self.form;
        command(self.arguments, CalledBbs { client, form }).await
    }
}

/// The BBS that is called. The environment variables are those of `cfdot`.
#[derive(Debug, Args)]
#[command(next_help_heading = "The BBS")]
pub(super) struct BbsOptions {
    /// The address of the BBS [default: BBS_URL of the environment, or that of `bbs dev`,
    /// http://127.0.0.1:8889]
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    url: Option<String>,
    /// The authority of the BBS's certificate, as PEM [default: CA_CERT_FILE of the environment]
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    ca: Option<PathBuf>,
    /// The certificate of this client, as PEM [default: CLIENT_CERT_FILE of the environment]
    #[arg(long, value_name = "FILE", requires = "key", conflicts_with = "config")]
    cert: Option<PathBuf>,
    /// The key of that certificate, as PEM [default: CLIENT_KEY_FILE of the environment]
    #[arg(
        long,
        value_name = "FILE",
        requires = "cert",
        conflicts_with = "config"
    )]
    key: Option<PathBuf>,
    /// The JSON configuration file of a BBS on this machine, for its address and its certificates.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl BbsOptions {
    /// A client of Diego's API.
    ///
    /// # Errors
    /// The address or a file cannot be used.
    pub(super) fn client(&self) -> anyhow::Result<Client> {
        if let Some(path) = &self.config {
            return local_client(path, &Config::read(path)?.listeners);
        }
        let cert_file = path_or(&self.cert, "CLIENT_CERT_FILE");
        let key_file = path_or(&self.key, "CLIENT_KEY_FILE");
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
        let ca_file = path_or(&self.ca, "CA_CERT_FILE");
        let url = std::env::var("BBS_URL").ok().filter(|url| !url.is_empty());
        let url = self.url.clone().or(url);
        let options = Options {
            tls: TlsFiles { ca_file, identity },
            ..Options::default()
        };
        let client = Client::new(url.as_deref().unwrap_or(DEFAULT_URL), options);
        client.map_err(|fault| match fault {
            ConnectError::NoAuthority { .. } => {
                anyhow!("{fault} with `--ca`, or in CA_CERT_FILE of the environment")
            }
            fault => fault.into(),
        })
    }
}

/// The path of an option, or else of a variable of the environment.
fn path_or(option: &Option<PathBuf>, variable: &str) -> Option<PathBuf> {
    let of_environment = || std::env::var_os(variable).filter(|path| !path.is_empty());
    option
        .clone()
        .or_else(|| of_environment().map(PathBuf::from))
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
    let Some(CertificateFiles {
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
    let identity = Some(Identity {
        cert_file,
        key_file,
    });
    let options = Options {
        tls: TlsFiles {
            ca_file: Some(ca_file),
            identity,
        },
        connect_to: Some(address),
        ..Options::default()
    };
    Ok(Client::new(&url, options)?)
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
        CallError::Router { .. }
        | CallError::Status { .. }
        | CallError::NotAStream { .. }
        | CallError::Undecodable { .. }
        | CallError::Event { .. } => {
            "check that the address is that of a BBS, and of its API".to_owned()
        }
        CallError::Refused(refusal) => match refusal.kind {
            Type::InvalidRequest => {
                "correct what it names; `--help` of the command shows what it needs".to_owned()
            }
            Type::Deserialize => {
                "the log of the BBS has the reason, and `bbs keys status` shows whether its keys open its records".to_owned()
            }
            _ => return error.into(),
        },
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
        // A part may be the body of another server.
        let failure = printable::line(&self.failure.to_string());
        write!(f, "{failure}; {}", self.advice)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_of_another_server_is_shown_as_one_line() {
        let failure = CallError::Status {
            url: "http://127.0.0.1:8889/v1/ping".to_owned(),
            status: 500,
            reason: "<html>\n\u{1b}]0;title\u{7}".to_owned(),
        };
        let shown = explained(failure).to_string();
        assert!(
            shown.contains(r"status 500 (<html>\n\u{1b}]0;title\u{7}); check"),
            "{shown}"
        );
    }

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
}
