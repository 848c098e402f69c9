//! `bbs keys`: counts sealed texts by key, rotates to the active key, and proves that an old key is
//! unused. Owns arguments; `render` owns the text.

mod render;

use clap::{Args, Subcommand};

use super::interrupt::until_interrupted;
use super::migrate::{ShownArgs, existing};
use super::output::OutputForm;
use super::{output, progress};
use crate::config::LogLevel;
use crate::keys::{self, Rotated};
use crate::lock::fence::Fence;
use crate::logs::Logs;
use crate::migrate::{self, Found};
use crate::startup::{Prepared, StartupError};

/// Show which encryption keys a database uses, rotate them, and prove that an old one may be
/// removed.
///
/// No downtime is needed: a host re-seals everything under its active key in the background, while
/// it serves. Records are read under any key of the configuration, and written under the active
/// one.
#[derive(Debug, Args)]
#[command(after_help = "\
To replace the key `old` by `new`:
  1. Add `new` to `encryption_keys` of every host, beside `old`, and restart them: each has to
     be able to read what another has written.
  2. Set `active_key_label` to `new` and restart them. The host that holds the lock re-seals
     everything under `new` while it serves. `bbs keys status` shows its progress.
  3. `bbs keys verify --label old` succeeds once `old` is unused.
     Only then remove `old` from `encryption_keys`.
The host may be killed at any time: the next start continues the rotation.")]
pub struct KeysCommand {
    #[command(subcommand)]
    action: KeysAction,
}

#[derive(Debug, Subcommand)]
enum KeysAction {
    /// Show the number of sealed texts by table and key, the progress of a rotation, whether each
    /// key opens a sample of them, and which of those that are not under the active key do not
    /// open. May run beside a serving host.
    Status(ShownArgs),
    /// Re-seal everything under the active key now, without serving. Refuses to run while a host
    /// holds the lock: that host does it in the background, but for rows that a rotation by Diego's
    /// BBS has left under another key, which only this command looks for.
    Rotate(Rotation),
    /// Prove by a full scan that a key is unused. Succeeds only then: the key may be removed from
    /// the configuration. May run beside a serving host.
    Verify(Verify),
}

#[derive(Debug, Args)]
struct Rotation {
    #[command(flatten)]
    shown: ShownArgs,
    /// Show how much would be re-sealed and what does not open, and write nothing. May run beside a
    /// serving host. The exit code is that of the rotation.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Args)]
struct Verify {
    #[command(flatten)]
    shown: ShownArgs,
    /// The label of the key to be removed.
    #[arg(long, value_name = "LABEL")]
    label: String,
}

impl KeysCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// The configuration is invalid, the database fails, or a stored value does not open.
    pub async fn run(self) -> anyhow::Result<()> {
        let _logs = Logs::readable(LogLevel::Error);
        match self.action {
            KeysAction::Status(shown) => status(shown).await,
            KeysAction::Rotate(Rotation {
                shown,
                dry_run: true,
            }) => survey(shown).await,
            KeysAction::Rotate(Rotation {
                shown,
                dry_run: false,
            }) => rotate(shown).await,
            KeysAction::Verify(verified) => verify(verified).await,
        }
    }
}

async fn status(ShownArgs { config, form }: ShownArgs) -> anyhow::Result<()> {
    let prepared = existing(&config).await?;
    let scope = prepared.known_sealed().await?;
    let status = keys::status(&prepared.database, &prepared.keyring, &scope).await?;
    let survey = prepared.survey_rotation(scope).await?;
    let mut value = serde_json::to_value(&status)?;
    value["unreadable"] = survey.unreadable.into();
    value["unreadable_examples"] = survey.examples.clone().into();
    form.print(&value, || {
        render::status(&status, &survey, prepared.database.name())
    })
}

async fn verify(
    Verify {
        shown: ShownArgs { config, form },
        label,
    }: Verify,
) -> anyhow::Result<()> {
    let prepared = existing(&config).await?;
    if migrate::found(&prepared.database).await? == Found::Fresh {
        return Err(StartupError::NothingToRotate.into());
    }
    let scope = prepared.known_sealed().await?;
    let verified = keys::verify(&prepared.database, &prepared.keyring, &scope, &label).await?;
    if verified.unused && !verified.is_known {
        let known = prepared.keyring.labels().collect::<Vec<_>>().join(", ");
        anyhow::bail!(
            "`encryption_keys` has no key {label:?}, and the database does not use it: there is nothing to \
             remove. It has {known}"
        );
    }
    if form.json {
        output::json(&verified)?;
    } else if verified.unused {
        output::line(format_args!(
            "The key {label:?} is unused: it may be removed from `encryption_keys`."
        ))?;
    }
    let obstacles = verified
        .obstacles
        .iter()
        .map(|obstacle| format!("\n  {obstacle}"))
        .collect::<String>();
    anyhow::ensure!(
        verified.unused,
        "the key {label:?} must stay in `encryption_keys`:{obstacles}"
    );
    Ok(())
}

async fn rotate(ShownArgs { config, form }: ShownArgs) -> anyhow::Result<()> {
    let prepared = existing(&config).await?;
    let (lock, fence) = match prepared
        .lock_now(async || prepared.may_rotate().await.map(drop))
        .await
    {
        Err(StartupError::Locked { holder }) => anyhow::bail!(
            "a host holds the lock of this database{}; it re-seals everything under its own active key in the background, \
             once it was started with that key. `bbs keys status` shows its progress. Rows that a rotation by Diego's BBS has left \
             under another key are re-sealed by this command alone, while no host serves",
            holder.map_or_else(String::new, |holder| format!(": {holder}"))
        ),
        taken => taken?,
    };
    let work = rotate_shown(&prepared, &fence);
    let rotated = until_interrupted(&prepared, lock, work).await?;
    report(&prepared, &rotated, form)
}

async fn survey(ShownArgs { config, form }: ShownArgs) -> anyhow::Result<()> {
    let prepared = existing(&config).await?;
    let scope = prepared.may_rotate().await?;
    let survey = prepared.survey_rotation(scope).await?;
    let active = prepared.keyring.active_label();
    form.print(&result(active, &survey), || {
        format!(
            "{} rows would be re-sealed under {active:?}; nothing was written.\n",
            survey.rewritten
        )
    })?;
    anyhow::ensure!(
        survey.unreadable == 0,
        "{}",
        render::unreadable_now(&survey)
    );
    Ok(())
}

async fn rotate_shown(prepared: &Prepared, fence: &Fence) -> anyhow::Result<Rotated> {
    let _admin = prepared.open_admin(None).await;
    Ok(progress::shown(&prepared.progress, prepared.rotate_all(fence)).await?)
}

fn report(prepared: &Prepared, rotated: &Rotated, form: OutputForm) -> anyhow::Result<()> {
    let active = prepared.keyring.active_label();
    form.print(&result(active, rotated), || {
        match (rotated.unreadable, rotated.rewritten) {
            (0, 0) => format!("Nothing to do: everything is sealed under {active:?}.\n"),
            (0, rows) => {
                format!("Everything is sealed under {active:?}: {rows} rows were re-sealed.\n")
            }
            _ => String::new(),
        }
    })?;
    anyhow::ensure!(
        rotated.unreadable == 0,
        "{}",
        render::unreadable(rotated, active)
    );
    Ok(())
}

/// The result of a rotation, and of what one would do.
fn result(active: &str, rotated: &Rotated) -> serde_json::Value {
    serde_json::json!({
        "active_key_label": active,
        "rewritten": rotated.rewritten,
        "unreadable": rotated.unreadable,
        "unreadable_examples": rotated.examples,
    })
}
