//! Rotation on a real database: what is rewritten, what is kept, and when the label comes back.

use super::*;
use crate::database::Address;

struct Case {
    _folder: tempfile::TempDir,
    database: Database,
    fence: Fence,
}

fn keys(active: &str) -> Keyring {
    Keyring::new([("old", "first"), ("new", "second")], active).unwrap()
}

fn tables() -> Vec<SealedTable> {
    vec![SealedTable {
        name: "things".into(),
        primary_key: vec![("guid".into(), Encoding::Text), ("slot".into(), Encoding::Integer)],
        columns: vec![("message".into(), Sealing::Enveloped), ("json".into(), Sealing::Sealed)],
    }]
}

impl Case {
    /// `rows` things of two slots each, sealed under the old key, and the old key's label.
    async fn new(rows: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(&Address::Sqlite(folder.path().join("bbs.db"))).await.unwrap();
        let fence = Fence::raise(&database).await.unwrap();
        let case = Self { _folder: folder, database, fence };
        case.execute("CREATE TABLE configurations (id VARCHAR(255) PRIMARY KEY, value VARCHAR(255))").await;
        case.execute(
            "CREATE TABLE things (guid TEXT, slot INTEGER, message TEXT, json TEXT, PRIMARY KEY (guid, slot))",
        )
        .await;
        case.execute("INSERT INTO configurations VALUES ('encryption_key_label', 'old')").await;
        for row in 0..rows {
            for slot in 0..2 {
                case.insert(&format!("g{row}"), slot, &keys("old").seal(Sealing::Enveloped, b"same")).await;
            }
        }
        case
    }

    async fn execute(&self, statement: &'static str) {
        let mut tx = self.database.write().await.unwrap();
        tx.execute(sql(statement)).await.unwrap();
        tx.commit().await.unwrap();
    }

    async fn insert(&self, guid: &str, slot: i64, message: &[u8]) {
        let mut tx = self.database.write().await.unwrap();
        let insert = sql("INSERT INTO things VALUES (?, ?, ?, NULL)").bind(guid).bind(slot);
        tx.execute(insert.bind(std::str::from_utf8(message).unwrap())).await.unwrap();
        tx.commit().await.unwrap();
    }

    async fn rotate(&self) -> Reencrypted {
        reencrypt(&self.fence, &keys("new"), &tables(), &Progress::default()).await.unwrap()
    }

    async fn label(&self) -> Option<String> {
        let mut reader = self.database.read().await.unwrap();
        known_label(&mut reader, &keys("new")).await.unwrap()
    }

    async fn messages(&self) -> Vec<String> {
        let mut reader = self.database.read().await.unwrap();
        let rows = reader.fetch(sql("SELECT message FROM things ORDER BY guid, slot")).await.unwrap();
        rows.iter().map(|row| row.text(0).unwrap().unwrap().to_owned()).collect()
    }
}

#[tokio::test]
async fn every_row_comes_under_the_active_key_and_then_the_label() {
    let case = Case::new(300).await;
    case.insert("is-empty", 0, b"").await;
    assert_eq!(case.rotate().await, Reencrypted { rewritten: 600, ..Reencrypted::default() });
    assert_eq!(case.label().await.as_deref(), Some("new"));
    let only_new = Keyring::new([("new", "second")], "new").unwrap();
    for message in case.messages().await.iter().filter(|message| !message.is_empty()) {
        assert_eq!(only_new.open(Sealing::Enveloped, message.as_bytes()).unwrap(), b"same");
    }
}

#[tokio::test]
async fn a_label_that_is_active_promises_that_there_is_nothing_to_do() {
    let case = Case::new(1).await;
    case.execute("UPDATE configurations SET value = 'new'").await;
    assert_eq!(case.rotate().await, Reencrypted::default());
}

#[tokio::test]
async fn a_missing_label_promises_nothing() {
    let case = Case::new(1).await;
    case.execute("DELETE FROM configurations").await;
    assert_eq!(case.rotate().await.rewritten, 2);
    assert_eq!(case.label().await.as_deref(), Some("new"));
}

#[tokio::test]
async fn an_unreadable_row_is_kept_and_keeps_the_label_away() {
    let case = Case::new(1).await;
    case.insert("broken", 7, b"02/w==").await;
    let done = case.rotate().await;
    assert_eq!((done.rewritten, done.unreadable), (2, 1));
    assert!(done.examples[0].starts_with("things broken/7: "), "{:?}", done.examples);
    assert_eq!(case.label().await, None);
    assert!(case.messages().await.contains(&"02/w==".to_owned()));
    assert_eq!(case.rotate().await.rewritten, 0, "what was done is not done again");
}

#[tokio::test]
async fn an_unknown_label_is_refused_before_anything_changes() {
    let case = Case::new(1).await;
    case.execute("UPDATE configurations SET value = 'lost'").await;
    let before = case.messages().await;
    assert!(check_label(&case.database, &keys("new")).await.is_err());
    let refused = reencrypt(&case.fence, &keys("new"), &tables(), &Progress::default()).await.unwrap_err();
    assert!(matches!(&refused, ReencryptError::UnknownLabel { label } if label == "lost"), "{refused}");
    assert_eq!(case.messages().await, before);
}

#[tokio::test]
async fn a_master_that_was_replaced_rewrites_nothing() {
    let case = Case::new(1).await;
    Fence::raise(&case.database).await.unwrap();
    let before = case.messages().await;
    let lost = reencrypt(&case.fence, &keys("new"), &tables(), &Progress::default()).await.unwrap_err();
    assert!(matches!(lost, ReencryptError::Fence(FenceError::Lost { .. })));
    assert_eq!(case.messages().await, before);
}
