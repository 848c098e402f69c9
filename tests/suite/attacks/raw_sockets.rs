//! Random bytes on the API's port, from a seed: broken chunks, pipelined requests, half heads, many
//! headers, early closes, and TLS of every kind but a client's. The host answers every ping
//! meanwhile, and a request behind them.
//!
//! `BBS_RAW_SEED` sets the seed (random), `BBS_RAW_CONNECTIONS` the number of connections (400).
//! The test prints its seed, which decides the bytes of each connection, how they are divided and
//! how it ends, but not how the connections interleave.

use std::net::SocketAddr;
use std::time::Duration;

use fastrand::Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::database::Kind;
use crate::harness::deployment::Deployment;
use crate::harness::host::Installation;
use crate::harness::modules;
use crate::harness::seed::{OF_PROCESSES, number, seed};
use crate::harness::watch::Watch;

const CONNECTIONS: u64 = 400;
/// Connections at the same time.
const AT_ONCE: u64 = 20;
/// The longest time that a connection waits for an answer that may never come.
const LISTEN: Duration = Duration::from_millis(50);

const PATHS: [&str; 7] = [
    "/v1/ping",
    "/v1/tasks/list.r3",
    "/v0.9/desired_lrps/list",
    "/v1/events/tasks.r1",
    "/",
    "*",
    "http://x:99999/v1/ping",
];
const HEADERS: [&str; 14] = [
    "Host: x",
    "Content-Length: 0",
    "Content-Length: 5",
    "Content-Length: -1",
    "Content-Length: 18446744073709551616",
    "Content-Length: 99999999999999",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: chunked, identity",
    "Expect: 100-continue",
    "Connection: upgrade\r\nUpgrade: h2c",
    "X-Diego-Api-Version: 99999999999.1",
    "X-Vcap-Request-Id: \u{0}",
    " folded: yes",
];
const BODIES: [&str; 9] = [
    "",
    "hello",
    "5\r\nhello\r\n0\r\n\r\n",
    "5\r\nhel",
    "ffffffffffffffffff\r\n",
    "5;extension=\"",
    "-5\r\nhello\r\n",
    "0\r\nTrailer: x\r\n\r\n",
    "0\r\n\r\nPOST /v1/ping HTTP/1.1\r\nHost: x\r\n\r\n",
];

fn one_of<'a>(random: &mut Rng, texts: &[&'a str]) -> &'a str {
    texts[random.usize(..texts.len())]
}

/// A request that is right in most of its parts.
fn request(random: &mut Rng) -> Vec<u8> {
    let verb = one_of(random, &["POST", "POST", "GET", "PRI", "CONNECT", "x"]);
    let version = one_of(
        random,
        &["HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/9.9"],
    );
    let mut request = format!("{verb} {} {version}\r\n", one_of(random, &PATHS));
    for _ in 0..random.usize(..4) {
        request += one_of(random, &HEADERS);
        request += one_of(random, &["\r\n", "\r\n", "\n", "\r"]);
    }
    if random.u8(..10) == 0 {
        let count = random.usize(..300);
        request += &"many: headers\r\n".repeat(count);
    }
    if random.u8(..20) == 0 {
        let length = random.usize(..200_000);
        request = format!("{request}long: {}\r\n", "x".repeat(length));
    }
    request += "\r\n";
    request += one_of(random, &BODIES);
    request.into_bytes()
}

/// The beginning of a TLS connection, cut short or altered.
fn client_hello(random: &mut Rng) -> Vec<u8> {
    let length = random.u16(..600);
    let mut hello = vec![
        0x16,
        0x03,
        random.u8(..5),
        (length >> 8) as u8,
        length as u8,
        random.u8(..3),
        0,
        0,
    ];
    hello.extend((0..random.usize(..600)).map(|_| random.u8(..)));
    hello
}

fn bytes(random: &mut Rng) -> Vec<u8> {
    let mut bytes = match random.u8(..10) {
        0 => (0..random.usize(..2000)).map(|_| random.u8(..)).collect(),
        1 => client_hello(random),
        2 => (0..random.usize(..50))
            .flat_map(|_| b"POST /v1/ping HTTP/1.1\r\nContent-Length: 0\r\n\r\n".to_vec())
            .collect(),
        _ => (0..=random.usize(..3))
            .flat_map(|_| request(random))
            .collect::<Vec<u8>>(),
    };
    if random.u8(..3) == 0 {
        bytes.truncate(random.usize(..=bytes.len()));
    }
    if random.u8(..5) == 0 && !bytes.is_empty() {
        let at = random.usize(..bytes.len());
        bytes[at] = random.u8(..);
    }
    bytes
}

/// Sends in parts, and reads or closes at random.
async fn attack(address: SocketAddr, mut random: Rng) {
    let Ok(mut connection) = TcpStream::connect(address).await else {
        return;
    };
    let all = bytes(&mut random);
    let parts = random.usize(1..5);
    for part in all.chunks(all.len() / parts + 1) {
        if connection.write_all(part).await.is_err() {
            return;
        }
        tokio::task::yield_now().await;
    }
    if random.bool() {
        // The other end may have closed it.
        let _ = connection.shutdown().await;
    }
    if random.bool() {
        let mut answer = vec![0; 4096];
        let _ = tokio::time::timeout(LISTEN, connection.read(&mut answer)).await;
    }
}

/// Attacks with all connections.
async fn attack_at_random(address: SocketAddr) {
    let seed = seed("BBS_RAW_SEED");
    println!("BBS_RAW_SEED={seed}; {OF_PROCESSES}");
    let mut random = Rng::with_seed(seed);
    for _ in 0..number("BBS_RAW_CONNECTIONS").unwrap_or(CONNECTIONS) / AT_ONCE {
        let attacks: Vec<_> = (0..AT_ONCE)
            .map(|_| tokio::spawn(attack(address, random.fork())))
            .collect();
        for attack in attacks {
            attack.await.expect("an attack does not panic");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn random_bytes_on_a_plain_port_harm_no_other_client() {
    let installation = Installation::new(&modules::modules(), Kind::Sqlite);
    let host = installation.serve();
    let watch = Watch::on(&host);
    attack_at_random(host.address).await;
    let answer = crate::harness::http_client()
        .post(host.url("/v1/ping"))
        .send()
        .await
        .expect("the host answers");
    assert!(answer.status().is_success());
    watch.assert_unharmed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn random_bytes_on_a_port_with_tls_harm_no_other_client() {
    let deployment = Deployment::new(Kind::Sqlite);
    let host = deployment.serve().await;
    let ping = format!("https://{}/v1/ping", host.address);
    let watch = Watch::of(host.pid(), ping.clone(), deployment.keeping_client());
    attack_at_random(host.address).await;
    let answer = deployment
        .client()
        .post(ping)
        .send()
        .await
        .expect("the host answers");
    assert!(answer.status().is_success());
    watch.assert_unharmed().await;
}
