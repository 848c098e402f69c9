//! Worked examples of the sealed format, and every error of a damaged text or an invalid keyring.

use super::*;

const COUNTING_NONCE: [u8; 12] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];

fn key1() -> Keyring {
    Keyring::new([("key1", "correct horse battery staple")], "key1").unwrap()
}

#[track_caller]
fn check(keys: &Keyring, sealing: Sealing, plain: &[u8], nonce: [u8; 12], column: &str) {
    assert_eq!(
        String::from_utf8(keys.seal_with_nonce(sealing, plain, nonce)).unwrap(),
        column
    );
    assert_eq!(keys.open(sealing, column.as_bytes()).unwrap(), plain);
}

#[test]
fn protobuf_column_has_an_envelope() {
    let plain = b"\x0a\x05local\x0a\x03nfs";
    let column = "02BGtleTEAAQIDBAUGBwgJCgsVzdZWAMKBi6eeu7Yj2UrZge0VFRKwGKKGPeFmREQ=";
    check(&key1(), Sealing::Enveloped, plain, COUNTING_NONCE, column);
}

#[test]
fn json_column_has_no_envelope() {
    let plain = br#"{"cf-router":[{"hostnames":["a.example.com"],"port":8080}]}"#;
    let column = "02BGtleTEAAAAAAAAAAAAAAABOyVSPS5XQe3TOdk62u2J99e5MoDs+V5tGmaU/0g2CMd4dw5u6Nkg8ay/5t9k2/fy2oGGdgwqOOSG3bfzlroFMU6h7IRm3frTSGDQ=";
    check(&key1(), Sealing::Sealed, plain, [0; 12], column);
}

#[test]
fn empty_message_round_trips_under_an_empty_passphrase() {
    let keys = Keyring::new([("2019-q4", "")], "2019-q4").unwrap();
    check(
        &keys,
        Sealing::Enveloped,
        b"",
        [0xff; 12],
        "02BzIwMTktcTT////////////////B11b8kZk+ommQeOGYGKudLFs=",
    );
}

#[test]
fn json_null_round_trips() {
    check(
        &key1(),
        Sealing::Sealed,
        b"null",
        COUNTING_NONCE,
        "02BGtleTEAAQIDBAUGBwgJCgt5uLA/UIpIhVp1Edb96Jc7T1IVkQ==",
    );
}

#[test]
fn plain_column_is_not_encrypted() {
    check(
        &key1(),
        Sealing::Plain,
        b"cf-apps",
        COUNTING_NONCE,
        "cf-apps",
    );
}

#[test]
fn sealing_the_same_plaintext_twice_differs() {
    let keys = key1();
    assert_ne!(
        keys.seal(Sealing::Sealed, b"same"),
        keys.seal(Sealing::Sealed, b"same")
    );
}

#[test]
fn any_configured_key_opens_and_the_active_key_seals() {
    let old = key1().seal(Sealing::Sealed, b"x");
    let both = Keyring::new(
        [("key1", "correct horse battery staple"), ("key2", "other")],
        "key2",
    )
    .unwrap();
    assert_eq!(both.open(Sealing::Sealed, &old).unwrap(), b"x");
    assert_eq!(
        key1().open(Sealing::Sealed, &both.seal(Sealing::Sealed, b"x")),
        Err(EncryptionError::UnknownKey {
            label: "key2".into()
        })
    );
}

#[test]
fn resealing_keeps_the_plaintext() {
    let both = Keyring::new(
        [("key1", "correct horse battery staple"), ("key2", "other")],
        "key2",
    )
    .unwrap();
    // The first has an envelope of another version, which is not checked.
    for plain in [&[2, 1, b'x'][..], b"", b"{}"] {
        let resealed = both.reseal(&key1().seal(Sealing::Sealed, plain)).unwrap();
        assert_eq!(both.open(Sealing::Sealed, &resealed).unwrap(), plain);
        assert_eq!(header::label_of(&resealed).unwrap(), "key2");
    }
    assert_eq!(
        both.reseal(b"02/w=="),
        Err(EncryptionError::Truncated { length: 1 })
    );
}

#[test]
fn truncated_text_is_an_error() {
    let keys = key1();
    let blob = decode(&keys.seal(Sealing::Enveloped, b"some plaintext")).unwrap();
    for length in 0..blob.len() {
        let mut text = ENCODING_TAG.to_vec();
        text.extend_from_slice(STANDARD.encode(&blob[..length]).as_bytes());
        let has_nonce_and_tag = length >= 1 + "key1".len() + NONCE_LENGTH + TAG_LENGTH;
        let error = if has_nonce_and_tag {
            EncryptionError::Cipher {
                label: "key1".into(),
            }
        } else {
            EncryptionError::Truncated { length }
        };
        assert_eq!(
            keys.open(Sealing::Enveloped, &text),
            Err(error),
            "{length} of {} bytes",
            blob.len()
        );
    }
}

#[test]
fn text_with_a_flipped_bit_is_an_error() {
    let keys = key1();
    let blob = decode(&keys.seal(Sealing::Enveloped, b"some plaintext")).unwrap();
    for bit in 0..blob.len() * 8 {
        let mut changed = blob.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let mut text = ENCODING_TAG.to_vec();
        text.extend_from_slice(STANDARD.encode(&changed).as_bytes());
        let opened = keys.open(Sealing::Enveloped, &text);
        let is_named = match (bit / 8, &opened) {
            (0, Err(EncryptionError::Truncated { .. } | EncryptionError::UnknownKey { .. })) => {
                true
            }
            (1..=4, Err(EncryptionError::UnknownKey { .. })) => true,
            (5.., Err(EncryptionError::Cipher { label })) => label == "key1",
            _ => false,
        };
        assert!(is_named, "bit {bit} flipped: {opened:?}");
    }
}

#[test]
fn each_kind_of_damage_has_its_own_error() {
    let keys = key1();
    let open = |text: &[u8]| keys.open(Sealing::Enveloped, text).unwrap_err();
    assert_eq!(
        open(b""),
        EncryptionError::Encoding {
            found: String::new()
        }
    );
    assert_eq!(
        open(b"01AAAA"),
        EncryptionError::Encoding { found: "01".into() }
    );
    assert_eq!(open(b"02***"), EncryptionError::Base64);
    assert_eq!(open(b"02"), EncryptionError::Truncated { length: 0 });
    assert_eq!(open(b"02/w=="), EncryptionError::Truncated { length: 1 });
    let other = Keyring::new([("key1", "another passphrase")], "key1").unwrap();
    assert_eq!(
        other.open(Sealing::Sealed, &keys.seal(Sealing::Sealed, b"x")),
        Err(EncryptionError::Cipher {
            label: "key1".into()
        })
    );
    assert_eq!(
        open(&keys.seal(Sealing::Sealed, b"x")),
        EncryptionError::Envelope { length: 1 }
    );
}

#[test]
fn invalid_keys_are_rejected_with_diegos_errors() {
    let build = |keys: &[(&str, &str)], active: &str| {
        Keyring::new(keys.iter().copied(), active).unwrap_err()
    };
    assert_eq!(build(&[], "a"), KeyringError::NoKeys);
    assert_eq!(build(&[("a", "x")], ""), KeyringError::NoActiveKey);
    assert_eq!(
        build(&[("a", "x")], "b"),
        KeyringError::ActiveKeyMissing("b".into())
    );
    assert_eq!(build(&[("", "x")], "a"), KeyringError::EmptyLabel);
    assert_eq!(
        build(&[("a", "x"), ("a", "y")], "a"),
        KeyringError::DuplicateLabel("a".into())
    );
    let long = "l".repeat(128);
    assert_eq!(
        build(&[(&long, "x")], &long),
        KeyringError::LongLabel(long.clone())
    );
    assert!(Keyring::new([(&long[..127], "x")], &long[..127]).is_ok());
}

#[test]
fn debug_output_contains_no_key_material() {
    assert_eq!(
        format!("{:?}", key1()),
        r#"Keyring { labels: ["key1"], active: "key1" }"#
    );
}

#[test]
fn sealed_length_is_that_of_the_sealed_text() {
    for sealing in [Sealing::Plain, Sealing::Sealed, Sealing::Enveloped] {
        for length in 0..10 {
            let sealed = key1().seal(sealing, &vec![b'x'; length]);
            assert_eq!(
                key1().sealed_length(sealing, length),
                sealed.len(),
                "{sealing:?}, {length}"
            );
        }
    }
}
