//! A compiled component with the digest that binds it to its source and its engine. Owns the format
//! in which it is stored in a file and passed between processes, and the only place where the host
//! makes code of such bytes.

use std::hash::{Hash, Hasher};

use sha2::{Digest, Sha256};
use wasmtime::Engine;
use wasmtime::component::Component;

/// Largest size of a sealed artifact: machine code takes several times the bytes of its component,
/// which has at most 4 MiB.
pub(in crate::sandbox) const ARTIFACT_BYTES: u64 = 128 << 20;

/// The digest in front of an artifact.
type Seal = [u8; 32];

/// Identifies an engine by its version, settings and processor features.
#[derive(Debug, Clone, Copy)]
pub(in crate::sandbox) struct EngineFingerprint(u64);

/// The seal of an artifact, followed by the artifact.
#[derive(Debug)]
pub(in crate::sandbox) struct SealedArtifact(Vec<u8>);

impl EngineFingerprint {
    pub(in crate::sandbox) fn of(engine: &Engine) -> Self {
        let mut fingerprint = Fingerprint(Sha256::new());
        engine
            .precompile_compatibility_hash()
            .hash(&mut fingerprint);
        Self(fingerprint.finish())
    }

    /// The name of the file with the artifact of a component.
    pub(super) fn file_name(self, digest: &str) -> String {
        format!("{digest}-{:016x}.artifact", self.0)
    }

    fn seal(self, digest: &str, artifact: &[u8]) -> Seal {
        let mut hasher = Sha256::new();
        hasher.update(digest.as_bytes());
        hasher.update(self.0.to_le_bytes());
        hasher.update(artifact);
        hasher.finalize().into()
    }
}

impl SealedArtifact {
    /// Seals what an engine compiled of the component with this digest.
    pub(in crate::sandbox) fn new(
        artifact: &[u8],
        digest: &str,
        engine: EngineFingerprint,
    ) -> Self {
        let mut sealed = engine.seal(digest, artifact).to_vec();
        sealed.extend_from_slice(artifact);
        Self(sealed)
    }

    /// Takes the bytes of a sealed artifact, which are checked when it is loaded.
    pub(in crate::sandbox) fn of_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    pub(in crate::sandbox) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Makes a component of the artifact, unless it is damaged, or was compiled of another
    /// component or for another engine.
    ///
    /// # Safety
    /// The bytes are those of a sealed artifact of [`Self::new`], or damaged ones: their origin is
    /// a process or a file that only this user or root controls. The seal is no protection against
    /// an attacker.
    #[allow(
        unsafe_code,
        reason = "compiled code, of an origin that the caller has checked"
    )]
    pub(in crate::sandbox) unsafe fn load(
        &self,
        digest: &str,
        engine: &Engine,
        fingerprint: EngineFingerprint,
    ) -> Result<Component, String> {
        let Some((stated, artifact)) = self.0.split_first_chunk::<{ size_of::<Seal>() }>() else {
            return Err("it is truncated".to_owned());
        };
        if *stated != fingerprint.seal(digest, artifact) {
            return Err("its digest does not match".to_owned());
        }
        // SAFETY: the caller vouches for the origin of the bytes; the seal shows that they are
        // complete, and wasmtime itself rejects those of another version or with other settings.
        unsafe { Component::deserialize(engine, artifact) }.map_err(|error| format!("{error:#}"))
    }
}

/// A hasher with the same result in every process, unlike the standard library's.
struct Fingerprint(Sha256);

impl Hasher for Fingerprint {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let digest = self.0.clone().finalize();
        u64::from_le_bytes(
            digest[..8]
                .try_into()
                .expect("a sha256 is longer than eight bytes"),
        )
    }
}
