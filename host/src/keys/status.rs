//! The reports of `bbs keys status` and `bbs keys verify`: where each key is used, and whether one
//! may be removed. Reads only, and decrypts only the sample that detects wrong passphrases, and
//! the entries of the quarantine.

use std::collections::BTreeSet;

use bbs_database::Database;
use bbs_encryption::{Keyring, LONGEST_LABEL};
use serde::Serialize;

use super::count;
use super::sample::{WrongKey, wrong_keys};
use super::state::{self, RotationState, TableCursor};
use super::{INSIDE_QUARANTINE, KeysError, LabelCounts, SealedScope};

/// The state of the keys, for operators.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KeysStatus {
    /// The label in the database, whose key everything is sealed under, but for rows that a
    /// rotation by Diego's BBS has left out. Absent during a rotation.
    pub label: Option<String>,
    /// The label of the active key, under which new texts are sealed.
    pub active: String,
    /// The labels of all configured keys.
    pub known: Vec<String>,
    /// Labels that texts or the database's label name and that are not configured.
    pub unknown: Vec<String>,
    /// Configured keys with another passphrase than the texts under their label were sealed with.
    pub wrong: Vec<WrongKey>,
    /// The rotation that is under way.
    pub rotation: Option<RotationStatus>,
    /// Counts of sealed texts by label, for each table, and for values inside the quarantine.
    pub places: Vec<LabelCounts>,
}

/// A rotation that has begun and is not complete.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RotationStatus {
    /// The label of the new key.
    pub to: String,
    /// The labels that texts may be under until it is complete.
    pub labels: BTreeSet<String>,
    /// Rows rewritten since it began, across restarts.
    pub rewritten: u64,
    /// The average rate from its beginning to its last batch.
    pub rows_per_second: Option<f64>,
    /// The position in each table that has been begun.
    pub cursors: Vec<TableCursor>,
}

/// An incomplete rotation, until which other keys than the active one must stay configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfinished {
    /// Labels other than the active one that texts may be under.
    pub labels: BTreeSet<String>,
    /// Rows rewritten so far, across restarts.
    pub rewritten: u64,
}

/// The rotation that has begun or is due, if texts may be under other keys than the active one.
/// Cheap: scans nothing.
pub async fn unfinished(
    database: &Database,
    keyring: &Keyring,
) -> Result<Option<Unfinished>, KeysError> {
    let mut tx = database.read().await?;
    let label = state::label(&mut tx).await?;
    let underway = state::underway(&mut tx).await?;
    drop(tx);
    let active = keyring.active_label();
    if label.as_deref() == Some(active) {
        return Ok(None);
    }
    let (labels, rewritten) = underway
        .map(|underway| (underway.labels, underway.rewritten))
        .unwrap_or_default();
    let labels: BTreeSet<_> = labels
        .into_iter()
        .chain(label)
        .filter(|label| label != active)
        .collect();
    Ok((!labels.is_empty()).then_some(Unfinished { labels, rewritten }))
}

/// Reports the state of the keys. Scans every sealed table.
pub async fn status(
    database: &Database,
    keyring: &Keyring,
    scope: &SealedScope,
) -> Result<KeysStatus, KeysError> {
    let mut tx = database.read().await?;
    let label = state::label(&mut tx).await?;
    let underway = state::underway(&mut tx).await?;
    let cursors = state::cursors(&mut tx).await?;
    drop(tx);
    let known: Vec<_> = keyring.labels().map(str::to_owned).collect();
    let mut places = count::by_label(database, keyring, scope, &[]).await?;
    places.extend(count::inside_quarantine(database, keyring).await?.place);
    let counted = places.iter().flat_map(|place| place.labels.keys().cloned());
    let used: BTreeSet<_> = counted.chain(label.clone()).collect();
    // With a label, the recorded rotation is over: Diego's BBS has written it, and not deleted the
    // record.
    let rotation = underway
        .filter(|_| label.is_none())
        .map(|underway| describe(underway, cursors));
    Ok(KeysStatus {
        label,
        active: keyring.active_label().to_owned(),
        unknown: used
            .into_iter()
            .filter(|label| !keyring.contains(label))
            .collect(),
        known,
        wrong: wrong_keys(database, keyring, scope).await?,
        rotation,
        places,
    })
}

fn describe(underway: RotationState, cursors: Vec<TableCursor>) -> RotationStatus {
    let spent_ns = underway.moved_at_ns - underway.started_at_ns;
    let rate = (spent_ns > 0 && underway.rewritten > 0)
        .then(|| underway.rewritten as f64 * 1e9 / spent_ns as f64);
    RotationStatus {
        to: underway.label,
        labels: underway.labels,
        rewritten: underway.rewritten,
        rows_per_second: rate,
        cursors,
    }
}

/// The result of a scan for texts under a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verified {
    pub label: String,
    /// Whether the key may be removed.
    pub unused: bool,
    /// Whether the label is that of a configured key or of the rotation under way.
    pub is_known: bool,
    /// Why the key may not be removed, each with what to do.
    pub obstacles: Vec<String>,
    /// Counts of sealed texts by label, for each table, and for values inside the quarantine.
    pub places: Vec<LabelCounts>,
}

/// Scans everything for texts under a label. The key is unused only if there are none and the
/// database has the label of another key.
///
/// # Errors
/// If no key can have the label, or the database cannot be read.
pub async fn verify(
    database: &Database,
    keyring: &Keyring,
    scope: &SealedScope,
    label: &str,
) -> Result<Verified, KeysError> {
    let bytes = label.len();
    if bytes > LONGEST_LABEL {
        return Err(KeysError::LongLabel { bytes });
    }
    let mut places = count::by_label(database, keyring, scope, &[label.to_owned()]).await?;
    let quarantined = count::inside_quarantine(database, keyring).await?;
    places.extend(quarantined.place);
    // Read after the scan, so that a rotation that began during the scan is noticed: it has deleted
    // the label.
    let mut tx = database.read().await?;
    let label_in_database = state::label(&mut tx).await?;
    let rotated = state::underway(&mut tx)
        .await?
        .is_some_and(|underway| underway.labels.contains(label));
    drop(tx);
    let wrong = wrong_keys(database, keyring, scope).await?;
    let mut obstacles: Vec<_> = wrong.iter().map(ToString::to_string).collect();
    if keyring.active_label() == label {
        obstacles.push(format!(
            "{label:?} is the active key of the configuration; make another one active and start the host"
        ));
    }
    let mut advice = "";
    match label_in_database {
        Some(label_in_database) if label_in_database == label => obstacles.push(format!(
            "everything is sealed under {label:?} according to the database; start a host with another active key, or run \
             `bbs keys rotate`"
        )),
        Some(_) if !keyring.contains(label) => {
            advice = "; put its key back into `encryption_keys`, and run `bbs keys rotate` while no host serves";
        }
        Some(_) if keyring.active_label() != label => {
            advice = "; `bbs keys rotate` re-seals them while no host serves";
        }
        Some(_) => {}
        None => obstacles.push(
            "the database has no key label, so a rotation is incomplete; `bbs keys status` shows its progress"
                .to_owned(),
        ),
    }
    for place in &places {
        obstacles.extend(obstacles_in(place, label, advice));
    }
    if quarantined.unopened_entries > 0 {
        obstacles.push(format!(
            "{INSIDE_QUARANTINE}: {} entries do not open, and may have texts under {label:?}; put their keys back into \
             `encryption_keys`, or give them up by `bbs migrate quarantine delete`",
            quarantined.unopened_entries
        ));
    }
    let is_known = keyring.contains(label) || rotated;
    Ok(Verified {
        label: label.to_owned(),
        unused: obstacles.is_empty(),
        is_known,
        obstacles,
        places,
    })
}

/// Why the texts in a place do not let a key be removed; `advice` says what to do about those under
/// its label.
fn obstacles_in(place: &LabelCounts, label: &str, advice: &str) -> Vec<String> {
    let mut obstacles = Vec::new();
    let name = &place.place;
    match place.under(label) {
        0 => {}
        texts => obstacles.push(format!(
            "{name}: {texts} sealed texts are under {label:?}{advice}"
        )),
    }
    if place.nameless > 0 {
        obstacles.push(format!(
            "{name}: {} texts are damaged and have no key label; repair or remove them",
            place.nameless
        ));
    }
    obstacles
}
