//! Signed catalogs: `bbs module sign`, what a host with `trusted_keys` refuses, and the serials
//! that a database remembers. The other side is the program `minisign`.

use std::path::PathBuf;
use std::process::Command;

use bbs_lens::transform::Transform as _;
use serde_json::json;

use super::*;
use crate::harness::database::{dump, execute, on_each_database, texts};
use crate::harness::modules::{copy_folder, guests, migration_add_on, modules};
use crate::harness::output::{errors, succeeded};

/// A temporary folder with keys and folders of modules, where commands run.
struct SigningSite(tempfile::TempDir);

impl SigningSite {
    /// A site with a key `author`, and the default modules, signed with it as the catalog `host`.
    fn new() -> Self {
        let site = Self::with_key();
        site.copy(&modules(), "host");
        site.succeed("sign host --key author.key --name host");
        site
    }

    /// A site with a key `author`.
    fn with_key() -> Self {
        let site = Self(tempfile::tempdir().unwrap());
        site.make_key("author");
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn copy(&self, from: &Path, name: &str) {
        copy_folder(from, &self.path(name));
    }

    /// The add-on of the harness, signed by `author` as the catalog `colours`.
    fn add_add_on(&self) {
        self.copy(&migration_add_on(), "colours");
        self.succeed("sign colours --key author.key --name colours");
    }

    fn make_key(&self, name: &str) {
        self.minisign(&format!("-G -f -W -p {name}.pub -s {name}.key"));
    }

    fn public_key(&self, name: &str) -> String {
        self.text(&format!("{name}.pub"))
            .lines()
            .nth(1)
            .expect("a public key")
            .to_owned()
    }

    /// The id of a key, as minisign writes it.
    fn id(&self, name: &str) -> String {
        let text = self.text(&format!("{name}.pub"));
        text.lines()
            .next()
            .and_then(|line| line.split(' ').next_back())
            .expect("an id")
            .to_owned()
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), text).unwrap();
    }

    #[track_caller]
    fn minisign(&self, line: &str) -> String {
        let minisign = Command::new("minisign")
            .args(line.split(' '))
            .current_dir(self.0.path())
            .output();
        succeeded(minisign.expect("`minisign` is installed; `tests/run` does that"))
    }

    fn module(&self, line: &str) -> Command {
        let mut command = crate::harness::command();
        command
            .arg("module")
            .args(line.split(' '))
            .current_dir(self.0.path());
        command
            .env_remove("BBS_MODULE_KEY_PASSWORD")
            .stdin(std::process::Stdio::null());
        command
    }

    #[track_caller]
    fn succeed(&self, line: &str) -> String {
        succeeded(self.module(line).output().unwrap())
    }

    /// Runs a command that must fail, and asserts that the folder `host` is unchanged.
    #[track_caller]
    fn refused(&self, line: &str, words: &[&str]) {
        let before = [
            self.text("host/catalog.toml"),
            self.text("host/catalog.toml.minisig"),
        ];
        let output = self.module(line).output().unwrap();
        assert!(!output.status.success(), "{line} succeeded");
        assert_contains(&errors(&output), words);
        assert!(
            [
                self.text("host/catalog.toml"),
                self.text("host/catalog.toml.minisig")
            ] == before,
            "{line}"
        );
    }

    fn installation(&self, kind: Kind) -> Installation {
        let keys =
            json!({ "host": [self.public_key("author")], "colours": [self.public_key("author")] });
        Installation::new(&self.path("host"), kind).set("trusted_keys", keys)
    }

    fn serial(&self, folder: &str) -> u64 {
        let catalog = self.text(&format!("{folder}/catalog.toml"));
        catalog
            .lines()
            .find_map(|line| line.strip_prefix("serial = "))
            .expect("a serial")
            .parse()
            .unwrap()
    }
}

/// Asserts that a host refuses to start, as a failure of its configuration.
#[track_caller]
fn cannot_start(installation: &Installation, words: &[&str]) {
    let output = installation.run(&["serve"]);
    let errors = errors(&output);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert_contains(&errors, words);
}

#[test]
fn signed_catalogs_are_served_and_carried_and_minisign_verifies_them() {
    let site = SigningSite::new();
    site.add_add_on();
    let verify = format!("-V -P {} -m host/catalog.toml", site.public_key("author"));
    assert!(
        site.minisign(&verify)
            .contains(&format!("catalog host, serial {}", site.serial("host")))
    );
    let installation = site
        .installation(Kind::Sqlite)
        .set("modules_dirs", json!([site.path("colours")]));
    let mut host = installation.serve();
    assert!(
        host.output()
            .iter()
            .all(|line| !line.contains("not verified")),
        "{:#?}",
        host.output()
    );
    host.stop();

    // minisign's own signature, of the same content.
    site.minisign("-S -W -s author.key -m host/catalog.toml");
    installation.succeed(&["migrate", "status"]);

    site.succeed("bundle save host host.tar");
    site.succeed("bundle load host.tar --into loaded");
    site.minisign(&verify.replace("host/", "loaded/"));
    let status = installation.set("modules_dir", json!(site.path("loaded")));
    status.succeed(&["migrate", "status"]);
}

#[test]
fn catalog_without_a_signature_by_a_trusted_key_is_refused() {
    let site = SigningSite::new();
    let installation = site.installation(Kind::Sqlite);
    let (catalog, signature) = (
        site.text("host/catalog.toml"),
        site.text("host/catalog.toml.minisig"),
    );
    let restore = || {
        site.write("host/catalog.toml", &catalog);
        site.write("host/catalog.toml.minisig", &signature);
    };

    std::fs::remove_file(site.path("host/catalog.toml.minisig")).unwrap();
    cannot_start(
        &installation,
        &[
            "host/catalog.toml",
            "is not signed",
            "bbs module sign",
            "`trusted_keys`",
        ],
    );

    let without = |key: &str| -> String {
        catalog
            .split_inclusive('\n')
            .filter(|line| !line.starts_with(key))
            .collect()
    };
    for (key, words) in [
        ("name", "the catalog has no `name`"),
        ("serial", "the catalog host has no `serial`"),
    ] {
        site.write("host/catalog.toml", without(key));
        site.minisign("-S -W -s author.key -m host/catalog.toml");
        cannot_start(&installation, &[words, "bbs module sign"]);
    }

    restore();
    site.make_key("stranger");
    site.succeed("sign host --key stranger.key");
    let [author, stranger] = ["author", "stranger"].map(|name| site.id(name));
    cannot_start(
        &installation,
        &[
            "catalog host is signed by key",
            &stranger,
            "not trusted",
            &author,
        ],
    );
    let version = installation.run(&["api", "versions"]);
    assert_contains(&errors(&version), &[&stranger]);

    restore();
    site.minisign("-S -W -l -s author.key -m host/catalog.toml");
    cannot_start(&installation, &["legacy form", "bbs module sign"]);

    restore();
    site.write("host/catalog.toml.minisig", "no signature");
    cannot_start(&installation, &["is not a signature of minisign"]);

    restore();
    let keys = json!({ "host": [site.public_key("stranger")] });
    let installation = installation.set("trusted_keys", keys);
    cannot_start(
        &installation,
        &[
            "catalog host is signed by key",
            &author,
            "not trusted",
            &stranger,
        ],
    );
    let installation = installation.set(
        "trusted_keys",
        json!({ "other": [site.public_key("author")] }),
    );
    cannot_start(
        &installation,
        &["no key is trusted for the catalog host", "under \"host\""],
    );
    let installation = installation.set("trusted_keys", json!({ "host": ["no key"] }));
    cannot_start(
        &installation,
        &["`trusted_keys`", "number 1 of the keys for \"host\""],
    );
}

#[test]
fn altered_catalog_and_altered_module_are_refused() {
    let site = SigningSite::new();
    site.add_add_on();
    let installation = site
        .installation(Kind::Sqlite)
        .set("modules_dirs", json!([site.path("colours")]));
    let (catalog, signature) = (
        site.text("host/catalog.toml"),
        site.text("host/catalog.toml.minisig"),
    );
    let altered = [
        "the signature by key",
        &site.id("author"),
        "the catalog host or its signature was altered",
    ];

    site.write("host/catalog.toml", catalog.clone() + "\n");
    cannot_start(&installation, &altered);
    site.write("host/catalog.toml", &catalog);
    site.write(
        "host/catalog.toml.minisig",
        site.text("colours/catalog.toml.minisig"),
    );
    cannot_start(&installation, &altered);
    site.write(
        "host/catalog.toml.minisig",
        signature.replace("serial ", "serial 1"),
    );
    cannot_start(&installation, &altered);
    site.write("host/catalog.toml.minisig", &signature);

    let module = std::fs::read(site.path("host/1461790966-init-sql.wasm")).unwrap();
    site.write(
        "host/1461790966-init-sql.wasm",
        [&module[..], b"x"].concat(),
    );
    cannot_start(
        &installation,
        &["1461790966-init-sql.wasm was altered: its sha256"],
    );
    site.write("host/1461790966-init-sql.wasm", module);

    let releases = site.text("host/releases.toml");
    site.write("host/releases.toml", releases.clone() + "\n");
    let name = releases
        .lines()
        .find_map(|line| line.strip_prefix("name = "))
        .unwrap()
        .trim_matches('"')
        .to_owned();
    let installation = installation.set("pin_release", name);
    cannot_start(&installation, &["releases.toml was altered"]);
    site.write("host/releases.toml", releases);
    installation.succeed(&["api", "versions"]);
}

#[test]
fn two_catalogs_of_one_name_are_refused_with_both_folders() {
    let site = SigningSite::new();
    site.copy(&migration_add_on(), "colours");
    site.succeed("sign colours --key author.key --name host");
    let installation = site
        .installation(Kind::Sqlite)
        .set("modules_dirs", json!([site.path("colours")]));
    let folders = ["host", "colours"].map(|name| site.path(name).display().to_string());
    cannot_start(
        &installation,
        &["both have the name host", &folders[0], &folders[1]],
    );
}

#[test]
fn catalog_keeps_its_name_and_each_signature_has_a_higher_serial() {
    let site = SigningSite::with_key();
    site.copy(&modules(), "host");
    let unnamed = site.module("sign host --key author.key").output().unwrap();
    assert_contains(&errors(&unnamed), &["has no name yet", "--name NAME"]);
    assert!(!site.path("host/catalog.toml.minisig").exists());
    let printed = site.succeed("sign host --key author.key --name host");
    let line = format!(
        "\"trusted_keys\": {{ \"host\": [\"{}\"] }}",
        site.public_key("author")
    );
    assert_contains(
        &printed,
        &[
            "catalog host with",
            &site.serial("host").to_string(),
            &site.id("author"),
            &line,
        ],
    );
    let first = site.serial("host");
    site.refused(
        "sign host --key author.key --name other",
        &["has the name host", "sign it without `--name`"],
    );
    assert_eq!(site.serial("host"), first);
    site.succeed("sign host --key author.key --name host");
    assert!(site.serial("host") > first);
    let first = site.serial("host");
    site.succeed("sign host --key author.key");
    assert!(site.serial("host") > first);
    // The clock of another machine may have been ahead.
    let ahead = site
        .text("host/catalog.toml")
        .replace(&site.serial("host").to_string(), "4102444800");
    site.write("host/catalog.toml", ahead);
    site.succeed("sign host --key author.key");
    assert_eq!(site.serial("host"), 4_102_444_801);
    let last = site
        .text("host/catalog.toml")
        .replace("4102444801", &i64::MAX.to_string());
    site.write("host/catalog.toml", last);
    site.refused(
        "sign host --key author.key",
        &["is the highest there can be"],
    );
    site.refused(
        "sign host --key author.key --name Host",
        &["\"Host\" cannot be the name"],
    );
    let malformed = site
        .text("host/catalog.toml")
        .replace("name = \"host\"", "name = \"a b\"");
    site.write("host/catalog.toml", malformed);
    site.refused("sign host --key author.key", &["names itself \"a b\""]);
}

#[test]
fn altered_folder_is_not_signed() {
    let site = SigningSite::new();
    let releases = site.text("host/releases.toml");
    site.write("host/releases.toml", "");
    site.refused(
        "sign host --key author.key",
        &["releases.toml", "is not the one that was signed before"],
    );
    site.write("host/releases.toml", releases);
    let module = site.path("host/1461790966-init-sql.wasm");
    let content = std::fs::read(&module).unwrap();
    std::fs::write(&module, "other").unwrap();
    site.refused(
        "sign host --key author.key",
        &["1461790966-init-sql.wasm was altered"],
    );
    std::fs::write(&module, content).unwrap();
    site.write("host/more.wasm", "");
    site.refused(
        "sign host --key author.key",
        &["more.wasm", "not in its catalog"],
    );
    std::fs::remove_file(site.path("host/more.wasm")).unwrap();
    site.refused(
        "sign host --key author.pub",
        &["author.pub is not a secret key of minisign"],
    );
    site.refused("sign host --key none.key", &["none.key cannot be read"]);
    site.succeed("sign host --key author.key");
}

#[test]
fn password_of_the_key_comes_from_a_file_or_the_environment() {
    let site = SigningSite::new();
    let pair =
        minisign::KeyPair::generate_encrypted_keypair(Some("a password".to_owned())).unwrap();
    site.write("encrypted.key", pair.sk.to_box(None).unwrap().into_string());
    site.write("password", "a password\n");
    let sign = "sign host --key encrypted.key";
    let without = [
        "there is no terminal",
        "--password-file",
        "BBS_MODULE_KEY_PASSWORD",
    ];
    site.refused(sign, &without);
    site.succeed(&format!("{sign} --password-file password"));
    succeeded(
        site.module(sign)
            .env("BBS_MODULE_KEY_PASSWORD", "a password")
            .output()
            .unwrap(),
    );
    site.minisign(&format!(
        "-V -P {} -m host/catalog.toml",
        pair.pk.to_base64()
    ));
    site.write("password", "another");
    site.refused(
        &format!("{sign} --password-file password"),
        &["check the password"],
    );
    site.refused(
        &format!("{sign} --password-file none"),
        &["none cannot be read"],
    );
}

#[test]
fn changing_a_signed_folder_removes_the_signature() {
    let site = SigningSite::with_key();
    site.write(
        "things.wasm",
        std::fs::read(guests().join("things.wasm")).unwrap(),
    );
    site.write(
        "well-behaved.wasm",
        std::fs::read(guests().join("well-behaved.wasm")).unwrap(),
    );
    let first = site.succeed("add things.wasm --into host");
    assert!(!first.contains("signature"), "{first}");
    site.succeed("sign host --key author.key --name host");
    let present = site.succeed("add things.wasm --into host");
    assert!(
        !present.contains("signature") && site.path("host/catalog.toml.minisig").exists(),
        "{present}"
    );
    let added = site.succeed("add well-behaved.wasm --into host");
    assert_contains(
        &added,
        &[
            "catalog.toml.minisig was removed",
            "bbs module sign host --key FILE",
        ],
    );
    assert!(!site.path("host/catalog.toml.minisig").exists());
    let before = site.serial("host");
    site.succeed("sign host --key author.key");
    assert!(
        site.text("host/catalog.toml").contains("name = \"host\"") && site.serial("host") > before
    );
}

on_each_database!(older_catalog_is_refused_unless_it_is_accepted);
async fn older_catalog_is_refused_unless_it_is_accepted(kind: Kind) {
    let site = SigningSite::new();
    site.copy(&site.path("host"), "older");
    site.succeed("sign host --key author.key");
    let [older, newer] = ["older", "host"].map(|folder| site.serial(folder).to_string());
    let newest = site.installation(kind);
    newest.serve().stop();
    assert!(
        newest.serve().terminate().success(),
        "the same serial is not older"
    );

    let opened = newest.database.open().await;
    let remembered = texts(
        &opened,
        "SELECT CONCAT(name, ' ', serial) FROM bbs_catalog_serial",
    )
    .await;
    assert_eq!(remembered, [format!("host {newer}")]);
    opened.close().await;
    let before = dump(&newest.database).await;
    let installation = newest.set("modules_dir", json!(site.path("older")));
    let words = [
        "the catalog host has the serial",
        &older,
        &newer,
        "Z)",
        "\"host\" in `accept_older_catalogs`",
    ];
    cannot_start(&installation, &words);
    for command in [
        &["migrate", "up"][..],
        &["migrate", "plan"],
        &["migrate", "plan", "--check"],
        &["keys", "rotate"],
    ] {
        let refused = installation.run(command);
        assert!(!refused.status.success(), "{command:?}");
        assert_contains(&errors(&refused), &words);
    }
    let refused = &installation.status()["refused"];
    assert_contains(refused.as_str().unwrap(), &words);
    assert!(
        dump(&installation.database).await == before,
        "a refused catalog writes nothing"
    );

    let installation = installation.set("accept_older_catalogs", json!(["colours", "host"]));
    let mut host = installation.serve();
    let warnings = host
        .output()
        .iter()
        .filter(|line| line.contains("older than one"))
        .count();
    assert_eq!(warnings, 1, "{:#?}", host.output());
    host.stop();
    let installation = installation.set("accept_older_catalogs", json!(["colours"]));
    cannot_start(&installation, &words);

    let opened = installation.database.open().await;
    execute(&opened, "DELETE FROM bbs_catalog_serial").await;
    opened.close().await;
    installation.serve().stop();
}

#[test]
fn reload_refuses_what_a_start_refuses_and_its_serials_are_remembered() {
    let site = SigningSite::new();
    site.add_add_on();
    site.copy(&site.path("colours"), "older");
    std::fs::rename(site.path("colours"), site.path("hidden")).unwrap();
    let installation = site
        .installation(Kind::Sqlite)
        .set("modules_dirs", json!([site.path("[c]olours")]));
    let mut host = installation.serve();
    let refused = |words: &[&str]| {
        let output = installation.run(&["module", "reload"]);
        assert_eq!(output.status.code(), Some(1));
        assert_contains(&errors(&output), words);
    };

    std::fs::rename(site.path("hidden"), site.path("colours")).unwrap();
    std::fs::remove_file(site.path("colours/catalog.toml.minisig")).unwrap();
    refused(&[
        "colours/catalog.toml cannot be accepted",
        "the catalog is not signed",
    ]);
    site.make_key("stranger");
    site.succeed("sign colours --key stranger.key");
    refused(&[
        "colours/catalog.toml cannot be accepted",
        "which is not trusted",
        &site.id("stranger"),
    ]);
    site.succeed("sign colours --key author.key");
    installation.succeed(&["module", "reload"]);
    host.wait_for_line(|line| line.contains("the database is at the wanted version"));

    std::fs::rename(site.path("colours"), site.path("newer")).unwrap();
    std::fs::rename(site.path("older"), site.path("colours")).unwrap();
    refused(&[
        "the catalog colours has the serial",
        "install the newer catalog",
    ]);
    host.stop();
    cannot_start(&installation, &["the catalog colours has the serial"]);
}

#[test]
fn host_without_trusted_keys_warns_once_that_add_ons_are_not_verified() {
    let site = SigningSite::with_key();
    site.copy(&modules(), "host");
    site.add_add_on();
    let warnings = |installation: &Installation| {
        let mut host = installation.serve();
        let lines = host
            .output()
            .iter()
            .filter(|line| line.contains("WARN") && line.contains("not verified"))
            .count();
        host.stop();
        lines
    };
    let installation = Installation::new(&site.path("host"), Kind::Sqlite);
    assert_eq!(warnings(&installation), 0);
    let installation = installation.set("modules_dirs", json!([site.path("colours")]));
    assert_eq!(warnings(&installation), 1);
    // Without keys, any signature is ignored.
    site.write("colours/catalog.toml.minisig", "no signature");
    assert_eq!(warnings(&installation), 1);
}

#[test]
fn unsigned_catalog_is_valid_without_keys() {
    let folder = Folder::valid();
    let mut named = Folder::valid();
    named.catalog = format!("name = \"host\"\nserial = 7\n\n{}", folder.catalog);
    assert_eq!(named.load().unwrap().migrations()[0].manifest().version, 50);
    for (line, words) in [
        ("name = \"Host\"", "names itself \"Host\""),
        ("serial = -1", "is not a catalog"),
        ("serial = 9223372036854775808", "no database can remember"),
        ("serial = 18446744073709551616", "is not a catalog"),
        ("releases = \"00\"", "no sha256"),
    ] {
        named.catalog = format!("{line}\n\n{}", folder.catalog);
        named.refused(&["catalog.toml", words]);
    }
}
