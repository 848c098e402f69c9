//! API 1.1-acme: a vendor's side shape of API 1.1, which counts domains and has no `cells/list.r1`.

use bbs_sdk::wire::{self, Value};
use bbs_sdk::{ApiVersion, Fault, Next, Translator, TranslatorManifest, export_translator};

/// Field numbers of the domains in an answer, and of the count.
const DOMAINS: u32 = 2;
const COUNT: u32 = 1;

#[derive(Debug)]
pub struct Acme;

impl Translator for Acme {
    fn manifest() -> TranslatorManifest {
        TranslatorManifest::side(ApiVersion::new(1, 2), "acme", "acme")
            .summary("Counts domains")
            .method("CountDomains", "domains/count")
            .handler(count_domains)
            .hides("Cells_r1")
    }
}

fn count_domains(_request: &[u8], next: &dyn Next) -> Result<Vec<u8>, Fault> {
    let domains = wire::get_all(&next.call("Domains", b"")?, DOMAINS)?.len();
    let mut answer = Vec::new();
    wire::append(&mut answer, COUNT, Value::Varint(domains as u64));
    Ok(answer)
}

export_translator!(Acme);
