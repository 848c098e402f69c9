//! Instances of one module, with one store each, because a trap poisons its whole store. Healthy instances are reused,
//! failed ones discarded. Owns the limits of a running call.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use wasmtime::{AsContextMut, ResourceLimiter, Store};

use super::call::{CallError, Stopped};
use super::limits::Limits;
use super::log::LogBudget;
use super::sandbox::Sandbox;

/// A component linked to the imports of its contract.
pub(super) trait Linked: Send + Sync {
    type Guest: Send;

    fn instantiate(&self, store: &mut Store<InstanceState>) -> wasmtime::Result<Self::Guest>;
}

/// The state of an instance's store.
pub(super) struct InstanceState {
    limits: Limits,
    pub(super) log: LogBudget,
    memory_bytes: usize,
    refused_memory_bytes: Option<usize>,
    /// When the running call has to end.
    deadline: Instant,
    next_calls: u32,
}

impl InstanceState {
    fn new(limits: &Limits, module: &Arc<str>) -> Self {
        Self {
            limits: limits.clone(),
            log: LogBudget::new(module, limits),
            memory_bytes: 0,
            refused_memory_bytes: None,
            deadline: Instant::now(),
            next_calls: 0,
        }
    }

    /// The size of memory that was denied during this call, if any.
    pub(super) fn refused_memory(&self) -> Option<usize> {
        self.refused_memory_bytes
    }
}

impl ResourceLimiter for InstanceState {
    fn memory_growing(&mut self, _current: usize, wanted: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        if wanted > self.limits.memory_bytes {
            self.refused_memory_bytes = Some(wanted);
            return Ok(false);
        }
        self.memory_bytes = wanted;
        Ok(true)
    }

    fn table_growing(&mut self, _current: usize, wanted: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        Ok(wanted <= self.limits.table_elements)
    }
}

/// Resets the deadline, the answer budget and the log budget for a call.
fn begin(store: &mut Store<InstanceState>) {
    let tenant = store.data_mut();
    tenant.deadline = Instant::now() + tenant.limits.call_time;
    tenant.refused_memory_bytes = None;
    tenant.next_calls = 0;
    tenant.log.refill();
    let (ticks, fuel) = (Sandbox::ticks(tenant.limits.call_time), tenant.limits.answer_bytes);
    store.set_epoch_deadline(ticks);
    store.set_hostcall_fuel(fuel);
}

/// Runs `work` for an import, without counting its time against the call's deadline.
///
/// # Errors
/// If the deadline has passed, or the call has called `next` too often.
pub(super) fn outside<R>(
    mut store: impl AsContextMut<Data = InstanceState>,
    work: impl FnOnce() -> R,
) -> wasmtime::Result<R> {
    let mut store = store.as_context_mut();
    let tenant = store.data_mut();
    let limits = &tenant.limits;
    let Some(left) = tenant.deadline.checked_duration_since(Instant::now()) else {
        return Err(Stopped(CallError::Overrun { limit: limits.call_time }).into());
    };
    if tenant.next_calls == limits.next_calls {
        return Err(Stopped(CallError::NextCalls { limit: limits.next_calls }).into());
    }
    tenant.next_calls += 1;
    let done = work();
    store.data_mut().deadline = Instant::now() + left;
    store.set_epoch_deadline(Sandbox::ticks(left));
    Ok(done)
}

/// The pool of instances of one module.
pub(super) struct Instances<L: Linked> {
    linked: L,
    module: Arc<str>,
    sandbox: Arc<Sandbox>,
    state: Mutex<InstancePool<L::Guest>>,
    returned: Condvar,
}

struct InstancePool<G> {
    idle: Vec<Instance<G>>,
    running: usize,
}

struct Instance<G> {
    store: Store<InstanceState>,
    guest: G,
}

impl<L: Linked> Instances<L> {
    pub(super) fn new(linked: L, module: &Arc<str>, sandbox: &Arc<Sandbox>) -> Self {
        Self {
            linked,
            module: Arc::clone(module),
            sandbox: Arc::clone(sandbox),
            state: Mutex::new(InstancePool { idle: Vec::new(), running: 0 }),
            returned: Condvar::new(),
        }
    }

    /// The largest number of concurrent instances.
    pub(super) fn most(&self) -> usize {
        self.sandbox.limits().instances
    }

    /// The number of idle instances.
    pub(super) fn idle(&self) -> usize {
        self.lock().idle.len()
    }

    /// Discards all idle instances, so that the next call starts a fresh one.
    pub(super) fn refresh(&self) {
        self.lock().idle.clear();
    }

    /// Runs one call on an exclusive instance. Returns the instance to the pool only if the call succeeded and `accept`
    /// accepted its result.
    pub(super) fn run<R>(
        &self,
        call: impl FnOnce(&L::Guest, &mut Store<InstanceState>) -> wasmtime::Result<R>,
        accept: impl FnOnce(R) -> Result<R, CallError>,
    ) -> Result<R, CallError> {
        let limits = self.sandbox.limits();
        let idle = self.take()?;
        let slot = RunningSlot(self);
        let mut instance = match idle {
            Some(instance) => instance,
            None => self.start()?,
        };
        begin(&mut instance.store);
        let answer = call(&instance.guest, &mut instance.store)
            .map_err(|error| CallError::from_wasmtime(&error, instance.store.data().refused_memory(), limits))?;
        let answer = accept(answer)?;
        if instance.store.data().memory_bytes <= limits.idle_memory_bytes {
            self.lock().idle.push(instance);
        }
        drop(slot);
        Ok(answer)
    }

    /// Waits until fewer than the largest number of instances run, then counts one more as running; returns an idle one if
    /// there is one.
    fn take(&self) -> Result<Option<Instance<L::Guest>>, CallError> {
        let limits = self.sandbox.limits();
        let (mut state, wait) = self
            .returned
            .wait_timeout_while(self.lock(), limits.instance_wait, |state| state.running >= limits.instances)
            .unwrap_or_else(PoisonError::into_inner);
        if wait.timed_out() {
            return Err(CallError::Busy { instances: limits.instances, waited: limits.instance_wait });
        }
        state.running += 1;
        Ok(state.idle.pop())
    }

    fn start(&self) -> Result<Instance<L::Guest>, CallError> {
        let limits = self.sandbox.limits();
        let mut store = Store::new(self.sandbox.engine(), InstanceState::new(limits, &self.module));
        store.limiter(|tenant| tenant);
        // A start function runs under the same limits.
        begin(&mut store);
        let guest = self.linked.instantiate(&mut store).map_err(|error| {
            match CallError::from_wasmtime(&error, store.data().refused_memory(), limits) {
                CallError::Flaw { flaw } => CallError::Start { reason: flaw },
                bounded => bounded,
            }
        })?;
        Ok(Instance { store, guest })
    }

    fn lock(&self) -> MutexGuard<'_, InstancePool<L::Guest>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running instance, counted until this is dropped.
struct RunningSlot<'a, L: Linked>(&'a Instances<L>);

impl<L: Linked> Drop for RunningSlot<'_, L> {
    fn drop(&mut self) {
        self.0.lock().running -= 1;
        self.0.returned.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instance_grows_up_to_its_limits_only() {
        let limits = Limits { memory_bytes: 100, table_elements: 10, ..Limits::default() };
        let mut tenant = InstanceState::new(&limits, &"a module".into());
        assert!(tenant.memory_growing(0, 100, None).unwrap());
        assert_eq!((tenant.memory_bytes, tenant.refused_memory()), (100, None));
        assert!(!tenant.memory_growing(100, 101, None).unwrap());
        assert_eq!((tenant.memory_bytes, tenant.refused_memory()), (100, Some(101)));
        assert!(tenant.table_growing(0, 10, None).unwrap());
        assert!(!tenant.table_growing(10, 11, None).unwrap());
    }
}
