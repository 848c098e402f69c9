//! AdminClient and server of the admin socket, over a real socket.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use bbs_work::progress::{Counted, SERVING};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::socket::AdminError;
use super::*;

struct Running {
    host: Host,
    path: PathBuf,
    socket: Option<Socket>,
    _folder: tempfile::TempDir,
}

impl Running {
    async fn new() -> Self {
        Self::of(Host::default()).await
    }

    async fn of(host: Host) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin.sock");
        let socket = Socket::open(&path, host.clone()).await.unwrap();
        Self {
            host,
            path,
            socket: Some(socket),
            _folder: folder,
        }
    }

    async fn send(&self, command: Command) -> Result<Report, AdminClientError> {
        AdminClient::send(&self.path, command).await?.answer().await
    }

    /// Sends a line that `AdminClient` would not send, and returns the reply.
    async fn say(&self, line: &str) -> String {
        let mut stream = UnixStream::connect(&self.path).await.unwrap();
        stream.write_all(line.as_bytes()).await.unwrap();
        let mut reply = String::new();
        // The host may close the connection before it has read a line without an end.
        let _ = stream.read_to_string(&mut reply).await;
        reply
    }
}

#[tokio::test]
async fn commands_report_and_change_the_throttle() {
    let running = Running::new().await;
    running
        .host
        .progress
        .enter("copy", "up 1 to 2", Some(Counted::Units.total(10)));
    running.host.progress.advance(3);
    let report = running.send(Command::Status).await.unwrap();
    assert_eq!((report.progress.done, report.pid), (3, std::process::id()));
    assert!(running.send(Command::Pause).await.unwrap().throttle.paused);
    assert!(running.host.throttle.settings().paused);
    assert!(!running.send(Command::Resume).await.unwrap().throttle.paused);
    let limited = running
        .send(Command::Rate {
            units_per_second: Some(500),
        })
        .await
        .unwrap();
    assert_eq!(limited.throttle.units_per_second, Some(500));
    assert_eq!(
        running
            .send(Command::Rate {
                units_per_second: None
            })
            .await
            .unwrap()
            .throttle
            .units_per_second,
        None
    );
}

#[tokio::test]
async fn command_cannot_be_drained() {
    let running = Running::new().await;
    let refused = running.send(Command::Drain).await.unwrap_err().to_string();
    assert!(refused.contains("interrupt it"), "{refused}");
}

#[tokio::test]
async fn rate_of_zero_is_refused() {
    let running = Running::new().await;
    let refused = running
        .send(Command::Rate {
            units_per_second: Some(0),
        })
        .await
        .unwrap_err();
    assert!(
        refused.to_string().contains("pause it instead"),
        "{refused}"
    );
    assert_eq!(
        running.host.throttle.settings(),
        ThrottleSettings::default()
    );
}

#[tokio::test]
async fn watch_ends_when_the_work_ends() {
    let running = Running::new().await;
    running
        .host
        .progress
        .enter("copy", "up 1 to 2", Some(Counted::Units.total(10)));
    let mut client = AdminClient::send(&running.path, Command::Watch)
        .await
        .unwrap();
    assert_eq!(client.next().await.unwrap().unwrap().progress.phase, "copy");
    running.host.progress.enter(SERVING, "", None);
    let mut last = String::new();
    while let Some(report) = client.next().await.unwrap() {
        last = report.progress.phase;
    }
    assert_eq!(last, SERVING);
}

#[tokio::test]
async fn socket_is_accessible_to_its_owner_only() {
    let running = Running::new().await;
    let mode = std::fs::metadata(&running.path)
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn socket_of_a_killed_host_is_reported_as_stale_and_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admin.sock");
    let asked = async |path: &Path| AdminClient::send(path, Command::Status).await.map(drop);
    assert!(matches!(
        asked(&path).await,
        Err(AdminClientError::NotRunning { .. })
    ));
    // A listener that is closed without removing its file, as by a kill.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(matches!(
        asked(&path).await,
        Err(AdminClientError::Stale { .. })
    ));
    let _socket = Socket::open(&path, Host::default()).await.unwrap();
    asked(&path).await.unwrap();
}

#[tokio::test]
async fn second_host_on_the_same_socket_is_rejected() {
    let running = Running::new().await;
    let second = Socket::open(&running.path, Host::default())
        .await
        .unwrap_err();
    assert!(matches!(second, AdminError::InUse { .. }), "{second}");
    running.send(Command::Status).await.unwrap();
}

#[tokio::test]
async fn endpoint_without_a_socket_opens_it_once_its_path_is_free() {
    let mut running = Running::new().await;
    let second = Endpoint::open(&running.path, Host::default()).await;
    running.host.throttle.pause();
    assert!(
        running.send(Command::Status).await.unwrap().throttle.paused,
        "the first host answers"
    );
    drop(running.socket.take());
    while !running
        .send(Command::Status)
        .await
        .is_ok_and(|report| !report.throttle.paused)
    {
        tokio::task::yield_now().await;
    }
    assert!(second.close().is_some() && !running.path.exists());
    let unusable = Endpoint::open(&running.path.join("x".repeat(200)), Host::default()).await;
    assert!(unusable.close().is_none());
}

#[tokio::test]
async fn socket_that_cannot_be_created_is_a_bind_error() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    for path in [
        folder.path().join("file/admin.sock"),
        folder.path().join("x".repeat(200)),
    ] {
        let checked = Socket::check_place(&path).unwrap_err();
        assert!(matches!(checked, AdminError::Bind { .. }), "{checked}");
        let failed = Socket::open(&path, Host::default()).await.unwrap_err();
        assert!(matches!(failed, AdminError::Bind { .. }), "{failed}");
    }
    let free = folder.path().join("absent/folder/admin.sock");
    Socket::check_place(&free).unwrap();
    assert!(!free.parent().unwrap().exists());
}

#[tokio::test]
async fn other_file_at_the_path_is_left_untouched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admin.sock");
    std::fs::write(&path, "another program's").unwrap();
    let checked = Socket::check_place(&path).unwrap_err();
    assert!(matches!(checked, AdminError::InTheWay { .. }), "{checked}");
    let failed = Socket::open(&path, Host::default()).await.unwrap_err();
    assert!(matches!(failed, AdminError::InTheWay { .. }), "{failed}");
    assert_eq!(std::fs::read(&path).unwrap(), b"another program's");
}

#[tokio::test]
async fn socket_is_removed_when_the_host_ends() {
    let mut running = Running::new().await;
    running.host.progress.enter("copy", "", None);
    let mut watcher = AdminClient::send(&running.path, Command::Watch)
        .await
        .unwrap();
    watcher.next().await.unwrap();
    drop(running.socket.take());
    assert!(!running.path.exists());
}

#[tokio::test]
async fn invalid_commands_are_refused() {
    let running = Running::new().await;
    for line in [
        "\n",
        "pause\n",
        "{\"command\":\"stop\"}\n",
        "{\"command\":\"rate\",\"units_per_second\":-1}\n",
    ] {
        let reply = running.say(line).await;
        assert!(
            reply.starts_with("{\"refused\":\"this is not a command"),
            "{line:?}: {reply}"
        );
    }
    let endless = running.say(&"x".repeat(5_000)).await;
    assert!(!endless.contains("report"), "{endless}");
    running.send(Command::Status).await.unwrap();
}

#[tokio::test]
async fn reload_returns_what_has_changed_or_why_nothing_has() {
    let (reload, mut requests) = crate::reload::queue();
    let control = Control {
        shutdown: Shutdown::default(),
        reload,
    };
    let running = Running::of(Host {
        control: Some(control),
        ..Host::default()
    })
    .await;
    let report = ReloadReport {
        added: vec!["one.wasm".to_owned()],
        migrates_to: Some(7),
        ..ReloadReport::default()
    };
    let send = async || {
        AdminClient::send(&running.path, Command::Reload)
            .await?
            .reloaded()
            .await
    };
    let (changed, ()) = tokio::join!(send(), async {
        requests
            .next()
            .await
            .send(Ok(report.clone()))
            .expect("the socket waits")
    });
    assert_eq!(changed.unwrap(), report);
    let (failed, ()) = tokio::join!(send(), async {
        requests
            .next()
            .await
            .send(Err("it is not signed".to_owned()))
            .expect("the socket waits");
    });
    assert_eq!(
        failed.unwrap_err().to_string(),
        "the host refused: it is not signed"
    );
    let command = Running::new().await;
    let refused = AdminClient::send(&command.path, Command::Reload)
        .await
        .unwrap()
        .reloaded()
        .await
        .unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("a command of `bbs` runs, no host"),
        "{refused}"
    );
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic_in_a_command(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        fields in "(\"(command|units_per_second)\"[:,](\"(rate|pause|x)\"|[0-9-]{1,3}|null)[,}]){0,3}",
        rate in any::<Option<u64>>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let read = |line: &[u8]| runtime.block_on(Command::read(line));
        let written = serde_json::to_vec(&Command::Rate { units_per_second: rate }).unwrap();
        for line in [bytes, format!("{{{fields}").into_bytes(), written] {
            if let Ok(Ok(command)) = read(&line) {
                let again = read(&serde_json::to_vec(&command).unwrap()).unwrap();
                prop_assert_eq!(again, Ok(command));
            }
        }
    }
}
