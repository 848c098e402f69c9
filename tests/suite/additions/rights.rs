//! A user that may not do all that a migration does: found before the first write, and not when
//! hours of copying are over.

use bbs::testing::database::Address;

use super::{SHARE, newest};
use crate::harness::database::{Kind, TestDatabase};
use crate::harness::engine::PASSWORD;
use crate::harness::fixture::{self, VERSION};
use crate::harness::mariadb::NO_DROP;
use crate::harness::modules::chain;
use crate::harness::on_each::{on_each_mysql, on_one_server};
use crate::harness::stored::Stored;

async fn with_fixture(kind: Kind) -> TestDatabase {
    let database = TestDatabase::new(kind);
    fixture::write_share_to(&database, SHARE).await;
    database
}

/// Opens the database as another user.
async fn opened_as(database: &TestDatabase, user: &str) -> Stored {
    let Address::Server(mut server) = database.address() else {
        panic!("a file has no users")
    };
    (server.user, server.password) = (user.to_owned(), PASSWORD.to_owned().into());
    let opened = bbs::testing::database::Database::open(&Address::Server(server))
        .await
        .unwrap();
    Stored::over(opened, fixture::migrations())
}

on_each_mysql!(user_that_may_not_drop_tables_is_refused_before_a_write);
async fn user_that_may_not_drop_tables_is_refused_before_a_write(kind: Kind) {
    let database = with_fixture(kind).await;
    let stored = opened_as(&database, NO_DROP).await;
    let before = stored.tables().await;
    let refusal = chain(&stored.up(newest(&stored)).await.unwrap_err());
    for words in [
        "The statement that failed: DROP TABLE IF EXISTS `bbs_trial`",
        "give it all rights on its database",
    ] {
        assert!(refusal.contains(words), "{words}: {refusal}");
    }
    assert_eq!(
        stored
            .tables()
            .await
            .iter()
            .filter(|table| !table.starts_with("bbs_") || table.starts_with("bbs_trial"))
            .collect::<Vec<_>>(),
        before.iter().collect::<Vec<_>>()
    );
    assert_eq!(stored.version().await, VERSION);
    stored.context.database.close().await;
    let stored = Stored::open(&database, fixture::migrations()).await;
    stored.up(newest(&stored)).await.unwrap();
}

on_one_server!(
    user_that_does_not_own_the_tables_is_refused_before_a_write,
    postgres
);
async fn user_that_does_not_own_the_tables_is_refused_before_a_write() {
    let database = with_fixture(Kind::Postgres).await;
    let owner = Stored::open(&database, fixture::migrations()).await;
    let user = format!("{}_user", database.name());
    for statement in [
        format!("CREATE ROLE {user} LOGIN PASSWORD '{PASSWORD}'"),
        format!("GRANT ALL ON ALL TABLES IN SCHEMA public TO {user}"),
        format!("GRANT CREATE ON SCHEMA public TO {user}"),
    ] {
        owner.execute(&statement).await;
    }
    let stored = opened_as(&database, &user).await;
    let refusal = stored.up(newest(&stored)).await.unwrap_err().to_string();
    for table in ["actual_lrps", "desired_lrps"] {
        let words = format!(
            "replaces table {table}, but the user {user} does not have the rights of its owner"
        );
        assert!(refusal.contains(&words), "{words}: {refusal}");
    }
    assert_eq!(stored.version().await, VERSION);
    stored.context.database.close().await;
    for statement in [
        format!("GRANT {user} TO CURRENT_USER"),
        format!("DROP OWNED BY {user}"),
        format!("DROP ROLE {user}"),
    ] {
        owner.execute(&statement).await;
    }
}
