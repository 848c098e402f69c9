//! The identity of a store's content, by which two readings are compared. Owns what counts as a
//! change: that of any leaf of Diego's, but for its expiration.

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::etcd::Leaf;
use crate::etcd::record::{RecordKey, RecordKind};

/// The leaf of the store's version.
pub(super) const VERSION_KEY: &str = "/version";

/// What a reading of the store saw.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct StoreFingerprint {
    pub cluster_id: String,
    /// The store's index at that reading.
    pub index: u64,
    /// That of the last change of `/version`, if there is one.
    pub version_index: Option<u64>,
    /// Keys, and indexes of the last changes, of all leaves of Diego's that do not expire.
    pub digest: String,
}

/// Collects a fingerprint while leaves pass by, in any order and in constant memory.
#[derive(Debug, Clone, Default)]
pub(super) struct FingerprintBuilder {
    sum: u128,
    leaves: u64,
    /// The newest change of any of these leaves.
    newest: u64,
    version_index: Option<u64>,
}

impl FingerprintBuilder {
    pub fn add(&mut self, leaf: &Leaf) {
        // No BBS writes it: another program may use the same etcd.
        if RecordKey::of(&leaf.key).kind == RecordKind::Foreign {
            return;
        }
        self.newest = self.newest.max(leaf.modified_index);
        if leaf.key == VERSION_KEY {
            self.version_index = Some(leaf.modified_index);
        }
        // A leaf that expires may be absent from the next reading; if it is set again, its index is
        // newer.
        if leaf.expires_at_ns.is_none() {
            self.leaves += 1;
            let digest = Sha256::new()
                .chain_update(leaf.modified_index.to_le_bytes())
                .chain_update(&leaf.key)
                .finalize();
            let (half, _) = digest.split_at(16);
            self.sum = self
                .sum
                .wrapping_add(u128::from_le_bytes(half.try_into().expect("16 bytes")));
        }
    }

    pub fn finish(&self, index: u64, cluster_id: &str) -> StoreFingerprint {
        StoreFingerprint {
            cluster_id: cluster_id.to_owned(),
            index,
            version_index: self.version_index,
            digest: format!("{}-{:032x}", self.leaves, self.sum),
        }
    }

    /// Whether this reading shows the store of an earlier one, but for leaves that have expired
    /// since and those of other programs.
    pub fn is_unchanged_since(&self, earlier: &StoreFingerprint, cluster_id: &str) -> bool {
        let now = self.finish(earlier.index, cluster_id);
        self.newest <= earlier.index && now == *earlier
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(key: &str, modified_index: u64, expires_at_ns: Option<i64>) -> Leaf {
        Leaf {
            key: key.to_owned(),
            value: String::new(),
            modified_index,
            expires_at_ns,
        }
    }

    fn built(leaves: &[Leaf]) -> FingerprintBuilder {
        let mut builder = FingerprintBuilder::default();
        leaves.iter().for_each(|leaf| builder.add(leaf));
        builder
    }

    #[test]
    fn every_change_but_an_expiration_is_seen() {
        let task = leaf("/v1/task/a", 5, None);
        let domain = leaf("/v1/domain/d", 6, Some(9));
        let version = leaf("/version", 2, None);
        let before = built(&[task.clone(), domain.clone(), version.clone()]).finish(7, "c");
        assert_eq!(before.version_index, Some(2));
        let same =
            |leaves: &[Leaf], cluster: &str| built(leaves).is_unchanged_since(&before, cluster);
        assert!(
            same(&[version.clone(), domain.clone(), task.clone()], "c"),
            "in another order"
        );
        assert!(
            same(&[version.clone(), task.clone()], "c"),
            "a leaf has expired"
        );
        assert!(
            !same(&[version.clone(), domain.clone()], "c"),
            "a leaf is removed"
        );
        assert!(
            !same(
                &[version.clone(), domain.clone(), leaf("/v1/task/a", 8, None)],
                "c"
            ),
            "a leaf is changed"
        );
        assert!(
            !same(
                &[
                    version.clone(),
                    task.clone(),
                    leaf("/v1/domain/d", 8, Some(9))
                ],
                "c"
            ),
            "a domain is set again"
        );
        assert!(
            !same(
                &[
                    version.clone(),
                    task.clone(),
                    domain.clone(),
                    leaf("/v1/task/b", 8, None)
                ],
                "c"
            ),
            "a leaf is new"
        );
        assert!(
            !same(
                &[leaf("/version", 3, None), task.clone(), domain.clone()],
                "c"
            ),
            "the version is set again"
        );
        assert!(
            !same(&[version, task, domain], "another"),
            "another cluster"
        );
    }

    #[test]
    fn leaves_of_other_programs_are_no_part_of_it() {
        let task = leaf("/v1/task/a", 5, None);
        let other = |key, index| leaf(key, index, None);
        let before = built(&[task.clone(), other("/other", 6)]).finish(7, "c");
        for others in [
            vec![],
            vec![other("/other", 9)],
            vec![other("/other", 6), other("/v1/locks/bbs_lock", 8)],
        ] {
            let leaves = [vec![task.clone()], others].concat();
            assert!(
                built(&leaves).is_unchanged_since(&before, "c"),
                "{leaves:?}"
            );
        }
        let changed = [leaf("/v1/task/a", 8, None), other("/other", 6)];
        assert!(!built(&changed).is_unchanged_since(&before, "c"));
    }
}
