//! The output of `bbs --version`: the commit of the source, and the native API and data versions.

use std::sync::LazyLock;

use crate::api;
use crate::store;

/// The first line is the version, which scripts parse.
pub(super) static LONG: LazyLock<String> = LazyLock::new(|| {
    let api = api::NATIVE;
    // A host serves its own major version and the one before.
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
