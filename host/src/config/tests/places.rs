//! The base of relative paths: the working directory for certificates and keys, as in Go's BBS; the
//! file for all others.

use std::fs;

use super::*;

/// An empty configuration folder and an empty working directory.
fn two_folders() -> (tempfile::TempDir, Folders) {
    let root = tempfile::tempdir().unwrap();
    let [file, working] = ["config", "working"].map(|name| root.path().join(name));
    let folders = Folders {
        path: file.join("bbs.json"),
        file,
        working,
    };
    for folder in [&folders.file, &folders.working] {
        fs::create_dir(folder).unwrap();
    }
    (root, folders)
}

/// Every key of Diego's that names a certificate or a key.
const FILES: [&str; 16] = [
    "auctioneer_ca_cert",
    "auctioneer_client_cert",
    "auctioneer_client_key",
    "ca_file",
    "cert_file",
    "key_file",
    "locket_ca_cert_file",
    "locket_client_cert_file",
    "locket_client_key_file",
    "loggregator_ca_path",
    "loggregator_cert_path",
    "loggregator_key_path",
    "rep_ca_cert",
    "rep_client_cert",
    "rep_client_key",
    "sql_ca_cert_file",
];

/// Diego's own file, in which the path of every certificate and key is its key's name.
fn with_relative_paths(folders: &Folders) -> Config {
    let mut file = parse(diego::DIEGO).unwrap();
    file.insert("modules_dir".to_owned(), "modules".into());
    file.insert("access_log_path".to_owned(), "access.log".into());
    for key in FILES {
        let object = if key.starts_with("loggregator_") {
            file["loggregator"].as_object_mut().unwrap()
        } else {
            &mut file
        };
        object.insert(key.to_owned(), key.into());
    }
    check(file, folders.clone()).unwrap()
}

fn files(config: &Config) -> Vec<PathBuf> {
    let tls = config.listeners.tls.clone().unwrap();
    let locket = config.lock.locket.clone().unwrap();
    let clients = &config.clients;
    let pairs = [
        clients.auctioneer.as_ref().unwrap().tls.as_ref(),
        clients.rep.tls.as_ref(),
    ];
    let pairs = pairs
        .into_iter()
        .flatten()
        .chain(clients.loggregator.as_ref().map(|agent| &agent.tls));
    let of_clients = pairs.chain([&tls, &locket.tls]).flat_map(|tls| {
        [
            tls.cert_file.clone(),
            tls.key_file.clone(),
            tls.ca_file.clone(),
        ]
    });
    let Address::Server(server) = &config.database else {
        panic!("Diego's has a server")
    };
    let bbs_database::Tls::Verified {
        ca_file: Some(sql), ..
    } = &server.tls
    else {
        panic!("{:?}", server.tls)
    };
    let mut files: Vec<_> = of_clients.chain([sql.clone()]).collect();
    files.sort();
    files
}

#[test]
fn certificates_in_the_working_directory_take_precedence() {
    let (_root, folders) = two_folders();
    for key in FILES {
        fs::write(folders.working.join(key), "").unwrap();
        fs::write(folders.file.join(key), "").unwrap();
    }
    let config = with_relative_paths(&folders);
    assert_eq!(files(&config), FILES.map(|key| folders.working.join(key)));
    assert_eq!(config.beside_the_file, [""; 0]);
    assert_eq!(
        config.listeners.access_log,
        Some(folders.file.join("access.log"))
    );
    assert_eq!(config.modules_dir, folders.file.join("modules"));
}

#[test]
fn certificates_beside_the_file_are_used_with_a_warning() {
    let (_root, folders) = two_folders();
    for key in FILES {
        fs::write(folders.file.join(key), "").unwrap();
    }
    let config = with_relative_paths(&folders);
    assert_eq!(files(&config), FILES.map(|key| folders.file.join(key)));
    let mut named = config.beside_the_file.clone();
    named.sort();
    assert_eq!(named, FILES);
}

#[test]
fn authority_in_a_connection_string_is_searched_in_the_same_folders() {
    let (_root, folders) = two_folders();
    fs::write(folders.file.join("ca.crt"), "").unwrap();
    let json = r#"{"database_driver":"postgres","modules_dir":"m",
        "database_connection_string":"postgres://u:p@db/d?sslmode=verify-ca&sslrootcert=ca.crt"}"#;
    let ca_file = |folders: &Folders| {
        let config = check(parse(json).unwrap(), folders.clone()).unwrap();
        let Address::Server(server) = config.database else {
            panic!("a server")
        };
        let bbs_database::Tls::Verified { ca_file, .. } = server.tls else {
            panic!("{:?}", server.tls)
        };
        (ca_file, config.beside_the_file)
    };
    let named = vec!["database_connection_string".to_owned()];
    assert_eq!(
        ca_file(&folders),
        (Some(folders.file.join("ca.crt")), named)
    );
    fs::write(folders.working.join("ca.crt"), "").unwrap();
    assert_eq!(
        ca_file(&folders),
        (Some(folders.working.join("ca.crt")), Vec::new())
    );
}

#[test]
fn missing_file_resolves_beside_the_configuration_without_a_warning() {
    let (_root, folders) = two_folders();
    let config = with_relative_paths(&folders);
    assert_eq!(
        config.listeners.tls.unwrap().ca_file,
        folders.file.join("ca_file")
    );
    assert_eq!(config.beside_the_file, [""; 0]);
}
