//! Files of the host: those of another kind than expected, and those that other users must not
//! open; and the address of `bbs dev`.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::harness::database::{Kind, TestDatabase};
use crate::harness::host::Installation;
use crate::harness::modules::{copy_folder, modules};
use crate::harness::output::{ended, text};

/// A copy of the default modules.
fn copied_modules() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    copy_folder(&modules(), folder.path());
    folder
}

/// Goal: a start reads only regular files, of limited size, so that no file can block or exhaust
/// the host. Method: each file in turn is a link to an endless device, and a FIFO without a writer.
#[tokio::test]
async fn start_ends_at_a_file_that_is_no_regular_file() {
    let folder = copied_modules();
    let database = TestDatabase::new(Kind::Sqlite);
    for name in ["releases.toml", "catalog.toml", "1461790966-init-sql.wasm"] {
        let path = folder.path().join(name);
        let original = std::fs::read(&path).unwrap();
        let installation = Installation::on(database.clone(), folder.path());
        let installation = if name == "releases.toml" {
            installation.set("pin_release", "none")
        } else {
            installation
        };
        for kind in ["device", "fifo"] {
            std::fs::remove_file(&path).unwrap();
            make(kind, &path);
            let output = ended(installation.command(&["serve"])).await;
            let message = text(&output);
            assert_eq!(output.status.code(), Some(2), "{message}");
            assert!(
                message.contains(name) && message.contains("not a regular file"),
                "{name}: {message}"
            );
        }
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, original).unwrap();
    }
    let mut command = Command::new(crate::harness::bbs());
    command.args(["serve", "--config", "/dev/zero"]);
    let output = ended(command).await;
    assert!(
        text(&output).contains("not a regular file"),
        "{}",
        text(&output)
    );
}

fn make(kind: &str, path: &Path) {
    match kind {
        "device" => symlink("/dev/zero", path).unwrap(),
        _ => assert!(Command::new("mkfifo").arg(path).status().unwrap().success()),
    }
}

/// The permissions of a file or folder.
fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        .permissions()
        .mode()
        & 0o777
}

/// Goal: no other user can read the database or hold its lock.
/// Method: a host creates its files with the usual `umask`; then finds them with wider permissions.
#[tokio::test]
async fn files_of_a_host_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("bbs.db");
    let installation = Installation::new(&modules(), Kind::Sqlite)
        .set("database_connection_string", database.to_str().unwrap());
    let files =
        ["bbs.db", "bbs.db-wal", "bbs.db-shm", "bbs.db.lock"].map(|name| folder.path().join(name));
    let host = installation.serve();
    assert_eq!(files.each_ref().map(|file| mode(file)), [0o600; 4]);
    assert_eq!(mode(&installation.admin_socket()), 0o600);
    host.kill();
    for file in &files {
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o666)).unwrap();
    }
    let _host = installation.serve();
    assert_eq!(files.each_ref().map(|file| mode(file)), [0o600; 4]);
}

#[tokio::test]
async fn dev_listens_on_the_loopback_interface_only() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    for address in ["0.0.0.0:0", "[::]:0"] {
        let mut command = Command::new(crate::harness::bbs());
        command
            .args(["dev", "--listen", address, "--data"])
            .arg(&data)
            .arg("--modules")
            .arg(modules());
        let output = ended(command).await;
        assert!(!output.status.success(), "{}", text(&output));
        assert!(
            text(&output).contains("other machines can reach it"),
            "{}",
            text(&output)
        );
        assert!(!data.exists(), "nothing was created");
    }
}
