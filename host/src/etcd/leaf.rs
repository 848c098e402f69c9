//! A node of the store that has a value.

/// A leaf, as one answer of etcd has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    /// The whole path, such as `/v1/task/guid`.
    pub key: String,
    /// As it is stored; empty if the leaf has none.
    pub value: String,
    /// The store's index at its last change.
    pub modified_index: u64,
    /// Its expiration in nanoseconds since 1970; absent if it never expires.
    pub expires_at_ns: Option<i64>,
}
