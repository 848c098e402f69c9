//! The translator chain: resolves a path or a method name, at an API version, to the next step of a call (a translator or
//! a native method). Pure.

use std::borrow::Cow;
use std::sync::Arc;

use super::methods::{METHODS, NativeMethod, STREAMS, Stream, unrevised};
use crate::modules::translate::{ApiVersion, Translate, TranslateError};

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
    Stream(Stream),
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
            Self::Stream(stream) => unrevised(stream.name()).into(),
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
        Ok(Self { translators, native, served })
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

    /// The version of a request that names none.
    pub(super) fn newest(&self) -> ApiVersion {
        self.served.last().copied().unwrap_or(self.native)
    }

    pub(super) fn translator(&self, step: usize) -> &dyn Translate {
        &*self.translators[step]
    }

    /// The method at `path` for a client of `version`, which is a version of the chain.
    pub(super) fn by_path(&self, version: ApiVersion, path: &str) -> Option<CallTarget> {
        let first = self.translators.iter().position(|translator| translator.manifest().serves == version);
        let first = first.unwrap_or(self.translators.len());
        self.resolve(first, |_, method_path| method_path == path)
    }

    /// The method that translator `step` calls by `name`, at the version it translates to.
    pub(super) fn next(&self, step: usize, name: &str) -> Result<CallTarget, TranslateError> {
        self.resolve(step + 1, |method_name, _| method_name == name).ok_or_else(|| {
            let manifest = self.translators[step].manifest();
            let reason = format!(
                "translator {:?} called {name:?}, which API {} does not have; it must be corrected",
                manifest.name, manifest.onto
            );
            TranslateError { reason }
        })
    }

    fn resolve(&self, first: usize, matches: impl Fn(&str, &str) -> bool) -> Option<CallTarget> {
        let mut hidden: Vec<&str> = Vec::new();
        for (step, translator) in self.translators.iter().enumerate().skip(first) {
            let manifest = translator.manifest();
            let mut methods = manifest.methods.iter().filter(|method| !hidden.contains(&method.name.as_str()));
            if let Some(method) = methods.find(|method| matches(&method.name, &method.path)) {
                return Some(CallTarget::Translated { step, method: method.name.clone(), paged: method.paged });
            }
            hidden.extend(manifest.hides.iter().map(String::as_str));
        }
        let is_meant = |name, path| !hidden.contains(&name) && matches(name, path);
        let method = METHODS.iter().find(|method| is_meant(method.name, method.path));
        let stream = || STREAMS.iter().find(|stream| is_meant(stream.name, stream.path));
        method.map(|method| CallTarget::Native(method.method)).or_else(|| Some(CallTarget::Stream(stream()?.stream)))
    }
}

#[cfg(test)]
mod tests;
