//! Lists by pages: the whole chain runs once per page, and the encoded pages, put one after another,
//! are the list. Owns the order of things: data as it comes, an error once and last.

use std::sync::Arc;

use bytes::Buf;
use prost::encoding::{DecodeContext, WireType, decode_key, skip_field};

use super::{Api, Extent, Request, Run, Target, errors};
use crate::modules::translate::TranslateError;
use crate::store::Key;

/// Every answer has its error here.
const ERROR_FIELD: u32 = 1;

/// A list on its way.
#[derive(Debug)]
pub struct Pages {
    api: Arc<Api>,
    target: Target,
    request: Request,
    /// Read already, not yet given.
    ready: Option<Vec<u8>>,
    state: State,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    After(Option<Key>),
    Done,
}

impl Pages {
    pub(super) fn new(api: Arc<Api>, target: Target, request: Request) -> Self {
        Self { api, target, request, ready: None, state: State::After(None) }
    }

    pub(super) fn starting_with(mut self, page: Vec<u8>) -> Self {
        self.ready = Some(page);
        self
    }

    pub(super) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// The next page, encoded. `None` after the last.
    pub async fn next(&mut self) -> Option<Vec<u8>> {
        if let Some(ready) = self.ready.take() {
            return Some(ready);
        }
        let State::After(after) = std::mem::replace(&mut self.state, State::Done) else { return None };
        let extent = Extent::Page { after };
        let Run { answer, next, .. } = self.api.run(self.target.clone(), self.request.clone(), extent).await;
        match answer.and_then(|answer| error_last(&answer)) {
            Err(fault) => Some(errors::fault(fault)),
            Ok((data, Some(error))) => Some([data, error].concat()),
            Ok((data, None)) => {
                if next.is_some() {
                    self.state = State::After(next);
                }
                Some(data)
            }
        }
    }
}

/// The answer without its error, and the error as it was encoded.
fn error_last(answer: &[u8]) -> Result<(Vec<u8>, Option<Vec<u8>>), TranslateError> {
    let (mut data, mut error) = (Vec::with_capacity(answer.len()), Vec::new());
    let mut rest = answer;
    while rest.has_remaining() {
        let field = rest;
        let number = pass_field(&mut rest).map_err(|error| TranslateError {
            reason: format!("{error}: a translator answered with what is not a message; it must be corrected"),
        })?;
        let field = &field[..field.len() - rest.len()];
        let part = if number == ERROR_FIELD { &mut error } else { &mut data };
        part.extend_from_slice(field);
    }
    Ok((data, (!error.is_empty()).then_some(error)))
}

fn pass_field(rest: &mut &[u8]) -> Result<u32, prost::DecodeError> {
    let (number, wire_type): (u32, WireType) = decode_key(rest)?;
    skip_field(wire_type, number, rest, DecodeContext::default())?;
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_parted_from_the_data_wherever_it_stands() {
        let (data, error) = error_last(&[0x12, 1, 7, 0x0a, 2, 8, 4, 0x12, 0]).unwrap();
        assert_eq!((data, error), (vec![0x12, 1, 7, 0x12, 0], Some(vec![0x0a, 2, 8, 4])));
        assert_eq!(error_last(&[]).unwrap(), (vec![], None));
        assert_eq!(error_last(&[0x0a, 0]).unwrap(), (vec![], Some(vec![0x0a, 0])));
    }

    #[test]
    fn what_is_not_a_message_is_the_translators_fault() {
        for bad in [&[0x12][..], &[0x12, 5, 1], &[0x07], &[0x80]] {
            assert!(error_last(bad).is_err(), "{bad:?} was accepted");
        }
    }
}
