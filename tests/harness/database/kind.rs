//! The databases that tests run on, and their servers.

use std::sync::OnceLock;

use bbs::testing::database::Dialect;

use super::super::engine::{Engine, Recipe};
use super::super::mariadb::MARIADB;
use super::super::mysql::MYSQL;
use super::super::postgres::POSTGRES;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Kind {
    #[default]
    Sqlite,
    Postgres,
    Mariadb,
    Mysql,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Sqlite, Self::Postgres, Self::Mariadb, Self::Mysql];

    /// The name of the tests on this database.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Mariadb => "mariadb",
            Self::Mysql => "mysql",
        }
    }

    /// The kind with this [`Self::name`].
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    pub fn dialect(self) -> Dialect {
        match self {
            Self::Sqlite => Dialect::Sqlite,
            Self::Postgres => Dialect::Postgres,
            Self::Mariadb | Self::Mysql => Dialect::Mysql,
        }
    }

    /// The value of the configuration's `database_driver`.
    pub fn driver(self) -> &'static str {
        match self.dialect() {
            Dialect::Sqlite => "sqlite",
            Dialect::Postgres => "postgres",
            Dialect::Mysql => "mysql",
        }
    }

    /// The server that all tests of this process share. Started on first use.
    pub fn engine(self) -> &'static Engine {
        static POSTGRES_ENGINE: OnceLock<Engine> = OnceLock::new();
        static MARIADB_ENGINE: OnceLock<Engine> = OnceLock::new();
        static MYSQL_ENGINE: OnceLock<Engine> = OnceLock::new();
        let shared = match self {
            Self::Sqlite => panic!("SQLite has no server"),
            Self::Postgres => &POSTGRES_ENGINE,
            Self::Mariadb => &MARIADB_ENGINE,
            Self::Mysql => &MYSQL_ENGINE,
        };
        shared.get_or_init(|| self.own_engine())
    }

    /// A server for one test, which may crash it.
    pub fn own_engine(self) -> Engine {
        self.own_engine_with(&[])
    }

    pub fn own_engine_with(self, arguments: &[&str]) -> Engine {
        Engine::start(self.recipe(), arguments)
    }

    /// The option of MySQL or MariaDB with which a server gives quotes, backslashes and empty texts
    /// other meanings.
    pub fn with_other_sql_modes(self) -> &'static str {
        match self {
            Self::Mysql => "--sql-mode=ANSI,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH",
            _ => "--sql-mode=ORACLE,EMPTY_STRING_IS_NULL,NO_BACKSLASH_ESCAPES",
        }
    }

    /// The option with which MySQL or MariaDB refuses writes of every user.
    pub fn without_writes(self) -> &'static str {
        match self {
            Self::Mysql => "--super-read-only=ON",
            _ => "--read-only=ON",
        }
    }

    fn recipe(self) -> &'static Recipe {
        match self {
            Self::Sqlite => panic!("SQLite has no server"),
            Self::Postgres => &POSTGRES,
            Self::Mariadb => &MARIADB,
            Self::Mysql => &MYSQL,
        }
    }

    /// The database from which others are created and dropped; MariaDB and MySQL need none.
    pub(super) fn administrative(self) -> &'static str {
        if self == Self::Postgres {
            "postgres"
        } else {
            ""
        }
    }
}
