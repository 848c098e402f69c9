//! The points at which tests crash or stop a host. Owns their names; a production build has none.

/// Declares points, and the list of them in the order in which they are passed.
macro_rules! points {
    (
        $(#[$of_list:meta])* $list:ident[$count:literal]:
        $($(#[$of_point:meta])* $point:ident = $name:literal;)*
    ) => {
        $(#[$of_list])*
        pub const $list: [&str; $count] = [$($point),*];
        $($(#[$of_point])* pub const $point: &str = $name;)*
    };
}

points! {
    /// Every point, in the order in which a migration passes them.
    POINTS[16]:
    /// The transaction that records the start of a migration is not committed.
    BEFORE_BEGIN = "before-begin";
    /// The start is recorded; no table is made.
    AFTER_BEGIN = "after-begin";
    /// The tables to fill are made; the transaction that records so is not committed.
    BEFORE_PREPARE = "before-prepare";
    /// The tables to fill are recorded and empty.
    AFTER_PREPARE = "after-prepare";
    /// The transaction of a batch, with its rows, residue and cursor, is not committed.
    BEFORE_BATCH = "before-batch";
    /// A batch is committed.
    AFTER_BATCH = "after-batch";
    /// All units are copied; the copies are not indexed.
    AFTER_COPY = "after-copy";
    /// The copies have their indexes.
    AFTER_INDEXES = "after-indexes";
    /// The copies are verified; the cut-over has not begun.
    AFTER_VERIFY = "after-verify";
    /// SQLite and PostgreSQL: the cut-over's transaction has set the replaced tables aside. MySQL:
    /// the additive changes, each of which commits by itself, are made.
    WITHIN_CUT_OVER = "within-cut-over";
    /// The cut-over's transaction is complete and not committed.
    BEFORE_CUT_OVER_COMMIT = "before-cut-over-commit";
    /// The target version is durable. On MySQL, tables still have to change names.
    AFTER_CUT_OVER = "after-cut-over";
    /// Only where names change apart from the version.
    AFTER_RENAMING = "after-renaming";
    /// A table that the migration made or replaced is dropped; passed once for each.
    BETWEEN_CLEAN_UPS = "between-clean-ups";
    /// The transaction that deletes the record of the migration is not committed.
    BEFORE_CLEAN_UP_COMMIT = "before-clean-up-commit";
    /// The record of the migration is deleted; its history, residue and quarantine stay.
    AFTER_CLEAN_UP = "after-clean-up";
}

points! {
    /// The points that a migration passes while clients write, between [`AFTER_COPY`] and
    /// [`AFTER_CUT_OVER`], once for each batch of units that they have changed.
    ONLINE_POINTS[2]:
    /// The transaction that copies changed units again is not committed.
    BEFORE_CATCH_UP = "before-catch-up";
    /// Changed units are copied again.
    AFTER_CATCH_UP = "after-catch-up";
}

points! {
    /// The points that a migration passes between [`AFTER_CUT_OVER`] and [`BETWEEN_CLEAN_UPS`] if
    /// units are in quarantine, once for each piece of them.
    QUARANTINE_POINTS[2]:
    /// The transaction that removes some of the units in quarantine from the tables that were not
    /// copied is not committed.
    BEFORE_SETTLED_PIECE = "before-settled-piece";
    /// Some of the units in quarantine are removed.
    AFTER_SETTLED_PIECE = "after-settled-piece";
}

points! {
    /// Every point of a key rotation, in the order in which it passes them.
    ROTATION_POINTS[8]:
    /// The transaction that records the rotation and deletes the label is not committed.
    BEFORE_ROTATION = "before-rotation";
    /// The rotation is recorded and the label deleted; nothing is re-sealed.
    AFTER_ROTATION_BEGIN = "after-rotation-begin";
    /// The transaction of a batch, with its re-sealed rows and cursor, is not committed.
    BEFORE_ROTATION_BATCH = "before-rotation-batch";
    /// A batch of re-sealed rows is committed.
    AFTER_ROTATION_BATCH = "after-rotation-batch";
    /// The last batch of a table is committed; passed once for each table.
    BETWEEN_ROTATED_TABLES = "between-rotated-tables";
    /// A scan has found nothing under other keys; the label is not written.
    AFTER_ROTATION_PROOF = "after-rotation-proof";
    /// The transaction that writes the active key's label is not committed.
    BEFORE_LABEL_COMMIT = "before-label-commit";
    /// The label is durable: the rotation is complete.
    AFTER_LABEL = "after-label";
}

points! {
    /// Every point of an import from etcd, in the order in which it passes them; the migration's
    /// own points come between [`AFTER_IMPORT`] and [`BEFORE_MARK`].
    IMPORT_POINTS[12]:
    /// The transaction that records the start of an import is not committed.
    BEFORE_IMPORT = "before-import";
    /// The start of an import is recorded; no table is made.
    AFTER_IMPORT_BEGIN = "after-import-begin";
    /// The tables are made and empty.
    AFTER_IMPORT_TABLES = "after-import-tables";
    /// The transaction of a batch of etcd's leaves is not committed.
    BEFORE_IMPORT_BATCH = "before-import-batch";
    /// A batch of etcd's leaves is committed.
    AFTER_IMPORT_BATCH = "after-import-batch";
    /// All leaves are read and in the database.
    AFTER_IMPORT_READ = "after-import-read";
    /// The imported tables have their indexes; the database has no version.
    AFTER_IMPORT_INDEXES = "after-import-indexes";
    /// The transaction that gives the database its version is not committed.
    BEFORE_IMPORT_COMMIT = "before-import-commit";
    /// The imported database has its version; it is not migrated.
    AFTER_IMPORT = "after-import";
    /// The database is migrated; etcd is not marked.
    BEFORE_MARK = "before-mark";
    /// etcd is marked; the database does not say so.
    AFTER_MARK = "after-mark";
    /// The database says that etcd is marked.
    AFTER_MARK_RECORDED = "after-mark-recorded";
}

/// Kills the process here, as a lost machine would, if `BBS_FAULT` names the point: `<point>` for
/// the first time that it is reached, `<point>:<n>` for the n-th. With `stop:` before it the
/// process is stopped with SIGSTOP instead, with `stop:<point>:each` each time.
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
    let (point, passage) = wanted.split_once(':').unwrap_or((wanted, "1"));
    let nth: Option<u64> = (passage != "each").then(|| {
        let nth = passage.parse();
        nth.expect("BBS_FAULT is <point>, <point>:<n> or <point>:each, after `stop:` or not")
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
    if nth.is_none_or(|nth| nth == passed) {
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
