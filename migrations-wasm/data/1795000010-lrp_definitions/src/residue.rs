//! The residue of `down`: the ids of a unit.

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct Residue {
    #[prost(bytes = "vec", optional, tag = "1")]
    pub(crate) current: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "2")]
    pub(crate) previous: Option<Vec<u8>>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) instances: Vec<InstanceIds>,
}

/// The ids of one row of `actual_lrps`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct InstanceIds {
    #[prost(int64, required, tag = "1")]
    pub(crate) index: i64,
    #[prost(int64, required, tag = "2")]
    pub(crate) presence: i64,
    /// The instance guid; empty without a container.
    #[prost(bytes = "vec", required, tag = "5")]
    pub(crate) container: Vec<u8>,
    #[prost(bytes = "vec", optional, tag = "3")]
    pub(crate) definition: Option<Vec<u8>>,
    #[prost(bool, optional, tag = "4")]
    pub(crate) uncertain: Option<bool>,
}

impl Residue {
    pub(crate) fn instance(
        &self,
        index: i64,
        presence: i64,
        container: &[u8],
    ) -> Option<&InstanceIds> {
        self.instances.iter().find(|ids| {
            (ids.index, ids.presence, &ids.container[..]) == (index, presence, container)
        })
    }
}
