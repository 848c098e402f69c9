//! Log lines for the operator. In a component they go to the host, which limits them; elsewhere
//! they are stored for the thread's test to [`take`]. A module has no other output.

/// The severity of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Details for debugging.
    Debug,
    /// Normal operation.
    Info,
    /// Something that an operator should look at.
    Warn,
}

/// Logs a line with [`Level::Debug`].
pub fn debug(message: impl AsRef<str>) {
    write(Level::Debug, message.as_ref());
}

/// Logs a line with [`Level::Info`].
pub fn info(message: impl AsRef<str>) {
    write(Level::Info, message.as_ref());
}

/// Logs a line with [`Level::Warn`].
pub fn warn(message: impl AsRef<str>) {
    write(Level::Warn, message.as_ref());
}

#[cfg(target_family = "wasm")]
mod destination {
    use std::sync::OnceLock;

    use super::Level;

    /// The `log` import of the component's world, set by the export macro. Naming either world's
    /// import here would make every component import both.
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

/// Returns the lines logged on this thread since the last call.
#[cfg(not(target_family = "wasm"))]
pub fn take() -> Vec<(Level, String)> {
    destination::LINES.take()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn take_returns_the_logged_lines() {
        debug("one");
        warn(String::from("two"));
        info("three");
        let lines = [
            (Level::Debug, "one"),
            (Level::Warn, "two"),
            (Level::Info, "three"),
        ];
        assert_eq!(take(), lines.map(|(level, line)| (level, line.to_owned())));
        assert_eq!(take(), []);
    }
}
