//! The residue of `down`: whole rows that have no place under the old key, and the values of
//! remaining rows that the old columns cannot express.

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct Residue {
    #[prost(message, repeated, tag = "1")]
    pub(crate) reduced: Vec<ReducedRow>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) suspects: Vec<Suspect>,
}

/// A row that remained, identified by its old key.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct ReducedRow {
    #[prost(int64, required, tag = "1")]
    pub(crate) index: i64,
    #[prost(bool, required, tag = "4")]
    pub(crate) key: bool,
    #[prost(int64, required, tag = "2")]
    pub(crate) presence: i64,
    #[prost(bool, optional, tag = "3")]
    pub(crate) evacuating: Option<bool>,
    /// The container; absent in the residue of earlier builds.
    #[prost(bytes = "vec", optional, tag = "5")]
    pub(crate) instance_guid: Option<Vec<u8>>,
}

/// A row that was removed; its columns in the order in which the migration lists them.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct Suspect {
    #[prost(int64, required, tag = "1")]
    pub(crate) index: i64,
    #[prost(int64, required, tag = "2")]
    pub(crate) presence: i64,
    #[prost(bool, optional, tag = "3")]
    pub(crate) evacuating: Option<bool>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) texts: Vec<SavedText>,
    #[prost(message, repeated, tag = "6")]
    pub(crate) integers: Vec<SavedInteger>,
}

/// The value of a text column; empty for NULL.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct SavedText {
    #[prost(bytes = "vec", optional, tag = "1")]
    pub(crate) value: Option<Vec<u8>>,
}

/// The value of an integer column; empty for NULL.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct SavedInteger {
    #[prost(int64, optional, tag = "1")]
    pub(crate) value: Option<i64>,
}

impl Residue {
    /// The row of this key, if it still has the container.
    pub(crate) fn reduced(
        &self,
        index: i64,
        evacuating: Option<bool>,
        container: &[u8],
    ) -> Option<&ReducedRow> {
        self.reduced.iter().find(|row| {
            let saved = row.instance_guid.as_deref();
            row.index == index
                && Some(row.key) == evacuating
                && saved.is_none_or(|saved| saved == container)
        })
    }
}
