//! The items of the host that the tests and benchmarks in `tests/` use, by module. Everything else
//! is private, so that the compiler reports what is no longer used.

/// The admin socket's client.
pub mod admin {
    pub use crate::admin::{AdminClient, Command};
}

/// Routes, versions and the handling of a request.
pub mod api {
    pub use crate::api::{
        Answer, Api, LONGEST_WAIT, NATIVE, NativeVersion, Pages, Request, Route, routes, unrevised,
    };
}

/// The parser of arguments.
pub mod cli {
    pub use crate::cli::{Cli, with_subcommand};
}

/// Clients of the rest of Diego.
pub mod clients {
    pub use crate::clients::{
        ClientError, Clients, Loggregator, auctioneer, cells, loggregator, reps,
    };
}

/// The present time, and a clock that stands still.
pub mod clock {
    pub use crate::clock::{StoppedClock, SystemClock};
}

/// Sections of the configuration file.
pub mod config {
    pub use crate::config::{
        AuctioneerConfig, CertificateFiles, ClientsConfig, LocketConfig, LoggregatorConfig,
        RepConfig,
    };
}

/// Connections, transactions and schemas.
pub mod database {
    pub use bbs_database::{
        Address, ConnectionLimits, Database, DatabaseError, Dialect, Row, Server, Sql, SqlError,
        Tls, Transaction, is_missing_table, is_repeatable, is_transient, schema, sql,
    };
}

/// The service and its periodic work.
pub mod domain {
    pub use crate::domain::{Policy, Service, convergence, validation};
}

/// Events and their subscriptions.
pub mod events {
    pub use crate::events::{Events, QUEUE, Subscription, Topic};
}

/// The API's port.
pub mod http {
    pub use crate::http::{Gate, Port, router, serve_clients};
}

/// Key rotation.
pub mod keys {
    pub use crate::keys::{
        KeysError, LabelCounts, Rotated, RotationContext, SealedScope, SealedTable, begin, check,
        rotate, rotate_all, status, verify,
    };
    pub use bbs_units::KeyColumn;
}

/// The lock's fencing token.
pub mod lock {
    pub use crate::lock::fence;
}

/// Locket's messages.
pub mod locket {
    pub use crate::locket::messages;
}

/// Metrics.
pub mod metrics {
    pub use crate::metrics::{AdvancedRoutes, Measures, Metrics, Point, Quantity};
}

/// Migrations of a database.
pub mod migrate {
    pub use crate::migrate::{
        Context, Decision, Intent, LayoutChange, LayoutStep, MigrateError, OnUnreadable, Runner,
        Strategy, Tuning, abort, arguments, clean_up, fault, layout_history, layout_sql,
        migrations_ran, online, own_tables, plan, run, status,
    };
}

/// Catalog, sandbox and building of modules.
pub mod modules {
    pub use bbs_modules::{
        Inspection, MigrationModule, Module, TranslatorModule, build, catalog, releases, sandbox,
        translate,
    };
}

/// Progress of a migration.
pub mod progress {
    pub use bbs_work::progress::{Counted, Progress, Snapshot, TAKEOVER};
}

/// Units of rows.
pub mod rows {
    pub use bbs_units::RecordVersions;
}

/// Signatures of catalogs.
pub mod signatures {
    pub use bbs_modules::signatures::TrustedKeys;
}

/// Entities over rows.
pub mod store {
    pub use crate::store::{ChangeRecorder, Lenses, Store, TableAccess};
}

/// The rate of a migration.
pub mod throttle {
    pub use bbs_work::throttle::Throttle;
}

/// TLS of servers.
pub mod tls {
    pub use crate::tls::Certificates;
}
