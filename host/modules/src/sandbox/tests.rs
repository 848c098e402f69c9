//! Files that are no modules.

use super::*;

#[test]
fn module_file_is_a_regular_file_of_limited_size() {
    let folder = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::new(Limits::default(), None).unwrap();
    let path = |name: &str| folder.path().join(name);
    let refused = |name: &str| {
        let error = sandbox.read(&path(name)).unwrap_err();
        let source = std::error::Error::source(&error).map(ToString::to_string);
        format!("{error}: {}", source.unwrap_or_default())
    };
    std::os::unix::fs::symlink("/dev/zero", path("endless.wasm")).unwrap();
    assert!(
        refused("endless.wasm").contains("not a regular file"),
        "{}",
        refused("endless.wasm")
    );
    let made = std::process::Command::new("mkfifo")
        .arg(path("fifo.wasm"))
        .status()
        .unwrap();
    assert!(made.success());
    assert!(
        refused("fifo.wasm").contains("not a regular file"),
        "{}",
        refused("fifo.wasm")
    );
    let large = std::fs::File::create(path("large.wasm")).unwrap();
    large
        .set_len(Limits::default().component_bytes + 1)
        .unwrap();
    assert!(
        refused("large.wasm").contains("not a WebAssembly file"),
        "{}",
        refused("large.wasm")
    );
    std::fs::write(path("large.wasm"), COMPONENT).unwrap();
    large
        .set_len(Limits::default().component_bytes + 1)
        .unwrap();
    assert!(
        refused("large.wasm").contains("is larger than"),
        "{}",
        refused("large.wasm")
    );
}
