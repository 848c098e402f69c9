//! Encrypted column values.

#![no_main]

use std::sync::LazyLock;

use bbs_fuzz::encryption::{Keyring, header};
use bbs_lens::layout::schema::Sealing;
use libfuzzer_sys::fuzz_target;

static KEYS: LazyLock<Keyring> =
    LazyLock::new(|| Keyring::new([("a", "one"), ("b", "two")], "a").expect("two keys"));

fuzz_target!(|text: &[u8]| {
    for sealing in [Sealing::Sealed, Sealing::Enveloped] {
        // The fuzzer does not know the keys, so it cannot find a text that decrypts.
        assert!(KEYS.open(sealing, text).is_err());
        let sealed = KEYS.seal(sealing, text);
        assert_eq!(KEYS.open(sealing, &sealed).as_deref(), Ok(text));
        assert_eq!(header::label_of(&sealed).as_deref(), Ok("a"));
    }
    let _ = header::label_of(text);
    let _ = header::identity(text);
});
