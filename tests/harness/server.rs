//! The API in the test process: a database for one test, real HTTP on a free port, a stopped clock.
//! For tests that do not need the start sequence; `host` runs the whole host as a process.

use std::net::SocketAddr;
use std::sync::Arc;

use bbs::testing::api::Api;
use bbs::testing::clients::Clients;
use bbs::testing::clock::StoppedClock;
use bbs::testing::database::{Database, sql};
use bbs::testing::domain::{Policy, Service};
use bbs::testing::events::Events;
use bbs::testing::http::{self, Gate};
use bbs::testing::lock::fence::Fence;
use bbs::testing::metrics::{AdvancedRoutes, Measures, Metrics};
use bbs::testing::migrate;
use bbs::testing::modules::translate::Translate;
use bbs::testing::progress::Progress;
use bbs::testing::rows::RecordVersions;
use bbs::testing::store::{Lenses, Store, TableAccess};
use bbs::testing::throttle::Throttle;
use bbs_encryption::Keyring;
use bbs_lens::layout::schema::{Column, ColumnType, Layout, Sealing, Table};
use bbs_lens::transform::Transform;
use bbs_proto::models as proto;
use bbs_proto::prost::Message;

use super::database::{Kind, TestDatabase, execute, texts};
use super::fixture;
use super::layouts::{self, Layout as TestLayout, Prepared};
use super::modules::translators;
use super::neighbours::Neighbours;
use super::stored::Stored;
use super::templates;

/// The record version that new records are written with.
pub const RECORD_VERSION: u64 = 1_722_634_733;

const CONNECTIONS: usize = 1000;

pub const NOW_NS: i64 = 1_800_000_000_000_000_000;

/// Deviations from the default server: empty database, no translators, default page size, no
/// clients.
#[derive(Default)]
pub struct Options {
    pub kind: Kind,
    pub with_fixture: bool,
    pub translators: Vec<Arc<dyn Translate>>,
    pub pin: Option<&'static str>,
    pub page_units: Option<u32>,
    /// Default: the fixture's keyring.
    pub keyring: Option<Keyring>,
    pub clients: Clients,
    pub policy: Policy,
}

pub struct Server {
    pub gate: Gate,
    pub progress: Progress,
    pub api: Arc<Api>,
    pub store: Store,
    pub service: Service,
    pub database: Database,
    pub fence: Fence,
    pub clock: Arc<StoppedClock>,
    pub address: SocketAddr,
    client: reqwest::Client,
    pub test_database: TestDatabase,
}

pub struct Reply {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub body: Vec<u8>,
}

impl Reply {
    /// The body of a 200 response as a message of this type.
    #[track_caller]
    pub fn message<M: Message + Default>(&self) -> M {
        assert_eq!(
            (self.status, self.header("content-type")),
            (200, "application/x-protobuf"),
            "{}",
            self.text()
        );
        M::decode(&self.body[..]).expect("the body is a message of this type")
    }

    /// The type and text of the error in the response.
    #[track_caller]
    pub fn error(&self) -> (proto::error::Type, String) {
        let error = self
            .message::<proto::DesiredLrpLifecycleResponse>()
            .error
            .expect("the response has an error");
        (error.r#type(), String::from_utf8(error.message).unwrap())
    }

    /// Asserts that the response has no error.
    #[track_caller]
    pub fn assert_no_error(&self) {
        let message: proto::DesiredLrpLifecycleResponse = self.message();
        assert_eq!(message.error, None);
    }

    /// The text of a response to a call that the client has to repeat. It is no message: Diego's Go
    /// client repeats a call only then.
    #[track_caller]
    pub fn repeat_reason(&self) -> String {
        let found = [self.header("content-type"), self.header("retry-after")];
        assert_eq!(
            (self.status, found),
            (503, ["application/json", "1"]),
            "{}",
            self.text()
        );
        self.text()
    }

    /// The value of a header, empty if it is absent.
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Options {
    /// The default server on this database.
    pub fn on(kind: Kind) -> Self {
        Self {
            kind,
            ..Self::default()
        }
    }
}

impl Server {
    pub async fn empty(kind: Kind) -> Self {
        Self::start(Options::on(kind)).await
    }

    pub async fn with_fixture(kind: Kind) -> Self {
        Self::start(Options {
            with_fixture: true,
            ..Options::on(kind)
        })
        .await
    }

    /// A server with the translators of the default catalog.
    pub async fn with_translators(kind: Kind) -> Self {
        Self::start(Options {
            translators: translators(),
            ..Options::on(kind)
        })
        .await
    }

    /// A server that calls stubs of the other components, and the stubs.
    pub async fn with_neighbours(kind: Kind) -> (Self, Neighbours) {
        let neighbours = Neighbours::start();
        let server = Self::start(Options {
            clients: neighbours.clients(),
            ..Options::on(kind)
        })
        .await;
        (server, neighbours)
    }

    pub async fn start(options: Options) -> Self {
        let server = Self::closed(options).await;
        server.gate.open(Arc::clone(&server.api));
        server
    }

    /// Starts a server whose gate is closed: every request gets 503.
    pub async fn closed(options: Options) -> Self {
        let layout = layouts::current();
        if layout != TestLayout::Native {
            let prepared = Prepared::new(options.kind, layout, options.with_fixture).await;
            let Prepared {
                test_database,
                context,
                fence,
                access,
                online,
            } = prepared;
            let server = Self::over(
                test_database.clone(),
                context.database.clone(),
                fence,
                access,
                options,
            );
            if let Some(online) = online {
                layouts::spawn_copy(online, context, &server, test_database);
            }
            return server;
        }
        let (test_database, database) = newest_layout(options.kind, options.with_fixture).await;
        let fence = Fence::raise(&database).await.unwrap();
        let record_versions = fixture::TABLES
            .map(|table| (table.to_owned(), RECORD_VERSION))
            .into_iter()
            .collect();
        let access = TableAccess::direct(&limits(), database.dialect(), &record_versions);
        Self::over(test_database, database, fence, access, options)
    }

    /// Serves an existing database at `version`, directly or through a lens.
    pub async fn at(
        test_database: TestDatabase,
        migrations: &[Arc<dyn Transform>],
        version: u64,
        options: Options,
    ) -> Self {
        let stored = Stored::open(&test_database, migrations.to_vec()).await;
        let database = stored.context.database.clone();
        let fence = Fence::raise(&database).await.unwrap();
        let history = migrate::layout_history(migrations).unwrap();
        let record_versions =
            RecordVersions::at(migrations.iter().map(|module| module.manifest()), version);
        let access = if Lenses::are_needed(&history, migrations, version).unwrap() {
            let arguments = migrate::arguments(&stored.context, &fence, Lenses::versions(version))
                .await
                .unwrap();
            TableAccess::through_lenses(
                Lenses::new(&history, migrations, version, record_versions, arguments).unwrap(),
                database.dialect(),
            )
        } else {
            TableAccess::direct(
                history.at(version).unwrap(),
                database.dialect(),
                &record_versions,
            )
        };
        let server = Self::over(test_database, database, fence, access, options);
        server.gate.open(Arc::clone(&server.api));
        server
    }

    fn over(
        test_database: TestDatabase,
        database: Database,
        fence: Fence,
        access: TableAccess,
        options: Options,
    ) -> Self {
        let clock = Arc::new(StoppedClock::at(NOW_NS));
        let keyring = Arc::new(options.keyring.unwrap_or_else(fixture::keyring));
        let store = Store::new(
            database.clone(),
            fence.clone(),
            keyring,
            clock.clone(),
            access,
        );
        let measures = Measures::new(database.clone(), &AdvancedRoutes::default());
        let service = Service::new(
            store.clone(),
            Events::default(),
            options.clients,
            options.policy,
            measures.clone(),
        );
        let mut api = Api::new(service.clone(), options.translators, options.pin).unwrap();
        if let Some(units) = options.page_units {
            api = api.with_page_units(units);
        }
        let progress = Progress::default();
        let gate = Gate::new(progress.clone());
        let metrics = Metrics::new(progress.clone(), Throttle::default(), measures);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let address = listener.local_addr().unwrap();
        let port = http::Port {
            name: "API",
            listener,
            most_connections: CONNECTIONS,
        };
        let router = http::router(gate.clone(), metrics);
        tokio::spawn(http::serve_clients(
            port,
            None,
            router,
            std::future::pending(),
        ));
        let client = super::http_client();
        Self {
            gate,
            progress,
            api: Arc::new(api),
            store,
            service,
            database,
            fence,
            clock,
            address,
            client,
            test_database,
        }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub async fn send(
        &self,
        verb: &str,
        path: &str,
        headers: &[(&'static str, &str)],
        body: Vec<u8>,
    ) -> Reply {
        let mut request = self
            .client
            .request(verb.parse().unwrap(), self.url(path))
            .body(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        Reply {
            status,
            headers,
            body: response.bytes().await.unwrap().to_vec(),
        }
    }

    pub async fn post(&self, path: &str, body: impl Into<Vec<u8>>) -> Reply {
        self.send("POST", path, &[], body.into()).await
    }

    pub async fn call(&self, path: &str, request: &impl Message) -> Reply {
        self.post(path, request.encode_to_vec()).await
    }

    /// Updates a desired LRP.
    pub async fn update_lrp(
        &self,
        process_guid: impl Into<Vec<u8>>,
        update: proto::DesiredLrpUpdate,
    ) {
        let request = proto::UpdateDesiredLrpRequest {
            process_guid: process_guid.into(),
            update: Some(update),
        };
        let reply = self.call("/v1/desired_lrp/update", &request).await;
        reply.assert_no_error();
    }

    /// Runs a statement that bypasses the host, as an operator or another BBS might.
    pub async fn sql(&self, statement: &str) {
        execute(&self.database, statement).await;
    }

    /// The first column of each row, as text.
    pub async fn texts(&self, query: &str) -> Vec<String> {
        texts(&self.database, query).await
    }
}

/// Columns that the modules above the fixture's version add to its tables.
const ADDED_COLUMNS: [(&str, &str); 3] = [
    (
        "desired_lrps",
        "update_strategy INT NOT NULL DEFAULT 0, record_version BIGINT, definition_id VARCHAR(255), \
         previous_definition_id VARCHAR(255)",
    ),
    (
        "actual_lrps",
        "record_version BIGINT, desired_lrp_definition_id VARCHAR(255), definition_uncertain BOOL",
    ),
    ("tasks", "record_version BIGINT"),
];

/// Tables that these modules add.
const ADDED_TABLES: [&str; 2] = [
    "CREATE TABLE bbs_lrp_definitions (process_guid VARCHAR(255), definition_id VARCHAR(255), \
     log_guid VARCHAR(255), memory_mb INT, disk_mb INT, max_pids INT, rootfs VARCHAR(1024), volume_placement MEDIUMTEXT, \
     placement_tags TEXT, metric_tags MEDIUMTEXT, run_info LONGTEXT, created_at BIGINT, last_active_at BIGINT, \
     PRIMARY KEY (process_guid, definition_id))",
    "CREATE TABLE bbs_lrp_updates (process_guid VARCHAR(255) PRIMARY KEY, started_at BIGINT, cancelled BOOL)",
];

/// A new database with the newest layout, and a pool of connections to it.
async fn newest_layout(kind: Kind, with_rows: bool) -> (TestDatabase, Database) {
    if kind == Kind::Sqlite {
        let name = format!("newest layout, rows: {with_rows}");
        let test_database = templates::copy(kind, &name, move |empty| {
            Box::pin(async move { write_newest_layout(&empty, with_rows).await })
        });
        let database = test_database.open().await;
        return (test_database, database);
    }
    let test_database = TestDatabase::new(kind);
    let database = test_database.open().await;
    write_newest_layout(&database, with_rows).await;
    (test_database, database)
}

/// Creates the tables of the default catalog's newest version in an empty database, with or without
/// the fixture's rows.
async fn write_newest_layout(database: &Database, with_rows: bool) {
    fixture::write_wider_tables_to(database, &ADDED_COLUMNS).await;
    if with_rows {
        fixture::write_rows_to(database, 1).await;
    }
    let mut tx = database.write().await.expect("a transaction");
    for table in ADDED_TABLES {
        tx.execute(sql(fixture::with_types_of(database.dialect(), table)))
            .await
            .expect("a part of the layout");
    }
    tx.commit().await.expect("the tables are made");
}

/// The parts of the newest layout that the store reads: limits of text columns, and record
/// versions.
fn limits() -> Layout {
    let table = |name: &str, columns: &[(&str, ColumnType)]| Table {
        name: name.to_owned(),
        columns: columns
            .iter()
            .map(|(name, kind)| Column {
                name: (*name).to_owned(),
                kind: *kind,
                nullable: true,
                default: None,
                sealing: Sealing::Plain,
            })
            .collect(),
        primary_key: Vec::new(),
        indexes: Vec::new(),
        partition_key: None,
    };
    let key = |name| (name, ColumnType::Varchar(255));
    let version = ("record_version", ColumnType::BigInteger);
    let desired = [
        "process_guid",
        "domain",
        "log_guid",
        "definition_id",
        "previous_definition_id",
    ]
    .map(key);
    let desired: Vec<_> = desired
        .into_iter()
        .chain([("rootfs", ColumnType::Varchar(1024)), version])
        .collect();
    let definitions = [
        key("definition_id"),
        key("log_guid"),
        ("rootfs", ColumnType::Varchar(1024)),
    ];
    let instance = [
        "process_guid",
        "domain",
        "instance_guid",
        "cell_id",
        "availability_zone",
        "desired_lrp_definition_id",
    ];
    let actual = instance.map(key).into_iter().chain([version]);
    let actual: Vec<_> = actual.collect();
    let tables = [
        table("domains", &[key("domain")]),
        table("desired_lrps", &desired),
        table("actual_lrps", &actual),
        table("bbs_lrp_definitions", &definitions),
    ];
    Layout {
        tables: tables
            .into_iter()
            .map(|table| (table.name.clone(), table))
            .collect(),
    }
}

/// A keyring with the fixture's label and another passphrase: it decrypts none of the fixture's
/// records.
pub fn other_keyring() -> Keyring {
    Keyring::new([("key-2024", "another passphrase")], "key-2024").unwrap()
}
