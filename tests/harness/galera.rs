//! A Galera cluster of three nodes, with a balancer in front of it as operators have. Owns the nodes' settings and their
//! order of starting; each node is an engine as any other.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};

use sqlx::{Connection, MySqlConnection};

use super::database::{Kind, TestDatabase};
use super::engine::{Engine, PASSWORD, USER};
use super::proxy::Proxy;

const NODES: usize = 3;
/// Nodes copy the data of another one first.
const PATIENCE: Duration = Duration::from_secs(120);
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
const PROVIDER: &str = "/usr/lib/galera/libgalera_smm.so";

pub struct Cluster {
    nodes: Vec<Engine>,
    /// The argument with which a node finds the others.
    join: String,
}

/// Where a node talks to the others: three ports, free a moment ago.
struct Ports {
    group: u16,
    incremental: u16,
    snapshot: u16,
}

impl Ports {
    fn free() -> Self {
        let listeners = [(); 3].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there are free ports"));
        let [group, incremental, snapshot] =
            listeners.map(|listener| listener.local_addr().expect("a listener has an address").port());
        Self { group, incremental, snapshot }
    }
}

impl Cluster {
    pub fn start() -> Self {
        assert!(
            Path::new(PROVIDER).exists(),
            "the tests start a Galera cluster of their own and {PROVIDER} is missing; install it with `apt-get install \
             --no-install-recommends mariadb-server galera-4`, or run tests/run, which does"
        );
        let ports: Vec<_> = (0..NODES).map(|_| Ports::free()).collect();
        let members: Vec<_> = ports.iter().map(|ports| format!("127.0.0.1:{}", ports.group)).collect();
        let join = format!("--wsrep-cluster-address=gcomm://{}", members.join(","));
        // The first one begins a cluster, which the others join one by one.
        let found = |node| if node == 0 { "--wsrep-cluster-address=gcomm://" } else { &join };
        let nodes = ports.iter().enumerate().map(|(node, ports)| start_node(ports, node, found(node))).collect();
        let cluster = Self { nodes, join };
        cluster.wait_for_size(NODES);
        cluster
    }

    pub fn node(&self, node: usize) -> SocketAddr {
        self.nodes[node].address()
    }

    /// A balancer: connections go to one node after the other, past those that are gone.
    pub fn balancer(&self) -> Proxy {
        Proxy::to_each_of(self.nodes.iter().map(Engine::address).collect())
    }

    /// A new database, which all nodes have.
    pub fn database(&self) -> TestDatabase {
        TestDatabase::on(Kind::Mysql, self.node(0))
    }

    /// Ends a node as a lost machine would.
    pub fn crash(&self, node: usize) {
        self.nodes[node].crash();
        self.wait_for_size(NODES - 1);
    }

    /// The node joins again, and has everything that the others have.
    pub fn restart(&self, node: usize) {
        self.nodes[node].restart_with(&[&self.join]);
        self.wait_for_size(NODES);
    }

    #[expect(clippy::disallowed_methods, reason = "a thread of its own, with nothing to wait on but the servers")]
    fn wait_for_size(&self, size: usize) {
        let deadline = Instant::now() + PATIENCE;
        let ready = || self.nodes.iter().filter(|node| sees(node.address(), size)).count() == size;
        while !ready() {
            let logs: Vec<_> = self.nodes.iter().map(Engine::log).collect();
            assert!(Instant::now() < deadline, "the cluster has no {size} nodes: {}", logs.join("\n\n"));
            std::thread::sleep(RETRY_INTERVAL);
        }
    }
}

fn start_node(ports: &Ports, node: usize, cluster: &str) -> Engine {
    let Ports { group, incremental, snapshot } = ports;
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
        &name,
        &receive,
        &provider,
        &options,
        cluster,
    ];
    Kind::Mysql.own_engine_with(&arguments)
}

/// Whether a node is in step, in a cluster of so many.
fn sees(address: SocketAddr, size: usize) -> bool {
    let status = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let mut connection = MySqlConnection::connect(&format!("mysql://{USER}:{PASSWORD}@{address}/")).await?;
            let rows = sqlx::raw_sql(
                "SHOW STATUS WHERE Variable_name IN ('wsrep_cluster_size', 'wsrep_local_state_comment', 'wsrep_ready')",
            );
            let rows = rows.fetch_all(&mut connection).await?;
            Ok::<Vec<String>, sqlx::Error>(rows.iter().map(|row| sqlx::Row::get(row, 1)).collect())
        })
    };
    let found = std::thread::spawn(status).join().expect("the status is read or not").unwrap_or_default();
    ["ON", "Synced", &size.to_string()].iter().all(|wanted| found.iter().any(|value| value == wanted))
}
