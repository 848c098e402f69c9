//! Files on disk: reads a regular file up to a limit, and makes files and folders that only the
//! host's user may read, and names content by digests. Owns how a file is opened, replaced and
//! protected; what is in it is up to the caller.
//!
//! A path can lead to anything that the file system has. Reading a FIFO waits for its writer, and
//! reading a device such as `/dev/zero` does not end, so the file is opened without waiting and its
//! kind is checked before it is read.

pub mod digest;

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use tempfile::TempDir;

/// Largest size of a file that is read as text: a configuration, a list of modules, certificates. A
/// large bundle of authorities has 0.3 MB.
pub const TEXT_BYTES: u64 = 4 << 20;

/// The permissions of what may hold an app's secrets, or whose lock stops the host: only the host's
/// user reads and writes it.
const PRIVATE_FILE: u32 = 0o600;
const PRIVATE_FOLDER: u32 = 0o700;
const OTHER_USERS: u32 = 0o077;
/// In the permissions of a folder: every user may make files in it.
const ANY_USER_WRITES: u32 = 0o002;
const ROOT: u32 = 0;

/// The folder that a file is in; of a name alone, the current one.
pub fn folder_of(file: &Path) -> &Path {
    file.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// The reason why no file can be made at a path, if there is one; for messages.
pub fn obstacle(path: &Path) -> Option<&'static str> {
    if path.is_dir() {
        Some("it is a folder")
    } else if !folder_of(path).is_dir() {
        Some("its folder does not exist")
    } else {
        None
    }
}

/// Opens an existing regular file for reading.
///
/// # Errors
/// The file cannot be opened, or is of another kind.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(
            ErrorKind::InvalidInput,
            "it is not a regular file",
        ));
    }
    Ok(file)
}

/// Reads a regular file.
///
/// # Errors
/// As [`open`]; [`ErrorKind::FileTooLarge`] if it has more than `limit` bytes.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_open(open(path)?, limit)
}

/// Reads a regular file as UTF-8.
///
/// # Errors
/// As [`read`]; [`ErrorKind::InvalidData`] if it is not UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    read_open_text(open(path)?, TEXT_BYTES)
}

/// Reads the rest of an open file or stream as UTF-8.
///
/// # Errors
/// As [`read_open`]; [`ErrorKind::InvalidData`] if it is not UTF-8.
pub fn read_open_text(file: impl Read, limit: u64) -> io::Result<String> {
    let bytes = read_into(Vec::new(), file, limit)?;
    String::from_utf8(bytes)
        .map_err(|error| io::Error::new(ErrorKind::InvalidData, error.utf8_error()))
}

/// Reads the first `length` bytes of a regular file, or all of a shorter one.
///
/// # Errors
/// As [`open`].
pub fn beginning(path: &Path, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(length as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads the rest of an open file.
///
/// # Errors
/// The file cannot be read; [`ErrorKind::FileTooLarge`] if there are more than `limit` bytes.
pub fn read_open(file: File, limit: u64) -> io::Result<Vec<u8>> {
    // A buffer that grows while it is filled is copied several times.
    let size = file.metadata()?.len().min(limit);
    read_into(Vec::with_capacity(size as usize), file, limit)
}

fn read_into(mut bytes: Vec<u8>, file: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    // The size that a file states may be outdated, so what is read is limited.
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::new(
            ErrorKind::FileTooLarge,
            format!("it is larger than {limit} bytes"),
        ));
    }
    Ok(bytes)
}

/// Options for a file that is private if this creates it.
pub fn private() -> OpenOptions {
    let mut options = File::options();
    options.mode(PRIVATE_FILE);
    options
}

/// The user that the host runs as.
pub fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Creates a folder and those above it, all private. A folder that exists stays as it is: it may be
/// shared on purpose.
///
/// # Errors
/// The folder cannot be created. [`ErrorKind::PermissionDenied`] if it, or one above it, was made
/// by another user where every user may make folders, such as in `/var/tmp`: that user could read
/// and replace what is written there.
pub fn create_private_folder(path: &Path) -> io::Result<()> {
    // The parent of a name alone.
    if path.as_os_str().is_empty() {
        return Ok(());
    }
    DirBuilder::new()
        .recursive(true)
        .mode(PRIVATE_FOLDER)
        .create(path)?;
    let path = std::path::absolute(path)?;
    for (folder, parent) in path.ancestors().zip(path.ancestors().skip(1)) {
        if std::fs::metadata(parent)?.mode() & ANY_USER_WRITES == 0 {
            continue;
        }
        let owner = std::fs::symlink_metadata(folder)?.uid();
        if owner != ROOT && owner != own_user() {
            let reason = format!(
                "{} belongs to user {owner}, not to this one",
                folder.display()
            );
            return Err(io::Error::new(ErrorKind::PermissionDenied, reason));
        }
    }
    Ok(())
}

/// A private folder among the temporary ones, which is removed with all that is in it when it is
/// dropped.
///
/// # Errors
/// The folder cannot be created.
pub fn private_temporary_folder() -> io::Result<TempDir> {
    tempfile::Builder::new()
        .prefix("bbs-")
        .permissions(Permissions::from_mode(PRIVATE_FOLDER))
        .tempdir()
}

/// Makes an existing file private, if this user owns it; otherwise logs a warning. The file is not
/// opened: closing it would release the locks that an SQLite connection of this process has on it.
pub fn make_private(path: &Path) {
    let Ok(found) = std::fs::metadata(path) else {
        return;
    };
    let mode = found.permissions().mode() & 0o7777;
    if !found.is_file() || mode & OTHER_USERS == 0 {
        return;
    }
    match std::fs::set_permissions(path, Permissions::from_mode(PRIVATE_FILE)) {
        Ok(()) => {
            tracing::info!(path = %path.display(), "other users could open a file of this host; they no longer can")
        }
        Err(error) => tracing::warn!(
            path = %path.display(), mode = format!("{mode:o}"), %error,
            "other users may open a file of this host; change its owner to this user, or its mode to 600"
        ),
    }
}

/// Replaces a file by a private one, atomically: a crash leaves the old or the new content. A link
/// is replaced, not followed. Until then the new file has another name, which ends in `unfinished`;
/// `before` is called before it gets its own.
///
/// # Errors
/// The file cannot be written; the old one is unchanged.
pub fn replace_private(path: &Path, bytes: &[u8], before: impl FnOnce()) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    // Created with a name of its own and for this user alone.
    let mut file = tempfile::Builder::new()
        .suffix(".unfinished")
        .tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    before();
    file.persist(path)?;
    // The new name, too, outlasts a crash of the machine.
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_read_up_to_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read(&path, 5).unwrap(), b"12345");
        assert_eq!(read(&path, 4).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert_eq!(beginning(&path, 2).unwrap(), b"12");
        assert_eq!(beginning(&path, 20).unwrap(), b"12345");
        assert_eq!(read_text(&path).unwrap(), "12345");
        std::fs::write(&path, [0xff]).unwrap();
        assert_eq!(read_text(&path).unwrap_err().kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn only_regular_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        assert!(
            std::process::Command::new("mkfifo")
                .arg(&fifo)
                .status()
                .unwrap()
                .success()
        );
        for path in [&fifo, Path::new("/dev/zero"), folder.path()] {
            let error = read_text(path).unwrap_err();
            assert_eq!(
                (error.kind(), &*error.to_string()),
                (ErrorKind::InvalidInput, "it is not a regular file")
            );
        }
        assert_eq!(
            read(&folder.path().join("absent"), 1).unwrap_err().kind(),
            ErrorKind::NotFound
        );
    }

    #[test]
    fn replaced_file_is_private_and_a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let [other, path] = ["other", "file"].map(|name| folder.path().join(name));
        std::fs::write(&other, "other").unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        replace_private(&path, b"new", || {
            assert_eq!(std::fs::read(&path).unwrap(), b"other")
        })
        .unwrap();
        assert_eq!(
            (
                std::fs::read(&path).unwrap(),
                std::fs::read(&other).unwrap()
            ),
            (b"new".into(), b"other".into())
        );
        let found = std::fs::symlink_metadata(&path).unwrap();
        assert!(found.is_file() && found.permissions().mode() & 0o777 == PRIVATE_FILE);
        assert_eq!(
            std::fs::read_dir(folder.path()).unwrap().count(),
            2,
            "the temporary name is gone"
        );
    }

    #[test]
    fn folder_of_another_user_among_those_of_all_users_is_refused() {
        if own_user() != ROOT {
            return; // Only root can give a folder away.
        }
        let shared = tempfile::tempdir().unwrap();
        let [inner, folder] = ["hosts", "hosts/data"].map(|name| shared.path().join(name));
        create_private_folder(&folder).unwrap();
        std::os::unix::fs::chown(&inner, Some(1), None).unwrap();
        create_private_folder(&folder).unwrap();
        std::fs::set_permissions(shared.path(), Permissions::from_mode(0o1777)).unwrap();
        for path in [&inner, &folder] {
            let error = create_private_folder(path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
            assert!(error.to_string().contains("belongs to user 1"), "{error}");
        }
        create_private_folder(&shared.path().join("others")).unwrap();
    }

    #[test]
    fn existing_file_is_made_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "").unwrap();
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        for wide in [0o644, 0o660, 0o604] {
            std::fs::set_permissions(&path, Permissions::from_mode(wide)).unwrap();
            make_private(&path);
            assert_eq!(mode(), PRIVATE_FILE);
        }
        std::fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
        make_private(&path);
        assert_eq!(mode(), 0o400);
        make_private(&folder.path().join("absent"));
    }
}
