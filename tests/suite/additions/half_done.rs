//! Migrations of Diego's BBS that ended between two statements: the start goes on where Diego's
//! next start would. On MySQL and MariaDB each of their changes of the schema commits by itself; on
//! PostgreSQL a migration is one transaction.

use bbs::testing::migrate::plan;

use super::{newest, with_fixture};
use crate::harness::database::Kind;
use crate::harness::modules::chain;
use crate::harness::on_each::on_each_mysql;

/// The statements of each of Diego's migrations but the first one, which begins with an empty
/// database, in their order and with the types of MySQL.
const MIGRATIONS: [(u64, &[&str]); 17] = [
    (
        1_471_030_898,
        &[
            "ALTER TABLE desired_lrps MODIFY annotation MEDIUMTEXT",
            "ALTER TABLE desired_lrps MODIFY routes MEDIUMTEXT NOT NULL",
            "ALTER TABLE desired_lrps MODIFY volume_placement MEDIUMTEXT NOT NULL",
            "ALTER TABLE desired_lrps MODIFY run_info MEDIUMTEXT NOT NULL",
            "ALTER TABLE actual_lrps MODIFY net_info MEDIUMTEXT NOT NULL",
            "ALTER TABLE tasks MODIFY result MEDIUMTEXT",
            "ALTER TABLE tasks MODIFY task_definition MEDIUMTEXT NOT NULL",
        ],
    ),
    (
        1_472_757_022,
        &["ALTER TABLE desired_lrps ADD COLUMN placement_tags TEXT"],
    ),
    (
        1_474_908_092,
        &[
            "ALTER TABLE actual_lrps MODIFY crash_reason VARCHAR(1024) NOT NULL DEFAULT ''",
            "ALTER TABLE actual_lrps MODIFY placement_error VARCHAR(1024) NOT NULL DEFAULT ''",
        ],
    ),
    (
        1_481_761_088,
        &["ALTER TABLE desired_lrps ADD COLUMN max_pids INTEGER DEFAULT 0"],
    ),
    (
        1_502_289_152,
        &["ALTER TABLE desired_lrps MODIFY rootfs VARCHAR(1024) NOT NULL DEFAULT ''"],
    ),
    (
        1_522_700_600,
        &["ALTER TABLE tasks ADD COLUMN rejection_count INTEGER NOT NULL DEFAULT 0"],
    ),
    (
        1_523_050_077,
        &["ALTER TABLE tasks ADD COLUMN rejection_reason VARCHAR(255) NOT NULL DEFAULT ''"],
    ),
    (
        1_528_928_964,
        &[
            "ALTER TABLE tasks MODIFY rejection_reason VARCHAR(1024) NOT NULL DEFAULT ''",
            "ALTER TABLE tasks MODIFY failure_reason VARCHAR(1024) NOT NULL DEFAULT ''",
        ],
    ),
    (
        1_529_530_809,
        &[
            "ALTER TABLE actual_lrps ADD COLUMN presence INT NOT NULL DEFAULT 0",
            "UPDATE actual_lrps SET presence = 1 WHERE evacuating = TRUE",
            "ALTER TABLE actual_lrps DROP PRIMARY KEY, ADD PRIMARY KEY (process_guid, instance_index, presence)",
        ],
    ),
    (
        1_643_660_541,
        &["ALTER TABLE actual_lrps ADD COLUMN internal_routes MEDIUMTEXT"],
    ),
    (
        1_674_146_125,
        &[
            "ALTER TABLE desired_lrps MODIFY annotation LONGTEXT",
            "ALTER TABLE desired_lrps MODIFY routes LONGTEXT NOT NULL",
            "ALTER TABLE desired_lrps MODIFY volume_placement LONGTEXT NOT NULL",
            "ALTER TABLE desired_lrps MODIFY run_info LONGTEXT NOT NULL",
            "ALTER TABLE actual_lrps MODIFY net_info LONGTEXT NOT NULL",
            "ALTER TABLE tasks MODIFY result LONGTEXT",
            "ALTER TABLE tasks MODIFY task_definition LONGTEXT NOT NULL",
        ],
    ),
    (
        1_676_360_874,
        &["ALTER TABLE actual_lrps ADD COLUMN metric_tags MEDIUMTEXT"],
    ),
    (
        1_686_692_176,
        &[
            "ALTER TABLE actual_lrps ADD COLUMN routable BOOL DEFAULT false",
            "UPDATE actual_lrps SET routable = TRUE WHERE state = 'RUNNING'",
        ],
    ),
    (
        1_698_182_853,
        &["ALTER TABLE actual_lrps ADD COLUMN availability_zone VARCHAR(255) NOT NULL DEFAULT ''"],
    ),
    (
        1_722_634_733,
        &["ALTER TABLE desired_lrps ADD COLUMN metric_tags MEDIUMTEXT"],
    ),
    (
        1_764_949_919,
        &[
            "CREATE TABLE bbs_health_check (id INT AUTO_INCREMENT PRIMARY KEY, time BIGINT NOT NULL)",
        ],
    ),
    (
        1_772_581_987,
        &["ALTER TABLE desired_lrps ADD COLUMN update_strategy INT NOT NULL DEFAULT 0"],
    ),
];

/// States from which the migration is completed, and not only examined: types in place, a new
/// primary key, values that Diego's migration has written, a column that a copy gets.
const COMPLETED: [(u64, usize); 7] = [
    (1_471_030_898, 3),
    (1_529_530_809, 1),
    (1_529_530_809, 2),
    (1_529_530_809, 3),
    (1_674_146_125, 4),
    (1_686_692_176, 2),
    (1_772_581_987, 1),
];

on_each_mysql!(interrupted_migration_of_diego_is_no_reason_against_a_start);
/// Method: Diego's migrations run one after the other, and the next start is examined after each of
/// their statements.
async fn interrupted_migration_of_diego_is_no_reason_against_a_start(kind: Kind) {
    let stored = with_fixture(kind).await;
    let newest = newest(&stored);
    stored.up(newest).await.unwrap();
    stored
        .down(stored.context.migrations[0].manifest().version)
        .await
        .unwrap();
    for (version, statements) in MIGRATIONS {
        for (at, statement) in statements.iter().enumerate() {
            stored.execute(statement).await;
            let refused = plan(&stored.context, newest).await.unwrap().refused;
            assert_eq!(refused, None, "{version} after {} statements", at + 1);
        }
        let value = format!("{{\"CurrentVersion\":{version}}}");
        stored
            .execute(&format!(
                "UPDATE configurations SET value = '{value}' WHERE id = 'version'"
            ))
            .await;
    }
}

on_each_mysql!(interrupted_migration_of_diego_is_completed);
async fn interrupted_migration_of_diego_is_completed(kind: Kind) {
    let stored = with_fixture(kind).await;
    let newest = newest(&stored);
    stored.up(newest).await.unwrap();
    let migrated = stored.rows(newest).await;
    let mut before = stored.context.migrations[0].manifest().version;
    for (version, statements) in MIGRATIONS {
        for (_, ran) in COMPLETED
            .iter()
            .filter(|(completed, _)| *completed == version)
        {
            stored.down(before).await.unwrap();
            for statement in &statements[..*ran] {
                stored.execute(statement).await;
            }
            let taken_over = stored.up(newest).await;
            taken_over.unwrap_or_else(|error| {
                panic!("{version} after {ran} statements: {}", chain(&error))
            });
            stored.assert_layout(newest).await;
            let rows = stored.rows(newest).await;
            for (table, migrated) in &migrated {
                assert_eq!(
                    rows[table].len(),
                    migrated.len(),
                    "{version} after {ran} statements: {table}"
                );
            }
        }
        before = version;
    }
}
