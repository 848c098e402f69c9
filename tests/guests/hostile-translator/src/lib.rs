//! API 1.2-hostile, a side shape of 1.2, which stands beside any line of translators: its event
//! streams fail, once an event has the payload that says so, its list never ends, and its calls use
//! what a chain has of stack and of calls.

wit_bindgen::generate!({ path: "../../../sdk/wit/translator-0.1.0", world: "translator" });

use diego::translator::next;
use diego::translator::types::{Answer, ApiVersion, Method, Verb};

/// The end of a payload for which a stream fails.
const MARKER: &[u8] = b"fail";

/// Bytes of an event, just below what a call may return.
const LARGE_EVENT: usize = 30 << 20;

/// Bytes of a request, which is larger than any of a client.
const LARGE_REQUEST: usize = 16 << 20;

/// Frames on the stack below a call of `next`, for most of what an instance may have.
const FRAMES: u32 = 5_000;

/// Calls the next version from deep in the stack: `Deep` as often as the request says, and then the
/// native `Ping`.
fn deep(frames: u32, request: &[u8]) -> Result<Vec<u8>, Fault> {
    if frames > 0 {
        let answer = deep(std::hint::black_box(frames) - 1, request)?;
        // Not a tail call.
        return Ok(std::hint::black_box(answer));
    }
    match request {
        [] | [0, ..] => next::call("Ping", &[]),
        [further, ..] => next::call("Deep", &[further - 1]),
    }
}

struct Hostile;

impl Guest for Hostile {
    fn describe() -> Manifest {
        let method = |name: &str| Method {
            name: name.into(),
            verb: Verb::Get,
            path: name.to_lowercase(),
            answer: Answer::Events("TaskEventStream_r1".into()),
        };
        let list = Method {
            name: "Spins".into(),
            verb: Verb::Post,
            path: "spins".into(),
            answer: Answer::Pages,
        };
        let call = |name: &str| Method {
            name: name.into(),
            verb: Verb::Post,
            path: name.to_lowercase(),
            answer: Answer::Message,
        };
        Manifest {
            serves: ApiVersion { major: 1, minor: 2 },
            onto: ApiVersion { major: 1, minor: 2 },
            side: Some("hostile".into()),
            name: "hostile".into(),
            summary: "Fails as the name of the method says.".into(),
            methods: [
                "Same", "Twice", "Swells", "Traps", "Loops", "Forges", "Refuses",
            ]
            .map(method)
            .into_iter()
            .chain([
                list,
                call("Once"),
                call("Forever"),
                call("Enlarges"),
                call("Deep"),
                call("Grows"),
                call("Explains"),
                call("EvacuateRunningActualLRP"),
            ])
            .collect(),
            hides: vec![],
        }
    }

    fn call(method: String, request: Vec<u8>) -> Result<Vec<u8>, Fault> {
        match method.as_str() {
            "Once" => next::call("Ping", &request),
            "EvacuateRunningActualLRP" => Err(Fault {
                reason: "fails after the call".into(),
            }),
            "Forever" => loop {
                next::call("Ping", &request)?;
            },
            "Enlarges" => next::call("Ping", &vec![0; LARGE_REQUEST]),
            "Deep" => deep(FRAMES, &request),
            "Grows" => {
                let mut kept = Vec::new();
                loop {
                    kept.push(std::hint::black_box(vec![1_u8; 1 << 20]));
                }
            }
            "Explains" => Err(Fault {
                reason: "a\nline\u{1b}[31m ".repeat(2 << 20),
            }),
            _ => {
                next::call("Tasks_r3", &request)?;
                loop {
                    std::hint::black_box(());
                }
            }
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
            "Swells" => {
                events[0].payload = vec![b'x'; LARGE_EVENT];
                Ok(events)
            }
            "Forges" => {
                events[0].name = "forged\ndata: forged".into();
                Ok(events)
            }
            "Refuses" => Err(Fault {
                reason: "refused on request".into(),
            }),
            _ => Ok(events),
        }
    }
}

export!(Hostile);
