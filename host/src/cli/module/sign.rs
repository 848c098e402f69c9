//! `bbs module sign`: signs the catalog of a folder of modules.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use bbs_modules::catalog::PreviousSignature;
use bbs_modules::sign::{self, SignedCatalog};
use bbs_modules::signatures::{SIGNATURE_FILE, SecretKeyFile};
use clap::Args;
use zeroize::Zeroizing;

use crate::cli::output::OutputForm;
use crate::clock::{Clock, SystemClock, date_and_time};

const PASSWORD: &str = "BBS_MODULE_KEY_PASSWORD";
const NS: i64 = 1_000_000_000;

/// Sign the catalog of a folder of modules
///
/// A catalog pins the digest of every module, so one signature over it is enough. It is written
/// beside the catalog, as catalog.toml.minisig, and `minisign -V` verifies it, too. Hosts that have
/// `trusted_keys` in their configuration start only with catalogs that a listed key has signed:
///
///   minisign -G -p colours.pub -s colours.key            once; keep colours.key secret
///   bbs module sign modules --key colours.key --name colours
///
/// and in bbs.json the line that the command prints:
///
///   "trusted_keys": { "colours": ["RW..."] }
///
/// Keys are listed by the name of a catalog, which it keeps: `--name` is needed the first time
/// only. Each signature gives the catalog a higher serial, the time in seconds. Databases remember
/// the serial, and hosts refuse an older catalog. The folder is validated first, so that a module
/// that was altered is not signed. Changing the folder with `bbs module build` or `bbs module add`
/// removes the signature: sign it again afterwards.
///
/// The password of the key is read from the file that `--password-file` names, or from
/// BBS_MODULE_KEY_PASSWORD, or at the terminal; a key of `minisign -G -W` has none.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct SignCommand {
    /// A folder that `bbs module build` has written.
    #[arg(value_name = "DIR")]
    modules: PathBuf,
    /// The secret key: a file of `minisign -G` or `rsign generate`.
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// The name of the catalog: lower-case letters, digits and `-`. Default: the one that it has.
    #[arg(long)]
    name: Option<String>,
    /// A file whose first line is the password of the key.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    #[command(flatten)]
    form: OutputForm,
}

impl SignCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let file = SecretKeyFile::read(&self.key)?;
        let password = if file.is_encrypted() {
            password(self.password_file.as_deref())?
        } else {
            None
        };
        let key = file.open(password)?;
        let now = u64::try_from(SystemClock.now_ns() / NS).unwrap_or_default();
        let sandbox = super::sandbox()?;
        let signed = sign::sign(&self.modules, &key, self.name.as_deref(), now, &sandbox)?;
        let SignedCatalog {
            name,
            serial,
            key: id,
            modules,
        } = signed;
        let folder = self.modules.display();
        let public_key = key.public_key();
        let result = serde_json::json!({
            "folder": self.modules,
            "name": name,
            "modules": modules,
            "serial": serial,
            "key": id.to_string(),
            "public_key": public_key.to_string(),
        });
        self.form.print(&result, || {
            let time = date_and_time(serial.cast_signed());
            format!(
                "{folder} is signed: catalog {name} with {modules} modules\n\
                 serial  {serial} ({time}Z)\n\
                 key     {id}\n\
                 in bbs.json  \"trusted_keys\": {{ \"{name}\": [\"{public_key}\"] }}\n"
            )
        })
    }
}

/// The password of the key; `None` if the user is to type it.
fn password(file: Option<&Path>) -> anyhow::Result<Option<Zeroizing<String>>> {
    if let Some(file) = file {
        let text = bbs_files::read_text(file).map(Zeroizing::new);
        let text =
            text.with_context(|| format!("the password file {} cannot be read", file.display()))?;
        return Ok(Some(Zeroizing::new(
            text.lines().next().unwrap_or_default().to_owned(),
        )));
    }
    match std::env::var(PASSWORD) {
        Ok(password) => Ok(Some(Zeroizing::new(password))),
        Err(std::env::VarError::NotUnicode(_)) => bail!("{PASSWORD} is not UTF-8"),
        Err(std::env::VarError::NotPresent) if std::io::stdin().is_terminal() => Ok(None),
        Err(std::env::VarError::NotPresent) => bail!(
            "the secret key is encrypted, and there is no terminal to type its password at; name a file with it by \
             `--password-file`, or set {PASSWORD}"
        ),
    }
}

/// A line that a folder has to be signed again, if it was signed before it changed.
pub(super) fn signature_line(signature: PreviousSignature, folder: &Path) -> String {
    match signature {
        PreviousSignature::Unaffected => String::new(),
        PreviousSignature::Removed => format!(
            "the catalog changed, so its signature {SIGNATURE_FILE} was removed; sign it again with `bbs module sign {} --key FILE`\n",
            folder.display()
        ),
    }
}
