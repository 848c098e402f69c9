//! The operator's editor on decrypted content: a private file in a folder of its own, which is
//! removed at the end, also by signals but SIGKILL, unless the caller keeps it.

use std::path::PathBuf;
use std::process::ExitStatus;

use anyhow::{Context, ensure};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::interrupt::Interrupted;

/// Variables that name the editor, the first that is set. Each is a command line of the shell, such
/// as `code --wait`.
const EDITOR_VARIABLES: [&str; 2] = ["VISUAL", "EDITOR"];

/// Largest file of a unit. Units that are migrated have at most 32 MiB; those in quarantine may
/// have more.
pub(super) const DOCUMENT_BYTES: u64 = 1 << 30;

/// A file under edit. Dropping it removes the file, and the copies that the editor has made beside
/// it.
pub(super) struct EditedFile {
    editor: String,
    path: PathBuf,
    folder: TempDir,
    signals: EndSignals,
}

/// Signals during an edit.
struct EndSignals {
    terminate: Signal,
    hang_up: Signal,
    /// Ctrl-C and Ctrl-\\, which the terminal sends to the editor, too, which decides about them.
    _ignored: [Signal; 2],
}

impl EditedFile {
    /// A file with this content, for this user alone.
    ///
    /// # Errors
    /// No variable names an editor, or the file cannot be written.
    pub(super) fn new(content: &str) -> anyhow::Result<Self> {
        let editor = EDITOR_VARIABLES
            .iter()
            .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
        let editor =
            editor.context("no editor is known; set VISUAL or EDITOR, such as `EDITOR=vi`")?;
        // Before the file exists.
        let signals = EndSignals {
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
            _ignored: [
                signal(SignalKind::interrupt())?,
                signal(SignalKind::quit())?,
            ],
        };
        let folder = bbs_files::private_temporary_folder()
            .context("no private folder for the editor can be made")?;
        let path = folder.path().join("unit.json");
        bbs_files::replace_private(&path, content.as_bytes(), || ())
            .with_context(|| format!("{} cannot be written", path.display()))?;
        Ok(Self {
            editor,
            path,
            folder,
            signals,
        })
    }

    /// Runs the editor until it ends, and returns the content of the file.
    ///
    /// # Errors
    /// The editor cannot be started or fails, a signal ended this command, or the file cannot be
    /// read.
    pub(super) async fn edited(&mut self) -> anyhow::Result<Vec<u8>> {
        let status = self.run().await?;
        ensure!(
            status.success(),
            "the editor `{}` failed ({status}); nothing was written",
            self.editor
        );
        bbs_files::read(&self.path, DOCUMENT_BYTES).context("the edited file cannot be read")
    }

    /// Keeps the file, whose content is not imported because of this fault, and names it.
    pub(super) fn kept(self, fault: anyhow::Error) -> anyhow::Error {
        let _ = self.folder.keep();
        let path = self.path.display();
        fault.context(format!(
            "the edited content is not imported and stays in {path}, decrypted; correct it and give it to `bbs migrate quarantine \
             import`, or delete it"
        ))
    }

    async fn run(&mut self) -> anyhow::Result<ExitStatus> {
        // The file is an argument of the shell, so that no character of its path is part of the
        // command line.
        let script = format!("{} \"$1\"", self.editor);
        let mut child = Command::new("sh")
            .args(["-c", &script, "sh"])
            .arg(&self.path)
            .kill_on_drop(true)
            .spawn()?;
        tokio::select! {
            status = child.wait() => Ok(status?),
            _ = self.signals.terminate.recv() => Err(Interrupted.into()),
            _ = self.signals.hang_up.recv() => Err(Interrupted.into()),
        }
    }
}
