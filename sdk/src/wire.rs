//! Protobuf at the wire level: iterates over a message's fields and edits single ones, keeping
//! every other byte, known or not, in place. Independent of message types.

/// Why bytes are not a valid protobuf message.
#[allow(missing_docs, reason = "the messages describe the variants and fields")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("the protobuf message ends inside a field, at byte {at}")]
    Truncated { at: usize },
    #[error("the protobuf message has a number of more than 64 bits at byte {at}")]
    Overlong { at: usize },
    #[error("the protobuf message has wire type {wire_type} at byte {at}, which does not exist")]
    UnknownWireType { at: usize, wire_type: u8 },
    #[error("the protobuf message has field number {number} at byte {at}, which is out of range")]
    BadNumber { at: usize, number: u64 },
    #[error("the protobuf message ends a group at byte {at} that it did not begin")]
    StrayEndGroup { at: usize },
    #[error("the protobuf message nests groups too deep at byte {at}")]
    TooDeep { at: usize },
    #[error("field {number} is {found} on the wire, not {wanted}")]
    Mismatch {
        number: u32,
        found: &'static str,
        wanted: &'static str,
    },
    #[error("field {number} is not UTF-8")]
    NotUtf8 { number: u32 },
}

/// Deepest nesting of groups.
const GROUP_DEPTH: usize = 32;

/// A field's value as encoded on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// A varint: integers, booleans, enums.
    Varint(u64),
    /// Eight bytes, little-endian.
    Fixed64(u64),
    /// A string, bytes, an embedded message or packed numbers.
    Bytes(&'a [u8]),
    /// A group's content, without its end tag.
    Group(&'a [u8]),
    /// Four bytes, little-endian.
    Fixed32(u32),
}

impl Value<'_> {
    fn name(&self) -> &'static str {
        match self {
            Self::Varint(_) => "a varint",
            Self::Fixed64(_) => "eight fixed bytes",
            Self::Bytes(_) => "length-delimited",
            Self::Group(_) => "a group",
            Self::Fixed32(_) => "four fixed bytes",
        }
    }
}

/// One field of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    /// The field's number.
    pub number: u32,
    /// Its value.
    pub value: Value<'a>,
    /// Its bytes, including the tag.
    pub raw: &'a [u8],
    /// The offset of `raw` in the message.
    pub at: usize,
}

impl<'a> Field<'a> {
    /// The value of a length-delimited field.
    ///
    /// # Errors
    /// If the field has another wire type.
    pub fn bytes(&self) -> Result<&'a [u8], WireError> {
        match self.value {
            Value::Bytes(bytes) => Ok(bytes),
            _ => Err(self.mismatch("length-delimited")),
        }
    }

    /// The value of a length-delimited field as UTF-8.
    ///
    /// # Errors
    /// If the field has another wire type, or is not UTF-8.
    pub fn text(&self) -> Result<&'a str, WireError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| WireError::NotUtf8 {
            number: self.number,
        })
    }

    /// The value of a varint field.
    ///
    /// # Errors
    /// If the field has another wire type.
    pub fn varint(&self) -> Result<u64, WireError> {
        match self.value {
            Value::Varint(value) => Ok(value),
            _ => Err(self.mismatch("a varint")),
        }
    }

    fn mismatch(&self, wanted: &'static str) -> WireError {
        WireError::Mismatch {
            number: self.number,
            found: self.value.name(),
            wanted,
        }
    }
}

/// Iterates over the fields of a message in their order. Ends after the first error.
#[must_use]
pub fn fields(message: &[u8]) -> Fields<'_> {
    Fields { message, at: 0 }
}

/// An iterator over the fields of a message.
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    message: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.message.len() {
            return None;
        }
        let field = read_field(self.message, self.at, 0);
        self.at = field
            .as_ref()
            .map_or(self.message.len(), |field| field.at + field.raw.len());
        Some(field)
    }
}

fn read_field(message: &[u8], at: usize, depth: usize) -> Result<Field<'_>, WireError> {
    let (number, wire_type, start) = read_tag(message, at)?;
    let (value, end) = match wire_type {
        0 => {
            let (value, end) = read_varint(message, start)?;
            (Value::Varint(value), end)
        }
        1 => {
            let (bytes, end) = read_fixed::<8>(message, start)?;
            (Value::Fixed64(u64::from_le_bytes(bytes)), end)
        }
        2 => {
            let (length, start) = read_varint(message, start)?;
            let left = message.len() - start;
            let length = usize::try_from(length)
                .ok()
                .filter(|length| *length <= left);
            let length = length.ok_or(WireError::Truncated { at })?;
            (
                Value::Bytes(&message[start..start + length]),
                start + length,
            )
        }
        3 => {
            let (content, end) = read_group(message, start, number, depth)?;
            (Value::Group(content), end)
        }
        4 => return Err(WireError::StrayEndGroup { at }),
        5 => {
            let (bytes, end) = read_fixed::<4>(message, start)?;
            (Value::Fixed32(u32::from_le_bytes(bytes)), end)
        }
        wire_type => return Err(WireError::UnknownWireType { at, wire_type }),
    };
    Ok(Field {
        number,
        value,
        raw: &message[at..end],
        at,
    })
}

fn read_tag(message: &[u8], at: usize) -> Result<(u32, u8, usize), WireError> {
    let (tag, start) = read_varint(message, at)?;
    let number = tag >> 3;
    match u32::try_from(number) {
        Ok(small) if (1..1 << 29).contains(&small) => Ok((small, (tag & 7) as u8, start)),
        _ => Err(WireError::BadNumber { at, number }),
    }
}

fn read_varint(message: &[u8], at: usize) -> Result<(u64, usize), WireError> {
    let mut value = 0_u64;
    for (index, byte) in message[at..].iter().enumerate() {
        if index == 10 || (index == 9 && *byte > 1) {
            return Err(WireError::Overlong { at });
        }
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Ok((value, at + index + 1));
        }
    }
    Err(WireError::Truncated { at })
}

fn read_fixed<const N: usize>(message: &[u8], at: usize) -> Result<([u8; N], usize), WireError> {
    let bytes = message[at..]
        .first_chunk::<N>()
        .ok_or(WireError::Truncated { at })?;
    Ok((*bytes, at + N))
}

fn read_group(
    message: &[u8],
    start: usize,
    number: u32,
    depth: usize,
) -> Result<(&[u8], usize), WireError> {
    if depth == GROUP_DEPTH {
        return Err(WireError::TooDeep { at: start });
    }
    let mut at = start;
    while at < message.len() {
        let (inner, wire_type, end) = read_tag(message, at)?;
        if wire_type == 4 {
            return if inner == number {
                Ok((&message[start..at], end))
            } else {
                Err(WireError::StrayEndGroup { at })
            };
        }
        at += read_field(message, at, depth + 1)?.raw.len();
    }
    Err(WireError::Truncated { at })
}

/// Checks that the whole message can be parsed.
///
/// # Errors
/// If it cannot.
pub fn check(message: &[u8]) -> Result<(), WireError> {
    fields(message).try_for_each(|field| field.map(drop))
}

/// Returns the last field with this number, which is the one that counts if the field is not
/// repeated.
///
/// # Errors
/// If the message cannot be parsed.
pub fn get(message: &[u8], number: u32) -> Result<Option<Field<'_>>, WireError> {
    let mut last = None;
    for field in fields(message) {
        let field = field?;
        if field.number == number {
            last = Some(field);
        }
    }
    Ok(last)
}

/// Returns all fields with this number, in order.
///
/// # Errors
/// If the message cannot be parsed.
pub fn get_all(message: &[u8], number: u32) -> Result<Vec<Field<'_>>, WireError> {
    let walked: Result<Vec<_>, _> = fields(message).collect();
    Ok(walked?
        .into_iter()
        .filter(|field| field.number == number)
        .collect())
}

/// Returns the value of a length-delimited field; empty if there is none, as in an encoded message
/// that leaves out empty values.
///
/// # Errors
/// If the message cannot be parsed, or the field has another wire type.
pub fn get_bytes(message: &[u8], number: u32) -> Result<&[u8], WireError> {
    get(message, number)?.map_or(Ok(b""), |field| field.bytes())
}

/// Returns the value of a varint field; 0 if there is none, as in an encoded message that leaves
/// out zeros.
///
/// # Errors
/// If the message cannot be parsed, or the field has another wire type.
pub fn get_varint(message: &[u8], number: u32) -> Result<u64, WireError> {
    get(message, number)?.map_or(Ok(0), |field| field.varint())
}

/// Returns an embedded message, concatenated if it occurs in several parts.
///
/// # Errors
/// If the message cannot be parsed, or a part has another wire type.
pub fn get_message(message: &[u8], number: u32) -> Result<Option<Vec<u8>>, WireError> {
    let parts = get_all(message, number)?;
    let mut whole = Vec::new();
    for part in &parts {
        whole.extend_from_slice(part.bytes()?);
    }
    Ok((!parts.is_empty()).then_some(whole))
}

/// Returns the message without the fields with this number.
///
/// # Errors
/// If the message cannot be parsed.
pub fn remove(message: &[u8], number: u32) -> Result<Vec<u8>, WireError> {
    let mut rest = Vec::with_capacity(message.len());
    for field in fields(message) {
        let field = field?;
        if field.number != number {
            rest.extend_from_slice(field.raw);
        }
    }
    Ok(rest)
}

/// Returns the message with exactly one field with this number: in the place of the first one or,
/// if there was none, before the first field with a higher number.
///
/// # Errors
/// If the message cannot be parsed.
pub fn replace(message: &[u8], number: u32, value: Value<'_>) -> Result<Vec<u8>, WireError> {
    let fields = fields(message).collect::<Result<Vec<_>, _>>()?;
    let place = fields.iter().position(|field| field.number == number);
    let place = place
        .or_else(|| fields.iter().position(|field| field.number > number))
        .unwrap_or(fields.len());
    let mut edited = Vec::with_capacity(message.len());
    let (before, after) = fields.split_at(place);
    before
        .iter()
        .for_each(|field| edited.extend_from_slice(field.raw));
    append(&mut edited, number, value);
    let others = after.iter().filter(|field| field.number != number);
    others.for_each(|field| edited.extend_from_slice(field.raw));
    Ok(edited)
}

/// Returns the message with the content of each length-delimited field replaced for which `edit`
/// returns a new one, or `None` if it returned none. Every other byte stays as it is.
///
/// # Errors
/// If the message cannot be parsed; errors of `edit`.
pub fn edit<E: From<WireError>>(
    message: &[u8],
    mut edit: impl FnMut(Field<'_>) -> Result<Option<Vec<u8>>, E>,
) -> Result<Option<Vec<u8>>, E> {
    let mut edited = Vec::new();
    // Up to here the message is in `edited`.
    let mut written = 0;
    for field in fields(message) {
        let field = field?;
        if let Some(content) = edit(field)? {
            edited.extend_from_slice(&message[written..field.at]);
            append(&mut edited, field.number, Value::Bytes(&content));
            written = field.at + field.raw.len();
        }
    }
    if written == 0 {
        return Ok(None);
    }
    edited.extend_from_slice(&message[written..]);
    Ok(Some(edited))
}

/// Appends a field.
pub fn append(message: &mut Vec<u8>, number: u32, value: Value<'_>) {
    let tag = |wire_type: u64| u64::from(number) << 3 | wire_type;
    match value {
        Value::Varint(value) => {
            append_varint(message, tag(0));
            append_varint(message, value);
        }
        Value::Fixed64(value) => {
            append_varint(message, tag(1));
            message.extend_from_slice(&value.to_le_bytes());
        }
        Value::Bytes(bytes) => {
            append_varint(message, tag(2));
            append_varint(message, bytes.len() as u64);
            message.extend_from_slice(bytes);
        }
        Value::Group(content) => {
            append_varint(message, tag(3));
            message.extend_from_slice(content);
            append_varint(message, tag(4));
        }
        Value::Fixed32(value) => {
            append_varint(message, tag(5));
            message.extend_from_slice(&value.to_le_bytes());
        }
    }
}

/// Appends a number as a base-128 varint.
pub fn append_varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.push(value as u8 | 0x80);
        value >>= 7;
    }
    message.push(value as u8);
}

#[cfg(test)]
mod tests;
