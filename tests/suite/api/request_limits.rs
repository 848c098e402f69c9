//! The limits of concurrent requests to all cells: one for stops of containers, and one for their
//! routes and tags.

use bbs::testing::clients::Clients;
use bbs::testing::config;
use bbs_proto::models as proto;
use serde_json::json;

use super::{desire, lrp, routes};
use crate::harness::PATIENCE;
use crate::harness::database::Kind;
use crate::harness::locket::Locket;
use crate::harness::neighbours::{StubReply, StubServer};
use crate::harness::server::{Options, Server};

/// Limit of the requests of each kind.
const LIMIT: usize = 256;
/// More than the limit, each on a cell of its own: later stops of a cell wait for its first ones.
const CONTAINERS: usize = 270;

/// A server with two LRPs, `guid` on all cells and `other` in one container. `rep` is that of all
/// cells.
async fn with_containers(rep: &StubServer) -> Server {
    let locket = Locket::start();
    for cell in 0..CONTAINERS {
        let cell_id = format!("cell-{cell}");
        let presence = json!({ "cell_id": cell_id, "rep_url": rep.url() });
        locket.add_presence(&cell_id, &presence.to_string());
    }
    let config = config::ClientsConfig {
        communication_timeout: PATIENCE,
        ..config::ClientsConfig::default()
    };
    let clients = Clients::new(&config, Some(&locket.lookup_config()), None).unwrap();
    let server = Server::start(Options {
        clients,
        ..Options::on(Kind::Sqlite)
    })
    .await;
    for (process_guid, containers) in [("guid", CONTAINERS), ("other", 1)] {
        let desired = proto::DesiredLrp {
            instances: i32::try_from(containers).unwrap(),
            ..lrp(process_guid)
        };
        desire(&server, desired).await;
    }
    // A start of each container by a call would take longer than all requests.
    server
        .sql(
            "UPDATE actual_lrps SET state = 'RUNNING', instance_guid = process_guid || instance_index, \
             cell_id = 'cell-' || instance_index",
        )
        .await;
    server
}

/// Goal: cells that do not answer hold at most 256 requests of a kind, and none of the other kind.
/// Method: no cell answers a request before all are counted.
#[tokio::test(flavor = "multi_thread")]
async fn stops_and_updates_of_containers_have_a_limit_each() {
    let stop = proto::DesiredLrpUpdate {
        instances: Some(0),
        ..Default::default()
    };
    let hosts = r#"[{"hostname":"a.internal"}]"#;
    let reroute = proto::DesiredLrpUpdate {
        routes: Some(routes(&[("internal-router", hosts)])),
        ..Default::default()
    };
    for (limited, unlimited) in [(&stop, &reroute), (&reroute, &stop)] {
        let rep = StubServer::start_plain();
        let server = with_containers(&rep).await;
        rep.reply_always(StubReply::OnceReleased);
        server.update_lrp("guid", limited.clone()).await;
        assert_eq!(rep.wait_for_requests(LIMIT).await.len(), LIMIT);
        server.update_lrp("other", unlimited.clone()).await;
        let requests = rep.wait_for_requests(1).await;
        let paths: Vec<_> = requests.iter().map(|request| &request.path[..]).collect();
        assert!(
            matches!(paths[..], [path] if path.contains("/lrps/other/")),
            "{paths:?}"
        );
        rep.release();
        let waited = rep.wait_for_requests(CONTAINERS - LIMIT).await;
        assert_eq!(waited.len(), CONTAINERS - LIMIT);
    }
}
