//! The translator of the SDK's README: an older name of a list.

#[cfg(test)]
mod tests;

use bbs_sdk::{ApiVersion, Fault, Next, Translator, TranslatorManifest, export_translator};

#[derive(Debug)]
pub struct Older;

impl Translator for Older {
    fn manifest() -> TranslatorManifest {
        TranslatorManifest::new(ApiVersion::new(0, 9), ApiVersion::new(0, 10), "api-0-9")
            .summary("Serves API 0.9")
            .paged_method("ListThings_0_9", "things/list")
    }

    fn call(method: &str, request: &[u8], next: &dyn Next) -> Result<Vec<u8>, Fault> {
        match method {
            // Once, several times, or not at all.
            "ListThings_0_9" => next.call("ListThings", request),
            other => Err(Fault::new(format!("{other} is not declared"))),
        }
    }
}

export_translator!(Older);
