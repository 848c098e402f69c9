//! What all TLS of this process has in common: one implementation of its cryptography. A leaf.

pub mod client;

/// For libraries that ask the process for it instead of being handed it. Doing it again changes nothing.
pub fn choose_cryptography() {
    // An error says that it was chosen before.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
