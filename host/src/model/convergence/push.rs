//! What a running container was told of its routes and tags, against what is desired by now.

use std::collections::BTreeMap;

use super::Wanted;
use crate::model::Text;
use crate::model::actual_lrp::{ActualLrp, InstanceKey, LrpKey};
use crate::model::routes::Routes;
use crate::model::tags::{self, DYNAMIC_INDEX, DYNAMIC_INSTANCE_GUID, MetricTags};

const INTERNAL_ROUTER: &[u8] = b"internal-router";

/// What one container is to be told: its routes or its tags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Push {
    pub key: LrpKey,
    pub instance: InstanceKey,
    /// The host names of the internal routes.
    pub internal_routes: Option<Vec<Text>>,
    pub metric_tags: Option<BTreeMap<Text, Text>>,
}

impl Push {
    /// At most two: Diego tells each by itself.
    pub fn of(wanted: &Wanted, row: &ActualLrp) -> Vec<Self> {
        let push = |internal_routes, metric_tags| Self {
            key: row.key(),
            instance: row.instance_key(),
            internal_routes,
            metric_tags,
        };
        let mut pushes = Vec::new();
        if let Some(hostnames) = wanted.hostnames.as_ref().filter(|names| hostnames_differ(names, &row.internal_routes))
        {
            pushes.push(push(Some(hostnames.clone()), None));
        }
        let tags = wanted.metric_tags.as_ref().map(|tags| resolved_tags(tags, row));
        // A container that was told of no tags at all was started by a cell that does not know of them.
        if let Some(tags) = tags.filter(|tags| !row.metric_tags.is_empty() && *tags != row.metric_tags) {
            pushes.push(push(None, Some(tags)));
        }
        pushes
    }
}

/// As Diego compares them: so many, and each among the others.
pub fn hostnames_differ(desired: &[Text], told: &[Text]) -> bool {
    desired.len() != told.len() || desired.iter().any(|name| !told.contains(name))
}

/// The tags of one instance, with what it puts in the place of the dynamic ones.
pub fn resolved_tags(tags: &MetricTags, row: &ActualLrp) -> BTreeMap<Text, Text> {
    let value = |fixed: &Text, dynamic| match dynamic {
        DYNAMIC_INDEX => row.index.to_string().into(),
        DYNAMIC_INSTANCE_GUID => row.instance_guid.clone(),
        _ => fixed.clone(),
    };
    tags.iter().map(|(name, tag)| (name.clone(), value(&tag.fixed, tag.dynamic))).collect()
}

/// Whether an update says other tags. One that says none leaves them.
pub fn tags_differ(update: Option<&MetricTags>, before: &MetricTags) -> bool {
    update.is_some_and(|update| update != before)
}

/// The host names of the internal routes, none where there are no such routes. `None` where they cannot be read.
pub fn hostnames(routes: Option<&Routes>) -> Option<Vec<Text>> {
    match routes.and_then(|routes| routes.get(INTERNAL_ROUTER)) {
        None => Some(Vec::new()),
        Some(value) => tags::hostnames_from_json(value).ok(),
    }
}

/// Whether an update of routes counts as one of the internal routes. Diego's rule, in which none before and none after
/// are different.
pub fn internal_routes_updated(update: Option<&Routes>, before: Option<&Routes>) -> bool {
    let Some(update) = update else { return false };
    let Some(before) = before else { return true };
    match (update.get(INTERNAL_ROUTER), before.get(INTERNAL_ROUTER)) {
        (None, None) | (Some(_), None) | (None, Some(_)) => true,
        (Some(new), Some(old)) => new != old,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tags::MetricTag;

    fn routes(entries: &[(&str, &str)]) -> Routes {
        Routes::new(entries.iter().map(|(name, value)| ((*name).into(), (*value).into())))
    }

    fn names(names: &[&str]) -> Vec<Text> {
        names.iter().map(|name| (*name).into()).collect()
    }

    fn running() -> ActualLrp {
        ActualLrp {
            index: 3,
            instance_guid: b"instance".to_vec(),
            internal_routes: names(&["a"]),
            metric_tags: [(b"index".to_vec(), b"3".to_vec())].into(),
            ..ActualLrp::default()
        }
    }

    fn tags(entries: &[(&str, &str, i32)]) -> MetricTags {
        let tag = |fixed: &str, dynamic| MetricTag { fixed: fixed.into(), dynamic };
        entries.iter().map(|(name, fixed, dynamic)| ((*name).into(), tag(fixed, *dynamic))).collect()
    }

    #[test]
    fn host_names_are_those_of_the_internal_router() {
        let internal = routes(&[("internal-router", r#"[{"hostname":"a"},{"hostname":"b"}]"#), ("cf", "[]")]);
        assert_eq!(hostnames(Some(&internal)), Some(names(&["a", "b"])));
        assert_eq!(hostnames(Some(&routes(&[("cf", "[]")]))), Some(Vec::new()));
        assert_eq!(hostnames(None), Some(Vec::new()));
        assert_eq!(
            hostnames(Some(&routes(&[("internal-router", "7")]))),
            None,
            "nothing is compared to what is unknown"
        );
    }

    #[test]
    fn internal_routes_count_as_updated_where_diego_says_so() {
        let (one, other) = (routes(&[("internal-router", "[1]")]), routes(&[("internal-router", "[2]")]));
        let none = routes(&[("cf", "[]")]);
        assert!(!internal_routes_updated(None, Some(&one)), "the update names no routes");
        assert!(internal_routes_updated(Some(&one), None), "there were no routes");
        assert!(internal_routes_updated(Some(&one), Some(&none)) && internal_routes_updated(Some(&none), Some(&one)));
        assert!(internal_routes_updated(Some(&one), Some(&other)) && !internal_routes_updated(Some(&one), Some(&one)));
        assert!(internal_routes_updated(Some(&none), Some(&none)), "in neither");
    }

    #[test]
    fn host_names_are_compared_by_number_and_membership() {
        let differ = |desired: &[&str], told: &[&str]| hostnames_differ(&names(desired), &names(told));
        assert!(!differ(&[], &[]) && !differ(&["a", "b"], &["b", "a"]) && !differ(&["a", "a"], &["a", "b"]));
        assert!(differ(&["a"], &[]) && differ(&[], &["a"]) && differ(&["a"], &["b"]));
    }

    #[test]
    fn a_container_is_told_what_differs_and_each_by_itself() {
        let wanted = |hosts: Option<&[&str]>, tags: Option<MetricTags>| Wanted {
            hostnames: hosts.map(names),
            metric_tags: tags,
            ..Wanted::default()
        };
        let same = wanted(Some(&["a"]), Some(tags(&[("index", "", DYNAMIC_INDEX)])));
        assert_eq!(Push::of(&same, &running()), []);
        assert_eq!(Push::of(&wanted(None, None), &running()), [], "nothing is known");

        let other = wanted(Some(&["b"]), Some(tags(&[("guid", "", DYNAMIC_INSTANCE_GUID), ("fixed", "x", 0)])));
        let pushes = Push::of(&other, &running());
        let told: BTreeMap<Text, Text> =
            [(b"guid".to_vec(), b"instance".to_vec()), (b"fixed".to_vec(), b"x".to_vec())].into();
        let said: Vec<_> = pushes.into_iter().map(|push| (push.internal_routes, push.metric_tags)).collect();
        assert_eq!(said, [(Some(names(&["b"])), None), (None, Some(told))]);

        let untold = ActualLrp { metric_tags: BTreeMap::new(), ..running() };
        assert_eq!(Push::of(&other, &untold).len(), 1, "a container that was told of no tags is told of none");
    }

    #[test]
    fn tags_differ_only_from_those_that_an_update_names() {
        let before = tags(&[("a", "1", 0)]);
        assert!(!tags_differ(None, &before) && !tags_differ(Some(&before), &before));
        assert!(tags_differ(Some(&MetricTags::new()), &before) && tags_differ(Some(&tags(&[("a", "", 1)])), &before));
    }
}
