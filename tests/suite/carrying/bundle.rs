//! `bbs module bundle save` and `load`: what is carried, and which damaged or hostile bundles are
//! refused.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use bbs_files::digest::digest_of;
use serde_json::{Value, json};
use tar::EntryType;

use super::{Site, content, printed_digest};
use crate::harness::database::Kind;
use crate::harness::engine::output_of;
use crate::harness::host::Installation;
use crate::harness::layouts::NEWEST;
use crate::harness::modules::migration_add_on;

const SAVE: &str = "bundle save modules modules.tar";
const LOAD: &str = "bundle load modules.tar --into loaded";
const TITLE: &str = "org.opencontainers.image.title";

#[test]
fn loaded_folder_equals_the_saved_one() {
    let site = Site::new();
    std::fs::write(
        site.path("modules/catalog.toml.minisig"),
        "untrusted comment: a signature\n",
    )
    .unwrap();
    let saved = site.succeed(SAVE);
    let loaded = site.succeed(LOAD);
    assert_eq!(printed_digest(&saved), printed_digest(&loaded));
    assert!(
        loaded.starts_with(&format!("loaded {}", site.has_its_modules())),
        "{loaded}"
    );
    site.assert_arrived("loaded");
    assert!(content(&site.path("loaded")).contains_key("releases.toml"));
    let mode = |name: &str| {
        std::fs::metadata(site.path(name))
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(
        [
            mode("loaded"),
            mode("loaded/catalog.toml"),
            mode("modules.tar")
        ],
        [0o755, 0o644, 0o644]
    );
}

/// The command without a network.
fn offline(command: &Command) -> Command {
    let mut offline = Command::new("unshare");
    offline
        .args(["--map-root-user", "--net"])
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => offline.env(name, value),
            None => offline.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        offline.current_dir(folder);
    }
    offline
}

#[test]
fn bundle_is_loaded_checked_and_used_on_a_machine_without_a_network() {
    let site = Site::new();
    site.succeed(SAVE);
    let interfaces = output_of(&mut offline(Command::new("cat").arg("/proc/net/dev")));
    let names: Vec<_> = interfaces
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, _)| name.trim())
        .collect();
    assert_eq!(names, ["lo"]);
    let loaded = output_of(&mut offline(&site.command(LOAD)));
    assert!(loaded.contains(&site.has_its_modules()), "{loaded}");
    output_of(&mut offline(&site.command("check loaded")));
    let installation = Installation::new(&site.path("loaded"), Kind::Sqlite);
    output_of(&mut offline(&installation.command(&["migrate", "up"])));
    let status = output_of(&mut offline(&installation.command(&["migrate", "status"])));
    assert!(status.contains(&NEWEST.to_string()), "{status}");
}

#[test]
fn add_on_is_carried_without_the_modules_that_it_continues() {
    let site = Site::new();
    std::fs::create_dir(site.path("add-on")).unwrap();
    for (name, bytes) in content(&migration_add_on())
        .into_iter()
        .filter(|(name, _)| name != ".done")
    {
        std::fs::write(site.path("add-on").join(name), bytes).unwrap();
    }
    site.succeed("bundle save add-on add-on.tar");
    site.succeed("bundle load add-on.tar --into loaded");
    assert!(content(&site.path("loaded")) == content(&site.path("add-on")));
    let report = site.succeed("check loaded --base modules");
    assert!(report.contains("add-colour"), "{report}");
}

#[test]
fn files_that_belong_to_no_host_are_not_carried() {
    let site = Site::new();
    std::fs::write(site.path("modules/notes.txt"), "a note").unwrap();
    site.succeed(SAVE);
    site.succeed(LOAD);
    std::fs::remove_file(site.path("modules/notes.txt")).unwrap();
    site.assert_arrived("loaded");
}

#[test]
fn same_folder_gives_the_same_bytes() {
    let site = Site::new();
    site.succeed(SAVE);
    // The copy has other times and another order of its files on disk.
    std::fs::create_dir(site.path("copy")).unwrap();
    for (name, bytes) in content(&site.path("modules")).into_iter().rev() {
        std::fs::write(site.path("copy").join(name), bytes).unwrap();
    }
    site.succeed("bundle save copy copy.tar");
    assert!(
        std::fs::read(site.path("modules.tar")).unwrap()
            == std::fs::read(site.path("copy.tar")).unwrap()
    );
    let mut tar = tar::Archive::new(std::fs::File::open(site.path("modules.tar")).unwrap());
    let mut names = Vec::new();
    for entry in tar.entries().unwrap() {
        let entry = entry.unwrap();
        let header = entry.header();
        assert_eq!(
            (
                header.mtime().unwrap(),
                header.uid().unwrap(),
                header.gid().unwrap()
            ),
            (0, 0, 0)
        );
        assert_eq!(
            (header.username().unwrap(), header.groupname().unwrap()),
            (Some(""), Some(""))
        );
        names.push(entry.path().unwrap().display().to_string());
    }
    assert!(
        names.is_sorted() && names.iter().any(|name| name == "oci-layout"),
        "{names:?}"
    );
}

#[test]
fn manifest_names_each_file_and_its_media_type() {
    let site = Site::new();
    site.succeed(SAVE);
    let bundle = TestBundle::read(&site);
    let manifest = bundle.manifest();
    assert_eq!(
        manifest["artifactType"],
        "application/vnd.diego.bbs.modules.v1"
    );
    assert_eq!(
        manifest["config"]["mediaType"],
        "application/vnd.oci.empty.v1+json"
    );
    let layers = manifest["layers"].as_array().unwrap();
    let titles: Vec<_> = layers
        .iter()
        .map(|layer| layer["annotations"][TITLE].as_str().unwrap())
        .collect();
    assert_eq!(titles[..2], ["catalog.toml", "releases.toml"]);
    assert_eq!(layers.len(), content(&site.path("modules")).len());
    assert!(
        layers[2..]
            .iter()
            .all(|layer| layer["mediaType"] == "application/wasm"),
        "{layers:?}"
    );
}

#[test]
fn folder_with_a_missing_or_altered_module_is_not_saved() {
    let site = Site::new();
    let module = content(&site.path("modules"))
        .into_keys()
        .find(|name| name.ends_with(".wasm"))
        .unwrap();
    let path = site.path("modules").join(&module);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.extend([0, 2, 1, b'x']);
    std::fs::write(&path, bytes).unwrap();
    site.refused(
        SAVE,
        &[
            "the folder modules is not a valid catalog",
            &module,
            "was altered",
        ],
    );
    std::fs::remove_file(&path).unwrap();
    site.refused(SAVE, &[&module, "is not in the folder modules"]);
    site.refused(
        "bundle save absent modules.tar",
        &["absent/catalog.toml is not there"],
    );
}

#[test]
fn target_that_is_not_a_new_folder_is_refused() {
    let site = Site::new();
    site.succeed(SAVE);
    site.refused(
        "bundle load modules.tar --into modules",
        &["modules is not empty", "bbs module add"],
    );
    site.refused(
        "bundle load modules.tar --into modules.tar",
        &["the folder modules.tar cannot be written"],
    );
    site.refused(
        "bundle load modules.tar --into absent/loaded",
        &["the folder above it exists"],
    );
    std::fs::create_dir(site.path("empty")).unwrap();
    std::os::unix::fs::symlink("empty", site.path("link")).unwrap();
    site.succeed("bundle load modules.tar --into link");
    site.assert_arrived("empty");
    assert!(site.path("link").is_symlink());
}

#[test]
fn truncated_bundle_is_refused() {
    let site = Site::new();
    site.succeed(SAVE);
    let whole = std::fs::read(site.path("modules.tar")).unwrap();
    // The end of the file is two empty blocks, without which it is complete.
    let lengths =
        (0..20)
            .map(|part| part * (whole.len() - 1024) / 20)
            .chain([300, 512, whole.len() - 1025]);
    for length in lengths {
        std::fs::write(site.path("modules.tar"), &whole[..length]).unwrap();
        site.refused(LOAD, &["modules.tar"]);
    }
    for other in ["a text", &"x".repeat(1024)] {
        std::fs::write(site.path("modules.tar"), other).unwrap();
        site.refused(LOAD, &["modules.tar"]);
    }
    site.refused(
        "bundle load absent.tar --into loaded",
        &["absent.tar cannot be read"],
    );
}

/// The entries of a bundle, to be changed and written back.
struct TestBundle(Vec<TestEntry>);

#[derive(Clone)]
struct TestEntry {
    name: String,
    kind: EntryType,
    bytes: Vec<u8>,
}

impl TestBundle {
    fn read(site: &Site) -> Self {
        let mut tar = tar::Archive::new(std::fs::File::open(site.path("modules.tar")).unwrap());
        let entries = tar.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let mut bytes = Vec::new();
            std::io::copy(&mut entry, &mut bytes).unwrap();
            TestEntry {
                name: entry.path().unwrap().display().to_string(),
                kind: EntryType::Regular,
                bytes,
            }
        });
        Self(entries.collect())
    }

    fn write(&self, path: &Path) {
        let mut tar = tar::Builder::new(std::fs::File::create(path).unwrap());
        for TestEntry { name, kind, bytes } in &self.0 {
            let mut header = tar::Header::new_ustar();
            // Not `set_path`, which refuses the paths that these tests need.
            header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
            header.set_entry_type(*kind);
            header.set_size(bytes.len() as u64);
            if matches!(kind, EntryType::Symlink | EntryType::Link) {
                header.set_link_name("/etc/passwd").unwrap();
            }
            header.set_cksum();
            tar.append(&header, bytes.as_slice()).unwrap();
        }
        tar.finish().unwrap();
    }

    fn entry(&mut self, name: &str) -> &mut TestEntry {
        self.0.iter_mut().find(|entry| entry.name == name).unwrap()
    }

    fn add(&mut self, name: &str, kind: EntryType, bytes: &[u8]) {
        self.0.push(TestEntry {
            name: name.to_owned(),
            kind,
            bytes: bytes.to_vec(),
        });
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_slice(
            &self
                .0
                .iter()
                .find(|entry| entry.name == name)
                .unwrap()
                .bytes,
        )
        .unwrap()
    }

    fn manifest_entry(&self) -> String {
        blob(
            self.json("index.json")["manifests"][0]["digest"]
                .as_str()
                .unwrap(),
        )
    }

    fn manifest(&self) -> Value {
        self.json(&self.manifest_entry())
    }

    /// Changes the manifest; the index refers to the changed one.
    fn change_manifest(&mut self, change: impl FnOnce(&mut Value)) {
        let entry = self.manifest_entry();
        let mut manifest = self.manifest();
        change(&mut manifest);
        let bytes = serde_json::to_vec(&manifest).unwrap();
        let mut index = self.json("index.json");
        index["manifests"][0]["digest"] = digest(&bytes).into();
        index["manifests"][0]["size"] = bytes.len().into();
        self.entry("index.json").bytes = serde_json::to_vec(&index).unwrap();
        *self.entry(&entry) = TestEntry {
            name: blob(&digest(&bytes)),
            kind: EntryType::Regular,
            bytes,
        };
    }

    /// Changes the catalog; manifest and index refer to the changed one.
    fn change_catalog(&mut self, change: impl FnOnce(String) -> String) {
        let entry = blob(self.manifest()["layers"][0]["digest"].as_str().unwrap());
        let bytes =
            change(String::from_utf8(self.entry(&entry).bytes.clone()).unwrap()).into_bytes();
        self.change_manifest(|manifest| {
            manifest["layers"][0]["digest"] = digest(&bytes).into();
            manifest["layers"][0]["size"] = bytes.len().into();
        });
        *self.entry(&entry) = TestEntry {
            name: blob(&digest(&bytes)),
            kind: EntryType::Regular,
            bytes,
        };
    }
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", digest_of(bytes))
}

fn blob(digest: &str) -> String {
    digest.replace("sha256:", "blobs/sha256/")
}

/// A saved bundle, changed by `change`, is not loaded, and the error has these words.
#[track_caller]
fn assert_refused(site: &Site, change: impl FnOnce(&mut TestBundle), words: &[&str]) {
    site.succeed(SAVE);
    let mut bundle = TestBundle::read(site);
    change(&mut bundle);
    bundle.write(&site.path("modules.tar"));
    site.refused(LOAD, words);
}

#[test]
fn rewritten_bundle_is_loaded() {
    let site = Site::new();
    site.succeed(SAVE);
    let mut bundle = TestBundle::read(&site);
    // As other programs write it: with folders, in another order, with fields of a later version.
    bundle.add("blobs/", EntryType::Directory, &[]);
    bundle.add("blobs/sha256/", EntryType::Directory, &[]);
    bundle.change_manifest(|manifest| manifest["annotations"] = json!({ "org.example": "later" }));
    bundle.0.reverse();
    bundle.write(&site.path("modules.tar"));
    site.succeed(LOAD);
    site.assert_arrived("loaded");
}

#[test]
fn bundle_with_other_blobs_than_its_manifest_is_refused() {
    let site = Site::new();
    let module =
        |bundle: &TestBundle| blob(bundle.manifest()["layers"][5]["digest"].as_str().unwrap());
    site.succeed(SAVE);
    let name = module(&TestBundle::read(&site));
    assert_refused(
        &site,
        |bundle| bundle.entry(&name).bytes[100] ^= 1,
        &[&name, "was altered"],
    );
    assert_refused(
        &site,
        |bundle| bundle.0.retain(|entry| entry.name != name),
        &[&name, "is missing"],
    );
    let config = blob(&digest(b"{}"));
    assert_refused(
        &site,
        |bundle| bundle.0.retain(|entry| entry.name != config),
        &[&config, "is missing"],
    );
    let extra = blob(&digest(b"extra"));
    let words = [&*extra, "does not belong to the artifact"];
    assert_refused(
        &site,
        |bundle| bundle.add(&extra, EntryType::Regular, b"extra"),
        &words,
    );
    let twice = |bundle: &mut TestBundle| bundle.0.push(bundle.0[0].clone());
    assert_refused(&site, twice, &["is there twice"]);
    assert_refused(
        &site,
        |bundle| bundle.change_manifest(|manifest| manifest["layers"][5]["size"] = json!(7)),
        &["was altered or cut short", "lists 7 bytes"],
    );
    for part in ["oci-layout", "index.json"] {
        assert_refused(
            &site,
            |bundle| bundle.0.retain(|entry| entry.name != part),
            &[part, "is missing"],
        );
        assert_refused(
            &site,
            |bundle| bundle.entry(part).bytes.truncate(9),
            &[part, "is not valid"],
        );
    }
}

#[test]
fn entries_that_are_no_files_of_a_layout_are_refused() {
    let site = Site::new();
    let regular = EntryType::Regular;
    let digits = "0".repeat(64);
    for name in [
        "../evil",
        "/evil",
        "evil",
        "blobs/sha256/../../evil",
        "blobs/evil",
        &format!("blobs/sha512/{digits}"),
    ] {
        assert_refused(
            &site,
            |bundle| bundle.add(name, regular, b"x"),
            &[name, "is not one of an OCI image layout"],
        );
    }
    let name = format!("blobs/sha256/{digits}");
    for kind in [
        EntryType::Symlink,
        EntryType::Link,
        EntryType::Fifo,
        EntryType::Char,
        EntryType::XHeader,
    ] {
        assert_refused(
            &site,
            |bundle| bundle.add(&name, kind, &[]),
            &[&name, "is not a regular file"],
        );
    }
    assert_refused(
        &site,
        |bundle| bundle.add("evil/", EntryType::Directory, &[]),
        &["evil/", "is not a regular file"],
    );
    let large = vec![0; (4 << 20) + 1];
    assert_refused(
        &site,
        |bundle| bundle.add(&name, regular, &large),
        &[&name, "is larger than 4194304 bytes"],
    );
    // A file without blocks on the disk.
    std::fs::File::create(site.path("modules.tar"))
        .unwrap()
        .set_len(1 << 30)
        .unwrap();
    let output = site.command(LOAD).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("modules.tar is larger than"));
    assert!(!output.status.success() && !site.path("loaded").exists());
}

#[test]
fn artifact_of_another_kind_or_version_is_refused() {
    let site = Site::new();
    assert_refused(
        &site,
        |bundle| bundle.change_manifest(|manifest| manifest["artifactType"] = json!("x/image")),
        &["\"x/image\"", "bbs module bundle save"],
    );
    let layout = |bundle: &mut TestBundle| {
        bundle.entry("oci-layout").bytes = b"{\"imageLayoutVersion\":\"2.0.0\"}".to_vec()
    };
    assert_refused(&site, layout, &["oci-layout", "is of version \"2.0.0\""]);
    assert_refused(
        &site,
        |bundle| {
            let mut index = bundle.json("index.json");
            let first = index["manifests"][0].clone();
            index["manifests"].as_array_mut().unwrap().push(first);
            bundle.entry("index.json").bytes = serde_json::to_vec(&index).unwrap();
        },
        &["index.json", "lists 2 artifacts"],
    );
}

#[test]
fn file_names_that_no_folder_of_modules_has_are_refused() {
    let site = Site::new();
    for name in [
        "../evil.wasm",
        "/evil.wasm",
        "a/b.wasm",
        ".evil.wasm",
        "run.sh",
        "",
        "catalog.toml/",
        "Catalog.toml",
    ] {
        assert_refused(
            &site,
            |bundle| bundle.change_manifest(|m| m["layers"][5]["annotations"][TITLE] = json!(name)),
            &[&format!("{name:?}"), "no file of a folder of modules"],
        );
    }
    assert_refused(
        &site,
        |bundle| {
            bundle.change_manifest(|m| {
                drop(
                    m["layers"][5]
                        .as_object_mut()
                        .unwrap()
                        .remove("annotations"),
                )
            })
        },
        &["a layer without a file name"],
    );
    assert_refused(
        &site,
        |bundle| {
            bundle.change_manifest(|m| {
                m["layers"][5]["annotations"] = m["layers"][4]["annotations"].clone()
            })
        },
        &["two layers for"],
    );
    for digest in ["sha256:../../_catalog", "sha512:00", "", &"0".repeat(64)] {
        assert_refused(
            &site,
            |bundle| bundle.change_manifest(|m| m["layers"][5]["digest"] = json!(digest)),
            &[&format!("{digest:?}, which is no sha256 digest")],
        );
    }
    assert_refused(
        &site,
        |bundle| bundle.change_manifest(|m| m["layers"][5]["size"] = json!(5 << 20)),
        &["is larger than"],
    );
}

#[test]
fn modules_that_are_not_those_of_the_catalog_are_refused() {
    let site = Site::new();
    assert_refused(
        &site,
        |bundle| {
            bundle.change_catalog(|catalog| catalog.rsplit_once("[[module]]").unwrap().0.to_owned())
        },
        &["which its catalog does not list"],
    );
    assert_refused(
        &site,
        |bundle| {
            bundle.change_catalog(|catalog| {
                let (before, after) = catalog.split_once("sha256 = \"").unwrap();
                format!("{before}sha256 = \"{}{}", "0".repeat(64), &after[64..])
            })
        },
        &["with another sha256", &"0".repeat(64)],
    );
    assert_refused(
        &site,
        |bundle| {
            let layer = bundle.manifest()["layers"][5].clone();
            bundle
                .0
                .retain(|entry| entry.name != blob(layer["digest"].as_str().unwrap()));
            bundle.change_manifest(|manifest| {
                drop(manifest["layers"].as_array_mut().unwrap().remove(5))
            });
        },
        &["its catalog lists", "which the artifact does not have"],
    );
    assert_refused(
        &site,
        |bundle| bundle.change_catalog(|_| "module = 1".to_owned()),
        &["catalog.toml is not a catalog"],
    );
    // Not quoted, so that no bundle controls the terminal or fills the log.
    assert_refused(
        &site,
        |bundle| bundle.change_catalog(|_| format!("\u{1b}[31m{}", "x".repeat(5000))),
        &["catalog.toml is not a catalog (line 1: "],
    );
    assert_refused(
        &site,
        |bundle| {
            bundle.change_manifest(|manifest| {
                manifest["layers"][0]["annotations"][TITLE] = json!("catalog.toml.minisig")
            });
        },
        &["it has no catalog.toml"],
    );
}
