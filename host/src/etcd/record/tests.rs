//! Decoding of whole leaves: the vectors, each shape that a release wrote, and damage of every
//! kind.

mod damage;
mod json_shapes;
mod mutations;
mod protobuf_shapes;
mod vectors;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bbs_encryption::{Keyring, Sealing};
use bbs_proto::prost::Message;

use super::{EtcdRecord, RecordError, decode};
use crate::etcd::Leaf;

fn keyring() -> Keyring {
    Keyring::new(
        [
            ("key1", "correct horse battery staple"),
            ("old-2015", "tr0ub4dor&3"),
        ],
        "key1",
    )
    .unwrap()
}

fn decoded(path: &str, value: &str) -> Result<EtcdRecord, RecordError> {
    let leaf = Leaf {
        key: path.into(),
        value: value.into(),
        modified_index: 1,
        expires_at_ns: None,
    };
    decode(&leaf, &keyring())
}

/// With encoding tag `01`.
fn base64(plain: &[u8]) -> String {
    format!("01{}", STANDARD.encode(plain))
}

/// With encoding tag `02`, under the active key.
fn sealed(plain: &[u8]) -> String {
    String::from_utf8(keyring().seal(Sealing::Sealed, plain)).unwrap()
}

/// The protobuf envelope with a version byte, and a message.
fn enveloped(version: u8, message: &impl Message) -> Vec<u8> {
    [vec![2, version], message.encode_to_vec()].concat()
}
