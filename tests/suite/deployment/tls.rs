//! Mutual TLS of the API: only clients with a currently valid certificate of the authority are
//! accepted.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};

use super::ping;
use crate::harness::certificates::{Authority, EXPIRED, VALID, replace};
use crate::harness::database::Kind;
use crate::harness::deployment::Deployment;
use crate::harness::host::Host;
use crate::harness::locket::certificate;

#[tokio::test(flavor = "multi_thread")]
async fn clients_without_a_valid_certificate_are_rejected() {
    let deployment = Deployment::new(Kind::Sqlite);
    let host = deployment.serve().await;
    let untrusted = Authority::new("another authority's");
    for (client, pair) in [
        ("without a certificate", None),
        (
            "with one of another authority",
            Some(untrusted.issue("cell-1", VALID)),
        ),
        (
            "with an expired certificate",
            Some(deployment.authority.issue("cell-1", EXPIRED)),
        ),
    ] {
        let refused = ping(&deployment.client_as(pair.as_ref()), host.address).await;
        assert!(refused.is_err(), "{client}: {refused:?}");
    }
    let mut plain = TcpStream::connect(host.address).unwrap();
    plain
        .write_all(b"POST /v1/ping HTTP/1.1\r\nhost: bbs\r\ncontent-length: 0\r\n\r\n")
        .unwrap();
    let mut answer = Vec::new();
    // The connection may be closed within an answer.
    let _ = plain.read_to_end(&mut answer);
    assert!(
        !answer.starts_with(b"HTTP"),
        "{:?}",
        String::from_utf8_lossy(&answer)
    );
    assert!(
        ping(&deployment.client(), host.address).await.unwrap(),
        "valid clients are served"
    );
}

/// Method: a part of one message of 60,000 bytes. The host collects no more of it.
#[tokio::test(flavor = "multi_thread")]
async fn client_that_sends_a_long_handshake_is_rejected() {
    const CLIENT_HELLO: [u8; 4] = [1, 0, 0xea, 0x60];
    let deployment = Deployment::new(Kind::Sqlite);
    let host = deployment.serve().await;
    let mut client = TcpStream::connect(host.address).unwrap();
    let mut message = CLIENT_HELLO.to_vec();
    message.resize(40_000, 0);
    for part in message.chunks(10_000) {
        let [high, low] = 10_000_u16.to_be_bytes();
        let record = [&[22, 3, 1, high, low][..], part].concat();
        // The host may have closed the connection.
        let _ = client.write_all(&record);
    }
    let _ = client.read_to_end(&mut Vec::new());
    assert!(ping(&deployment.client(), host.address).await.unwrap());
    host.signal("TERM");
    let (_, output) = tokio::task::spawn_blocking(move || host.wait_for_end())
        .await
        .unwrap();
    assert!(output.contains("neither completes a handshake"), "{output}");
}

/// Method: a client that does not parse its own certificate, as those of OpenSSL.
#[tokio::test(flavor = "multi_thread")]
async fn client_certificate_of_version_1_is_rejected_by_its_version() {
    let deployment = Deployment::new(Kind::Sqlite);
    let file = |name: &str| std::fs::read_to_string(certificate(name)).unwrap();
    let authorities = format!(
        "{}{}",
        deployment.authority.certificate(),
        file("version-1-authority.crt")
    );
    replace(&deployment.certs().join("ca.crt"), &authorities);
    let mut host = deployment.serve().await;
    let provider = rustls::crypto::ring::default_provider();
    let key = PrivateKeyDer::from_pem_slice(file("version-1.key").as_bytes()).unwrap();
    let key = provider.key_provider.load_private_key(key).unwrap();
    let chain = vec![CertificateDer::from_pem_slice(file("version-1.crt").as_bytes()).unwrap()];
    let presented = SingleCertAndKey::from(CertifiedKey::new(chain, key));
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(deployment.authority.certificate().as_bytes()).unwrap())
        .unwrap();
    let config = rustls::ClientConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions();
    let config = config
        .unwrap()
        .with_root_certificates(roots)
        .with_client_cert_resolver(Arc::new(presented));
    let client = reqwest::Client::builder()
        .tls_backend_preconfigured(config)
        .build()
        .unwrap();
    let refused = ping(&client, host.address).await;
    assert!(refused.is_err(), "{refused:?}");
    host = wait_for_log(host, "the certificate of the client is of X.509 version 1").await;
    assert!(ping(&deployment.client(), host.address).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_do_not_block_other_clients() {
    let deployment = Deployment::new(Kind::Sqlite);
    let host = deployment.serve().await;
    let silent: Vec<_> = (0..200)
        .map(|_| TcpStream::connect(host.address).unwrap())
        .collect();
    assert!(ping(&deployment.client(), host.address).await.unwrap());
    drop(silent);
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_certificates_are_reloaded_and_unusable_ones_ignored() {
    let deployment = Deployment::new(Kind::Sqlite);
    let mut host = deployment.serve().await;
    let before = deployment.client();
    let kept = deployment.keeping_client();
    assert!(ping(&kept, host.address).await.unwrap());

    replace(
        &deployment.certs().join("server.crt"),
        "this is no certificate",
    );
    host = wait_for_log(host, "tls.not-reloaded").await;
    assert!(
        ping(&before, host.address).await.unwrap(),
        "the certificates in use stay"
    );
    deployment
        .authority
        .issue("server", EXPIRED)
        .write(&deployment.certs(), "server");
    host = wait_for_log(host, "that is not now").await;
    assert!(ping(&before, host.address).await.unwrap());

    let next = Authority::new("the next authority's");
    replace(&deployment.certs().join("ca.crt"), &next.certificate());
    next.issue("server", VALID)
        .write(&deployment.certs(), "server");
    host = wait_for_api_log(host, "tls.reloaded").await;
    assert!(
        ping(&before, host.address).await.is_err(),
        "the previous authority is no longer trusted"
    );
    assert!(
        ping(&kept, host.address).await.unwrap(),
        "an open connection stays"
    );
    let after = deployment.trusting(next);
    assert!(ping(&after.client(), host.address).await.unwrap());

    std::fs::remove_file(after.certs().join("server.key")).unwrap();
    host = wait_for_log(host, "the certificates cannot be read again").await;
    assert!(ping(&after.client(), host.address).await.unwrap());
}

async fn wait_for_log(host: Host, word: &'static str) -> Host {
    wait_for_line_with(host, word, "").await
}

/// A line of the API's listener. The host's clients log the same message about their own files.
pub(super) async fn wait_for_api_log(host: Host, word: &'static str) -> Host {
    wait_for_line_with(host, word, "cert_file").await
}

async fn wait_for_line_with(mut host: Host, word: &'static str, other: &'static str) -> Host {
    tokio::task::spawn_blocking(move || {
        host.wait_for_line(|line| line.contains(word) && line.contains(other));
        host
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_certificates_fail_the_start() {
    let expired = Deployment::new(Kind::Sqlite);
    expired
        .authority
        .issue("server", EXPIRED)
        .write(&expired.certs(), "server");
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
        let (code, output) = deployment.fail().await;
        assert!(
            code == Some(2)
                && output.contains(word)
                && output.contains("bbs.tls-configuration-failed"),
            "{output}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_1_2_and_1_3_are_accepted() {
    let deployment = Deployment::new(Kind::Sqlite);
    let host = deployment.serve().await;
    for version in [
        reqwest::tls::Version::TLS_1_2,
        reqwest::tls::Version::TLS_1_3,
    ] {
        let client = deployment.client_of(version);
        assert!(ping(&client, host.address).await.unwrap(), "{version:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_handshake_failures_are_sampled_in_the_log() {
    let deployment = Deployment::new(Kind::Sqlite);
    let host = deployment.serve().await;
    let began = Instant::now();
    for _ in 0..100 {
        let mut plain = TcpStream::connect(host.address).unwrap();
        plain.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        // Reads until the host closes the connection.
        let _ = plain.read_to_end(&mut Vec::new());
    }
    host.signal("TERM");
    let (_, output) = tokio::task::spawn_blocking(move || host.wait_for_end())
        .await
        .unwrap();
    let lines = output
        .lines()
        .filter(|line| line.contains("bbs.tls.handshake-failed"))
        .count();
    // Ten at once, and then one in each interval of some seconds.
    let most = 13 + began.elapsed().as_secs() / 6;
    assert!(
        (10..=most).contains(&(lines as u64)),
        "{lines} lines: {output}"
    );
}

/// Method: probes that end a connection in both ways; a call after them.
#[tokio::test(flavor = "multi_thread")]
async fn connection_that_ends_before_its_first_byte_is_not_logged() {
    let deployment = Deployment::new(Kind::Sqlite);
    let host = deployment.serve().await;
    for linger in [None, Some(Duration::ZERO)] {
        let probe = TcpStream::connect(host.address).unwrap();
        socket2::SockRef::from(&probe).set_linger(linger).unwrap();
    }
    assert!(ping(&deployment.client(), host.address).await.unwrap());
    host.signal("TERM");
    let (_, output) = tokio::task::spawn_blocking(move || host.wait_for_end())
        .await
        .unwrap();
    assert!(!output.contains("handshake"), "{output}");
}
