//! Contains panics of the host's own code while it works on what modules declared or returned: a
//! rule that no check has makes a migration fail, by name, and does not end the host.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the work. Nothing that it changes is used after a panic.
///
/// # Errors
/// The message of a panic.
pub(super) fn contained<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "a panic without a text".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_becomes_its_message() {
        assert_eq!(contained(|| 3), Ok(3));
        assert_eq!(
            contained(|| panic!("no {}", "row")),
            Err::<(), _>("no row".to_owned())
        );
        assert_eq!(
            contained(|| panic!("no table")),
            Err::<(), _>("no table".to_owned())
        );
    }
}
