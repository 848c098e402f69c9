//! The translator chain: resolves a path or a method name, at an API version, to the next step of a
//! call or of an event stream (a translator, a native method or a native stream). Pure.

use std::borrow::Cow;
use std::sync::Arc;

use bbs_modules::translate::{AnswerForm, ApiVersion, Method, Translate, TranslateError, Verb};
use bbs_work::joined;

use super::methods::{self, METHODS, NativeMethod, NativeVersion, Stream, unrevised};
use super::{CHAIN_END, NATIVE};

/// Most translators of a catalog. A run may have an instance of each of them, and the sandbox has a
/// limited number.
const LONGEST_CHAIN: usize = 32;

/// Longest name of a method, in bytes, that the error about an unknown one quotes: as long as a
/// manifest may declare. A module passes names of any length, and a quoted byte may take six.
const LONGEST_NAME: usize = 200;

/// Why the translators and the pin do not form a chain.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ApiError {
    #[error(
        "translator {name:?} is written onto API {onto}, but the next one in the catalog serves {serves}; \
         add the missing translator, or remove the ones before the gap"
    )]
    Gap {
        name: String,
        onto: ApiVersion,
        serves: ApiVersion,
    },
    #[error(
        "translator {name:?} is the newest of the catalog and written onto API {onto}, but the oldest version that this host \
         speaks itself is {native}; use the modules directory that was built with this host"
    )]
    End {
        name: String,
        onto: ApiVersion,
        native: ApiVersion,
    },
    #[error(
        "translator {name:?} serves a side shape of API {onto}, which neither this host nor a translator serves; add the one \
         that does, or remove it"
    )]
    SideGap { name: String, onto: ApiVersion },
    #[error(
        "translator {name:?} hides {method:?}, which API {onto} does not have; correct its manifest, or add the translator \
         that has the method"
    )]
    Hides {
        name: String,
        onto: ApiVersion,
        method: String,
    },
    #[error(
        "translator {name:?} translates the events of {newer:?}, which is not an event stream of API {onto}; correct its \
         manifest, or add the translator that has the stream"
    )]
    Source {
        name: String,
        onto: ApiVersion,
        newer: String,
    },
    #[error(
        "the catalog has {translators} translators, and a chain is of at most {LONGEST_CHAIN}; remove the oldest ones, whose \
         clients are shown by the metric `bbs_older_version_requests_total`"
    )]
    TooLong { translators: usize },
    #[error("{0:?} is not an API version to pin to; write it as major.minor, such as 0.10")]
    MalformedPin(String),
    #[error(
        "cannot pin the API to {pin}: this host serves {}; choose one of these",
        joined(.served)
    )]
    Pin {
        pin: ApiVersion,
        served: Vec<ApiVersion>,
    },
}

/// One step of a call: a translator's method, a native method or an event stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallTarget {
    Translated {
        step: usize,
        method: String,
        paged: bool,
    },
    Native {
        method: NativeMethod,
        version: NativeVersion,
    },
    Stream(StreamTarget),
}

/// An event stream: a native one, or a translator's, made of the events of a newer one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamTarget {
    Native {
        stream: Stream,
        version: NativeVersion,
    },
    Translated {
        step: usize,
        method: String,
        newer: Box<StreamTarget>,
    },
}

impl StreamTarget {
    /// The registered name of the method, with its revision.
    pub fn name(&self) -> &str {
        match self {
            Self::Native { stream, .. } => stream.name(),
            Self::Translated { method, .. } => method,
        }
    }

    /// The stream whose events it is made of in the end, and its version.
    pub fn native(&self) -> (Stream, NativeVersion) {
        match self {
            Self::Native { stream, version } => (*stream, *version),
            Self::Translated { newer, .. } => newer.native(),
        }
    }
}

impl CallTarget {
    /// Whether the method answers with a list that is run page by page.
    pub fn is_paged(&self) -> bool {
        match self {
            Self::Translated { paged, .. } => *paged,
            Self::Native { method, .. } => method.is_paged(),
            Self::Stream(_) => false,
        }
    }

    /// The largest body of a request, in bytes.
    pub fn largest_body(&self) -> usize {
        match self {
            Self::Translated { method, .. } => methods::largest_body(method),
            Self::Native { method, .. } => method.largest_body(),
            Self::Stream(_) => methods::SUBSCRIPTION,
        }
    }

    /// Whether the cell keeps the container if its call ends without an answer of the handler, as
    /// Diego decides: an answer that does not say so has the cell delete it.
    pub fn keeps_container(&self) -> bool {
        let method = unrevised(self.name());
        ["EvacuateClaimedActualLRP", "EvacuateRunningActualLRP"].contains(&method)
    }

    /// The registered name of the method, with its revision.
    pub fn name(&self) -> &str {
        match self {
            Self::Translated { method, .. } => method,
            Self::Native { method, .. } => method.registered().name,
            Self::Stream(stream) => stream.name(),
        }
    }

    /// The method's name in Diego's metrics: without a revision if it is the route's newest,
    /// otherwise always with one.
    pub fn diego_name(&self) -> Cow<'static, str> {
        match self {
            Self::Native { method, .. } => unrevised(method.registered().name).into(),
            Self::Stream(stream) => unrevised(stream.name()).to_owned().into(),
            Self::Translated { method, .. } => {
                let has_newer = METHODS
                    .iter()
                    .any(|native| native.name != method && unrevised(native.name) == method);
                if has_newer {
                    format!("{method}_r0").into()
                } else {
                    method.clone().into()
                }
            }
        }
    }
}

/// The oldest version that a host serves whose newest is `newest`: of the same major version, or of
/// the one before.
const fn oldest_served(newest: ApiVersion) -> ApiVersion {
    ApiVersion::new(newest.major.saturating_sub(1), 0)
}

pub(super) struct TranslatorChain {
    /// The translators of Diego's versions, oldest first, and then those of side shapes.
    translators: Vec<Arc<dyn Translate>>,
    /// For each translator, what serves the version that it translates to.
    newer: Vec<ServedBy>,
    /// The versions that clients may use: those of Diego, oldest first, from one major version
    /// below the newest one up to the pin, and then their side shapes. Never empty.
    served: Vec<ApiVersion>,
}

/// The translator, or the handlers, that serve a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServedBy {
    Translator(usize),
    Native(NativeVersion),
}

impl std::fmt::Debug for TranslatorChain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let steps = self
            .translators
            .iter()
            .map(|translator| translator.manifest().serves.to_string());
        f.debug_list()
            .entries(steps)
            .entries(NativeVersion::ALL.map(|native| native.number().to_string()))
            .finish()
    }
}

impl TranslatorChain {
    pub(super) fn new(mut translators: Vec<Arc<dyn Translate>>) -> Result<Self, ApiError> {
        if translators.len() > LONGEST_CHAIN {
            return Err(ApiError::TooLong {
                translators: translators.len(),
            });
        }
        translators.sort_by_key(|translator| translator.manifest().serves.side.is_some());
        let newer = (0..translators.len())
            .map(|step| newer(&translators, step))
            .collect::<Result<_, _>>()?;
        let translated = translators
            .iter()
            .map(|translator| translator.manifest().serves);
        let versions = translated.chain(NativeVersion::ALL.map(NativeVersion::number));
        let mut served: Vec<_> = versions
            .filter(|version| *version >= oldest_served(NATIVE))
            .collect();
        served.sort_by_key(|version| version.side.is_some());
        let chain = Self {
            translators,
            newer,
            served,
        };
        (0..chain.translators.len()).try_for_each(|step| chain.check_references(step))?;
        Ok(chain)
    }

    /// Checks that the newer version has what a translator's manifest names of it.
    fn check_references(&self, step: usize) -> Result<(), ApiError> {
        let manifest = self.translators[step].manifest();
        let name = &manifest.name;
        let onto = manifest.onto;
        let newer = |name: &str| self.resolve(self.newer[step], Wanted::Name(name));
        if let Some(method) = manifest.hides.iter().find(|hidden| newer(hidden).is_none()) {
            return Err(ApiError::Hides {
                name: name.clone(),
                onto,
                method: method.clone(),
            });
        }
        for method in &manifest.methods {
            if let AnswerForm::Events(newer) = &method.answer
                && self.stream(self.newer[step], newer).is_none()
            {
                return Err(ApiError::Source {
                    name: name.clone(),
                    onto,
                    newer: newer.clone(),
                });
            }
        }
        Ok(())
    }

    /// Stops serving versions above `pin`.
    pub(super) fn pin(&mut self, pin: &str) -> Result<(), ApiError> {
        let pin = ApiVersion::parse(pin).ok_or_else(|| ApiError::MalformedPin(pin.to_owned()))?;
        if !self.served.contains(&pin) {
            return Err(ApiError::Pin {
                pin,
                served: self.served.clone(),
            });
        }
        self.served.retain(|version| version.without_side() <= pin);
        Ok(())
    }

    pub(super) fn served(&self) -> &[ApiVersion] {
        &self.served
    }

    /// The version of a client that names none: Diego's current one, or the newest one up to the
    /// pin.
    fn unnamed(&self) -> ApiVersion {
        *self
            .served
            .iter()
            .rfind(|version| version.side.is_none() && **version <= CHAIN_END)
            .expect("a version of Diego is served")
    }

    pub(super) fn translator(&self, step: usize) -> &dyn Translate {
        &*self.translators[step]
    }

    /// The number of translators.
    pub(super) fn steps(&self) -> usize {
        self.translators.len()
    }

    /// The place of a translator among all, side shapes first and then oldest first.
    pub(super) fn rank(&self, step: usize) -> usize {
        let is_of_side =
            |translator: &&Arc<dyn Translate>| translator.manifest().serves.side.is_some();
        let sides = self.translators.iter().filter(is_of_side).count();
        (step + sides) % self.translators.len()
    }

    /// Whether a translator has event streams.
    pub(super) fn has_streams(&self, step: usize) -> bool {
        let mut methods = self.translators[step].manifest().methods.iter();
        methods.any(|method| matches!(method.answer, AnswerForm::Events(_)))
    }

    /// The method at `path` for a client of `version`, which is a version of the chain.
    pub(super) fn by_path(
        &self,
        version: ApiVersion,
        verb: Verb,
        path: &str,
    ) -> Option<CallTarget> {
        let translator = self
            .translators
            .iter()
            .position(|translator| translator.manifest().serves == version);
        let first = translator
            .map(ServedBy::Translator)
            .or_else(|| NativeVersion::of(version).map(ServedBy::Native))?;
        self.resolve(first, Wanted::Path(verb, path))
    }

    /// The method at `path` for a client that names no version: that of Diego's current version, or
    /// of the newest older one that has the path among Diego's. Returns the version with it.
    pub(super) fn by_diego_path(&self, verb: Verb, path: &str) -> Option<(ApiVersion, CallTarget)> {
        let unnamed = self.unnamed();
        let current = self
            .by_path(unnamed, verb, path)
            .map(|target| (unnamed, target));
        current.or_else(|| {
            let is_older = |version: ApiVersion| {
                version.side.is_none() && version < unnamed && self.served.contains(&version)
            };
            self.translators
                .iter()
                .enumerate()
                .rev()
                .find_map(|(step, translator)| {
                    let manifest = translator.manifest();
                    let mut methods = manifest
                        .methods
                        .iter()
                        .filter(|_| is_older(manifest.serves));
                    let method = methods.find(|method| {
                        method.path_of_diego() == Some(path) && method.verb == verb
                    })?;
                    Some((manifest.serves, self.target(step, method)?))
                })
        })
    }

    /// The method that translator `step` calls by `name`: of the version that it translates to or,
    /// if that one passes it through, of a newer one.
    pub(super) fn next(&self, step: usize, name: &str) -> Result<CallTarget, TranslateError> {
        self.resolve(self.newer[step], Wanted::Name(name)).ok_or_else(|| {
            let manifest = self.translators[step].manifest();
            let called = if name.len() > LONGEST_NAME {
                format!("a method with a name of {} bytes", name.len())
            } else {
                format!("{name:?}")
            };
            let reason = format!(
                "translator {:?} called {called}, which API {} does not have; it must be corrected",
                manifest.name, manifest.onto
            );
            TranslateError::new(reason)
        })
    }

    /// Looks a method up from a step on: in each translator, and at last among the native methods.
    fn resolve(&self, first: ServedBy, wanted: Wanted<'_>) -> Option<CallTarget> {
        let mut hidden: Vec<&str> = Vec::new();
        let mut at = first;
        let version = loop {
            let step = match at {
                ServedBy::Translator(step) => step,
                ServedBy::Native(version) => break version,
            };
            let manifest = self.translators[step].manifest();
            let declared = manifest.methods.iter().find(|method| {
                let path = method.path_in_version();
                wanted.is(&method.name, method.verb, Some(path), &hidden)
            });
            if let Some(method) = declared {
                return self.target(step, method);
            }
            hidden.extend(manifest.hides.iter().map(String::as_str));
            at = self.newer[step];
        };
        let mut methods = METHODS.iter().filter(|method| method.is_of(version));
        let method =
            methods.find(|method| wanted.is(method.name, Verb::Post, method.path, &hidden));
        let is_wanted =
            |stream: &Stream| wanted.is(stream.name(), Verb::Post, Some(stream.path()), &hidden);
        method
            .map(|method| CallTarget::Native {
                method: method.method,
                version,
            })
            .or_else(|| {
                Some(CallTarget::Stream(StreamTarget::Native {
                    stream: Stream::ALL.into_iter().find(is_wanted)?,
                    version,
                }))
            })
    }

    /// A translator's method; `None` if it is an event stream made of one that does not exist.
    fn target(&self, step: usize, method: &Method) -> Option<CallTarget> {
        let name = method.name.clone();
        Some(match &method.answer {
            AnswerForm::Message | AnswerForm::Pages => CallTarget::Translated {
                step,
                method: name,
                paged: method.answer == AnswerForm::Pages,
            },
            AnswerForm::Events(newer) => {
                let newer = Box::new(self.stream(self.newer[step], newer)?);
                CallTarget::Stream(StreamTarget::Translated {
                    step,
                    method: name,
                    newer,
                })
            }
        })
    }

    /// The event stream of a method, looked up from a step on.
    fn stream(&self, first: ServedBy, name: &str) -> Option<StreamTarget> {
        match self.resolve(first, Wanted::Name(name))? {
            CallTarget::Stream(stream) => Some(stream),
            CallTarget::Translated { .. } | CallTarget::Native { .. } => None,
        }
    }
}

/// The server of the version that a translator translates to. The translator chain ends at
/// Diego's current version; side shapes are of any version.
fn newer(translators: &[Arc<dyn Translate>], step: usize) -> Result<ServedBy, ApiError> {
    let version_at = |at: usize| {
        translators
            .get(at)
            .map(|translator| translator.manifest().serves)
    };
    let manifest = translators[step].manifest();
    let name = manifest.name.clone();
    let onto = manifest.onto;
    let is_side = manifest.serves.side.is_some();
    match version_at(step + 1).filter(|next| next.side.is_none() && !is_side) {
        Some(serves) if serves != onto => Err(ApiError::Gap { name, onto, serves }),
        Some(_) => Ok(ServedBy::Translator(step + 1)),
        None if is_side => {
            let translator = (0..step)
                .find(|at| version_at(*at) == Some(onto))
                .map(ServedBy::Translator);
            let native = NativeVersion::of(onto).map(ServedBy::Native);
            translator
                .or(native)
                .ok_or(ApiError::SideGap { name, onto })
        }
        None if onto == CHAIN_END => Ok(ServedBy::Native(NativeVersion::Diego)),
        None => Err(ApiError::End {
            name,
            onto,
            native: CHAIN_END,
        }),
    }
}

/// The key by which a method is looked up.
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
            Self::Path(wanted_verb, wanted) => {
                path == Some(wanted) && verb == wanted_verb && !hidden.contains(&name)
            }
            Self::Name(wanted) => name == wanted,
        }
    }
}

#[cfg(test)]
mod tests;
