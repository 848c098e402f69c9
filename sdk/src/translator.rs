//! The trait that an author implements for a translator: the older API in terms of the next newer
//! one. Independent of transport and paging: a call takes and returns bytes.

use std::cell::RefCell;
use std::ptr::fn_addr_eq;

/// A translator between two neighbouring versions of the API. Its manifest declares each method with
/// its conversion; the other functions dispatch by that, and are implemented only by a translator
/// whose methods are not known in advance.
pub trait Translator {
    /// The declarations of the translator. Has to return the same value each time.
    fn manifest() -> TranslatorManifest;

    /// Answers a method of the older API, by default [as it is declared](TranslatorManifest::call).
    ///
    /// # Errors
    /// If there is no answer; an error that the client should see is an ordinary response.
    fn call(method: &str, request: &[u8], next: &dyn Next) -> Result<Vec<u8>, Fault> {
        declarations(Self::manifest).call(method, request, next)
    }

    /// The events that subscribers of one of its [event streams](TranslatorManifest::event_stream)
    /// receive for an operation, in order. Called once for all subscribers. By default [as they are
    /// declared](TranslatorManifest::convert_events).
    ///
    /// # Errors
    /// If the operation cannot be translated. The streams of all subscribers of the method end, and
    /// they connect again.
    fn events(method: &str, operation: Operation) -> Result<Vec<Event>, Fault> {
        declarations(Self::manifest).convert_events(method, operation)
    }
}

/// The manifest that a function makes, made at the first call that needs it: a request should not
/// pay for the declarations of all methods.
fn declarations(make: fn() -> TranslatorManifest) -> &'static TranslatorManifest {
    type Made = (fn() -> TranslatorManifest, &'static TranslatorManifest);
    thread_local! {
        static MADE: RefCell<Vec<Made>> = const { RefCell::new(Vec::new()) };
    }
    MADE.with_borrow_mut(|made| {
        let known = made.iter().find(|known| fn_addr_eq(known.0, make));
        if let Some((_, manifest)) = known {
            return *manifest;
        }
        let manifest: &_ = Box::leak(Box::new(make()));
        made.push((make, manifest));
        manifest
    })
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// One message.
    Message,
    /// A list, which the host requests page by page.
    Pages,
    /// Server-sent events: those of this method of the newer version, through
    /// [`Translator::events`].
    Events(&'static str),
}

/// A conversion of the request of an older method into that of the newer one.
pub type ConvertRequest = fn(&[u8]) -> Result<Vec<u8>, Fault>;

/// A conversion of the answer of a newer method, or of a page of it, into that of the older one.
pub type ConvertAnswer = fn(Vec<u8>) -> Result<Vec<u8>, Fault>;

/// A function that answers a request by calling the newer version once, several times, or not at
/// all.
pub type Handler = fn(&[u8], &dyn Next) -> Result<Vec<u8>, Fault>;

/// A function that makes the older version's events of an operation, in order.
pub type ConvertEvents = fn(Operation) -> Result<Vec<Event>, Fault>;

/// A call of one method of the newer version.
#[derive(Debug, Clone, Copy)]
struct NewerCall {
    method: &'static str,
    /// `None` passes the request as it is.
    request: Option<ConvertRequest>,
    /// `None` returns the answer as it is.
    answer: Option<ConvertAnswer>,
}

/// The way from a method to the newer version.
#[derive(Debug, Clone, Copy)]
enum Conversion {
    Newer(NewerCall),
    Handler(Handler),
    /// `None` for the newer version's events as they are.
    Events(Option<ConvertEvents>),
}

/// A method of the older API.
#[derive(Debug, Clone)]
pub struct Method {
    /// The name, with the revision if there is one, such as `ListDesiredLRPs_0_9`.
    pub name: &'static str,
    /// The verb of its requests.
    pub verb: Verb,
    /// The path below the root of its version, such as `things/list` for `/v0.9/things/list`. With
    /// `/v1/` in front, it is answered without a version too, as Diego's clients call it.
    pub path: &'static str,
    /// What it answers with.
    pub answer: Answer,
    conversion: Conversion,
}

/// The declarations of a translator.
#[derive(Debug, Clone)]
pub struct TranslatorManifest {
    /// The version that its clients use.
    pub serves: ApiVersion,
    /// The newer version in terms of which it is written; for a side shape, the same version.
    pub onto: ApiVersion,
    /// The name of the side shape that its clients use; `None` for a version of the chain.
    pub side: Option<&'static str>,
    /// Lower-case words joined by `-`.
    pub name: &'static str,
    /// One line for operators.
    pub summary: &'static str,
    /// The methods that it answers; all others pass through.
    pub methods: Vec<Method>,
    /// Methods of the newer version that clients of the older one do not have. The translator may
    /// call them.
    pub hides: Vec<&'static str>,
}

impl TranslatorManifest {
    /// A manifest without methods.
    pub fn new(serves: ApiVersion, onto: ApiVersion, name: &'static str) -> Self {
        Self {
            serves,
            onto,
            side: None,
            name,
            summary: "",
            methods: Vec::new(),
            hides: Vec::new(),
        }
    }

    /// A manifest without methods of a side shape of a version: what a vendor's clients see, such
    /// as `/v1.1-acme/`. `side` is up to 16 lower-case letters and digits.
    pub fn side(of: ApiVersion, side: &'static str, name: &'static str) -> Self {
        Self {
            side: Some(side),
            ..Self::new(of, of, name)
        }
    }

    /// Sets the one-line description for operators.
    #[must_use]
    pub fn summary(self, summary: &'static str) -> Self {
        Self { summary, ..self }
    }

    /// Adds a method that this translator answers at this [path](Method::path): without a further
    /// declaration as the newer version's method of the same name does.
    #[must_use]
    pub fn method(self, name: &'static str, path: &'static str) -> Self {
        self.with(name, path, Answer::Message)
    }

    /// Adds a [method](Self::method) that answers with a list, one page at a time.
    #[must_use]
    pub fn paged_method(self, name: &'static str, path: &'static str) -> Self {
        self.with(name, path, Answer::Pages)
    }

    /// Adds an event stream at this [path](Method::path): that of method `newer` of the newer
    /// version, each operation through [`events`](Self::events).
    #[must_use]
    pub fn event_stream(self, name: &'static str, path: &'static str, newer: &'static str) -> Self {
        self.with(name, path, Answer::Events(newer))
    }

    fn with(mut self, name: &'static str, path: &'static str, answer: Answer) -> Self {
        let conversion = if matches!(answer, Answer::Events(_)) {
            Conversion::Events(None)
        } else {
            Conversion::Newer(NewerCall {
                method: name,
                request: None,
                answer: None,
            })
        };
        self.methods.push(Method {
            name,
            verb: Verb::Post,
            path,
            answer,
            conversion,
        });
        self
    }

    fn last(&mut self) -> &mut Method {
        self.methods
            .last_mut()
            .expect("a declaration about a method follows that method")
    }

    fn newer(&mut self) -> &mut NewerCall {
        match &mut self.last().conversion {
            Conversion::Newer(call) => call,
            Conversion::Handler(_) | Conversion::Events(_) => {
                panic!("an event stream, or a method with a handler, calls no newer method")
            }
        }
    }

    /// The method added last is requested by `GET` instead of `POST`.
    ///
    /// # Panics
    /// If no method was added.
    #[must_use]
    pub fn by_get(mut self) -> Self {
        self.last().verb = Verb::Get;
        self
    }

    /// The method added last calls `newer`, a method of the newer version, instead of the one of its
    /// own name. [`request`](Self::request) and [`answer`](Self::answer) declare what differs
    /// between the two.
    ///
    /// # Panics
    /// If no method was added, or the last one is an event stream or has a handler.
    #[must_use]
    pub fn calls(mut self, newer: &'static str) -> Self {
        self.newer().method = newer;
        self
    }

    /// The method added last takes the place of `newer`: it [calls](Self::calls) that, and
    /// [hides](Self::hides) it.
    ///
    /// # Panics
    /// If no method was added, or the last one is an event stream or has a handler.
    #[must_use]
    pub fn as_newer(self, newer: &'static str) -> Self {
        self.calls(newer).hides(newer)
    }

    /// Converts the request of the method added last before the newer one is called.
    ///
    /// # Panics
    /// If no method was added, or the last one is an event stream or has a handler.
    #[must_use]
    pub fn request(mut self, convert: ConvertRequest) -> Self {
        self.newer().request = Some(convert);
        self
    }

    /// Converts the answer of the newer method into that of the method added last: each page, if it
    /// answers with a list.
    ///
    /// # Panics
    /// If no method was added, or the last one is an event stream or has a handler.
    #[must_use]
    pub fn answer(mut self, convert: ConvertAnswer) -> Self {
        self.newer().answer = Some(convert);
        self
    }

    /// Answers the method added last by a function that calls the newer version once, several times,
    /// or not at all.
    ///
    /// # Panics
    /// If no method was added, or the last one is an event stream.
    #[must_use]
    pub fn handler(mut self, handler: Handler) -> Self {
        self.newer();
        self.last().conversion = Conversion::Handler(handler);
        self
    }

    /// Converts the operations of the event stream added last into the older version's events.
    ///
    /// # Panics
    /// If no method was added, or the last one is no event stream.
    #[must_use]
    pub fn events(mut self, convert: ConvertEvents) -> Self {
        match &mut self.last().conversion {
            Conversion::Events(events) => *events = Some(convert),
            Conversion::Newer(_) | Conversion::Handler(_) => {
                panic!("`events` follows an event stream")
            }
        }
        self
    }

    /// Hides a method of the newer version from clients of the older one. The translator may call
    /// it.
    #[must_use]
    pub fn hides(mut self, name: &'static str) -> Self {
        self.hides.push(name);
        self
    }

    /// Answers a method as it is declared.
    ///
    /// # Errors
    /// If the method is not declared, or only as an event stream; errors of its conversions and of
    /// the newer version.
    pub fn call(&self, method: &str, request: &[u8], next: &dyn Next) -> Result<Vec<u8>, Fault> {
        match self.declared(method)? {
            Conversion::Newer(call) => {
                let converted = call.request.map(|convert| convert(request)).transpose()?;
                let answer = next.call(call.method, converted.as_deref().unwrap_or(request))?;
                match call.answer {
                    Some(convert) => convert(answer),
                    None => Ok(answer),
                }
            }
            Conversion::Handler(handler) => handler(request, next),
            Conversion::Events(_) => Err(undeclared(method)),
        }
    }

    /// The events of a stream for an operation, as the stream is declared.
    ///
    /// # Errors
    /// If no event stream of this name is declared; errors of its conversion.
    pub fn convert_events(&self, method: &str, operation: Operation) -> Result<Vec<Event>, Fault> {
        match self.declared(method)? {
            Conversion::Events(Some(convert)) => convert(operation),
            Conversion::Events(None) => Ok(operation.events),
            Conversion::Newer(_) | Conversion::Handler(_) => Err(undeclared(method)),
        }
    }

    fn declared(&self, name: &str) -> Result<Conversion, Fault> {
        self.methods
            .iter()
            .find(|method| method.name == name)
            .map(|method| method.conversion)
            .ok_or_else(|| undeclared(name))
    }
}

fn undeclared(method: &str) -> Fault {
    Fault::new(format!("{method} is not declared"))
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
mod tests;
