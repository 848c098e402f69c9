//! A Galera cluster of three nodes behind a load balancer, as operators run it. Owns the nodes'
//! settings and start order; each node is an [`Engine`].

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use sqlx::{Connection, MySqlConnection};

use super::database::{Kind, TestDatabase};
use super::engine::{Engine, PASSWORD, USER};
use super::holds_within;
use super::ports::free_address;
use super::proxy::{Proxy, Rewrite, replace};

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

pub struct Cluster {
    nodes: Vec<Engine>,
    /// In front of each node: it answers as one of a Percona XtraDB Cluster.
    proxies: Vec<Proxy>,
    /// The argument with the addresses of all nodes.
    join: String,
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
    /// Starts three nodes and waits until they form a cluster.
    pub fn start() -> Self {
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

    fn wait_for_size(&self, size: usize) {
        let is_complete = holds_within(PATIENCE, || {
            self.nodes
                .iter()
                .filter(|node| is_synced(node.address(), size))
                .count()
                == size
        });
        if !is_complete {
            let logs: Vec<_> = self.nodes.iter().map(Engine::log).collect();
            panic!(
                "the cluster does not reach {size} nodes: {}",
                logs.join("\n\n")
            );
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
    let status = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let mut connection = MySqlConnection::connect(&format!("mysql://{USER}:{PASSWORD}@{address}/")).await?;
            let rows = sqlx::raw_sql(
                "SHOW STATUS WHERE Variable_name IN ('wsrep_cluster_size', 'wsrep_local_state_comment', 'wsrep_ready')",
            );
            let rows = rows.fetch_all(&mut connection).await?;
            Ok::<Vec<String>, sqlx::Error>(rows.iter().map(|row| sqlx::Row::get(row, 1)).collect())
        })
    };
    let found = std::thread::spawn(status)
        .join()
        .expect("the status is read or not")
        .unwrap_or_default();
    ["ON", "Synced", &size.to_string()]
        .iter()
        .all(|wanted| found.iter().any(|value| value == wanted))
}
