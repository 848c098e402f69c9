//! The one type an author writes for a translator: the older API in terms of the next newer one.
//! Knows no transport and no paging: a call is bytes in, bytes out.

/// A translator between two neighbouring versions of the API.
pub trait Translator {
    fn manifest() -> TranslatorManifest;

    /// Answers a method of the older API by calling the newer one: once, several times, or not at all.
    fn call(method: &str, request: &[u8], next: &dyn Next) -> Result<Vec<u8>, Fault>;

    /// What a subscriber of the older API receives for one operation. Passes events on unless said
    /// otherwise, and is called only where the manifest asks for events.
    fn events(operation: Operation) -> Vec<Event> {
        operation.events
    }
}

/// The next newer version of the API, ending in the host's own. Tests pass a closure.
pub trait Next {
    fn call(&self, method: &str, request: &[u8]) -> Result<Vec<u8>, Fault>;
}

impl<F: Fn(&str, &[u8]) -> Result<Vec<u8>, Fault>> Next for F {
    fn call(&self, method: &str, request: &[u8]) -> Result<Vec<u8>, Fault> {
        self(method, request)
    }
}

/// A failure to answer at all. A refusal that the client should see is an ordinary response with its
/// error field set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Fault {
    pub reason: String,
}

impl Fault {
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}

impl From<crate::wire::WireError> for Fault {
    fn from(error: crate::wire::WireError) -> Self {
        Self::new(error.to_string())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ApiVersion {
    pub major: u32,
    pub minor: u32,
}

impl ApiVersion {
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }
}

/// A method of the older API and the path, below the API root, on which clients call it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Method {
    /// Named with its revision where it has one, such as `ListDesiredLRPs_0_9`.
    pub name: String,
    pub path: String,
    /// Whether it answers with a list that the host runs page by page.
    pub paged: bool,
}

/// What a translator says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranslatorManifest {
    /// The version that clients of this translator speak.
    pub serves: ApiVersion,
    /// The version it is written in terms of.
    pub onto: ApiVersion,
    pub name: String,
    pub summary: String,
    pub methods: Vec<Method>,
    /// Methods of the newer version that a client of the older one does not have.
    pub hides: Vec<String>,
    pub events: bool,
}

impl TranslatorManifest {
    pub fn new(serves: ApiVersion, onto: ApiVersion, name: &str) -> Self {
        Self {
            serves,
            onto,
            name: name.to_owned(),
            summary: String::new(),
            methods: Vec::new(),
            hides: Vec::new(),
            events: false,
        }
    }

    #[must_use]
    pub fn summary(mut self, line: &str) -> Self {
        self.summary = line.to_owned();
        self
    }

    /// A method that this translator answers.
    #[must_use]
    pub fn method(mut self, name: &str, path: &str) -> Self {
        self.methods.push(Method { name: name.to_owned(), path: path.to_owned(), paged: false });
        self
    }

    /// A method that this translator answers with a list, one page at a time.
    #[must_use]
    pub fn paged_method(mut self, name: &str, path: &str) -> Self {
        self.methods.push(Method { name: name.to_owned(), path: path.to_owned(), paged: true });
        self
    }

    /// A method of the newer version that clients of the older one do not have.
    #[must_use]
    pub fn hides(mut self, name: &str) -> Self {
        self.hides.push(name.to_owned());
        self
    }

    /// Event batches pass through [`Translator::events`].
    #[must_use]
    pub fn translates_events(mut self) -> Self {
        self.events = true;
        self
    }
}

/// One event as a subscriber would receive it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub name: String,
    pub payload: Vec<u8>,
}

/// A row of one table before and after, as encoded messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowChange {
    /// The message's name, such as `ActualLRP`.
    pub message: String,
    pub before: Option<Vec<u8>>,
    pub after: Option<Vec<u8>>,
}

/// Everything that one operation did, for one subscriber.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    pub changes: Vec<RowChange>,
    pub events: Vec<Event>,
    /// The subscriber's cell filter; empty for none.
    pub cell_id: String,
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
    fn a_closure_stands_in_for_the_next_version() {
        let next = |method: &str, request: &[u8]| Ok([method.as_bytes(), request].concat());
        assert_eq!(Echo::call("Echo_0_9", b"!", &next), Ok(b"Echo!".to_vec()));
        assert_eq!(Echo::call("Other", b"", &next), Err(Fault::new("no method Other")));
    }

    #[test]
    fn events_pass_unless_said_otherwise() {
        let events = vec![Event { name: "e".into(), payload: vec![1] }];
        let operation = Operation { changes: vec![], events: events.clone(), cell_id: String::new() };
        assert_eq!(Echo::events(operation), events);
        assert!(!Echo::manifest().events);
        assert!(Echo::manifest().translates_events().events);
    }
}
