//! The BOSH release of a new module: a job without a process and a package with the modules, which
//! an operator adds to the deployment of a host. Owns the templates in the folder `bosh`; writes
//! nothing.

use super::fill;

/// The folder of the release in the crate's folder.
pub(super) const FOLDER: &str = "bosh";

/// The variable of the host's ops file for which the release's own copy has its name. BOSH does not
/// fill variables in the paths of operations, so that a deployment can use the host's file for one
/// add-on only.
const VARIABLE: &str = "((bbs_add_on))";
const ADD_MODULES: &str = include_str!("../../../../bosh/ops/add-modules.yml");

/// Paths in the release, and their contents; both may have placeholders.
const FILES: [(&str, &str); 8] = [
    (".gitignore", include_str!("bosh/gitignore.template")),
    ("README.md", include_str!("bosh/README.md.template")),
    // `bosh create-release` fails without it.
    ("config/blobs.yml", include_str!("bosh/blobs.yml.template")),
    ("config/final.yml", include_str!("bosh/final.yml.template")),
    ("jobs/{{release}}/monit", ""),
    (
        "jobs/{{release}}/spec",
        include_str!("bosh/job.yml.template"),
    ),
    (
        "packages/{{release}}/packaging",
        include_str!("bosh/packaging.template"),
    ),
    (
        "packages/{{release}}/spec",
        include_str!("bosh/package.yml.template"),
    ),
];

/// The files of the release for a crate's folder, each with its path in the release. Release, job
/// and package have one name, as the host's ops file requires, which differs from every other
/// add-on's: packages of one instance share a folder.
pub(super) fn files(crate_folder: &str) -> Vec<(String, String)> {
    let release = format!("bbs-modules-{crate_folder}");
    let ops = (
        "ops/add-modules.yml".to_owned(),
        ADD_MODULES.replace(VARIABLE, &release),
    );
    let placeholders = vec![
        ("{{release}}", release),
        ("{{folder}}", crate_folder.to_owned()),
    ];
    let filled = FILES
        .iter()
        .map(|(path, template)| (fill(path, &placeholders), fill(template, &placeholders)));
    filled.chain([ops]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: BOSH accepts the names of jobs, packages and releases: letters, digits and `-`, `_`,
    /// `+`, `.` (`VALID_ID` of its director), at most 255 bytes.
    #[test]
    fn names_are_permitted_by_bosh_and_differ_between_crates() {
        let mut names = std::collections::BTreeSet::new();
        for folder in [
            "add-colour",
            "0.8-to-0.9",
            "1.1-acme-to-1.1",
            &"a".repeat(40),
        ] {
            let files = files(folder);
            let (_, manifest) = files
                .iter()
                .find(|(path, _)| path == "config/final.yml")
                .unwrap();
            let name = manifest
                .trim_end()
                .strip_prefix("---\nname: ")
                .unwrap()
                .to_owned();
            assert!(
                name.bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"-_+.".contains(&b))
                    && name.len() < 256
            );
            for path in [
                "jobs/NAME/spec",
                "jobs/NAME/monit",
                "packages/NAME/spec",
                "packages/NAME/packaging",
            ] {
                assert!(
                    files
                        .iter()
                        .any(|(found, _)| *found == path.replace("NAME", &name)),
                    "{path} of {name}"
                );
            }
            names.insert(name);
        }
        assert_eq!(names.len(), 4);
    }

    #[test]
    fn all_placeholders_of_a_release_are_filled() {
        for (path, text) in files("add-colour") {
            assert!(
                !path.contains("{{") && !text.contains("{{") && !text.contains("(("),
                "{path}: {text}"
            );
        }
    }
}
