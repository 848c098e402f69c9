//! Key rotation on every database: resealed and unreadable texts, the label, cursors, and
//! concurrent writes. Rotation by a host process is in `keys/serving.rs`, crashes are in
//! `keys/crash.rs`.

mod crash;
mod residue;
mod retire;
mod serving;

use std::collections::BTreeMap;
use std::sync::Arc;

use bbs::testing::clock::StoppedClock;
use bbs::testing::database::{Database, schema, sql};
use bbs::testing::keys::{self, KeysError, Rotated, RotationContext, SealedScope, SealedTable};
use bbs::testing::lock::fence::{Fence, FenceError};
use bbs::testing::progress::Progress;
use bbs::testing::throttle::Throttle;
use bbs_encryption::{Keyring, header};
use bbs_lens::layout::schema::{Column, ColumnType, Sealing, Table};

use crate::harness::database::{Kind, TestDatabase, execute, on_each_database, texts};
use crate::harness::modules::chain;
use crate::harness::{PATIENCE, until};

/// Two labels that are equal under a collation that ignores case.
const OLD: &str = "Key-2024";
const NEW: &str = "key-2024";
const LABEL: &str = "SELECT value FROM configurations WHERE id = 'encryption_key_label'";

fn keys(active: &str) -> Keyring {
    Keyring::new([(OLD, "first"), (NEW, "second")], active).unwrap()
}

fn column(name: &str, kind: ColumnType, nullable: bool, sealing: Sealing) -> Column {
    Column {
        name: name.into(),
        kind,
        nullable,
        default: None,
        sealing,
    }
}

fn things() -> Table {
    Table {
        name: "things".into(),
        columns: vec![
            column("guid", ColumnType::Varchar(255), false, Sealing::Plain),
            column("slot", ColumnType::Integer, false, Sealing::Plain),
            column("spare", ColumnType::Boolean, false, Sealing::Plain),
            column("message", ColumnType::MediumText, false, Sealing::Enveloped),
            column("json", ColumnType::Text, true, Sealing::Sealed),
        ],
        primary_key: vec!["guid".into(), "slot".into(), "spare".into()],
        indexes: Vec::new(),
        partition_key: None,
    }
}

/// A database with one sealed table and the label of the old key.
struct RotationTest {
    test: TestDatabase,
    database: Database,
    fence: Fence,
}

impl RotationTest {
    /// Creates `rows` things with two slots each, sealed under the old key.
    async fn new(kind: Kind, rows: usize) -> Self {
        let test = TestDatabase::new(kind);
        let database = test.open().await;
        let fence = Fence::raise(&database).await.unwrap();
        let configurations = Table {
            name: "configurations".into(),
            columns: vec![
                column("id", ColumnType::Varchar(255), false, Sealing::Plain),
                column("value", ColumnType::Varchar(255), true, Sealing::Plain),
            ],
            primary_key: vec!["id".into()],
            ..things()
        };
        for table in [things(), configurations] {
            execute(
                &database,
                &schema::create_table(database.dialect(), &table, &table.name),
            )
            .await;
        }
        let case = Self {
            test,
            database,
            fence,
        };
        case.label_is(Some(OLD)).await;
        let mut tx = case.database.write().await.unwrap();
        for row in 0..rows {
            for slot in 0..2 {
                insert(
                    &mut tx,
                    &format!("g{row:05}"),
                    slot,
                    &seal(OLD, b"same"),
                    None,
                )
                .await;
            }
        }
        tx.commit().await.unwrap();
        case
    }

    fn context_with(&self, keyring: Keyring) -> RotationContext {
        RotationContext {
            database: self.database.clone(),
            keyring: Arc::new(keyring),
            scope: SealedScope {
                data_version: 1,
                tables: SealedTable::of(&things()).into_iter().collect(),
            },
            progress: Progress::default(),
            lock_timeout: PATIENCE,
            throttle: Throttle::default(),
            clock: Arc::new(StoppedClock::at(1_800_000_000_000_000_000)),
        }
    }

    fn context(&self) -> RotationContext {
        self.context_with(keys(NEW))
    }

    async fn rotate(&self) -> Rotated {
        keys::rotate(&self.context(), &self.fence).await.unwrap()
    }

    async fn label_is(&self, label: Option<&str>) {
        execute(
            &self.database,
            "DELETE FROM configurations WHERE id = 'encryption_key_label'",
        )
        .await;
        if let Some(label) = label {
            let statement = format!(
                "INSERT INTO configurations (id, value) VALUES ('encryption_key_label', '{label}')"
            );
            execute(&self.database, &statement).await;
        }
    }

    async fn label(&self) -> Option<String> {
        texts(&self.database, LABEL).await.pop()
    }

    async fn insert(&self, guid: &str, slot: i64, message: &[u8], json: Option<&[u8]>) {
        let mut tx = self.database.write().await.unwrap();
        insert(&mut tx, guid, slot, message, json).await;
        tx.commit().await.unwrap();
    }

    async fn messages(&self) -> Vec<String> {
        texts(
            &self.database,
            "SELECT message FROM things ORDER BY guid, slot",
        )
        .await
    }
}

async fn insert(
    tx: &mut bbs::testing::database::Transaction,
    guid: &str,
    slot: i64,
    message: &[u8],
    json: Option<&[u8]>,
) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let statement =
        sql("INSERT INTO things (guid, slot, spare, message, json) VALUES (?, ?, ?, ?, ?)")
            .bind(guid)
            .bind(i32::try_from(slot).unwrap())
            .bind(slot == 1)
            .bind(text(message))
            .bind(json.map(text));
    tx.execute(statement).await.unwrap();
}

/// Seals bytes as they are, including an envelope.
fn seal(label: &str, plain: &[u8]) -> Vec<u8> {
    keys(label).seal(Sealing::Sealed, plain)
}

/// A text under a key that is not configured.
fn seal_under_lost_key() -> Vec<u8> {
    Keyring::new([("lost", "x")], "lost")
        .unwrap()
        .seal(Sealing::Sealed, b"x")
}

fn open(text: &str) -> Vec<u8> {
    keys(NEW).open(Sealing::Sealed, text.as_bytes()).unwrap()
}

#[track_caller]
fn assert_all_under(label: &str, messages: &[String]) {
    for message in messages.iter().filter(|message| !message.is_empty()) {
        assert_eq!(header::label_of(message.as_bytes()).unwrap(), label);
    }
}

on_each_database!(rotation_reseals_every_text_and_then_sets_the_label);
async fn rotation_reseals_every_text_and_then_sets_the_label(kind: Kind) {
    let case = RotationTest::new(kind, 400).await;
    // An envelope of an older version and an empty plain text are resealed as any other bytes.
    case.insert("empty", 0, b"", Some(b"")).await;
    case.insert("odd", 0, &seal(OLD, &[2, 1, b'x']), Some(&seal(OLD, b"")))
        .await;
    case.insert(
        "odd",
        1,
        &seal(NEW, b"new already"),
        Some(&seal(OLD, b"{}")),
    )
    .await;
    case.insert("größe/'\"", 0, &seal(OLD, b"quoted"), None)
        .await;
    let wanted: Vec<_> = case
        .messages()
        .await
        .iter()
        .map(|text| opened(text))
        .collect();

    let rotated = case.rotate().await;
    assert_eq!(
        rotated,
        Rotated {
            was_due: true,
            rewritten: 803,
            ..Rotated::default()
        }
    );
    assert_eq!(case.label().await.as_deref(), Some(NEW));
    let messages = case.messages().await;
    assert_all_under(NEW, &messages);
    assert_eq!(
        messages.iter().map(|text| opened(text)).collect::<Vec<_>>(),
        wanted
    );
    let json = texts(
        &case.database,
        "SELECT json FROM things WHERE json IS NOT NULL ORDER BY guid, slot",
    )
    .await;
    assert_all_under(NEW, &json);
    assert_eq!(
        json.iter().map(|text| opened(text)).collect::<Vec<_>>(),
        [&b""[..], b"", b"{}"]
    );
    assert_eq!(
        texts(&case.database, "SELECT guid FROM things WHERE json IS NULL")
            .await
            .len(),
        801
    );
    assert!(
        texts(&case.database, "SELECT label FROM bbs_key_rotation")
            .await
            .is_empty(),
        "no rotation is left"
    );
}

fn opened(text: &str) -> Vec<u8> {
    if text.is_empty() {
        Vec::new()
    } else {
        open(text)
    }
}

on_each_database!(rotation_is_skipped_when_the_label_is_the_active_key);
async fn rotation_is_skipped_when_the_label_is_the_active_key(kind: Kind) {
    let case = RotationTest::new(kind, 1).await;
    case.label_is(Some(NEW)).await;
    assert_eq!(case.rotate().await, Rotated::default());
    assert_all_under(OLD, &case.messages().await);
}

on_each_database!(command_withdraws_the_label_only_for_rows_that_it_can_re_seal);
async fn command_withdraws_the_label_only_for_rows_that_it_can_re_seal(kind: Kind) {
    let case = RotationTest::new(kind, 2).await;
    assert_eq!(case.rotate().await.rewritten, 4);
    let rotate_all = async || {
        let rotated = keys::rotate_all(&case.context(), &case.fence)
            .await
            .unwrap();
        (rotated.was_due, rotated.rewritten, rotated.unreadable)
    };
    assert_eq!(rotate_all().await, (false, 0, 0));
    let lost = seal_under_lost_key();
    case.insert("lost", 0, &lost, None).await;
    assert_eq!(rotate_all().await, (true, 0, 1));
    assert_eq!(case.label().await.as_deref(), Some(NEW));

    case.insert("old", 0, &seal(OLD, b"x"), None).await;
    assert_eq!(rotate_all().await, (true, 1, 1));
    assert_eq!(case.label().await, None);
    execute(&case.database, "DELETE FROM things WHERE guid = 'lost'").await;
    assert_eq!(rotate_all().await, (true, 0, 0));
    assert_eq!(case.label().await.as_deref(), Some(NEW));
}

on_each_database!(missing_label_causes_a_rotation);
async fn missing_label_causes_a_rotation(kind: Kind) {
    let case = RotationTest::new(kind, 1).await;
    case.label_is(None).await;
    assert_eq!(case.rotate().await.rewritten, 2);
    assert_eq!(case.label().await.as_deref(), Some(NEW));
}

on_each_database!(unreadable_texts_are_kept_and_counted_and_prevent_setting_the_label);
async fn unreadable_texts_are_kept_and_counted_and_prevent_setting_the_label(kind: Kind) {
    let case = RotationTest::new(kind, 30).await;
    let wrong = Keyring::new([(OLD, "another passphrase")], OLD)
        .unwrap()
        .seal(Sealing::Sealed, b"x");
    let lost = seal_under_lost_key();
    case.insert("a-broken", 7, b"02/w==", None).await;
    case.insert("h-lost", 0, &lost, None).await;
    // The other text of the row opens, but a row is rewritten whole or not at all.
    case.insert("h-wrong", 0, &wrong, Some(&seal(OLD, b"{}")))
        .await;

    let rotated = case.rotate().await;
    assert_eq!((rotated.rewritten, rotated.unreadable), (60, 3));
    for part in [
        "things a-broken/7/false: ",
        "things h-lost/0/false: ",
        "things h-wrong/0/false: ",
    ] {
        assert!(
            rotated
                .examples
                .iter()
                .any(|example| example.contains(part)),
            "{part}: {:?}",
            rotated.examples
        );
    }
    assert_eq!(case.label().await, None);
    let messages = case.messages().await;
    for text in [&b"02/w=="[..], &wrong, &lost] {
        assert!(messages.iter().any(|message| message.as_bytes() == text));
    }
    assert_eq!(
        case.rotate().await.rewritten,
        0,
        "rewritten texts are not rewritten again"
    );

    execute(&case.database, "DELETE FROM things WHERE guid <> 'g00001'").await;
    assert_eq!(
        case.rotate().await,
        Rotated {
            was_due: true,
            ..Rotated::default()
        }
    );
    assert_eq!(
        case.label().await.as_deref(),
        Some(NEW),
        "without unreadable texts the label is set"
    );
}

on_each_database!(stale_master_rewrites_nothing);
async fn stale_master_rewrites_nothing(kind: Kind) {
    let case = RotationTest::new(kind, 1).await;
    let before = case.messages().await;
    assert!(keys::begin(&case.context(), &case.fence).await.unwrap());
    Fence::raise(&case.database).await.unwrap();
    let lost = keys::rotate(&case.context(), &case.fence)
        .await
        .unwrap_err();
    assert!(
        matches!(lost, KeysError::Fence(FenceError::Lost { .. })),
        "{lost}"
    );
    assert_eq!(case.messages().await, before);
}

on_each_database!(master_replaced_during_rotation_stops_and_its_successor_completes_it);
async fn master_replaced_during_rotation_stops_and_its_successor_completes_it(kind: Kind) {
    let case = RotationTest::new(kind, 300).await;
    let context = case.context();
    // The first batch is written, and the throttle delays the next one.
    context.throttle.limit(Some(20));
    let halfway = async {
        until(|| context.progress.snapshot().done > 0).await;
        let successor = Fence::raise(&case.database).await.unwrap();
        context.throttle.limit(None);
        successor
    };
    let (lost, successor) = tokio::join!(keys::rotate(&context, &case.fence), halfway);
    assert!(matches!(
        lost.unwrap_err(),
        KeysError::Fence(FenceError::Lost { .. })
    ));
    let messages = case.messages().await;
    let new = messages
        .iter()
        .filter(|text| header::label_of(text.as_bytes()).unwrap() == NEW)
        .count() as u64;
    assert!(new > 0 && new < 600, "{new} of 600 were rewritten");
    assert_eq!(case.label().await, None);

    let status = keys::status(&context.database, &context.keyring, &context.scope)
        .await
        .unwrap();
    let rotation = status.rotation.expect("a rotation is in progress");
    assert_eq!((rotation.rewritten, rotation.cursors.len()), (new, 1));
    assert_eq!(
        keys::rotate(&case.context(), &successor)
            .await
            .unwrap()
            .rewritten,
        600 - new
    );
    assert_eq!(case.label().await.as_deref(), Some(NEW));
}

on_each_database!(wrong_passphrase_changes_nothing_and_the_right_one_completes_the_rotation);
async fn wrong_passphrase_changes_nothing_and_the_right_one_completes_the_rotation(kind: Kind) {
    let case = RotationTest::new(kind, 10).await;
    let before = case.messages().await;
    let wrong = Keyring::new([(OLD, "not the first"), (NEW, "second")], NEW).unwrap();
    let rotated = keys::rotate(&case.context_with(wrong), &case.fence)
        .await
        .unwrap();
    assert_eq!(
        (
            rotated.rewritten,
            rotated.unreadable,
            rotated.examples.len()
        ),
        (0, 20, 10)
    );
    assert!(
        rotated.examples[0].contains("wrong passphrase"),
        "{:?}",
        rotated.examples
    );
    assert_eq!(case.messages().await, before);
    assert_eq!(case.label().await, None);
    assert_eq!(
        case.rotate().await,
        Rotated {
            was_due: true,
            rewritten: 20,
            ..Rotated::default()
        }
    );
    assert_eq!(case.label().await.as_deref(), Some(NEW));
}

on_each_database!(rotation_never_overwrites_concurrent_writes);
async fn rotation_never_overwrites_concurrent_writes(kind: Kind) {
    const ROWS: usize = 600;
    let case = RotationTest::new(kind, ROWS).await;
    let database = case.database.clone();
    let fence = case.fence.clone();
    let (stop, mut stopped) = tokio::sync::watch::channel(false);
    let writer = tokio::spawn(async move {
        let mut written = BTreeMap::new();
        let mut number = 0_usize;
        while !*stopped.borrow_and_update() || number < ROWS {
            number += 1;
            let guid = format!("g{:05}", (number * 7) % ROWS);
            let plain = format!("write {number}").into_bytes();
            let mut tx = fence.begin().await.unwrap();
            let update =
                sql("UPDATE things SET message = ? WHERE guid = ? AND slot = 1 AND spare = ?")
                    .bind(String::from_utf8(seal(NEW, &plain)).unwrap())
                    .bind(guid.as_str())
                    .bind(true);
            let done = match tx.execute(update).await {
                Ok(1) => tx.commit().await,
                Ok(count) => panic!("{count} rows are {guid}"),
                Err(error) => Err(error),
            };
            match done {
                Ok(()) => drop(written.insert(guid, plain)),
                Err(error) => assert!(bbs::testing::database::is_transient(&error), "{error}"),
            }
        }
        drop(database);
        written
    });
    let rotated = case.rotate().await;
    stop.send(true).unwrap();
    let written = writer.await.unwrap();
    assert_eq!(rotated.unreadable, 0);
    assert_eq!(case.label().await.as_deref(), Some(NEW));
    let found = texts(
        &case.database,
        "SELECT message FROM things WHERE slot = 1 ORDER BY guid",
    )
    .await;
    assert_all_under(NEW, &case.messages().await);
    for (row, text) in found.iter().enumerate() {
        let wanted = written
            .get(&format!("g{row:05}"))
            .map_or(&b"same"[..], Vec::as_slice);
        assert_eq!(open(text), wanted, "{row}");
    }
}

/// A rotation of one row of SQLite. A trigger skips the first `lost` updates of the row, as if a
/// client had changed it between read and update.
async fn rotation_that_loses_updates(lost: usize) -> RotationTest {
    let case = RotationTest::new(Kind::Sqlite, 0).await;
    case.insert("g", 0, &seal(OLD, b"same"), None).await;
    let trigger = format!(
        "CREATE TRIGGER lose BEFORE UPDATE ON things WHEN (SELECT COUNT(*) FROM lost) < {lost} \
         BEGIN INSERT INTO lost VALUES (1); SELECT RAISE(IGNORE); END"
    );
    for statement in ["CREATE TABLE lost (number INTEGER)", &trigger] {
        execute(&case.database, statement).await;
    }
    case
}

#[tokio::test]
async fn rotation_repeats_a_pass_that_lost_every_row_to_clients() {
    let case = rotation_that_loses_updates(1).await;
    assert_eq!(
        case.rotate().await,
        Rotated {
            was_due: true,
            rewritten: 1,
            ..Rotated::default()
        }
    );
    assert_eq!(case.label().await.as_deref(), Some(NEW));
    assert_all_under(NEW, &case.messages().await);
}

#[tokio::test]
async fn rotation_that_never_rewrites_a_row_is_an_error_and_sets_no_label() {
    let case = rotation_that_loses_updates(1_000).await;
    let rotated = tokio::time::timeout(PATIENCE, keys::rotate(&case.context(), &case.fence)).await;
    let fault = rotated.expect("the rotation ends").unwrap_err();
    let KeysError::Idle { rows: 1, .. } = &fault else {
        panic!("{fault}");
    };
    assert_eq!(case.label().await, None);
    assert_all_under(OLD, &case.messages().await);
}

on_each_database!(rotation_continues_at_its_cursor_and_restarts_when_key_or_layout_change);
async fn rotation_continues_at_its_cursor_and_restarts_when_key_or_layout_change(kind: Kind) {
    let case = RotationTest::new(kind, 20).await;
    assert!(keys::begin(&case.context(), &case.fence).await.unwrap());
    let halfway = r#"["g00010",1,true]"#;
    let cursor = format!(
        "INSERT INTO bbs_key_rotation_table (table_name, last_key) VALUES ('things', '{halfway}')"
    );
    let cursors = "SELECT last_key FROM bbs_key_rotation_table";
    execute(&case.database, &cursor).await;
    assert!(keys::begin(&case.context(), &case.fence).await.unwrap());
    assert_eq!(
        texts(&case.database, cursors).await,
        [halfway],
        "the same rotation continues"
    );

    // Another active key, another layout or a label that was set again makes the cursor invalid.
    let mut other_layout = case.context();
    other_layout.scope.data_version = 2;
    for context in [case.context_with(keys(OLD)), case.context(), other_layout] {
        assert!(keys::begin(&context, &case.fence).await.unwrap());
        assert!(texts(&case.database, cursors).await.is_empty());
        execute(&case.database, &cursor).await;
    }
    assert!(keys::begin(&case.context(), &case.fence).await.unwrap());
    execute(&case.database, &cursor).await;
    case.label_is(Some(OLD)).await;
    assert!(keys::begin(&case.context(), &case.fence).await.unwrap());
    assert!(texts(&case.database, cursors).await.is_empty());

    // Rows before a valid cursor are found by the final scan.
    execute(&case.database, &cursor).await;
    assert_eq!(case.rotate().await.rewritten, 40);
    assert_eq!(case.label().await.as_deref(), Some(NEW));
}

#[tokio::test]
async fn rows_with_keys_that_are_not_utf8_are_rotated_on_sqlite() {
    let case = RotationTest::new(Kind::Sqlite, 0).await;
    for (slot, guid) in ["CAST(x'ff00fe' AS TEXT)", "CAST(x'ff' AS TEXT)"]
        .into_iter()
        .enumerate()
    {
        let message = String::from_utf8(seal(OLD, b"odd")).unwrap();
        let values = format!("INSERT INTO things VALUES ({guid}, {slot}, 0, '{message}', NULL)");
        execute(&case.database, &values).await;
    }
    assert_eq!(
        case.rotate().await,
        Rotated {
            was_due: true,
            rewritten: 2,
            ..Rotated::default()
        }
    );
    assert_eq!(case.label().await.as_deref(), Some(NEW));
}

#[tokio::test]
async fn rotation_fails_at_a_row_that_the_database_finds_behind_its_own_key() {
    // Method: SQLite orders a blob behind every text, so a key that is stored as a blob is behind
    // the same key as a text.
    let case = RotationTest::new(Kind::Sqlite, 1).await;
    let message = String::from_utf8(seal(OLD, b"odd")).unwrap();
    execute(
        &case.database,
        &format!("INSERT INTO things VALUES (x'67', 0, 0, '{message}', NULL)"),
    )
    .await;
    let context = case.context();
    // Pages of one row.
    context.throttle.limit(Some(4));
    let rotated = tokio::time::timeout(PATIENCE, keys::rotate(&context, &case.fence)).await;
    let fault = rotated.expect("the rotation ends").unwrap_err();
    let text = chain(&fault);
    assert!(
        text.contains("the keys do not ascend behind g/0/false"),
        "{text}"
    );
    assert_eq!(case.label().await, None);
}
