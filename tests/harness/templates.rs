//! Databases that several tests begin with: each is made once in a test process, and copied where a
//! copy takes less than its statements. Owns the templates; their content is the caller's.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use bbs::testing::database::Database;

use super::database::{Kind, TestDatabase};
use super::on_each::{self, TestFuture};

#[derive(Clone)]
enum Template {
    /// The bytes of an SQLite file.
    File(Arc<[u8]>),
    /// A database without open connections.
    Server(TestDatabase),
}

/// A copy of the database `name`, which `fill` has made from an empty one.
///
/// # Panics
/// On MariaDB and MySQL, which copy a database only table by table.
pub fn copy<F>(kind: Kind, name: &str, fill: F) -> TestDatabase
where
    F: FnOnce(Database) -> TestFuture + Send + 'static,
{
    match template(kind, name, fill) {
        Template::File(bytes) => {
            let database = TestDatabase::new(kind);
            write(database.path(), &bytes);
            database
        }
        Template::Server(template) => template.copy(),
    }
}

/// Makes an SQLite file with the content of [`copy`].
///
/// # Panics
/// If there is a file.
pub fn write_file<F>(path: &Path, name: &str, fill: F)
where
    F: FnOnce(Database) -> TestFuture + Send + 'static,
{
    let Template::File(bytes) = template(Kind::Sqlite, name, fill) else {
        panic!("SQLite has no server")
    };
    write(path, &bytes);
}

/// Writes a file with the permissions that the host gives it.
fn write(path: &Path, bytes: &[u8]) {
    bbs_files::private()
        .write(true)
        .create_new(true)
        .open(path)
        .expect("there is no such file")
        .write_all(bytes)
        .expect("the disk has space");
}

fn template<F>(kind: Kind, name: &str, fill: F) -> Template
where
    F: FnOnce(Database) -> TestFuture + Send + 'static,
{
    static TEMPLATES: Mutex<BTreeMap<String, Arc<OnceLock<Template>>>> =
        Mutex::new(BTreeMap::new());
    let template = {
        let mut templates = TEMPLATES.lock().expect("no lock holder panics");
        let key = format!("{}: {name}", kind.name());
        Arc::clone(templates.entry(key).or_default())
    };
    template.get_or_init(|| made(kind, fill)).clone()
}

fn made<F>(kind: Kind, fill: F) -> Template
where
    F: FnOnce(Database) -> TestFuture + Send + 'static,
{
    assert!(
        matches!(kind, Kind::Sqlite | Kind::Postgres),
        "{kind:?} copies no database"
    );
    let database = TestDatabase::new(kind);
    let empty = database.clone();
    // On a runtime of its own: that of the caller ends with its test, and the connections with it.
    let filling = std::thread::spawn(move || {
        on_each::run(Box::pin(async move {
            let opened = empty.open().await;
            fill(opened.clone()).await;
            opened.close().await;
        }));
    });
    filling.join().expect("the template is filled");
    if kind != Kind::Sqlite {
        return Template::Server(database);
    }
    let path = database.path();
    // SQLite moves its log into the file, and removes it, when the last connection is closed.
    assert!(
        !path.with_extension("db-wal").exists(),
        "{} is open",
        path.display()
    );
    let bytes = std::fs::read(path).expect("a closed database");
    Template::File(bytes.into())
}
