//! The versions of every release that `releases.toml` names, and which versions are in no release
//! yet.

use std::collections::BTreeMap;

use bbs::testing::modules::releases::{self, Release};
use bbs::testing::modules::translate::ApiVersion;

use super::{FingerprintKind, Subject};
use crate::harness::workspace;

fn all() -> Vec<Release> {
    let path = workspace().join("migrations-wasm/releases.toml");
    releases::parse(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The versions of each release but the one in development.
pub(super) fn descriptions() -> BTreeMap<Subject, String> {
    let released = all().into_iter().filter(|release| !release.in_development);
    let described = released.map(|release| {
        let Release {
            name,
            data,
            api,
            in_development: _,
        } = release;
        let subject = Subject {
            kind: FingerprintKind::Release,
            version: name,
            name: "versions".to_owned(),
        };
        (subject, format!("data {data} API {api}\n"))
    });
    described.collect()
}

/// The newest versions that a release has. Those above are in development.
#[derive(Debug)]
pub(super) struct Frozen {
    pub(super) data: u64,
    pub(super) api: ApiVersion,
}

impl Frozen {
    pub(super) fn of_this_repository() -> Self {
        let released: Vec<_> = all()
            .into_iter()
            .filter(|release| !release.in_development)
            .collect();
        let data = released.iter().map(|release| release.data).max();
        let api = released.iter().map(|release| release.api).max();
        Self {
            data: data.expect("a release"),
            api: api.expect("a release"),
        }
    }

    /// Whether something is part of a release.
    pub(super) fn has(&self, subject: &Subject) -> bool {
        let version = &subject.version;
        match subject.kind {
            FingerprintKind::Method | FingerprintKind::Message | FingerprintKind::Enumeration => {
                ApiVersion::try_from(version.clone()).expect("a version of the API") <= self.api
            }
            FingerprintKind::Table => version.parse::<u64>().expect("a data version") <= self.data,
            FingerprintKind::Release => true,
        }
    }
}
