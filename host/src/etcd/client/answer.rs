//! Parses etcd's answers as they arrive: leaves are passed on one batch at a time, and no more of
//! an answer is in memory.

use std::io::{BufReader, Read};

use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use tokio::sync::mpsc;

use crate::etcd::Leaf;

/// Leaves of a batch, unless they are large.
const BATCH_LEAVES: usize = 256;
/// Bytes of values after which a batch is passed on.
const BATCH_BYTES: usize = 1 << 20;
/// Bytes between the ends of two leaves: above the largest value that etcd takes, about 10 MB, with
/// all of its characters escaped.
const MOST_LEAF_BYTES: usize = 64 << 20;

/// An error answer.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ErrorAnswer {
    pub error_code: u64,
    #[serde(default)]
    pub message: String,
    #[serde(default)]
    pub index: u64,
}

/// An answer about one leaf.
#[derive(Debug)]
pub(super) struct LeafAnswer(pub Leaf);

impl<'de> Deserialize<'de> for LeafAnswer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut found = Vec::new();
        deserializer.deserialize_map(AnswerVisitor(&mut |leaf| {
            found.push(leaf);
            true
        }))?;
        let leaf = found.pop().filter(|_| found.is_empty());
        leaf.map(Self)
            .ok_or_else(|| D::Error::custom("the answer is not about one leaf"))
    }
}

/// Parses the answer of a recursive read and sends its leaves. Blocks until chunks arrive and
/// batches are taken.
pub(super) fn parse_leaves(
    chunks: mpsc::Receiver<Vec<u8>>,
    into: &mpsc::Sender<Vec<Leaf>>,
) -> Result<(), serde_json::Error> {
    let mut batch = Vec::new();
    let mut bytes = 0;
    let since_leaf = std::cell::Cell::new(0);
    let reader = BufReader::with_capacity(
        64 << 10,
        ChunkReader {
            chunks,
            chunk: Vec::new(),
            at: 0,
            since_leaf: &since_leaf,
        },
    );
    let mut parser = serde_json::Deserializer::from_reader(reader);
    let mut emit = |leaf: Leaf| {
        since_leaf.set(0);
        bytes += leaf.key.len() + leaf.value.len();
        batch.push(leaf);
        if batch.len() < BATCH_LEAVES && bytes < BATCH_BYTES {
            return true;
        }
        bytes = 0;
        into.blocking_send(std::mem::take(&mut batch)).is_ok()
    };
    parser.deserialize_map(AnswerVisitor(&mut emit))?;
    parser.end()?;
    if !batch.is_empty() && into.blocking_send(batch).is_err() {
        return Err(serde_json::Error::custom(ABANDONED));
    }
    Ok(())
}

const ABANDONED: &str = "the receiver of the leaves has ended";

/// The bytes of an answer as they arrive.
struct ChunkReader<'a> {
    chunks: mpsc::Receiver<Vec<u8>>,
    chunk: Vec<u8>,
    at: usize,
    since_leaf: &'a std::cell::Cell<usize>,
}

impl Read for ChunkReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        // An empty chunk is not the end.
        while self.at == self.chunk.len() {
            let Some(next) = self.chunks.blocking_recv() else {
                return Ok(0);
            };
            (self.chunk, self.at) = (next, 0);
        }
        let length = buffer.len().min(self.chunk.len() - self.at);
        self.since_leaf.set(self.since_leaf.get() + length);
        if self.since_leaf.get() > MOST_LEAF_BYTES {
            return Err(std::io::Error::other(format!(
                "a node has more than {MOST_LEAF_BYTES} bytes"
            )));
        }
        buffer[..length].copy_from_slice(&self.chunk[self.at..self.at + length]);
        self.at += length;
        Ok(length)
    }
}

/// Takes the leaves as they are parsed; returns whether it takes more.
type Emit<'a> = &'a mut dyn FnMut(Leaf) -> bool;

/// The answer: its `node`.
struct AnswerVisitor<'a>(Emit<'a>);

impl<'de> Visitor<'de> for AnswerVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an answer of etcd")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut has_node = false;
        while let Some(name) = map.next_key::<String>()? {
            if name == "node" {
                if has_node {
                    return Err(A::Error::duplicate_field("node"));
                }
                has_node = true;
                map.next_value_seed(NodeSeed(&mut *self.0))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        if has_node {
            Ok(())
        } else {
            Err(A::Error::missing_field("node"))
        }
    }
}

/// A node: a leaf, or a directory with its nodes.
struct NodeSeed<'a>(Emit<'a>);

impl<'de> DeserializeSeed<'de> for NodeSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

#[derive(Default)]
struct NodeFields {
    key: Option<String>,
    value: Option<String>,
    modified_index: Option<u64>,
    expiration: Option<String>,
    dir: Option<bool>,
    nodes: Option<()>,
}

impl<'de> Visitor<'de> for NodeSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a node of etcd")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut node = NodeFields::default();
        while let Some(name) = map.next_key::<String>()? {
            match name.as_str() {
                "key" => once(&mut node.key, "key", map.next_value()?)?,
                "value" => once(&mut node.value, "value", map.next_value()?)?,
                "modifiedIndex" => {
                    once(&mut node.modified_index, "modifiedIndex", map.next_value()?)?
                }
                "expiration" => once(&mut node.expiration, "expiration", map.next_value()?)?,
                "dir" => once(&mut node.dir, "dir", map.next_value()?)?,
                "nodes" => once(
                    &mut node.nodes,
                    "nodes",
                    map.next_value_seed(NodesSeed(&mut *self.0))?,
                )?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        if node.dir == Some(true) || node.value.is_none() {
            return Ok(());
        }
        let key = node.key.ok_or_else(|| A::Error::missing_field("key"))?;
        let modified_index = node
            .modified_index
            .ok_or_else(|| A::Error::missing_field("modifiedIndex"))?;
        let expires_at_ns = node.expiration.map(|text| {
            nanoseconds(&text)
                .ok_or_else(|| A::Error::custom(format!("the expiration of {key} is no time")))
        });
        let leaf = Leaf {
            key,
            value: node.value.unwrap_or_default(),
            modified_index,
            expires_at_ns: expires_at_ns.transpose()?,
        };
        if (self.0)(leaf) {
            Ok(())
        } else {
            Err(A::Error::custom(ABANDONED))
        }
    }
}

fn once<T, E: serde::de::Error>(
    field: &mut Option<T>,
    name: &'static str,
    value: T,
) -> Result<(), E> {
    match field.replace(value) {
        None => Ok(()),
        Some(_) => Err(E::duplicate_field(name)),
    }
}

/// A time of RFC 3339 in nanoseconds since 1970.
fn nanoseconds(text: &str) -> Option<i64> {
    chrono::DateTime::parse_from_rfc3339(text)
        .ok()?
        .timestamp_nanos_opt()
}

/// The nodes of a directory.
struct NodesSeed<'a>(Emit<'a>);

impl<'de> DeserializeSeed<'de> for NodesSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for NodesSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the nodes of a directory")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut nodes: A) -> Result<(), A::Error> {
        while nodes.next_element_seed(NodeSeed(&mut *self.0))?.is_some() {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn parse(body: &[u8], at: usize) -> Result<Vec<Leaf>, serde_json::Error> {
        let (chunk, chunks) = mpsc::channel(2);
        let (into, mut batches) = mpsc::channel(body.len() + 1);
        let (front, back) = body.split_at(at);
        [front, back]
            .into_iter()
            .for_each(|part| chunk.try_send(part.to_vec()).unwrap());
        drop(chunk);
        parse_leaves(chunks, &into)?;
        drop(into);
        Ok(std::iter::from_fn(|| batches.blocking_recv())
            .flatten()
            .collect())
    }

    /// A node, with the values of its leaves in order.
    fn node() -> impl Strategy<Value = (Value, Vec<String>)> {
        let leaf = any::<(String, String, u64)>().prop_map(|(key, value, index)| {
            (
                json!({"key": key, "value": value, "modifiedIndex": index, "createdIndex": 1}),
                vec![value],
            )
        });
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop::collection::vec(inner, 0..3).prop_map(|nodes| {
                let (nodes, leaves): (Vec<_>, Vec<_>) = nodes.into_iter().unzip();
                (
                    json!({"key": "/d", "dir": true, "nodes": nodes}),
                    leaves.concat(),
                )
            })
        })
    }

    proptest! {
        #[test]
        fn arbitrary_answers_are_read_as_they_are_or_refused(
            (node, values) in node(),
            place in any::<prop::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let mut body = json!({"action": "get", "node": node}).to_string().into_bytes();
            let read: Vec<_> = parse(&body, place.index(body.len())).unwrap().into_iter().map(|leaf| leaf.value).collect();
            prop_assert_eq!(read, values);
            *place.get_mut(&mut body) = byte;
            let _ = (parse(&body, 0), serde_json::from_slice::<LeafAnswer>(&body));
            let _ = serde_json::from_slice::<ErrorAnswer>(&body);
        }

        #[test]
        fn arbitrary_bytes_never_panic_in_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(parse(&bytes, 0).is_err());
            prop_assert!(serde_json::from_slice::<LeafAnswer>(&bytes).is_err());
        }
    }
}
