//! The options that `bbs module push` and `bbs module pull` share.

use std::env::VarError;

use anyhow::bail;
use clap::Args;

use bbs_modules::registry::{RegistryAuth, RegistryConnection};

const USERNAME: &str = "BBS_REGISTRY_USERNAME";
const PASSWORD: &str = "BBS_REGISTRY_PASSWORD";

#[derive(Debug, Args)]
pub(super) struct RegistryOptions {
    /// Connect without TLS, for a registry on this machine or in a trusted network. The password,
    /// too, is then sent as clear text.
    #[arg(long)]
    insecure_http: bool,
}

impl RegistryOptions {
    /// Reads the account from the environment: as an argument, other users of the machine could
    /// read the password.
    pub(super) fn connection(&self) -> anyhow::Result<RegistryConnection> {
        let auth = match (variable(USERNAME)?, variable(PASSWORD)?) {
            (Some(username), Some(password)) => RegistryAuth::Basic(username, password),
            (None, None) => RegistryAuth::Anonymous,
            (Some(_), None) => {
                bail!("{USERNAME} is set and {PASSWORD} is not; set both or neither")
            }
            (None, Some(_)) => {
                bail!("{PASSWORD} is set and {USERNAME} is not; set both or neither")
            }
        };
        Ok(RegistryConnection {
            auth,
            insecure_http: self.insecure_http,
            user_agent: concat!("bbs/", env!("CARGO_PKG_VERSION")),
        })
    }
}

fn variable(name: &str) -> anyhow::Result<Option<String>> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => bail!("{name} is not UTF-8"),
    }
}
