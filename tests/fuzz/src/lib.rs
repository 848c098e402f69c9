//! The modules of the host that decode input from the network, the database or a file, without the
//! rest of the host: neither the sandbox nor the databases, whose instrumented builds take long.
//! What the decoders name of these has a stand-in here.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "the targets use a part of the host's modules"
)]

use std::path::Path;

mod generated;

#[path = "../../../host/src"]
mod host {
    pub mod admin;
    pub mod protobuf;
    pub mod reload;
    pub mod shutdown;
}

pub use bbs_encryption as encryption;
pub use bbs_model as model;
pub use generated::restore;
pub use host::{admin, protobuf, reload, shutdown};
use modules::{module, text, translate};

#[path = "../../../host/modules/src"]
mod carried {
    pub mod signatures;
}

pub use carried::signatures;

/// Reads a command of the admin socket from the bytes that a client sends.
pub fn read_command(bytes: &[u8]) -> Option<admin::Command> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    runtime.block_on(admin::Command::read(bytes)).ok()?.ok()
}

/// Verifies the signature of a catalog, and parses the file of a secret key; must not panic.
/// Returns whether the signature is accepted.
pub fn read_signature(keys: &signatures::TrustedKeys, text: &[u8], content: &[u8]) -> bool {
    if let Ok(key) = signatures::SecretKeyFile::parse(Path::new("key"), text)
        && !key.is_encrypted()
    {
        let _ = key.open(None);
    }
    let claimed = signatures::ClaimedCatalog {
        name: Some("colours"),
        serial: Some(1),
        content,
    };
    keys.verify_text(text, claimed).is_ok()
}

#[path = "../../../host/modules/src"]
pub mod modules {
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::sync::LazyLock;

    use bbs_lens::answer;
    use bbs_lens::layout::history::LayoutHistory;

    use crate::generated::Generator;

    mod bundle;
    mod limits;
    mod new_folder;
    mod oci;
    mod releases;
    mod rules;
    pub(crate) mod text;
    pub mod translate;

    pub mod catalog {
        mod entries;
        mod error;
        mod sequence;

        pub use self::entries::*;
        pub(super) use self::entries::{is_file_name, is_sha256, parse, persist_readable, text};
        pub use self::error::CatalogError;
        pub(super) use self::sequence::check_part;

        /// A catalog with its modules, which need a sandbox.
        pub struct Catalog;

        impl Catalog {
            /// The modules of a folder.
            ///
            /// # Errors
            /// Always.
            pub fn contents(
                folder: &std::path::Path,
                _: &super::sandbox::Sandbox,
            ) -> Result<Vec<(CatalogEntry, Vec<u8>)>, CatalogError> {
                Err(CatalogError::NoCatalog {
                    path: folder.to_owned(),
                })
            }
        }
    }

    pub(crate) mod module {
        /// Why a module cannot be loaded.
        #[derive(Debug, thiserror::Error)]
        #[error("there is no sandbox")]
        pub struct ModuleError;
    }

    mod call {
        /// Why a call into a module failed.
        #[derive(Debug)]
        pub struct CallError(pub String);

        impl CallError {
            pub fn flaw(flaw: &str) -> Self {
                Self(flaw.to_owned())
            }
        }
    }

    mod sandbox {
        pub use super::limits::Limits;

        pub struct Sandbox;
    }

    /// Parses a catalog and a list of releases, and a catalog that is made of the bytes.
    pub fn read_catalog(bytes: &[u8]) {
        let path = Path::new(catalog::CATALOG_FILE);
        if let Ok(text) = std::str::from_utf8(bytes) {
            let _ = releases::parse(text);
            if let Ok(content) = catalog::parse(path, text) {
                let _ = catalog::check_part(&content.entries);
                let written = catalog::text(&content).expect("what parses can be serialised");
                assert_eq!(
                    catalog::parse(path, &written).ok(),
                    Some(content),
                    "a round trip changes nothing"
                );
            }
        }
        let content = Generator::new(bytes).catalog();
        let _ = catalog::check_part(&content.entries);
        // A serial above the range of TOML's integers is not written.
        let Ok(written) = catalog::text(&content) else {
            return;
        };
        if let Ok(read) = catalog::parse(path, &written) {
            assert_eq!(read, content, "a round trip changes nothing");
        }
    }

    /// Parses a bundle of these bytes, one with this manifest, one with this catalog, and one with
    /// a damaged byte.
    pub fn read_bundles(bytes: &[u8]) {
        let file = Path::new("bundle.tar");
        let reads = |bundle: &[u8]| bundle::parse(file, bundle).ok();
        if let Some(artifact) = reads(bytes) {
            round_trip(&artifact);
        }
        if let Ok(manifest) = oci::OciManifest::parse(bytes.to_vec()) {
            assert_eq!(manifest.digest(), oci::digest(bytes));
            // A content of the right length for the first layer, whose digest is another.
            let contents = manifest
                .layers
                .iter()
                .map(|layer| (layer.digest.clone(), bytes.to_vec()));
            let contents: BTreeMap<_, _> = contents.collect();
            let _ = oci::OciArtifact::new(manifest, contents);
        }
        let mut generator = Generator::new(bytes);
        let (at, byte) = generator.damage(sound_bundle().len());
        let mut damaged = sound_bundle().to_vec();
        damaged[at] = byte;
        let _ = bundle::parse(file, &damaged[..]);
        let _ = bundle::parse(file, &damaged[..at]);
        let files = [(catalog::CATALOG_FILE.to_owned(), bytes.to_vec())];
        let Ok(manifest) = oci::OciManifest::of(&files) else {
            return;
        };
        let contents = BTreeMap::from([(oci::digest(bytes), bytes.to_vec())]);
        if let Ok(artifact) = oci::OciArtifact::new(manifest, contents) {
            round_trip(&artifact);
        }
    }

    /// A bundle of a catalog without modules.
    fn sound_bundle() -> &'static [u8] {
        static BUNDLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
            let files = [(catalog::CATALOG_FILE.to_owned(), b"serial = 1\n".to_vec())];
            let manifest = oci::OciManifest::of(&files).expect("a manifest");
            let contents = files
                .map(|(_, content)| (oci::digest(&content), content))
                .into();
            let artifact = oci::OciArtifact::new(manifest, contents).expect("an artifact");
            let mut written = Vec::new();
            bundle::write_tar(&artifact, &mut written).expect("memory can be written to");
            written
        });
        &BUNDLE
    }

    fn round_trip(artifact: &oci::OciArtifact) {
        let mut written = Vec::new();
        bundle::write_tar(artifact, &mut written).expect("memory can be written to");
        let again = bundle::parse(Path::new("bundle.tar"), &written[..])
            .expect("what was saved can be loaded");
        assert_eq!(again.digest(), artifact.digest());
    }

    /// Checks two manifests of migrations, and composes what the checks accept.
    pub fn read_manifests(bytes: &[u8]) {
        let mut generator = Generator::new(bytes);
        let manifests = [generator.manifest(1), generator.manifest(2)];
        if manifests
            .iter()
            .any(|manifest| rules::check_migration(manifest).is_err())
        {
            return;
        }
        let Ok(layouts) = LayoutHistory::new(&manifests) else {
            return;
        };
        let _ = bbs_lens::check_composition(&layouts, &crate::generated::transforms(manifests));
        let _ = rules::check_translator(&generator.translator());
    }

    /// Checks the answer of a row function, and reads every value of what the check accepts.
    pub fn read_outcome(bytes: &[u8]) {
        let mut generator = Generator::new(bytes);
        let (access, definitions) = (generator.access(), generator.columns());
        let (batch, outcome) = (generator.batch(), generator.outcome());
        let (leaves_residue, removes_rows) = (generator.flag(), generator.flag());
        let declared = answer::Declared {
            leaves_residue,
            removes_rows,
        };
        let mut columns = definitions.clone();
        columns.truncate(access.writes.len());
        let is_defined = columns.len() == access.writes.len();
        let written = vec![answer::Definitions {
            columns,
            missing: generator.flag().then(|| "x".to_owned()),
        }];
        let accesses = std::slice::from_ref(&access);
        let _ = answer::check(accesses, None, declared, &batch, &outcome);
        if !is_defined
            || answer::check(accesses, Some(&written), declared, &batch, &outcome).is_err()
        {
            return;
        }
        for (definition, column) in written[0].columns.iter().zip(&outcome.tables[0].columns) {
            let shape = outcome.tables[0].shape.as_ref();
            let offsets = shape.map_or(&batch.tables[0].unit_offsets, |shape| &shape.unit_offsets);
            for row in 0..offsets.last().copied().unwrap_or(0) {
                let _ = column.get(definition.kind.into(), row as usize);
            }
        }
    }
}

#[path = "../../../host/src/domain"]
pub mod domain {
    pub mod validation;
}

// `config::dsn` names the crate of the databases, whose addresses are included here without sqlx.
extern crate self as bbs_database;

pub use database::{ClientCertificate, Tls};

#[path = "../../../host/database/src"]
mod database {
    mod address;

    pub use address::*;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Dialect {
        Sqlite,
        Postgres,
        Mysql,
    }

    impl std::fmt::Display for Dialect {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "{self:?}")
        }
    }
}

#[path = "../../../host/src/config"]
pub mod config {
    mod dsn;
    pub mod duration;

    /// Parses a connection string of either server; must not panic.
    pub fn read_connection_strings(text: &str) {
        let _ = (dsn::postgres(text), dsn::mysql(text));
    }
}

#[path = "../../../host/src/etcd"]
pub mod etcd {
    mod leaf;
    pub mod record;

    pub use leaf::Leaf;

    pub mod client {
        mod answer;

        use tokio::sync::mpsc;

        use super::Leaf;

        /// Parses the bytes, and an answer that is made of them.
        pub fn read_answers(bytes: &[u8]) {
            read_answer(bytes);
            let (node, leaves) = crate::generated::Generator::new(bytes).node(3);
            let body = serde_json::json!({"action": "get", "node": node}).to_string();
            assert_eq!(read_answer(body.as_bytes()), Some(leaves), "{body}");
        }

        /// Parses an answer as the whole store, in two chunks, as one leaf, and as an error.
        /// Returns the number of leaves.
        fn read_answer(body: &[u8]) -> Option<usize> {
            let (front, back) = body.split_at(body.len() / 2);
            let (chunk, chunks) = mpsc::channel(2);
            let (batch, mut batches) = mpsc::channel(body.len() + 1);
            for part in [front, back] {
                chunk
                    .try_send(part.to_vec())
                    .expect("there is room for two");
            }
            drop(chunk);
            let parsed = answer::parse_leaves(chunks, &batch);
            drop(batch);
            let mut leaves: Vec<Leaf> = Vec::new();
            while let Some(more) = batches.blocking_recv() {
                leaves.extend(more);
            }
            if let Ok(answer::LeafAnswer(leaf)) = serde_json::from_slice(body) {
                assert!(
                    parsed.is_err() || leaves == [leaf],
                    "both read the same leaf"
                );
            }
            let _ = serde_json::from_slice::<answer::ErrorAnswer>(body);
            parsed.ok().map(|()| leaves.len())
        }
    }
}

#[path = "../../../host/src/clients/loggregator"]
pub mod loggregator {
    pub mod messages;
}

#[path = "../../../host/src/locket"]
pub mod locket {
    pub mod messages;
}

#[path = "../../../host/src/clients/cells"]
pub mod cells {
    mod presence;

    /// Parses a cell's presence; must not panic.
    pub fn read_presence(text: &str) {
        let _ = presence::read(text);
    }
}
