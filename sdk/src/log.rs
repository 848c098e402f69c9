//! Lines for the operator's log. In a component they go to the host, which bounds them; elsewhere
//! they are kept for the thread's test to look at. A module has no other output.

/// How much a line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    Debug,
    Info,
    Warn,
}

pub fn debug(message: impl AsRef<str>) {
    write(Level::Debug, message.as_ref());
}

pub fn info(message: impl AsRef<str>) {
    write(Level::Info, message.as_ref());
}

pub fn warn(message: impl AsRef<str>) {
    write(Level::Warn, message.as_ref());
}

#[cfg(target_family = "wasm")]
mod destination {
    use std::sync::OnceLock;

    use super::Level;

    /// Each world imports a `log` of its own. Naming either here would make every component import
    /// both, so the export macro of the world says which.
    static HOST: OnceLock<fn(Level, &str)> = OnceLock::new();

    pub(crate) fn set(host: fn(Level, &str)) {
        if HOST.set(host).is_ok() {
            std::panic::set_hook(Box::new(|panic| super::warn(panic.to_string())));
        }
    }

    pub(super) fn write(level: Level, message: &str) {
        if let Some(host) = HOST.get() {
            host(level, message);
        }
    }
}

#[cfg(not(target_family = "wasm"))]
mod destination {
    use std::cell::RefCell;

    use super::Level;

    thread_local! {
        pub(super) static LINES: RefCell<Vec<(Level, String)>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) fn write(level: Level, message: &str) {
        LINES.with_borrow_mut(|lines| lines.push((level, message.to_owned())));
    }
}

#[cfg(target_family = "wasm")]
pub(crate) use destination::set as set_destination;
use destination::write;

/// The lines logged on this thread since the last call.
#[cfg(not(target_family = "wasm"))]
pub fn take() -> Vec<(Level, String)> {
    destination::LINES.take()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_sees_what_was_logged() {
        debug("one");
        warn(String::from("two"));
        info("three");
        let lines = [(Level::Debug, "one"), (Level::Warn, "two"), (Level::Info, "three")];
        assert_eq!(take(), lines.map(|(level, line)| (level, line.to_owned())));
        assert_eq!(take(), []);
    }
}
