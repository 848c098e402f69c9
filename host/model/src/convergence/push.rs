//! Compares the routes and tags that a running container has with the desired ones.

use std::collections::BTreeMap;

use bbs_proto::models::metric_tag_value::DynamicValue;

use super::DesiredInstances;
use crate::Text;
use crate::actual_lrp::{ActualLrp, InstanceKey, LrpKey};
use crate::tags::MetricTags;

/// An update of one running container; absent values stay as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Push {
    pub key: LrpKey,
    pub instance: InstanceKey,
    /// The host names of the internal routes.
    pub internal_routes: Option<Vec<Text>>,
    /// All tags of the instance's metrics, by name.
    pub metric_tags: Option<BTreeMap<Text, Text>>,
}

impl Push {
    /// The updates that a container lacks. At most two: Diego sends routes and tags separately.
    pub fn of(wanted: &DesiredInstances, row: &ActualLrp) -> Vec<Self> {
        let push = |internal_routes, metric_tags| Self {
            key: row.key(),
            instance: row.instance_key(),
            internal_routes,
            metric_tags,
        };
        let mut pushes = Vec::new();
        if let Some(hostnames) = wanted
            .hostnames
            .as_ref()
            .filter(|names| hostnames_differ(names, &row.internal_routes))
        {
            pushes.push(push(Some(hostnames.clone()), None));
        }
        // A container of another definition keeps the tags of that.
        let tags = wanted
            .metric_tags
            .as_ref()
            .filter(|_| !row.is_old(&wanted.target.definition_id))
            .map(|tags| resolved_tags(tags, row));
        // A container without any tags was started by a cell that does not support them.
        if let Some(tags) =
            tags.filter(|tags| !row.metric_tags.is_empty() && *tags != row.metric_tags)
        {
            pushes.push(push(None, Some(tags)));
        }
        pushes
    }
}

/// Compares as Diego does: equal length, and each name among the others.
pub(super) fn hostnames_differ(desired: &[Text], current: &[Text]) -> bool {
    desired.len() != current.len() || desired.iter().any(|name| !current.contains(name))
}

/// The tags of one instance, with dynamic values filled in.
pub fn resolved_tags(tags: &MetricTags, row: &ActualLrp) -> BTreeMap<Text, Text> {
    tags.iter()
        .map(|(name, tag)| {
            let value = match DynamicValue::try_from(tag.dynamic) {
                Ok(DynamicValue::Index) => row.index.to_string().into(),
                Ok(DynamicValue::InstanceGuid) => row.instance_guid.clone(),
                _ => tag.fixed.clone(),
            };
            (name.clone(), value)
        })
        .collect()
}

/// Whether an update changes the tags. An update without tags does not.
pub fn tags_differ(update: Option<&MetricTags>, before: &MetricTags) -> bool {
    update.is_some_and(|update| update != before)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::tests::{NOW_NS, cells, row, target};
    use super::super::{ConvergenceInput, InstanceTarget, ProcessRecords};
    use super::*;
    use crate::actual_lrp::{Presence, State};
    use crate::slot::Slot;
    use crate::tags::MetricTag;

    #[test]
    fn container_that_is_replaced_gets_new_routes_and_one_that_is_evacuated_does_not() {
        let desired = DesiredInstances {
            target: InstanceTarget {
                definition_id: b"new".to_vec(),
                ..target(1)
            },
            hostnames: Some(vec![b"host".to_vec()]),
            ..DesiredInstances::default()
        };
        let present = cells(&["cell"]);
        let none = BTreeSet::new();
        let input = ConvergenceInput {
            now_ns: NOW_NS,
            cells: &present,
            fresh: &none,
            known: &none,
        };
        let pushed = |definition_id: &str| {
            let mut old = row(State::Running, Presence::Evacuating, "cell");
            old.definition_id = definition_id.into();
            let mut new = row(State::Unclaimed, Presence::Ordinary, "");
            new.definition_id = b"new".to_vec();
            let records = ProcessRecords {
                wanted: Some(desired.clone()),
                slots: BTreeMap::from([(0, Box::new(Slot::of([old, new])))]),
            };
            let pushes = records.pushes(&input).into_iter();
            pushes.map(|push| push.internal_routes).collect::<Vec<_>>()
        };
        assert_eq!(pushed("old"), [Some(vec![b"host".to_vec()])]);
        assert_eq!(pushed("new"), []);
    }

    #[test]
    fn container_of_another_definition_keeps_its_tags() {
        let tag = MetricTag {
            fixed: b"new".to_vec(),
            ..MetricTag::default()
        };
        let wanted = DesiredInstances {
            target: InstanceTarget {
                definition_id: b"new".to_vec(),
                ..target(1)
            },
            metric_tags: Some(MetricTags::from([(b"source_id".to_vec(), tag)])),
            ..DesiredInstances::default()
        };
        let of = |definition_id: &str| {
            let mut row = row(State::Running, Presence::Ordinary, "cell");
            row.definition_id = definition_id.into();
            row.metric_tags = BTreeMap::from([(b"source_id".to_vec(), b"old".to_vec())]);
            Push::of(&wanted, &row).len()
        };
        assert_eq!([of("old"), of("new"), of("")], [0, 1, 1]);
    }
}
