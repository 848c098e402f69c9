//! Trees of actions: downloads before an action, and timeouts in two units.

use bbs_proto::fields::action::{
    CODEPENDENT_ACTION as CODEPENDENT, DOWNLOAD_ACTION as DOWNLOAD,
    EMIT_PROGRESS_ACTION as EMIT_PROGRESS, PARALLEL_ACTION as PARALLEL, SERIAL_ACTION as SERIAL,
    TIMEOUT_ACTION as TIMEOUT, TRY_ACTION as TRY,
};
use bbs_proto::fields::serial_action;
use bbs_proto::fields::timeout_action::{DEPRECATED_TIMEOUT_NS, TIMEOUT_MS};
use bbs_proto::models::{CachedDependency, DownloadAction};
use bbs_sdk::wire::{self, Field, Value, WireError};
use prost::Message;

/// The field of the actions inside another one, in all alternatives that have some.
const ACTIONS: u32 = serial_action::ACTIONS;

const NS_PER_MS: i64 = 1_000_000;

/// Field numbers of a message with files that are downloaded before an action.
#[derive(Debug, Clone, Copy)]
pub struct Downloaded {
    /// The files, such as image layers.
    pub files: u32,
    /// What they are downloaded before.
    pub action: u32,
    /// The user that they belong to.
    pub legacy_download_user: u32,
}

/// What of a message its downloads are made from.
#[derive(Debug)]
pub struct ToDownload<'a, M> {
    /// In the order of the message.
    pub files: Vec<M>,
    /// What follows the downloads.
    pub action: Option<&'a [u8]>,
    /// Empty without one.
    pub user: &'a [u8],
}

impl Downloaded {
    /// Reads the fields of a message.
    ///
    /// # Errors
    /// If the message or one of its files cannot be parsed.
    pub fn read<M: Message + Default>(
        self,
        message: &[u8],
    ) -> Result<ToDownload<'_, M>, WireError> {
        let (mut files, mut action, mut user) = (Vec::new(), None, &b""[..]);
        for field in wire::fields(message) {
            let field = field?;
            if field.number == self.files {
                // Files have only numbers and text, which are bytes here: what can be parsed can be
                // decoded.
                files.push(
                    M::decode(field.bytes()?).or(Err(WireError::Truncated { at: field.at }))?,
                );
            } else if field.number == self.action {
                action = Some(field.bytes()?);
            } else if field.number == self.legacy_download_user {
                user = field.bytes()?;
            }
        }
        Ok(ToDownload {
            files,
            action,
            user,
        })
    }
}

/// Cached dependencies as downloads before the action, without their checksums, as Diego's BBS did
/// it. `None` if there are none.
///
/// # Errors
/// If the message cannot be parsed.
pub fn with_dependencies_as_downloads(
    message: &[u8],
    numbers: Downloaded,
) -> Result<Option<Vec<u8>>, WireError> {
    let ToDownload {
        files: dependencies,
        action,
        user,
    } = numbers.read::<CachedDependency>(message)?;
    if dependencies.is_empty() {
        return Ok(None);
    }
    let download = |dependency: CachedDependency| DownloadAction {
        artifact: dependency.name,
        from: dependency.from,
        to: dependency.to,
        cache_key: dependency.cache_key,
        log_source: dependency.log_source,
        user: user.to_vec(),
        ..Default::default()
    };
    let downloads: Vec<_> = dependencies.into_iter().map(download).collect();
    let action = serial(parallel_downloads(&downloads), action)?;
    let rest = wire::remove(message, numbers.files)?;
    wire::replace(&rest, numbers.action, Value::Bytes(&action)).map(Some)
}

/// The downloads in parallel. Not empty.
pub fn parallel_downloads(downloads: &[DownloadAction]) -> Vec<u8> {
    let downloads = downloads
        .iter()
        .map(|download| wrapped(DOWNLOAD, &download.encode_to_vec()));
    wrapped(PARALLEL, &actions(downloads))
}

/// The first action, and then the other one if there is one: of that, the alternative with the
/// lowest number alone, as Diego's BBS unwraps it.
///
/// # Errors
/// If the other action cannot be parsed.
pub fn serial(first: Vec<u8>, then: Option<&[u8]>) -> Result<Vec<u8>, WireError> {
    let then = then.map(first_alternative).transpose()?;
    Ok(wrapped(SERIAL, &actions([first].into_iter().chain(then))))
}

fn first_alternative(action: &[u8]) -> Result<Vec<u8>, WireError> {
    Ok(lowest_alternative(action)?.map_or_else(Vec::new, |first| first.raw.to_vec()))
}

fn lowest_alternative(action: &[u8]) -> Result<Option<Field<'_>>, WireError> {
    let mut first: Option<Field<'_>> = None;
    for field in wire::fields(action) {
        let field = field?;
        if (DOWNLOAD..=CODEPENDENT).contains(&field.number)
            && first.is_none_or(|first| field.number <= first.number)
        {
            first = Some(field);
        }
    }
    Ok(first)
}

/// Writes each timeout in nanoseconds too, for readers that know no other unit. A timeout inside a
/// timeout stays as it is, as in Diego's BBS. `None` if the action has no timeout.
///
/// # Errors
/// If the action cannot be parsed.
pub fn with_timeouts_in_ns(action: &[u8]) -> Result<Option<Vec<u8>>, WireError> {
    edit_timeouts(action, &in_ns)
}

/// The same, and what is to be tried or reported on instead of the wrappers that say so, as Diego's
/// event streams lose them. Of an action with several alternatives the one with the lowest number
/// alone. `None` if the action stays as it is.
///
/// # Errors
/// If the action cannot be parsed.
pub fn unwrapped_with_timeouts_in_ns(action: &[u8]) -> Result<Option<Vec<u8>>, WireError> {
    let Some(first) = lowest_alternative(action)? else {
        return Ok(None);
    };
    let content = first.bytes()?;
    let edited = match first.number {
        EMIT_PROGRESS | TRY => {
            let inner = wire::get_bytes(content, ACTIONS)?;
            return Ok(Some(
                unwrapped_with_timeouts_in_ns(inner)?.unwrap_or_else(|| inner.to_vec()),
            ));
        }
        TIMEOUT => in_ns(content)?,
        PARALLEL..=CODEPENDENT => edit_actions(content, &unwrapped_with_timeouts_in_ns)?,
        _ => return Ok(None),
    };
    Ok(Some(wrapped(
        first.number,
        edited.as_deref().unwrap_or(content),
    )))
}

fn in_ns(timeout: &[u8]) -> Result<Option<Vec<u8>>, WireError> {
    let timeout_ns = (wire::get_varint(timeout, TIMEOUT_MS)? as i64).wrapping_mul(NS_PER_MS);
    wire::replace(
        timeout,
        DEPRECATED_TIMEOUT_NS,
        Value::Varint(timeout_ns as u64),
    )
    .map(Some)
}

/// Writes each timeout that is in nanoseconds in milliseconds too, rounded down. Also inside of
/// other timeouts, where Diego's BBS left it at 0 and rejected the action. `None` if the action has
/// no timeout in nanoseconds.
///
/// # Errors
/// If the action cannot be parsed.
pub fn with_timeouts_in_ms(action: &[u8]) -> Result<Option<Vec<u8>>, WireError> {
    edit_timeouts(action, &|timeout| {
        let inner = edit_actions(timeout, &with_timeouts_in_ms)?;
        let timeout_ns = wire::get_varint(timeout, DEPRECATED_TIMEOUT_NS)? as i64;
        if timeout_ns == 0 {
            return Ok(inner);
        }
        let timeout_ms = Value::Varint((timeout_ns / NS_PER_MS) as u64);
        wire::replace(inner.as_deref().unwrap_or(timeout), TIMEOUT_MS, timeout_ms).map(Some)
    })
}

type Edit<'a> = &'a dyn Fn(&[u8]) -> Result<Option<Vec<u8>>, WireError>;

/// Edits the outermost timeouts.
fn edit_timeouts(action: &[u8], edit: Edit<'_>) -> Result<Option<Vec<u8>>, WireError> {
    wire::edit(action, |field| match field.number {
        TIMEOUT => edit(field.bytes()?),
        EMIT_PROGRESS..=CODEPENDENT => {
            edit_actions(field.bytes()?, &|action| edit_timeouts(action, edit))
        }
        _ => Ok(None),
    })
}

/// Edits the actions inside an alternative.
fn edit_actions(alternative: &[u8], edit: Edit<'_>) -> Result<Option<Vec<u8>>, WireError> {
    wire::edit(alternative, |field| {
        if field.number == ACTIONS {
            edit(field.bytes()?)
        } else {
            Ok(None)
        }
    })
}

fn actions(actions: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    actions.into_iter().fold(Vec::new(), |mut all, action| {
        wire::append(&mut all, ACTIONS, Value::Bytes(&action));
        all
    })
}

fn wrapped(number: u32, content: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(content.len() + 6);
    wire::append(&mut message, number, Value::Bytes(content));
    message
}
