//! What becomes of each leaf of the store, decided by the leaf alone. Pure work on memory, the same
//! for both readings.

use std::sync::Arc;

use bbs_database::Dialect;
use bbs_encryption::Keyring;
use bbs_lens::layout::schema::Layout;
use bbs_proto::models::DesiredLrpSchedulingInfo;
use bbs_work::causes::with_causes;

use super::rows::{self, ImportedRow};
use crate::etcd::Leaf;
use crate::etcd::record::{self, EtcdRecord, RecordKey, RecordKind, StoredAs};

/// What a leaf is for the import.
#[derive(Debug)]
pub(super) enum Class {
    /// A whole row.
    Row(ImportedRow),
    /// The half of a desired LRP that is read first.
    RunInfo {
        guid: String,
    },
    /// The half that is read second, with which the LRP exists.
    SchedulingInfo {
        guid: String,
        info: Box<DesiredLrpSchedulingInfo>,
    },
    /// State of the store itself.
    Store(EtcdRecord),
    Expired,
    /// Not a record that Diego reads.
    Foreign(&'static str),
    /// It cannot be imported.
    Damaged {
        reason: String,
        unknown_label: Option<String>,
    },
}

/// A leaf with its class.
#[derive(Debug)]
pub(super) struct Classified {
    pub leaf: Leaf,
    pub kind: RecordKind,
    pub class: Class,
    /// The key of a sealed record.
    pub label: Option<String>,
}

/// What a class depends on beside the leaf.
#[derive(Debug)]
pub(super) struct Classifier {
    pub keyring: Arc<Keyring>,
    /// The layout of [`super::VERSION`].
    pub layout: Layout,
    pub dialect: Dialect,
    /// Where desired LRPs are; not known in the first reading.
    pub stored_as: Option<StoredAs>,
    pub now_ns: i64,
}

impl Classifier {
    pub fn classify(&self, leaf: Leaf) -> Classified {
        let key = RecordKey::of(&leaf.key);
        let kind = key.kind;
        let is_over = leaf.expires_at_ns.is_some_and(|at| at <= self.now_ns);
        let superseded = match self.stored_as {
            Some(StoredAs::Whole) => {
                matches!(kind, RecordKind::RunInfo | RecordKind::SchedulingInfo)
            }
            Some(StoredAs::Halves) => kind == RecordKind::DesiredLrp,
            None => false,
        };
        let label = key
            .guid()
            .and_then(|_| record::label(&leaf.value).ok().flatten());
        let class = match (superseded, is_over) {
            (true, _) => Class::Foreign(super::SUPERSEDED),
            (false, true) => Class::Expired,
            (false, false) => self.of(&leaf, label.as_deref()),
        };
        Classified {
            leaf,
            kind,
            class,
            label,
        }
    }

    fn of(&self, leaf: &Leaf, label: Option<&str>) -> Class {
        let damaged = |reason: String| Class::Damaged {
            reason,
            unknown_label: None,
        };
        let stores_nul = self.dialect.stores_nul();
        let decoded = match record::decode(leaf, &self.keyring) {
            Ok(decoded) => decoded,
            Err(fault) => {
                let unknown_label = label
                    .filter(|label| !self.keyring.contains(label))
                    .map(str::to_owned);
                return Class::Damaged {
                    reason: with_causes(&fault).to_string(),
                    unknown_label,
                };
            }
        };
        let row = match decoded {
            EtcdRecord::Version(_) | EtcdRecord::KeyLabel(_) => return Class::Store(decoded),
            EtcdRecord::Foreign => return Class::Foreign(FOREIGN),
            EtcdRecord::Domain { name } => Ok(rows::domain(&name, leaf.expires_at_ns)),
            EtcdRecord::DesiredLrp(lrp) => {
                let (info, run_info) = record::split(*lrp);
                rows::desired_lrp(info, &run_info)
            }
            EtcdRecord::RunInfo(info) => {
                return Class::RunInfo {
                    guid: guid(info.desired_lrp_key.unwrap_or_default().process_guid),
                };
            }
            EtcdRecord::SchedulingInfo(info) => {
                let guid = guid(
                    info.desired_lrp_key
                        .clone()
                        .unwrap_or_default()
                        .process_guid,
                );
                return match self.checked(rows::desired_lrp((*info).clone(), &Default::default())) {
                    Ok(_) => Class::SchedulingInfo { guid, info },
                    Err(misfit) => damaged(misfit.to_string()),
                };
            }
            EtcdRecord::ActualLrp { lrp, evacuating } => {
                rows::actual_lrp(*lrp, evacuating, leaf.expires_at_ns, stores_nul)
            }
            EtcdRecord::Task(task) => rows::task(*task, stores_nul),
        };
        match self.checked(row) {
            Ok(row) => Class::Row(row),
            Err(misfit) => damaged(misfit.to_string()),
        }
    }

    fn checked(&self, row: Result<ImportedRow, rows::Misfit>) -> Result<ImportedRow, rows::Misfit> {
        let row = row?;
        row.check(&self.layout, &self.keyring, self.dialect)?;
        Ok(row)
    }

    /// The whole row of a desired LRP whose halves are known.
    pub fn joined(
        &self,
        info: DesiredLrpSchedulingInfo,
        run_info: &Leaf,
    ) -> Result<ImportedRow, String> {
        match record::decode(run_info, &self.keyring) {
            Ok(EtcdRecord::RunInfo(run_info)) => self
                .checked(rows::desired_lrp(info, &run_info))
                .map_err(|misfit| misfit.to_string()),
            Ok(_) => Err("it is no run information".to_owned()),
            Err(fault) => Err(with_causes(&fault).to_string()),
        }
    }
}

const FOREIGN: &str = "no release of Diego's BBS writes this key";

/// The path and the content have been compared, so the guid is as ASCII as the path's.
fn guid(guid: Vec<u8>) -> String {
    String::from_utf8_lossy(&guid).into_owned()
}
