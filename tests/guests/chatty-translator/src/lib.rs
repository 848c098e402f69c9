//! A translator from 0.9 to 0.10 whose method names say how it calls `next`.

wit_bindgen::generate!({ path: "../../../sdk/wit/translator-0.1.0", world: "translator" });

use diego::translator::next;
use diego::translator::types::{Answer, ApiVersion, Method, Verb};
use std::hint::black_box;

struct Chatty;

impl Guest for Chatty {
    fn describe() -> Manifest {
        let method = |name: &str| Method {
            name: name.into(),
            verb: Verb::Post,
            path: format!("{}/do", name.to_lowercase()),
            answer: Answer::Message,
        };
        Manifest {
            serves: ApiVersion { major: 0, minor: 9 },
            onto: ApiVersion {
                major: 0,
                minor: 10,
            },
            side: None,
            name: "chatty".into(),
            summary: "Calls the next version as the method name says.".into(),
            methods: ["Once", "Twice", "Never", "Forever", "Loop", "Trap", "Grow"]
                .map(method)
                .into(),
            hides: vec![],
        }
    }

    fn call(method: String, request: Vec<u8>) -> Result<Vec<u8>, Fault> {
        match method.as_str() {
            "Once" => next::call("Newer", &request),
            "Twice" => {
                let first = next::call("Newer", &request)?;
                next::call("Newer", &first)
            }
            "Never" => Ok(request),
            "Forever" => loop {
                next::call("Newer", &request)?;
            },
            "Loop" => {
                next::call("Newer", &request)?;
                loop {
                    black_box(());
                }
            }
            "Trap" => panic!("trap on request"),
            "Grow" => {
                let mut kept = Vec::new();
                loop {
                    kept.push(black_box(vec![1_u8; 1 << 20]));
                }
            }
            other => Err(Fault {
                reason: format!("no method {other}"),
            }),
        }
    }

    fn events(_method: String, operation: Operation) -> Result<Vec<Event>, Fault> {
        Ok(operation.events)
    }
}

export!(Chatty);
