//! The attacks that clients make of themselves or through a hostile translator, and how each is refused.

use std::net::SocketAddr;

use bbs_proto::models as proto;
use bbs_proto::prost::Message;
use fastrand::Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::http_client;

#[derive(Debug, Clone, Copy)]
pub enum Attack {
    /// A translator computes without end.
    Spin,
    /// A translator calls without end.
    Forever,
    /// A translator takes all memory.
    Grow,
    /// A translator refuses with megabytes of control characters.
    Explain,
    /// Clients of an old version send megabytes.
    Large,
    /// Each two bytes of a body become an element.
    Amplify,
    /// A body that does not end.
    Endless,
    /// A head that does not end.
    HalfHead,
    /// Connections without a request.
    Idle,
    /// A subscriber that does not read.
    Stalled,
    /// Random bytes.
    Garbage,
}

const ATTACKS: [Attack; 11] = [
    Attack::Spin,
    Attack::Forever,
    Attack::Grow,
    Attack::Explain,
    Attack::Large,
    Attack::Amplify,
    Attack::Endless,
    Attack::HalfHead,
    Attack::Idle,
    Attack::Stalled,
    Attack::Garbage,
];

impl Attack {
    pub fn name(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::Forever => "forever",
            Self::Grow => "grow",
            Self::Explain => "explain",
            Self::Large => "large",
            Self::Amplify => "amplify",
            Self::Endless => "endless",
            Self::HalfHead => "half head",
            Self::Idle => "idle",
            Self::Stalled => "stalled",
            Self::Garbage => "garbage",
        }
    }
}

/// How an attack ended.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum AttackEnd {
    /// It was answered as if it were none.
    Unrefused,
    /// A status that refuses.
    Status(u16),
    /// An error that names the cause.
    Named(&'static str),
    /// The connection was closed.
    Closed,
}

/// A client with no good intentions.
pub struct Attacker {
    client: reqwest::Client,
    address: SocketAddr,
}

/// What the errors of attacks name.
const CAUSES: [&str; 7] = [
    "\"hostile\"",
    "1.2-hostile",
    "bytes of memory",
    "ran longer",
    "Invalid field",
    "instances are busy",
    "more than 65536 elements",
];

const MIB: usize = 1 << 20;

impl Attacker {
    pub fn on(address: SocketAddr) -> Self {
        Self { client: http_client(), address }
    }

    pub fn any(&self, random: &mut Rng) -> Attack {
        ATTACKS[random.usize(..ATTACKS.len())]
    }

    pub async fn run(&self, attack: Attack, random: &mut Rng) -> AttackEnd {
        match attack {
            Attack::Spin => self.post("v1.2-hostile/spins", vec![]).await,
            Attack::Forever => self.post("v1.2-hostile/forever", vec![]).await,
            Attack::Grow => self.post("v1.2-hostile/grows", vec![]).await,
            Attack::Explain => self.post("v1.2-hostile/explains", vec![]).await,
            Attack::Large => self.post("v0.9/desired_lrps/create", large()).await,
            Attack::Amplify => self.post("v1/desired_lrps/list.r3", [0x12, 0].repeat(2 * MIB)).await,
            Attack::Endless => self.send(b"POST /v1/ping HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n").await,
            Attack::HalfHead => self.send(b"POST /v1/ping HTTP/1.1\r\nhost: a\r\nx").await,
            Attack::Idle => self.send(b"").await,
            Attack::Stalled => self.stalled().await,
            Attack::Garbage => self.send(&std::array::from_fn::<u8, 512, _>(|_| random.u8(..))).await,
        }
    }

    async fn post(&self, path: &str, body: Vec<u8>) -> AttackEnd {
        let sent = self.client.post(format!("http://{}/{path}", self.address)).body(body).send().await;
        let Ok(response) = sent else { return AttackEnd::Closed };
        let status = response.status().as_u16();
        let Ok(body) = response.bytes().await else { return AttackEnd::Closed };
        if status != 200 {
            return AttackEnd::Status(status);
        }
        let text = String::from_utf8_lossy(&body);
        CAUSES.into_iter().find(|cause| text.contains(cause)).map_or(AttackEnd::Unrefused, AttackEnd::Named)
    }

    /// Sends bytes, and waits until the host closes the connection.
    async fn send(&self, bytes: &[u8]) -> AttackEnd {
        let Ok(mut stream) = TcpStream::connect(self.address).await else { return AttackEnd::Closed };
        let mut answer = Vec::new();
        let _ = stream.write_all(bytes).await;
        let _ = stream.read_to_end(&mut answer).await;
        let status = answer.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        status.map_or(AttackEnd::Closed, AttackEnd::Status)
    }

    /// Subscribes to events and reads none of them.
    async fn stalled(&self) -> AttackEnd {
        let Ok(mut stream) = TcpStream::connect(self.address).await else { return AttackEnd::Closed };
        let _ = stream
            .write_all(b"POST /v1/events/lrp_instances.r1 HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n")
            .await;
        std::future::pending().await
    }
}

/// A desired LRP of 0.9 that is larger than any that can be stored.
fn large() -> Vec<u8> {
    let lrp = bbs_proto::v0_9::DesiredLrp {
        process_guid: b"large".to_vec(),
        annotation: vec![b'a'; 8 * MIB],
        action: Some(proto::Action::default()),
        ..Default::default()
    };
    bbs_proto::v0_9::CreateDesiredLrpRequest { desired_lrp: Some(lrp) }.encode_to_vec()
}
