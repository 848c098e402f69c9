//! A definition of a desired LRP: everything that determines what an instance runs. The current one
//! is part of the desired LRP; the previous one during an update, and archived ones, are records of
//! their own.

use std::mem;

use bbs_proto::models::DesiredLrpRunInfo;
use uuid::Uuid;

use super::{DesiredLrp, SchedulingInfo, with_image_credentials};
use crate::tags::{self, MetricTags};
use crate::{ModificationTag, Text};

/// A definition. Its id is unique for the process guid.
/// The fields are those of [`DesiredLrp`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Definition {
    pub id: Text,
    pub log_guid: Text,
    pub memory_mb: i32,
    pub disk_mb: i32,
    pub max_pids: i32,
    pub root_fs: Text,
    pub volume_drivers: Vec<Text>,
    pub placement_tags: Vec<Text>,
    pub metric_tags: MetricTags,
    /// Also has the time at which the definition was created.
    pub run_info: DesiredLrpRunInfo,
}

/// A definition that is not the current one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ArchivedDefinition {
    /// Its content.
    pub definition: Definition,
    /// When it stopped being the current or previous one, in nanoseconds since 1970; `None` while
    /// it is the previous one.
    pub last_active_ns: Option<i64>,
}

/// The namespace of the derived ids.
const DERIVED_IDS: Uuid = Uuid::from_u128(0x6b1d_2f5e_93c4_4a0b_8d27_51e0_c9a4_7f36);

/// The id of the definition of a new desired LRP if the client gives none: another one each time
/// that it is desired.
pub fn derived_id(process_guid: &[u8], tag: &ModificationTag) -> Text {
    Uuid::new_v5(&DERIVED_IDS, &[process_guid, b"/", &tag.epoch].concat())
        .to_string()
        .into()
}

impl Definition {
    /// Whether both describe the same containers; their ids and ages do not matter, nor the
    /// credentials of their images, which change without another definition. One may be stored and
    /// the other not.
    pub fn has_same_content(&self, other: &Self) -> bool {
        let content = |definition: &Self| {
            let mut content = Self {
                id: Text::new(),
                ..definition.clone()
            };
            content.placement_tags = tags::texts_as_stored(&content.placement_tags);
            content.metric_tags = tags::metric_tags_as_stored(&content.metric_tags);
            content.run_info.created_at = 0;
            content.run_info.desired_lrp_key = None;
            content.run_info =
                with_image_credentials(&content.run_info, &(Text::new(), Text::new()));
            content
        };
        content(self) == content(other)
    }

    /// The part for running instances of this definition while it is the previous one, as of
    /// another creation time in nanoseconds since 1970. It names its definition, which a stored one
    /// does not.
    pub fn previous_run_info(&self, created_at_ns: i64) -> DesiredLrpRunInfo {
        DesiredLrpRunInfo {
            created_at: created_at_ns,
            definition_id: self.id.clone(),
            ..self.run_info.clone()
        }
    }
}

impl DesiredLrp {
    /// The current definition.
    pub fn definition(&self) -> Definition {
        let info = &self.scheduling;
        Definition {
            id: info.definition_id.clone(),
            log_guid: info.log_guid.clone(),
            memory_mb: info.memory_mb,
            disk_mb: info.disk_mb,
            max_pids: info.max_pids,
            root_fs: info.root_fs.clone(),
            volume_drivers: info.volume_drivers.clone(),
            placement_tags: info.placement_tags.clone(),
            metric_tags: self.metric_tags.clone(),
            run_info: self.run_info.clone(),
        }
    }

    /// The desired LRP with another current definition.
    #[must_use]
    pub fn with_definition(&self, mut definition: Definition) -> Self {
        Self {
            metric_tags: mem::take(&mut definition.metric_tags),
            run_info: mem::take(&mut definition.run_info),
            update_strategy: self.update_strategy,
            scheduling: self.scheduling.with_definition(definition),
        }
    }

    /// The part for scheduling instances of the previous definition, which is given.
    pub fn previous_scheduling_info(&self, previous: &Definition) -> SchedulingInfo {
        self.scheduling.with_definition(previous.clone())
    }
}

impl SchedulingInfo {
    /// A copy with another definition, which names the same previous definition.
    #[must_use]
    pub fn with_definition(&self, definition: Definition) -> Self {
        let Definition {
            id,
            log_guid,
            memory_mb,
            disk_mb,
            max_pids,
            root_fs,
            volume_drivers,
            placement_tags,
            ..
        } = definition;
        Self {
            definition_id: id,
            log_guid,
            memory_mb,
            disk_mb,
            max_pids,
            root_fs,
            volume_drivers,
            placement_tags,
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lrp() -> DesiredLrp {
        let mut lrp = DesiredLrp::default();
        lrp.scheduling.process_guid = b"app".to_vec();
        lrp.scheduling.instances = 3;
        lrp.scheduling.annotation = b"note".to_vec();
        lrp.scheduling.definition_id = b"version-2".to_vec();
        lrp.scheduling.memory_mb = 64;
        lrp
    }

    fn previous() -> Definition {
        let mut run_info = DesiredLrpRunInfo {
            cpu_weight: 7,
            created_at: 5,
            ..DesiredLrpRunInfo::default()
        };
        run_info.desired_lrp_key = Some(bbs_proto::models::DesiredLrpKey::default());
        Definition {
            id: b"version-1".to_vec(),
            memory_mb: 32,
            run_info,
            ..Definition::default()
        }
    }

    #[test]
    fn definition_replaces_all_but_what_belongs_to_the_lrp() {
        let changed = lrp().with_definition(previous());
        assert_eq!(changed.definition(), previous());
        assert_eq!(
            (
                changed.scheduling.instances,
                &changed.scheduling.annotation[..]
            ),
            (3, &b"note"[..])
        );
        assert_eq!(changed.with_definition(lrp().definition()), lrp());
    }

    #[test]
    fn previous_parts_name_the_previous_definition() {
        let info = lrp().previous_scheduling_info(&previous());
        assert_eq!(
            (&info.definition_id[..], info.memory_mb, info.instances),
            (&b"version-1"[..], 32, 3)
        );
        let run_info = previous().previous_run_info(9);
        assert_eq!(
            (
                &run_info.definition_id[..],
                run_info.cpu_weight,
                run_info.created_at
            ),
            (&b"version-1"[..], 7, 9)
        );
    }

    #[test]
    fn ids_ages_and_credentials_are_not_content() {
        let mut other = Definition {
            id: b"version-9".to_vec(),
            ..previous()
        };
        other.run_info.created_at = 77;
        other.run_info.image_username = b"user".to_vec();
        other.run_info.image_password = b"password".to_vec();
        assert!(previous().has_same_content(&other));
        other.run_info.cpu_weight = 8;
        assert!(!previous().has_same_content(&other));
    }

    #[test]
    fn tags_are_compared_as_they_are_stored() {
        let with_tags = |placement: &[u8], dynamic: i32| {
            let tag = tags::MetricTag {
                fixed: b"x".to_vec(),
                dynamic,
            };
            Definition {
                placement_tags: vec![placement.to_vec()],
                metric_tags: MetricTags::from([(b"a".to_vec(), tag)]),
                ..previous()
            }
        };
        let stored = with_tags("\u{fffd}".as_bytes(), 0);
        assert!(with_tags(b"\xff", 3).has_same_content(&stored));
        assert!(!with_tags(b"\xff", 1).has_same_content(&stored));
        assert!(!with_tags(b"y", 3).has_same_content(&stored));
    }
}
