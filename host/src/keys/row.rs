//! A row with sealed texts, before and after they are sealed again.

use bbs_encryption::{EncryptionError, Keyring, header};

use bbs_units::UnitKey;

/// A row as it was read, with at least one text that is not under the active key.
#[derive(Debug)]
pub(super) struct StaleRow {
    pub key: UnitKey,
    /// In the order of the table's sealed columns.
    pub texts: Vec<Option<Vec<u8>>>,
}

/// A row with its new texts.
#[derive(Debug)]
pub(super) struct ResealedRow {
    pub key: UnitKey,
    /// In the order of the table's sealed columns; `None` where a column stays as it is.
    pub changes: Vec<Option<ResealedText>>,
}

/// A re-sealed text.
#[derive(Debug)]
pub(super) struct ResealedText {
    /// The unique prefix of the old text. The column is overwritten only if it still has this
    /// prefix.
    pub identity: String,
    pub text: String,
}

impl StaleRow {
    /// The changes of a [`ResealedRow`]: new texts for those that are not under the active key. NULL
    /// and empty texts, which Diego writes, stay as they are.
    ///
    /// # Errors
    /// One of the texts does not open; the row stays as it is.
    pub(super) fn reseal(
        &self,
        keyring: &Keyring,
    ) -> Result<Vec<Option<ResealedText>>, EncryptionError> {
        let change = |text: &Option<Vec<u8>>| {
            let Some(text) = text.as_deref().filter(|text| !text.is_empty()) else {
                return Ok(None);
            };
            if header::label_of(text)? == keyring.active_label() {
                return Ok(None);
            }
            let identity = header::identity(text)?.to_owned();
            let text = String::from_utf8(keyring.reseal(text)?).expect("sealed text is ASCII");
            Ok(Some(ResealedText { identity, text }))
        };
        self.texts.iter().map(change).collect()
    }
}

#[cfg(test)]
mod tests {
    use bbs_lens::layout::schema::Sealing;

    use super::*;

    #[test]
    fn row_with_an_unreadable_text_is_not_resealed() {
        let keys = Keyring::new([("old", "first"), ("new", "second")], "new").unwrap();
        let only_old = Keyring::new([("old", "first")], "old").unwrap();
        let sealed = |keys: &Keyring| keys.seal(Sealing::Sealed, b"plain");
        let row = |texts| StaleRow {
            key: UnitKey::text("g"),
            texts,
        };
        let resealed = row(vec![
            Some(sealed(&only_old)),
            Some(sealed(&keys)),
            None,
            Some(Vec::new()),
        ]);
        let changes = resealed.reseal(&keys).unwrap();
        assert_eq!(
            changes.iter().map(Option::is_some).collect::<Vec<_>>(),
            [true, false, false, false]
        );
        let unreadable = row(vec![Some(sealed(&only_old)), Some(b"02/w==".to_vec())]);
        assert_eq!(
            unreadable.reseal(&keys).unwrap_err(),
            EncryptionError::Truncated { length: 1 }
        );
    }
}
