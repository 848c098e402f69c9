//! Texts about failures with characters that the columns of an older schema cannot hold.

use bbs_proto::models as proto;

use super::{desire, get, start, try_call};
use crate::api::{self, actual_lrps};
use crate::harness::database::{Kind, execute};
use crate::harness::on_each::on_each_mysql;
use crate::harness::server::Server;

on_each_mysql!(characters_of_a_diagnostic_text_keep_no_record_from_its_next_state);
async fn characters_of_a_diagnostic_text_keep_no_record_from_its_next_state(kind: Kind) {
    for (characters, text, stored) in [
        ("utf8mb4", "no \u{1f600}", "no \u{1f600}"),
        ("utf8mb3", "no \u{1f600}, größe", "no ?, gr??e"),
        ("latin1", "no \u{2028}", "no ?"),
    ] {
        let server = Server::empty(kind).await;
        for table in ["actual_lrps", "tasks"] {
            execute(&server.database, &format!("ALTER TABLE {table} CONVERT TO CHARACTER SET {characters}")).await;
        }
        api::desire(&server, api::lrp("guid")).await;
        let started = actual_lrps::call_error(&server, actual_lrps::START, &actual_lrps::start(0, "a")).await;
        let crash = proto::CrashActualLrpRequest { error_message: text.into(), ..actual_lrps::crash(0, "a") };
        assert_eq!((started, actual_lrps::call_error(&server, actual_lrps::CRASH, &crash).await), (None, None));
        assert_eq!(
            server.texts("SELECT state FROM actual_lrps WHERE instance_index = 0").await,
            ["UNCLAIMED"],
            "{characters}"
        );
        assert_eq!(
            server.texts("SELECT crash_reason FROM actual_lrps WHERE instance_index = 0").await,
            [stored],
            "{characters}"
        );

        desire(&server, "task").await.unwrap();
        start(&server, "task", "cell").await.unwrap();
        let completed = proto::CompleteTaskRequest {
            task_guid: b"task".to_vec(),
            cell_id: b"cell".to_vec(),
            failed: true,
            failure_reason: text.into(),
            result: text.into(),
        };
        try_call(&server, "/v1/tasks/complete", &completed).await.unwrap();
        let task = get(&server, "task").await.unwrap();
        assert_eq!((task.failure_reason, task.result), (stored.into(), stored.into()), "{characters}");
    }
}
