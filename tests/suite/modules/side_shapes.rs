//! A vendor's side shape of an API version: served while its translator is in the folder.

use bbs_proto::models as proto;
use bbs_proto::prost::Message;

use super::*;
use crate::harness::host::Host;
use crate::harness::http_client;

/// Goal: a revision comes and goes with its module, without another build of the host.
#[tokio::test(flavor = "multi_thread")]
async fn side_shape_is_served_while_its_module_is_in_the_folder() {
    const FILE: &str = "1.2-acme-to-1.2.wasm";
    let bench = Workbench::new();
    assert!(
        bench
            .add(&guest("acme"))
            .contains(&format!("{FILE}  added"))
    );
    let installation = Installation::new(&bench.modules(), Kind::Sqlite);
    let statuses = async |host: &Host| {
        let mut statuses = Vec::new();
        for path in [
            "v1.2-acme/domains/count",
            "v1.2-acme/domains/list",
            "v1.2-acme/cells/list.r1",
            "v1/domains/count",
        ] {
            let reply = http_client()
                .post(host.url(&format!("/{path}")))
                .send()
                .await
                .unwrap();
            let version = reply
                .headers()
                .get("x-diego-api-version")
                .map(|version| version.to_str().unwrap().to_owned());
            statuses.push((reply.status().as_u16(), version));
        }
        statuses
    };
    let acme = || (200, Some("1.2-acme".to_owned()));
    let host = installation.serve();
    let upsert = proto::UpsertDomainRequest {
        domain: b"domain".to_vec(),
        ttl: 0,
    }
    .encode_to_vec();
    http_client()
        .post(host.url("/v1/domains/upsert"))
        .body(upsert)
        .send()
        .await
        .unwrap();
    assert_eq!(
        statuses(&host).await,
        [acme(), acme(), (404, None), (404, None)]
    );
    let counted = http_client()
        .post(host.url("/v1.2-acme/domains/count"))
        .send()
        .await
        .unwrap();
    assert_eq!(
        counted.bytes().await.unwrap()[..],
        [8, 1],
        "field 1 is the number of domains"
    );
    assert!(
        tokio::task::spawn_blocking(|| host.terminate())
            .await
            .unwrap()
            .success()
    );

    remove_modules(&bench.modules(), &[FILE]);
    let host = installation.serve();
    assert_eq!(
        statuses(&host).await,
        [(406, None), (406, None), (406, None), (404, None)]
    );
    assert!(
        tokio::task::spawn_blocking(|| host.terminate())
            .await
            .unwrap()
            .success()
    );
}

#[test]
fn side_shape_of_an_absent_version_is_refused() {
    let bench = Workbench::without(&[
        "1.0-to-1.1.wasm",
        "0.12-to-1.0.wasm",
        "0.11-to-0.12.wasm",
        "0.10-to-0.11.wasm",
        "0.9-to-0.10.wasm",
    ]);
    bench.add(&guest("acme"));
    let other = Workbench::new();
    let text = std::fs::read_to_string(other.modules().join("catalog.toml")).unwrap();
    let digest = "0".repeat(64);
    let entry = format!(
        "[[module]]\nkind = \"translator\"\nfile = \"a.wasm\"\nsha256 = \"{digest}\"\nserves = \"0.5-acme\"\nonto = \"0.5\"\n"
    );
    std::fs::write(
        other.modules().join("catalog.toml"),
        format!("{text}\n{entry}"),
    )
    .unwrap();
    let output = other.run(&["check", "modules"]);
    assert!(
        errors(&output).contains("a.wasm serves 0.5-acme, a side shape of API version 0.5"),
        "{}",
        errors(&output)
    );
}
