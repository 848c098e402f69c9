//! URLs that are stored as the parts of Go's `url.URL`.

use std::fmt::Write;

use super::object::JsonObject;
use crate::etcd::record::RecordError;

/// Characters that a path has unescaped besides letters and digits, according to Go's `URL.String`.
const IN_PATH: &[u8] = b"-_.~$&+,/:;=@";
const IN_FRAGMENT: &[u8] = b"-_.~$&+,/:;=?@!()*";

/// Assembles a URL from its parts, as Go's `URL.String` does. Credentials are not among them: Go
/// did not write them.
///
/// # Errors
/// If a part is no string.
pub(super) fn assemble(parts: &JsonObject<'_>) -> Result<String, RecordError> {
    let part = |key| {
        parts
            .field::<Vec<u8>>(key)
            .map(|text| String::from_utf8_lossy(&text).into_owned())
    };
    let scheme = part("Scheme")?;
    let opaque = part("Opaque")?;
    let host = part("Host")?;
    let path = part("Path")?;
    let raw_path = part("RawPath")?;
    let query = part("RawQuery")?;
    let fragment = part("Fragment")?;
    let mut url = String::new();
    if !scheme.is_empty() {
        url += &format!("{scheme}:");
    }
    if opaque.is_empty() {
        if !host.is_empty() || (!scheme.is_empty() && !path.is_empty()) {
            url += &format!("//{host}");
        }
        if !path.is_empty() && !path.starts_with('/') && !host.is_empty() {
            url.push('/');
        }
        url += &if is_escaped_form(&raw_path, &path) {
            raw_path
        } else {
            escape(&path, IN_PATH)
        };
    } else {
        url += &opaque;
    }
    if !query.is_empty() {
        url += &format!("?{query}");
    }
    if !fragment.is_empty() {
        url += &format!("#{}", escape(&fragment, IN_FRAGMENT));
    }
    Ok(url)
}

/// Whether a raw path stands for this path. Go ignores one that does not.
fn is_escaped_form(raw: &str, path: &str) -> bool {
    let is_plain = raw
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && !b"?#\"<>".contains(&byte));
    !raw.is_empty() && is_plain && unescape(raw).is_some_and(|text| text == path.as_bytes())
}

fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut pieces = text.split('%');
    let mut plain = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        let digits = piece
            .get(..2)
            .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
        plain.push(u8::from_str_radix(digits, 16).ok()?);
        plain.extend_from_slice(&piece.as_bytes()[2..]);
    }
    Some(plain)
}

fn escape(text: &str, unescaped: &[u8]) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || unescaped.contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            write!(escaped, "%{byte:02X}").expect("a string grows");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assembled(parts: &str) -> String {
        assemble(&JsonObject::parse(parts.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn url_is_assembled_from_its_parts() {
        for (parts, url) in [
            (
                r#"{"Scheme":"http","Host":"cc:9022","Path":"/cb","RawQuery":"a=1"}"#,
                "http://cc:9022/cb?a=1",
            ),
            (r#"{"Scheme":"https","User":null,"Host":"h"}"#, "https://h"),
            (
                r#"{"Scheme":"http","User":{},"Host":"h","Path":"/"}"#,
                "http://h/",
            ),
            (r#"{"Scheme":"http","Host":"h","Path":"p"}"#, "http://h/p"),
            (
                r#"{"Scheme":"http","Host":"h","Path":"/a b?c/é","Fragment":"f g"}"#,
                "http://h/a%20b%3Fc/%C3%A9#f%20g",
            ),
            (
                r#"{"Scheme":"http","Host":"h","Path":"/a/b","RawPath":"/a%2Fb"}"#,
                "http://h/a%2Fb",
            ),
            (
                r#"{"Scheme":"http","Host":"h","Path":"/a","RawPath":"/b"}"#,
                "http://h/a",
            ),
            (
                r#"{"Scheme":"http","Host":"h","Path":"/%","RawPath":"/%"}"#,
                "http://h/%25",
            ),
            (
                r#"{"Scheme":"http","Host":"h","Path":"/é","RawPath":"/%é"}"#,
                "http://h/%C3%A9",
            ),
            (
                r#"{"Scheme":"mailto","Opaque":"a@b","Host":"ignored"}"#,
                "mailto:a@b",
            ),
            (r#"{"Path":"/only"}"#, "/only"),
            (
                r#"{"Scheme":"","Opaque":"","User":null,"Host":"","Path":"","RawQuery":"","Fragment":""}"#,
                "",
            ),
        ] {
            assert_eq!(assembled(parts), url, "{parts}");
        }
    }

    #[test]
    fn part_that_is_no_string_is_an_error() {
        let parts = JsonObject::parse(br#"{"Host":1}"#).unwrap();
        assert_eq!(
            assemble(&parts),
            Err(RecordError::JsonMember {
                key: "Host",
                expected: "a string"
            })
        );
    }
}
