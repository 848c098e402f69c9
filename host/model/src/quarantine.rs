//! How many records may go into quarantine before they are too many to be damaged.

/// Whether so many of all records of a kind are no damage, but a wrong key, or a fault of a module
/// or this host: more than the limit and than one in a hundred; and more than half of several,
/// whatever the limit. With a limit of zero, any is too many.
pub fn is_too_many(refused: u64, all: u64, limit: u64) -> bool {
    let above_limit = refused > limit.max(all / 100) || (limit == 0 && refused > 0);
    above_limit || (refused > 1 && refused > all / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_damaged_records_are_few_and_a_wrong_key_is_too_many() {
        for (refused, all) in [
            (1, 1),
            (1, 2),
            (2, 4),
            (100, 250),
            (100, 20_000),
            (200, 20_000),
            (2000, 200_000),
        ] {
            assert!(!is_too_many(refused, all, 100), "{refused} of {all}");
        }
        for (refused, all) in [
            (2, 2),
            (2, 3),
            (60, 100),
            (101, 250),
            (201, 20_000),
            (2001, 200_000),
        ] {
            assert!(is_too_many(refused, all, 100), "{refused} of {all}");
        }
        assert!(is_too_many(1, 20_000, 0) && !is_too_many(0, 20_000, 0));
    }
}
