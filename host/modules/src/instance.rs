//! Instances of one module, with one store each, because a trap poisons its whole store. Healthy
//! instances are reused, failed ones discarded. Owns the state and the limits of an instance; a
//! call that may wait for another one is in [`super::running`].

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use wasmtime::{ResourceLimiter, Store, UpdateDeadline};

use super::call::CallError;
use super::exchange::Exchange;
use super::limits::Limits;
use super::log::{LogBudget, ModuleLog};
use super::memory::{MemoryShare, TranslatorMemory};
use super::sandbox::{CallClock, Sandbox, Ticking};

/// A component linked to the imports of its contract.
pub(super) trait Linked: Send + Sync {
    type Guest: Send;
}

/// A component whose calls never wait for anything outside of it.
pub(super) trait LinkedBlocking: Linked {
    fn instantiate(&self, store: &mut Store<InstanceState>) -> wasmtime::Result<Self::Guest>;
}

/// The state of an instance's store.
pub(super) struct InstanceState {
    limits: Limits,
    pub(super) log: LogBudget,
    memory: MemoryShare,
    /// Set if memory was denied during this call.
    refused_memory: Option<CallError>,
    /// That of the running call; never used by a call that does not wait.
    pub(super) exchange: Arc<Exchange>,
    /// When a call that does not wait has used up its time, by the clock of calls of its thread.
    call_end: Duration,
}

impl InstanceState {
    fn new(limits: &Limits, log: &Arc<ModuleLog>, memory: MemoryShare) -> Self {
        Self {
            limits: limits.clone(),
            log: LogBudget::new(log, limits),
            memory,
            refused_memory: None,
            exchange: Arc::default(),
            call_end: Duration::ZERO,
        }
    }
}

impl ResourceLimiter for InstanceState {
    fn memory_growing(
        &mut self,
        _current: usize,
        wanted: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        self.refused_memory = if wanted > self.limits.memory_bytes {
            Some(CallError::Memory {
                wanted,
                limit: self.limits.memory_bytes,
            })
        } else if !self.memory.grow_to(wanted) {
            Some(CallError::SharedMemory {
                wanted,
                limit: self.limits.translator_memory_bytes,
            })
        } else {
            return Ok(true);
        };
        Ok(false)
    }

    fn table_growing(
        &mut self,
        _current: usize,
        wanted: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(wanted <= self.limits.table_elements)
    }
}

/// Resets the budgets of an instance for a call that is looked at after `ticks` of the epoch.
pub(super) fn begin(store: &mut Store<InstanceState>, ticks: u64, answer_bytes: usize) {
    let state = store.data_mut();
    state.refused_memory = None;
    state.log.refill();
    store.set_epoch_deadline(ticks);
    store.set_hostcall_fuel(answer_bytes);
}

/// The pool of instances of one module.
pub(super) struct Instances<L: Linked> {
    pub(super) linked: Arc<L>,
    log: Arc<ModuleLog>,
    pub(super) sandbox: Arc<Sandbox>,
    /// The memory of a translator; `None` for a module whose instances share none.
    memory: Option<Arc<TranslatorMemory>>,
    state: Mutex<InstancePool<L::Guest>>,
    returned: Condvar,
}

struct InstancePool<G> {
    /// Shared by the pools of one component: an event stream from before a reload keeps its pool
    /// for as long as it lasts, and would keep other idle instances with it.
    idle: Arc<Mutex<Vec<Instance<G>>>>,
    running: usize,
}

pub(super) struct Instance<G> {
    pub(super) store: Store<InstanceState>,
    pub(super) guest: G,
}

impl<L: Linked> Instances<L> {
    pub(super) fn new(
        linked: L,
        module: &Arc<str>,
        sandbox: &Arc<Sandbox>,
        memory: Option<Arc<TranslatorMemory>>,
    ) -> Self {
        Self {
            linked: Arc::new(linked),
            log: ModuleLog::new(module),
            sandbox: Arc::clone(sandbox),
            memory,
            state: Mutex::new(InstancePool {
                idle: Arc::default(),
                running: 0,
            }),
            returned: Condvar::new(),
        }
    }

    /// A pool of the same component with its own limit of running instances: the calls of one pool
    /// take none from those of the other. Compiles nothing.
    pub(super) fn another_pool(&self) -> Self {
        Self {
            linked: Arc::clone(&self.linked),
            log: Arc::clone(&self.log),
            sandbox: Arc::clone(&self.sandbox),
            memory: self.memory.clone(),
            state: Mutex::new(InstancePool {
                idle: Arc::clone(&self.state.lock().idle),
                running: 0,
            }),
            returned: Condvar::new(),
        }
    }

    /// The log of all instances.
    pub(super) fn log(&self) -> &ModuleLog {
        &self.log
    }

    /// The largest number of concurrent instances.
    pub(super) fn most(&self) -> usize {
        self.sandbox.limits().instances
    }

    /// The longest time of one call, by [`Self::clock`].
    pub(super) fn call_time(&self) -> Duration {
        self.sandbox.limits().call_time
    }

    pub(super) fn clock(&self) -> &CallClock {
        self.sandbox.clock()
    }

    /// The number of idle instances.
    pub(super) fn idle(&self) -> usize {
        self.state.lock().idle.lock().len()
    }

    /// Discards all idle instances, so that the next call starts a fresh one.
    pub(super) fn refresh(&self) {
        self.state.lock().idle.lock().clear();
    }

    /// Waits until fewer than the largest number of instances run, then counts one more as running.
    ///
    /// # Errors
    /// [`CallError::Busy`] if that takes longer than `wait`.
    pub(super) fn take_slot(&self, wait: Duration) -> Result<RunningSlot<'_, L>, CallError> {
        let most = self.most();
        let mut state = self.state.lock();
        self.returned
            .wait_while_for(&mut state, |state| state.running >= most, wait);
        if state.running >= most {
            return Err(CallError::Busy { instances: most });
        }
        state.running += 1;
        let idle = state.idle.lock().pop();
        Ok(RunningSlot {
            pool: self,
            idle,
            _ticking: self.sandbox.ticking(),
        })
    }

    /// A store for a new instance. A start function runs under the same limits as a call.
    pub(super) fn store(&self) -> Store<InstanceState> {
        let limits = self.sandbox.limits();
        let memory = self.memory.as_ref().map(TranslatorMemory::share);
        let memory = memory.unwrap_or_default();
        let mut store = Store::new(
            self.sandbox.engine(),
            InstanceState::new(limits, &self.log, memory),
        );
        store.limiter(|state| state);
        store
    }

    /// The error of a failed call.
    pub(super) fn call_failed(
        &self,
        store: &Store<InstanceState>,
        error: &wasmtime::Error,
    ) -> CallError {
        let state = store.data();
        CallError::from_wasmtime(
            error,
            state.refused_memory.as_ref(),
            state.log.last_warning(),
            self.sandbox.limits(),
        )
    }

    /// The error of an instance that could not be started.
    pub(super) fn not_started(
        &self,
        store: &Store<InstanceState>,
        error: &wasmtime::Error,
    ) -> CallError {
        match self.call_failed(store, error) {
            CallError::Flaw { flaw } => CallError::Start { reason: flaw },
            bounded => bounded,
        }
    }
}

impl<L: LinkedBlocking> Instances<L> {
    /// Runs one call on an exclusive instance. Returns the instance to the pool only if the call
    /// succeeded and `accept` accepted its result. Blocks.
    pub(super) fn run<R>(
        &self,
        call: impl FnOnce(&L::Guest, &mut Store<InstanceState>) -> wasmtime::Result<R>,
        accept: impl FnOnce(R) -> Result<R, CallError>,
    ) -> Result<R, CallError> {
        self.run_within(self.sandbox.limits().answer_bytes, call, accept)
    }

    /// Runs `describe`, whose result is smaller than that of other calls. Blocks.
    pub(super) fn describe<R>(
        &self,
        call: impl FnOnce(&L::Guest, &mut Store<InstanceState>) -> wasmtime::Result<R>,
    ) -> Result<R, CallError> {
        let limit = self.sandbox.limits().manifest_bytes;
        self.run_within(limit, call, Ok)
            .map_err(|error| error.of_manifest(limit))
    }

    fn run_within<R>(
        &self,
        answer_bytes: usize,
        call: impl FnOnce(&L::Guest, &mut Store<InstanceState>) -> wasmtime::Result<R>,
        accept: impl FnOnce(R) -> Result<R, CallError>,
    ) -> Result<R, CallError> {
        let limits = self.sandbox.limits();
        let mut slot = self.take_slot(limits.instance_wait)?;
        let mut instance = match slot.idle.take() {
            Some(instance) => instance,
            None => self.start()?,
        };
        self.begin(&mut instance.store, answer_bytes);
        let answer = call(&instance.guest, &mut instance.store)
            .map_err(|error| self.call_failed(&instance.store, &error))?;
        let answer = accept(answer)?;
        slot.give_back(instance);
        Ok(answer)
    }

    /// Begins a call that has its time from now on, on this thread.
    fn begin(&self, store: &mut Store<InstanceState>, answer_bytes: usize) {
        let time = self.call_time();
        store.data_mut().call_end = self.clock().now() + time;
        begin(store, Sandbox::ticks(time), answer_bytes);
    }

    fn start(&self) -> Result<Instance<L::Guest>, CallError> {
        let mut store = self.store();
        let clock = self.clock().clone();
        store.epoch_deadline_callback(move |store| {
            let left = store.data().call_end.saturating_sub(clock.now());
            Ok(if left.is_zero() {
                UpdateDeadline::Interrupt
            } else {
                UpdateDeadline::Continue(Sandbox::ticks(left))
            })
        });
        self.begin(&mut store, self.sandbox.limits().answer_bytes);
        let guest = self
            .linked
            .instantiate(&mut store)
            .map_err(|error| self.not_started(&store, &error))?;
        Ok(Instance { store, guest })
    }
}

/// The right to run one instance, until this is dropped.
pub(super) struct RunningSlot<'a, L: Linked> {
    pool: &'a Instances<L>,
    /// An instance that has run before.
    pub(super) idle: Option<Instance<L::Guest>>,
    _ticking: Ticking<'a>,
}

impl<L: Linked> RunningSlot<'_, L> {
    /// Returns a healthy instance to the pool, unless it keeps too much memory, or as many are idle
    /// as a pool may run.
    pub(super) fn give_back(self, instance: Instance<L::Guest>) {
        if instance
            .store
            .data()
            .memory
            .may_idle(self.pool.sandbox.limits().idle_memory_bytes)
        {
            let state = self.pool.state.lock();
            let mut idle = state.idle.lock();
            if idle.len() < self.pool.most() {
                idle.push(instance);
            }
        }
    }
}

impl<L: Linked> Drop for RunningSlot<'_, L> {
    fn drop(&mut self) {
        self.pool.state.lock().running -= 1;
        self.pool.returned.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instance_grows_up_to_its_limits_only() {
        let limits = Limits {
            memory_bytes: 100,
            table_elements: 10,
            ..Limits::default()
        };
        let mut state = InstanceState::new(
            &limits,
            &ModuleLog::new(&"a module".into()),
            MemoryShare::default(),
        );
        assert!(state.memory_growing(0, 100, None).unwrap());
        assert_eq!(state.refused_memory, None);
        assert!(!state.memory_growing(100, 101, None).unwrap());
        assert_eq!(
            state.refused_memory,
            Some(CallError::Memory {
                wanted: 101,
                limit: 100
            })
        );
        assert!(state.table_growing(0, 10, None).unwrap());
        assert!(!state.table_growing(10, 11, None).unwrap());
    }
}
