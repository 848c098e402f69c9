//! Routes: JSON by the name of the router that it is for. Owns their stored form; the JSON of a
//! route is not interpreted.

use std::collections::BTreeMap;

use bbs_proto::models::ProtoRoutes;

use super::Text;
use super::json::{self, Malformed, Scanner};

/// The platform-internal router, which routes by host name.
pub const INTERNAL_ROUTER: &[u8] = b"internal-router";

/// At most one entry per router.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Routes(BTreeMap<Text, Vec<u8>>);

impl Routes {
    /// The last entry of a name wins, as in decoders of maps. A literal `null` is dropped, because
    /// Diego's BBS could not read it back.
    pub fn new(entries: impl IntoIterator<Item = (Text, Vec<u8>)>) -> Self {
        Self(
            entries
                .into_iter()
                .filter(|(_, value)| !json::is_null(value))
                .collect(),
        )
    }

    /// The entries, sorted by name.
    pub fn into_entries(self) -> impl Iterator<Item = (Text, Vec<u8>)> {
        self.0.into_iter()
    }

    /// The length of all names and values.
    pub fn bytes(&self) -> usize {
        self.0
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum()
    }

    /// The JSON for one router.
    pub fn of(&self, router: &[u8]) -> Option<&[u8]> {
        self.0.get(router).map(Vec::as_slice)
    }

    /// Parses the stored form; `None` for `null`.
    ///
    /// # Errors
    /// The text is not a JSON object.
    pub fn from_json(text: &[u8]) -> Result<Option<Self>, Malformed> {
        let mut entries = BTreeMap::new();
        let is_object = json::read(text, |scanner| {
            scanner.members(|name, scanner| {
                let name = name.decode().into();
                let value = scanner.value()?;
                if value != b"null" {
                    entries.insert(name, value.to_vec());
                }
                Ok(())
            })
        })?;
        Ok(is_object.then_some(Self(entries)))
    }

    /// The routes as they are read once they are stored.
    ///
    /// # Errors
    /// As of [`Self::to_json`].
    pub fn as_stored(routes: Option<&Self>) -> Result<Option<Self>, Malformed> {
        Self::from_json(&Self::to_json(routes)?)
    }

    /// Renders the stored form: compact, sorted by name.
    ///
    /// # Errors
    /// The value of an entry is not JSON, or is nested too deep to be read within the object.
    pub fn to_json(routes: Option<&Self>) -> Result<Vec<u8>, Malformed> {
        let Some(Self(entries)) = routes else {
            return Ok(b"null".to_vec());
        };
        let mut out = vec![b'{'];
        for (at, (name, value)) in entries.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            json::quote(name, &mut out);
            out.push(b':');
            json::compact(value, &mut out)?;
        }
        out.push(b'}');
        // One level deeper than each value alone.
        json::read(&out, Scanner::value)?;
        Ok(out)
    }
}

impl From<ProtoRoutes> for Routes {
    fn from(routes: ProtoRoutes) -> Self {
        let entries = routes.routes.into_iter();
        Self::new(entries.map(|entry| (entry.key, entry.value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(entries: &[(&str, &str)]) -> Routes {
        Routes::new(
            entries
                .iter()
                .map(|(name, value)| ((*name).into(), (*value).into())),
        )
    }

    #[test]
    fn stored_routes_are_compact_sorted_and_escaped() {
        let given = routes(&[
            ("tcp", " [ 1 ] "),
            ("a<b", "\"&\""),
            ("cf", r#"[{"port": 8080}]"#),
        ]);
        let text = String::from_utf8(Routes::to_json(Some(&given)).unwrap()).unwrap();
        assert_eq!(
            text,
            r#"{"a\u003cb":"\u0026","cf":[{"port":8080}],"tcp":[1]}"#
        );
        let read = Routes::as_stored(Some(&given)).unwrap();
        let expected = routes(&[
            ("tcp", "[1]"),
            ("a<b", r#""\u0026""#),
            ("cf", r#"[{"port":8080}]"#),
        ]);
        assert_eq!(read, Some(expected));
    }

    #[test]
    fn value_is_stored_only_if_it_can_be_read_again() {
        let nested = |depth: usize| {
            let value = ["[".repeat(depth), "]".repeat(depth)].concat();
            routes(&[("a", &value)])
        };
        let deepest = nested(9_999);
        assert_eq!(Routes::as_stored(Some(&deepest)), Ok(Some(deepest)));
        let at = br#"{"a":"#.len() + 9_999;
        assert_eq!(
            Routes::to_json(Some(&nested(10_000))),
            Err(Malformed { at })
        );
    }

    #[test]
    fn absent_and_empty_routes_are_stored_differently() {
        assert_eq!(Routes::to_json(None).unwrap(), b"null");
        assert_eq!(Routes::to_json(Some(&routes(&[]))).unwrap(), b"{}");
        assert_eq!(Routes::from_json(b"null").unwrap(), None);
        assert_eq!(Routes::from_json(b"{}").unwrap(), Some(routes(&[])));
    }

    #[test]
    fn last_entry_of_a_name_wins_and_null_is_dropped() {
        assert_eq!(
            routes(&[("a", "1"), ("a", "2"), ("b", "null")]),
            routes(&[("a", "2")])
        );
        assert_eq!(
            Routes::from_json(br#"{"a":null,"b":1}"#).unwrap(),
            Some(routes(&[("b", "1")]))
        );
    }

    #[test]
    fn value_that_is_not_json_is_rejected() {
        for (bad, at) in [("", 0), ("{", 1), ("x", 0)] {
            assert_eq!(
                Routes::to_json(Some(&routes(&[("a", bad)]))),
                Err(Malformed { at }),
                "{bad:?}"
            );
        }
        assert_eq!(Routes::from_json(b"[]"), Err(Malformed { at: 0 }));
    }
}
