//! Keys that bound and schedule the master's work: tasks and convergence. An absent key is zero, as
//! in Diego, where zero has a meaning; where Diego's BBS cannot work with zero, the default is
//! BOSH's.

use std::time::Duration;

use super::keys::Keys;

/// Limits of tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tasks {
    /// How often a task may be rejected before it fails; with 0 the first rejection fails it.
    pub max_retries: i32,
    /// Age at which a completed or resolving task is processed again.
    pub kick: Duration,
    /// Age at which a pending task fails.
    pub expire_pending: Duration,
    /// Age at which a completed task is deleted.
    pub expire_completed: Duration,
    /// Concurrent callbacks.
    pub callback_workers: usize,
}

/// Schedule and concurrency of convergence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Convergence {
    /// Time from the end of one pass to the start of the next.
    pub repeat_interval: Duration,
    /// Concurrent operations of a pass.
    pub workers: usize,
    /// Concurrent requests that send an update of a desired LRP to its containers.
    pub update_workers: usize,
}

const CALLBACK_WORKERS: usize = 1000;

impl Tasks {
    /// The values that BOSH renders by default.
    pub const BOSH: Self = Self {
        max_retries: 3,
        kick: Duration::from_secs(30),
        expire_pending: Duration::from_secs(1800),
        expire_completed: Duration::from_secs(120),
        callback_workers: CALLBACK_WORKERS,
    };
}

impl Default for Tasks {
    fn default() -> Self {
        let zero = Duration::ZERO;
        Self {
            max_retries: 0,
            kick: zero,
            expire_pending: zero,
            expire_completed: zero,
            callback_workers: CALLBACK_WORKERS,
        }
    }
}

impl Default for Convergence {
    fn default() -> Self {
        Self {
            repeat_interval: Duration::from_secs(30),
            workers: 20,
            update_workers: 1000,
        }
    }
}

impl Tasks {
    pub(super) fn read(keys: &mut Keys) -> Self {
        Self {
            max_retries: keys.take("max_task_retries").unwrap_or_default(),
            kick: keys.duration_or("kick_task_duration", Duration::ZERO),
            expire_pending: keys.duration_or("expire_pending_task_duration", Duration::ZERO),
            expire_completed: keys.duration_or("expire_completed_task_duration", Duration::ZERO),
            // Diego's BBS ends at once if it is zero.
            callback_workers: workers(keys, "task_callback_workers", CALLBACK_WORKERS),
        }
    }
}

impl Convergence {
    /// With zeros, Diego's BBS converges without a pause, acts on none of its findings, and creates
    /// no instances.
    pub(super) fn read(keys: &mut Keys) -> Self {
        let default = Self::default();
        Self {
            repeat_interval: keys
                .duration("converge_repeat_interval")
                .unwrap_or(default.repeat_interval),
            workers: workers(keys, "convergence_workers", default.workers),
            update_workers: workers(keys, "update_workers", default.update_workers),
        }
    }
}

fn workers(keys: &mut Keys, key: &'static str, default: usize) -> usize {
    keys.count(key).map_or(default, |count| count as usize)
}
