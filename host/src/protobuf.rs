//! The encoding of protobuf messages: counts the elements of a message before it is decoded,
//! because an empty submessage takes two encoded bytes and hundreds decoded. And splits a field
//! from a message without decoding it. Decoding itself is `prost`'s.
//!
//! Before a message is decoded, its type is known, so that a text is one element, whatever it
//! contains. The bound of a message of unknown type takes content for a message or for a text,
//! whichever has more elements.

use bbs_proto::prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use bbs_proto::prost::{DecodeError, Name};
use bbs_proto::shapes::{FieldShape, MessageShape, shape_of};

/// The most elements of a message that is decoded, where [`LIGHT_TEXTS`] count as one. A desired
/// LRP has some hundreds, and two with three texts for each rule of its security groups; the filter
/// of a list has one for each guid.
pub const MOST_ELEMENTS: usize = 65_536;

/// The texts in submessages that count as one element. They take at most 104 bytes each besides
/// their content: three times that of a list's entry, and what the allocator adds. A text in the
/// message itself counts whole: it may be one of a filter, which is compared with every record.
pub const LIGHT_TEXTS: usize = 8;

/// Upper bound of what an element takes in memory, in bytes, while it is decoded: the largest
/// repeated submessage of a request has 696, and a list that grows is held up to three times.
pub const ELEMENT_BYTES: usize = 2048;

/// Nesting below which `prost` does not decode.
const DEPTH: u32 = 100;

/// The elements, submessages and texts at all depths, that decoding a message as this type makes
/// before it ends or fails; `None` if they count as more than [`MOST_ELEMENTS`].
pub fn elements_of<M: Name>(message: &[u8]) -> Option<usize> {
    elements_in(shape_of::<M>(), message)
}

/// Counts the elements of a message of this shape. Linear in the length: it reads as the decoder
/// does, which never goes back.
pub fn elements_in(shape: &MessageShape, mut message: &[u8]) -> Option<usize> {
    let mut sum = Elements::default();
    // None where decoding fails.
    let _ = count(&mut message, 0, shape, DEPTH, &mut sum);
    (!sum.are_too_many()).then_some(sum.number)
}

/// The elements that were counted so far.
#[derive(Debug, Default)]
struct Elements {
    number: usize,
    /// As parts of an element, of which it has [`LIGHT_TEXTS`].
    weight: usize,
}

impl Elements {
    fn add(&mut self, weight: usize) {
        self.number += 1;
        self.weight += weight;
    }

    fn are_too_many(&self) -> bool {
        self.weight > MOST_ELEMENTS * LIGHT_TEXTS
    }
}

/// Counts the elements of a message that ends where this many bytes remain. Content may go on
/// behind the end of its message: the decoder notices that afterwards.
fn count(
    rest: &mut &[u8],
    end: usize,
    shape: &MessageShape,
    depth: u32,
    sum: &mut Elements,
) -> Option<()> {
    let text = if depth == DEPTH { LIGHT_TEXTS } else { 1 };
    while rest.len() > end && !sum.are_too_many() {
        let (number, wire_type) = decode_key(rest).ok()?;
        let field = shape.field(number);
        match field.filter(|_| wire_type == WireType::LengthDelimited) {
            None => skip_field(wire_type, number, rest, DecodeContext::default()).ok()?,
            Some(FieldShape::Text) => {
                sum.add(text);
                skip_field(wire_type, number, rest, DecodeContext::default()).ok()?;
            }
            Some(FieldShape::Message(inner)) => {
                sum.add(LIGHT_TEXTS);
                let length = usize::try_from(decode_varint(rest).ok()?).ok()?;
                let end = rest.len().checked_sub(length)?;
                count(rest, end, inner, depth.checked_sub(1)?, sum)?;
                if rest.len() != end {
                    return None;
                }
            }
        }
    }
    Some(())
}

/// Splits an encoded message into the message without the fields of a number, and these fields as
/// they are; `None` if it has none of them.
///
/// # Errors
/// The bytes are not a message.
pub fn split_field(
    message: Vec<u8>,
    number: u32,
) -> Result<(Vec<u8>, Option<Vec<u8>>), DecodeError> {
    let mut others = Vec::new();
    let mut fields = Vec::new();
    // Up to here the message is in one of the two.
    let mut copied = 0;
    let mut rest = &message[..];
    while !rest.is_empty() {
        let at = message.len() - rest.len();
        let (found, wire_type) = decode_key(&mut rest)?;
        skip_field(wire_type, found, &mut rest, DecodeContext::default())?;
        if found == number {
            others.extend_from_slice(&message[copied..at]);
            copied = message.len() - rest.len();
            fields.extend_from_slice(&message[at..copied]);
        }
    }
    if copied == 0 {
        return Ok((message, None));
    }
    others.extend_from_slice(&message[copied..]);
    Ok((others, Some(fields)))
}

/// The most elements that decoding an encoded message of any type makes; `None` if they are more
/// than [`MOST_ELEMENTS`]. Without a type, content may be a submessage or a text: it is counted as
/// what makes more.
///
/// Linear in the length, since a byte is part of a key or a length at one depth at most, and ends
/// at the limit.
pub fn elements(message: &[u8]) -> Option<usize> {
    Some(scan(message, DEPTH).most).filter(|most| *most <= MOST_ELEMENTS)
}

/// The elements of content, if it is a message.
struct Scan {
    /// `None` if the message has an error. Decoding ends there, so if decoding goes on, the content
    /// is a text.
    whole: Option<usize>,
    /// Until decoding ends, here or at an error, or until there are too many.
    most: usize,
}

fn scan(mut rest: &[u8], depth: u32) -> Scan {
    let mut sum = 0;
    let mut most = 0;
    while !rest.is_empty() && most.max(sum) <= MOST_ELEMENTS {
        match next(&mut rest) {
            None => {
                return Scan {
                    whole: None,
                    most: most.max(sum),
                };
            }
            Some(None) => {}
            Some(Some(_)) if depth == 0 => sum += 1,
            Some(Some(content)) => {
                let inner = scan(content, depth - 1);
                most = most.max(sum + 1 + inner.most);
                sum += 1 + inner.whole.unwrap_or(0);
            }
        }
    }
    Scan {
        whole: Some(sum),
        most: most.max(sum),
    }
}

/// Skips one field; returns its content if it has a length. `None` at an error.
fn next<'a>(rest: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let (number, wire_type) = decode_key(rest).ok()?;
    if wire_type != WireType::LengthDelimited {
        skip_field(wire_type, number, rest, DecodeContext::default()).ok()?;
        return Some(None);
    }
    let length = usize::try_from(decode_varint(rest).ok()?).ok()?;
    // Decoding would go on behind the end of the outer message, where the outer scan goes on as
    // well.
    let (content, after) = rest.split_at(length.min(rest.len()));
    *rest = after;
    Some(Some(content))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bbs_proto::models as proto;
    use bbs_proto::prost::Message;

    #[test]
    fn elements_of_all_depths_are_counted() {
        assert_eq!(elements(b""), Some(0));
        let action = |user: &str| proto::Action {
            run_action: Some(proto::RunAction {
                user: user.into(),
                ..Default::default()
            }),
            ..Default::default()
        };
        let parallel = proto::ParallelAction {
            actions: vec![action("a"), action("b")],
            log_source: b"\x07".to_vec(),
        };
        // Two actions with a run action and its user each, and the log source.
        assert_eq!(elements(&parallel.encode_to_vec()), Some(7));
        let numbers = proto::DesiredLrp {
            ports: vec![8080; 100],
            instances: 7,
            ..Default::default()
        };
        assert!(elements(&numbers.encode_to_vec()).unwrap() <= 2);
    }

    /// Texts that, taken for messages, have more elements than a message may have.
    #[test]
    fn text_is_one_element_whatever_it_contains() {
        let texts = [
            format!("{}\n", "*".repeat(79)).repeat(2_300),
            "err\n".repeat(100_000),
            "2,".repeat(200_000),
            "z".repeat(200_000),
            "j".repeat(140_000),
        ];
        for text in texts {
            let variable = proto::EnvironmentVariable {
                name: b"A".to_vec(),
                value: text.clone().into_bytes(),
            };
            let lrp = proto::DesiredLrp {
                environment_variables: vec![variable],
                ..Default::default()
            };
            let request = proto::DesireLrpRequest {
                desired_lrp: Some(lrp),
            }
            .encode_to_vec();
            // The LRP, the variable, its name and its value.
            assert_eq!(
                elements_of::<proto::DesireLrpRequest>(&request),
                Some(4),
                "{}",
                &text[..10]
            );
        }
    }

    #[test]
    fn elements_of_a_type_are_those_that_decoding_makes() {
        let action = |user: &str| proto::Action {
            run_action: Some(proto::RunAction {
                user: user.into(),
                ..Default::default()
            }),
            ..Default::default()
        };
        let parallel = |actions| proto::ParallelAction {
            actions,
            ..Default::default()
        };
        let of_type = |message: &[u8]| elements_of::<proto::ParallelAction>(message);
        assert_eq!(
            of_type(&parallel(vec![action("a"), action("b")]).encode_to_vec()),
            Some(6)
        );
        let empty = |count| parallel(vec![proto::Action::default(); count]).encode_to_vec();
        assert_eq!(of_type(&empty(MOST_ELEMENTS)), Some(MOST_ELEMENTS));
        assert_eq!(of_type(&empty(MOST_ELEMENTS + 1)), None);
        // Empty messages in a field that the type does not have are skipped.
        assert_eq!(
            elements_of::<proto::TasksRequest>(&[0x7a, 0].repeat(100_000)),
            Some(0)
        );
        // The decoder reads an inner message to its end, behind that of the outer one, before it
        // fails.
        let inner = proto::Action {
            parallel_action: Some(parallel(vec![proto::Action::default(); 64])),
            ..Default::default()
        };
        let mut message = parallel(vec![inner]).encode_to_vec();
        // The length in two bytes: of the key and the length of the inner message alone.
        message[2] = 0;
        assert!(proto::ParallelAction::decode(&message[..]).is_err());
        assert!(of_type(&message).unwrap() >= 64, "{:?}", of_type(&message));
    }

    #[test]
    fn texts_in_submessages_count_as_parts_of_an_element() {
        let rules = |count| proto::DesireLrpRequest {
            desired_lrp: Some(proto::DesiredLrp {
                egress_rules: vec![
                    proto::SecurityGroupRule {
                        annotations: vec![Vec::new(); LIGHT_TEXTS],
                        ..Default::default()
                    };
                    count
                ],
                ..Default::default()
            }),
        };
        let of_rules =
            |count| elements_of::<proto::DesireLrpRequest>(&rules(count).encode_to_vec());
        // The LRP, and two for each rule and its texts.
        let most = (MOST_ELEMENTS - 1) / 2;
        assert_eq!(of_rules(most), Some(1 + most * (1 + LIGHT_TEXTS)));
        assert_eq!(of_rules(most + 1), None);
        let guids = |count| proto::DesiredLrPsRequest {
            process_guids: vec![Vec::new(); count],
            ..Default::default()
        };
        let of_guids =
            |count| elements_of::<proto::DesiredLrPsRequest>(&guids(count).encode_to_vec());
        assert_eq!(of_guids(MOST_ELEMENTS), Some(MOST_ELEMENTS));
        assert_eq!(of_guids(MOST_ELEMENTS + 1), None);
        // A list that grows, and the allocator's smallest block.
        assert!((size_of::<Vec<u8>>() * 3 + 32) * LIGHT_TEXTS <= ELEMENT_BYTES);
    }

    #[test]
    fn elements_before_an_error_are_counted() {
        let empty = [0x0a, 0].repeat(1000);
        for end in [
            &b"\x0a\xff\x7f"[..],
            b"\x0f",
            b"\x0a",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        ] {
            assert!(
                elements(&[&empty, end].concat()).unwrap() >= 1000,
                "{end:?}"
            );
        }
        let mut nested = empty.clone();
        for _ in 0..50 {
            let mut outer = vec![0x0a];
            let mut length = nested.len();
            while length >= 0x80 {
                outer.push((length & 0x7f) as u8 | 0x80);
                length >>= 7;
            }
            outer.push(length as u8);
            outer.extend(&nested);
            nested = outer;
        }
        assert_eq!(elements(&nested), Some(1050));
        nested.pop();
        assert!(elements(&nested).unwrap() >= 1049, "cut short");
    }

    #[test]
    fn counting_ends_at_the_limit() {
        let empty = |count: usize| [0x0a, 0].repeat(count);
        assert_eq!(elements(&empty(MOST_ELEMENTS)), Some(MOST_ELEMENTS));
        assert_eq!(elements(&empty(MOST_ELEMENTS + 1)), None);
        // In a submessage of 131,070 bytes, beside the element that it is itself.
        let nested =
            |count: usize| [&[0x0a, 0xfe, 0xff, 0x07], &empty(65_535)[..], &empty(count)].concat();
        assert_eq!(
            (elements(&nested(0)), elements(&nested(1))),
            (Some(MOST_ELEMENTS), None)
        );
    }

    #[test]
    fn content_that_is_no_message_is_one_element() {
        let json =
            r#"{"route":[{"hostnames":["a.example.com"],"port":8080}],"tcp":{"ports":[1,2]}}"#;
        for text in [
            json,
            "the quick brown fox\n",
            "AAECAwQ=",
            "0",
            "key=value;",
            "http://10.0.0.1/?a=b",
        ] {
            let value = text.repeat(100_000 / text.len()).into_bytes();
            let variable = proto::EnvironmentVariable {
                name: b"A".to_vec(),
                value,
            };
            let lrp = proto::DesiredLrp {
                environment_variables: vec![variable; 10],
                ..Default::default()
            };
            let found = elements(&lrp.encode_to_vec()).unwrap();
            assert!(found <= 30 + 100, "{found} in {text}");
        }
    }

    #[test]
    fn repeated_submessages_of_requests_are_within_the_bound_three_times() {
        let largest = [
            size_of::<proto::Action>(),
            size_of::<proto::Sidecar>(),
            size_of::<proto::VolumeMount>(),
            size_of::<proto::SecurityGroupRule>(),
            size_of::<proto::CachedDependency>(),
        ];
        // 696 bytes, three times, are 40 bytes more than the bound: the list's old half is freed
        // when it has grown.
        assert!(
            largest
                .into_iter()
                .all(|size| size * 5 / 2 <= ELEMENT_BYTES),
            "{largest:?}"
        );
    }
}
