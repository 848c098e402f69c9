//! Relative paths of certificates and keys are resolved against the working directory, as by
//! Diego's BBS, or else against the folder of the configuration file, with one warning.

use super::lifecycle::end;
use super::ping;
use crate::harness::database::Kind;
use crate::harness::deployment::Deployment;
use crate::harness::host::Host;

const WARNING: &str = "bbs.configuration.paths-beside-the-file";

fn with_relative_paths() -> Deployment {
    let files = [
        ("ca_file", "certs/ca.crt"),
        ("cert_file", "certs/server.crt"),
        ("key_file", "certs/server.key"),
    ];
    files
        .into_iter()
        .fold(Deployment::new(Kind::Sqlite), |deployment, (key, file)| {
            deployment.set(key, file)
        })
}

/// Starts and terminates a host in this working directory. Returns its log.
async fn served_from(deployment: &Deployment, working: &std::path::Path) -> String {
    let mut command = deployment.command();
    command.current_dir(working);
    let host = tokio::task::spawn_blocking(move || Host::start(command, "bbs.started"))
        .await
        .unwrap();
    assert!(ping(&deployment.client(), host.address).await.unwrap());
    host.signal("TERM");
    let (code, output) = end(host).await;
    assert_eq!(code, Some(0), "{output}");
    output
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_found_in_the_working_directory_without_a_warning() {
    let deployment = with_relative_paths();
    // In the deployment's file system, since files are moved.
    let working = tempfile::tempdir_in(deployment.path("config")).unwrap();
    std::fs::rename(deployment.certs(), working.path().join("certs")).unwrap();
    // The other certificates of the sample have absolute paths into the folder that was moved.
    std::os::unix::fs::symlink(
        working.path().join("certs"),
        deployment.path("config/moved"),
    )
    .unwrap();
    let link = deployment.path("config/moved");
    let moved = |name: &str| link.join(name).display().to_string();
    let mut deployment = deployment;
    for who in ["auctioneer", "rep"] {
        for (what, name) in [
            ("ca_cert", "ca.crt"),
            ("client_cert", "client.crt"),
            ("client_key", "client.key"),
        ] {
            deployment = deployment.set(&format!("{who}_{what}"), moved(name));
        }
    }
    for (key, name) in [
        ("ca", "ca.crt"),
        ("cert", "client.crt"),
        ("key", "client.key"),
    ] {
        deployment = deployment.set_loggregator(&format!("loggregator_{key}_path"), moved(name));
    }
    let output = served_from(&deployment, working.path()).await;
    assert!(!output.contains(WARNING), "{output}");
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_only_beside_the_configuration_are_found_with_one_warning() {
    let deployment = with_relative_paths();
    let elsewhere = tempfile::tempdir().unwrap();
    let output = served_from(&deployment, elsewhere.path()).await;
    let warnings: Vec<_> = output
        .lines()
        .filter(|line| line.contains(WARNING))
        .collect();
    assert_eq!(warnings.len(), 1, "{output}");
    for key in ["ca_file", "cert_file", "key_file"] {
        assert!(warnings[0].contains(key), "{key}: {}", warnings[0]);
    }
}
