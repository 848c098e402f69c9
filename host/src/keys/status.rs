//! Where each key is used, and whether one may be retired. Owns the two reports; reads only, and opens no more than the
//! few texts by which a wrong passphrase shows.

use std::collections::BTreeSet;

use serde::Serialize;

use super::count::{self, Counted};
use super::sample::{WrongKey, wrong_keys};
use super::state::{self, Underway};
use super::{KeysError, Scope};
use crate::database::Database;
use crate::record::Keyring;

/// What an operator wants to know about keys.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KeysStatus {
    /// The key that the database says everything is under. Absent while a rotation is under way.
    pub label: Option<String>,
    /// The key of the configuration that new texts are sealed with.
    pub active: String,
    /// Every key of the configuration.
    pub known: Vec<String>,
    /// Labels that are in use, or promised, and not in the configuration.
    pub unknown: Vec<String>,
    /// Keys of the configuration whose passphrase is not the one that texts under their label were sealed with.
    pub wrong: Vec<WrongKey>,
    pub rotation: Option<UnderWay>,
    /// Sealed texts by label: of each table, and of the replay files.
    pub places: Vec<Counted>,
}

/// A rotation that has begun and not been proven complete.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UnderWay {
    pub to: String,
    /// Every label that something may be under until it has ended.
    pub labels: BTreeSet<String>,
    /// Rows rewritten since it began, over all starts.
    pub rewritten: u64,
    /// On average, from its beginning to its last batch.
    pub rows_per_second: Option<f64>,
    /// How far each table is that has been begun.
    pub cursors: Vec<TableCursor>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TableCursor {
    pub table: String,
    /// The primary key of the last row that was looked at, as JSON.
    pub last_key: String,
}

/// What keeps keys from being removed while the database does not say that everything is under the active one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfinished {
    /// Labels other than the active one that texts may be under.
    pub labels: BTreeSet<String>,
    /// Rows rewritten so far, over all starts.
    pub rewritten: u64,
}

/// The rotation that has begun or is due, if texts may be under another key than the active one. Counts nothing, so it is
/// cheap.
pub async fn unfinished(database: &Database, keyring: &Keyring) -> Result<Option<Unfinished>, KeysError> {
    let mut tx = database.read().await?;
    let label = state::label(&mut tx).await?;
    let underway = state::underway(&mut tx).await?;
    drop(tx);
    let active = keyring.active_label();
    if label.as_deref() == Some(active) {
        return Ok(None);
    }
    let (labels, rewritten) = underway.map(|underway| (underway.labels, underway.rewritten)).unwrap_or_default();
    let labels: BTreeSet<_> = labels.into_iter().chain(label).filter(|label| label != active).collect();
    Ok((!labels.is_empty()).then_some(Unfinished { labels, rewritten }))
}

pub async fn status(database: &Database, keyring: &Keyring, scope: &Scope) -> Result<KeysStatus, KeysError> {
    let mut tx = database.read().await?;
    let label = state::label(&mut tx).await?;
    let underway = state::underway(&mut tx).await?;
    let cursors = state::cursors(&mut tx).await?;
    drop(tx);
    let known: Vec<_> = keyring.labels().map(str::to_owned).collect();
    let places = count::by_label(database, scope, &known).await?;
    let counted = places.iter().flat_map(|place| place.labels.keys().cloned());
    let used: BTreeSet<_> = counted.chain(label.clone()).collect();
    let cursors = cursors.into_iter().map(|cursor| TableCursor { table: cursor.table, last_key: cursor.last_key });
    Ok(KeysStatus {
        label,
        active: keyring.active_label().to_owned(),
        unknown: used.into_iter().filter(|label| !keyring.knows(label)).collect(),
        known,
        wrong: wrong_keys(database, keyring, scope).await?,
        rotation: underway.map(|underway| describe(underway, cursors.collect())),
        places,
    })
}

fn describe(underway: Underway, cursors: Vec<TableCursor>) -> UnderWay {
    let spent_ns = underway.moved_at_ns - underway.started_at_ns;
    let rate = (spent_ns > 0 && underway.rewritten > 0).then(|| underway.rewritten as f64 * 1e9 / spent_ns as f64);
    UnderWay {
        to: underway.label,
        labels: underway.labels,
        rewritten: underway.rewritten,
        rows_per_second: rate,
        cursors,
    }
}

/// Whether nothing is under a key any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verified {
    pub label: String,
    pub unused: bool,
    /// Whether it is of the configuration, or of the rotation under way. If not, there is nothing to remove.
    pub is_known: bool,
    /// Why not, each in words that say what to do.
    pub obstacles: Vec<String>,
    pub places: Vec<Counted>,
}

/// A full scan for one label. It is unused only if the scan finds nothing and the database promises another.
pub async fn verify(database: &Database, keyring: &Keyring, scope: &Scope, label: &str) -> Result<Verified, KeysError> {
    let mut expected: BTreeSet<_> = keyring.labels().map(str::to_owned).collect();
    expected.insert(label.to_owned());
    let expected: Vec<_> = expected.into_iter().collect();
    let places = count::by_label(database, scope, &expected).await?;
    // After the scan: a rotation that began meanwhile has taken the promise away.
    let mut tx = database.read().await?;
    let promised = state::label(&mut tx).await?;
    let rotated = state::underway(&mut tx).await?.is_some_and(|underway| underway.labels.contains(label));
    drop(tx);
    let wrong = wrong_keys(database, keyring, scope).await?;
    let mut obstacles: Vec<_> = wrong.iter().map(ToString::to_string).collect();
    if keyring.active_label() == label {
        obstacles.push(format!(
            "{label:?} is the active key of the configuration; make another one active and start the host"
        ));
    }
    match promised {
        Some(promised) if promised == label => obstacles.push(format!(
            "the database says that everything is under {label:?}; start a host with another active key, or run \
             `bbs keys rotate`"
        )),
        Some(_) => {}
        None => obstacles.push(
            "the database has no key label, so a rotation has not ended; `bbs keys status` shows how far it is"
                .to_owned(),
        ),
    }
    for place in &places {
        match place.under(label) {
            0 => {}
            texts => obstacles.push(format!("{}: {texts} sealed texts are under {label:?}", place.place)),
        }
        if place.nameless > 0 {
            obstacles.push(format!(
                "{}: {} texts name no key at all; they are damaged, repair or remove them",
                place.place, place.nameless
            ));
        }
    }
    let is_known = keyring.knows(label) || rotated;
    Ok(Verified { label: label.to_owned(), unused: obstacles.is_empty(), is_known, obstacles, places })
}
