//! The BOSH release of another team's module, which `bbs module new --bosh` writes: from the
//! command to a host that migrates.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use bbs::testing::modules::catalog::{Catalog, CatalogPosition};

use super::{check_script, rendered_config, required};
use crate::harness::bosh::package::{files_of_package, install, yaml};
use crate::harness::console::{blocks, run};
use crate::harness::database::Kind;
use crate::harness::host::Installation;
use crate::harness::modules::{AuthorsFolder, modules};
use crate::harness::{command, http_client, workspace};

const CRATE: &str = "add-colour";
/// The name of the release, its job and its package.
const NAME: &str = "bbs-modules-add-colour";

fn new(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = command();
    command
        .args(["module", "new"])
        .args(arguments)
        .arg("--sdk")
        .arg(workspace().join("sdk"));
    command
        .current_dir(folder)
        .output()
        .expect("the executable starts")
}

#[track_caller]
fn succeed(output: &Output) {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[track_caller]
fn refused(output: &Output, words: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && errors.contains(words),
        "{words:?} is not in {errors:?}"
    );
}

/// The release of a new crate on top of the default modules.
fn new_release(folder: &Path, name: &str) -> PathBuf {
    succeed(&new(
        folder,
        &[name, "--bosh", "--base", modules().to_str().unwrap()],
    ));
    folder.join(name).join("bosh")
}

/// Builds the modules of a release with the commands of its README.
#[track_caller]
fn build(release: &Path, expected: &str) {
    let readme = std::fs::read_to_string(release.join("README.md")).unwrap();
    let commands: Vec<_> = blocks(&readme)
        .into_iter()
        .flat_map(|block| block.commands)
        .collect();
    assert_eq!(commands.len(), 2, "{commands:?}");
    let output = run(&commands, release);
    succeed(&output);
    assert!(String::from_utf8_lossy(&output.stdout).contains(expected));
}

/// A host with the pattern of folders of the BOSH job, below another folder of packages.
fn installation(packages: &Path) -> Installation {
    let config = rendered_config(&required());
    let pattern = config["modules_dirs"][0]
        .as_str()
        .expect("the job has a pattern");
    let pattern = pattern.replace("/var/vcap/packages", packages.to_str().unwrap());
    Installation::new(&modules(), Kind::Sqlite).set("modules_dirs", vec![pattern])
}

fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = glob::glob(folder.join("**/*").to_str().unwrap())
        .unwrap()
        .map(Result::unwrap);
    files
        .filter(|path| path.is_file())
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect()
}

/// Goal: an operator adds another team's migration as a release of its own. Method: the commands of
/// the generated README build the module, the package is compiled as by an agent, and a running
/// host with the pattern of folders of the BOSH job finds it there when it reloads.
#[test]
fn release_of_a_new_module_brings_it_to_a_running_host_that_migrates_to_it() {
    let work = AuthorsFolder::locked();
    let release = new_release(work.path(), CRATE);
    build(&release, CRATE);

    let packages = tempfile::tempdir().unwrap();
    let installation = installation(packages.path());
    let mut host = installation.serve();
    let before = contents(&modules());
    let newest = installation.data_version();

    install(&release, NAME, packages.path());
    drop(work);
    let installed = packages.path().join(NAME).join("bbs-modules");
    for path in glob::glob(installed.join("*").to_str().unwrap())
        .unwrap()
        .map(Result::unwrap)
        .chain([installed.clone()])
    {
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o044,
            0o044,
            "{}",
            path.display()
        );
    }
    let entries = Catalog::entries(&installed, &[modules()]).unwrap();
    let CatalogPosition::Migration { version, follows } = entries[0].position else {
        panic!("{entries:?} is not a migration")
    };
    assert_eq!((entries.len(), follows), (1, Some(newest)));

    installation.succeed(&["module", "reload"]);
    host.wait_for_line(|line| line.contains("the database is at the wanted version"));
    assert_eq!(installation.data_version(), version);
    assert!(
        contents(&modules()) == before,
        "files of the host have changed"
    );
    host.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn release_of_a_new_translator_brings_it_to_a_running_host_that_serves_its_version() {
    let work = AuthorsFolder::locked();
    let release = new_release(work.path(), "0.8-to-0.9");
    build(&release, "0.8-to-0.9");
    let packages = tempfile::tempdir().unwrap();
    let installation = installation(packages.path());
    let host = installation.serve();
    let status_of = async |path: &str| {
        http_client()
            .post(host.url(path))
            .send()
            .await
            .unwrap()
            .status()
            .as_u16()
    };
    assert_eq!(status_of("/v0.8/ping").await, 406);
    install(&release, "bbs-modules-0.8-to-0.9", packages.path());
    drop(work);
    let reloaded = installation.succeed(&["module", "reload"]);
    assert!(reloaded.contains("Added: 0.8-to-0.9.wasm."), "{reloaded}");
    assert_eq!(
        (status_of("/v0.8/ping").await, status_of("/v0.9/ping").await),
        (200, 200)
    );
    host.stop();
}

#[test]
fn release_of_a_new_module_has_the_files_and_names_that_bosh_requires() {
    let work = tempfile::tempdir().unwrap();
    let release = new_release(work.path(), CRATE);
    for (file, key) in [
        ("config/final.yml", "/name"),
        (&format!("jobs/{NAME}/spec"), "/name"),
        (&format!("jobs/{NAME}/spec"), "/packages/0"),
        (&format!("packages/{NAME}/spec"), "/name"),
        ("ops/add-modules.yml", "/0/value/name"),
        ("ops/add-modules.yml", "/1/value/name"),
        ("ops/add-modules.yml", "/1/value/release"),
    ] {
        assert_eq!(
            yaml(&release.join(file)).pointer(key),
            Some(&NAME.into()),
            "{key} in {file}"
        );
    }
    assert_eq!(
        yaml(&release.join("config/blobs.yml")),
        serde_json::json!({})
    );
    let job = yaml(&release.join("jobs").join(NAME).join("spec"));
    assert_eq!(
        (&job["templates"], &job["properties"]),
        (&serde_json::json!({}), &serde_json::json!({}))
    );
    assert_eq!(
        std::fs::read(release.join("jobs").join(NAME).join("monit")).unwrap(),
        b""
    );
    let packaging = release.join("packages").join(NAME).join("packaging");
    check_script("packaging", &std::fs::read_to_string(packaging).unwrap());

    // BOSH refuses a release without `src`, and a pattern without a file, so that none is created
    // before the module is built.
    assert_eq!(files_of_package(&release, NAME), Err("src".to_owned()));
    std::fs::create_dir_all(release.join("src/bbs-modules")).unwrap();
    assert_eq!(
        files_of_package(&release, NAME),
        Err("bbs-modules/*".to_owned())
    );
    std::fs::write(release.join("src/bbs-modules/catalog.toml"), "").unwrap();
    let files = files_of_package(&release, NAME).unwrap();
    assert_eq!(files.len(), 1);
    assert_eq!(files[0].0, Path::new("bbs-modules/catalog.toml"));
}

/// BOSH fills no variables in the paths of operations, so that the host's own file can add one
/// release only.
#[test]
fn operations_of_a_release_name_it_in_their_paths() {
    let work = tempfile::tempdir().unwrap();
    let release = new_release(work.path(), CRATE);
    let operations = yaml(&release.join("ops/add-modules.yml"));
    let paths: Vec<_> = operations
        .as_array()
        .unwrap()
        .iter()
        .map(|operation| operation["path"].as_str().unwrap())
        .collect();
    assert_eq!(
        paths,
        [
            format!("/releases/name={NAME}?"),
            format!("/instance_groups/name=diego-api/jobs/name={NAME}?")
        ]
    );
}

#[test]
fn existing_crate_gets_a_release_once_and_stays_as_it_is() {
    let work = tempfile::tempdir().unwrap();
    succeed(&new(work.path(), &[CRATE]));
    let folder = work.path().join(CRATE);
    let before = contents(&folder);
    succeed(&new(work.path(), &[CRATE, "--bosh"]));
    let after = contents(&folder);
    assert!(folder.join("bosh/config/final.yml").exists());
    assert!(
        before
            .iter()
            .all(|(path, content)| after.get(path) == Some(content)),
        "the crate was changed"
    );
    refused(
        &new(work.path(), &[CRATE, "--bosh"]),
        "add-colour/bosh already exists",
    );
    assert_eq!(contents(&folder), after);
}

#[test]
fn release_is_not_written_for_an_invalid_name_or_into_an_existing_folder() {
    let work = tempfile::tempdir().unwrap();
    for name in [
        "acme thing",
        "acme/thing",
        "Acme",
        "acmé",
        ".",
        "..",
        "acme_thing",
        "",
    ] {
        refused(&new(work.path(), &[name, "--bosh"]), "is not a valid name");
    }
    assert_eq!(std::fs::read_dir(work.path()).unwrap().count(), 0);
    std::fs::create_dir(work.path().join(CRATE)).unwrap();
    refused(
        &new(work.path(), &[CRATE, "--bosh"]),
        "add-colour already exists",
    );
    assert_eq!(
        std::fs::read_dir(work.path().join(CRATE)).unwrap().count(),
        0
    );
}
