//! Validation of a container's image: cached dependencies, image layers, checksums and registry
//! credentials.

use bbs_proto::models::image_layer::{DigestAlgorithm, MediaType, Type};
use bbs_proto::models::{CachedDependency, ImageLayer};

use super::{Findings, Validate};

const CHECKSUMS: [&str; 3] = ["md5", "sha1", "sha256"];

/// Requires a checksum and its algorithm together, or neither.
pub(super) fn checksum(algorithm: &[u8], value: &[u8], findings: &mut Findings) {
    let known = CHECKSUMS
        .iter()
        .any(|known| algorithm.eq_ignore_ascii_case(known.as_bytes()));
    match (algorithm.is_empty(), value.is_empty()) {
        (true, true) => {}
        (true, false) => findings.invalid("checksum algorithm"),
        (false, true) => findings.invalid("checksum value"),
        (false, false) => findings.invalid_if(!known, "invalid algorithm"),
    }
}

impl Validate for CachedDependency {
    fn validate(&self, findings: &mut Findings) {
        findings.required("from", &self.from);
        findings.required("to", &self.to);
        checksum(&self.checksum_algorithm, &self.checksum_value, findings);
    }
}

pub(super) fn cached_dependencies(dependencies: &[CachedDependency], findings: &mut Findings) {
    for dependency in dependencies {
        findings.within("cached_dependency", |findings| {
            dependency.validate(findings)
        });
    }
}

impl Validate for ImageLayer {
    fn validate(&self, findings: &mut Findings) {
        findings.required("url", &self.url);
        findings.required("destination_path", &self.destination_path);
        findings.invalid_if(
            !matches!(
                Type::try_from(self.layer_type),
                Ok(Type::Shared | Type::Exclusive)
            ),
            "layer_type",
        );
        let media = MediaType::try_from(self.media_type);
        findings.invalid_if(
            !matches!(media, Ok(MediaType::Tgz | MediaType::Tar | MediaType::Zip)),
            "media_type",
        );

        let algorithm = DigestAlgorithm::try_from(self.digest_algorithm);
        let no_algorithm = algorithm == Ok(DigestAlgorithm::Invalid);
        let known_algorithm = matches!(
            algorithm,
            Ok(DigestAlgorithm::Sha256 | DigestAlgorithm::Sha512)
        );
        let no_value = self.digest_value.is_empty();
        let exclusive = is_exclusive(self);
        findings.invalid_if(no_algorithm && (!no_value || exclusive), "digest_algorithm");
        findings.invalid_if(no_value && (!no_algorithm || exclusive), "digest_value");
        // A value without an algorithm is found a second time here, as in Diego; clients may
        // compare the text.
        findings.invalid_if(!no_value && !known_algorithm, "digest_algorithm");
    }
}

/// Validates the layers; an exclusive layer needs a download user.
pub(super) fn layers(layers: &[ImageLayer], legacy_download_user: &[u8], findings: &mut Findings) {
    for layer in layers {
        findings.within("image_layer", |findings| layer.validate(findings));
    }
    if layers.iter().any(is_exclusive) {
        findings.required("legacy_download_user", legacy_download_user);
    }
}

fn is_exclusive(layer: &ImageLayer) -> bool {
    layer.layer_type == i32::from(Type::Exclusive)
}

/// Requires both or neither; the finding names the missing one.
pub(super) fn credentials(has_username: bool, has_password: bool, findings: &mut Findings) {
    findings.invalid_if(!has_username && has_password, "image_username");
    findings.invalid_if(has_username && !has_password, "image_password");
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::*;

    fn found(rules: impl FnOnce(&mut Findings)) -> String {
        let mut findings = Findings::default();
        rules(&mut findings);
        findings.to_string()
    }

    #[test]
    fn checksum_needs_a_value_and_a_known_algorithm() {
        for (algorithm, value, expected) in [
            ("", "", ""),
            ("md5", "v", ""),
            ("sha1", "v", ""),
            ("sha256", "v", ""),
            ("MD5", "v", ""),
            ("ShA256", "v", ""),
            ("", "v", "Invalid field: checksum algorithm"),
            ("md5", "", "Invalid field: checksum value"),
            ("crc", "", "Invalid field: checksum value"),
            ("crc", "v", "Invalid field: invalid algorithm"),
            ("sha512", "v", "Invalid field: invalid algorithm"),
            ("sha1 ", "v", "Invalid field: invalid algorithm"),
            ("\u{17f}ha1", "v", "Invalid field: invalid algorithm"),
        ] {
            let text = found(|findings| checksum(algorithm.as_bytes(), value.as_bytes(), findings));
            assert_eq!(text, expected, "{algorithm:?} {value:?}");
        }
    }

    #[test]
    fn cached_dependency_needs_both_ends() {
        let dependency = |from: &str, to: &str| CachedDependency {
            from: from.into(),
            to: to.into(),
            ..Default::default()
        };
        assert_eq!(check(&dependency("f", "t")), Ok(()));
        assert_eq!(
            check(&dependency("", "t")).unwrap_err(),
            "Invalid field: from"
        );
        assert_eq!(
            check(&dependency("f", "")).unwrap_err(),
            "Invalid field: to"
        );
        let algorithm_alone = CachedDependency {
            checksum_algorithm: b"md5".to_vec(),
            ..dependency("f", "t")
        };
        assert_eq!(
            check(&algorithm_alone).unwrap_err(),
            "Invalid field: checksum value"
        );
        let all = [
            dependency("", "t"),
            dependency("f", "t"),
            dependency("f", ""),
        ];
        assert_eq!(
            found(|findings| cached_dependencies(&all, findings)),
            "Invalid field: cached_dependency, Invalid field: from, Invalid field: cached_dependency, Invalid field: to"
        );
    }

    fn layer(
        layer_type: i32,
        media_type: i32,
        digest_algorithm: i32,
        digest_value: &str,
    ) -> ImageLayer {
        ImageLayer {
            url: b"u".to_vec(),
            destination_path: b"d".to_vec(),
            layer_type,
            media_type,
            digest_algorithm,
            digest_value: digest_value.into(),
            ..Default::default()
        }
    }

    #[test]
    fn layer_needs_a_source_a_destination_and_known_types() {
        let expected = |layer: ImageLayer, expected: &str| {
            assert_eq!(check(&layer).err().unwrap_or_default(), expected)
        };
        expected(layer(1, 1, 0, ""), "");
        expected(layer(1, 2, 1, "v"), "");
        expected(layer(2, 3, 2, "v"), "");
        expected(
            ImageLayer {
                url: vec![],
                ..layer(1, 1, 0, "")
            },
            "Invalid field: url",
        );
        expected(
            ImageLayer {
                destination_path: vec![],
                ..layer(1, 1, 0, "")
            },
            "Invalid field: destination_path",
        );
        for unknown in [0, 3, -1] {
            expected(layer(unknown, 1, 0, ""), "Invalid field: layer_type");
        }
        for unknown in [0, 4, -1] {
            expected(layer(1, unknown, 0, ""), "Invalid field: media_type");
        }
    }

    #[test]
    fn digest_must_be_complete_and_an_exclusive_layer_needs_one() {
        const ALGORITHM: &str = "Invalid field: digest_algorithm";
        const VALUE: &str = "Invalid field: digest_value";
        const TWICE: &str = "Invalid field: digest_algorithm, Invalid field: digest_algorithm";
        const BOTH: &str = "Invalid field: digest_algorithm, Invalid field: digest_value";
        let shared = 1;
        let exclusive = 2;
        for (layer_type, algorithm, value, expected) in [
            (shared, 0, "", ""),
            (shared, 1, "v", ""),
            (shared, 2, "v", ""),
            (shared, 1, "", VALUE),
            (shared, 0, "v", TWICE),
            (shared, 3, "v", ALGORITHM),
            (shared, 3, "", VALUE),
            (exclusive, 0, "", BOTH),
            (exclusive, 1, "v", ""),
            (exclusive, 2, "v", ""),
            (exclusive, 1, "", VALUE),
            (exclusive, 0, "v", TWICE),
            (exclusive, 3, "v", ALGORITHM),
            (exclusive, 3, "", VALUE),
        ] {
            let text = check(&layer(layer_type, 1, algorithm, value))
                .err()
                .unwrap_or_default();
            assert_eq!(text, expected, "{layer_type} {algorithm} {value:?}");
        }
    }

    #[test]
    fn exclusive_layer_needs_a_download_user() {
        let shared = || layer(1, 1, 1, "v");
        let exclusive = || layer(2, 1, 1, "v");
        let found = |all: &[ImageLayer], user: &str| {
            found(|findings| layers(all, user.as_bytes(), findings))
        };
        assert_eq!(found(&[], ""), "");
        assert_eq!(found(&[shared()], ""), "");
        assert_eq!(found(&[shared(), exclusive()], "vcap"), "");
        assert_eq!(
            found(&[exclusive(), exclusive(), shared()], ""),
            "Invalid field: legacy_download_user"
        );
        let bad = ImageLayer {
            url: vec![],
            ..shared()
        };
        assert_eq!(
            found(&[bad.clone(), exclusive(), bad], ""),
            "Invalid field: image_layer, Invalid field: url, Invalid field: image_layer, Invalid field: url, \
             Invalid field: legacy_download_user"
        );
    }

    #[test]
    fn credentials_must_come_in_pairs() {
        for (username, password, expected) in [
            (false, false, ""),
            (true, true, ""),
            (true, false, "Invalid field: image_password"),
            (false, true, "Invalid field: image_username"),
        ] {
            assert_eq!(
                found(|findings| credentials(username, password, findings)),
                expected
            );
        }
    }
}
