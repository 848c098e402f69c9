//! A list of all desired LRPs, split into records while it streams in, so that it is never in
//! memory as a whole.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use bbs_proto::models as proto;
use bbs_proto::prost::Message;
use tokio::sync::watch;

use super::calls::{Caller, Failure};

pub type Guid = Vec<u8>;

/// Delay of the slow reader after each chunk.
const REST: Duration = Duration::from_millis(20);

/// Digests of a record, with and without the epoch of its modification tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest {
    pub whole: u64,
    pub without_epoch: u64,
}

impl Digest {
    pub fn of(lrp: &proto::DesiredLrp) -> Self {
        let whole = digest(lrp);
        let mut bare = lrp.clone();
        if let Some(tag) = &mut bare.modification_tag {
            tag.epoch.clear();
        }
        Self {
            whole,
            without_epoch: digest(&bare),
        }
    }
}

fn digest(lrp: &proto::DesiredLrp) -> u64 {
    let mut hasher = DefaultHasher::new();
    lrp.encode_to_vec().hash(&mut hasher);
    hasher.finish()
}

/// Sorts the fields that have no defined order.
pub fn canonical(mut lrp: proto::DesiredLrp) -> proto::DesiredLrp {
    lrp.metric_tags
        .sort_by(|one, other| one.key.cmp(&other.key));
    lrp
}

/// The digests of all desired LRPs of one list. A key that was listed twice has two.
#[derive(Debug, Default)]
pub struct Listing {
    pub records: HashMap<Guid, Vec<Digest>>,
}

/// Lists all desired LRPs.
pub async fn everything(caller: &Caller) -> Result<Listing, Failure> {
    read(caller, None).await
}

/// Lists all desired LRPs with a delay after each chunk until `hurry` turns true.
pub async fn slowly(caller: &Caller, hurry: watch::Receiver<bool>) -> Result<Listing, Failure> {
    read(caller, Some(hurry)).await
}

async fn read(
    caller: &Caller,
    mut hurry: Option<watch::Receiver<bool>>,
) -> Result<Listing, Failure> {
    let mut response = caller
        .open(
            "desired_lrps/list.r3",
            proto::DesiredLrPsRequest::default().encode_to_vec(),
        )
        .await?;
    let mut listing = Listing::default();
    let mut splitter = Splitter::default();
    while let Some(chunk) = response.chunk().await.map_err(Failure::transport)? {
        splitter.buffer.extend_from_slice(&chunk);
        while let Some((field, bytes)) = splitter.next()? {
            if field == 1 {
                let error = proto::Error::decode(bytes).map_err(Failure::unreadable)?;
                return Err(Failure::Answer(format!("{error:?}")));
            }
            let lrp = canonical(proto::DesiredLrp::decode(bytes).map_err(Failure::unreadable)?);
            listing
                .records
                .entry(lrp.process_guid.clone())
                .or_default()
                .push(Digest::of(&lrp));
        }
        splitter.compact();
        if let Some(hurry) = &mut hurry {
            // Both a timeout and a change of `hurry` end the delay.
            let _ = tokio::time::timeout(REST, hurry.wait_for(|hurry| *hurry)).await;
        }
    }
    if splitter.buffer.is_empty() {
        Ok(listing)
    } else {
        Err(Failure::Answer("the list ends inside a record".to_owned()))
    }
}

/// Splits a message of length-delimited fields into its fields while it arrives.
#[derive(Default)]
struct Splitter {
    buffer: Vec<u8>,
    at: usize,
}

impl Splitter {
    fn next(&mut self) -> Result<Option<(u64, &[u8])>, Failure> {
        let rest = &self.buffer[self.at..];
        let Some((tag, after_tag)) = varint(rest) else {
            return Ok(None);
        };
        if tag & 7 != 2 {
            return Err(Failure::Answer(format!("tag {tag} is no field of a list")));
        }
        let Some((length, bytes)) = varint(&rest[after_tag..]) else {
            return Ok(None);
        };
        let start = self.at + after_tag + bytes;
        let end = start
            + usize::try_from(length)
                .map_err(|_| Failure::Answer(format!("a field of {length} bytes")))?;
        if end > self.buffer.len() {
            return Ok(None);
        }
        self.at = end;
        Ok(Some((tag >> 3, &self.buffer[start..end])))
    }

    fn compact(&mut self) {
        self.buffer.drain(..self.at);
        self.at = 0;
    }
}

/// A varint and its length in bytes; `None` if it is incomplete.
fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut number = 0;
    for (at, byte) in bytes.iter().take(10).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((number, at + 1));
        }
    }
    None
}
