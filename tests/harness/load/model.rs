//! The expected state: every desired LRP as the last acknowledged write left it. After a write with
//! an unknown outcome, both states are possible until a read.

use std::collections::{BTreeMap, BTreeSet};

use bbs_proto::models as proto;

use super::calls::{Caller, Failure};
use super::listing::{Digest, Guid, Listing, canonical, everything};

/// The domain of the LRPs that the load creates.
pub const DOMAIN: &[u8] = b"load";

/// The record of a key; `None` if it does not exist.
pub type KeyState = Option<Box<proto::DesiredLrp>>;

#[derive(Debug, Clone)]
pub enum Known {
    /// Not written by the load.
    Untouched(Digest),
    /// One of these states, in which an empty epoch matches any.
    OneOf(Vec<KeyState>),
}

#[derive(Debug, Clone, Default)]
pub struct Model {
    pub keys: BTreeMap<Guid, Known>,
    /// Keys with a write that was not acknowledged. A host that ends between creating a desired LRP
    /// and its instances leaves instances for convergence to create.
    pub interrupted: BTreeSet<Guid>,
}

impl Model {
    /// The current state of the host.
    pub async fn of(caller: &Caller) -> Result<Self, Failure> {
        let listing = everything(caller).await?;
        let keys = listing
            .records
            .into_iter()
            .map(|(guid, digests)| (guid, Known::Untouched(digests[0])));
        Ok(Self {
            keys: keys.collect(),
            interrupted: BTreeSet::new(),
        })
    }

    /// The state of a key, if the load has written or read it and exactly one state is possible.
    pub fn certain(&self, guid: &[u8]) -> Option<&KeyState> {
        match self.keys.get(guid) {
            Some(Known::OneOf(states)) if states.len() == 1 => states.first(),
            _ => None,
        }
    }

    pub fn set(&mut self, guid: &[u8], state: KeyState) {
        self.keys.insert(guid.to_vec(), Known::OneOf(vec![state]));
    }

    /// Adds a possible state of the key: the outcome of the write is unknown.
    pub fn allow(&mut self, guid: &[u8], state: KeyState) {
        self.interrupted.insert(guid.to_vec());
        match self.keys.get_mut(guid) {
            Some(Known::OneOf(states)) => states.push(state),
            _ => self.set(guid, state),
        }
    }

    /// Compares a key's expected state with the one read, which becomes the expected state.
    ///
    /// # Errors
    /// The difference, if the state read is not possible.
    pub fn learn(&mut self, guid: &[u8], found: Option<proto::DesiredLrp>) -> Result<(), String> {
        let found = found.map(|lrp| Box::new(canonical(lrp)));
        let digest = found.as_deref().map(Digest::of);
        let explained = self
            .keys
            .get(guid)
            .is_none_or(|known| explains(known, digest));
        let expected = self
            .keys
            .insert(guid.to_vec(), Known::OneOf(vec![found.clone()]));
        if explained {
            return Ok(());
        }
        let expected = match expected {
            Some(Known::OneOf(states)) => {
                states.iter().map(describe).collect::<Vec<_>>().join(" or ")
            }
            _ => "as before the load".to_owned(),
        };
        Err(format!(
            "{}: expected {expected}, found {}",
            String::from_utf8_lossy(guid),
            describe(&found)
        ))
    }

    /// All differences between the expected state and a list taken while there were no writes.
    pub fn differences(&self, listing: &Listing) -> Vec<String> {
        let mut differences = self.unexplained(listing, |_| true);
        let unknown = listing
            .records
            .keys()
            .filter(|guid| !self.keys.contains_key(*guid));
        differences
            .extend(unknown.map(|guid| format!("{}: unknown key", String::from_utf8_lossy(guid))));
        differences
    }

    /// All differences of the untouched keys from a list taken during writes, and all duplicates in
    /// it.
    pub fn differences_of_untouched(&self, listing: &Listing) -> Vec<String> {
        let mut differences =
            self.unexplained(listing, |known| matches!(known, Known::Untouched(_)));
        let twice = listing.records.iter().filter(|(_, found)| found.len() > 1);
        differences.extend(
            twice.map(|(guid, _)| {
                format!("{}: listed more than once", String::from_utf8_lossy(guid))
            }),
        );
        differences
    }

    fn unexplained(&self, listing: &Listing, counts: impl Fn(&Known) -> bool) -> Vec<String> {
        let mut differences = Vec::new();
        for (guid, known) in self.keys.iter().filter(|(_, known)| counts(known)) {
            let found = listing.records.get(guid).map_or(&[][..], Vec::as_slice);
            if found.len() > 1 || !explains(known, found.first().copied()) {
                let times = found.len();
                differences.push(format!(
                    "{}: not as expected, listed {times} times",
                    String::from_utf8_lossy(guid)
                ));
            }
        }
        differences
    }

    /// All differences between the desired number of instances and the actual LRPs of the load's
    /// domain.
    pub async fn differences_of_instances(&self, caller: &Caller) -> Result<Vec<String>, Failure> {
        let mut found = BTreeMap::<Guid, BTreeSet<i32>>::new();
        let mut differences = Vec::new();
        for lrp in caller.actual_lrps(DOMAIN).await? {
            let key = lrp.actual_lrp_key.unwrap_or_default();
            if !found
                .entry(key.process_guid.clone())
                .or_default()
                .insert(key.index)
            {
                differences.push(format!(
                    "{}/{}: duplicate",
                    String::from_utf8_lossy(&key.process_guid),
                    key.index
                ));
            }
        }
        for (guid, known) in &self.keys {
            let indices = found.remove(guid).unwrap_or_default();
            // The number of instances of an untouched LRP, from an earlier load, is not modelled.
            let Known::OneOf(states) = known else {
                continue;
            };
            let explained = states.iter().any(|state| match state {
                Some(lrp) if lrp.domain == DOMAIN && self.interrupted.contains(guid) => indices
                    .iter()
                    .all(|index| (0..lrp.instances).contains(index)),
                Some(lrp) if lrp.domain == DOMAIN => indices.iter().copied().eq(0..lrp.instances),
                _ => indices.is_empty(),
            });
            if !explained {
                differences.push(format!(
                    "{}: instances {indices:?}",
                    String::from_utf8_lossy(guid)
                ));
            }
        }
        let strays = found.keys().map(|guid| {
            format!(
                "{}: instances without a desired LRP",
                String::from_utf8_lossy(guid)
            )
        });
        differences.extend(strays);
        Ok(differences)
    }
}

fn explains(known: &Known, found: Option<Digest>) -> bool {
    match known {
        Known::Untouched(digest) => found == Some(*digest),
        Known::OneOf(states) => states.iter().any(|state| match (state, found) {
            (None, None) => true,
            (Some(lrp), Some(found)) => {
                let epoch_known = lrp
                    .modification_tag
                    .as_ref()
                    .is_some_and(|tag| !tag.epoch.is_empty());
                let digest = Digest::of(lrp);
                if epoch_known {
                    digest == found
                } else {
                    digest.without_epoch == found.without_epoch
                }
            }
            _ => false,
        }),
    }
}

fn describe(state: &KeyState) -> String {
    let Some(lrp) = state else {
        return "nothing".to_owned();
    };
    let index = lrp.modification_tag.as_ref().map_or(0, |tag| tag.index);
    let annotation = String::from_utf8_lossy(&lrp.annotation);
    format!(
        "index {index}, annotation {annotation:?}, {} instances, digest {:016x}",
        lrp.instances,
        Digest::of(lrp).without_epoch
    )
}
