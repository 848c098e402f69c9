//! Migrations without row functions, which a test declares: what an add-on of the default modules
//! may change in a layout.

use std::sync::Arc;

use bbs_lens::layout::columns::{Batch, Outcome};
use bbs_lens::layout::manifest::{Direction, Manifest};
use bbs_lens::transform::{RunArguments, Transform, TransformError};

use super::once::hash_of;

struct Declared {
    manifest: Manifest,
    digest: String,
}

/// A migration that is its manifest. Other manifests have other digests.
pub fn declared(manifest: Manifest) -> Arc<dyn Transform> {
    let digest = format!("{:064x}", hash_of(format!("{manifest:?}")));
    Arc::new(Declared { manifest, digest })
}

impl Transform for Declared {
    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn digest(&self) -> &str {
        &self.digest
    }

    fn apply(&self, _: Direction, _: &RunArguments, _: &Batch) -> Result<Outcome, TransformError> {
        unreachable!("a migration without accesses is never called")
    }
}
