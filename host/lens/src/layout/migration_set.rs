//! The migrations that ran on a database: a set, and not all of a catalog up to a version, since
//! the catalog may have inserted others. Owns that set, and how it is found out; reads no database.

use std::collections::BTreeSet;

use super::manifest::DataVersion;

/// The versions of the migrations that ran on a database, or of those that a catalog has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MigrationSet(BTreeSet<DataVersion>);

impl FromIterator<DataVersion> for MigrationSet {
    fn from_iter<T: IntoIterator<Item = DataVersion>>(versions: T) -> Self {
        Self(versions.into_iter().collect())
    }
}

impl MigrationSet {
    /// The migrations of a catalog that ran on a database which is at a version. `recorded` are
    /// those that a host recorded when it worked with the database last; above them, another BBS
    /// may have run what the catalog has. Without such a record all have run up to the version.
    #[must_use]
    pub fn that_ran(catalog: &Self, current: DataVersion, recorded: &Self) -> Self {
        let known = recorded.newest();
        catalog
            .versions()
            .filter(|version| *version <= current && (*version > known || recorded.has(*version)))
            .collect()
    }

    /// The migrations of both sets.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.versions().chain(other.versions()).collect()
    }

    /// The part up to a version.
    #[must_use]
    pub fn up_to(&self, version: DataVersion) -> Self {
        self.0.range(..=version).copied().collect()
    }

    /// The versions in ascending order.
    pub fn versions(&self) -> impl DoubleEndedIterator<Item = DataVersion> + '_ {
        self.0.iter().copied()
    }

    /// Whether it includes a migration.
    pub fn has(&self, version: DataVersion) -> bool {
        self.0.contains(&version)
    }

    /// The highest version; 0 without migrations.
    pub fn newest(&self) -> DataVersion {
        self.0.last().copied().unwrap_or_default()
    }

    /// The highest version up to which both sets are the same; 0 if they differ in their first
    /// migration.
    pub fn last_in_common(&self, other: &Self) -> DataVersion {
        let alike = self
            .versions()
            .zip(other.versions())
            .take_while(|(one, other)| one == other);
        alike.last().map_or(0, |(version, _)| version)
    }

    /// The migrations of a catalog below the newest that ran that did not run.
    pub fn inserted<'a>(&'a self, catalog: &'a Self) -> impl Iterator<Item = DataVersion> + 'a {
        catalog
            .versions()
            .filter(|version| *version < self.newest() && !self.has(*version))
    }

    /// Whether the version at the end of another set means other migrations here.
    pub fn contradicts(&self, other: &Self) -> bool {
        self.has(other.newest()) && self.up_to(other.newest()) != *other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(versions: &[DataVersion]) -> MigrationSet {
        versions.iter().copied().collect()
    }

    #[test]
    fn what_ran_is_what_was_recorded_and_what_another_bbs_ran_above() {
        let catalog = set(&[1, 2, 3, 5, 8]);
        for (current, recorded, ran) in [
            (5, set(&[]), set(&[1, 2, 3, 5])),
            (5, set(&[1, 2, 5]), set(&[1, 2, 5])),
            (3, set(&[1, 2]), set(&[1, 2, 3])),
            // Another program has set the version back.
            (2, set(&[1, 3, 5]), set(&[1])),
            (0, set(&[]), set(&[])),
        ] {
            assert_eq!(
                MigrationSet::that_ran(&catalog, current, &recorded),
                ran,
                "{current} {recorded:?}"
            );
        }
        assert_eq!(set(&[1, 2, 5]).inserted(&catalog).collect::<Vec<_>>(), [3]);
        assert_eq!(set(&[1, 2, 3, 5]).inserted(&catalog).next(), None);
    }

    #[test]
    fn sets_are_the_same_up_to_a_version() {
        let ran = set(&[1, 2, 5]);
        for (other, last) in [
            (set(&[1, 2, 3, 5, 8]), 2),
            (set(&[1, 2]), 2),
            (set(&[1, 2, 5, 8]), 5),
            (set(&[2, 5]), 0),
            (set(&[]), 0),
        ] {
            assert_eq!(ran.last_in_common(&other), last, "{other:?}");
            assert_eq!(other.last_in_common(&ran), last, "{other:?}");
        }
    }

    #[test]
    fn set_contradicts_another_that_ends_with_a_version_of_its_own() {
        let ran = set(&[1, 2, 5]);
        for (other, contradicts) in [
            (set(&[1, 2, 3, 5]), true),
            (set(&[1, 2, 3]), false),
            (set(&[1, 2, 3, 5, 8]), false),
            (set(&[1, 2]), false),
        ] {
            assert_eq!(ran.contradicts(&other), contradicts, "{other:?}");
        }
    }
}
