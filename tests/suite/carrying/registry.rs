//! `bbs module push` and `pull`, with a real registry.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Site, printed_digest, succeeded};
use crate::harness::engine::PASSWORD;
use crate::harness::ports::free_address;
use crate::harness::registry::Registry;

const OPTIONS: &str = "--into pulled --insecure-http";

/// Pushes the modules of a site as `diego/modules:1.0`. Returns the reference and the digest.
#[track_caller]
fn pushed(site: &Site, registry: &Registry) -> (String, String) {
    let reference = format!("oci://{}/diego/modules:1.0", registry.address());
    let output = site.succeed(&format!("push modules {reference} --insecure-http"));
    assert!(
        output.starts_with(&format!("{reference} {}", site.has_its_modules())),
        "{output}"
    );
    (reference, printed_digest(&output))
}

#[test]
fn pushed_folder_is_pulled_by_tag_and_by_digest() {
    let site = Site::new();
    let registry = Registry::start();
    let (reference, digest) = pushed(&site, &registry);
    let repository = reference.strip_suffix(":1.0").unwrap();
    let saved = site.succeed("bundle save modules modules.tar");
    assert_eq!(
        printed_digest(&saved),
        digest,
        "a bundle has the same artifact"
    );
    for (number, name) in [
        reference.clone(),
        format!("{reference}@{digest}"),
        format!("{repository}@{digest}"),
    ]
    .iter()
    .enumerate()
    {
        let output = site.succeed(&format!(
            "pull {name} --into pulled-{number} --insecure-http"
        ));
        assert_eq!(printed_digest(&output), digest);
        site.assert_arrived(&format!("pulled-{number}"));
    }
    assert_eq!(
        pushed(&site, &registry).1,
        digest,
        "the same folder is pushed again"
    );
}

#[test]
fn digest_pins_the_artifact_after_its_tag_has_moved() {
    let site = Site::new();
    let registry = Registry::start();
    let (reference, digest) = pushed(&site, &registry);
    std::fs::write(
        site.path("modules/catalog.toml.minisig"),
        "untrusted comment: a signature\n",
    )
    .unwrap();
    let (_, later) = pushed(&site, &registry);
    assert_ne!(digest, later);
    site.succeed(&format!("pull {reference} {OPTIONS}"));
    site.assert_arrived("pulled");
    std::fs::remove_file(site.path("modules/catalog.toml.minisig")).unwrap();
    site.succeed(&format!(
        "pull {reference}@{digest} --into pinned --insecure-http"
    ));
    site.assert_arrived("pinned");
}

#[test]
fn artifact_that_the_registry_does_not_have_is_an_error() {
    let site = Site::new();
    let registry = Registry::start();
    let (reference, _) = pushed(&site, &registry);
    let pinned = format!("{reference}@sha256:{}", "0".repeat(64));
    let other_tag = reference.replace(":1.0", ":2.0");
    let other_repository = reference.replace("diego", "garden");
    for name in [pinned, other_tag, other_repository] {
        site.refused(
            &format!("pull {name} {OPTIONS}"),
            &["the registry has no", &name, "check the repository"],
        );
    }
}

#[test]
fn registry_that_cannot_be_reached_is_an_error() {
    let site = Site::new();
    let address = free_address().to_string();
    let reference = format!("oci://{address}/diego/modules:1.0");
    let words = ["cannot be reached", &address, "--insecure-http"];
    site.refused(&format!("pull {reference} {OPTIONS}"), &words);
    site.refused(&format!("push modules {reference}"), &words);
}

#[test]
fn account_is_read_from_the_environment() {
    let site = Site::new();
    let registry = Registry::start();
    let (reference, _) = pushed(&site, &registry);
    let pull = || site.command(&format!("pull {reference} {OPTIONS}"));
    let words = [
        "denies access to diego/modules",
        "BBS_REGISTRY_USERNAME",
        "401 Unauthorized",
    ];
    let mut anonymous = pull();
    anonymous
        .env_remove("BBS_REGISTRY_USERNAME")
        .env_remove("BBS_REGISTRY_PASSWORD");
    site.refused_command(anonymous, &words);
    let mut wrong = pull();
    wrong.env("BBS_REGISTRY_PASSWORD", "wrong");
    site.refused_command(wrong, &words);
    let mut push = site.command(&format!("push modules {reference} --insecure-http"));
    push.env("BBS_REGISTRY_PASSWORD", "wrong");
    site.refused_command(push, &words);
    let mut half = pull();
    half.env_remove("BBS_REGISTRY_USERNAME");
    site.refused_command(
        half,
        &["BBS_REGISTRY_PASSWORD is set and BBS_REGISTRY_USERNAME is not"],
    );
    let output = pull()
        .env("BBS_REGISTRY_PASSWORD", "wrong")
        .output()
        .unwrap();
    assert!(
        !String::from_utf8_lossy(&output.stderr).contains(PASSWORD),
        "no message has the password"
    );
}

const BASIC_CHALLENGE: &str = "401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"tests\"";
const UPLOAD_BEGUN: &str = "202 Accepted\r\nLocation: /v2/diego/modules/blobs/uploads/1";

/// Answers a request, whose head it returns, with a status, headers, and after an empty line the
/// content.
fn answer(connection: TcpStream, with: impl FnOnce(&str) -> String) -> String {
    let mut connection = BufReader::new(connection);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        connection.read_line(&mut head).unwrap();
    }
    let lower_case = head.to_lowercase();
    let mut lines = lower_case.lines();
    let length = lines.find_map(|line| line.strip_prefix("content-length: "));
    let length: u64 = length.map_or(0, |length| length.parse().unwrap());
    let mut content = connection.by_ref().take(length);
    std::io::copy(&mut content, &mut std::io::sink()).unwrap();
    let given = with(&head);
    let (start, content) = given.split_once("\r\n\r\n").unwrap_or((&given, ""));
    let end = format!("Content-Length: {}\r\nConnection: close", content.len());
    let answer = format!("HTTP/1.1 {start}\r\n{end}\r\n\r\n{content}");
    connection.get_mut().write_all(answer.as_bytes()).unwrap();
    head
}

/// Answers the requests to a registry, one after the other.
fn serve(registry: TcpListener, with: impl Fn(&str) -> String + Send + 'static) {
    std::thread::spawn(move || {
        for connection in registry.incoming() {
            answer(connection.unwrap(), &with);
        }
    });
}

/// Goal: a registry that names another address for uploads does not learn there what the account
/// is. Method: the storage at that address refuses the first upload.
#[test]
fn account_is_sent_to_the_registry_alone() {
    let site = Site::new();
    let storage = TcpListener::bind("127.0.0.1:0").unwrap();
    let location = format!("http://{}/upload", storage.local_addr().unwrap());
    let registry = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = registry.local_addr().unwrap();
    serve(registry, move |head| {
        let is_known = head.to_lowercase().contains("authorization: basic");
        match head.split(' ').next().unwrap() {
            "HEAD" => "404 Not Found".to_owned(),
            "POST" if is_known => format!("202 Accepted\r\nLocation: {location}"),
            _ => BASIC_CHALLENGE.to_owned(),
        }
    });
    let upload = std::thread::spawn(move || {
        let connection = storage.accept().unwrap().0;
        answer(connection, |_| BASIC_CHALLENGE.to_owned())
    });
    let reference = format!("oci://{address}/diego/modules:1.0");
    let line = format!("push modules {reference} --insecure-http");
    site.refused(&line, &["denies access to diego/modules"]);
    let head = upload.join().unwrap().to_lowercase();
    assert!(head.starts_with("put /upload?digest=sha256"), "{head}");
    assert!(!head.contains("authorization"), "{head}");
}

/// Goal: a registry that is read without an account gets it where it requires one.
#[test]
fn account_is_sent_to_a_registry_that_requires_it_for_writes_alone() {
    let site = Site::new();
    let registry = TcpListener::bind("127.0.0.1:0").unwrap();
    let reference = format!("oci://{}/diego/modules:1.0", registry.local_addr().unwrap());
    serve(registry, |head| {
        let is_known = head.to_lowercase().contains("authorization: basic");
        let answer = match head.split(' ').next().unwrap() {
            "GET" => "200 OK",
            "HEAD" => "404 Not Found",
            _ if !is_known => BASIC_CHALLENGE,
            "POST" => UPLOAD_BEGUN,
            _ => "201 Created",
        };
        answer.to_owned()
    });
    site.succeed(&format!("push modules {reference} --insecure-http"));
}

/// Goal: a push outlasts its token. Method: each token serves four requests, so that requests of
/// every kind are refused.
#[test]
fn expired_token_is_replaced_during_a_push() {
    let site = Site::new();
    let registry = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = registry.local_addr().unwrap();
    let issued = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&issued);
    let used = AtomicUsize::new(0);
    let realm = format!("realm=\"http://{address}/token\",service=\"tests\"");
    let challenge = format!("401 Unauthorized\r\nWWW-Authenticate: Bearer {realm}");
    serve(registry, move |head| {
        let head = head.to_lowercase();
        if head.starts_with("get /token?") {
            assert!(head.contains("authorization: basic"), "{head}");
            let number = issued.fetch_add(1, Ordering::SeqCst) + 1;
            used.store(0, Ordering::SeqCst);
            return format!("200 OK\r\n\r\n{{\"token\":\"token-{number}\"}}");
        }
        let token = format!("bearer token-{}\r\n", issued.load(Ordering::SeqCst));
        if !head.contains(&token) || used.fetch_add(1, Ordering::SeqCst) >= 4 {
            return challenge.clone();
        }
        let answer = match head.split(' ').next().unwrap() {
            "head" => "404 Not Found",
            "post" => UPLOAD_BEGUN,
            _ => "201 Created",
        };
        answer.to_owned()
    });
    let reference = format!("oci://{address}/diego/modules:1.0");
    site.succeed(&format!("push modules {reference} --insecure-http"));
    assert!(counted.load(Ordering::SeqCst) > 3);
}

#[test]
fn certificate_of_the_registry_is_verified() {
    let site = Site::new();
    let registry = Registry::start_with_tls();
    let reference = format!("oci://{}/diego/modules:1.0", registry.address());
    site.refused(
        &format!("push modules {reference}"),
        &[
            "cannot be reached",
            "a certificate that this machine trusts",
        ],
    );
    site.refused(
        &format!("push modules {reference} --insecure-http"),
        &["the registry failed"],
    );
    for line in [
        format!("push modules {reference}"),
        format!("pull {reference} --into pulled"),
    ] {
        succeeded(
            site.command(&line)
                .env("SSL_CERT_FILE", registry.authority())
                .output()
                .unwrap(),
        );
    }
    site.assert_arrived("pulled");
}

#[test]
fn content_that_the_registry_has_altered_is_refused() {
    let site = Site::new();
    let registry = Registry::start();
    let (reference, digest) = pushed(&site, &registry);
    let manifest: serde_json::Value =
        serde_json::from_slice(&std::fs::read(registry.blob(&digest)).unwrap()).unwrap();
    let module = registry.blob(manifest["layers"][5]["digest"].as_str().unwrap());
    let whole = std::fs::read(&module).unwrap();
    let mut altered = whole.clone();
    altered[100] ^= 1;
    let title = manifest["layers"][5]["annotations"]["org.opencontainers.image.title"]
        .as_str()
        .unwrap();
    for content in [
        altered,
        whole[..100].to_vec(),
        [whole.clone(), whole.clone()].concat(),
    ] {
        std::fs::write(&module, content).unwrap();
        site.refused(&format!("pull {reference} {OPTIONS}"), &[&reference, title]);
    }
    std::fs::write(&module, whole).unwrap();
    let mut other = manifest.clone();
    other["layers"].as_array_mut().unwrap().truncate(2);
    std::fs::write(registry.blob(&digest), other.to_string()).unwrap();
    site.refused(
        &format!("pull {reference}@{digest} {OPTIONS}"),
        &["Invalid digest", &digest],
    );
}

#[test]
fn incomplete_references_and_used_folders_are_refused_without_a_request() {
    let site = Site::new();
    let address = free_address().to_string();
    let digest = format!("sha256:{}", "0".repeat(64));
    for wrong in [
        "modules:1.0",
        "oci://modules:1.0",
        "oci://127.0.0.1:5000/modules",
        "oci://127.0.0.1:5000",
        "oci://a/../b:1",
        "http://a.b/c:1",
    ] {
        site.refused(
            &format!("pull {wrong} {OPTIONS}"),
            &["write it in full, such as oci://"],
        );
    }
    let reference = format!("oci://{address}/diego/modules:1.0");
    site.refused(
        &format!("push modules {reference}@{digest}"),
        &["has a digest", "name a tag alone"],
    );
    site.refused(
        &format!("pull {reference} --into modules"),
        &["modules is not empty", "bbs module add"],
    );
}
