//! The artifacts of a release, as far as they can be made without the build of one:
//! `host/release/package` on this executable and the modules of the tests, and its scripts.
//! `host/release/try` installs and runs the artifacts of a real build.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use bbs_files::digest::digest_of;
use serde_json::{Value, json};

use crate::harness::modules::modules;
use crate::harness::{bbs, workspace};

fn folder() -> PathBuf {
    workspace().join("host/release")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The standard output of a command that must succeed.
#[track_caller]
fn output_of(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Packages of a program that starts this executable, which is too large to compress in a test.
struct MadePackages {
    folder: tempfile::TempDir,
}

impl MadePackages {
    fn make(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        std::fs::write(
            &program,
            format!("#!/bin/sh\nexec '{}' \"$@\"\n", bbs().display()),
        )
        .unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let cache = folder.path().join("cache");
        std::fs::create_dir(&cache).unwrap();
        std::fs::write(cache.join("compiled"), "machine code").unwrap();
        let mut package = Command::new(self::folder().join("package"));
        package
            .arg("--executable")
            .arg(&program)
            .arg("--modules")
            .arg(modules())
            .arg("--module-cache")
            .arg(&cache);
        package
            .arg("--out")
            .arg(folder.path().join(name))
            .args(["--machine", "x86_64"]);
        package
            .env("SOURCE_DATE_EPOCH", "1795000000")
            .env("BBS_BUILD_COMMIT", "0123456789ab");
        output_of(&mut package);
        std::fs::rename(folder.path().join(name), folder.path().join("out")).unwrap();
        Self { folder }
    }

    /// The only file with this ending.
    fn file(&self, ending: &str) -> PathBuf {
        let entries = std::fs::read_dir(self.folder.path().join("out"))
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let mut found = entries.filter(|path| path.to_str().unwrap().ends_with(ending));
        let file = found
            .next()
            .unwrap_or_else(|| panic!("no file ends with {ending}"));
        assert_eq!(found.next(), None);
        file
    }

    /// The files of the Debian package, unpacked.
    fn installed(&self) -> PathBuf {
        let root = self.folder.path().join("root");
        output_of(
            Command::new("dpkg-deb")
                .arg("--raw-extract")
                .arg(self.file("_amd64.deb"))
                .arg(&root),
        );
        root
    }

    /// The image layout, unpacked.
    fn layout(&self) -> PathBuf {
        let layout = self.folder.path().join("layout");
        std::fs::create_dir(&layout).unwrap();
        output_of(
            Command::new("tar")
                .arg("xf")
                .arg(self.file("-amd64.tar"))
                .arg("-C")
                .arg(&layout),
        );
        layout
    }
}

/// Goal: what an operator downloads can be compared with what another person has built from the
/// same source.
#[test]
fn packages_of_the_same_input_are_equal() {
    let [first, second] = ["one", "two"].map(MadePackages::make);
    for ending in ["_amd64.deb", "-amd64.tar"] {
        assert!(
            std::fs::read(first.file(ending)).unwrap()
                == std::fs::read(second.file(ending)).unwrap(),
            "{ending}"
        );
    }
}

#[test]
fn debian_package_has_the_program_its_modules_its_service_and_its_documentation() {
    let packages = MadePackages::make("out");
    let root = packages.installed();
    let control = read(&root.join("DEBIAN/control"));
    let version = env!("CARGO_PKG_VERSION").replace('-', "~");
    for line in [
        "Package: bbs".to_owned(),
        format!("Version: {version}-1"),
        "Architecture: amd64".to_owned(),
    ] {
        assert!(
            control.lines().any(|found| found == line),
            "{line} is not in {control}"
        );
    }
    assert!(
        !control.contains('@') || control.matches('@').count() == 1,
        "a place is not filled: {control}"
    );
    assert_eq!(
        std::fs::read_link(root.join("usr/bin/bbs")).unwrap(),
        Path::new("../lib/bbs/bbs")
    );
    for file in [
        "modules/catalog.toml",
        "modules/releases.toml",
        "modules/1795000010-lrp-definitions.wasm",
    ] {
        assert!(root.join("usr/lib/bbs").join(file).is_file(), "{file}");
    }
    for page in [
        "bbs.1.gz",
        "bbs-serve.1.gz",
        "bbs-migrate-status.1.gz",
        "bbs-ready.1.gz",
    ] {
        assert!(
            root.join("usr/share/man/man1").join(page).is_file(),
            "{page}"
        );
    }
    for (file, checker) in [
        ("bash-completion/completions/bbs", Some("bash")),
        ("zsh/vendor-completions/_bbs", None),
        ("fish/vendor_completions.d/bbs.fish", None),
    ] {
        let file = root.join("usr/share").join(file);
        assert!(read(&file).contains("migrate"), "{}", file.display());
        if let Some(shell) = checker {
            output_of(Command::new(shell).arg("-n").arg(&file));
        }
    }
    assert_eq!(
        read(&root.join("usr/lib/systemd/system/bbs.service")),
        read(&folder().join("bbs.service"))
    );
    let sums = output_of(
        Command::new("md5sum")
            .args(["--check", "--strict", "DEBIAN/md5sums"])
            .current_dir(&root),
    );
    assert!(sums.lines().count() > 30, "{sums}");
}

/// Goal: the example that a package brings is one with which a host starts.
#[test]
fn example_of_the_configuration_can_be_used() {
    let example: Value = serde_json::from_str(&read(&folder().join("bbs.json"))).unwrap();
    let work = tempfile::tempdir().unwrap();
    let mut config = example.clone();
    for (key, path) in [
        ("database_connection_string", "bbs.db"),
        ("data_dir", "data"),
    ] {
        config[key] = work.path().join(path).to_str().unwrap().into();
    }
    config["modules_dir"] = modules().to_str().unwrap().into();
    let file = work.path().join("bbs.json");
    std::fs::write(&file, config.to_string()).unwrap();
    let checked = output_of(
        crate::harness::command()
            .args(["check-config", "--json", "--config"])
            .arg(&file),
    );
    let checked: Value = serde_json::from_str(&checked).unwrap();
    assert_eq!(
        checked,
        json!({ "usable": true, "warnings": [], "faults": [] })
    );
    let service = read(&folder().join("bbs.service"));
    for (key, folder) in [
        ("data_dir", "StateDirectory=bbs"),
        ("database_connection_string", "StateDirectory=bbs"),
    ] {
        assert!(
            example[key].as_str().unwrap().starts_with("/var/lib/bbs/") && service.contains(folder)
        );
    }
}

/// Goal: a host of the package serves again after what made it fail has passed, however late.
#[test]
fn service_starts_a_host_that_failed_again_without_end() {
    let service = read(&folder().join("bbs.service"));
    let (unit, rest) = service.split_once("\n[Service]\n").unwrap();
    assert!(unit.contains("\nStartLimitIntervalSec=0\n"), "{unit}");
    assert!(rest.contains("\nRestart=on-failure\n"), "{rest}");
}

/// Goal: commands reach a host of the package that has Diego's configuration, whose default data
/// folder is below `/var/tmp`.
#[test]
fn documents_name_the_data_folder_of_a_service_with_its_own_var_tmp() {
    let service = read(&folder().join("bbs.service"));
    assert!(service.contains("\nPrivateTmp=yes\n"), "{service}");
    let example: Value = serde_json::from_str(&read(&folder().join("bbs.json"))).unwrap();
    let setting = format!("`\"data_dir\": {}`", example["data_dir"]);
    for document in ["host/UPGRADING.md", "host/release/README.md"] {
        assert!(
            read(&workspace().join(document)).contains(&setting),
            "{setting} is not in {document}"
        );
    }
}

/// A file of an image layout by its digest, which is verified.
fn blob(layout: &Path, description: &Value) -> Vec<u8> {
    let digest = description["digest"]
        .as_str()
        .unwrap()
        .strip_prefix("sha256:")
        .unwrap();
    let content = std::fs::read(layout.join("blobs/sha256").join(digest)).unwrap();
    assert_eq!(description["size"], content.len(), "{description}");
    assert_eq!(digest_of(&content), digest);
    content
}

#[test]
fn image_is_a_layout_of_verified_blobs_with_a_user_a_health_check_and_labels() {
    let packages = MadePackages::make("out");
    let layout = packages.layout();
    let index: Value = serde_json::from_str(&read(&layout.join("index.json"))).unwrap();
    let manifest: Value = serde_json::from_slice(&blob(&layout, &index["manifests"][0])).unwrap();
    let config: Value = serde_json::from_slice(&blob(&layout, &manifest["config"])).unwrap();
    assert_eq!(config["config"]["User"], "65532:65532");
    assert_eq!(config["config"]["Healthcheck"]["Test"][2], "ready");
    let labels = &config["config"]["Labels"];
    assert_eq!(
        labels["org.opencontainers.image.version"],
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(labels["org.opencontainers.image.revision"], "0123456789ab");

    let mut names = BTreeSet::new();
    let layers = manifest["layers"].as_array().unwrap();
    assert_eq!(
        layers.len(),
        config["rootfs"]["diff_ids"].as_array().unwrap().len()
    );
    for layer in layers {
        let file = packages.folder.path().join("layer.tar.gz");
        std::fs::write(&file, blob(&layout, layer)).unwrap();
        let listed = output_of(
            Command::new("tar")
                .args(["--numeric-owner", "-tvzf"])
                .arg(&file),
        );
        names.extend(
            listed
                .lines()
                .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")),
        );
    }
    let has = |start: &str, end: &str| {
        names
            .iter()
            .any(|line| line.starts_with(start) && line.ends_with(end))
    };
    for (start, end) in [
        ("-rwxr-xr-x 0/0", "./usr/lib/bbs/bbs"),
        ("-rw-r--r-- 0/0", "./usr/lib/bbs/modules/catalog.toml"),
        ("-rw-r--r-- 0/0", "./usr/lib/bbs/module-cache/compiled"),
        ("drwxr-x--- 65532/65532", "./var/lib/bbs/"),
        ("drwxrwxrwt 0/0", "./tmp/"),
        ("-rw-r--r-- 0/0", "./etc/passwd"),
    ] {
        assert!(has(start, end), "{start} {end} is not in {names:#?}");
    }
}

/// Goal: a release cannot be built from a tag of another version, or into a folder that has files.
#[test]
fn build_refuses_a_folder_with_files_and_unknown_options() {
    let work = tempfile::tempdir().unwrap();
    std::fs::write(work.path().join("file"), "").unwrap();
    let build = |arguments: &[&str]| -> Output {
        Command::new(folder().join("build"))
            .args(arguments)
            .current_dir(std::env::temp_dir())
            .output()
            .unwrap()
    };
    let path = work.path().to_str().unwrap();
    for (arguments, code, words) in [
        (&["--out", path][..], 1, "is not empty"),
        (&[], 1, "name a folder with --out"),
        (&["--out"], 1, "--out needs a value"),
        (&["--fast"], 2, "Usage: host/release/build"),
    ] {
        let output = build(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(code) && errors.contains(words),
            "{arguments:?}: {errors}"
        );
    }
    assert!(String::from_utf8_lossy(&build(&["--help"]).stdout).contains("BBS_MODULE_KEY"));
}

/// Goal: the folders of a build may have spaces in their names, and its target folder may be
/// relative. Method: programs that print the flags and make an executable, which ends the script.
#[test]
fn build_accepts_folders_with_spaces_and_a_relative_target_folder() {
    let work = tempfile::tempdir().unwrap();
    let [checkout, programs] = ["a checkout", "programs"].map(|name| work.path().join(name));
    std::fs::create_dir_all(checkout.join("host/release")).unwrap();
    std::fs::create_dir(&programs).unwrap();
    let build = checkout.join("host/release/build");
    std::fs::copy(folder().join("build"), &build).unwrap();
    std::fs::write(
        checkout.join("host/Cargo.toml"),
        "version = \"0.2.0-dev\"\n",
    )
    .unwrap();
    let cargo = r#"echo "$CARGO_ENCODED_RUSTFLAGS" | tr '\037' '\n'
eval "printf '%s\n' $CFLAGS_made_linux_gnu"
made=$CARGO_TARGET_DIR/made-linux-gnu/debug
mkdir -p "$made"
printf '#!/bin/sh\nexit 7\n' >"$made/bbs"
chmod +x "$made/bbs""#;
    let idle = ["cc", "dpkg-deb", "git", "rustc", "rustup", "xz"].map(|name| (name, ":"));
    let calls = [("cargo", cargo), ("objcopy", r#"cp "$3" "$4""#)];
    for (name, script) in calls.into_iter().chain(idle) {
        let program = programs.join(name);
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let output = Command::new(build)
        .args(["--profile", "dev", "--target", "made-linux-gnu", "--out"])
        .arg(work.path().join("out"))
        .env("PATH", format!("{}:/usr/bin:/bin", programs.display()))
        .env("CARGO_HOME", "/a home")
        .env("CARGO_TARGET_DIR", "a target")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{errors}");
    let checkout = checkout.display();
    let flags = [
        format!("--remap-path-prefix={checkout}=/source"),
        "--remap-path-prefix=/a home=/cargo".to_owned(),
        format!("--remap-path-prefix={checkout}/a target=/target"),
        "-ffile-prefix-map=/a home=/cargo".to_owned(),
        format!("-ffile-prefix-map={checkout}/a target=/target"),
    ];
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed.lines().collect::<Vec<_>>(), flags);
}

#[test]
fn scripts_of_a_release_are_valid() {
    let scripts = [
        "build",
        "package",
        "materials",
        "try",
        "debian/postinst",
        "debian/prerm",
        "debian/postrm",
    ];
    for script in scripts.map(|name| folder().join(name)) {
        output_of(Command::new("sh").arg("-n").arg(&script));
        output_of(Command::new("shellcheck").arg(&script));
    }
}

/// Goal: the bill names every crate of the lock file's versions that is linked, with its digest.
#[test]
fn bill_of_materials_lists_linked_crates_with_digests() {
    let bill = output_of(Command::new(folder().join("materials")).arg("x86_64-unknown-linux-gnu"));
    let bill: Value = serde_json::from_str(&bill).unwrap();
    assert_eq!(
        (&bill["bomFormat"], &bill["specVersion"]),
        (&json!("CycloneDX"), &json!("1.5"))
    );
    let components = bill["components"].as_array().unwrap();
    let find = |name: &str| {
        components
            .iter()
            .find(|component| component["name"] == name)
    };
    let wasmtime = find("wasmtime").expect("it is linked");
    let lock = read(&workspace().join("Cargo.lock"));
    let digest = wasmtime["hashes"][0]["content"].as_str().unwrap();
    assert!(
        lock.contains(digest)
            && wasmtime["licenses"][0]["expression"]
                .as_str()
                .unwrap()
                .contains("Apache-2.0")
    );
    assert!(
        find("proptest").is_none() && find("prost-derive").is_none(),
        "of tests, or a macro"
    );
    assert!(
        components
            .iter()
            .all(|component| component["licenses"][0]["expression"] != "")
    );
}
