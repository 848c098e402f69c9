//! The trait that an author implements for a translator: the older API in terms of the next newer
//! one. Independent of transport and paging: a call takes and returns bytes.

/// A translator between two neighbouring versions of the API.
pub trait Translator {
    /// The declarations of the translator. Has to return the same value each time.
    fn manifest() -> TranslatorManifest;

    /// Answers a method of the older API by calling the newer one once, several times, or not at
    /// all.
    ///
    /// # Errors
    /// If there is no answer; an error that the client should see is an ordinary response.
    fn call(method: &str, request: &[u8], next: &dyn Next) -> Result<Vec<u8>, Fault>;

    /// The events that subscribers of one of its [event streams](TranslatorManifest::event_stream)
    /// receive for an operation, in order. Called once for all subscribers. By default the newer
    /// API's.
    ///
    /// # Errors
    /// If the operation cannot be translated. The streams of all subscribers of the method end, and
    /// they connect again.
    fn events(method: &str, operation: Operation) -> Result<Vec<Event>, Fault> {
        let _ = method;
        Ok(operation.events)
    }
}

/// The next newer version of the API: the next translator, or the host's handlers. Tests pass a
/// closure.
pub trait Next {
    /// Calls a method of the newer API.
    ///
    /// # Errors
    /// If the newer version does not answer.
    fn call(&self, method: &str, request: &[u8]) -> Result<Vec<u8>, Fault>;
}

impl<F: Fn(&str, &[u8]) -> Result<Vec<u8>, Fault>> Next for F {
    fn call(&self, method: &str, request: &[u8]) -> Result<Vec<u8>, Fault> {
        self(method, request)
    }
}

/// A call failed without an answer. An error that the client should see is an ordinary response
/// with its error field set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Fault {
    /// What went wrong.
    pub reason: String,
}

impl Fault {
    /// A fault with this reason.
    pub fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
        }
    }
}

impl From<crate::wire::WireError> for Fault {
    fn from(error: crate::wire::WireError) -> Self {
        Self::new(error.to_string())
    }
}

/// A version of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ApiVersion {
    /// The major version.
    pub major: u32,
    /// The minor version.
    pub minor: u32,
}

impl ApiVersion {
    /// The version `major.minor`.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }
}

/// The HTTP verb of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are HTTP's")]
pub enum Verb {
    Post,
    Get,
}

/// What a method answers with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// One message.
    Message,
    /// A list, which the host requests page by page.
    Pages,
    /// Server-sent events: those of this method of the newer version, through
    /// [`Translator::events`].
    Events(String),
}

/// A method of the older API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Method {
    /// The name, with the revision if there is one, such as `ListDesiredLRPs_0_9`.
    pub name: String,
    /// The verb of its requests.
    pub verb: Verb,
    /// The path below the root of its version, such as `things/list` for `/v0.9/things/list`. With
    /// `/v1/` in front, it is answered without a version too, as Diego's clients call it.
    pub path: String,
    /// What it answers with.
    pub answer: Answer,
}

/// The declarations of a translator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranslatorManifest {
    /// The version that its clients use.
    pub serves: ApiVersion,
    /// The newer version in terms of which it is written; for a side shape, the same version.
    pub onto: ApiVersion,
    /// The name of the side shape that its clients use; `None` for a version of the line.
    pub side: Option<String>,
    /// Lower-case words joined by `-`.
    pub name: String,
    /// One line for operators.
    pub summary: String,
    /// The methods that it answers; all others pass through.
    pub methods: Vec<Method>,
    /// Methods of the newer version that clients of the older one do not have. The translator may
    /// call them.
    pub hides: Vec<String>,
}

impl TranslatorManifest {
    /// A manifest without methods.
    pub fn new(serves: ApiVersion, onto: ApiVersion, name: &str) -> Self {
        Self {
            serves,
            onto,
            side: None,
            name: name.to_owned(),
            summary: String::new(),
            methods: Vec::new(),
            hides: Vec::new(),
        }
    }

    /// A manifest without methods of a side shape of a version: what a vendor's clients see, such
    /// as `/v1.1-acme/`. `side` is up to 16 lower-case letters and digits.
    pub fn side(of: ApiVersion, side: &str, name: &str) -> Self {
        Self {
            side: Some(side.to_owned()),
            ..Self::new(of, of, name)
        }
    }

    /// Sets the one-line description for operators.
    #[must_use]
    pub fn summary(mut self, line: &str) -> Self {
        self.summary = line.to_owned();
        self
    }

    /// Adds a method that this translator answers at this [path](Method::path).
    #[must_use]
    pub fn method(self, name: &str, path: &str) -> Self {
        self.with(name, path, Answer::Message)
    }

    /// Adds a method that this translator answers with a list, one page at a time, at this
    /// [path](Method::path).
    #[must_use]
    pub fn paged_method(self, name: &str, path: &str) -> Self {
        self.with(name, path, Answer::Pages)
    }

    /// Adds an event stream at this [path](Method::path): that of method `newer` of the newer
    /// version, each operation through [`Translator::events`].
    #[must_use]
    pub fn event_stream(self, name: &str, path: &str, newer: &str) -> Self {
        self.with(name, path, Answer::Events(newer.to_owned()))
    }

    fn with(mut self, name: &str, path: &str, answer: Answer) -> Self {
        self.methods.push(Method {
            name: name.to_owned(),
            verb: Verb::Post,
            path: path.to_owned(),
            answer,
        });
        self
    }

    /// The method added last is requested by `GET` instead of `POST`.
    ///
    /// # Panics
    /// If no method was added.
    #[must_use]
    pub fn by_get(mut self) -> Self {
        self.methods
            .last_mut()
            .expect("`by_get` follows a method")
            .verb = Verb::Get;
        self
    }

    /// Hides a method of the newer version from clients of the older one. The translator may call
    /// it.
    #[must_use]
    pub fn hides(mut self, name: &str) -> Self {
        self.hides.push(name.to_owned());
        self
    }
}

/// An event as a subscriber receives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The event's name.
    pub name: String,
    /// The encoded message.
    pub payload: Vec<u8>,
    /// The ids of the cells that it concerns; `None` if it concerns every subscriber. A subscriber
    /// that names a cell receives only events that concern that cell.
    pub cells: Option<Vec<Vec<u8>>>,
}

/// A record before and after an operation, as messages of the host's version of the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordChange {
    /// The message's name: `DesiredLRP`, `ActualLRP` or `Task`.
    pub message: String,
    /// The message before; `None` if the operation created it.
    pub before: Option<Vec<u8>>,
    /// The message after; `None` if the operation removed it.
    pub after: Option<Vec<u8>>,
}

/// The effects of one operation on a desired LRP, on the instances at one index, or on a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// The changed records; for instances, all rows at the index, also those that did not change.
    pub changes: Vec<RecordChange>,
    /// The newer API's events, in order.
    pub events: Vec<Event>,
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Echo;

    impl Translator for Echo {
        fn manifest() -> TranslatorManifest {
            TranslatorManifest::new(ApiVersion::new(0, 9), ApiVersion::new(0, 10), "echo")
                .summary("Answers what it is asked")
                .method("Echo_0_9", "echo")
                .paged_method("List_0_9", "list")
                .hides("Newer")
        }

        fn call(method: &str, request: &[u8], next: &dyn Next) -> Result<Vec<u8>, Fault> {
            match method {
                "Echo_0_9" => next.call("Echo", request),
                other => Err(Fault::new(format!("no method {other}"))),
            }
        }
    }

    #[test]
    fn closure_is_a_next_version() {
        let next = |method: &str, request: &[u8]| Ok([method.as_bytes(), request].concat());
        assert_eq!(Echo::call("Echo_0_9", b"!", &next), Ok(b"Echo!".to_vec()));
        assert_eq!(
            Echo::call("Other", b"", &next),
            Err(Fault::new("no method Other"))
        );
    }

    #[test]
    fn events_pass_through_by_default() {
        let events = vec![Event {
            name: "e".into(),
            payload: vec![1],
            cells: None,
        }];
        let operation = Operation {
            changes: vec![],
            events: events.clone(),
        };
        assert_eq!(Echo::events("Events", operation), Ok(events));
    }

    #[test]
    fn get_is_of_the_method_added_last() {
        let manifest = Echo::manifest()
            .event_stream("Events_0_9", "events", "Events")
            .by_get();
        let methods: Vec<_> = manifest
            .methods
            .iter()
            .map(|method| (method.verb, method.answer.clone()))
            .collect();
        let expected = [
            (Verb::Post, Answer::Message),
            (Verb::Post, Answer::Pages),
            (Verb::Get, Answer::Events("Events".to_owned())),
        ];
        assert_eq!(methods, expected);
    }
}
