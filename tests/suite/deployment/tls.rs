//! Who is let in: whoever has a certificate of the authority's that is valid today, over TLS, and nobody else.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::ping;
use crate::harness::certificates::{Authority, EXPIRED, VALID, replace};
use crate::harness::database::Kind;
use crate::harness::deployment::Deployment;
use crate::harness::host::Host;

#[tokio::test(flavor = "multi_thread")]
async fn only_whom_the_authority_vouches_for_today_is_let_in() {
    let deployment = Deployment::new(Kind::Sqlite);
    let host = deployment.serve().await;
    let strangers = Authority::new("somebody else's");
    for (who, pair) in [
        ("without a certificate", None),
        ("a stranger", Some(strangers.issue("cell-1", VALID))),
        ("too late", Some(deployment.authority.issue("cell-1", EXPIRED))),
    ] {
        let refused = ping(&deployment.client_as(pair.as_ref()), host.address).await;
        assert!(refused.is_err(), "{who}: {refused:?}");
    }
    let mut plain = TcpStream::connect(host.address).unwrap();
    plain.write_all(b"POST /v1/ping HTTP/1.1\r\nhost: bbs\r\ncontent-length: 0\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    // It may be cut off in the middle of a word.
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{:?}", String::from_utf8_lossy(&answer));
    assert!(ping(&deployment.client(), host.address).await.unwrap(), "others are served as before");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_says_nothing_holds_up_nobody() {
    let deployment = Deployment::new(Kind::Sqlite);
    let host = deployment.serve().await;
    let silent: Vec<_> = (0..200).map(|_| TcpStream::connect(host.address).unwrap()).collect();
    assert!(ping(&deployment.client(), host.address).await.unwrap());
    drop(silent);
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_that_are_replaced_are_used_and_bad_ones_are_not() {
    let deployment = Deployment::new(Kind::Sqlite);
    let mut host = deployment.serve().await;
    let before = deployment.client();
    let kept = deployment.keeping_client();
    assert!(ping(&kept, host.address).await.unwrap());

    replace(&deployment.certs().join("server.crt"), "this is no certificate");
    host = said(host, "tls.not-reloaded").await;
    assert!(ping(&before, host.address).await.unwrap(), "what was in use stays");
    deployment.authority.issue("server", EXPIRED).write(&deployment.certs(), "server");
    host = said(host, "that is not now").await;
    assert!(ping(&before, host.address).await.unwrap());

    let next = Authority::new("the next authority's");
    replace(&deployment.certs().join("ca.crt"), &next.certificate());
    next.issue("server", VALID).write(&deployment.certs(), "server");
    host = said_of_the_api(host, "tls.reloaded").await;
    assert!(ping(&before, host.address).await.is_err(), "the authority before is believed no more");
    assert!(ping(&kept, host.address).await.unwrap(), "a connection that is open stays");
    let after = deployment.trusting(next);
    assert!(ping(&after.client(), host.address).await.unwrap());
}

async fn said(host: Host, word: &'static str) -> Host {
    said_both(host, word, "").await
}

/// Not of a client of the host, which says so of its files in the same words.
pub(super) async fn said_of_the_api(host: Host, word: &'static str) -> Host {
    said_both(host, word, "cert_file").await
}

async fn said_both(mut host: Host, word: &'static str, other: &'static str) -> Host {
    tokio::task::spawn_blocking(move || {
        host.wait_for_line(|line| line.contains(word) && line.contains(other));
        host
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_that_cannot_be_used_end_the_start() {
    let expired = Deployment::new(Kind::Sqlite);
    expired.authority.issue("server", EXPIRED).write(&expired.certs(), "server");
    let other_key = Deployment::new(Kind::Sqlite);
    let pair = other_key.authority.issue("server", VALID);
    replace(&other_key.certs().join("server.key"), &pair.key);
    let no_authority = Deployment::new(Kind::Sqlite);
    replace(&no_authority.certs().join("ca.crt"), "");
    for (deployment, word) in [
        (expired, "that is not now"),
        (other_key, "cannot be used together"),
        (no_authority, "there is no certificate"),
    ] {
        let (code, said) = deployment.fail().await;
        assert!(code == Some(2) && said.contains(word) && said.contains("bbs.tls-configuration-failed"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn both_versions_of_tls_are_spoken() {
    let deployment = Deployment::new(Kind::Sqlite);
    let host = deployment.serve().await;
    for version in [reqwest::tls::Version::TLS_1_2, reqwest::tls::Version::TLS_1_3] {
        let client = deployment.client_of(version);
        assert!(ping(&client, host.address).await.unwrap(), "{version:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_knocks_often_leaves_few_lines() {
    let deployment = Deployment::new(Kind::Sqlite);
    let host = deployment.serve().await;
    for _ in 0..100 {
        let mut stranger = TcpStream::connect(host.address).unwrap();
        stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        // Until the host has hung up.
        let _ = stranger.read_to_end(&mut Vec::new());
    }
    host.signal("TERM");
    let (_, said) = tokio::task::spawn_blocking(move || host.wait_for_end()).await.unwrap();
    let lines = said.lines().filter(|line| line.contains("bbs.tls.handshake-failed")).count();
    assert!((10..=13).contains(&lines), "{lines} lines: {said}");
}
