//! Shared by all TLS of this process: one cryptography provider. A leaf.

pub mod client;

/// Installs the provider as the process default, for libraries that use the default. Idempotent.
pub fn choose_cryptography() {
    // An error means that it is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
