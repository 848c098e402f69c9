//! The API version and the path below the API root of a request.

use axum::extract::Request;
use bbs_modules::translate::ApiVersion;

use super::refusal::HttpError;

pub(super) const VERSION_HEADER: &str = "x-diego-api-version";

/// Diego's own root, whose paths carry no version.
const DIEGO_ROOT: &str = "v1";

/// The distributed trace that a request belongs to, for the log.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Trace {
    pub(super) id: String,
    /// Identifies this host's part of the trace.
    pub(super) span_id: String,
}

impl Trace {
    /// `None` if the header is not a trace id: up to 32 hexadecimal digits, ignoring dashes.
    pub(super) fn of(text: &str) -> Option<Self> {
        let id = text.replace('-', "");
        let is_id =
            (1..=32).contains(&id.len()) && id.bytes().all(|digit| digit.is_ascii_hexdigit());
        is_id.then(|| Self {
            id: id.to_ascii_lowercase(),
            span_id: format!("{:016x}", uuid::Uuid::new_v4().as_u64_pair().1),
        })
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct VersionedPath<'a> {
    /// `None` if the request names no version.
    pub(super) version: Option<ApiVersion>,
    pub(super) path: &'a str,
}

impl<'a> VersionedPath<'a> {
    /// Parses version and path. A version in the path takes precedence over one in the header.
    ///
    /// # Errors
    /// `NotFound` for a path outside the API roots; `MalformedVersion` for a header that is not a
    /// version.
    pub(super) fn of(request: &'a Request) -> Result<Self, HttpError> {
        let path = request
            .uri()
            .path()
            .strip_prefix('/')
            .ok_or(HttpError::NotFound)?;
        let (root, path) = path.split_once('/').ok_or(HttpError::NotFound)?;
        if root == DIEGO_ROOT {
            let header = request.headers().get(VERSION_HEADER);
            let version = header
                .map(|value| {
                    let text = String::from_utf8_lossy(value.as_bytes()).trim().to_owned();
                    ApiVersion::parse_semantic(&text).ok_or(HttpError::MalformedVersion(text))
                })
                .transpose()?;
            return Ok(Self { version, path });
        }
        let version = root
            .strip_prefix('v')
            .and_then(ApiVersion::parse_semantic)
            .ok_or(HttpError::NotFound)?;
        Ok(Self {
            version: Some(version),
            path,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    fn asked(path: &str, header: Option<&str>) -> Option<(Option<(u32, u32)>, String)> {
        let mut request = Request::builder().uri(path);
        if let Some(header) = header {
            request = request.header(VERSION_HEADER, header);
        }
        let request = request.body(Body::empty()).unwrap();
        let asked = VersionedPath::of(&request).ok()?;
        Some((
            asked.version.map(|version| (version.major, version.minor)),
            asked.path.to_owned(),
        ))
    }

    #[test]
    fn version_in_the_path_takes_precedence_over_the_header() {
        let rest = || "domains/list".to_owned();
        assert_eq!(asked("/v1/domains/list", None), Some((None, rest())));
        assert_eq!(
            asked("/v1/domains/list", Some("0.9")),
            Some((Some((0, 9)), rest()))
        );
        assert_eq!(
            asked("/v0.10/domains/list", None),
            Some((Some((0, 10)), rest()))
        );
        assert_eq!(
            asked("/v0.10/domains/list", Some("0.9")),
            Some((Some((0, 10)), rest()))
        );
        assert_eq!(
            asked("/v0.10/domains/list", Some("x")),
            Some((Some((0, 10)), rest()))
        );
        assert_eq!(
            asked("/v1/domains/list", Some("0.9.3")),
            Some((Some((0, 9)), rest()))
        );
        assert_eq!(
            asked("/v0.9.3/domains/list", None),
            Some((Some((0, 9)), rest()))
        );
    }

    #[test]
    fn malformed_version_is_none() {
        for path in [
            "/",
            "/v1",
            "/v2/x",
            "/x",
            "/vx.y/x",
            "/v0.9.x/x",
            "/v+0.9/x",
            "/v99999999999.0/x",
            "/v.9/x",
            "/v0./x",
        ] {
            assert_eq!(asked(path, None), None, "{path}");
        }
        for header in ["", "1", "a.b", "0.9.1.2", "-1.0", "1.-0", "4294967296.0"] {
            assert_eq!(asked("/v1/domains/list", Some(header)), None, "{header:?}");
        }
    }

    #[test]
    fn trace_id_is_hexadecimal_ignoring_dashes() {
        let id = |text| Trace::of(text).map(|trace| trace.id);
        let uuid = "5BBA2CB1-0d1f-4b2c-8f0b-2a6ee6a1c8f3";
        assert_eq!(
            id(uuid).as_deref(),
            Some("5bba2cb10d1f4b2c8f0b2a6ee6a1c8f3")
        );
        assert_eq!(id("abc").as_deref(), Some("abc"));
        for text in ["", "-", "xyz", "5bba2cb10d1f4b2c8f0b2a6ee6a1c8f30", "a b"] {
            assert_eq!(id(text), None, "{text:?}");
        }
        let one = Trace::of(uuid).unwrap();
        let other = Trace::of(uuid).unwrap();
        assert!(one.span_id != other.span_id && one.span_id.len() == 16);
    }
}
