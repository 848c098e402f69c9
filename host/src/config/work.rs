//! The keys that bound and time the work of a master: tasks and convergence. Where Diego would do nothing useful with an
//! absent key, its place is taken by what BOSH writes.

use std::time::Duration;

use super::ConfigError;
use super::keys::Keys;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tasks {
    /// How often a task may be rejected before it fails.
    pub max_retries: i32,
    /// A task that ended or is being resolved for longer is taken up again.
    pub kick: Duration,
    /// A task that waits for longer fails.
    pub expire_pending: Duration,
    /// A task that ended is forgotten after this.
    pub expire_completed: Duration,
    /// Callbacks at a time.
    pub callback_workers: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Convergence {
    /// From the end of a pass to the next.
    pub repeat_interval: Duration,
    /// What a pass does at a time.
    pub workers: usize,
    /// Containers of a desired LRP that are told of an update, at a time.
    pub update_workers: usize,
}

impl Default for Tasks {
    fn default() -> Self {
        Self {
            max_retries: 3,
            kick: Duration::from_secs(30),
            expire_pending: Duration::from_secs(1800),
            expire_completed: Duration::from_secs(120),
            callback_workers: 1000,
        }
    }
}

impl Default for Convergence {
    fn default() -> Self {
        Self { repeat_interval: Duration::from_secs(30), workers: 20, update_workers: 1000 }
    }
}

impl Tasks {
    pub(super) fn read(keys: &mut Keys) -> Result<Self, ConfigError> {
        let default = Self::default();
        Ok(Self {
            // Here zero has a meaning: the first rejection fails the task.
            max_retries: keys.take("max_task_retries")?.unwrap_or(default.max_retries),
            kick: keys.duration("kick_task_duration")?.unwrap_or(default.kick),
            expire_pending: keys.duration("expire_pending_task_duration")?.unwrap_or(default.expire_pending),
            expire_completed: keys.duration("expire_completed_task_duration")?.unwrap_or(default.expire_completed),
            callback_workers: workers(keys, "task_callback_workers", default.callback_workers)?,
        })
    }
}

impl Convergence {
    pub(super) fn read(keys: &mut Keys) -> Result<Self, ConfigError> {
        let default = Self::default();
        Ok(Self {
            repeat_interval: keys.duration("converge_repeat_interval")?.unwrap_or(default.repeat_interval),
            workers: workers(keys, "convergence_workers", default.workers)?,
            update_workers: workers(keys, "update_workers", default.update_workers)?,
        })
    }
}

fn workers(keys: &mut Keys, key: &'static str, default: usize) -> Result<usize, ConfigError> {
    Ok(keys.count(key)?.map_or(default, |count| count as usize))
}
