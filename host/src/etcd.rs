//! The etcd store in which Diego's BBS kept its records before it had a relational database:
//! reading it, and what its records mean. Owns the protocol of etcd's v2 API and the forms of the
//! stored values; what becomes of the records is decided in `import`.

pub mod client;
mod leaf;
pub mod record;

pub use leaf::Leaf;
