//! The contract as the host speaks it: one file per released version of a WIT package, each
//! adapting it to the host's own types. Owns the translation between the two and no policy.

pub(super) mod migration_0_1;
pub(super) mod translator_0_1;
