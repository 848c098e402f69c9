//! Sealed columns as the database may hold them.

#![no_main]

use std::sync::LazyLock;

use bbs_fuzz::layout::schema::Sealing;
use bbs_fuzz::record::{Keyring, header};
use libfuzzer_sys::fuzz_target;

static KEYS: LazyLock<Keyring> = LazyLock::new(|| Keyring::new([("a", "one"), ("b", "two")], "a").expect("two keys"));

fuzz_target!(|text: &[u8]| {
    for sealing in [Sealing::Sealed, Sealing::Enveloped] {
        // Nobody has the keys, so what opens was sealed with them.
        assert!(KEYS.open(sealing, text).is_err());
        let sealed = KEYS.seal(sealing, text);
        assert_eq!(KEYS.open(sealing, &sealed).as_deref(), Ok(text));
        assert_eq!(header::label_of(&sealed).as_deref(), Ok("a"));
    }
    let _ = header::label_of(text);
    let _ = header::identity(text);
});
