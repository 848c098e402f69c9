//! A translator from 1.0 to 1.1 whose event streams fail, once an event has the payload that says so, and whose list never ends.

wit_bindgen::generate!({ path: "../../../sdk/wit/translator-0.1.0", world: "translator" });

use diego::translator::next;
use diego::translator::types::{Answer, ApiVersion, Method, Verb};

/// The end of a payload for which a stream fails.
const MARKER: &[u8] = b"fail";

struct EventStreams;

impl Guest for EventStreams {
    fn describe() -> Manifest {
        let method = |name: &str| Method {
            name: name.into(),
            verb: Verb::Get,
            path: format!("/v1/{}", name.to_lowercase()),
            answer: Answer::Events("TaskEventStream_r1".into()),
        };
        let list = Method { name: "Spins".into(), verb: Verb::Post, path: "/v1/spins".into(), answer: Answer::Pages };
        Manifest {
            serves: ApiVersion { major: 1, minor: 0 },
            onto: ApiVersion { major: 1, minor: 1 },
            side: None,
            name: "event-streams".into(),
            summary: "Fails as the name of the event stream says.".into(),
            methods: ["Same", "Twice", "Traps", "Loops", "Forges", "Refuses"]
                .map(method)
                .into_iter()
                .chain([list])
                .collect(),
            hides: vec![],
        }
    }

    fn call(_method: String, request: Vec<u8>) -> Result<Vec<u8>, Fault> {
        next::call("Tasks_r3", &request)?;
        loop {
            std::hint::black_box(());
        }
    }

    fn events(method: String, operation: Operation) -> Result<Vec<Event>, Fault> {
        let mut events = operation.events;
        if method == "Twice" {
            let again = events.clone();
            events.extend(again);
        }
        if events.iter().all(|event| !event.payload.ends_with(MARKER)) {
            return Ok(events);
        }
        match method.as_str() {
            "Traps" => panic!("trap on request"),
            "Loops" => loop {
                std::hint::black_box(());
            },
            "Forges" => {
                events[0].name = "forged\ndata: forged".into();
                Ok(events)
            }
            "Refuses" => Err(Fault { reason: "refused on request".into() }),
            _ => Ok(events),
        }
    }
}

export!(EventStreams);
