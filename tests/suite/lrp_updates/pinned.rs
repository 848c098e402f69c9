//! Through the lens: a database that is pinned below the migration has no place for definitions.

use super::*;
use crate::harness::database::{TestDatabase, on_each_database};
use crate::harness::fixture::migrations;
use crate::harness::stored::Stored;

const BELOW: u64 = 1_795_000_000;

on_each_database!(definition_is_refused_while_the_database_is_pinned_below_it);
async fn definition_is_refused_while_the_database_is_pinned_below_it(kind: Kind) {
    let database = TestDatabase::new(kind);
    Stored::open(&database, migrations())
        .await
        .up(BELOW)
        .await
        .expect("the migration succeeds");
    let options = Options {
        translators: translators(),
        ..Options::on(kind)
    };
    let server = Server::at(database, &migrations(), BELOW, options).await;
    desire(
        &server,
        proto::DesiredLrp {
            instances: 1,
            ..lrp("guid")
        },
    )
    .await;
    start_new(&server, 0, "container").await;
    let id = ids(&server).await.0;
    assert_eq!(id.len(), 36);
    assert_eq!(rows(&server).await, [format!("0/0 RUNNING container {id}")]);

    let request = proto::UpdateDesiredLrpRequest {
        process_guid: b"guid".to_vec(),
        update: Some(to(definition("version-2"))),
    };
    let reply = server.call(UPDATE, &request).await;
    assert_eq!(reply.status, 406);
    assert!(reply.text().contains("lrp_definition"), "{}", reply.text());
    assert_eq!(cancel(&server).await, Some(Type::NoUpdateInProgress));
    assert_eq!(
        roll_back(&server, "version-1").await,
        Some(Type::DefinitionNotFound)
    );
    // Everything else goes on. An id that the client gives is saved as residue.
    let other = proto::DesiredLrp {
        process_guid: b"other".to_vec(),
        instances: 0,
        ..version_1()
    };
    desire(&server, other).await;
    assert_eq!(get(&server, "other").await.definition_id, b"version-1");
    let scaled = proto::DesiredLrpUpdate {
        instances: Some(2),
        ..Default::default()
    };
    assert_eq!(update(&server, scaled).await, None);
    bbs::testing::domain::convergence::run(&server.service)
        .await
        .unwrap();
    assert_eq!(
        rows(&server).await,
        [
            format!("0/0 RUNNING container {id}"),
            format!("1/0 UNCLAIMED  {id}")
        ]
    );
}
