//! The search for the SDK, and the SDK that is written where there is none.

use super::*;

#[test]
fn repositorys_sdk_is_found_from_within_it() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for (given, here) in [
        (None, workspace.join("host/src")),
        (Some(workspace.join("sdk")), "/".into()),
    ] {
        let sdk = Sdk::find_or_write(given.as_deref(), &here).unwrap();
        assert_eq!(
            (sdk.folder.as_path(), sdk.is_new),
            (
                workspace.join("sdk").canonicalize().unwrap().as_path(),
                false
            )
        );
        assert!(sdk.lock().unwrap().ends_with("../Cargo.lock"));
    }
    let error = Sdk::find_or_write(Some(&workspace.join("host")), workspace)
        .unwrap_err()
        .to_string();
    assert!(error.contains("is not the SDK's folder"), "{error}");
}

#[test]
fn sdk_is_written_once_outside_the_repository() {
    let work = tempfile::tempdir().unwrap();
    let written = Sdk::find_or_write(None, work.path()).unwrap();
    assert!(written.is_new && written.folder.ends_with(FOLDER));
    assert!(written.lock().unwrap().ends_with("bbs-sdk/Cargo.lock"));
    let below = work.path().join("a/b");
    std::fs::create_dir_all(&below).unwrap();
    let found = Sdk::find_or_write(None, &below).unwrap();
    assert_eq!((&found.folder, found.is_new), (&written.folder, false));
}

#[test]
fn unrelated_folder_of_that_name_is_left_untouched() {
    let work = tempfile::tempdir().unwrap();
    std::fs::create_dir(work.path().join(FOLDER)).unwrap();
    let error = Sdk::find_or_write(None, work.path())
        .unwrap_err()
        .to_string();
    assert!(error.contains("move it away"), "{error}");
}

#[test]
fn written_manifests_inherit_nothing() {
    let work = tempfile::tempdir().unwrap();
    let written = Sdk::find_or_write(None, work.path()).unwrap();
    for (folder, is_root, thiserror) in [
        ("", true, Some("2")),
        ("contract", false, None),
        ("go-json", false, Some("2")),
        ("lens", false, Some("2")),
    ] {
        let folder = written.folder.join(folder);
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        assert!(!manifest.contains("workspace = true"), "{manifest}");
        let manifest: Table = manifest.parse().unwrap();
        assert_eq!(manifest["package"]["edition"].as_str(), Some("2024"));
        let dependencies = &manifest["dependencies"];
        let version = dependencies.get("thiserror").and_then(Value::as_str);
        assert_eq!(version, thiserror);
        assert!(manifest.contains_key("workspace") == is_root && !manifest.contains_key("lints"));
        for dependency in dependencies.as_table().unwrap().values() {
            let path = dependency.get("path").and_then(Value::as_str);
            let is_there = |path| folder.join(path).join("src/lib.rs").exists();
            assert!(path.is_none_or(is_there), "{path:?}");
        }
    }
}

#[test]
fn paths_are_relative() {
    for (from, to, path) in [
        ("/a/crate", "/a/bbs-sdk", "../bbs-sdk"),
        ("/repo/x/y/crate", "/repo/sdk", "../../../sdk"),
        ("/a/crate", "/b/sdk", "../../b/sdk"),
    ] {
        assert_eq!(relative(Path::new(from), Path::new(to)), Path::new(path));
    }
}
