//! Where traffic comes from: a router's name, and the JSON meant for that router. Owns how routes
//! look at rest; what a router makes of its JSON is the router's.

use std::collections::BTreeMap;

use super::Text;
use super::json::{self, Malformed};

/// The router inside of the platform, which knows hosts by name.
pub const INTERNAL_ROUTER: &[u8] = b"internal-router";

/// By router; at most one entry each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Routes(BTreeMap<Text, Vec<u8>>);

impl Routes {
    /// The last entry of a name wins, as in any decoder of maps. An entry that is the literal `null`
    /// says nothing and is dropped: Diego's BBS could not read it back.
    pub fn new(entries: impl IntoIterator<Item = (Text, Vec<u8>)>) -> Self {
        Self(entries.into_iter().filter(|(_, value)| !json::is_null(value)).collect())
    }

    pub fn into_entries(self) -> impl Iterator<Item = (Text, Vec<u8>)> {
        self.0.into_iter()
    }

    /// What is meant for one router.
    pub fn of(&self, router: &[u8]) -> Option<&[u8]> {
        self.0.get(router).map(Vec::as_slice)
    }

    pub fn from_json(text: &[u8]) -> Result<Option<Self>, Malformed> {
        let members = json::members(text)?;
        Ok(members.map(|members| Self::new(members.into_iter().map(|(name, value)| (name, value.to_vec())))))
    }

    pub fn to_json(routes: Option<&Self>) -> Result<Vec<u8>, Malformed> {
        let Some(Self(entries)) = routes else { return Ok(b"null".to_vec()) };
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
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(entries: &[(&str, &str)]) -> Routes {
        Routes::new(entries.iter().map(|(name, value)| ((*name).into(), (*value).into())))
    }

    #[test]
    fn they_rest_compact_sorted_and_escaped() {
        let given = routes(&[("tcp", " [ 1 ] "), ("a<b", "\"&\""), ("cf", r#"[{"port": 8080}]"#)]);
        let text = String::from_utf8(Routes::to_json(Some(&given)).unwrap()).unwrap();
        assert_eq!(text, r#"{"a\u003cb":"\u0026","cf":[{"port":8080}],"tcp":[1]}"#);
        assert_eq!(Routes::from_json(text.as_bytes()).unwrap().unwrap().0.len(), 3);
    }

    #[test]
    fn none_and_empty_are_different_at_rest() {
        assert_eq!(Routes::to_json(None).unwrap(), b"null");
        assert_eq!(Routes::to_json(Some(&routes(&[]))).unwrap(), b"{}");
        assert_eq!(Routes::from_json(b"null").unwrap(), None);
        assert_eq!(Routes::from_json(b"{}").unwrap(), Some(routes(&[])));
    }

    #[test]
    fn the_last_of_a_name_wins_and_null_says_nothing() {
        assert_eq!(routes(&[("a", "1"), ("a", "2"), ("b", "null")]), routes(&[("a", "2")]));
        assert_eq!(Routes::from_json(br#"{"a":null,"b":1}"#).unwrap(), Some(routes(&[("b", "1")])));
    }

    #[test]
    fn a_value_that_is_not_json_is_refused() {
        for bad in ["", "{", "x"] {
            assert!(Routes::to_json(Some(&routes(&[("a", bad)]))).is_err(), "{bad:?} was accepted");
        }
        assert!(Routes::from_json(b"[]").is_err());
    }
}
