//! What a running container was told of its routes and tags, against what is desired by now.

use std::collections::BTreeMap;

use super::Wanted;
use crate::model::Text;
use crate::model::actual_lrp::{ActualLrp, InstanceKey, LrpKey};
use crate::model::tags::{DYNAMIC_INDEX, DYNAMIC_INSTANCE_GUID, MetricTags};

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
