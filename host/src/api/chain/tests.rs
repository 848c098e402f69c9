//! Gaps, served versions, what a path resolves to at a version, and what a translator may call.

use bbs_modules::translate::{ChangedRecord, TranslatedCall, TranslatedEvent, TranslatorManifest};
use bytes::Bytes;
use futures_util::future::BoxFuture;

use super::*;

/// A translator that is not called.
struct StubTranslator(TranslatorManifest);

impl Translate for StubTranslator {
    fn manifest(&self) -> &TranslatorManifest {
        &self.0
    }

    fn instances(&self) -> usize {
        1
    }

    fn call(&self, _: &str, _: Bytes) -> Box<dyn TranslatedCall + '_> {
        unreachable!("resolving calls no translator")
    }

    fn events(
        &self,
        _: &str,
        _: &Arc<[ChangedRecord]>,
        _: Vec<TranslatedEvent>,
    ) -> BoxFuture<'_, Result<Vec<TranslatedEvent>, TranslateError>> {
        unreachable!("resolving calls no translator")
    }
}

fn version(text: &str) -> ApiVersion {
    ApiVersion::parse(text).unwrap()
}

fn step(serves: &str, onto: &str, methods: &[(&str, &str)], hides: &[&str]) -> Arc<dyn Translate> {
    let methods = methods.iter().map(|(name, path)| Method {
        name: (*name).into(),
        verb: Verb::Post,
        path: (*path).into(),
        answer: AnswerForm::Message,
    });
    Arc::new(StubTranslator(TranslatorManifest {
        serves: version(serves),
        onto: version(onto),
        name: format!("{serves}-to-{onto}"),
        summary: String::new(),
        methods: methods.collect(),
        hides: hides.iter().map(|name| (*name).into()).collect(),
    }))
}

/// A translator with one event stream, at `GET events`.
fn streams(serves: &str, onto: &str, name: &str, newer: &str) -> Arc<dyn Translate> {
    let name = name.to_owned();
    let path = "events".to_owned();
    let answer = AnswerForm::Events(newer.to_owned());
    let methods = vec![Method {
        name,
        verb: Verb::Get,
        path,
        answer,
    }];
    let manifest = step(serves, onto, &[], &[]).manifest().clone();
    Arc::new(StubTranslator(TranslatorManifest {
        methods,
        ..manifest
    }))
}

/// 0.9 has an old `domains/list`; 0.10 has a `Thing` that 1.1 does not have, and hides `Ping`.
fn chain() -> TranslatorChain {
    let translators = vec![
        step(
            "0.9",
            "0.10",
            &[("Domains_0_9", "domains/list")],
            &["Thing"],
        ),
        step("0.10", "1.1", &[("Thing", "thing")], &["Ping"]),
    ];
    TranslatorChain::new(translators).unwrap()
}

fn name(target: Option<CallTarget>) -> Option<(Option<usize>, String)> {
    let step = |target: &CallTarget| match target {
        CallTarget::Translated { step, .. } => Some(*step),
        CallTarget::Native { .. } | CallTarget::Stream(_) => None,
    };
    target.map(|target| (step(&target), target.name().to_owned()))
}

fn native(name: &str) -> Option<(Option<usize>, String)> {
    Some((None, name.into()))
}

#[test]
fn gap_and_wrong_end_are_rejected() {
    let gap = vec![step("0.8", "0.9", &[], &[]), step("0.10", "1.1", &[], &[])];
    assert!(matches!(
        TranslatorChain::new(gap),
        Err(ApiError::Gap { .. })
    ));
    let end = vec![step("0.9", "0.10", &[], &[])];
    assert!(matches!(
        TranslatorChain::new(end),
        Err(ApiError::End { .. })
    ));
    assert!(TranslatorChain::new(Vec::new()).is_ok());
}

#[test]
fn versions_from_one_major_version_below_the_newest_one_are_served() {
    let served = |chain: TranslatorChain| joined(chain.served());
    assert_eq!(served(chain()), "0.9, 0.10, 1.1, 1.2");
    assert_eq!(
        served(TranslatorChain::new(Vec::new()).unwrap()),
        "1.1, 1.2"
    );
    let oldest = ["0.9", "1.2", "2.3"].map(|newest| oldest_served(version(newest)).to_string());
    assert_eq!(oldest, ["0.0", "0.0", "1.0"]);
}

#[test]
fn side_shape_is_served_by_its_version_alone() {
    let translators = vec![
        step(
            "1.0-acme",
            "1.0",
            &[("Ping_acme", "/v1/ping"), ("Thing_acme", "thing")],
            &["Things"],
        ),
        step("0.9", "1.0", &[("Domains_0_9", "domains/list")], &[]),
        step("1.0", "1.1", &[("Things", "things")], &[]),
        step("1.1-other", "1.1", &[], &["Ping"]),
        step("1.2-new", "1.2", &[], &["Ping"]),
    ];
    let mut chain = TranslatorChain::new(translators).unwrap();
    assert_eq!(
        joined(chain.served()),
        "0.9, 1.0, 1.1, 1.2, 1.0-acme, 1.1-other, 1.2-new"
    );
    let at = |chain: &TranslatorChain, at: &str, path: &str| {
        name(chain.by_path(version(at), Verb::Post, path))
    };
    assert_eq!(
        at(&chain, "1.0-acme", "ping"),
        Some((Some(2), "Ping_acme".into()))
    );
    assert_eq!(at(&chain, "1.0-acme", "things"), None, "it is hidden");
    assert_eq!(
        name(chain.next(2, "Things").ok()),
        Some((Some(1), "Things".into())),
        "the version that it is a shape of"
    );
    assert_eq!(at(&chain, "1.0-acme", "domains/list"), native("Domains"));
    assert_eq!(at(&chain, "0.9", "thing"), None);
    assert_eq!(at(&chain, "1.1-other", "ping"), None);
    let status = ["1.1-other", "1.2-new"]
        .map(|version| at(&chain, version, "desired_lrp/update_status").is_some());
    assert_eq!(status, [false, true], "the version that it is a shape of");
    assert_eq!(
        [0, 1, 2, 3, 4].map(|step| chain.rank(step)),
        [3, 4, 0, 1, 2]
    );
    assert_eq!(
        name(
            chain
                .by_diego_path(Verb::Post, "ping")
                .map(|(_, target)| target)
        ),
        native("Ping"),
        "no side shape"
    );
    assert_eq!(
        name(
            chain
                .by_diego_path(Verb::Post, "thing")
                .map(|(_, target)| target)
        ),
        None,
        "no side shape"
    );
    chain.pin("1.0").unwrap();
    assert_eq!(joined(chain.served()), "0.9, 1.0, 1.0-acme");
    let lost = vec![step("1.0-acme", "1.0", &[], &[])];
    assert!(matches!(
        TranslatorChain::new(lost),
        Err(ApiError::SideGap { .. })
    ));
}

#[test]
fn what_the_newer_version_lacks_can_neither_be_hidden_nor_translated() {
    let hides = vec![step("1.0", "1.1", &[], &["Absent"])];
    assert!(matches!(
        TranslatorChain::new(hides),
        Err(ApiError::Hides { .. })
    ));
    for (newer, is_stream) in [
        ("TaskEventStream_r1", true),
        ("Ping", false),
        ("Absent", false),
    ] {
        let chain = TranslatorChain::new(vec![streams("1.0", "1.1", "Events", newer)]);
        assert_eq!(
            chain
                .as_ref()
                .err()
                .is_some_and(|error| matches!(error, ApiError::Source { .. })),
            !is_stream
        );
    }
}

#[test]
fn event_stream_is_made_of_the_streams_of_newer_versions() {
    let translators = vec![
        streams("0.9", "1.0", "Oldest", "Old"),
        streams("1.0", "1.1", "Old", "TaskEventStream_r1"),
    ];
    let chain = TranslatorChain::new(translators).unwrap();
    let target = chain.by_path(version("0.9"), Verb::Get, "events").unwrap();
    let CallTarget::Stream(StreamTarget::Translated { step: 0, newer, .. }) = &target else {
        panic!("{target:?}")
    };
    assert!(
        matches!(&**newer, StreamTarget::Translated { step: 1, .. }),
        "{newer:?}"
    );
    assert_eq!(
        (target.name(), newer.native()),
        ("Oldest", (Stream::Tasks, NativeVersion::Diego))
    );
    assert_eq!(
        chain.by_path(version("0.9"), Verb::Post, "events"),
        None,
        "another verb"
    );
    let next = chain.by_path(version("1.0"), Verb::Get, "events").unwrap();
    assert_eq!(next.name(), "Old");
}

#[test]
fn pin_lowers_the_newest_version_and_must_be_a_served_version() {
    let mut pinned = chain();
    pinned.pin("0.10").unwrap();
    assert_eq!(joined(pinned.served()), "0.9, 0.10");
    for absent in ["0.8", "0.11", "1.0", "1.3"] {
        let error = chain().pin(absent).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("serves 0.9, 0.10, 1.1, 1.2; choose one of these"),
            "{error}"
        );
    }
    assert!(matches!(chain().pin("one"), Err(ApiError::MalformedPin(_))));
}

#[test]
fn path_resolves_to_the_method_of_the_clients_version() {
    let chain = chain();
    let at = |at: &str, path: &str| name(chain.by_path(version(at), Verb::Post, path));
    assert_eq!(
        at("0.9", "domains/list"),
        Some((Some(0), "Domains_0_9".into()))
    );
    assert_eq!(at("0.10", "domains/list"), native("Domains"));
    assert_eq!(at("1.1", "domains/list"), native("Domains"));
    assert_eq!(at("0.9", "domains/upsert"), native("UpsertDomain"));
    assert_eq!(at("1.1", "nothing"), None);
}

#[test]
fn hidden_method_is_hidden_from_its_version_and_older_ones() {
    let chain = chain();
    let at = |at: &str, path: &str| name(chain.by_path(version(at), Verb::Post, path));
    assert_eq!(at("0.9", "thing"), None);
    assert_eq!(at("0.10", "thing"), Some((Some(1), "Thing".into())));
    assert_eq!(at("1.1", "thing"), None);
    assert_eq!(at("0.9", "ping"), None);
    assert_eq!(at("0.10", "ping"), None);
    assert_eq!(at("1.1", "ping"), native("Ping"));
}

#[test]
fn path_without_a_version_is_of_the_newest_version_or_of_an_older_one_of_diego() {
    let translators = || {
        let own = [
            ("Thing", "thing"),
            ("Domains_0_9", "/v1/domains/list"),
            ("Both_r0", "/v1/both"),
        ];
        vec![
            step("0.9", "1.0", &own, &[]),
            step(
                "1.0",
                "1.1",
                &[("Both", "/v1/both"), ("Ping_r0", "/v1/ping.r0")],
                &["Ping"],
            ),
        ]
    };
    let mut chain = TranslatorChain::new(translators()).unwrap();
    let at = |chain: &TranslatorChain, path: &str| {
        name(
            chain
                .by_diego_path(Verb::Post, path)
                .map(|(_, target)| target),
        )
    };
    assert_eq!(at(&chain, "ping"), native("Ping"));
    assert_eq!(at(&chain, "ping.r0"), Some((Some(1), "Ping_r0".into())));
    assert_eq!(
        chain.by_diego_path(Verb::Post, "ping.r0").unwrap().0,
        version("1.0")
    );
    assert_eq!(
        chain.by_diego_path(Verb::Post, "ping").unwrap().0,
        version("1.1"),
        "Diego's, and not the newest one"
    );
    assert_eq!(
        at(&chain, "desired_lrp/update_status"),
        None,
        "of a newer version"
    );
    assert_eq!(
        at(&chain, "domains/list"),
        native("Domains"),
        "the newest one"
    );
    assert_eq!(
        at(&chain, "both"),
        Some((Some(1), "Both".into())),
        "the newest one that has it"
    );
    assert_eq!(at(&chain, "thing"), None, "not a path of Diego's");
    assert_eq!(
        name(chain.by_path(version("0.9"), Verb::Post, "both")),
        Some((Some(0), "Both_r0".into()))
    );
    assert_eq!(
        name(chain.by_path(version("1.0"), Verb::Post, "ping.r0")),
        Some((Some(1), "Ping_r0".into()))
    );
    assert_eq!(
        name(chain.by_path(version("1.1"), Verb::Post, "ping.r0")),
        None
    );
    chain.pin("1.0").unwrap();
    assert_eq!(
        (at(&chain, "ping"), at(&chain, "ping.r0")),
        (None, Some((Some(1), "Ping_r0".into())))
    );
    chain.pin("0.9").unwrap();
    assert_eq!(
        (at(&chain, "ping.r0"), at(&chain, "thing")),
        (
            Some((Some(1), "Ping_r0".into())),
            Some((Some(0), "Thing".into()))
        )
    );
}

#[test]
fn translator_calls_only_newer_methods() {
    let chain = chain();
    let next = |step, method| name(chain.next(step, method).ok());
    assert_eq!(next(0, "Thing"), Some((Some(1), "Thing".into())));
    assert_eq!(next(0, "Domains_0_9"), None);
    assert_eq!(next(0, "Ping"), native("Ping"), "hidden from clients alone");
    assert_eq!(next(1, "Ping"), native("Ping"));
    assert_eq!(next(1, "Thing"), None);
    let reason = chain.next(1, "Thing").unwrap_err().reason;
    assert!(
        reason.contains("0.10-to-1.1")
            && reason.contains("\"Thing\"")
            && reason.contains("API 1.1"),
        "{reason}"
    );
    let long = "\x7f".repeat(LONGEST_NAME + 1);
    let reason = chain.next(1, &long).unwrap_err().reason;
    assert!(
        reason.contains("a name of 201 bytes") && !reason.contains("7f"),
        "{reason}"
    );
}

#[test]
fn newest_revision_of_a_route_has_no_suffix_in_diegos_name() {
    let translated = |method: &str| CallTarget::Translated {
        step: 0,
        method: method.to_owned(),
        paged: false,
    };
    for (method, name) in [
        ("StartActualLRP", "StartActualLRP_r0"),
        ("DesiredLRPs_r2", "DesiredLRPs_r2"),
        ("ActualLRPGroups", "ActualLRPGroups"),
        ("CreateDesiredLRP_0_9", "CreateDesiredLRP_0_9"),
    ] {
        assert_eq!(translated(method).diego_name(), name);
    }
    for (path, name) in [
        ("desired_lrps/list.r3", "DesiredLRPs"),
        ("cells/list.r1", "Cells"),
        ("actual_lrps/start.r1", "StartActualLRP"),
        ("actual_lrps/claim", "ClaimActualLRP"),
        ("events/tasks.r1", "TaskEventStream"),
    ] {
        let chain = TranslatorChain::new(Vec::new()).unwrap();
        assert_eq!(
            chain
                .by_path(version("1.1"), Verb::Post, path)
                .unwrap()
                .diego_name(),
            name
        );
    }
}

#[test]
fn chain_of_more_translators_than_a_run_may_have_is_refused() {
    let chain = |length: u32| {
        let version = |minor| {
            if minor == length {
                "1.1".to_owned()
            } else {
                format!("0.{minor}")
            }
        };
        let steps = (0..length).map(|minor| step(&version(minor), &version(minor + 1), &[], &[]));
        TranslatorChain::new(steps.collect()).map(|chain| chain.steps())
    };
    assert_eq!(chain(32), Ok(32));
    assert_eq!(chain(33), Err(ApiError::TooLong { translators: 33 }));
}
