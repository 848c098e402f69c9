//! The import of Diego's etcd store into an empty relational database, once. Owns when it happens,
//! its order, and its report; how etcd is read is decided in `etcd`, and the imported database is
//! migrated and served as any other.
//!
//! The store is read twice. The first reading writes nothing: it decodes every record, counts, and
//! refuses what cannot be imported. The second one fills the tables of [`VERSION`]. Both have to
//! show the same store, and so does a last look before the mark that ends an older BBS is written
//! into etcd.

mod classify;
mod copy;
mod due;
mod error;
mod fingerprint;
mod mark;
mod report;
mod rows;
mod state;
mod survey;

pub use copy::copy;
pub use due::{Due, due};
pub use error::ImportError;
pub use mark::mark;
pub use report::{ImportReport, LeafCounts, LeftOut};
pub use state::{ImportPhase, ImportState, read as state, write_phase};
pub use survey::{Reimport, survey};

use bbs_lens::layout::manifest::DataVersion;

/// The data version that is imported at: the oldest that has a column for everything in etcd's
/// records. Diego's first one, 1461790966, has none for placement tags and limits of processes, and
/// cuts failure texts and root file systems at 255 characters.
pub const VERSION: DataVersion = 1_528_928_964;

/// Why a desired LRP in the other of the two layouts is foreign.
const SUPERSEDED: &str = "left over from another layout of the store; Diego has not read it since";
