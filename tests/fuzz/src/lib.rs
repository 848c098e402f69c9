//! The layers of the host that decode what comes from the network, the database or a file, without the rest: they
//! depend on nothing that is slow to build, so they can be built again with instrumentation in a minute.

#![allow(dead_code, unreachable_pub, reason = "what the targets do not call is the host's")]

#[path = "../../../host/src"]
mod host {
    pub mod layout;
    pub mod model;
    pub mod record;
}

pub use host::{layout, model, record};

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

    /// Whatever the text is, an answer.
    pub fn read_connection_strings(text: &str) {
        let _ = (dsn::postgres(text), dsn::mysql(text));
    }
}

#[path = "../../../host/src/locket"]
pub mod locket {
    pub mod messages;
}

#[path = "../../../host/src/clients/cells"]
pub mod cells {
    mod presence;

    /// Whatever is said of a cell, an answer.
    pub fn read_presence(text: &str) {
        let _ = presence::read(text);
    }
}
