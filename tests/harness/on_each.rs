//! Macros that generate a test for each database from one `async fn`, the runtime that such a test
//! runs on, and one for asynchronous work within a test that is not.

use std::pin::Pin;

/// The future of a generated test. Boxed, so that the runtime's code is compiled once and not for
/// each test.
pub type TestFuture = Pin<Box<dyn Future<Output = ()>>>;

/// Threads of a test's runtime besides the test's own.
const WORKERS: usize = 2;

/// Runs a test on a runtime of its own, as `#[tokio::test(flavor = "multi_thread")]` does.
pub fn run(test: TestFuture) {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(test);
}

/// Runs work on a thread and a runtime of its own: callers are inside a runtime or outside of one.
pub fn block_on<T: Send, F: Future<Output = T>>(work: impl FnOnce() -> F + Send) -> T {
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(work())
    };
    std::thread::scope(|scope| scope.spawn(run).join()).expect("the work does not panic")
}

/// Generates the tests `postgres`, `mariadb` and `mysql` in a module below that of the function.
macro_rules! on_servers {
    ($name:ident) => {
        #[test]
        fn postgres() {
            crate::harness::on_each::run(Box::pin(super::$name(
                crate::harness::database::Kind::Postgres,
            )));
        }

        crate::harness::on_each::on_mysql_servers!($name);
    };
}
pub(crate) use on_servers;

/// Generates the tests `mariadb` and `mysql` in a module below that of the function.
macro_rules! on_mysql_servers {
    ($name:ident) => {
        #[test]
        fn mariadb() {
            crate::harness::on_each::run(Box::pin(super::$name(
                crate::harness::database::Kind::Mariadb,
            )));
        }

        #[test]
        #[ignore = "needs a MySQL server: tests/run fetches one"]
        fn mysql() {
            crate::harness::on_each::run(Box::pin(super::$name(
                crate::harness::database::Kind::Mysql,
            )));
        }
    };
}
pub(crate) use on_mysql_servers;

/// Generates four tests from an `async fn name(kind: Kind)`: `name::sqlite`, `name::postgres`,
/// `name::mariadb` and `name::mysql`.
macro_rules! on_each_database {
    ($name:ident) => {
        mod $name {
            use crate::harness::database::Kind;
            use crate::harness::on_each::run;

            #[test]
            fn sqlite() {
                run(Box::pin(super::$name(Kind::Sqlite)));
            }

            crate::harness::on_each::on_servers!($name);
        }
    };
}
pub(crate) use on_each_database;

/// Generates three tests from an `async fn name(kind: Kind)` that needs a server: `name::postgres`,
/// `name::mariadb` and `name::mysql`.
macro_rules! on_each_server {
    ($name:ident) => {
        mod $name {
            crate::harness::on_each::on_servers!($name);
        }
    };
}
pub(crate) use on_each_server;

/// Generates the tests `name::mariadb` and `name::mysql` from an `async fn name(kind: Kind)`.
macro_rules! on_each_mysql {
    ($name:ident) => {
        mod $name {
            crate::harness::on_each::on_mysql_servers!($name);
        }
    };
}
pub(crate) use on_each_mysql;

/// Generates the test `name::postgres`, `name::mariadb` or `name::mysql` from an `async fn name()`,
/// for what only that server has.
macro_rules! on_one_server {
    ($name:ident, mysql) => {
        mod $name {
            #[test]
            #[ignore = "needs a MySQL server: tests/run fetches one"]
            fn mysql() {
                crate::harness::on_each::run(Box::pin(super::$name()));
            }
        }
    };
    ($name:ident, $server:ident) => {
        mod $name {
            #[test]
            fn $server() {
                crate::harness::on_each::run(Box::pin(super::$name()));
            }
        }
    };
}
pub(crate) use on_one_server;
