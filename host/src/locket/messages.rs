//! Locket's messages. Names, numbers and types are Diego's.

/// What is locked, and by whom.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Resource {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, tag = "2")]
    pub owner: String,
    #[prost(string, tag = "3")]
    pub value: String,
    /// Older servers go by this, newer ones by the code.
    #[prost(string, tag = "4")]
    pub r#type: String,
    #[prost(enumeration = "TypeCode", tag = "5")]
    pub type_code: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum TypeCode {
    Unknown = 0,
    Lock = 1,
    Presence = 2,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LockRequest {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    #[prost(int64, tag = "2")]
    pub ttl_in_seconds: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct LockResponse {}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ReleaseRequest {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ReleaseResponse {}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct FetchRequest {
    #[prost(string, tag = "1")]
    pub key: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct FetchResponse {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct FetchAllRequest {
    /// Older servers go by this, newer ones by the code.
    #[prost(string, tag = "1")]
    pub r#type: String,
    #[prost(enumeration = "TypeCode", tag = "2")]
    pub type_code: i32,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct FetchAllResponse {
    #[prost(message, repeated, tag = "1")]
    pub resources: Vec<Resource>,
}
