//! Objects that a migration carries over, up and down: the server's own catalog says the same of
//! the tables before and after.

use std::sync::Arc;

use bbs::testing::database::sql;
use bbs::testing::lock::fence::Fence;
use bbs::testing::migrate::Intent;
use bbs::testing::migrate::online::{self, Start};
use bbs_lens::layout::manifest::Manifest;
use bbs_lens::layout::schema::{Column, Table};
use bbs_lens::transform::Transform;

use super::{newest, with_fixture};
use crate::harness::database::{Kind, on_each_database, on_each_server, texts};
use crate::harness::declared::declared;
use crate::harness::fixture::{OLDEST, VERSION};
use crate::harness::modules::ADD_ON_VERSION;
use crate::harness::on_each::{on_each_mysql, on_one_server};
use crate::harness::stored::Stored;

/// The kinds and names of what belongs to a table on PostgreSQL, as text.
const POSTGRES_PROPERTIES: &str = "
    WITH t AS (SELECT c.* FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = current_schema() AND c.relname IN ('actual_lrps', 'desired_lrps'))
    SELECT concat_ws(' ', relname, 'owner', pg_get_userbyid(relowner)) FROM t
    UNION ALL SELECT concat_ws(' ', relname, 'grant', privilege_type, grantee::regrole, is_grantable)
        FROM t, aclexplode(relacl)
    UNION ALL SELECT concat_ws(' ', relname, 'grant', attname, privilege_type, grantee::regrole)
        FROM t JOIN pg_attribute a ON attrelid = t.oid, aclexplode(attacl)
    UNION ALL SELECT concat_ws(' ', relname, 'comment', attname, description)
        FROM t JOIN pg_description d ON d.objoid = t.oid
        LEFT JOIN pg_attribute a ON attrelid = t.oid AND attnum = d.objsubid AND attnum > 0
    UNION ALL SELECT concat_ws(' ', relname, 'options', reloptions) FROM t
    UNION ALL SELECT concat_ws(' ', relname, 'tablespace', spcname) FROM t JOIN pg_tablespace s ON s.oid = reltablespace
    UNION ALL SELECT concat_ws(' ', t.relname, 'toast', o.reloptions) FROM t JOIN pg_class o ON o.oid = t.reltoastrelid
    UNION ALL SELECT concat_ws(' ', relname, 'identity', relreplident, relpersistence, relrowsecurity) FROM t
    UNION ALL SELECT concat_ws(' ', relname, 'publication', pubname)
        FROM t JOIN pg_publication_rel ON prrelid = t.oid JOIN pg_publication p ON p.oid = prpubid
    UNION ALL SELECT concat_ws(' ', relname, 'column', attname, attoptions)
        FROM t JOIN pg_attribute ON attrelid = t.oid WHERE attoptions IS NOT NULL OR attstattarget > 0
    UNION ALL SELECT concat_ws(' ', relname, 'storage', attname, attstorage, attcompression)
        FROM t JOIN pg_attribute ON attrelid = t.oid WHERE attcompression <> ''
    UNION ALL SELECT concat_ws(' ', relname, 'constraint', conname, description)
        FROM t JOIN pg_constraint k ON conrelid = t.oid JOIN pg_description d ON d.objoid = k.oid
    UNION ALL SELECT concat_ws(' ', t.relname, 'index', i.relname, i.reloptions, indisclustered, description)
        FROM t JOIN pg_index x ON indrelid = t.oid JOIN pg_class i ON i.oid = indexrelid
        LEFT JOIN pg_description d ON d.objoid = i.oid WHERE i.relname LIKE 'op_%' OR i.relname LIKE '%domain_idx'
    ORDER BY 1";

/// Properties of the tables of MariaDB and MySQL themselves; privileges and views belong to their
/// names.
const MYSQL_PROPERTIES: &str = "
    SELECT CONCAT_WS(' ', table_name, row_format, table_collation, table_comment,
            REPLACE(LOWER(create_options), 'row_format=dynamic', ''))
        FROM information_schema.tables
        WHERE table_schema = DATABASE() AND table_name IN ('actual_lrps', 'desired_lrps')
    UNION ALL SELECT CONCAT_WS(' ', table_name, column_name, column_type, column_default, extra, column_comment)
        FROM information_schema.columns
        WHERE table_schema = DATABASE() AND (column_comment <> '' OR column_name LIKE 'op\\\\_%')
    UNION ALL SELECT CONCAT_WS(' ', table_name, index_name, column_name, seq_in_index)
        FROM information_schema.statistics WHERE table_schema = DATABASE() AND index_name LIKE 'op\\\\_%'
    ORDER BY 1";

/// Columns of PostgreSQL whose collations are not those of their types.
const POSTGRES_COLLATIONS: &str = "
    SELECT concat_ws(' ', c.relname, a.attname, l.collname)
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        JOIN pg_type y ON y.oid = a.atttypid JOIN pg_collation l ON l.oid = a.attcollation
        WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
        AND a.attnum > 0 AND a.attcollation <> y.typcollation
        ORDER BY 1";

/// Columns of MariaDB and MySQL whose collations are not those of their tables.
const MYSQL_COLLATIONS: &str = "
    SELECT CONCAT_WS(' ', c.table_name, c.column_name, c.collation_name)
        FROM information_schema.columns c JOIN information_schema.tables t
        ON t.table_schema = c.table_schema AND t.table_name = c.table_name
        WHERE c.table_schema = DATABASE() AND c.collation_name <> t.table_collation
        ORDER BY 1";

async fn properties(stored: &Stored, query: &str) -> Vec<String> {
    texts(&stored.context.database, query).await
}

/// Migrates up and down, and compares what the server says of the tables.
async fn assert_carried_over(stored: &Stored, query: &str) {
    let before = properties(stored, query).await;
    assert!(before.len() > 5, "{before:#?}");
    stored.up(newest(stored)).await.unwrap();
    assert_eq!(
        properties(stored, query).await,
        before,
        "after the migration up"
    );
    stored.down(VERSION).await.unwrap();
    assert_eq!(
        properties(stored, query).await,
        before,
        "after the migration down"
    );
}

async fn belongings_of_postgresql_are_carried_over(stored: Stored) {
    let name = texts(&stored.context.database, "SELECT current_database()::text")
        .await
        .remove(0);
    let group = format!("{name}_group");
    let reader = format!("{name}_reader");
    for statement in [
        format!("CREATE ROLE {group}"),
        format!("CREATE ROLE {reader}"),
        format!("GRANT {group}, {reader} TO CURRENT_USER"),
        format!("GRANT CREATE, USAGE ON SCHEMA public TO {group}"),
        // What this gives to new tables is not what the tables had.
        format!("ALTER DEFAULT PRIVILEGES GRANT DELETE ON TABLES TO {reader}"),
        format!("ALTER TABLE actual_lrps OWNER TO {group}"),
        format!("GRANT SELECT, INSERT ON actual_lrps TO {reader} WITH GRANT OPTION"),
        format!("GRANT SELECT (process_guid), UPDATE (domain) ON desired_lrps TO {reader}"),
        "GRANT SELECT ON desired_lrps TO PUBLIC".to_owned(),
        "COMMENT ON TABLE actual_lrps IS 'why? of the ''owner''; a \\ '".to_owned(),
        "COMMENT ON COLUMN desired_lrps.domain IS 'where?'".to_owned(),
        "COMMENT ON INDEX actual_lrps_domain_idx IS 'for lists'".to_owned(),
        "COMMENT ON CONSTRAINT desired_lrps_pkey ON desired_lrps IS 'one of each'".to_owned(),
        "ALTER TABLE actual_lrps SET (fillfactor = 70, autovacuum_enabled = false, toast.autovacuum_enabled = false)"
            .to_owned(),
        "ALTER TABLE desired_lrps SET UNLOGGED".to_owned(),
        "ALTER TABLE actual_lrps SET TABLESPACE op_space".to_owned(),
        "ALTER TABLE actual_lrps REPLICA IDENTITY FULL".to_owned(),
        "ALTER TABLE desired_lrps REPLICA IDENTITY USING INDEX desired_lrps_pkey".to_owned(),
        "ALTER TABLE desired_lrps ENABLE ROW LEVEL SECURITY".to_owned(),
        "ALTER TABLE actual_lrps ALTER COLUMN state SET STATISTICS 500".to_owned(),
        "ALTER TABLE actual_lrps ALTER COLUMN state SET (n_distinct = 5)".to_owned(),
        "ALTER TABLE actual_lrps ALTER COLUMN net_info SET STORAGE MAIN".to_owned(),
        "ALTER TABLE actual_lrps ALTER COLUMN net_info SET COMPRESSION pglz".to_owned(),
        "ALTER TABLE actual_lrps CLUSTER ON actual_lrps_domain_idx".to_owned(),
        "ALTER INDEX actual_lrps_domain_idx SET (fillfactor = 60)".to_owned(),
        "CREATE INDEX op_idx ON actual_lrps (process_guid, state)".to_owned(),
        "CREATE PUBLICATION op_publication FOR TABLE actual_lrps".to_owned(),
    ] {
        stored.execute(&statement).await;
    }
    assert_carried_over(&stored, POSTGRES_PROPERTIES).await;
    for statement in [
        "DROP PUBLICATION op_publication".to_owned(),
        "ALTER TABLE actual_lrps OWNER TO CURRENT_USER".to_owned(),
        format!("DROP OWNED BY {group}, {reader}"),
        format!("DROP ROLE {group}, {reader}"),
    ] {
        stored.execute(&statement).await;
    }
}

on_each_server!(what_belongs_to_a_table_is_carried_over);
async fn what_belongs_to_a_table_is_carried_over(kind: Kind) {
    match kind {
        Kind::Postgres => belongings_of_postgresql_are_carried_over(with_fixture(kind).await).await,
        Kind::Mariadb | Kind::Mysql => {
            belongings_of_mysql_are_carried_over(with_fixture(kind).await).await
        }
        Kind::Sqlite => unreachable!("a file has no owner and no comments"),
    }
}

async fn belongings_of_mysql_are_carried_over(stored: Stored) {
    for statement in [
        "ALTER TABLE actual_lrps COMMENT = 'why? of the ''owner''; a \\\\ '",
        "ALTER TABLE desired_lrps CONVERT TO CHARACTER SET latin1 COLLATE latin1_bin",
        "ALTER TABLE desired_lrps ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=8 STATS_PERSISTENT=1",
        "ALTER TABLE actual_lrps MODIFY cell_id VARCHAR(255) NOT NULL DEFAULT '' INVISIBLE COMMENT 'where?'",
        "ALTER TABLE actual_lrps ADD COLUMN op_note VARCHAR(40) NOT NULL DEFAULT 'none'",
        "CREATE INDEX op_idx ON actual_lrps (process_guid, state)",
    ] {
        stored.execute(statement).await;
    }
    assert_carried_over(&stored, MYSQL_PROPERTIES).await;
}

on_one_server!(tablespace_and_growth_of_a_file_are_carried_over, mysql);
async fn tablespace_and_growth_of_a_file_are_carried_over() {
    const OPTIONS: [(&str, &str); 2] = [
        ("actual_lrps", "/*!50100 TABLESPACE `innodb_system` */"),
        ("desired_lrps", "/*!80023 AUTOEXTEND_SIZE=4194304 */"),
    ];
    let stored = with_fixture(Kind::Mysql).await;
    let assert_options = async |step: &str| {
        for (table, option) in OPTIONS {
            let mut tx = stored.context.database.read().await.unwrap();
            let show = sql(format!("SHOW CREATE TABLE {table}"));
            let shown = tx.fetch_one(show).await.unwrap().owned_text(1).unwrap();
            assert!(shown.contains(option), "{step}: {shown}");
        }
    };
    for statement in [
        "ALTER TABLE actual_lrps TABLESPACE innodb_system",
        "ALTER TABLE desired_lrps AUTOEXTEND_SIZE=4M",
    ] {
        stored.execute(statement).await;
    }
    assert_options("before the migration").await;
    stored.up(newest(&stored)).await.unwrap();
    assert_options("after the migration up").await;
    stored.down(VERSION).await.unwrap();
    assert_options("after the migration down").await;
}

on_each_mysql!(invisible_column_is_visible_in_a_layout_in_which_it_has_no_default);
/// Goal: such a column does not keep its database from being migrated down. MariaDB requires a
/// default of an invisible column that is not NULL, which `rootfs` does not have before a later
/// version.
async fn invisible_column_is_visible_in_a_layout_in_which_it_has_no_default(kind: Kind) {
    let visibility = "SELECT UPPER(extra) FROM information_schema.columns \
                      WHERE table_schema = DATABASE() AND table_name = 'desired_lrps' \
                      AND column_name = 'rootfs'";
    let values = "SELECT CONCAT(process_guid, ' ', rootfs) FROM desired_lrps ORDER BY process_guid";
    let stored = with_fixture(kind).await;
    stored.up(newest(&stored)).await.unwrap();
    stored
        .execute(
            "ALTER TABLE desired_lrps MODIFY rootfs VARCHAR(1024) NOT NULL DEFAULT '' INVISIBLE",
        )
        .await;
    assert_eq!(properties(&stored, visibility).await, ["INVISIBLE"]);
    let before = properties(&stored, values).await;
    stored.down(OLDEST).await.unwrap();
    assert_eq!(properties(&stored, visibility).await, [""]);
    assert_eq!(properties(&stored, values).await, before);
}

/// Gives columns collations of their own, and two LRPs guids that differ in case.
async fn collate_columns(stored: &Stored, kind: Kind) {
    let [binary, other] = match kind {
        Kind::Sqlite => unreachable!("it has no collations that a migration carries over"),
        Kind::Postgres => ["\"C\"", "\"POSIX\""],
        Kind::Mariadb | Kind::Mysql => ["utf8mb4_bin", "utf8mb4_unicode_520_ci"],
    };
    for (table, column, collation) in [
        ("desired_lrps", "process_guid", binary),
        ("actual_lrps", "process_guid", binary),
        ("actual_lrps", "domain", other),
        ("desired_lrps", "log_guid", other),
    ] {
        let change = if kind == Kind::Postgres {
            format!("ALTER {column} TYPE VARCHAR(255) COLLATE {collation}")
        } else {
            format!("MODIFY {column} VARCHAR(255) COLLATE {collation} NOT NULL")
        };
        let statement = format!("ALTER TABLE {table} {change}");
        stored.execute(&statement).await;
    }
    let guids = "SELECT process_guid FROM desired_lrps ORDER BY 1 LIMIT 2";
    let guids = properties(stored, guids).await;
    for (guid, renamed) in guids.iter().zip(["Guid-Aa", "guid-aA"]) {
        let renaming = format!("SET process_guid = '{renamed}' WHERE process_guid = '{guid}'");
        let update = format!("UPDATE desired_lrps {renaming}");
        stored.execute(&update).await;
    }
}

/// Asserts that these are the collations of the LRPs, and that values that differ stay different.
async fn assert_collated(stored: &Stored, query: &str, before: &[String]) {
    let mut found = properties(stored, query).await;
    let is_created = |line: &String| line.starts_with("bbs_") || line.starts_with("acme_");
    found.retain(|line| !is_created(line) && !line.contains("__"));
    assert_eq!(found, before);
    let different = "SELECT process_guid FROM desired_lrps \
                     WHERE process_guid IN ('Guid-Aa', 'guid-aA') ORDER BY 1";
    assert_eq!(properties(stored, different).await, ["Guid-Aa", "guid-aA"]);
}

on_each_server!(column_keeps_a_collation_of_its_own);
/// Goal: values that differ stay different, and those of a copy can be compared with those of its
/// original, and those of a created table with both. Method: guids are compared by their bytes, and
/// two of them differ in case. One of the created tables is the first by name.
async fn column_keeps_a_collation_of_its_own(kind: Kind) {
    let mut stored = with_fixture(kind).await;
    stored.context.migrations.push(acme_notes());
    let newest = newest(&stored);
    collate_columns(&stored, kind).await;
    let (query, collation) = if kind == Kind::Postgres {
        (POSTGRES_COLLATIONS, "C")
    } else {
        (MYSQL_COLLATIONS, "utf8mb4_bin")
    };
    let before = properties(&stored, query).await;
    assert_eq!(before.len(), 4, "{before:?}");
    let fence = Fence::raise(&stored.context.database).await.unwrap();
    let intent = Intent::Up { wanted: newest };
    let Start::Follow(online) = online::start(&stored.context, &fence, intent)
        .await
        .unwrap()
    else {
        panic!("there is nothing to migrate");
    };
    online.copy(&stored.context, &fence).await.unwrap();
    let done = online.cut_over(&stored.context, &fence, || {}).await;
    done.unwrap();
    assert_collated(&stored, query, &before).await;
    stored.down(OLDEST).await.unwrap();
    assert_collated(&stored, query, &before).await;
    stored.up(newest).await.unwrap();
    assert_collated(&stored, query, &before).await;
    let found = properties(&stored, query).await;
    for created in ["acme_notes", "bbs_lrp_updates"] {
        let key = format!("{created} process_guid {collation}");
        assert!(found.contains(&key), "{key}: {found:?}");
    }
}

/// An add-on that creates a table with the key of LRPs.
fn acme_notes() -> Arc<dyn Transform> {
    let notes = Table::new("acme_notes")
        .column(Column::varchar("process_guid", 255))
        .column(Column::varchar("note", 40).nullable())
        .primary_key(["process_guid"])
        .partition_key("process_guid");
    declared(Manifest::new(ADD_ON_VERSION, "acme-notes").create_table(notes))
}

on_each_database!(additional_column_keeps_its_values_and_index);
async fn additional_column_keeps_its_values_and_index(kind: Kind) {
    let stored = with_fixture(kind).await;
    for statement in [
        "ALTER TABLE desired_lrps ADD COLUMN op_note VARCHAR(40) DEFAULT 'none'",
        "ALTER TABLE actual_lrps ADD COLUMN op_count BIGINT",
        "CREATE INDEX op_idx ON desired_lrps (op_note, domain)",
        "UPDATE desired_lrps SET op_note = domain",
        "UPDATE actual_lrps SET op_count = instance_index + 7 WHERE instance_index > 0",
    ] {
        stored.execute(statement).await;
    }
    let values = async || {
        let notes = "SELECT COALESCE(op_note, '') FROM desired_lrps ORDER BY process_guid";
        let counts = "SELECT CAST(op_count AS CHAR(20)) FROM actual_lrps \
                      WHERE op_count IS NOT NULL ORDER BY process_guid, instance_index";
        [
            properties(&stored, notes).await,
            properties(&stored, counts).await,
        ]
    };
    let before = values().await;
    assert!(before.iter().all(|values| values.len() > 3), "{before:?}");
    stored.up(newest(&stored)).await.unwrap();
    assert_eq!(values().await, before);
    stored.down(OLDEST).await.unwrap();
    assert_eq!(values().await, before);
    stored.up(newest(&stored)).await.unwrap();
    assert_eq!(values().await, before);
    let of_index = match kind {
        Kind::Sqlite => "SELECT name FROM pragma_index_info('op_idx') ORDER BY seqno",
        Kind::Postgres => {
            "SELECT attname::text FROM pg_attribute WHERE attrelid = 'op_idx'::regclass ORDER BY attnum"
        }
        Kind::Mariadb | Kind::Mysql => {
            "SELECT CAST(column_name AS CHAR) FROM information_schema.statistics \
             WHERE table_schema = DATABASE() AND index_name = 'op_idx' ORDER BY seq_in_index"
        }
    };
    assert_eq!(properties(&stored, of_index).await, ["op_note", "domain"]);
}
