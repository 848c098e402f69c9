//! Modules that a running host takes up: migrations and translators under load, and everything that
//! a reload refuses, after which the host serves as before.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Output;
use std::sync::Arc;

use bbs::testing::api::Api;
use bbs::testing::database::sql;
use bbs::testing::modules::TranslatorModule;
use bbs::testing::modules::catalog::Catalog;
use bbs::testing::modules::sandbox::Limits;
use bbs::testing::modules::translate::Translate;
use bbs::testing::signatures::TrustedKeys;
use bbs_model::change::RecordChange;
use bbs_model::task::Task;
use bbs_proto::models as proto;
use bbs_proto::prost::Message;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::api::lrp;
use crate::harness::database::{Kind, data_version, on_each_database, on_each_server, texts};
use crate::harness::deployment::link_files;
use crate::harness::event_stream::EventStream;
use crate::harness::fixture;
use crate::harness::host::{Host, Installation};
use crate::harness::layouts::NEWEST;
use crate::harness::load::across::migration;
use crate::harness::load::calls::Caller;
use crate::harness::load::listing::everything;
use crate::harness::load::model::Model;
use crate::harness::load::{Aim, Load, Settings};
use crate::harness::modules::{
    ADD_ON_VERSION, NATIVE_MIGRATION, cache, copy_folder, migration_add_on, modules,
    modules_with_hostile, remove_modules, sandbox_with, translator_add_on,
};
use crate::harness::output::{errors, succeeded};
use crate::harness::packages::Packages;
use crate::harness::ports::free_address;
use crate::harness::server::{Options, Server};
use crate::harness::watch::children;
use crate::harness::{PATIENCE, http_client, until, until_async};

const SETTINGS: Settings = Settings {
    clients: 8,
    calls_per_second: 100.0,
    seed: 7,
};
/// Slow enough for most calls to run during the copy.
const RATE: &str = "100/s";
/// The version before [`NEWEST`].
const PINNED: u64 = 1_795_000_000;
/// The status of a call of a version that the host does not serve.
const NOT_SERVED: u16 = 406;
const RELOADED: &str = "loaded the modules again";

/// A host with Diego's records, and with packages that are not installed yet.
struct Reloading {
    packages: Packages,
    installation: Arc<Installation>,
    host: Host,
}

impl Reloading {
    async fn start(kind: Kind) -> Self {
        let packages = Packages::new();
        let installation = packages.installation(kind);
        Self::with(packages, installation).await
    }

    async fn with(packages: Packages, installation: Installation) -> Self {
        fixture::write_to(&installation.database).await;
        let host = installation.serve();
        Self {
            packages,
            installation: Arc::new(installation),
            host,
        }
    }

    fn caller(&self) -> Caller {
        Caller::new(watch::channel(self.host.url("")).1)
    }

    fn reload(&self) -> JoinHandle<Output> {
        let installation = Arc::clone(&self.installation);
        tokio::task::spawn_blocking(move || installation.run(&["module", "reload"]))
    }

    /// Reloads, and returns what the command prints.
    fn reloaded(&self) -> impl Future<Output = String> + use<> {
        let reload = self.reload();
        async { succeeded(reload.await.unwrap()) }
    }

    /// Reloads in vain: the command has these words, and the host serves the same records and
    /// versions as before.
    async fn refused(&mut self, words: &[&str]) {
        let before = everything(&self.caller()).await.unwrap();
        let version = self.version().await;
        let output = self.reload().await.unwrap();
        let errors = errors(&output);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        for word in words {
            assert!(errors.contains(word), "{word:?} is not in:\n{errors}");
        }
        self.host
            .wait_for_line(|line| line.contains("nothing has changed"));
        let after = everything(&self.caller()).await.unwrap();
        assert!(before.records == after.records, "the records have changed");
        assert_eq!(
            (self.version().await, self.status_of("/v0.8/ping").await),
            (version, NOT_SERVED)
        );
    }

    /// Lists through the translator of the add-on, again and again.
    fn older_calls(&self) -> OlderCalls {
        let (stop, stopped) = watch::channel(false);
        let client = http_client();
        let url = self.host.url("/v0.8/instances/list");
        let body = proto::ActualLrPsRequest {
            cell_id: b"cell-4".to_vec(),
            ..Default::default()
        }
        .encode_to_vec();
        let calls = tokio::spawn(async move {
            let mut counts = BTreeMap::new();
            while !*stopped.borrow() {
                let answer = client.post(&url).body(body.clone()).send().await.unwrap();
                let status = answer.status().as_u16();
                let content = answer.bytes().await.unwrap();
                let lists_some = proto::ActualLrPsResponse::decode(&content[..])
                    .is_ok_and(|found| found.error.is_none() && !found.actual_lrps.is_empty());
                *counts.entry((status, lists_some)).or_default() += 1;
            }
            counts
        });
        OlderCalls { stop, calls }
    }

    async fn status_of(&self, path: &str) -> u16 {
        http_client()
            .post(self.host.url(path))
            .send()
            .await
            .unwrap()
            .status()
            .as_u16()
    }

    /// The version of the database. Does not read the folders of modules, which may be damaged.
    async fn version(&self) -> u64 {
        let database = self.installation.database.open().await;
        let version = data_version(&database).await;
        database.close().await;
        version
    }

    /// Waits until the database is at a version.
    async fn reaches(&self, version: u64) {
        until_async(async || self.version().await == version).await;
    }
}

/// Calls of API version 0.8 that are made one after the other.
struct OlderCalls {
    stop: watch::Sender<bool>,
    /// The number of calls by their status, and by whether they list any instances.
    calls: JoinHandle<BTreeMap<(u16, bool), u64>>,
}

impl OlderCalls {
    /// Stops the calls, of which none may have failed.
    async fn all_have_succeeded(self) {
        self.stop.send_replace(true);
        let counts = self.calls.await.unwrap();
        assert!(counts.keys().eq([&(200, true)]), "{counts:?}");
    }
}

on_each_database!(migration_of_an_add_on_runs_by_reload_and_no_call_fails);
async fn migration_of_an_add_on_runs_by_reload_and_no_call_fails(kind: Kind) {
    let mut reloading = Reloading::start(kind).await;
    reloading.installation.succeed(&["migrate", "rate", RATE]);
    let before = Model::of(&reloading.caller()).await.unwrap();
    reloading.packages.install("colours", &migration_add_on());
    let installation = Arc::clone(&reloading.installation);
    let reload = reloading.reloaded();
    let (outcome, printed) = tokio::join!(
        migration(
            &installation,
            &mut reloading.host,
            before,
            ADD_ON_VERSION,
            SETTINGS
        ),
        reload
    );
    assert!(
        printed.contains(&format!("A migration to {ADD_ON_VERSION} has begun")),
        "{printed}"
    );
    let outcome = outcome.unwrap();
    let report = &outcome.report;
    assert_eq!(
        (report.failures, report.differences),
        (0, 0),
        "{report}\n{:#?}",
        reloading.host.output()
    );
    assert_eq!(outcome.differences, Vec::<String>::new());
    assert!(outcome.began_at.is_some(), "the copy was never seen");

    // The add-on has run, so that it cannot be removed any more.
    reloading.packages.remove("colours");
    reloading
        .refused(&[
            "an add-on that is missing here",
            &format!("bbs migrate down --to {NEWEST}"),
        ])
        .await;
    reloading.packages.put_back("colours");
    assert!(reloading.reloaded().await.contains("the same as before"));
    assert!(reloading.host.terminate().success());
}

on_each_server!(copies_of_a_removed_add_on_are_dropped_beside_clients_and_not_resumed);
/// Setup: another client reads a table, so that the cut-over is given up with its copies, and then
/// one of the copies, so that the reload without the add-on cannot drop it.
async fn copies_of_a_removed_add_on_are_dropped_beside_clients_and_not_resumed(kind: Kind) {
    let packages = Packages::new();
    let installation = packages
        .installation(kind)
        .set("migration_lock_timeout", "1s");
    let mut reloading = Reloading::with(packages, installation).await;
    let client = reloading
        .installation
        .database
        .open_with_idle_limit(PATIENCE);
    let client = client.await;
    let mut reading = client.read().await.unwrap();
    let read = sql("SELECT COUNT(*) FROM desired_lrps");
    reading.fetch(read).await.unwrap();
    reloading.packages.install("colours", &migration_add_on());
    reloading.reloaded().await;
    let host = &mut reloading.host;
    host.wait_for_line(|line| line.contains("with the copies"));

    let mut reading_copy = client.read().await.unwrap();
    let copy = format!("desired_lrps__{ADD_ON_VERSION}");
    let read = sql(format!("SELECT COUNT(*) FROM {copy}"));
    reading_copy.fetch(read).await.unwrap();
    reloading.packages.remove("colours");
    reloading.reloaded().await;
    let caller = reloading.caller();
    caller.desire(&lrp("beside")).await.unwrap();
    let recorded = "SELECT table_name FROM bbs_side_table";
    assert!(texts(&client, recorded).await.contains(&copy));
    drop(reading_copy);
    until_async(async || texts(&client, recorded).await.is_empty()).await;
    drop(reading);
    client.close().await;
    reloading.packages.put_back("colours");
    reloading.reloaded().await;
    let host = &mut reloading.host;
    host.wait_for_line(|line| line.contains("cut over"));
    let found = caller.get(b"beside").await.unwrap().unwrap();
    assert_eq!(found.process_guid, b"beside");
    assert!(reloading.host.terminate().success());
}

on_each_database!(translator_of_an_add_on_serves_by_reload_and_calls_end_as_they_began);
async fn translator_of_an_add_on_serves_by_reload_and_calls_end_as_they_began(kind: Kind) {
    let reloading = Reloading::start(kind).await;
    let model = Model::of(&reloading.caller()).await.unwrap();
    let mut load = Load::start(&reloading.caller(), model, &Aim::default(), SETTINGS);
    load.calls(50).await;
    assert_eq!(reloading.status_of("/v0.8/ping").await, NOT_SERVED);
    reloading.packages.install("api-0-8", &translator_add_on());
    assert!(
        reloading
            .reloaded()
            .await
            .contains("Added: 0.8-to-0.9.wasm.")
    );
    assert_eq!(reloading.status_of("/v0.8/ping").await, 200);
    let older_calls = reloading.older_calls();

    let mut events = EventStream::open(reloading.host.url("/v0.8/instances/events"), "").await;
    let body = proto::ActualLrPsRequest::default().encode_to_vec();
    let mut list = http_client()
        .post(reloading.host.url("/v0.8/instances/list"))
        .body(body)
        .send()
        .await
        .unwrap();
    let mut listed = list.chunk().await.unwrap().unwrap_or_default().to_vec();
    for number in 0..5 {
        // The same module in another folder: everything is replaced, and nothing changes.
        reloading
            .packages
            .install(&format!("copy-{number}"), &translator_add_on());
        assert!(reloading.reloaded().await.contains("the same as before"));
        load.calls(20).await;
    }
    older_calls.all_have_succeeded().await;
    (0..5).for_each(|number| reloading.packages.remove(&format!("copy-{number}")));
    reloading.packages.remove("api-0-8");
    assert!(
        reloading
            .reloaded()
            .await
            .contains("Removed: 0.8-to-0.9.wasm.")
    );
    assert_eq!(reloading.status_of("/v0.8/ping").await, NOT_SERVED);

    while let Some(chunk) = list.chunk().await.unwrap() {
        listed.extend_from_slice(&chunk);
    }
    let answer = proto::ActualLrPsResponse::decode(&listed[..]).unwrap();
    // The load adds and removes some.
    assert!(
        answer.error.is_none() && answer.actual_lrps.len() > 600,
        "{:?}",
        answer.error
    );
    reloading
        .caller()
        .desire(&lrp("desired-afterwards"))
        .await
        .unwrap();
    let is_of_it = |message: &[u8]| {
        message
            .windows(18)
            .any(|window| window == b"desired-afterwards")
    };
    while !is_of_it(
        &events
            .next()
            .await
            .expect("the stream goes on with its translator")
            .message,
    ) {}

    let (report, _) = load.stop().await;
    assert_eq!((report.failures, report.differences), (0, 0), "{report}");
    assert!(reloading.host.terminate().success());
}

fn hostile_of(catalog: &Catalog) -> Arc<TranslatorModule> {
    let mut translators = catalog.translators().iter();
    let hostile = translators.find(|module| module.manifest().name == "hostile");
    Arc::clone(hostile.expect("the catalog has the hostile translator"))
}

/// Goal: calls and streams from before a reload take no instances from those after it. Method: each
/// translator has two instances, one for calls and one for events. Before the reload, a call and a
/// stream use both without end; after it, a call is answered and a stream has its event.
#[tokio::test(flavor = "multi_thread")]
async fn unchanged_translator_has_instances_for_calls_and_streams_after_a_reload() {
    let sandbox = sandbox_with(Limits {
        call_time: PATIENCE,
        instances: 2,
        ..Limits::default()
    });
    let folders = [modules_with_hostile()];
    let catalog = Catalog::load(&folders[0], &sandbox).unwrap();
    let before = hostile_of(&catalog);
    let server = Server::start(Options {
        translators: vec![Arc::clone(&before) as Arc<dyn Translate>],
        ..Options::on(Kind::Sqlite)
    })
    .await;
    let server = Arc::new(server);
    let publish = |result: &[u8]| {
        let task = Task {
            guid: b"task".to_vec(),
            domain: b"domain".to_vec(),
            result: result.to_vec(),
            ..Task::default()
        };
        server.service.events().publish(RecordChange::Task {
            before: None,
            after: Some(Box::new(task)),
        });
    };
    assert_eq!(before.idle_instances(), 1, "that of the manifest");
    let call = tokio::spawn({
        let server = Arc::clone(&server);
        async move { server.post("/v1.2-hostile/spins", []).await }
    });
    until(|| before.idle_instances() == 0).await;
    let mut stream = EventStream::get(server.url("/v1.2-hostile/loops"), "").await;
    publish(b"first");
    stream.next().await.expect("the first event");
    until(|| before.idle_instances() == 1).await;
    publish(b"fail");
    until(|| before.idle_instances() == 0).await;

    let reloaded = catalog.reload(&folders, &TrustedKeys::default(), &sandbox);
    let after = hostile_of(&reloaded.unwrap()) as Arc<dyn Translate>;
    let api = Api::new(server.service.clone(), vec![after], None).unwrap();
    server.gate.open(Arc::new(api));
    let reply = server.post("/v1.2-hostile/once", []).await;
    assert!(reply.message::<proto::PingResponse>().available);
    let mut next_stream = EventStream::get(server.url("/v1.2-hostile/same"), "").await;
    publish(b"last");
    next_stream.next().await.expect("the last event");
    assert_eq!(before.idle_instances(), 1, "idle instances are shared");
    call.abort();
}

/// Goal: new modules are compiled beside the served API. Method: the folder of compiled modules is
/// emptied once the host serves, so that a reload cannot load what it compiles.
#[tokio::test(flavor = "multi_thread")]
async fn reload_compiles_new_modules_while_calls_are_answered() {
    let packages = Packages::new();
    let compiled = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let files = || {
        std::fs::read_dir(compiled.path())
            .unwrap()
            .map(|file| file.unwrap().path())
    };
    modules();
    link_files(&cache(), compiled.path());
    let installation = packages
        .installation(Kind::Sqlite)
        .set("module_cache_dir", compiled.path().to_str().unwrap());
    let reloading = Reloading::with(packages, installation).await;
    let mut answered = 0;
    reloading.packages.install("colours", &migration_add_on());
    // A process that rests for as long as the compiler runs makes no call meanwhile.
    for number in 0..4 {
        files().for_each(|file| std::fs::remove_file(file).unwrap());
        let name = format!("api-{number}");
        reloading.packages.install(&name, &translator_add_on());
        let reload = reloading.reload();
        answered = 0;
        let compiles = || !children(reloading.host.pid()).is_empty();
        while !reload.is_finished() {
            let began = compiles();
            assert_eq!(reloading.status_of("/v1/domains/list").await, 200);
            answered += usize::from(began && compiles());
        }
        assert!(reload.await.unwrap().status.success());
        let compiled = files().count();
        assert!(compiled > 0, "the translator was compiled");
        assert!(number > 0 || compiled == 2, "the migration was compiled");
        reloading.packages.remove(&name);
        reloading.reloaded().await;
        if answered > 1 {
            break;
        }
    }
    assert!(answered > 1, "calls waited for the compiler");
    assert!(reloading.host.terminate().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_that_a_reload_adds_are_warned_of_if_no_signatures_are_verified() {
    const WARNING: &str = "a write to one of their folders can change which modules run";
    let mut reloading = Reloading::start(Kind::Sqlite).await;
    reloading.reloaded().await;
    reloading.packages.install("api-0-8", &translator_add_on());
    reloading.reloaded().await;
    reloading.host.wait_for_line(|line| line.contains(WARNING));
    // The same folders again.
    reloading.reloaded().await;
    let Reloading { host, .. } = reloading;
    host.signal("TERM");
    let (status, output) = host.wait_for_end();
    assert!(
        status.success() && output.matches(WARNING).count() == 1,
        "{output}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn reload_changes_nothing_if_anything_is_wrong() {
    let mut reloading = Reloading::start(Kind::Sqlite).await;
    let Reloading { packages, .. } = &reloading;
    let folder = packages.install("api-0-8", &translator_add_on());
    let module = folder.join("0.8-to-0.9.wasm");
    let catalog = folder.join("catalog.toml");
    let replace = |path: &Path, old: &str, new: &str| {
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.contains(old), "{text}");
        std::fs::write(path, text.replace(old, new)).unwrap();
    };

    let original = std::fs::read(&module).unwrap();
    std::fs::write(&module, [&original[..], b"\0"].concat()).unwrap();
    reloading.refused(&["0.8-to-0.9.wasm was altered"]).await;
    std::fs::remove_file(&module).unwrap();
    reloading
        .refused(&["0.8-to-0.9.wasm is listed", "restore the file"])
        .await;
    std::fs::write(&module, &original).unwrap();
    replace(&catalog, "serves = \"0.8\"", "serves = \"0.7\"");
    reloading
        .refused(&["0.8-to-0.9.wasm is translator 0.8 to 0.9 according to its manifest"])
        .await;
    std::fs::write(&catalog, "no catalog").unwrap();
    reloading.refused(&["is not a catalog"]).await;
    reloading.packages.remove("api-0-8");

    let folder = reloading.packages.install("colours", &migration_add_on());
    let catalog = folder.join("catalog.toml");
    replace(
        &catalog,
        &format!("follows = {NEWEST}"),
        &format!("follows = {}", NEWEST + 1),
    );
    reloading.refused(&["which no folder of modules has"]).await;
    reloading.packages.remove("colours");
    assert!(reloading.reloaded().await.contains("the same as before"));
    assert!(reloading.host.terminate().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn other_migrations_wait_for_the_one_in_progress_and_translators_do_not() {
    let mut reloading = Reloading::start(Kind::Sqlite).await;
    reloading.installation.succeed(&["migrate", "rate", "1/s"]);
    reloading.packages.install("colours", &migration_add_on());
    assert!(reloading.reloaded().await.contains("has begun"));
    reloading.packages.remove("colours");
    reloading
        .refused(&[
            "a migration, its clean-up or a key rotation is in progress",
            "bbs migrate watch",
        ])
        .await;
    reloading.packages.put_back("colours");
    reloading.packages.install("api-0-8", &translator_add_on());
    assert!(
        reloading
            .reloaded()
            .await
            .contains("Added: 0.8-to-0.9.wasm.")
    );
    assert_eq!(reloading.status_of("/v0.8/ping").await, 200);
    reloading.installation.succeed(&["migrate", "rate", "none"]);
    reloading.reaches(ADD_ON_VERSION).await;
    assert_eq!(reloading.status_of("/v0.8/ping").await, 200);
    assert!(reloading.host.terminate().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn hang_up_signal_reloads() {
    let mut reloading = Reloading::start(Kind::Sqlite).await;
    reloading.packages.install("api-0-8", &translator_add_on());
    reloading.host.signal("HUP");
    reloading
        .host
        .wait_for_line(|line| line.contains(RELOADED) && line.contains("0.8-to-0.9.wasm"));
    assert_eq!(reloading.status_of("/v0.8/ping").await, 200);
    std::fs::write(
        reloading.packages.folder("api-0-8").join("catalog.toml"),
        "no catalog",
    )
    .unwrap();
    reloading.host.signal("HUP");
    reloading.host.wait_for_line(|line| {
        line.contains("nothing has changed") && line.contains("is not a catalog")
    });
    assert_eq!(reloading.status_of("/v0.8/ping").await, 200);
    assert!(reloading.host.terminate().success());
}

/// The rollback at the end of the host goes through a migration that it did not know when it began.
#[tokio::test(flavor = "multi_thread")]
async fn host_goes_back_through_a_migration_that_it_was_given_by_reload() {
    let packages = Packages::new();
    let installation = packages
        .installation(Kind::Sqlite)
        .set("rollback_on_drain_to_version", NEWEST);
    let reloading = Reloading::with(packages, installation).await;
    reloading.packages.install("colours", &migration_add_on());
    assert!(reloading.reloaded().await.contains("has begun"));
    reloading.reaches(ADD_ON_VERSION).await;
    let Reloading {
        installation, host, ..
    } = reloading;
    assert!(host.terminate().success());
    assert_eq!(installation.data_version(), NEWEST);
}

/// The database has the migration of an add-on, without which the standby cannot take over.
#[tokio::test(flavor = "multi_thread")]
async fn standby_serves_with_the_modules_of_its_last_reload() {
    let packages = Packages::new();
    packages.install("colours", &migration_add_on());
    let installation = packages.installation(Kind::Sqlite);
    let first = Reloading::with(packages, installation).await;
    let address = free_address();
    let standby = first.packages.beside(Installation::on(
        first.installation.database.clone(),
        &modules(),
    ));
    let standby = standby
        .set("listen_address", address.to_string())
        .set("metrics_address", "127.0.0.1:0");
    let mut waiting = Host::start(standby.command(&["serve"]), "metrics=");
    first.packages.install("api-0-8", &translator_add_on());
    first.packages.remove("colours");
    let refused = standby.fail(&["module", "reload"]);
    assert!(
        refused.contains("an add-on that is missing here"),
        "{refused}"
    );
    first.packages.put_back("colours");
    assert!(
        standby
            .succeed(&["module", "reload"])
            .contains("Added: 0.8-to-0.9.wasm.")
    );
    assert_eq!(
        first.status_of("/v0.8/ping").await,
        NOT_SERVED,
        "each host reloads by itself"
    );
    assert!(first.host.terminate().success());
    waiting.wait_for_line(|line| line.contains("serving address="));
    waiting.address = address;
    let ping = http_client()
        .post(waiting.url("/v0.8/ping"))
        .send()
        .await
        .unwrap();
    assert_eq!(ping.status(), 200);
    assert!(waiting.terminate().success());
}

/// The database stays below the version that the modules lack, so it allows the takeover.
#[tokio::test(flavor = "multi_thread")]
async fn standby_refuses_modules_without_the_version_of_the_handlers() {
    let folder = tempfile::tempdir().unwrap();
    copy_folder(&modules(), folder.path());
    let standby = Installation::new(folder.path(), Kind::Sqlite).set("pin_data_version", PINNED);
    let master = Installation::on(standby.database.clone(), &modules())
        .set("pin_data_version", PINNED)
        .serve();
    let mut waiting = Host::begin(standby.command(&["serve"]));
    waiting.wait_for_line(|line| line.contains("waiting for the lock"));
    remove_modules(folder.path(), &[NATIVE_MIGRATION]);
    let refused = standby.fail(&["module", "reload"]);
    assert!(
        refused.contains(&format!("the modules have no migration to {NEWEST}")),
        "{refused}"
    );
    assert!(waiting.terminate().success());
    assert!(master.terminate().success());
}

#[test]
fn reload_without_a_host_names_the_socket() {
    let installation = Packages::new().installation(Kind::Sqlite);
    let output = installation.run(&["module", "reload"]);
    let errors = errors(&output);
    assert!(
        output.status.code() == Some(1)
            && errors.contains("no host is running with this configuration"),
        "{errors}"
    );
}
