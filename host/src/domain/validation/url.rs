//! Whether a text is a URL with a scheme, by the rules of Go's parser. Does not return the parts of
//! the URL.

use std::net::Ipv6Addr;

/// A letter, then letters, digits, `+`, `-` or `.`, then a colon; then anything that does not
/// start with `/`, or a well-formed authority and path.
pub(super) fn has_scheme(text: &[u8]) -> bool {
    let (text, fragment) = cut(text, b'#');
    if text.iter().any(u8::is_ascii_control) {
        return false;
    }
    let Some(rest) = after_scheme(text) else {
        return false;
    };
    let (rest, _query) = cut(rest, b'?');
    let rest_is_good = match rest.strip_prefix(b"//") {
        Some(hierarchical) => {
            let path = hierarchical
                .iter()
                .position(|byte| *byte == b'/')
                .unwrap_or(hierarchical.len());
            authority(&hierarchical[..path]) && escapes(&hierarchical[path..])
        }
        None => !rest.starts_with(b"/") || escapes(rest),
    };
    rest_is_good && escapes(fragment)
}

fn after_scheme(text: &[u8]) -> Option<&[u8]> {
    let colon = text.iter().position(|byte| *byte == b':')?;
    let scheme = &text[..colon];
    let rest = &text[colon + 1..];
    (scheme.first()?.is_ascii_alphabetic()
        && scheme
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.')))
    .then_some(rest)
}

/// Splits before the first `separator`; the second part starts with it. A separator is never part of an
/// escape, so it can stay.
fn cut(text: &[u8], separator: u8) -> (&[u8], &[u8]) {
    text.split_at(
        text.iter()
            .position(|byte| *byte == separator)
            .unwrap_or(text.len()),
    )
}

fn authority(text: &[u8]) -> bool {
    match text.iter().rposition(|byte| *byte == b'@') {
        Some(at) => user(&text[..at]) && host(&text[at + 1..]),
        None => host(text),
    }
}

fn user(text: &[u8]) -> bool {
    text.iter()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(byte))
        && escapes(text)
}

fn host(text: &[u8]) -> bool {
    match text.iter().rposition(|byte| *byte == b'[') {
        // Brackets enclose an IPv6 address; only a port may follow.
        Some(0) => match text.iter().rposition(|byte| *byte == b']') {
            Some(end) => ipv6(&text[1..end]) && port(&text[end + 1..]),
            None => false,
        },
        Some(_) => false,
        None => {
            let colon = text
                .iter()
                .rposition(|byte| *byte == b':')
                .unwrap_or(text.len());
            // Earlier colons are part of the name; only the last one introduces a port.
            name(&text[..colon]) && port(&text[colon..])
        }
    }
}

/// Empty, or a colon and any number of digits.
fn port(text: &[u8]) -> bool {
    text.strip_prefix(b":")
        .unwrap_or(text)
        .iter()
        .all(u8::is_ascii_digit)
        && (text.is_empty() || text[0] == b':')
}

/// An address and, after an escaped percent sign, an optional zone.
fn ipv6(text: &[u8]) -> bool {
    let (address, zone) = match text.windows(3).position(|window| window == b"%25") {
        Some(at) => (&text[..at], Some(&text[at + 3..])),
        None => (text, None),
    };
    let address_is_good =
        std::str::from_utf8(address).is_ok_and(|address| address.parse::<Ipv6Addr>().is_ok());
    address_is_good
        && zone.is_none_or(|zone| {
            !zone.is_empty()
                && each(zone, not_forbidden, |byte| {
                    byte == b' ' || byte == b'%' || host_character(byte)
                })
        })
}

/// A host name: ASCII of the URL grammar and any non-ASCII; only the latter may be escaped.
fn name(text: &[u8]) -> bool {
    each(text, not_forbidden, |byte| !byte.is_ascii() || byte == b'%')
}

fn not_forbidden(byte: u8) -> bool {
    !byte.is_ascii() || host_character(byte)
}

fn host_character(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"".contains(&byte)
}

fn escapes(text: &[u8]) -> bool {
    each(text, |_| true, |_| true)
}

/// Every byte is `plain`, or is written as `%` and two hexadecimal digits and then is `escaped`.
fn each(text: &[u8], plain: impl Fn(u8) -> bool, escaped: impl Fn(u8) -> bool) -> bool {
    let mut rest = text;
    while let [byte, tail @ ..] = rest {
        rest = match (byte, tail) {
            (b'%', [high, low, tail @ ..]) => match (hexadecimal(*high), hexadecimal(*low)) {
                (Some(high), Some(low)) if escaped(high * 16 + low) => tail,
                _ => return false,
            },
            (b'%', _) => return false,
            (byte, tail) if plain(*byte) => tail,
            _ => return false,
        };
    }
    true
}

fn hexadecimal(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::has_scheme;

    #[test]
    fn root_filesystems_of_cloud_foundry_have_a_scheme() {
        for good in [
            "preloaded:cflinuxfs4",
            "preloaded+layer:cflinuxfs4?layer=https://blobstore/droplet&layer_path=/home/vcap&layer_digest=1",
            "docker:///cloudfoundry/lattice-app#v1",
            "docker://registry.example.com:5000/some/image",
            "docker:////x",
            "https://user:secret@registry/x",
        ] {
            assert!(has_scheme(good.as_bytes()), "{good}");
        }
    }

    #[test]
    fn scheme_is_a_letter_followed_by_letters_digits_plus_minus_or_dot() {
        for good in ["a:", "A1+-.:x", "z9:", "a:b:c", "a:%zz", "a:?%zz", "a:b?#x"] {
            assert!(has_scheme(good.as_bytes()), "{good}");
        }
        for bad in [
            "", "foo", ":", ":x", "1a:x", "+a:x", "-a:x", ".a:x", "a_b:x", "a b:x", "a/b:c", "*",
            "//host/x", "/x:y", "a%41:x", "\u{e4}:x", "?a:x", "a#b:c",
        ] {
            assert!(!has_scheme(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn control_characters_are_allowed_in_the_fragment_only() {
        for bad in ["a:\n", "a:\0", "a:\x1f", "a:\x7f", "a:x?\t", "a\n:x"] {
            assert!(!has_scheme(bad.as_bytes()), "{bad:?}");
        }
        assert!(has_scheme(b"a:x#\n"));
        assert!(has_scheme(b"a: x"));
        assert!(has_scheme(b"a:\xff"));
    }

    #[test]
    fn escapes_are_checked_in_paths_and_fragments_only() {
        for good in [
            "a:/%41",
            "a:/%fF",
            "a://h/%00",
            "a:x#%41",
            "a:/x?%",
            "a://h?%zz",
            "a:%",
        ] {
            assert!(has_scheme(good.as_bytes()), "{good}");
        }
        for bad in [
            "a:/%",
            "a:/%4",
            "a:/%4g",
            "a:/%g4",
            "a:///%",
            "a:x#%",
            "a:x#%zz",
            "a://h/%zz",
        ] {
            assert!(!has_scheme(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn hosts() {
        for good in [
            "a://",
            "a:///",
            "a://h",
            "a://h:",
            "a://h:80",
            "a://h_~!$&'()*+,;=<>\"",
            "a://a:b:80",
            "a://h%C3%A4",
            "a://\u{e4}",
            "a://h]",
        ] {
            assert!(has_scheme(good.as_bytes()), "{good}");
        }
        assert!(has_scheme(b"a://h\xff/x"));
        for bad in [
            "a://h:x", "a://h:8x", "a://h:-1", "a:// ", "a://h h/", "a://h%41", "a://h%",
            "a://h\\", "a://h{", "a://h|", "a://h^", "a://h`",
        ] {
            assert!(!has_scheme(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn brackets_must_enclose_an_ipv6_address() {
        for good in [
            "a://[::1]",
            "a://[::1]:80/x",
            "a://[::1]:",
            "a://[fe80::1%25en0]:1",
            "a://[fe80::1%25a%20b]",
            "a://[fe80::1%25a%25b]",
            "a://[::ffff:1.2.3.4]",
            "a://u@[::1]",
        ] {
            assert!(has_scheme(good.as_bytes()), "{good}");
        }
        for bad in [
            "a://[",
            "a://[]",
            "a://[::1",
            "a://[::1]x",
            "a://[::1]80",
            "a://[1.2.3.4]",
            "a://[x]",
            "a://x[::1]",
            "a://[[::1]]",
            "a://[::1]:x",
            "a://[fe80::1%en0]",
            "a://[fe80::1%25]",
            "a://[fe80::1%25%00]",
            "a://[fe80::1%25%]",
            "a://[fe80::1%25a b]",
            "a://[%3a:1]",
        ] {
            assert!(!has_scheme(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn users() {
        for good in [
            "a://u@h",
            "a://u:p@h",
            "a://@h",
            "a://:@h",
            "a://u@v@h",
            "a://u:p:q@h",
            "a://u%20@h",
            "a://-._~!$&'()*+,;=@h",
        ] {
            assert!(has_scheme(good.as_bytes()), "{good}");
        }
        for bad in [
            "a://u @h",
            "a://u%@h",
            "a://u:%zz@h",
            "a://u[@h",
            "a://\u{e4}@h",
            "a://u\"@h",
            "a://u@h h",
            "a://u<@h",
        ] {
            assert!(!has_scheme(bad.as_bytes()), "{bad}");
        }
    }
}
