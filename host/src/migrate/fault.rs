//! The points at which tests crash or stop a host. Owns their names; a production build has none.

/// Every point, in the order in which a migration passes them.
pub const POINTS: [&str; 16] = [
    BEFORE_BEGIN,
    AFTER_BEGIN,
    BEFORE_PREPARE,
    AFTER_PREPARE,
    BEFORE_BATCH,
    AFTER_BATCH,
    AFTER_COPY,
    AFTER_INDEXES,
    AFTER_VERIFY,
    WITHIN_CUT_OVER,
    BEFORE_CUT_OVER_COMMIT,
    AFTER_CUT_OVER,
    AFTER_RENAMING,
    BETWEEN_CLEAN_UPS,
    BEFORE_CLEAN_UP_COMMIT,
    AFTER_CLEAN_UP,
];

/// The transaction that records the start of a migration is not committed.
pub const BEFORE_BEGIN: &str = "before-begin";
/// The start is recorded; no table is made.
pub const AFTER_BEGIN: &str = "after-begin";
/// The tables to fill are made; the transaction that records so is not committed.
pub const BEFORE_PREPARE: &str = "before-prepare";
/// The tables to fill are recorded and empty.
pub const AFTER_PREPARE: &str = "after-prepare";
/// The transaction of a batch, with its rows, residue and cursor, is not committed.
pub const BEFORE_BATCH: &str = "before-batch";
/// A batch is committed.
pub const AFTER_BATCH: &str = "after-batch";
/// All units are copied; the copies are not indexed.
pub const AFTER_COPY: &str = "after-copy";
/// The copies have their indexes.
pub const AFTER_INDEXES: &str = "after-indexes";
/// The copies are verified; the cut-over has not begun.
pub const AFTER_VERIFY: &str = "after-verify";
/// SQLite and PostgreSQL: the cut-over's transaction has set the replaced tables aside. MySQL: the
/// additive changes, each of which commits by itself, are made.
pub const WITHIN_CUT_OVER: &str = "within-cut-over";
/// The cut-over's transaction is complete and not committed.
pub const BEFORE_CUT_OVER_COMMIT: &str = "before-cut-over-commit";
/// The target version is durable. On MySQL, tables still have to change names.
pub const AFTER_CUT_OVER: &str = "after-cut-over";
/// Only where names change apart from the version.
pub const AFTER_RENAMING: &str = "after-renaming";
/// A table that the migration made or replaced is dropped; passed once for each.
pub const BETWEEN_CLEAN_UPS: &str = "between-clean-ups";
/// The transaction that deletes the record of the migration is not committed.
pub const BEFORE_CLEAN_UP_COMMIT: &str = "before-clean-up-commit";
/// The record of the migration is deleted; its history, residue and quarantine stay.
pub const AFTER_CLEAN_UP: &str = "after-clean-up";

/// The points that a migration passes while clients write, between [`AFTER_COPY`] and
/// [`AFTER_CUT_OVER`], once for each batch of units that they have changed.
pub const ONLINE_POINTS: [&str; 2] = [BEFORE_CATCH_UP, AFTER_CATCH_UP];

/// The transaction that copies changed units again is not committed.
pub const BEFORE_CATCH_UP: &str = "before-catch-up";
/// Changed units are copied again.
pub const AFTER_CATCH_UP: &str = "after-catch-up";

/// The points that a migration passes between [`AFTER_CUT_OVER`] and [`BETWEEN_CLEAN_UPS`] if units
/// are in quarantine, once for each piece of them.
pub const QUARANTINE_POINTS: [&str; 2] = [BEFORE_SETTLED_PIECE, AFTER_SETTLED_PIECE];

/// The transaction that removes some of the units in quarantine from the tables that were not
/// copied is not committed.
pub const BEFORE_SETTLED_PIECE: &str = "before-settled-piece";
/// Some of the units in quarantine are removed.
pub const AFTER_SETTLED_PIECE: &str = "after-settled-piece";

/// Every point of a key rotation, in the order in which it passes them.
pub const ROTATION_POINTS: [&str; 8] = [
    BEFORE_ROTATION,
    AFTER_ROTATION_BEGIN,
    BEFORE_ROTATION_BATCH,
    AFTER_ROTATION_BATCH,
    BETWEEN_ROTATED_TABLES,
    AFTER_ROTATION_PROOF,
    BEFORE_LABEL_COMMIT,
    AFTER_LABEL,
];

/// The transaction that records the rotation and deletes the label is not committed.
pub const BEFORE_ROTATION: &str = "before-rotation";
/// The rotation is recorded and the label deleted; nothing is re-sealed.
pub const AFTER_ROTATION_BEGIN: &str = "after-rotation-begin";
/// The transaction of a batch, with its re-sealed rows and cursor, is not committed.
pub const BEFORE_ROTATION_BATCH: &str = "before-rotation-batch";
/// A batch of re-sealed rows is committed.
pub const AFTER_ROTATION_BATCH: &str = "after-rotation-batch";
/// The last batch of a table is committed; passed once for each table.
pub const BETWEEN_ROTATED_TABLES: &str = "between-rotated-tables";
/// A scan has found nothing under other keys; the label is not written.
pub const AFTER_ROTATION_PROOF: &str = "after-rotation-proof";
/// The transaction that writes the active key's label is not committed.
pub const BEFORE_LABEL_COMMIT: &str = "before-label-commit";
/// The label is durable: the rotation is complete.
pub const AFTER_LABEL: &str = "after-label";

/// Every point of an import from etcd, in the order in which it passes them; the migration's own
/// points come between [`AFTER_IMPORT`] and [`BEFORE_MARK`].
pub const IMPORT_POINTS: [&str; 12] = [
    BEFORE_IMPORT,
    AFTER_IMPORT_BEGIN,
    AFTER_IMPORT_TABLES,
    BEFORE_IMPORT_BATCH,
    AFTER_IMPORT_BATCH,
    AFTER_IMPORT_READ,
    AFTER_IMPORT_INDEXES,
    BEFORE_IMPORT_COMMIT,
    AFTER_IMPORT,
    BEFORE_MARK,
    AFTER_MARK,
    AFTER_MARK_RECORDED,
];

/// The transaction that records the start of an import is not committed.
pub const BEFORE_IMPORT: &str = "before-import";
/// The start of an import is recorded; no table is made.
pub const AFTER_IMPORT_BEGIN: &str = "after-import-begin";
/// The tables are made and empty.
pub const AFTER_IMPORT_TABLES: &str = "after-import-tables";
/// The transaction of a batch of etcd's leaves is not committed.
pub const BEFORE_IMPORT_BATCH: &str = "before-import-batch";
/// A batch of etcd's leaves is committed.
pub const AFTER_IMPORT_BATCH: &str = "after-import-batch";
/// All leaves are read and in the database.
pub const AFTER_IMPORT_READ: &str = "after-import-read";
/// The imported tables have their indexes; the database has no version.
pub const AFTER_IMPORT_INDEXES: &str = "after-import-indexes";
/// The transaction that gives the database its version is not committed.
pub const BEFORE_IMPORT_COMMIT: &str = "before-import-commit";
/// The imported database has its version; it is not migrated.
pub const AFTER_IMPORT: &str = "after-import";
/// The database is migrated; etcd is not marked.
pub const BEFORE_MARK: &str = "before-mark";
/// etcd is marked; the database does not say so.
pub const AFTER_MARK: &str = "after-mark";
/// The database says that etcd is marked.
pub const AFTER_MARK_RECORDED: &str = "after-mark-recorded";

/// Kills the process here, as a lost machine would, if `BBS_FAULT` names the point: `<point>` for
/// the first time that it is reached, `<point>:<n>` for the n-th. With `stop:` before it the
/// process is stopped with SIGSTOP instead.
#[cfg(any(feature = "fault", debug_assertions))]
pub fn point(name: &'static str) {
    use std::collections::BTreeMap;

    use parking_lot::Mutex;

    static PASSED: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());
    let Ok(wanted) = std::env::var("BBS_FAULT") else {
        return;
    };
    let (signal, wanted) = wanted
        .strip_prefix("stop:")
        .map_or(("KILL", wanted.as_str()), |rest| ("STOP", rest));
    let (point, nth) = wanted.split_once(':').map_or((wanted, 1), |(point, nth)| {
        (
            point,
            nth.parse()
                .expect("BBS_FAULT is <point> or <point>:<n>, after `stop:` or not"),
        )
    });
    let known = [
        &POINTS[..],
        &ONLINE_POINTS,
        &QUARANTINE_POINTS,
        &ROTATION_POINTS,
        &IMPORT_POINTS,
    ]
    .concat()
    .contains(&point);
    assert!(known, "BBS_FAULT names {point:?}, which is no crash point");
    if point != name {
        return;
    }
    let passed = {
        let mut passed = PASSED.lock();
        let passed = passed.entry(name).or_default();
        *passed += 1;
        *passed
    };
    if passed == nth {
        // The shell's own `kill`: not every machine has the program. A stop takes effect once a
        // thread has taken the signal, so the shell waits until it is no longer pending (signal 19
        // in the mask). It may be continued at once.
        let process = std::process::id();
        let mut kill = format!("kill -s {signal} {process}");
        if signal == "STOP" {
            kill.push_str(
                "; pending() { while read -r key mask; do case $key$mask in ShdPnd:*[4-7c-f]????) return 0;; esac; \
                 done; return 1; }; ",
            );
            kill.push_str(&format!(
                "while pending </proc/{process}/status; do :; done"
            ));
        }
        let _ = std::process::Command::new("sh")
            .args(["-c", &kill])
            .status();
        // The signal is pending: nothing more may happen here until the process is continued.
        if signal == "KILL" {
            loop {
                std::thread::park();
            }
        }
    }
}

/// Does nothing: this build has no points.
#[cfg(not(any(feature = "fault", debug_assertions)))]
pub fn point(_name: &'static str) {}
