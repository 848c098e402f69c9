//! Objects that the owner of a database made beside Diego's tables: a migration carries each over,
//! or is refused before its first write with the statement that removes it. `host/ADDITIONS.md`
//! says which of the two for each kind.

use bbs::testing::lock::fence::Fence;
use bbs::testing::migrate::online::{self, Start};
use bbs::testing::migrate::{Intent, LayoutChange, LayoutStep, layout_sql, plan, status};

use crate::harness::database::{Kind, TestDatabase, on_each_database, texts};
use crate::harness::fixture::{self, VERSION};
use crate::harness::host::Installation;
use crate::harness::modules::{self, chain};
use crate::harness::on_each::{on_each_mysql, on_one_server};
use crate::harness::ports::free_address;
use crate::harness::stored::Stored;
use crate::harness::{http_client, pause};
use crate::lock::upsert_domain;

mod carried;
mod half_done;
mod in_place;
mod kinds;
mod leftovers;
mod rights;

/// One unit of the fixture in so many.
const SHARE: u32 = 30;

/// A part of the database that Diego's BBS wrote.
async fn with_fixture(kind: Kind) -> Stored {
    let database = TestDatabase::new(kind);
    fixture::write_share_to(&database, SHARE).await;
    Stored::open(&database, fixture::migrations()).await
}

fn newest(stored: &Stored) -> u64 {
    stored.context.migrations.last().unwrap().manifest().version
}

/// An object that keeps a table from being replaced.
struct Object {
    /// The statements that make it.
    made: &'static [&'static str],
    /// Its name in the refusal.
    description: &'static str,
}

const fn object(made: &'static [&'static str], description: &'static str) -> Object {
    Object { made, description }
}

const POSTGRES: &[Object] = &[
    object(
        &["CREATE VIEW op_view AS SELECT state, count(*) FROM actual_lrps GROUP BY state"],
        "view op_view",
    ),
    object(
        &["CREATE MATERIALIZED VIEW op_view AS SELECT state FROM actual_lrps"],
        "materialized view op_view",
    ),
    object(
        &["CREATE TABLE op_notes (guid VARCHAR(255) REFERENCES desired_lrps (process_guid))"],
        "constraint op_notes_guid_fkey on table op_notes",
    ),
    object(
        &[
            "ALTER TABLE actual_lrps ADD CONSTRAINT op_fkey FOREIGN KEY (process_guid) REFERENCES desired_lrps NOT VALID",
        ],
        "constraint op_fkey on table actual_lrps",
    ),
    object(
        &[
            "CREATE OR REPLACE FUNCTION op_noted() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
            "CREATE TRIGGER op_trigger BEFORE UPDATE ON actual_lrps FOR EACH ROW EXECUTE FUNCTION op_noted()",
        ],
        "trigger op_trigger on table actual_lrps",
    ),
    object(
        &["CREATE RULE op_rule AS ON DELETE TO actual_lrps DO ALSO NOTIFY op"],
        "rule op_rule on table actual_lrps",
    ),
    object(
        &["ALTER TABLE actual_lrps ADD CONSTRAINT op_check CHECK (instance_index >= 0)"],
        "constraint op_check on table actual_lrps",
    ),
    object(
        &["ALTER TABLE desired_lrps ADD CONSTRAINT op_unique UNIQUE (process_guid, domain)"],
        "constraint op_unique on table desired_lrps",
    ),
    object(
        &["ALTER TABLE desired_lrps ADD CONSTRAINT op_exclusion EXCLUDE (process_guid WITH =)"],
        "constraint op_exclusion on table desired_lrps",
    ),
    object(
        &["CREATE POLICY op_policy ON actual_lrps USING (TRUE)"],
        "policy op_policy on table actual_lrps",
    ),
    object(
        &["CREATE STATISTICS op_statistics ON state, cell_id FROM actual_lrps"],
        "statistics object op_statistics",
    ),
    object(
        &["CREATE TABLE op_child () INHERITS (actual_lrps)"],
        "table op_child",
    ),
    object(
        &[
            "CREATE FUNCTION op_first() RETURNS actual_lrps LANGUAGE sql AS 'SELECT * FROM actual_lrps LIMIT 1'",
        ],
        "function op_first()",
    ),
    object(
        &["CREATE TABLE op_copies (copied actual_lrps)"],
        "column copied of table op_copies",
    ),
    object(
        &[
            "CREATE PUBLICATION op_publication FOR TABLE actual_lrps (process_guid, instance_index, presence)",
        ],
        "publication of table actual_lrps in publication op_publication",
    ),
    object(
        &["CREATE INDEX op_idx ON actual_lrps (state) WHERE state = 'RUNNING'"],
        "index op_idx",
    ),
    object(
        &["CREATE INDEX op_idx ON actual_lrps (lower(cell_id))"],
        "index op_idx",
    ),
    object(
        &["CREATE INDEX op_idx ON actual_lrps (since DESC)"],
        "index op_idx",
    ),
    object(
        &["CREATE INDEX op_idx ON actual_lrps USING hash (state)"],
        "index op_idx",
    ),
    object(
        &["CREATE INDEX op_idx ON actual_lrps (state) INCLUDE (since)"],
        "index op_idx",
    ),
    object(
        &["CREATE INDEX op_idx ON actual_lrps (domain COLLATE \"C\")"],
        "index op_idx",
    ),
    object(
        &["CREATE UNIQUE INDEX op_idx ON desired_lrps (process_guid)"],
        "index op_idx",
    ),
    object(
        &["ALTER TABLE actual_lrps ADD COLUMN op_at TIMESTAMPTZ DEFAULT now()"],
        "column op_at",
    ),
    object(
        &["ALTER TABLE actual_lrps ADD COLUMN op_id BIGSERIAL"],
        "column op_id",
    ),
    object(
        &["ALTER TABLE actual_lrps ADD COLUMN op_id BIGINT GENERATED ALWAYS AS IDENTITY"],
        "column op_id",
    ),
    object(
        &[
            "ALTER TABLE actual_lrps ADD COLUMN op_long TEXT GENERATED ALWAYS AS (state || cell_id) STORED",
        ],
        "column op_long",
    ),
    object(
        &["ALTER TABLE actual_lrps ADD COLUMN op_sorted TEXT COLLATE \"C\""],
        "column op_sorted",
    ),
];

/// Objects of MariaDB and MySQL.
const MYSQL: &[Object] = &[
    object(
        &[
            "CREATE TRIGGER op_trigger BEFORE UPDATE ON actual_lrps FOR EACH ROW SET NEW.crash_count = NEW.crash_count",
        ],
        "trigger op_trigger",
    ),
    object(
        &["CREATE TABLE op_notes (guid VARCHAR(255), \
             CONSTRAINT op_fkey FOREIGN KEY (guid) REFERENCES desired_lrps (process_guid))"],
        "foreign key op_fkey of table op_notes",
    ),
    object(
        &[
            "ALTER TABLE actual_lrps ADD CONSTRAINT op_fkey FOREIGN KEY (process_guid) REFERENCES desired_lrps (process_guid)",
        ],
        "foreign key constraint op_fkey",
    ),
    object(
        &["ALTER TABLE actual_lrps ADD CONSTRAINT op_check CHECK (instance_index >= 0)"],
        "check constraint op_check",
    ),
    object(
        &["CREATE UNIQUE INDEX op_idx ON desired_lrps (process_guid, domain)"],
        "index op_idx",
    ),
    object(
        &["CREATE INDEX op_idx ON actual_lrps (cell_id(10))"],
        "index op_idx",
    ),
    object(
        &["CREATE FULLTEXT INDEX op_idx ON actual_lrps (crash_reason)"],
        "index op_idx",
    ),
    object(
        &["ALTER TABLE actual_lrps ADD COLUMN op_at TIMESTAMP NULL DEFAULT CURRENT_TIMESTAMP"],
        "column op_at",
    ),
    object(
        &[
            "ALTER TABLE actual_lrps ADD COLUMN op_long VARCHAR(600) AS (CONCAT(state, cell_id)) STORED",
        ],
        "column op_long",
    ),
    object(
        &["ALTER TABLE actual_lrps ADD COLUMN op_sorted VARCHAR(9) COLLATE latin1_bin"],
        "column op_sorted",
    ),
    object(
        &["ALTER TABLE domains CONVERT TO CHARACTER SET latin1, ENGINE=MyISAM"],
        "domains is a table of engine MyISAM, not InnoDB",
    ),
    object(
        &["ALTER TABLE actual_lrps PARTITION BY KEY (process_guid) PARTITIONS 2"],
        "actual_lrps is a partitioned table",
    ),
];

const MARIADB: &[Object] = &[
    object(
        &[
            "ALTER TABLE actual_lrps ADD COLUMN op_count INT NOT NULL DEFAULT 1 CHECK (op_count > 0)",
        ],
        "check constraint of column op_count",
    ),
    object(
        &[
            "ALTER TABLE actual_lrps MODIFY crash_reason VARCHAR(1024) NOT NULL DEFAULT '' \
             COMMENT 'why?' CHECK (crash_reason <> 'none')",
        ],
        "check constraint of column crash_reason",
    ),
    object(
        &["CREATE INDEX op_idx ON actual_lrps (state) IGNORED"],
        "index op_idx",
    ),
    object(
        &["ALTER TABLE actual_lrps ADD SYSTEM VERSIONING"],
        "actual_lrps is a system-versioned table",
    ),
    object(
        &["ALTER TABLE domains ENGINE=Aria"],
        "domains is a table of engine Aria, not InnoDB",
    ),
];

const SQLITE: &[Object] = &[
    object(
        &["CREATE VIEW op_view AS SELECT state FROM actual_lrps"],
        "view op_view",
    ),
    object(
        &[
            "CREATE TRIGGER op_trigger AFTER DELETE ON actual_lrps BEGIN DELETE FROM tasks WHERE FALSE; END",
        ],
        "trigger op_trigger",
    ),
    object(
        &["CREATE TABLE op_notes (guid TEXT REFERENCES desired_lrps (process_guid))"],
        "foreign key of table op_notes",
    ),
    object(
        &["CREATE INDEX op_idx ON actual_lrps (state) WHERE state = 'RUNNING'"],
        "index op_idx",
    ),
    object(
        &["CREATE INDEX op_idx ON actual_lrps (lower(cell_id))"],
        "index op_idx",
    ),
    object(
        &["CREATE INDEX op_idx ON actual_lrps (since DESC)"],
        "index op_idx",
    ),
    object(
        &["CREATE UNIQUE INDEX op_idx ON desired_lrps (process_guid, domain)"],
        "index op_idx",
    ),
    object(
        &["ALTER TABLE actual_lrps ADD COLUMN op_at REAL"],
        "column op_at",
    ),
    object(
        &["ALTER TABLE actual_lrps ADD COLUMN op_long TEXT AS (state || cell_id)"],
        "column op_long",
    ),
];

fn objects(kind: Kind) -> Vec<&'static Object> {
    match kind {
        Kind::Sqlite => SQLITE.iter().collect(),
        Kind::Postgres => POSTGRES.iter().collect(),
        Kind::Mariadb => MYSQL.iter().chain(MARIADB).collect(),
        Kind::Mysql => MYSQL.iter().collect(),
    }
}

on_each_database!(object_that_would_be_lost_refuses_a_migration_until_it_is_removed);
/// Each by itself: `status` and `plan` say what the start says, the start writes nothing, and the
/// statement that they name is all that is needed.
async fn object_that_would_be_lost_refuses_a_migration_until_it_is_removed(kind: Kind) {
    let stored = with_fixture(kind).await;
    let newest = newest(&stored);
    let tables = stored.tables().await;
    let before = stored.rows(VERSION).await;
    for Object { made, description } in objects(kind) {
        for statement in *made {
            stored.execute(statement).await;
        }
        let refusal = stored.up(newest).await.expect_err(description).to_string();
        assert!(refusal.contains(description), "{description}: {refusal}");
        let promised = plan(&stored.context, newest).await.unwrap().refused;
        assert_eq!(promised.as_ref(), Some(&refusal), "{description}");
        let promised = status(&stored.context, Intent::Up { wanted: newest })
            .await
            .unwrap()
            .refused;
        assert_eq!(promised.as_ref(), Some(&refusal), "{description}");
        stored.execute(removal(&refusal, description)).await;
        for beside in ["op_notes", "op_copies", "op_child"] {
            stored
                .execute(&format!("DROP TABLE IF EXISTS {beside}"))
                .await;
        }
        assert_eq!(
            plan(&stored.context, newest).await.unwrap().refused,
            None,
            "{description}"
        );
    }
    let after = stored.tables().await;
    assert_eq!(
        after
            .iter()
            .filter(|table| !table.starts_with("bbs_") || tables.contains(table))
            .collect::<Vec<_>>(),
        tables.iter().collect::<Vec<_>>()
    );
    assert_eq!(
        (stored.version().await, stored.rows(VERSION).await),
        (VERSION, before)
    );
    stored.up(newest).await.unwrap();
    stored.assert_layout(newest).await;
}

/// The statement after the description of an object.
fn removal<'a>(refusal: &'a str, description: &str) -> &'a str {
    let after = refusal.split_once(description).map(|(_, after)| after);
    let statement = after
        .and_then(|after| after.split_once(" ("))
        .map(|(_, statement)| statement);
    let ends = ["). ", "); ", "), and"];
    let whole = statement.map(|text| {
        ends.iter()
            .filter_map(|end| text.find(end))
            .min()
            .map_or(text, |end| &text[..end])
    });
    whole.unwrap_or_else(|| panic!("no statement for {description} in {refusal}"))
}

on_each_database!(all_reasons_against_a_migration_are_said_at_once);
async fn all_reasons_against_a_migration_are_said_at_once(kind: Kind) {
    let stored = with_fixture(kind).await;
    let newest = newest(&stored);
    stored
        .execute("CREATE TABLE bbs_lrp_updates (note INT)")
        .await;
    stored
        .execute("INSERT INTO bbs_lrp_updates VALUES (1)")
        .await;
    stored
        .execute("CREATE TABLE bbs_lrp_definitions (note INT)")
        .await;
    stored
        .execute("INSERT INTO bbs_lrp_definitions VALUES (1)")
        .await;
    stored
        .execute("CREATE UNIQUE INDEX op_idx ON desired_lrps (process_guid, domain)")
        .await;
    let dropped = match kind {
        Kind::Sqlite | Kind::Postgres => "DROP INDEX tasks_state_idx",
        Kind::Mariadb | Kind::Mysql => "DROP INDEX tasks_state_idx ON tasks",
    };
    stored.execute(dropped).await;
    let refusal = stored.up(newest).await.unwrap_err().to_string();
    for words in [
        "4 reasons",
        "table bbs_lrp_definitions",
        "table bbs_lrp_updates",
        "index op_idx",
        "tasks_state_idx",
    ] {
        assert!(refusal.contains(words), "{words}: {refusal}");
    }
    assert_eq!(stored.version().await, VERSION);
}

on_each_database!(online_migration_is_refused_for_each_table_that_it_copies);
/// Setup: an object on a table that gets a column, which is added in place unless clients are served
/// meanwhile.
async fn online_migration_is_refused_for_each_table_that_it_copies(kind: Kind) {
    let mut stored = with_fixture(kind).await;
    let newest = newest(&stored);
    let (made, description) = match kind {
        Kind::Sqlite | Kind::Postgres => (
            "CREATE VIEW op_view AS SELECT guid FROM tasks",
            "view op_view",
        ),
        Kind::Mariadb | Kind::Mysql => (
            "CREATE TRIGGER op_trigger BEFORE UPDATE ON tasks FOR EACH ROW SET NEW.domain = NEW.domain",
            "trigger op_trigger",
        ),
    };
    stored.execute(made).await;
    let tables = stored.tables().await;
    let offline = plan(&stored.context, newest).await.unwrap();
    assert_eq!(offline.refused, None);

    stored.context.is_online = true;
    let intent = Intent::Up { wanted: newest };
    let fence = Fence::raise(&stored.context.database).await.unwrap();
    let refusal = online::start(&stored.context, &fence, intent)
        .await
        .expect_err(description)
        .to_string();
    assert!(refusal.contains(description), "{refusal}");
    let planned = plan(&stored.context, newest).await.unwrap();
    assert_eq!(planned.refused.as_ref(), Some(&refusal));
    assert!(planned.bytes_to_copy > offline.bytes_to_copy);
    let shown = layout_sql(&stored.context, newest, None).await.unwrap();
    let is_copy_of_tasks = |change: &LayoutChange| {
        change.step == LayoutStep::Prepare && change.table.as_deref() == Some("tasks")
    };
    assert!(shown.iter().any(is_copy_of_tasks), "{shown:?}");
    let shown = status(&stored.context, intent).await.unwrap();
    assert_eq!(shown.refused.as_ref(), Some(&refusal));
    let mut after = stored.tables().await;
    after.retain(|table| tables.contains(table) || !table.starts_with("bbs_"));
    assert_eq!((after, stored.version().await), (tables, VERSION));

    stored.execute(removal(&refusal, description)).await;
    let started = online::start(&stored.context, &fence, intent).await;
    assert!(matches!(started, Ok(Start::Follow(_))), "{started:?}");
}

on_each_database!(view_in_the_place_of_a_table_is_refused);
async fn view_in_the_place_of_a_table_is_refused(kind: Kind) {
    let stored = Stored::open(&TestDatabase::new(kind), fixture::migrations()).await;
    stored
        .execute("CREATE VIEW tasks AS SELECT 1 AS guid")
        .await;
    let refusal = stored.up(newest(&stored)).await.unwrap_err().to_string();
    assert!(refusal.contains("tasks is a view"), "{refusal}");
    stored.execute("DROP VIEW tasks").await;
    stored.up(newest(&stored)).await.unwrap();
    assert_eq!(
        texts(&stored.context.database, "SELECT guid FROM tasks").await,
        [""; 0]
    );
}

on_one_server!(
    table_that_cannot_be_dropped_keeps_no_host_from_serving,
    postgres
);
/// Setup: what a migration leaves if an operator makes a view on a table while it is replaced.
async fn table_that_cannot_be_dropped_keeps_no_host_from_serving() {
    let database = TestDatabase::new(Kind::Postgres);
    let installation = Installation::on(database.clone(), &modules::modules());
    installation.succeed(&["migrate", "up"]);
    let stored = Stored::open(&database, fixture::migrations()).await;
    let newest = newest(&stored);
    for statement in [
        "CREATE TABLE domains__7 (domain TEXT)".to_owned(),
        "CREATE VIEW op_view AS SELECT domain FROM domains__7".to_owned(),
        "INSERT INTO bbs_side_table (table_name) VALUES ('domains__7')".to_owned(),
        format!(
            "INSERT INTO bbs_migration (id, from_version, to_version, going_down, fingerprint, token, phase) \
             VALUES (1, 7, {newest}, FALSE, '', 1, 'cleaning-up')"
        ),
    ] {
        stored.execute(&statement).await;
    }
    let metrics = free_address();
    let installation = installation.set("metrics_address", metrics.to_string());
    let mut host = installation.serve();
    upsert_domain(host.address, "served").await.unwrap();
    host.wait_for_line(|line| {
        line.contains("tables that a migration replaced are not removed yet")
    });
    let metrics = http_client()
        .get(format!("http://{metrics}/metrics"))
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    assert!(
        metrics.contains(r#"bbs_work_phase{phase="clean-up"} 1"#),
        "{metrics}"
    );
    assert!(!metrics.contains("bbs_work_retries_total 0"), "{metrics}");
    assert!(
        installation
            .succeed(&["migrate", "status"])
            .contains("cleaning-up")
    );
    let refusal = plan(&stored.context, VERSION)
        .await
        .unwrap()
        .refused
        .unwrap();
    assert!(
        refusal.contains("table domains__7 remains from an earlier migration")
            && refusal.contains("DROP VIEW op_view")
    );
    stored.execute("DROP VIEW op_view").await;
    while stored.tables().await.contains(&"domains__7".to_owned()) {
        pause().await;
    }
    assert!(host.terminate().success());
}

on_one_server!(host_says_at_its_start_what_a_drain_would_meet, postgres);
async fn host_says_at_its_start_what_a_drain_would_meet() {
    let database = TestDatabase::new(Kind::Postgres);
    let installation = Installation::on(database.clone(), &modules::modules());
    installation.succeed(&["migrate", "up"]);
    let stored = Stored::open(&database, fixture::migrations()).await;
    stored
        .execute("CREATE VIEW op_view AS SELECT state FROM actual_lrps")
        .await;
    let installation = installation.set("rollback_on_drain_to_version", VERSION);
    assert!(
        installation
            .succeed(&["migrate", "status"])
            .contains("a drain could not roll back")
    );
    let mut host = installation.serve();
    assert!(
        host.output().iter().any(|line| {
            line.contains("a drain could not roll back") && line.contains("DROP VIEW op_view")
        }),
        "{:#?}",
        host.output()
    );
    stored.execute("DROP VIEW op_view").await;
    assert!(host.terminate().success());
    assert_eq!(installation.data_version(), VERSION);
}

on_each_mysql!(migration_that_is_given_up_leaves_nothing);
/// Setup: a trigger that is made while rows are copied, which is found at the end of the copy.
async fn migration_that_is_given_up_leaves_nothing(kind: Kind) {
    let stored = with_fixture(kind).await;
    let newest = newest(&stored);
    let before = definitions(&stored).await;
    let fence = Fence::raise(&stored.context.database).await.unwrap();
    let Start::Follow(online) =
        online::start(&stored.context, &fence, Intent::Up { wanted: newest })
            .await
            .unwrap()
    else {
        panic!("there is nothing to migrate");
    };
    stored
        .execute(
            "CREATE TRIGGER op_trigger BEFORE UPDATE ON actual_lrps FOR EACH ROW SET NEW.crash_count = NEW.crash_count",
        )
        .await;
    let refusal = online
        .copy(&stored.context, &fence)
        .await
        .unwrap_err()
        .to_string();
    assert!(refusal.contains("trigger op_trigger"), "{refusal}");
    assert_ne!(
        definitions(&stored).await,
        before,
        "what can be changed ahead is"
    );
    online.give_up(&stored.context, &fence).await.unwrap();
    assert_eq!(definitions(&stored).await, before);
}

on_each_mysql!(cut_over_that_cannot_rename_takes_its_version_back);
/// Setup: a table that has the name under which a replaced one is set aside; it is made once the
/// copy is complete.
async fn cut_over_that_cannot_rename_takes_its_version_back(kind: Kind) {
    let stored = with_fixture(kind).await;
    let newest = newest(&stored);
    let before = stored.rows(VERSION).await;
    let fence = Fence::raise(&stored.context.database).await.unwrap();
    let Start::Follow(online) =
        online::start(&stored.context, &fence, Intent::Up { wanted: newest })
            .await
            .unwrap()
    else {
        panic!("there is nothing to migrate");
    };
    online.copy(&stored.context, &fence).await.unwrap();
    let aside = format!("desired_lrps__{VERSION}");
    stored
        .execute(&format!("CREATE TABLE {aside} (note INT)"))
        .await;
    let refusal = chain(
        &online
            .cut_over(&stored.context, &fence, || {})
            .await
            .unwrap_err(),
    );
    assert!(
        refusal.contains("RENAME TABLE") && refusal.contains("already exists"),
        "{refusal}"
    );
    assert_eq!(
        (stored.version().await, stored.rows(VERSION).await),
        (VERSION, before)
    );
    assert!(!online.has_arrived(&stored.context, &fence).await.unwrap());
    assert_eq!(
        texts(&stored.context.database, "SELECT name FROM bbs_history").await,
        [""; 0]
    );
    stored.execute(&format!("DROP TABLE {aside}")).await;
    online
        .cut_over(&stored.context, &fence, || {})
        .await
        .unwrap();
    assert_eq!(stored.version().await, newest);
    stored.assert_layout(newest).await;
}

/// The columns and indexes of all tables but the host's own.
async fn definitions(stored: &Stored) -> Vec<String> {
    let of = |view: &str, column: &str| {
        format!(
            "SELECT CONCAT_WS(' ', table_name, {column}) FROM information_schema.{view} WHERE table_schema = DATABASE() \
             AND (table_name NOT LIKE 'bbs\\_%' OR table_name LIKE 'bbs\\_lrp%' OR table_name = 'bbs_health_check')"
        )
    };
    let query = format!(
        "{} UNION ALL {} ORDER BY 1",
        of("columns", "column_name"),
        of("statistics", "index_name")
    );
    texts(&stored.context.database, &query).await
}
