//! The modules of the host that decode input from the network, the database or a file, without the rest of the host: they
//! have no dependency that is slow to build, so an instrumented build takes about a minute.

#![allow(dead_code, unreachable_pub, reason = "the targets use a part of the host's modules")]

#[path = "../../../host/src"]
mod host {
    pub mod layout;
    pub mod model;
    pub mod protobuf;
}

pub use bbs_encryption as encryption;
pub use host::{layout, model, protobuf};

#[path = "../../../host/src/domain"]
pub mod domain {
    pub mod validation;
}

#[path = "../../../host/src/database"]
pub mod database {
    mod address;

    pub use address::*;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Dialect {
        Sqlite,
        Postgres,
        Mysql,
    }

    impl std::fmt::Display for Dialect {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "{self:?}")
        }
    }
}

#[path = "../../../host/src/config"]
pub mod config {
    mod dsn;
    pub mod duration;

    /// Parses a connection string of either server; must not panic.
    pub fn read_connection_strings(text: &str) {
        let _ = (dsn::postgres(text), dsn::mysql(text));
    }
}

#[path = "../../../host/src/etcd"]
pub mod etcd {
    mod leaf;
    pub mod record;

    pub use leaf::Leaf;
}

#[path = "../../../host/src/locket"]
pub mod locket {
    pub mod messages;
}

#[path = "../../../host/src/clients/cells"]
pub mod cells {
    mod presence;

    /// Parses a cell's presence; must not panic.
    pub fn read_presence(text: &str) {
        let _ = presence::read(text);
    }
}
