//! The part of Loggregator's protocol, version 2, that is sent. Names, numbers and types are
//! Loggregator's.

use std::collections::HashMap;

/// The client-streaming method that takes batches.
pub const BATCH_SENDER: &str = "/loggregator.v2.Ingress/BatchSender";

/// Envelopes that are sent together.
#[derive(Clone, PartialEq, prost::Message)]
#[allow(missing_docs, reason = "the fields are Loggregator's")]
pub struct EnvelopeBatch {
    #[prost(message, repeated, tag = "1")]
    pub batch: Vec<Envelope>,
}

/// The answer at the end of a stream.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct BatchSenderResponse {}

/// A metric or log line, with its source.
#[derive(Clone, PartialEq, prost::Message)]
#[allow(missing_docs, reason = "the fields are Loggregator's")]
pub struct Envelope {
    /// Nanoseconds since 1970.
    #[prost(int64, tag = "1")]
    pub timestamp: i64,
    #[prost(string, tag = "2")]
    pub source_id: String,
    #[prost(string, tag = "8")]
    pub instance_id: String,
    #[prost(map = "string, string", tag = "9")]
    pub tags: HashMap<String, String>,
    #[prost(oneof = "envelope::EnvelopeMessage", tags = "4, 5, 6")]
    pub message: Option<envelope::EnvelopeMessage>,
}

pub mod envelope {
    //! The content of an envelope.

    /// A log line or a metric.
    #[derive(Clone, PartialEq, prost::Oneof)]
    #[allow(missing_docs, reason = "each variant holds the message of its name")]
    pub enum EnvelopeMessage {
        #[prost(message, tag = "4")]
        Log(super::Log),
        #[prost(message, tag = "5")]
        Counter(super::Counter),
        #[prost(message, tag = "6")]
        Gauge(super::Gauge),
    }
}

/// A line of a log.
#[derive(Clone, PartialEq, Eq, prost::Message)]
#[allow(missing_docs, reason = "the fields are Loggregator's")]
pub struct Log {
    #[prost(bytes = "vec", tag = "1")]
    pub payload: Vec<u8>,
    /// The number of a [`LogType`].
    #[prost(enumeration = "LogType", tag = "2")]
    pub r#type: i32,
}

/// The stream of a log line: standard output or standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
#[allow(missing_docs, reason = "the variants are the two streams")]
pub enum LogType {
    Out = 0,
    Err = 1,
}

/// An increment of a counter.
#[derive(Clone, PartialEq, Eq, prost::Message)]
#[allow(missing_docs, reason = "the fields are Loggregator's")]
pub struct Counter {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(uint64, tag = "2")]
    pub delta: u64,
    /// 0, so that agents add up the increments.
    #[prost(uint64, tag = "3")]
    pub total: u64,
}

/// Values by name.
#[derive(Clone, PartialEq, prost::Message)]
#[allow(missing_docs, reason = "the fields are Loggregator's")]
pub struct Gauge {
    #[prost(map = "string, message", tag = "1")]
    pub metrics: HashMap<String, GaugeValue>,
}

/// A value and its unit.
#[derive(Clone, PartialEq, prost::Message)]
#[allow(missing_docs, reason = "the fields are Loggregator's")]
pub struct GaugeValue {
    #[prost(string, tag = "1")]
    pub unit: String,
    #[prost(double, tag = "2")]
    pub value: f64,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic_in_envelopes(
            bytes in prop::collection::vec(any::<u8>(), 0..100),
            source_id in any::<String>(),
            numbers in any::<(i64, u64, u64)>(),
        ) {
            let _ = (EnvelopeBatch::decode(&bytes[..]), BatchSenderResponse::decode(&bytes[..]));
            let (timestamp, delta, total) = numbers;
            let counter = Counter { name: source_id.clone(), delta, total };
            let message = Some(envelope::EnvelopeMessage::Counter(counter));
            let batch = EnvelopeBatch { batch: vec![Envelope { timestamp, source_id, message, ..Envelope::default() }] };
            prop_assert_eq!(EnvelopeBatch::decode(&batch.encode_to_vec()[..]), Ok(batch));
        }
    }
}
