//! Validation of maps, which are lists of entries on the wire: routes and metric tags. The JSON of
//! a route is not parsed.

use std::collections::HashMap;

use bbs_proto::models::metric_tag_value::DynamicValue;
use bbs_proto::models::{MetricTagEntry, MetricTagValue, ProtoRoutes};

use super::{Findings, Validate};

const LONGEST_ROUTES: usize = 128 * 1024;
const SOURCE_ID: &[u8] = b"source_id";

/// The entries of a decoded map: of those with the same key, the last.
fn of_map<E>(entries: &[E], key: impl Fn(&E) -> &[u8]) -> impl Iterator<Item = &E> {
    let last: HashMap<&[u8], usize> = entries
        .iter()
        .enumerate()
        .map(|(place, entry)| (key(entry), place))
        .collect();
    let entries = entries.iter().enumerate();
    entries
        .filter_map(move |(place, entry)| (last.get(key(entry)) == Some(&place)).then_some(entry))
}

pub(super) fn routes(routes: Option<&ProtoRoutes>, findings: &mut Findings) {
    let entries = routes.map_or(&[][..], |routes| &routes.routes);
    let length = of_map(entries, |entry| &entry.key)
        .map(|entry| entry.value.len())
        .sum();
    findings.at_most(LONGEST_ROUTES, "routes", length);
}

/// Validates every tag, and that the tag `source_id` equals `metrics_guid` if there are both.
pub(super) fn metric_tags(tags: &[MetricTagEntry], metrics_guid: &[u8], findings: &mut Findings) {
    findings.within("metric_tags", |findings| {
        let mut source_id = None;
        for tag in of_map(tags, |tag| &tag.key) {
            // An absent value counts as an empty one.
            let absent = MetricTagValue::default();
            tag.value.as_ref().unwrap_or(&absent).validate(findings);
            if tag.key == SOURCE_ID {
                source_id = tag.value.as_ref().map(|value| &value.r#static[..]);
            }
        }
        let has_both = !tags.is_empty() && !metrics_guid.is_empty();
        findings.invalid_if(
            has_both && source_id != Some(metrics_guid),
            "source_id should match metrics_guid",
        );
    });
}

impl Validate for MetricTagValue {
    fn validate(&self, findings: &mut Findings) {
        let has_text = !self.r#static.is_empty();
        let has_name = matches!(
            DynamicValue::try_from(self.dynamic),
            Ok(DynamicValue::Index | DynamicValue::InstanceGuid)
        );
        if has_text == has_name {
            findings.invalid("static");
            findings.invalid("dynamic");
        }
    }
}

#[cfg(test)]
mod tests {
    use bbs_proto::models::RouteEntry;

    use super::*;

    fn tag(key: &str, text: &str, dynamic: i32) -> MetricTagEntry {
        let value = MetricTagValue {
            r#static: text.into(),
            dynamic,
        };
        MetricTagEntry {
            key: key.into(),
            value: Some(value),
        }
    }

    fn found_in_tags(tags: &[MetricTagEntry], metrics_guid: &str) -> String {
        let mut findings = Findings::default();
        metric_tags(tags, metrics_guid.as_bytes(), &mut findings);
        findings.to_string()
    }

    fn found_in_routes(lengths: &[(&str, usize)]) -> String {
        let entries = lengths.iter().map(|(key, length)| RouteEntry {
            key: (*key).into(),
            value: vec![b'1'; *length],
        });
        let mut findings = Findings::default();
        routes(
            Some(&ProtoRoutes {
                routes: entries.collect(),
            }),
            &mut findings,
        );
        findings.to_string()
    }

    const NEITHER_OR_BOTH: &str =
        "Invalid field: metric_tags, Invalid field: static, Invalid field: dynamic";

    #[test]
    fn tag_needs_either_a_text_or_a_dynamic_value() {
        for (text, dynamic, expected) in [
            ("x", 0, ""),
            ("", 1, ""),
            ("", 2, ""),
            ("x", 3, ""),
            ("x", -1, ""),
            ("", 0, NEITHER_OR_BOTH),
            ("", 3, NEITHER_OR_BOTH),
            ("", -1, NEITHER_OR_BOTH),
            ("x", 1, NEITHER_OR_BOTH),
            ("x", 2, NEITHER_OR_BOTH),
        ] {
            assert_eq!(
                found_in_tags(&[tag("k", text, dynamic)], ""),
                expected,
                "{text:?} {dynamic}"
            );
        }
    }

    #[test]
    fn tag_without_a_value_is_an_empty_one() {
        assert_eq!(
            found_in_tags(
                &[MetricTagEntry {
                    key: b"k".to_vec(),
                    value: None
                }],
                ""
            ),
            NEITHER_OR_BOTH
        );
    }

    #[test]
    fn every_bad_tag_is_found_under_one_field_name() {
        let tags = [tag("a", "", 0), tag("b", "x", 0), tag("c", "x", 1)];
        let inner = "Invalid field: static, Invalid field: dynamic";
        assert_eq!(
            found_in_tags(&tags, ""),
            format!("Invalid field: metric_tags, {inner}, {inner}")
        );
    }

    #[test]
    fn last_tag_of_a_key_counts() {
        assert_eq!(found_in_tags(&[tag("a", "", 0), tag("a", "x", 0)], ""), "");
        assert_eq!(
            found_in_tags(&[tag("a", "x", 0), tag("a", "", 0)], ""),
            NEITHER_OR_BOTH
        );
        assert_eq!(
            found_in_tags(&[tag("source_id", "x", 0), tag("source_id", "g", 0)], "g"),
            ""
        );
    }

    #[test]
    fn source_id_must_equal_the_metrics_guid() {
        let mismatch =
            "Invalid field: metric_tags, Invalid field: source_id should match metrics_guid";
        assert_eq!(found_in_tags(&[tag("source_id", "g", 0)], "g"), "");
        assert_eq!(found_in_tags(&[tag("source_id", "g", 0)], ""), "");
        assert_eq!(
            found_in_tags(&[], "g"),
            "",
            "no tags, nothing to agree with"
        );
        assert_eq!(found_in_tags(&[tag("source_id", "h", 0)], "g"), mismatch);
        assert_eq!(found_in_tags(&[tag("other", "g", 0)], "g"), mismatch);
        assert_eq!(found_in_tags(&[tag("source_id", "", 1)], "g"), mismatch);
    }

    #[test]
    fn routes_are_limited_to_128_kib_in_total() {
        assert_eq!(found_in_routes(&[]), "");
        assert_eq!(found_in_routes(&[("a", 131_072)]), "");
        assert_eq!(found_in_routes(&[("a", 131_073)]), "Invalid field: routes");
        assert_eq!(found_in_routes(&[("a", 131_071), ("b", 1)]), "");
        assert_eq!(
            found_in_routes(&[("a", 131_071), ("b", 2)]),
            "Invalid field: routes"
        );
        assert_eq!(
            found_in_routes(&[("a", 131_071), ("a", 2)]),
            "",
            "the last route of a key counts"
        );
        let mut findings = Findings::default();
        routes(None, &mut findings);
        assert!(findings.is_empty());
    }
}
