//! What `bbs --version` prints: which source the executable was built from, and which versions of API and data it
//! speaks by itself.

use std::sync::LazyLock;

use crate::api;
use crate::store;

/// The first line is the version alone, as scripts expect it.
pub(super) static LONG: LazyLock<String> = LazyLock::new(|| {
    let api = api::NATIVE;
    // The window of a host: its own major version and the one before.
    let oldest = api.major.saturating_sub(1);
    format!(
        "{} (commit {})\n\
         API version  {api}, and back to {oldest}.0 as far as the modules folder has translators\n\
         data version {}, and any other that the modules folder migrates to or from",
        env!("CARGO_PKG_VERSION"),
        env!("BBS_COMMIT"),
        store::NATIVE,
    )
});
