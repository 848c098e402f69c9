//! The shapes of messages: which of their fields have a length, and what these contain. For work on
//! encoded messages, such as counting their elements before they are decoded.

use prost::Name;

include!(concat!(env!("OUT_DIR"), "/shapes.rs"));

/// The fields of a message that have texts or messages. Numbers are left out.
#[derive(Debug)]
pub struct MessageShape {
    fields: &'static [(u32, FieldShape)],
}

/// The content of a field with a length, repeated or not.
#[derive(Debug, Clone, Copy)]
pub enum FieldShape {
    /// Text or bytes.
    Text,
    /// A message.
    Message(&'static MessageShape),
}

impl MessageShape {
    /// Of these fields, each with its number.
    #[must_use]
    pub const fn new(fields: &'static [(u32, FieldShape)]) -> Self {
        Self { fields }
    }

    /// The shape of a field; `None` if the message has no such field, or a number in it.
    #[must_use]
    pub fn field(&self, number: u32) -> Option<FieldShape> {
        self.fields
            .iter()
            .find(|(known, _)| *known == number)
            .map(|(_, shape)| *shape)
    }
}

/// The shape of a message of this crate.
///
/// # Panics
/// If the message is of another crate.
#[must_use]
pub fn shape_of<M: Name>() -> &'static MessageShape {
    let name = M::full_name();
    let at = SHAPES
        .binary_search_by(|(known, _)| (*known).cmp(&name))
        .expect("a message of this crate");
    SHAPES[at].1
}
