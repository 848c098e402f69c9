//! Conversion between desired LRPs and definitions, whose fields have the same numbers: one is
//! encoded and decoded as the other.

use prost::Message;

use crate::models::{DesiredLrp, LrpDefinition};

impl From<&LrpDefinition> for DesiredLrp {
    /// A desired LRP that has only the fields of the definition.
    fn from(definition: &LrpDefinition) -> Self {
        Self::decode(&definition.encode_to_vec()[..])
            .expect("every field of a definition is one of a desired LRP")
    }
}

impl From<&DesiredLrp> for LrpDefinition {
    /// The current definition of a desired LRP.
    fn from(lrp: &DesiredLrp) -> Self {
        Self::decode(&lrp.encode_to_vec()[..]).expect("other fields of a desired LRP are skipped")
    }
}
