//! Clients that request large answers and do not read them.

use bbs_proto::models as proto;
use tokio::io::AsyncReadExt;

use super::half_read;
use super::records::{desired, with_environment};
use crate::harness::database::Kind;
use crate::harness::host::Installation;
use crate::harness::modules;
use crate::harness::watch::Watch;

const CLIENTS: usize = 80;
/// Bytes of each record. They fit on one page, and an answer with both is larger than Linux's
/// default buffer of a socket (4 MiB); the answers of all clients take more than the limit of
/// memory.
const RECORDS: [usize; 2] = [2_900_000, 3_900_000];

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_are_not_read_give_way_to_those_that_are() {
    let installation = Installation::new(&modules::modules(), Kind::Sqlite);
    let host = installation.serve();
    for (number, size) in RECORDS.into_iter().enumerate() {
        let lrp = with_environment(&format!("lrp-{number}"), vec![b'x'; size]);
        assert_eq!(desired(&host, lrp).await, None);
    }
    let watch = Watch::on(&host);
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(half_read(host.address, "POST /v1/desired_lrps/list.r3").await);
    }
    let listed: proto::DesiredLrPsResponse = host
        .call(
            "/v1/desired_lrps/list.r3",
            &proto::DesiredLrPsRequest::default(),
        )
        .await;
    assert_eq!(listed.error, None);
    assert_eq!(listed.desired_lrps.len(), RECORDS.len());
    let mut rest = Vec::new();
    let end = clients[0].read_to_end(&mut rest).await;
    assert!(
        end.is_err() || rest.len() < RECORDS.iter().sum(),
        "the first of them is disconnected"
    );
    watch.assert_unharmed().await;
}
