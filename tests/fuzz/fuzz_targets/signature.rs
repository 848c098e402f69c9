//! Signatures of catalogs, trusted keys, and files of secret keys.

#![no_main]

use std::sync::LazyLock;

use bbs_fuzz::read_signature;
use bbs_fuzz::signatures::TrustedKeys;
use libfuzzer_sys::fuzz_target;
use minisign::KeyPair;

static KEY: LazyLock<KeyPair> =
    LazyLock::new(|| KeyPair::generate_unencrypted_keypair().expect("random numbers"));
static TRUSTED: LazyLock<TrustedKeys> = LazyLock::new(|| {
    let keys = [("colours".to_owned(), vec![KEY.pk.to_base64()])];
    TrustedKeys::parse(keys.into()).expect("a public key")
});
static CONTENT: &[u8] = b"name = \"colours\"";
static SIGNATURE: LazyLock<String> = LazyLock::new(|| {
    let signed = minisign::sign(
        Some(&KEY.pk),
        &KEY.sk,
        CONTENT,
        Some("trusted"),
        Some("untrusted"),
    );
    signed.expect("random numbers").into_string()
});

fuzz_target!(|text: &str| {
    assert!(
        !read_signature(&TRUSTED, text.as_bytes(), CONTENT),
        "the fuzzer cannot sign"
    );
    assert!(read_signature(&TRUSTED, SIGNATURE.as_bytes(), CONTENT));
    // Each line of the signature replaced by the text.
    let lines: Vec<_> = SIGNATURE.lines().collect();
    for at in 0..lines.len() {
        let mut changed = lines.clone();
        changed[at] = text;
        let is_accepted = read_signature(&TRUSTED, changed.join("\n").as_bytes(), CONTENT);
        assert!(
            !is_accepted || at == 0 || text.trim() == lines[at].trim(),
            "only the untrusted comment may change"
        );
    }
    let _ = TrustedKeys::parse([("colours".to_owned(), vec![text.to_owned()])].into());
    let _ = TrustedKeys::parse([(text.to_owned(), Vec::new())].into());
});
