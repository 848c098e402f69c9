//! Bindings of the contract: one file for each released version of a WIT package, which converts it to the host's own
//! types. Owns the conversion; contains no policy.

pub(super) mod migration_0_1;
pub(super) mod translator_0_1;
