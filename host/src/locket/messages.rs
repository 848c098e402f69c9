//! The messages of Locket's protocol. Names, numbers and types are Diego's.

use bbs_proto::shapes::{FieldShape, MessageShape};

/// An answer of Locket.
pub trait LocketAnswer: prost::Message + Default {
    /// Its fields, for counting its elements before it is decoded.
    const SHAPE: &'static MessageShape;
}

static NOTHING: MessageShape = MessageShape::new(&[]);
static RESOURCE: MessageShape = MessageShape::new(&[
    (1, FieldShape::Text),
    (2, FieldShape::Text),
    (3, FieldShape::Text),
    (4, FieldShape::Text),
]);
/// One or several.
static RESOURCES: MessageShape = MessageShape::new(&[(1, FieldShape::Message(&RESOURCE))]);

impl LocketAnswer for LockResponse {
    const SHAPE: &'static MessageShape = &NOTHING;
}

impl LocketAnswer for ReleaseResponse {
    const SHAPE: &'static MessageShape = &NOTHING;
}

impl LocketAnswer for FetchResponse {
    const SHAPE: &'static MessageShape = &RESOURCES;
}

impl LocketAnswer for FetchAllResponse {
    const SHAPE: &'static MessageShape = &RESOURCES;
}

/// A lock or a presence, and its owner.
#[derive(Clone, PartialEq, Eq, prost::Message)]
#[allow(missing_docs, reason = "the fields are Diego's")]
pub struct Resource {
    /// `bbs` for the lock of this service; the cell id for a presence.
    #[prost(string, tag = "1")]
    pub key: String,
    /// A lock that is held is renewed for its owner, and refused to others.
    #[prost(string, tag = "2")]
    pub owner: String,
    /// Empty for a lock; for a presence, the JSON that describes the cell.
    #[prost(string, tag = "3")]
    pub value: String,
    /// Read by older servers; newer ones read the code.
    #[prost(string, tag = "4")]
    pub r#type: String,
    /// The number of a [`TypeCode`].
    #[prost(enumeration = "TypeCode", tag = "5")]
    pub type_code: i32,
}

/// The type of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
#[allow(missing_docs, reason = "the variants are Diego's")]
pub enum TypeCode {
    Unknown = 0,
    Lock = 1,
    Presence = 2,
}

/// Takes or renews a lock.
#[derive(Clone, PartialEq, Eq, prost::Message)]
#[allow(missing_docs, reason = "the fields are Diego's")]
pub struct LockRequest {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    #[prost(int64, tag = "2")]
    pub ttl_in_seconds: i64,
}

/// The lock is held.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct LockResponse {}

/// Releases a lock.
#[derive(Clone, PartialEq, Eq, prost::Message)]
#[allow(missing_docs, reason = "the fields are Diego's")]
pub struct ReleaseRequest {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
}

/// The lock is released.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ReleaseResponse {}

/// Reads one resource.
#[derive(Clone, PartialEq, Eq, prost::Message)]
#[allow(missing_docs, reason = "the fields are Diego's")]
pub struct FetchRequest {
    #[prost(string, tag = "1")]
    pub key: String,
}

/// One resource.
#[derive(Clone, PartialEq, Eq, prost::Message)]
#[allow(missing_docs, reason = "the fields are Diego's")]
pub struct FetchResponse {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
}

/// Lists the resources of a type.
#[derive(Clone, PartialEq, Eq, prost::Message)]
#[allow(missing_docs, reason = "the fields are Diego's")]
pub struct FetchAllRequest {
    /// Read by older servers; newer ones read the code.
    #[prost(string, tag = "1")]
    pub r#type: String,
    /// The number of a [`TypeCode`].
    #[prost(enumeration = "TypeCode", tag = "2")]
    pub type_code: i32,
}

/// The resources of a type.
#[derive(Clone, PartialEq, Eq, prost::Message)]
#[allow(missing_docs, reason = "the fields are Diego's")]
pub struct FetchAllResponse {
    #[prost(message, repeated, tag = "1")]
    pub resources: Vec<Resource>,
}
