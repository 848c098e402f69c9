//! Loggregator's messages, version 2, as far as they are sent. Names, numbers and types are Loggregator's.

use std::collections::HashMap;

/// The method that takes a stream of batches.
pub const BATCH_SENDER: &str = "/loggregator.v2.Ingress/BatchSender";

#[derive(Clone, PartialEq, prost::Message)]
pub struct EnvelopeBatch {
    #[prost(message, repeated, tag = "1")]
    pub batch: Vec<Envelope>,
}

/// The end of a stream of them.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct BatchSenderResponse {}

/// Something that is told, and of whom.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Envelope {
    /// In nanoseconds since 1970.
    #[prost(int64, tag = "1")]
    pub timestamp: i64,
    #[prost(string, tag = "2")]
    pub source_id: String,
    #[prost(string, tag = "8")]
    pub instance_id: String,
    #[prost(map = "string, string", tag = "9")]
    pub tags: HashMap<String, String>,
    #[prost(oneof = "envelope::Message", tags = "4, 5, 6")]
    pub message: Option<envelope::Message>,
}

pub mod envelope {
    //! What an envelope may hold.

    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Message {
        #[prost(message, tag = "4")]
        Log(super::Log),
        #[prost(message, tag = "5")]
        Counter(super::Counter),
        #[prost(message, tag = "6")]
        Gauge(super::Gauge),
    }
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Log {
    #[prost(bytes = "vec", tag = "1")]
    pub payload: Vec<u8>,
    #[prost(enumeration = "LogType", tag = "2")]
    pub r#type: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum LogType {
    Out = 0,
    Err = 1,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Counter {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(uint64, tag = "2")]
    pub delta: u64,
    #[prost(uint64, tag = "3")]
    pub total: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Gauge {
    #[prost(map = "string, message", tag = "1")]
    pub metrics: HashMap<String, GaugeValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GaugeValue {
    #[prost(string, tag = "1")]
    pub unit: String,
    #[prost(double, tag = "2")]
    pub value: f64,
}
