//! Tags and similar maps and lists of text: metric tags of both kinds, placement tags, internal
//! routes. Owns their stored form.

use std::collections::BTreeMap;

use bbs_proto::models::metric_tag_value::DynamicValue;

use super::Text;
use super::json::{self, Malformed, Scanner};

/// The metric tags of a desired LRP.
pub type MetricTags = BTreeMap<Text, MetricTag>;

/// A fixed value, or a dynamic one that each instance fills in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetricTag {
    pub fixed: Text,
    /// The number of a `DynamicValue`; unknown numbers are preserved.
    pub dynamic: i32,
}

/// Renders metric tags in their stored form.
pub fn metric_tags_to_json(tags: &MetricTags) -> Vec<u8> {
    object(tags, |tag, out| {
        out.push(b'{');
        if !tag.fixed.is_empty() {
            out.extend_from_slice(b"\"static\":");
            json::quote(&tag.fixed, out);
        }
        if tag.dynamic != 0 {
            if !tag.fixed.is_empty() {
                out.push(b',');
            }
            let value = DynamicValue::try_from(tag.dynamic);
            let name = value.map_or("", |value| value.as_str_name());
            out.extend_from_slice(b"\"dynamic\":");
            json::quote(name.as_bytes(), out);
        }
        out.push(b'}');
    })
}

/// `null` means no tags.
///
/// # Errors
/// The text is not JSON of metric tags.
pub fn metric_tags_from_json(text: &[u8]) -> Result<MetricTags, Malformed> {
    map_from_json(text, metric_tag)
}

/// The metric tags as they are read once they are stored.
pub fn metric_tags_as_stored(tags: &MetricTags) -> MetricTags {
    metric_tags_from_json(&metric_tags_to_json(tags)).expect("rendered as tags")
}

fn metric_tag(scanner: &mut Scanner<'_>) -> Result<MetricTag, Malformed> {
    let mut tag = MetricTag::default();
    scanner.members(|key, scanner| {
        let key = key.decode();
        if json::names_field(key.as_bytes(), "static") {
            // Go leaves a string as it is for `null`.
            if let Some(fixed) = scanner.text()? {
                tag.fixed = fixed;
            }
        } else if json::names_field(key.as_bytes(), "dynamic") {
            let name = scanner.text()?.unwrap_or_default();
            let value = std::str::from_utf8(&name).ok();
            let value = value.and_then(DynamicValue::from_str_name);
            tag.dynamic = value.map_or(0, i32::from);
        } else {
            scanner.value()?;
        }
        Ok(())
    })?;
    Ok(tag)
}

/// Parses a map of text; `null` is empty.
///
/// # Errors
/// The text is not such an object.
pub fn text_map_from_json(text: &[u8]) -> Result<BTreeMap<Text, Text>, Malformed> {
    map_from_json(text, text_or_empty)
}

fn map_from_json<V>(
    text: &[u8],
    value: fn(&mut Scanner<'_>) -> Result<V, Malformed>,
) -> Result<BTreeMap<Text, V>, Malformed> {
    let mut map = BTreeMap::new();
    json::read(text, |scanner| {
        scanner.members(|name, scanner| {
            map.insert(name.decode().into(), value(scanner)?);
            Ok(())
        })
    })?;
    Ok(map)
}

fn text_or_empty(scanner: &mut Scanner<'_>) -> Result<Text, Malformed> {
    Ok(scanner.text()?.unwrap_or_default())
}

/// An empty list is `null`, which is the same on the wire.
pub fn texts_to_json(texts: &[Text]) -> Vec<u8> {
    if texts.is_empty() {
        return b"null".to_vec();
    }
    let mut out = Vec::new();
    for text in texts {
        out.push(if out.is_empty() { b'[' } else { b',' });
        json::quote(text, &mut out);
    }
    out.push(b']');
    out
}

/// Parses a list of text; `null` is empty.
///
/// # Errors
/// The text is not such an array.
pub fn texts_from_json(text: &[u8]) -> Result<Vec<Text>, Malformed> {
    list_from_json(text, text_or_empty)
}

/// The list as it is read once it is stored.
pub fn texts_as_stored(texts: &[Text]) -> Vec<Text> {
    texts_from_json(&texts_to_json(texts)).expect("rendered as a list")
}

fn list_from_json(
    text: &[u8],
    element: fn(&mut Scanner<'_>) -> Result<Text, Malformed>,
) -> Result<Vec<Text>, Malformed> {
    let mut list = Vec::new();
    json::read(text, |scanner| {
        scanner.elements(|scanner| {
            list.push(element(scanner)?);
            Ok(())
        })
    })?;
    Ok(list)
}

/// The host names of an instance's internal routes, stored as `[{"hostname":…}]`.
///
/// # Errors
/// The text is not JSON of host names.
pub fn hostnames_from_json(text: &[u8]) -> Result<Vec<Text>, Malformed> {
    list_from_json(text, hostname)
}

fn hostname(scanner: &mut Scanner<'_>) -> Result<Text, Malformed> {
    let mut hostname = Text::new();
    scanner.members(|key, scanner| {
        if json::names_field(key.decode().as_bytes(), "hostname") {
            if let Some(text) = scanner.text()? {
                hostname = text;
            }
        } else {
            scanner.value()?;
        }
        Ok(())
    })?;
    Ok(hostname)
}

/// Renders host names in their stored form.
pub fn hostnames_to_json(hostnames: &[Text]) -> Vec<u8> {
    let mut out = vec![b'['];
    for (at, hostname) in hostnames.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"hostname\":");
        json::quote(hostname, &mut out);
        out.push(b'}');
    }
    out.push(b']');
    out
}

/// Renders a map of text.
pub fn text_map_to_json(texts: &BTreeMap<Text, Text>) -> Vec<u8> {
    object(texts, |text, out| json::quote(text, out))
}

fn object<V>(entries: &BTreeMap<Text, V>, mut value_to: impl FnMut(&V, &mut Vec<u8>)) -> Vec<u8> {
    let mut out = vec![b'{'];
    for (at, (name, value)) in entries.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        json::quote(name, &mut out);
        out.push(b':');
        value_to(value, &mut out);
    }
    out.push(b'}');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(fixed: &str, dynamic: i32) -> MetricTag {
        MetricTag {
            fixed: fixed.into(),
            dynamic,
        }
    }

    #[test]
    fn metric_tags_are_stored_as_diego_writes_them() {
        let tags = MetricTags::from([
            (b"b".to_vec(), tag("", 1)),
            (b"a".to_vec(), tag("x&y", 0)),
            (b"c".to_vec(), tag("", 2)),
            (b"d".to_vec(), tag("", 0)),
        ]);
        let text = metric_tags_to_json(&tags);
        let expected = r#"{"a":{"static":"x\u0026y"},"b":{"dynamic":"INDEX"},"c":{"dynamic":"INSTANCE_GUID"},"d":{}}"#;
        assert_eq!(String::from_utf8(text.clone()).unwrap(), expected);
        assert_eq!(metric_tags_from_json(&text).unwrap(), tags);
        assert_eq!(metric_tags_to_json(&MetricTags::new()), b"{}");
        assert_eq!(metric_tags_from_json(b"null").unwrap(), MetricTags::new());
    }

    #[test]
    fn unknown_dynamic_value_is_none_and_both_kinds_survive() {
        assert_eq!(
            metric_tags_from_json(br#"{"a":{"dynamic":"LATER"}}"#).unwrap()[&b"a"[..]],
            tag("", 0)
        );
        assert_eq!(
            metric_tags_from_json(br#"{"a":{"Static":"s","x":{"y":[1]}},"b":null}"#).unwrap()
                [&b"a"[..]],
            tag("s", 0)
        );
        let unknown = MetricTags::from([(b"a".to_vec(), tag("s", 9))]);
        assert_eq!(
            metric_tags_to_json(&unknown),
            br#"{"a":{"static":"s","dynamic":""}}"#
        );
        let stored = MetricTags::from([(b"a".to_vec(), tag("s", 0))]);
        assert_eq!(metric_tags_as_stored(&unknown), stored);
    }

    #[test]
    fn last_of_several_spellings_counts_as_in_go() {
        let tags = |text: &str| metric_tags_from_json(text.as_bytes()).unwrap();
        assert_eq!(
            tags(r#"{"a":{"static":"1","STATIC":"2","Static":null}}"#)[&b"a"[..]],
            tag("2", 0)
        );
        assert_eq!(
            tags(r#"{"a":{"DYNAMIC":"INDEX","dynamic":null}}"#)[&b"a"[..]],
            tag("", 0)
        );
        assert_eq!(
            hostnames_from_json(br#"[{"hostname":"1","HostName":"2","hostname":null}]"#).unwrap(),
            [b"2".to_vec()]
        );
    }

    #[test]
    fn tags_of_the_wrong_shape_are_rejected() {
        for (bad, at) in [
            ("[]", 0),
            (r#"{"a":1}"#, 5),
            (r#"{"a":{"static":1}}"#, 15),
            (r#"{"a":{"dynamic":1}}"#, 16),
            (r#"{"a":{"x":}}"#, 10),
            ("", 0),
            ("{", 1),
            ("{}{}", 2),
        ] {
            assert_eq!(
                metric_tags_from_json(bad.as_bytes()),
                Err(Malformed { at }),
                "{bad:?}"
            );
        }
        for (bad, at) in [(r#"{"a":1}"#, 5), ("{} 1", 3)] {
            assert_eq!(
                text_map_from_json(bad.as_bytes()),
                Err(Malformed { at }),
                "{bad:?}"
            );
        }
        for (bad, at) in [("[1]", 1), ("[],", 2)] {
            assert_eq!(
                texts_from_json(bad.as_bytes()),
                Err(Malformed { at }),
                "{bad:?}"
            );
        }
        for (bad, at) in [("[1]", 1), ("{}", 0), ("[{}]]", 4)] {
            assert_eq!(
                hostnames_from_json(bad.as_bytes()),
                Err(Malformed { at }),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn lists_and_maps_of_text_survive_a_round_trip() {
        assert_eq!(texts_to_json(&[]), b"null");
        assert_eq!(
            texts_to_json(&[b"a".to_vec(), b"<".to_vec()]),
            br#"["a","\u003c"]"#
        );
        assert_eq!(texts_from_json(b"null").unwrap(), Vec::<Text>::new());
        let texts = [b"a<".to_vec(), b"\xff".to_vec()];
        let stored = [b"a<".to_vec(), "\u{fffd}".into()];
        assert_eq!(texts_as_stored(&texts), stored);
        assert_eq!(
            texts_from_json(br#"["a",null]"#).unwrap(),
            vec![b"a".to_vec(), vec![]]
        );
        assert_eq!(
            hostnames_from_json(br#"[{"hostname":"h"},{}]"#).unwrap(),
            vec![b"h".to_vec(), vec![]]
        );
        assert_eq!(
            text_map_from_json(br#"{"k":"v"}"#).unwrap(),
            BTreeMap::from([(b"k".to_vec(), b"v".to_vec())])
        );
        let hostnames = [b"h".to_vec(), b"<\"".to_vec()];
        let text = hostnames_to_json(&hostnames);
        assert_eq!(text, br#"[{"hostname":"h"},{"hostname":"\u003c\""}]"#);
        assert_eq!(hostnames_from_json(&text).unwrap(), hostnames);
        let map = BTreeMap::from([(b"k".to_vec(), b"v&".to_vec()), (b"a".to_vec(), vec![])]);
        assert_eq!(text_map_to_json(&map), br#"{"a":"","k":"v\u0026"}"#);
        assert_eq!(text_map_from_json(&text_map_to_json(&map)).unwrap(), map);
        assert_eq!(
            (
                &hostnames_to_json(&[])[..],
                &text_map_to_json(&BTreeMap::new())[..]
            ),
            (&b"[]"[..], &b"{}"[..])
        );
    }
}
