//! Attacks through modules: folders that a running host is to load, and migrations of the records
//! that it serves. Each is refused by name, and the host serves as before.

use std::path::Path;
use std::process::Output;

use super::attacker::AttackEnd;
use super::diego::AttackedDiego;
use crate::attacks::compilation::{above_the_limits, at_the_limits, write_folder};
use crate::harness::diego::auctioneer::ENDLESS;
use crate::harness::host::Installation;
use crate::harness::modules::{greedy_add_on, guest, modules_with_greedy};

/// The folder that an attack adds.
const PACKAGE: &str = "attack";
/// A record of a task that takes more memory than a batch may, if it is continued by as many rows
/// as the migration returns.
const LARGE_BYTES: usize = 60_000;

/// Content of a hostile folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostileFolder {
    /// A translator above the limits of the compiler.
    Bomb,
    /// A translator just below them, which is no module.
    LargestCode,
    /// A migration that traps when it is described.
    Traps,
    /// A migration that imports what no module gets.
    Imports,
}

/// How a migration misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostileMigration {
    Grows,
    OtherRows,
    Spins,
}

impl HostileFolder {
    fn component(self) -> Vec<u8> {
        let guest = |name| std::fs::read(guest(name)).expect("it was built");
        match self {
            Self::Bomb => above_the_limits(),
            Self::LargestCode => at_the_limits(),
            Self::Traps => guest("describe-traps"),
            Self::Imports => guest("forbidden-import"),
        }
    }

    fn cause(self) -> &'static str {
        match self {
            Self::Bomb => "values and branches",
            Self::LargestCode => "describe",
            Self::Traps => "describe traps",
            Self::Imports => "wasi:random",
        }
    }

    fn write_to(self, folder: &Path) {
        write_folder(
            folder,
            &self.component(),
            matches!(self, Self::Bomb | Self::LargestCode),
        );
    }
}

impl HostileMigration {
    fn domain(self) -> &'static str {
        match self {
            Self::Grows => "repeated",
            Self::OtherRows => "other-rows",
            Self::Spins => "spins",
        }
    }

    fn cause(self) -> &'static str {
        match self {
            Self::Grows => "bytes of memory",
            Self::OtherRows => "units",
            Self::Spins => "computed for longer",
        }
    }
}

/// A package that is removed when this is dropped.
struct InstalledAttack<'a>(&'a AttackedDiego);

impl Drop for InstalledAttack<'_> {
    fn drop(&mut self) {
        std::fs::remove_dir_all(self.0.packages.folder(PACKAGE)).expect("the package is installed");
    }
}

/// The end of an attack that a command should have refused with a cause.
fn ended(output: &Output, cause: &'static str) -> AttackEnd {
    let text = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
    if output.status.code() == Some(1) && text.contains(cause) {
        return AttackEnd::Named(cause);
    }
    println!("{cause:?} is not the reason of {}: {text}", output.status);
    AttackEnd::Unrefused
}

async fn run(installation: &Installation, arguments: &[&str]) -> Output {
    let mut command = tokio::process::Command::from(installation.command(arguments));
    command
        .kill_on_drop(true)
        .output()
        .await
        .expect("the executable starts")
}

impl AttackedDiego {
    /// Reloads with a hostile folder, which is removed afterwards.
    pub async fn reload(&self, folder: HostileFolder) -> AttackEnd {
        let _turn = self.of_modules.lock().await;
        let _installed = InstalledAttack(self);
        folder.write_to(&self.packages.folder(PACKAGE));
        ended(
            &run(&self.installation, &["module", "reload"]).await,
            folder.cause(),
        )
    }

    /// Checks what a hostile migration would do with the records, beside the host.
    pub async fn check(&self, migration: HostileMigration) -> AttackEnd {
        let _turn = self.of_modules.lock().await;
        let task = self.task_for(migration).await;
        let beside = Installation::on(self.installation.database.clone(), &modules_with_greedy());
        let output = run(&beside, &["migrate", "plan", "--check"]).await;
        self.delete_task(&task).await;
        ended(&output, migration.cause())
    }

    /// Has the host migrate to a hostile migration while it serves.
    pub async fn migrate(&self, migration: HostileMigration) -> AttackEnd {
        let _turn = self.of_modules.lock().await;
        let task = self.task_for(migration).await;
        let installed = InstalledAttack(self);
        self.packages.install(PACKAGE, &greedy_add_on());
        let begun = run(&self.installation, &["module", "reload"]).await;
        assert!(
            begun.status.success(),
            "{}",
            String::from_utf8_lossy(&begun.stderr)
        );
        let watched = run(&self.installation, &["migrate", "watch"]).await;
        drop(installed);
        let removed = run(&self.installation, &["module", "reload"]).await;
        assert!(
            removed.status.success(),
            "{}",
            String::from_utf8_lossy(&removed.stderr)
        );
        self.delete_task(&task).await;
        ended(&watched, migration.cause())
    }

    /// Desires the task that the migration meets first.
    async fn task_for(&self, migration: HostileMigration) -> String {
        let guid = format!("{ENDLESS}-{}", migration.domain());
        self.desire_task(&guid, migration.domain(), LARGE_BYTES)
            .await;
        guid
    }
}
