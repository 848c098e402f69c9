//! Files of the release beside the configuration: packages, operations, and what bpm and the agents
//! of the machine read.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use bbs::testing::modules::catalog::Catalog;
use regex::Regex;
use serde_json::{Value, json};

use super::{all, required};
use crate::harness::bosh::package::{files_of_package, install, parse_yaml, yaml};
use crate::harness::bosh::{RenderedJob, release};
use crate::harness::engine::output_of;
use crate::harness::modules::{copy_folder, modules, sandbox};

const METRICS: &str = include_str!("../../metrics.tsv");

#[test]
fn packages_of_each_job_exist() {
    for job in ["bbs", "bbs-migrate"] {
        let spec = yaml(&release().join("jobs").join(job).join("spec"));
        for name in spec["packages"].as_array().expect("a job has packages") {
            let package = release()
                .join("packages")
                .join(name.as_str().expect("a name"));
            assert_eq!(&yaml(&package.join("spec"))["name"], name, "{job}");
            assert!(package.join("packaging").is_file(), "{job}: {name}");
        }
    }
}

/// Goal: `bosh create-release` finds every folder that it reads in a clone, of which git keeps no
/// empty folder. Method: the files that git has, with archives in the place of the blobs, are
/// collected as that command does.
#[test]
fn release_can_be_created_from_the_files_that_git_has() {
    let listed = output_of(
        Command::new("git")
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
                ".",
            ])
            .current_dir(release()),
    );
    let clone = tempfile::tempdir().unwrap();
    let copy = |from: &Path, name: &str| {
        let to = clone.path().join(name);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(from, to).unwrap();
    };
    for name in listed.split('\0').filter(|name| !name.is_empty()) {
        copy(&release().join(name), name);
    }
    for blob in ["bbs/source.tar.gz", "bbs-modules/modules.tar.gz"] {
        copy(
            &release().join("config/final.yml"),
            &format!("blobs/{blob}"),
        );
        let package = blob.split('/').next().unwrap();
        let files = files_of_package(clone.path(), package).unwrap();
        assert_eq!(
            files
                .iter()
                .map(|(name, _)| name.as_path())
                .collect::<Vec<_>>(),
            [Path::new(blob)]
        );
    }
    let settings = yaml(&clone.path().join("config/final.yml"));
    assert_eq!(settings["name"], "bbs");
    // `bosh vendor-package` requires a blobstore, and git ignores the files that it writes.
    assert_eq!(
        settings["blobstore"],
        json!({ "provider": "local", "options": { "blobstore_path": "final_blobs" } })
    );
    let vendored = [
        "final_blobs/blob",
        ".final_builds/packages/rust-1-linux/index.yml",
        "packages/rust-1-linux/spec.lock",
    ];
    let ignored = output_of(
        Command::new("git")
            .arg("check-ignore")
            .args(vendored)
            .current_dir(release()),
    );
    assert_eq!(ignored.lines().collect::<Vec<_>>(), vendored);
    for job in ["bbs", "bbs-migrate"] {
        let folder = clone.path().join("jobs").join(job);
        let templates = yaml(&folder.join("spec"))["templates"]
            .as_object()
            .expect("a job has templates")
            .clone();
        assert!(folder.join("monit").is_file(), "{job}");
        assert!(
            templates
                .keys()
                .all(|name| folder.join("templates").join(name).is_file()),
            "{job}"
        );
    }
}

#[test]
fn package_of_the_modules_installs_a_folder_that_a_host_loads() {
    let copy = tempfile::tempdir().unwrap();
    copy_folder(
        &release().join("packages/bbs-modules"),
        &copy.path().join("packages/bbs-modules"),
    );
    let staged = copy.path().join("staged");
    copy_folder(&modules(), &staged);
    std::fs::set_permissions(&staged, std::fs::Permissions::from_mode(0o755)).unwrap();
    copy_folder(&release().join("src"), &copy.path().join("src"));
    let blobs = copy.path().join("blobs/bbs-modules");
    std::fs::create_dir_all(&blobs).unwrap();
    output_of(
        Command::new("tar")
            .arg("czf")
            .arg(blobs.join("modules.tar.gz"))
            .arg("-C")
            .arg(&staged)
            .arg("."),
    );

    let packages = tempfile::tempdir().unwrap();
    install(copy.path(), "bbs-modules", packages.path());
    let installed = packages.path().join("bbs-modules");
    let [found, expected] =
        [&installed, &modules()].map(|folder| Catalog::load(folder, &sandbox()).unwrap());
    assert_eq!(found.files(), expected.files());
    for path in [installed.clone(), installed.join("catalog.toml")] {
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o044,
            0o044,
            "{}",
            path.display()
        );
    }
}

#[test]
fn process_of_the_job_is_the_host_with_its_configuration() {
    let processes = |properties: &Value| {
        let rendered = RenderedJob::render("bbs", properties);
        parse_yaml(rendered.text("config/bpm.yml"))["processes"].take()
    };
    let mut properties = required();
    for open_files in [100_000, 4_096] {
        let expected = json!([{
            "name": "bbs",
            "executable": "/var/vcap/packages/bbs/bin/bbs",
            "args": ["-config=/var/vcap/jobs/bbs/config/bbs.json"],
            "hooks": { "pre_start": "/var/vcap/jobs/bbs/bin/bpm-pre-start" },
            "limits": { "open_files": open_files },
        }]);
        properties["limits"]["open_files"] = open_files.into();
        assert_eq!(processes(&properties), expected);
    }
}

#[test]
fn metrics_are_scraped_at_the_port_of_the_host() {
    let rendered = RenderedJob::render("bbs", &all());
    let scraped = parse_yaml(rendered.text("config/prom_scraper_config.yml"));
    assert_eq!(
        scraped,
        json!({ "port": 9100, "source_id": "bbs", "instance_id": "id-1", "scheme": "http" })
    );
}

#[test]
fn metrics_of_the_indicators_exist() {
    // As Loggregator's agents write the names for Prometheus.
    let names = METRICS
        .lines()
        .skip(1)
        .filter_map(|line| line.split('\t').next());
    let known: BTreeSet<_> = names
        .map(|name| name.replace(|c: char| !c.is_ascii_alphanumeric(), "_"))
        .collect();
    let metric = Regex::new(r"(\w+)\{").unwrap();
    let document =
        parse_yaml(RenderedJob::render("bbs", &required()).text("config/indicators.yml"));
    let indicators = document["spec"]["indicators"]
        .as_array()
        .expect("indicators")
        .clone();
    assert!(!indicators.is_empty());
    for indicator in indicators {
        let query = indicator["promql"]
            .as_str()
            .unwrap_or_else(|| panic!("{indicator}"));
        let used: Vec<_> = metric
            .captures_iter(query)
            .map(|found| found[1].to_owned())
            .collect();
        assert!(
            !used.is_empty() && used.iter().all(|name| known.contains(name)),
            "{used:?} of {query}"
        );
        for key in [
            "title",
            "recommended_alert_thresholds",
            "recommended_response",
        ] {
            assert!(
                indicator["documentation"][key].is_string(),
                "{key} of {indicator}"
            );
        }
    }
}

#[test]
fn operations_name_properties_that_the_job_declares() {
    let spec = yaml(&release().join("jobs/bbs/spec"));
    let files = glob::glob(release().join("ops/*.yml").to_str().unwrap())
        .unwrap()
        .map(Result::unwrap);
    let operations: Vec<_> = files
        .flat_map(|file| yaml(&file).as_array().expect("a list").clone())
        .collect();
    let mut properties = 0;
    for operation in &operations {
        let path = operation["path"]
            .as_str()
            .unwrap_or_else(|| panic!("{operation}"));
        assert!(
            operation["type"] == "replace"
                && path.starts_with('/')
                && !operation["value"].is_null(),
            "{operation}"
        );
        if let Some((_, property)) = path.split_once("/properties/") {
            let property = property.replace('/', ".").replace('?', "");
            assert!(
                spec["properties"].get(&property).is_some(),
                "the job has no {property}"
            );
            properties += 1;
        }
    }
    assert!(operations.len() > properties && properties > 0);
}
