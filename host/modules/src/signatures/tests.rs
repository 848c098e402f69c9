//! Which signatures are accepted, and hostile signature files.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use minisign::KeyPair;
use proptest::prelude::*;

use super::*;

const CONTENT: &[u8] = b"name = \"colours\"\nserial = 7\n";
const CLAIMED: ClaimedCatalog = ClaimedCatalog {
    name: Some("colours"),
    serial: Some(7),
    content: CONTENT,
};

fn pair() -> KeyPair {
    KeyPair::generate_unencrypted_keypair().unwrap()
}

fn trusting(pairs: &[&KeyPair]) -> TrustedKeys {
    let keys = pairs.iter().map(|pair| pair.pk.to_base64()).collect();
    TrustedKeys::parse([("colours".to_owned(), keys)].into()).unwrap()
}

fn signed(pair: &KeyPair, content: &[u8]) -> String {
    minisign::sign(
        None,
        &pair.sk,
        Cursor::new(content),
        Some("a comment"),
        None,
    )
    .unwrap()
    .into_string()
}

/// Changes the bytes of one base64 line.
fn with_line(signature: &str, line: usize, change: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut lines: Vec<_> = signature.lines().map(str::to_owned).collect();
    let mut bytes = STANDARD.decode(&lines[line]).unwrap();
    change(&mut bytes);
    lines[line] = STANDARD.encode(bytes);
    lines.join("\n") + "\n"
}

#[test]
fn catalog_names_are_plain_words() {
    for name in ["a", "colours", "acme-colours-2", &"a".repeat(64)] {
        assert!(is_catalog_name(name), "{name}");
    }
    for name in [
        "",
        "2a",
        "-a",
        "A",
        "a_b",
        "a b",
        "a/b",
        "ä",
        "a\n",
        &"a".repeat(65),
    ] {
        assert!(!is_catalog_name(name), "{name}");
    }
}

#[test]
fn trusted_key_that_cannot_be_used_is_refused_with_its_place() {
    let key = pair().pk.to_base64();
    let of = |name: &str, keys: &[&str]| {
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        TrustedKeys::parse([(name.to_owned(), keys)].into())
    };
    assert!(!of("colours", &[&key]).unwrap().is_empty());
    assert!(
        !of("colours", &[]).unwrap().is_empty(),
        "a catalog without keys is refused, not exempt"
    );
    assert!(matches!(
        of("Colours", &[&key]),
        Err(TrustedKeyError::Name { .. })
    ));
    let other_algorithm = STANDARD.encode([b"Xx".to_vec(), vec![7; 40]].concat());
    for wrong in ["", "key", &key[1..], &format!("{key}\n"), &other_algorithm] {
        let error = of("colours", &[&key, wrong]).unwrap_err().to_string();
        assert!(
            error.contains("number 2") && error.contains("colours"),
            "{error}"
        );
    }
}

#[test]
fn only_a_trusted_key_of_this_name_is_accepted() {
    let trusted = pair();
    let other = pair();
    let keys = trusting(&[&other, &trusted]);
    let signature = signed(&trusted, CONTENT);
    let verify = |keys: &TrustedKeys, claimed| keys.verify_text(signature.as_bytes(), claimed);
    assert_eq!(verify(&keys, CLAIMED).unwrap(), ("colours", 7));
    let id = KeyId::of_key(&trusted.pk);
    let other_id = KeyId::of_key(&other.pk);
    match verify(&trusting(&[&other]), CLAIMED).unwrap_err() {
        SignatureError::OtherKey {
            name,
            id: found,
            trusted,
        } => {
            assert_eq!((&*name, found, trusted), ("colours", id, vec![other_id]));
        }
        error => panic!("{error}"),
    }
    let altered = ClaimedCatalog {
        content: b"other",
        ..CLAIMED
    };
    assert!(
        matches!(verify(&keys, altered), Err(SignatureError::Altered { id: found, .. }) if found == id)
    );
    assert!(matches!(
        verify(&trusting(&[]), CLAIMED),
        Err(SignatureError::NoKeys { .. })
    ));
    let of_other_name = ClaimedCatalog {
        name: Some("sizes"),
        ..CLAIMED
    };
    assert!(
        matches!(verify(&keys, of_other_name), Err(SignatureError::NoKeys { name }) if name == "sizes")
    );
    assert!(matches!(
        verify(
            &keys,
            ClaimedCatalog {
                name: None,
                ..CLAIMED
            }
        ),
        Err(SignatureError::Unnamed)
    ));
    let unnumbered = ClaimedCatalog {
        serial: None,
        ..CLAIMED
    };
    assert!(matches!(
        verify(&keys, unnumbered),
        Err(SignatureError::Unnumbered { .. })
    ));
    let claims_an_id = with_line(&signed(&other, CONTENT), 1, |bytes| {
        bytes[2..10].copy_from_slice(&id.0)
    });
    let forged = keys.verify_text(claims_an_id.as_bytes(), CLAIMED);
    assert!(matches!(forged, Err(SignatureError::Altered { id: claimed, .. }) if claimed == id));
}

#[test]
fn key_id_is_printed_as_minisign_prints_it() {
    // Of a key whose comment is `minisign public key 3E637ADE04A76DD`.
    let id = KeyId([0xdd, 0x76, 0x4a, 0xe0, 0xad, 0x37, 0xe6, 0x03]);
    assert_eq!(id.to_string(), "3E637ADE04A76DD");
}

#[test]
fn signature_of_another_form_is_refused() {
    let pair = pair();
    let keys = trusting(&[&pair]);
    let signature = signed(&pair, CONTENT);
    let longer = signature.clone() + "more\n";
    let forms = [
        (String::new(), "four lines"),
        (longer, "four lines"),
        (with_line(&signature, 1, |bytes| bytes[1] = b'd'), "legacy"),
        (
            with_line(&signature, 1, |bytes| bytes[1] = b'x'),
            "unknown algorithm",
        ),
        (
            with_line(&signature, 1, |bytes| bytes.truncate(20)),
            "second line",
        ),
        // The verification of the crate would panic.
        (
            with_line(&signature, 3, |bytes| bytes.truncate(63)),
            "fourth line",
        ),
        (with_line(&signature, 3, Vec::clear), "fourth line"),
        (
            with_line(&signature, 3, |bytes| bytes.push(0)),
            "fourth line",
        ),
        (signature.replace("trusted comment: a", "a"), "no comments"),
    ];
    for (text, part) in forms {
        match keys.verify_text(text.as_bytes(), CLAIMED) {
            Err(SignatureError::Malformed { reason }) => assert!(reason.contains(part), "{reason}"),
            other => panic!("{part}: {other:?}"),
        }
    }
    let not_text = keys.verify_text(&[0xff, b'\n'], CLAIMED);
    assert!(matches!(not_text, Err(SignatureError::Malformed { .. })));
    let other_comment = signature.replace("a comment", "another one");
    assert!(matches!(
        keys.verify_text(other_comment.as_bytes(), CLAIMED),
        Err(SignatureError::Altered { .. })
    ));
}

#[test]
fn no_damaged_signature_is_accepted() {
    let pair = pair();
    let keys = trusting(&[&pair]);
    let signature = signed(&pair, CONTENT).into_bytes();
    // Neither the first line, a comment that is not signed, nor the last line break means anything.
    let first = signature.iter().position(|byte| *byte == b'\n').unwrap();
    let last = signature.len() - 1;
    for length in 0..last {
        assert!(
            keys.verify_text(&signature[..length], CLAIMED).is_err(),
            "the first {length} bytes"
        );
    }
    for at in 0..signature.len() {
        for byte in [
            0,
            b'\n',
            b'=',
            b'A',
            0xff,
            signature[at] ^ 1,
            signature[at] ^ 0x20,
        ] {
            let mut damaged = signature.clone();
            damaged[at] = byte;
            let is_accepted = keys.verify_text(&damaged, CLAIMED).is_ok();
            let means_nothing = damaged == signature || at < first || at == last;
            assert!(!is_accepted || means_nothing, "byte {at} is {byte}");
        }
    }
}

#[test]
fn signature_file_is_read_up_to_its_limit() {
    let folder = tempfile::tempdir().unwrap();
    let pair = pair();
    let keys = trusting(&[&pair]);
    let write =
        |content: &[u8]| std::fs::write(folder.path().join(SIGNATURE_FILE), content).unwrap();
    assert!(matches!(
        keys.verify(folder.path(), CLAIMED),
        Err(SignatureError::Unsigned)
    ));
    write(signed(&pair, CONTENT).as_bytes());
    assert_eq!(keys.verify(folder.path(), CLAIMED).unwrap(), ("colours", 7));
    write(&vec![b'a'; usize::try_from(SIGNATURE_BYTES).unwrap() + 1]);
    assert!(matches!(
        keys.verify(folder.path(), CLAIMED),
        Err(SignatureError::Read(_))
    ));
}

#[test]
fn damaged_secret_key_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    let pair = pair();
    let text = pair.sk.to_box(None).unwrap().into_string();
    let read = |text: &str| {
        std::fs::write(&path, text).unwrap();
        SecretKeyFile::read(&path).and_then(|file| file.open(None))
    };
    assert_eq!(read(&text).unwrap().id(), KeyId::of_key(&pair.pk));
    let without_checksum = with_line(&text, 1, |bytes| bytes[126..].fill(0));
    assert_eq!(
        read(&without_checksum).unwrap().id(),
        KeyId::of_key(&pair.pk),
        "as `minisign -G -W` writes it"
    );
    for part in [62, 93, 94, 125] {
        let damaged = with_line(&text, 1, |bytes| bytes[part] ^= 1);
        assert!(
            matches!(read(&damaged), Err(SigningKeyError::Damaged { .. })),
            "byte {part}"
        );
    }
    for other in [
        "",
        "a\nb\n",
        &pair.pk.to_box().unwrap().into_string(),
        &signed(&pair, CONTENT),
    ] {
        assert!(
            matches!(read(other), Err(SigningKeyError::Malformed { .. })),
            "{other}"
        );
    }
    assert!(!format!("{:?}", read(&text)).contains(text.lines().nth(1).unwrap()));
    assert!(matches!(
        SecretKeyFile::read(&folder.path().join("absent")),
        Err(SigningKeyError::Read { .. })
    ));
}

#[test]
fn encrypted_secret_key_is_opened_with_its_password_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    let pair = KeyPair::generate_encrypted_keypair(Some("a password".to_owned())).unwrap();
    std::fs::write(&path, pair.sk.to_box(None).unwrap().into_string()).unwrap();
    let open = |password: &str| {
        let file = SecretKeyFile::read(&path).unwrap();
        assert!(file.is_encrypted());
        file.open(Some(password.to_owned().into()))
    };
    let signature = open("a password")
        .unwrap()
        .sign(CONTENT, "a comment")
        .unwrap();
    assert!(
        trusting(&[&pair])
            .verify_text(signature.as_bytes(), CLAIMED)
            .is_ok()
    );
    assert!(matches!(
        open("another"),
        Err(SigningKeyError::Locked { .. })
    ));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic_in_a_signature(bytes in prop::collection::vec(any::<u8>(), 0..200), line in 0..4_usize) {
        let pair = pair();
        let keys = trusting(&[&pair]);
        prop_assert!(keys.verify_text(&bytes, CLAIMED).is_err());
        let of_line = with_line(&signed(&pair, CONTENT), line / 2 * 2 + 1, |content| *content = bytes.clone());
        prop_assert!(keys.verify_text(of_line.as_bytes(), CLAIMED).is_err());
        let key = with_line(&pair.sk.to_box(None).unwrap().into_string(), 1, |content| {
            content.iter_mut().zip(&bytes).skip(2).for_each(|(content, byte)| *content ^= byte);
        });
        for text in [key.as_bytes(), &bytes] {
            if let Ok(file) = SecretKeyFile::parse(Path::new("key"), text)
                && !file.is_encrypted()
            {
                let _ = file.open(None);
            }
        }
    }
}
