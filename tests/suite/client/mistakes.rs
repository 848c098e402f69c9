//! Mistakes of a user of the client's commands: each is met with a message that says what to do.

use super::{command, errors};
use crate::harness::database::Kind;
use crate::harness::host::Installation;
use crate::harness::locket::certificate;
use crate::harness::modules::modules;
use crate::harness::ports::free_address;

/// The error of a command that has to fail, whose exit code is given.
#[track_caller]
fn fail(url: &str, arguments: &[&str], code: i32) -> String {
    let output = command(url, arguments).output().unwrap();
    let error = errors(&output);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{arguments:?}");
    error
}

#[test]
fn mistakes_are_answered_with_what_to_do() {
    let installation = Installation::new(&modules(), Kind::Sqlite);
    let host = installation.serve();
    let url = host.url("");
    let folder = tempfile::tempdir().unwrap();
    let written = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let misspelt = written("misspelt.yaml", "process_guid: hello\ninstnaces: 3\n");
    let invalid = written("invalid.json", "{");
    let empty = written("empty.yaml", "{}");
    let incomplete = written("incomplete.yaml", "process_guid: hello\ndomain: dev\n");
    for (arguments, expected) in [
        (
            &["lrp", "show", "hello"][..],
            "there is no LRP hello; `bbs lrp list` lists",
        ),
        (&["lrp", "scale", "hello", "2"], "there is no LRP hello"),
        (&["lrp", "remove", "hello"], "there is no LRP hello"),
        (&["lrp", "cancel", "hello"], "there is no LRP hello"),
        (&["lrp", "rollback", "hello", "1"], "there is no LRP hello"),
        (&["lrp", "status", "hello"], "there is no LRP hello"),
        (&["lrp", "definitions", "hello"], "there is no LRP hello"),
        (&["lrp", "watch", "hello"], "there is no LRP hello"),
        (&["lrp", "desire", "absent.yaml"], "cannot read absent.yaml"),
        (
            &["lrp", "desire", &misspelt],
            "there is no field \"instnaces\"; there is \"instances\"",
        ),
        (
            &["lrp", "desire", &invalid],
            "invalid.json is not valid JSON",
        ),
        (&["lrp", "desire", &incomplete], "Invalid field: rootfs"),
        (
            &["lrp", "desire", &incomplete],
            "(InvalidRequest); correct what it names; `--help` of the command",
        ),
        (
            &["lrp", "update", "hello", &empty],
            "changes nothing; it may have `instances`",
        ),
        (&["task", "cancel", "hello"], "there is no task hello"),
    ] {
        let error = fail(&url, arguments, 1);
        assert!(
            error.starts_with("bbs: ") && error.contains(expected),
            "{arguments:?}: {error}"
        );
    }
    for (arguments, expected) in [
        (
            &["lrp", "scale", "hello", "-1"][..],
            "invalid value '-1' for '<COUNT>': write a whole number",
        ),
        (&["lrp", "scale", "hello", "many"], "invalid value 'many'"),
        (&["lrp", "desire"], "<FILE>"),
        (
            &["lrp", "list", "--config", "bbs.json"],
            "cannot be used with",
        ),
        (&["lrp", "list", "--cert", "client.crt"], "--key <FILE>"),
    ] {
        let error = fail(&url, arguments, 2);
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}

#[test]
fn truncated_certificate_and_encrypted_key_are_refused_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let [ca, cert] = ["ca.crt", "client.crt"].map(|name| certificate(name).display().to_string());
    let whole = std::fs::read_to_string(&cert).unwrap();
    let truncated = folder.path().join("truncated.crt").display().to_string();
    std::fs::write(&truncated, &whole[..whole.len() / 2]).unwrap();
    let encrypted = folder.path().join("client.key").display().to_string();
    let key = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    std::fs::write(&encrypted, key).unwrap();
    for (ca, key, reason) in [
        (&ca, &encrypted, "client.key is encrypted"),
        (&truncated, &encrypted, "truncated.crt ends within"),
    ] {
        let arguments = ["lrp", "list", "--ca", ca, "--cert", &cert, "--key", key];
        let error = fail("https://127.0.0.1:8889", &arguments, 1);
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn bbs_that_is_not_there_is_named_with_the_options_that_name_another_one() {
    let url = format!("http://{}", free_address());
    let error = fail(&url, &["lrp", "list"], 1);
    for part in [
        &*url,
        "no answer from",
        "named with `--url` or `--config`",
        "because: ",
    ] {
        assert!(error.contains(part), "{part:?} is not in {error}");
    }
    let error = fail("https://127.0.0.1:8889", &["lrp", "list"], 1);
    assert!(error.contains("with `--ca`, or in CA_CERT_FILE"), "{error}");
    let error = fail("bbs.example.com:8889", &["lrp", "list"], 1);
    assert!(
        error.contains("write it as in https://bbs.example.com:8889"),
        "{error}"
    );
}
