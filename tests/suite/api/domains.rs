//! Calls that change and list domains.

use bbs_proto::models as proto;
use bbs_proto::models::error::Type;

use crate::harness::database::Kind;
use crate::harness::layouts::on_each_layout;
use crate::harness::server::{NOW_NS, Reply, Server};

pub(super) async fn upsert(server: &Server, domain: &[u8], ttl: u32) -> Reply {
    server
        .call(
            "/v1/domains/upsert",
            &proto::UpsertDomainRequest {
                domain: domain.to_vec(),
                ttl,
            },
        )
        .await
}

async fn domains(server: &Server) -> Vec<String> {
    let answer: proto::DomainsResponse = server.post("/v1/domains/list", []).await.message();
    answer
        .domains
        .into_iter()
        .map(|domain| String::from_utf8(domain).unwrap())
        .collect()
}

on_each_layout!(domain_is_fresh_until_its_ttl_expires);
async fn domain_is_fresh_until_its_ttl_expires(kind: Kind) {
    const SECOND: i64 = 1_000_000_000;
    let server = Server::empty(kind).await;
    for (domain, ttl) in [("short", 10), ("long", 20), ("ever", 0), ("ever", 0)] {
        assert_eq!(
            upsert(&server, domain.as_bytes(), ttl)
                .await
                .message::<proto::UpsertDomainResponse>()
                .error,
            None
        );
    }
    assert_eq!(domains(&server).await, ["ever", "long", "short"]);
    server.clock.set(NOW_NS + 10 * SECOND - SECOND / 2 - 1);
    assert_eq!(domains(&server).await, ["ever", "long", "short"]);
    server.clock.set(NOW_NS + 10 * SECOND - SECOND / 2);
    assert_eq!(domains(&server).await, ["ever", "long"]);
    upsert(&server, b"short", 1).await;
    assert_eq!(domains(&server).await, ["ever", "long", "short"]);
    upsert(&server, b"ever", 1).await;
    server.clock.set(NOW_NS + 100 * SECOND);
    assert_eq!(domains(&server).await, Vec::<String>::new());
    assert_eq!(
        server
            .texts("SELECT domain FROM domains ORDER BY domain")
            .await,
        ["ever", "long", "short"]
    );
}

on_each_layout!(domain_that_the_column_cannot_hold_is_rejected);
async fn domain_that_the_column_cannot_hold_is_rejected(kind: Kind) {
    let server = Server::empty(kind).await;
    for domain in [&b"\xff"[..], "d".repeat(256).as_bytes()] {
        let (kind, _) = upsert(&server, domain, 1).await.error();
        assert_eq!(kind, Type::InvalidRequest);
    }
    assert_eq!(
        upsert(&server, "d".repeat(255).as_bytes(), u32::MAX)
            .await
            .message::<proto::UpsertDomainResponse>()
            .error,
        None
    );
}
