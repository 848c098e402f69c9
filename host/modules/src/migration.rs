//! A migration as a sandboxed component; the lens's [`Transform`] in production.

use std::sync::{Arc, OnceLock};

use bbs_lens::answer::{self, WrittenColumns, written_columns};
use bbs_lens::layout::columns::{Batch, Outcome};
use bbs_lens::layout::history::LayoutHistory;
use bbs_lens::layout::manifest::{Direction, Manifest};
use bbs_lens::transform::{RunArguments, Transform, TransformError};

use super::bindings::migration_0_1::Migration;
use super::call::CallError;
use super::instance::Instances;
use super::sandbox::Sandbox;

/// A loaded migration.
pub struct MigrationModule {
    file: Arc<str>,
    digest: String,
    manifest: Manifest,
    /// Set once the catalog has built the layout history.
    written: OnceLock<WrittenDefinitions>,
    instances: Instances<Migration>,
}

/// The definitions of the columns that each direction writes.
#[derive(Debug)]
struct WrittenDefinitions {
    up: WrittenColumns,
    down: WrittenColumns,
}

impl MigrationModule {
    pub(super) fn load(
        file: &Arc<str>,
        digest: &str,
        linked: Migration,
        sandbox: &Arc<Sandbox>,
    ) -> Result<Self, CallError> {
        let instances = Instances::new(linked, file, sandbox, None);
        let manifest = instances.describe(|guest, store| guest.describe(store))?;
        Ok(Self {
            file: Arc::clone(file),
            digest: digest.to_owned(),
            manifest,
            written: OnceLock::new(),
            instances,
        })
    }

    /// The name of its file.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The number of idle instances.
    pub fn idle_instances(&self) -> usize {
        self.instances.idle()
    }

    /// Discards all idle instances, so that the next call runs in a fresh one.
    pub fn refresh(&self) {
        self.instances.refresh();
    }

    /// Sets the definitions of the written columns, from the layouts before and after the
    /// migration, against which outcomes are validated from then on. The manifest has to be part of
    /// `history`.
    pub(super) fn expect_columns(&self, history: &LayoutHistory) {
        let after = history
            .at(self.manifest.version)
            .expect("the layout history was built from this manifest");
        let before = history.before(self.manifest.version);
        let written = WrittenDefinitions {
            up: written_columns(after, &self.manifest.up),
            down: written_columns(before, &self.manifest.down),
        };
        self.written
            .set(written)
            .expect("a catalog builds its layout history once");
    }

    fn check(
        &self,
        direction: Direction,
        batch: &Batch,
        outcome: &Outcome,
    ) -> Result<(), CallError> {
        let columns = self.written.get().map(|written| match direction {
            Direction::Up => &written.up,
            Direction::Down => &written.down,
        });
        answer::check(
            self.manifest.accesses(direction),
            columns,
            (&self.manifest).into(),
            batch,
            outcome,
        )
        .map_err(|flaw| CallError::flaw(&flaw))
    }
}

impl Transform for MigrationModule {
    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn digest(&self) -> &str {
        &self.digest
    }

    fn apply(
        &self,
        direction: Direction,
        run: &RunArguments,
        batch: &Batch,
    ) -> Result<Outcome, TransformError> {
        // A direction without row function only changes the layout.
        if self.manifest.accesses(direction).is_empty() {
            return Ok(Outcome::default());
        }
        let clock = self.instances.clock();
        let began = clock.now();
        let answer = self.instances.run(
            |guest, store| guest.apply(store, direction, run, batch),
            |answer| {
                if let Ok(outcome) = &answer {
                    self.check(direction, batch, outcome)?;
                }
                Ok(answer)
            },
        );
        answer
            .and_then(|answer| answer.map_err(|reason| CallError::Fault { reason }))
            .map_err(|error| TransformError {
                is_slow: matches!(error, CallError::Overrun { .. })
                    || clock.now() - began > self.instances.call_time() / 2,
                reason: error.to_string(),
            })
    }
}

impl std::fmt::Debug for MigrationModule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MigrationModule")
            .field("file", &self.file)
            .field("digest", &self.digest)
            .finish_non_exhaustive()
    }
}
