//! The translator chain: resolves a path or a method name, at an API version, to the next step of a call or of an event
//! stream (a translator, a native method or a native stream). Pure.

use std::borrow::Cow;
use std::sync::Arc;

use super::methods::{METHODS, NativeMethod, STREAMS, Stream, unrevised};
use crate::modules::translate::{AnswerForm, ApiVersion, Method, Translate, TranslateError, Verb};

/// Why the translators and the pin do not form a chain.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ApiError {
    #[error(
        "translator {name:?} is written onto API {onto}, but the next one in the catalog serves {serves}; \
         add the missing translator, or remove the ones before the gap"
    )]
    Gap { name: String, onto: ApiVersion, serves: ApiVersion },
    #[error(
        "translator {name:?} is the newest of the catalog and written onto API {onto}, but this host speaks {native}; \
         use the modules directory that was built with this host"
    )]
    End { name: String, onto: ApiVersion, native: ApiVersion },
    #[error(
        "translator {name:?} hides {method:?}, which API {onto} does not have; correct its manifest, or add the translator \
         that has the method"
    )]
    Hides { name: String, onto: ApiVersion, method: String },
    #[error(
        "translator {name:?} translates the events of {newer:?}, which is not an event stream of API {onto}; correct its \
         manifest, or add the translator that has the stream"
    )]
    Source { name: String, onto: ApiVersion, newer: String },
    #[error("{0:?} is not an API version to pin to; write it as major.minor, such as 0.10")]
    MalformedPin(String),
    #[error("cannot pin the API to {pin}: this host serves {}; choose one of these", names(.served))]
    Pin { pin: ApiVersion, served: Vec<ApiVersion> },
}

/// Versions as a comma-separated list for messages.
pub fn names(versions: &[ApiVersion]) -> String {
    versions.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// One step of a call: a translator's method, a native method or an event stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallTarget {
    Translated { step: usize, method: String, paged: bool },
    Native(NativeMethod),
    Stream(StreamTarget),
}

/// An event stream: a native one, or a translator's, made of the events of a newer one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamTarget {
    Native(Stream),
    Translated { step: usize, method: String, newer: Box<StreamTarget> },
}

impl StreamTarget {
    /// The registered name of the method, with its revision.
    pub fn name(&self) -> &str {
        match self {
            Self::Native(stream) => stream.name(),
            Self::Translated { method, .. } => method,
        }
    }

    /// The stream whose events it is made of in the end.
    pub fn native(&self) -> Stream {
        match self {
            Self::Native(stream) => *stream,
            Self::Translated { newer, .. } => newer.native(),
        }
    }
}

impl CallTarget {
    /// Whether the method answers with a list that is run page by page.
    pub fn is_paged(&self) -> bool {
        match self {
            Self::Translated { paged, .. } => *paged,
            Self::Native(method) => matches!(method, NativeMethod::List(_)),
            Self::Stream(_) => false,
        }
    }

    /// The registered name of the method, with its revision.
    pub fn name(&self) -> &str {
        match self {
            Self::Translated { method, .. } => method,
            Self::Native(method) => method.registered().name,
            Self::Stream(stream) => stream.name(),
        }
    }

    /// The method's name in Diego's metrics: without a revision if it is the route's newest, otherwise always with one.
    pub fn diego_name(&self) -> Cow<'static, str> {
        match self {
            Self::Native(method) => unrevised(method.registered().name).into(),
            Self::Stream(stream) => unrevised(stream.name()).to_owned().into(),
            Self::Translated { method, .. } => {
                let is_newest = |name: &str| name != method && unrevised(name) == method;
                let has_newer = METHODS.iter().any(|native| is_newest(native.name));
                if has_newer { format!("{method}_r0").into() } else { method.clone().into() }
            }
        }
    }
}

pub(super) struct TranslatorChain {
    /// Oldest first; each translates to the API version of the next.
    translators: Vec<Arc<dyn Translate>>,
    native: ApiVersion,
    /// The versions that clients may use, oldest first: those of the chain from one major version below the native one up
    /// to the pin. Never empty.
    served: Vec<ApiVersion>,
}

impl std::fmt::Debug for TranslatorChain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let steps = self.translators.iter().map(|translator| translator.manifest().serves.to_string());
        f.debug_list().entries(steps).entry(&self.native.to_string()).finish()
    }
}

impl TranslatorChain {
    pub(super) fn new(translators: Vec<Arc<dyn Translate>>, native: ApiVersion) -> Result<Self, ApiError> {
        for (at, translator) in translators.iter().enumerate() {
            let (name, onto) = (translator.manifest().name.clone(), translator.manifest().onto);
            match translators.get(at + 1).map(|next| next.manifest().serves) {
                Some(serves) if serves != onto => return Err(ApiError::Gap { name, onto, serves }),
                None if onto != native => return Err(ApiError::End { name, onto, native }),
                Some(_) | None => {}
            }
        }
        let oldest = ApiVersion { major: native.major.saturating_sub(1), minor: 0 };
        let versions = translators.iter().map(|translator| translator.manifest().serves).chain([native]);
        let served = versions.filter(|version| *version >= oldest).collect();
        let chain = Self { translators, native, served };
        (0..chain.translators.len()).try_for_each(|step| chain.check_references(step))?;
        Ok(chain)
    }

    /// Checks that the newer version has what a translator's manifest names of it.
    fn check_references(&self, step: usize) -> Result<(), ApiError> {
        let manifest = self.translators[step].manifest();
        let (name, onto) = (&manifest.name, manifest.onto);
        let newer = |name: &str| self.resolve(step + 1, Wanted::Name(name));
        if let Some(method) = manifest.hides.iter().find(|hidden| newer(hidden).is_none()) {
            return Err(ApiError::Hides { name: name.clone(), onto, method: method.clone() });
        }
        for method in &manifest.methods {
            if let AnswerForm::Events(newer) = &method.answer
                && self.stream(step + 1, newer).is_none()
            {
                return Err(ApiError::Source { name: name.clone(), onto, newer: newer.clone() });
            }
        }
        Ok(())
    }

    /// Stops serving versions above `pin`.
    pub(super) fn pin(&mut self, pin: &str) -> Result<(), ApiError> {
        let pin = ApiVersion::parse(pin).ok_or_else(|| ApiError::MalformedPin(pin.to_owned()))?;
        if !self.served.contains(&pin) {
            return Err(ApiError::Pin { pin, served: self.served.clone() });
        }
        self.served.retain(|version| *version <= pin);
        Ok(())
    }

    pub(super) fn served(&self) -> &[ApiVersion] {
        &self.served
    }

    pub(super) fn translator(&self, step: usize) -> &dyn Translate {
        &*self.translators[step]
    }

    /// The number of translators.
    pub(super) fn steps(&self) -> usize {
        self.translators.len()
    }

    /// Whether a translator has event streams.
    pub(super) fn has_streams(&self, step: usize) -> bool {
        let mut methods = self.translators[step].manifest().methods.iter();
        methods.any(|method| matches!(method.answer, AnswerForm::Events(_)))
    }

    /// The method at `path` for a client of `version`, which is a version of the chain.
    pub(super) fn by_path(&self, version: ApiVersion, verb: Verb, path: &str) -> Option<CallTarget> {
        let first = self.translators.iter().position(|translator| translator.manifest().serves == version);
        let first = first.unwrap_or(self.translators.len());
        self.resolve(first, Wanted::Path(verb, path))
    }

    /// The method at `path` for a client that names no version: that of the newest served version, or of the newest one
    /// that has the path among Diego's.
    pub(super) fn by_diego_path(&self, verb: Verb, path: &str) -> Option<CallTarget> {
        let newest = self.served.last()?;
        self.by_path(*newest, verb, path).or_else(|| {
            let is_older = |version| self.served.contains(&version) && version < *newest;
            let steps = self.translators.iter().enumerate().rev();
            let mut older = steps.filter(|(_, translator)| is_older(translator.manifest().serves));
            older.find_map(|(step, translator)| {
                let mut methods = translator.manifest().methods.iter();
                let method = methods.find(|method| method.path_of_diego() == Some(path) && method.verb == verb)?;
                self.target(step, method)
            })
        })
    }

    /// The method that translator `step` calls by `name`: of the version that it translates to or, if that one passes it
    /// through, of a newer one.
    pub(super) fn next(&self, step: usize, name: &str) -> Result<CallTarget, TranslateError> {
        self.resolve(step + 1, Wanted::Name(name)).ok_or_else(|| {
            let manifest = self.translators[step].manifest();
            let reason = format!(
                "translator {:?} called {name:?}, which API {} does not have; it must be corrected",
                manifest.name, manifest.onto
            );
            TranslateError { reason }
        })
    }

    fn resolve(&self, first: usize, wanted: Wanted<'_>) -> Option<CallTarget> {
        let mut hidden: Vec<&str> = Vec::new();
        for (step, translator) in self.translators.iter().enumerate().skip(first) {
            let manifest = translator.manifest();
            let is_wanted =
                |method: &&Method| wanted.is(&method.name, method.verb, Some(method.path_in_version()), &hidden);
            if let Some(method) = manifest.methods.iter().find(is_wanted) {
                return self.target(step, method);
            }
            hidden.extend(manifest.hides.iter().map(String::as_str));
        }
        let method = METHODS.iter().find(|method| wanted.is(method.name, Verb::Post, method.path, &hidden));
        let stream = || STREAMS.iter().find(|stream| wanted.is(stream.name, Verb::Post, Some(stream.path), &hidden));
        method
            .map(|method| CallTarget::Native(method.method))
            .or_else(|| Some(CallTarget::Stream(StreamTarget::Native(stream()?.stream))))
    }

    /// A translator's method; `None` if it is an event stream made of one that does not exist.
    fn target(&self, step: usize, method: &Method) -> Option<CallTarget> {
        let name = method.name.clone();
        Some(match &method.answer {
            AnswerForm::Message => CallTarget::Translated { step, method: name, paged: false },
            AnswerForm::Pages => CallTarget::Translated { step, method: name, paged: true },
            AnswerForm::Events(newer) => {
                let newer = Box::new(self.stream(step + 1, newer)?);
                CallTarget::Stream(StreamTarget::Translated { step, method: name, newer })
            }
        })
    }

    /// The event stream of a method, looked up from a step on.
    fn stream(&self, first: usize, name: &str) -> Option<StreamTarget> {
        match self.resolve(first, Wanted::Name(name))? {
            CallTarget::Stream(stream) => Some(stream),
            CallTarget::Translated { .. } | CallTarget::Native(_) => None,
        }
    }
}

/// What a method is looked up by.
#[derive(Debug, Clone, Copy)]
enum Wanted<'a> {
    /// By a client. It does not see methods that a translator hides from it.
    Path(Verb, &'a str),
    /// By a translator.
    Name(&'a str),
}

impl Wanted<'_> {
    fn is(self, name: &str, verb: Verb, path: Option<&str>, hidden: &[&str]) -> bool {
        match self {
            Self::Path(wanted_verb, wanted) => path == Some(wanted) && verb == wanted_verb && !hidden.contains(&name),
            Self::Name(wanted) => name == wanted,
        }
    }
}

#[cfg(test)]
mod tests;
