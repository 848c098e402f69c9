//! A message for residue: of a migration that gives back the colours that an operator has edited.

/// The colour that does not follow from the domain, if there is one.
#[derive(Clone, PartialEq, Eq, bbs_sdk::prost::Message)]
#[prost(prost_path = "bbs_sdk::prost")]
pub struct Residue {
    #[prost(string, optional, tag = "1")]
    pub colour: Option<String>,
}

#[cfg(test)]
mod tests {
    use bbs_sdk::prost::Message;

    use super::*;

    #[test]
    fn empty_colour_differs_from_none() {
        let empty = Residue {
            colour: Some(String::new()),
        };
        assert_eq!(empty.encode_to_vec(), b"\x0a\x00");
        assert_eq!(Residue::default().encode_to_vec(), b"");
    }
}
