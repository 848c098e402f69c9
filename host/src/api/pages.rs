//! Paged lists: the whole chain runs once per page, and the concatenated encoded pages are the list. Writes data in page
//! order and an error once, as the last field.

use std::sync::Arc;

use bytes::Buf;
use prost::encoding::{DecodeContext, WireType, decode_key, skip_field};

use super::{Api, CallTarget, Extent, Request, Run, errors};
use crate::modules::translate::TranslateError;
use crate::store::Key;

/// The number of the error field of every response message.
const ERROR_FIELD: u32 = 1;

/// A list that is being read page by page.
#[derive(Debug)]
pub struct Pages {
    api: Arc<Api>,
    target: CallTarget,
    request: Request,
    /// A page that was read and not yet returned.
    ready: Option<Vec<u8>>,
    state: PageState,
}

#[derive(Debug, PartialEq, Eq)]
enum PageState {
    After(Option<Key>),
    Done,
}

impl Pages {
    pub(super) fn new(api: Arc<Api>, target: CallTarget, request: Request) -> Self {
        Self { api, target, request, ready: None, state: PageState::After(None) }
    }

    pub(super) fn starting_with(mut self, page: Vec<u8>) -> Self {
        self.ready = Some(page);
        self
    }

    pub(super) fn is_done(&self) -> bool {
        self.state == PageState::Done
    }

    /// Reads the next page, encoded; `None` after the last.
    pub async fn next(&mut self) -> Option<Vec<u8>> {
        if let Some(ready) = self.ready.take() {
            return Some(ready);
        }
        let PageState::After(after) = std::mem::replace(&mut self.state, PageState::Done) else { return None };
        let extent = Extent::Page { after };
        let Run { answer, next, .. } = self.api.run(self.target.clone(), self.request.clone(), extent).await;
        match answer.and_then(|answer| split_error(&answer)) {
            Err(fault) => Some(errors::fault(fault)),
            Ok((data, Some(error))) => Some([data, error].concat()),
            Ok((data, None)) => {
                if next.is_some() {
                    self.state = PageState::After(next);
                }
                Some(data)
            }
        }
    }
}

/// Splits an encoded answer into the answer without its error field and the encoded error.
fn split_error(answer: &[u8]) -> Result<(Vec<u8>, Option<Vec<u8>>), TranslateError> {
    let (mut data, mut error) = (Vec::with_capacity(answer.len()), Vec::new());
    let mut rest = answer;
    while rest.has_remaining() {
        let field = rest;
        let number = skip_one_field(&mut rest).map_err(|error| TranslateError {
            reason: format!("{error}: the answer of a translator is not a protobuf message; correct the translator"),
        })?;
        let field = &field[..field.len() - rest.len()];
        let part = if number == ERROR_FIELD { &mut error } else { &mut data };
        part.extend_from_slice(field);
    }
    Ok((data, (!error.is_empty()).then_some(error)))
}

fn skip_one_field(rest: &mut &[u8]) -> Result<u32, prost::DecodeError> {
    let (number, wire_type): (u32, WireType) = decode_key(rest)?;
    skip_field(wire_type, number, rest, DecodeContext::default())?;
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_is_split_from_the_data_at_any_position() {
        let (data, error) = split_error(&[0x12, 1, 7, 0x0a, 2, 8, 4, 0x12, 0]).unwrap();
        assert_eq!((data, error), (vec![0x12, 1, 7, 0x12, 0], Some(vec![0x0a, 2, 8, 4])));
        assert_eq!(split_error(&[]).unwrap(), (vec![], None));
        assert_eq!(split_error(&[0x0a, 0]).unwrap(), (vec![], Some(vec![0x0a, 0])));
    }

    #[test]
    fn malformed_answer_of_a_translator_is_an_error() {
        for bad in [&[0x12][..], &[0x12, 5, 1], &[0x07], &[0x80]] {
            assert!(split_error(bad).is_err(), "{bad:?} was accepted");
        }
    }
}
