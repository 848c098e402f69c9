//! A Galera cluster of three nodes behind a load balancer, as operators run it. Owns the nodes'
//! settings and start order; each node is an [`Engine`].

use std::net::SocketAddr;
use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use sqlx::{Connection, MySqlConnection};

use super::database::{Kind, TestDatabase};
use super::engine::{Engine, PASSWORD, USER};
use super::mariadb::administrator;
use super::on_each::block_on;
use super::ports::free_address;
use super::proxy::{Proxy, Rewrite, replace};
use super::{holds_within, until};

const NODES: usize = 3;
/// Far above what a start takes, which includes a state transfer from another node.
const PATIENCE: Duration = Duration::from_secs(120);
/// Percona XtraDB Cluster declares `wsrep_on` for sessions only: a query for the global variable
/// finds no row.
const AS_PERCONA: Rewrite = Rewrite {
    to_target: |bytes| {
        if bytes.windows(16).any(|part| part == b"GLOBAL VARIABLES") {
            replace(bytes, b"'wsrep_on'", b"'wsrep_xx'");
        }
    },
    to_client: |_, _| {},
};
/// Most bytes that a transaction may write, far below the default of 2 GiB.
const WRITE_SET: &str = "--wsrep-max-ws-size=8388608";
const PROVIDER: &str = "/usr/lib/galera/libgalera_smm.so";
/// Bytes by which a connection shows that it is in use: more than a host sends over one before it
/// waits for the lock.
const BYTES_IN_USE: u64 = 10_000;

pub struct Cluster {
    nodes: Vec<Engine>,
    /// In front of each node: it answers as one of a Percona XtraDB Cluster.
    proxies: Vec<Proxy>,
    /// The argument with the addresses of all nodes.
    join: String,
}

type IdleClusters = Mutex<Vec<Cluster>>;

/// A cluster from [`Cluster::whole`].
pub struct WholeCluster {
    /// `None` once it is dropped.
    cluster: Option<Cluster>,
    idle: Arc<IdleClusters>,
}

impl Deref for WholeCluster {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        self.cluster.as_ref().expect("it is not dropped")
    }
}

impl Drop for WholeCluster {
    fn drop(&mut self) {
        // A test that fails may leave it without some of its nodes.
        if let Some(cluster) = self.cluster.take()
            && !std::thread::panicking()
        {
            cluster.wait_for_size(NODES);
            let mut idle = self.idle.lock().expect("no lock holder panics");
            idle.push(cluster);
        }
    }
}

/// The value that tests share, made by the first of those that have it at the same time.
fn shared_by_tests<T>(shared: &Mutex<Weak<T>>, make: impl FnOnce() -> T) -> Arc<T> {
    let mut shared = shared.lock().expect("the first test has made it");
    shared.upgrade().unwrap_or_else(|| {
        let made = Arc::new(make());
        *shared = Arc::downgrade(&made);
        made
    })
}

/// A node's ports for the other nodes: group communication, incremental and full state transfer.
struct Ports {
    group: u16,
    incremental: u16,
    snapshot: u16,
}

impl Ports {
    fn free() -> Self {
        let [group, incremental, snapshot] = [(); 3].map(|()| free_address().port());
        Self {
            group,
            incremental,
            snapshot,
        }
    }
}

impl Cluster {
    /// The cluster that tests share, each with a database of its own, for as long as one of them has
    /// it. Not for tests that affect all databases: that crash or isolate a node, freeze a session,
    /// or have a statement fail on all nodes, which then vote on it. Changes of the schema are
    /// ordered over the whole cluster: they delay other tests, and end none of their transactions.
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
        shared_by_tests(&SHARED, Self::start)
    }

    /// A cluster that no other test has at the same time. Each test must restore its nodes, for
    /// another test that gets it later. Idle clusters end with the last test that has one.
    pub fn whole() -> WholeCluster {
        static IDLE: Mutex<Weak<IdleClusters>> = Mutex::new(Weak::new());
        let idle = shared_by_tests(&IDLE, IdleClusters::default);
        let found = idle.lock().expect("no lock holder panics").pop();
        WholeCluster {
            cluster: Some(found.unwrap_or_else(Self::start)),
            idle,
        }
    }

    /// Starts three nodes and waits until they form a cluster.
    fn start() -> Self {
        assert!(
            Path::new(PROVIDER).exists(),
            "{PROVIDER} is not installed, and the tests start their own Galera cluster with it; install it with `apt-get \
             install --no-install-recommends mariadb-server galera-4` or by running tests/run"
        );
        let ports: Vec<_> = (0..NODES).map(|_| Ports::free()).collect();
        let members: Vec<_> = ports
            .iter()
            .map(|ports| format!("127.0.0.1:{}", ports.group))
            .collect();
        let join = format!("--wsrep-cluster-address=gcomm://{}", members.join(","));
        // The first node bootstraps the cluster; the others join it one by one.
        let address = |node| {
            if node == 0 {
                "--wsrep-cluster-address=gcomm://"
            } else {
                &join
            }
        };
        let nodes: Vec<_> = ports
            .iter()
            .enumerate()
            .map(|(node, ports)| start_node(ports, node, address(node)))
            .collect();
        let proxies = nodes
            .iter()
            .map(|node| Proxy::rewriting(vec![node.address()], AS_PERCONA))
            .collect();
        let cluster = Self {
            nodes,
            proxies,
            join,
        };
        cluster.wait_for_size(NODES);
        cluster
    }

    /// A node, which answers as one of a Percona XtraDB Cluster.
    pub fn node(&self, node: usize) -> SocketAddr {
        self.proxies[node].address()
    }

    /// A node, which answers as MariaDB.
    pub fn mariadb_node(&self, node: usize) -> SocketAddr {
        self.nodes[node].address()
    }

    /// A load balancer: connections go to the nodes in turn, skipping those that refuse.
    pub fn balancer(&self) -> Proxy {
        Proxy::rewriting(self.nodes.iter().map(Engine::address).collect(), AS_PERCONA)
    }

    /// A load balancer in front of [`Self::node`], for [`Self::node_in_use`].
    pub fn observed_balancer(&self) -> Proxy {
        Proxy::to_each_of(self.proxies.iter().map(Proxy::address).collect())
    }

    /// The node of the one connection through [`Self::node`] that is in use: waits until all others
    /// rest.
    pub async fn node_in_use(&self) -> usize {
        let mut before = self.sent();
        let mut in_use = Vec::new();
        until(|| {
            let now = self.sent();
            if now.iter().sum::<u64>() < before.iter().sum::<u64>() + BYTES_IN_USE {
                return false;
            }
            in_use = (0..NODES)
                .filter(|node| now[*node] > before[*node])
                .collect();
            before = now;
            in_use.len() == 1
        })
        .await;
        in_use[0]
    }

    /// Bytes that were sent so far to each node, through [`Self::node`].
    fn sent(&self) -> Vec<u64> {
        self.proxies.iter().map(Proxy::sent).collect()
    }

    /// Creates an empty database.
    pub fn database(&self) -> TestDatabase {
        TestDatabase::on(Kind::Mariadb, self.node(0))
    }

    /// Kills a node and waits until the others form a cluster of two.
    pub fn crash(&self, node: usize) {
        self.nodes[node].crash();
        self.wait_for_size(NODES - 1);
    }

    /// Restarts a node and waits until it has joined and is synchronised.
    pub fn restart(&self, node: usize) {
        self.nodes[node].restart_with(&[&self.join]);
        self.wait_for_size(NODES);
    }

    /// Cuts a running node off from the others, and waits until it is outside of the primary
    /// component, which the others form.
    pub fn isolate(&self, node: usize) {
        self.administer(
            node,
            "SET GLOBAL wsrep_provider_options = 'gmcast.isolate=1'",
        );
        self.wait_until_outside(node);
        self.wait_for_size(NODES - 1);
    }

    /// Ends the isolation of a node, and waits until it is synchronised.
    pub fn rejoin(&self, node: usize) {
        self.administer(
            node,
            "SET GLOBAL wsrep_provider_options = 'gmcast.isolate=0'",
        );
        self.wait_for_size(NODES);
    }

    /// Kills all nodes but the first, and waits until that one, without a quorum, is no primary
    /// component.
    pub fn lose_quorum(&self) {
        self.nodes[1..].iter().for_each(Engine::crash);
        self.wait_until_outside(0);
    }

    /// Makes the first node the primary component after [`Self::lose_quorum`], as an operator does.
    /// Then restarts the others, and waits until they are synchronised.
    pub fn bootstrap(&self) {
        self.administer(0, "SET GLOBAL wsrep_provider_options = 'pc.bootstrap=YES'");
        self.wait_for_size(1);
        for node in &self.nodes[1..] {
            node.restart_with(&[&self.join]);
        }
        self.wait_for_size(NODES);
    }

    fn administer(&self, node: usize, statement: &'static str) {
        let engine = &self.nodes[node];
        let ran = block_on(move || async move {
            let mut administrator = administrator(engine).await;
            sqlx::raw_sql(statement).execute(&mut administrator).await
        });
        ran.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }

    fn wait_for_size(&self, size: usize) {
        let is_complete = || {
            self.nodes
                .iter()
                .filter(|node| is_synced(node.address(), size))
                .count()
                == size
        };
        self.wait_for(&format!("reach {size} nodes"), is_complete);
    }

    fn wait_until_outside(&self, node: usize) {
        let address = self.nodes[node].address();
        let is_outside = || status(address).iter().any(|value| value == "OFF");
        self.wait_for(&format!("leave node {node} outside"), is_outside);
    }

    fn wait_for(&self, step: &str, condition: impl FnMut() -> bool) {
        if !holds_within(PATIENCE, condition) {
            let logs: Vec<_> = self.nodes.iter().map(Engine::log).collect();
            panic!("the cluster does not {step}: {}", logs.join("\n\n"));
        }
    }
}

fn start_node(ports: &Ports, node: usize, cluster: &str) -> Engine {
    let Ports {
        group,
        incremental,
        snapshot,
    } = ports;
    let name = format!("--wsrep-node-name=node-{node}");
    let receive = format!("--wsrep-sst-receive-address=127.0.0.1:{snapshot}");
    let provider = format!("--wsrep-provider={PROVIDER}");
    let options = format!(
        "--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:{group};base_port={group};\
         ist.recv_addr=127.0.0.1:{incremental};gcache.size=64M"
    );
    let arguments = [
        "--binlog-format=ROW",
        "--innodb-autoinc-lock-mode=2",
        "--wsrep-on=ON",
        "--wsrep-cluster-name=bbs-tests",
        "--wsrep-node-address=127.0.0.1",
        "--wsrep-sst-method=rsync",
        WRITE_SET,
        &name,
        &receive,
        &provider,
        &options,
        cluster,
    ];
    Kind::Mariadb.own_engine_with(&arguments)
}

/// Whether a node is synchronised in a cluster of `size` nodes.
fn is_synced(address: SocketAddr, size: usize) -> bool {
    let found = status(address);
    ["ON", "Synced", &size.to_string()]
        .iter()
        .all(|expected| found.iter().any(|value| value == expected))
}

/// The size of a node's component, the state of the node, and whether it accepts statements; empty
/// if it does not answer.
fn status(address: SocketAddr) -> Vec<String> {
    let reading = move || async move {
        let mut connection =
            MySqlConnection::connect(&format!("mysql://{USER}:{PASSWORD}@{address}/")).await?;
        let rows = sqlx::raw_sql(
            "SHOW STATUS WHERE Variable_name IN ('wsrep_cluster_size', 'wsrep_local_state_comment', 'wsrep_ready')",
        );
        let rows = rows.fetch_all(&mut connection).await?;
        Ok::<Vec<String>, sqlx::Error>(rows.iter().map(|row| sqlx::Row::get(row, 1)).collect())
    };
    block_on(reading).unwrap_or_default()
}
