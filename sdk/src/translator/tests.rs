//! The declarations of a manifest, and the dispatch of calls and operations by them.

use super::*;

struct Echo;

impl Translator for Echo {
    fn manifest() -> TranslatorManifest {
        TranslatorManifest::new(ApiVersion::new(0, 9), ApiVersion::new(0, 10), "echo")
            .summary("Answers with its request")
            .method("Same", "same")
            .method("Called_0_9", "called")
            .calls("Called")
            .method("Echo_0_9", "echo")
            .as_newer("Echo")
            .request(|request| Ok([b"<", request].concat()))
            .answer(|answer| Ok([&answer[..], b">"].concat()))
            .paged_method("Twice_0_9", "twice")
            .handler(twice)
            .event_stream("Events_0_9", "events", "Events")
            .by_get()
            .event_stream("Halves_0_9", "halves", "Events")
            .events(|operation| Ok(operation.events.into_iter().step_by(2).collect()))
            .hides("Newer")
    }
}

fn twice(request: &[u8], next: &dyn Next) -> Result<Vec<u8>, Fault> {
    Ok([next.call("First", request)?, next.call("Second", request)?].concat())
}

fn next(method: &str, request: &[u8]) -> Result<Vec<u8>, Fault> {
    Ok([method.as_bytes(), request].concat())
}

fn operation(names: &[&str]) -> Operation {
    let event = |name: &&str| Event {
        name: (*name).to_owned(),
        payload: vec![1],
        cells: None,
    };
    Operation {
        changes: vec![],
        events: names.iter().map(event).collect(),
    }
}

#[test]
fn methods_are_answered_as_declared() {
    let call = |method| Echo::call(method, b"!", &next);
    assert_eq!(call("Same"), Ok(b"Same!".to_vec()));
    assert_eq!(call("Called_0_9"), Ok(b"Called!".to_vec()));
    assert_eq!(call("Echo_0_9"), Ok(b"Echo<!>".to_vec()));
    assert_eq!(call("Twice_0_9"), Ok(b"First!Second!".to_vec()));
}

#[test]
fn undeclared_names_and_names_of_the_other_kind_are_faults() {
    for name in ["Other", "Echo", "Events_0_9"] {
        let fault = Fault::new(format!("{name} is not declared"));
        assert_eq!(Echo::call(name, b"", &next), Err(fault));
    }
    for name in ["Other", "Events", "Echo_0_9", "Twice_0_9"] {
        let fault = Fault::new(format!("{name} is not declared"));
        assert_eq!(Echo::events(name, operation(&[])), Err(fault));
    }
}

#[test]
fn faults_of_conversions_and_of_the_newer_version_are_returned() {
    let manifest = TranslatorManifest::new(ApiVersion::new(0, 9), ApiVersion::new(0, 10), "fails")
        .method("Request", "request")
        .request(|_| Err(Fault::new("request")))
        .method("Answer", "answer")
        .answer(|_| Err(Fault::new("answer")));
    let failing = |_: &str, _: &[u8]| Err(Fault::new("next"));
    assert_eq!(
        manifest.call("Request", b"", &failing),
        Err(Fault::new("request"))
    );
    assert_eq!(
        manifest.call("Answer", b"", &next),
        Err(Fault::new("answer"))
    );
    assert_eq!(
        manifest.call("Answer", b"", &failing),
        Err(Fault::new("next"))
    );
}

#[test]
fn events_pass_through_without_a_conversion() {
    let events = operation(&["a", "b", "c"]).events;
    assert_eq!(
        Echo::events("Events_0_9", operation(&["a", "b", "c"])),
        Ok(events.clone())
    );
    let halves = vec![events[0].clone(), events[2].clone()];
    assert_eq!(
        Echo::events("Halves_0_9", operation(&["a", "b", "c"])),
        Ok(halves)
    );
}

#[test]
fn declarations_apply_to_the_method_added_last() {
    let manifest = Echo::manifest();
    let methods: Vec<_> = manifest
        .methods
        .iter()
        .map(|method| (method.name, method.verb, method.answer))
        .collect();
    let expected = [
        ("Same", Verb::Post, Answer::Message),
        ("Called_0_9", Verb::Post, Answer::Message),
        ("Echo_0_9", Verb::Post, Answer::Message),
        ("Twice_0_9", Verb::Post, Answer::Pages),
        ("Events_0_9", Verb::Get, Answer::Events("Events")),
        ("Halves_0_9", Verb::Post, Answer::Events("Events")),
    ];
    assert_eq!(methods, expected);
    assert_eq!(manifest.hides, ["Echo", "Newer"]);
}

#[test]
#[should_panic(expected = "a method with a handler, calls no newer method")]
fn conversion_of_a_handled_method_panics() {
    let _ = Echo::manifest()
        .method("Handled", "handled")
        .handler(twice)
        .as_newer("Newer");
}

#[test]
#[should_panic(expected = "`events` follows an event stream")]
fn conversion_of_events_of_a_method_panics() {
    let _ = Echo::manifest()
        .method("Method", "method")
        .events(|operation| Ok(operation.events));
}
