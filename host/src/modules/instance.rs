//! Instances of one module: one store each, because a trap poisons its whole store; kept for the next call while
//! they are healthy, thrown away as soon as they are not. Owns the bounds of a running call.

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

    fn instantiate(&self, store: &mut Store<Tenant>) -> wasmtime::Result<Self::Guest>;
}

/// What the host knows of an instance while it runs.
pub(super) struct Tenant {
    limits: Limits,
    pub(super) log: LogBudget,
    memory_bytes: usize,
    refused_memory_bytes: Option<usize>,
    /// When the running call is over.
    deadline: Instant,
    next_calls: u32,
}

impl Tenant {
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

    /// The memory it asked for in vain during this call.
    pub(super) fn refused_memory(&self) -> Option<usize> {
        self.refused_memory_bytes
    }
}

impl ResourceLimiter for Tenant {
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

/// Begins a call: a full deadline, a full log.
fn begin(store: &mut Store<Tenant>) {
    let tenant = store.data_mut();
    tenant.deadline = Instant::now() + tenant.limits.call_time;
    tenant.refused_memory_bytes = None;
    tenant.next_calls = 0;
    tenant.log.refill();
    let (ticks, fuel) = (Sandbox::ticks(tenant.limits.call_time), tenant.limits.answer_bytes);
    store.set_epoch_deadline(ticks);
    store.set_hostcall_fuel(fuel);
}

/// Runs `work` for a guest that called out, without counting the time against its deadline.
pub(super) fn outside<R>(mut store: impl AsContextMut<Data = Tenant>, work: impl FnOnce() -> R) -> wasmtime::Result<R> {
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

/// The instances of one module.
pub(super) struct Instances<L: Linked> {
    linked: L,
    module: Arc<str>,
    sandbox: Arc<Sandbox>,
    state: Mutex<State<L::Guest>>,
    returned: Condvar,
}

struct State<G> {
    idle: Vec<Instance<G>>,
    running: usize,
}

struct Instance<G> {
    store: Store<Tenant>,
    guest: G,
}

impl<L: Linked> Instances<L> {
    pub(super) fn new(linked: L, module: &Arc<str>, sandbox: &Arc<Sandbox>) -> Self {
        Self {
            linked,
            module: Arc::clone(module),
            sandbox: Arc::clone(sandbox),
            state: Mutex::new(State { idle: Vec::new(), running: 0 }),
            returned: Condvar::new(),
        }
    }

    /// Instances that there may be at once.
    pub(super) fn most(&self) -> usize {
        self.sandbox.limits().instances
    }

    /// Instances that wait for a call.
    pub(super) fn idle(&self) -> usize {
        self.lock().idle.len()
    }

    /// Throws away every instance that waits, so that the next call has a fresh one.
    pub(super) fn refresh(&self) {
        self.lock().idle.clear();
    }

    /// Runs one call on an instance of its own. The instance lives on only if the call came back and `accept`
    /// takes the answer.
    pub(super) fn run<R>(
        &self,
        call: impl FnOnce(&L::Guest, &mut Store<Tenant>) -> wasmtime::Result<R>,
        accept: impl FnOnce(R) -> Result<R, CallError>,
    ) -> Result<R, CallError> {
        let limits = self.sandbox.limits();
        let waiting = self.take()?;
        let place = Place(self);
        let mut instance = match waiting {
            Some(instance) => instance,
            None => self.start()?,
        };
        begin(&mut instance.store);
        let answer = call(&instance.guest, &mut instance.store)
            .map_err(|error| CallError::from_wasmtime(&error, instance.store.data(), limits))?;
        let answer = accept(answer)?;
        if instance.store.data().memory_bytes <= limits.idle_memory_bytes {
            self.lock().idle.push(instance);
        }
        drop(place);
        Ok(answer)
    }

    /// Waits for a place among the running, and takes an idle instance if there is one.
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
        let mut store = Store::new(self.sandbox.engine(), Tenant::new(limits, &self.module));
        store.limiter(|tenant| tenant);
        // A start function runs under the same bounds as any other.
        begin(&mut store);
        let guest = self.linked.instantiate(&mut store).map_err(|error| {
            match CallError::from_wasmtime(&error, store.data(), limits) {
                CallError::Flaw { flaw } => CallError::Start { reason: flaw },
                bounded => bounded,
            }
        })?;
        Ok(Instance { store, guest })
    }

    fn lock(&self) -> MutexGuard<'_, State<L::Guest>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place among the running instances, given back however the call ends.
struct Place<'a, L: Linked>(&'a Instances<L>);

impl<L: Linked> Drop for Place<'_, L> {
    fn drop(&mut self) {
        self.0.lock().running -= 1;
        self.0.returned.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_grows_up_to_its_limits_and_not_beyond() {
        let limits = Limits { memory_bytes: 100, table_elements: 10, ..Limits::default() };
        let mut tenant = Tenant::new(&limits, &"a module".into());
        assert!(tenant.memory_growing(0, 100, None).unwrap());
        assert_eq!((tenant.memory_bytes, tenant.refused_memory()), (100, None));
        assert!(!tenant.memory_growing(100, 101, None).unwrap());
        assert_eq!((tenant.memory_bytes, tenant.refused_memory()), (100, Some(101)));
        assert!(tenant.table_growing(0, 10, None).unwrap());
        assert!(!tenant.table_growing(10, 11, None).unwrap());
    }
}
