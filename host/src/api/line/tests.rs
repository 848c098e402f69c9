//! The line by its parts: gaps, windows, what a path means at a version, what a translator may call.

use super::*;
use crate::modules::translate::{Method, Next, TranslatorManifest};

/// A translator that is never called.
struct Step(TranslatorManifest);

impl Translate for Step {
    fn manifest(&self) -> &TranslatorManifest {
        &self.0
    }

    fn instances(&self) -> usize {
        1
    }

    fn call(&self, _: &str, _: &[u8], _: Next<'_>) -> Result<Vec<u8>, TranslateError> {
        unreachable!("the line calls nobody")
    }
}

fn version(text: &str) -> ApiVersion {
    ApiVersion::parse(text).unwrap()
}

fn step(serves: &str, onto: &str, methods: &[(&str, &str)], hides: &[&str]) -> Arc<dyn Translate> {
    let methods =
        methods.iter().map(|(name, path)| Method { name: (*name).into(), path: (*path).into(), paged: false });
    Arc::new(Step(TranslatorManifest {
        serves: version(serves),
        onto: version(onto),
        name: format!("{serves}-to-{onto}"),
        summary: String::new(),
        methods: methods.collect(),
        hides: hides.iter().map(|name| (*name).into()).collect(),
        events: false,
    }))
}

/// 0.9 has an old `domains/list`; 0.10 has a thing that 1.1 has not, and lacks `Ping`.
fn line() -> Line {
    let translators = vec![
        step("0.9", "0.10", &[("Domains_0_9", "domains/list")], &["Thing"]),
        step("0.10", "1.1", &[("Thing", "thing")], &["Ping"]),
    ];
    Line::new(translators, version("1.1")).unwrap()
}

fn name(target: Option<Target>) -> Option<(Option<usize>, String)> {
    let step = |target: &Target| match target {
        Target::Translated { step, .. } => Some(*step),
        Target::Native(_) | Target::Stream(_) => None,
    };
    target.map(|target| (step(&target), target.name().to_owned()))
}

fn native(name: &str) -> Option<(Option<usize>, String)> {
    Some((None, name.into()))
}

#[test]
fn a_gap_and_a_wrong_end_are_refused() {
    let gap = vec![step("0.8", "0.9", &[], &[]), step("0.10", "1.1", &[], &[])];
    assert!(matches!(Line::new(gap, version("1.1")), Err(ApiError::Gap { .. })));
    let end = vec![step("0.9", "0.10", &[], &[])];
    assert!(matches!(Line::new(end, version("1.1")), Err(ApiError::End { .. })));
    assert!(Line::new(Vec::new(), version("1.1")).is_ok());
}

#[test]
fn versions_of_the_line_are_served_from_one_major_version_behind_on() {
    let served = |line: Line| names(line.served());
    assert_eq!(served(line()), "0.9, 0.10, 1.1");
    assert_eq!(served(Line::new(Vec::new(), version("1.1")).unwrap()), "1.1");
    let far = vec![step("0.9", "1.2", &[], &[]), step("1.2", "2.3", &[], &[])];
    assert_eq!(served(Line::new(far, version("2.3")).unwrap()), "1.2, 2.3");
}

#[test]
fn a_pin_lowers_the_newest_version_and_must_be_served() {
    let mut pinned = line();
    pinned.pin("0.10").unwrap();
    assert_eq!((names(pinned.served()), pinned.newest()), ("0.9, 0.10".into(), version("0.10")));
    for absent in ["0.8", "0.11", "1.0", "1.2"] {
        let error = line().pin(absent).unwrap_err();
        assert!(error.to_string().contains("serves 0.9, 0.10, 1.1; choose one of these"), "{error}");
    }
    assert!(matches!(line().pin("one"), Err(ApiError::MalformedPin(_))));
}

#[test]
fn a_path_means_what_it_meant_at_the_clients_version() {
    let line = line();
    let at = |at: &str, path: &str| name(line.by_path(version(at), path));
    assert_eq!(at("0.9", "domains/list"), Some((Some(0), "Domains_0_9".into())));
    assert_eq!(at("0.10", "domains/list"), native("Domains"));
    assert_eq!(at("1.1", "domains/list"), native("Domains"));
    assert_eq!(at("0.9", "domains/upsert"), native("UpsertDomain"));
    assert_eq!(at("1.1", "nothing"), None);
}

#[test]
fn what_a_version_does_not_have_is_hidden_from_it_and_from_older_ones() {
    let line = line();
    let at = |at: &str, path: &str| name(line.by_path(version(at), path));
    assert_eq!(at("0.9", "thing"), None);
    assert_eq!(at("0.10", "thing"), Some((Some(1), "Thing".into())));
    assert_eq!(at("1.1", "thing"), None);
    assert_eq!(at("0.9", "ping"), None);
    assert_eq!(at("0.10", "ping"), None);
    assert_eq!(at("1.1", "ping"), native("Ping"));
}

#[test]
fn a_translator_calls_only_what_is_newer_than_itself() {
    let line = line();
    let next = |step, method| name(line.next(step, method).ok());
    assert_eq!(next(0, "Thing"), Some((Some(1), "Thing".into())));
    assert_eq!(next(0, "Domains_0_9"), None);
    assert_eq!(next(0, "Ping"), None);
    assert_eq!(next(1, "Ping"), native("Ping"));
    assert_eq!(next(1, "Thing"), None);
    let reason = line.next(1, "Thing").unwrap_err().reason;
    assert!(reason.contains("0.10-to-1.1") && reason.contains("\"Thing\"") && reason.contains("API 1.1"), "{reason}");
}

#[test]
fn the_newest_revision_of_a_route_has_none_in_its_name_for_diego() {
    let translated = |method: &str| Target::Translated { step: 0, method: method.to_owned(), paged: false };
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
        let line = Line::new(Vec::new(), version("1.1")).unwrap();
        assert_eq!(line.by_path(version("1.1"), path).unwrap().diego_name(), name);
    }
}
