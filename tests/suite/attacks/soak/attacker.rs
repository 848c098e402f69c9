//! The attacks of clients, peers and modules, and how each is refused.

use std::net::SocketAddr;
use std::sync::Arc;

use bbs_proto::models as proto;
use bbs_proto::prost::Message;
use fastrand::Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::diego::{AttackedDiego, Peer};
use super::hostile_modules::{HostileFolder, HostileMigration};
use crate::harness::diego::fault_switch::Behaviour;
use crate::harness::until;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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
    /// Random bytes in the place of a TLS handshake.
    HalfHandshake,
    /// A component that the host calls does not answer, answers without end, or redirects without
    /// end.
    Peer(Peer, Behaviour),
    /// A folder of modules is to be loaded.
    Reload(HostileFolder),
    /// A migration is checked on the records that are served.
    Check(HostileMigration),
    /// A migration runs while the host serves.
    Migrate(HostileMigration),
}

const OF_CLIENTS: [Attack; 12] = [
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
    Attack::HalfHandshake,
];
const PEERS: [Peer; 3] = [Peer::Auctioneer, Peer::Cells, Peer::Receiver];
const FOLDERS: [HostileFolder; 4] = [
    HostileFolder::Bomb,
    HostileFolder::LargestCode,
    HostileFolder::Traps,
    HostileFolder::Imports,
];
/// Without the one that spins: a check is a process of its own, which only takes a processor from
/// the host.
const CHECKED: [HostileMigration; 2] = [HostileMigration::Grows, HostileMigration::OtherRows];
const MIGRATIONS: [HostileMigration; 3] = [
    HostileMigration::Grows,
    HostileMigration::OtherRows,
    HostileMigration::Spins,
];

/// All attacks, or those that fit into a short run.
pub fn attacks(is_short: bool) -> Vec<Attack> {
    let peers = PEERS
        .iter()
        .flat_map(|peer| Behaviour::HOSTILE.map(|behaviour| Attack::Peer(*peer, behaviour)));
    let all = OF_CLIENTS
        .into_iter()
        .chain(peers)
        .chain(FOLDERS.map(Attack::Reload));
    let all = all
        .chain(CHECKED.map(Attack::Check))
        .chain(MIGRATIONS.map(Attack::Migrate));
    all.filter(|attack| !(is_short && attack.is_long()))
        .collect()
}

impl Attack {
    /// Whether it takes longer than a short run.
    fn is_long(self) -> bool {
        matches!(
            self,
            Self::Reload(HostileFolder::LargestCode) | Self::Migrate(HostileMigration::Spins)
        )
    }

    /// Whether it may be given up before it is refused. Those that may not wait for each other, and
    /// leave something behind until they end.
    pub fn may_be_given_up(self) -> bool {
        !matches!(self, Self::Reload(_) | Self::Check(_) | Self::Migrate(_))
    }

    /// Whether the host waits longer for its client than an attacker does for its end.
    pub fn outlasts_attackers(self) -> bool {
        matches!(
            self,
            Self::Endless | Self::HalfHead | Self::Idle | Self::Stalled
        )
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
    /// The host gave a request up that it had made.
    GivenUp,
}

/// A client with no good intentions, and with a certificate that the host accepts.
pub struct Attacker {
    diego: Arc<AttackedDiego>,
    client: reqwest::Client,
    address: SocketAddr,
}

/// Words that the errors of attacks name.
const CAUSES: [&str; 8] = [
    "\"hostile\"",
    "1.2-hostile",
    "bytes of memory",
    "computed for longer",
    "ran longer",
    "Invalid field",
    "instances are busy",
    "more than 65536 elements",
];

const MIB: usize = 1 << 20;

impl Attacker {
    pub fn on(address: SocketAddr, diego: &Arc<AttackedDiego>) -> Self {
        Self {
            diego: Arc::clone(diego),
            client: diego.trust.client(),
            address,
        }
    }

    pub async fn run(&self, attack: Attack, random: &mut Rng) -> AttackEnd {
        match attack {
            Attack::Spin => self.post("v1.2-hostile/spins", vec![]).await,
            Attack::Forever => self.post("v1.2-hostile/forever", vec![]).await,
            Attack::Grow => self.post("v1.2-hostile/grows", vec![]).await,
            Attack::Explain => self.post("v1.2-hostile/explains", vec![]).await,
            Attack::Large => self.post("v0.9/desired_lrps/create", large()).await,
            Attack::Amplify => {
                self.post("v1/desired_lrps/list.r3", [0x12, 0].repeat(2 * MIB))
                    .await
            }
            Attack::Endless => {
                self.send(b"POST /v1/ping HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n")
                    .await
            }
            Attack::HalfHead => self.send(b"POST /v1/ping HTTP/1.1\r\nhost: a\r\nx").await,
            Attack::Idle => self.send(b"").await,
            Attack::Stalled => self.stalled().await,
            Attack::Garbage => self.send(&random_bytes(random)).await,
            Attack::HalfHandshake => self.send_plainly(&random_bytes(random)).await,
            Attack::Peer(peer, behaviour) => self.call_hostile(peer, behaviour, random).await,
            Attack::Reload(folder) => self.diego.reload(folder).await,
            Attack::Check(migration) => self.diego.check(migration).await,
            Attack::Migrate(migration) => self.diego.migrate(migration).await,
        }
    }

    async fn post(&self, path: &str, body: Vec<u8>) -> AttackEnd {
        let sent = self
            .client
            .post(format!("https://{}/{path}", self.address))
            .body(body)
            .send()
            .await;
        let Ok(response) = sent else {
            return AttackEnd::Closed;
        };
        let status = response.status().as_u16();
        let Ok(body) = response.bytes().await else {
            return AttackEnd::Closed;
        };
        if status != 200 {
            return AttackEnd::Status(status);
        }
        let text = String::from_utf8_lossy(&body);
        CAUSES
            .into_iter()
            .find(|cause| text.contains(cause))
            .map_or(AttackEnd::Unrefused, AttackEnd::Named)
    }

    /// Sends bytes, and waits until the host closes the connection.
    async fn send(&self, bytes: &[u8]) -> AttackEnd {
        let Ok(mut stream) = self.diego.trust.connect(self.address).await else {
            return AttackEnd::Closed;
        };
        let mut answer = Vec::new();
        let _ = stream.write_all(bytes).await;
        let _ = stream.read_to_end(&mut answer).await;
        let status = answer
            .get(9..12)
            .and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        status.map_or(AttackEnd::Closed, AttackEnd::Status)
    }

    /// As [`Self::send`], without TLS.
    async fn send_plainly(&self, bytes: &[u8]) -> AttackEnd {
        let Ok(mut stream) = TcpStream::connect(self.address).await else {
            return AttackEnd::Closed;
        };
        let _ = stream.write_all(bytes).await;
        let _ = stream.read_to_end(&mut Vec::new()).await;
        AttackEnd::Closed
    }

    /// Makes a component hostile until the host has given a request to it up. The load has the host
    /// call the auctioneer and the cells; a task has it call the receiver.
    async fn call_hostile(&self, peer: Peer, behaviour: Behaviour, random: &mut Rng) -> AttackEnd {
        let hostile = self.diego.hostile(peer, behaviour);
        if peer == Peer::Receiver {
            self.diego
                .desire_task(&format!("peer-{:016x}", random.u64(..)), "peers", 0)
                .await;
        }
        until(|| hostile.was_given_up()).await;
        AttackEnd::GivenUp
    }

    /// Subscribes to events and reads none of them.
    async fn stalled(&self) -> AttackEnd {
        let Ok(mut stream) = self.diego.trust.connect(self.address).await else {
            return AttackEnd::Closed;
        };
        let _ = stream
            .write_all(b"POST /v1/events/lrp_instances.r1 HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n")
            .await;
        std::future::pending().await
    }
}

fn random_bytes(random: &mut Rng) -> [u8; 512] {
    std::array::from_fn(|_| random.u8(..))
}

/// A desired LRP of 0.9 that is larger than any that can be stored.
fn large() -> Vec<u8> {
    let lrp = bbs_proto::v0_9::DesiredLrp {
        process_guid: b"large".to_vec(),
        annotation: vec![b'a'; 8 * MIB],
        action: Some(proto::Action::default()),
        ..Default::default()
    };
    bbs_proto::v0_9::CreateDesiredLrpRequest {
        desired_lrp: Some(lrp),
    }
    .encode_to_vec()
}
