//! Bounds on what clients may write, so that each migration, check, list and translator can carry
//! what the API has accepted: a unit, which is all rows of one guid, fits into half of a module's
//! memory.

/// Most instances of one LRP, and so the bound of the indices of new rows. Diego has no such bound.
/// Each index has up to three rows of some hundred bytes; far above what a platform runs of one
/// app, and few enough for one unit.
pub const INSTANCES: i32 = 10_000;

/// Greatest depth of nested actions. Usual decoders of protobuf read at most 100 nested messages, of
/// which an action takes two. The other 20 are for the fields of the innermost action, for the
/// wrappers that a translator adds, and for the record, answer or event around them.
pub const ACTION_DEPTH: usize = 40;

/// Largest text of one write of a record, in bytes as stored: a new record, or the columns that an
/// update changes. Sealed text takes four bytes for three, so this is an environment of 3.9 MB.
/// Updates of single columns add up to a few such writes, which with the instances fill the half of
/// a module's memory.
pub const WRITE_BYTES: usize = 5 << 20;

/// Largest text of the definitions of one LRP that are not the current one, in bytes as stored.
/// Above it, the next update deletes archived ones; the previous one is kept whatever its size. A migration to
/// a layout without definitions saves all of them as residue of one unit.
pub const ARCHIVE_BYTES: u64 = 8 << 20;

/// Largest text of all instances of one LRP, in bytes as stored. [`ALWAYS_ACCEPTED_BYTES`] are
/// beside it.
pub const INSTANCES_BYTES: usize = 12 << 20;

/// An instance of at most this size is accepted without adding up those beside it, if its index is
/// below [`ALWAYS_ACCEPTED_INDEX`].
pub const ALWAYS_ACCEPTED_BYTES: usize = 16 << 10;

/// See [`ALWAYS_ACCEPTED_BYTES`].
pub const ALWAYS_ACCEPTED_INDEX: i32 = 64;

/// An instance of at most this size is accepted at any index.
pub const SMALL_INSTANCE_BYTES: usize = 400;
