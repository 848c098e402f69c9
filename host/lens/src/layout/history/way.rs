//! The way of a migration: down from what ran to the last version that it has in common with what
//! is wanted, and up from there. Where both are a part of one history, it only goes up or only
//! down.

use super::LayoutHistory;
use crate::layout::manifest::{DataVersion, Direction};
use crate::layout::schema::Layout;

/// One migration on a way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Leg {
    pub version: DataVersion,
    pub direction: Direction,
}

impl Leg {
    /// This migration in the other direction.
    #[must_use]
    pub fn back(self) -> Self {
        Self {
            direction: self.direction.opposite(),
            ..self
        }
    }
}

/// The way from a version of one layout history to a version of another.
#[derive(Debug, Clone, Copy)]
pub struct Way<'a> {
    pub from: DataVersion,
    pub to: DataVersion,
    /// The last version in common.
    turn: DataVersion,
    before: &'a LayoutHistory,
    after: &'a LayoutHistory,
}

impl<'a> Way<'a> {
    /// The way between two versions of one layout history.
    pub fn within(layouts: &'a LayoutHistory, from: DataVersion, to: DataVersion) -> Self {
        Self {
            from,
            to,
            turn: from.min(to),
            before: layouts,
            after: layouts,
        }
    }

    /// The way from a version of `before`, the migrations that ran, to a version of `after`.
    pub fn between(
        before: &'a LayoutHistory,
        after: &'a LayoutHistory,
        from: DataVersion,
        to: DataVersion,
    ) -> Self {
        let turn = before
            .migrations()
            .up_to(from)
            .last_in_common(&after.migrations().up_to(to));
        Self {
            from,
            to,
            turn,
            before,
            after,
        }
    }

    /// The migrations in the order in which they run.
    pub fn legs(&self) -> Vec<Leg> {
        let on = |layouts: &LayoutHistory, direction, last| {
            let versions = layouts
                .layouts
                .keys()
                .copied()
                .filter(|version| (self.turn + 1..=last).contains(version));
            versions
                .map(|version| Leg { version, direction })
                .collect::<Vec<_>>()
        };
        let down = on(self.before, Direction::Down, self.from)
            .into_iter()
            .rev();
        down.chain(on(self.after, Direction::Up, self.to)).collect()
    }

    /// The migrations of which residue stays at the end of the way: what one saves on the way down
    /// is given back on the way up.
    pub fn leaving(&self) -> Vec<Leg> {
        self.legs_without_return(Direction::Down)
    }

    /// The migrations whose residue, of an earlier way, is given back.
    pub fn returning(&self) -> Vec<Leg> {
        self.legs_without_return(Direction::Up)
            .into_iter()
            .map(Leg::back)
            .collect()
    }

    /// The migrations without those in a direction through which the way goes in the other one,
    /// too.
    fn legs_without_return(&self, direction: Direction) -> Vec<Leg> {
        let legs = self.legs();
        let is_return = |leg: &Leg| leg.direction == direction && legs.contains(&leg.back());
        legs.iter().copied().filter(|leg| !is_return(leg)).collect()
    }

    /// The layouts below a migration and above it.
    ///
    /// # Panics
    /// If it is not on the way.
    pub fn sides(&self, leg: Leg) -> (&'a Layout, &'a Layout) {
        let layouts = self.layouts(leg.direction);
        (
            layouts.before(leg.version),
            layouts.at(leg.version).expect("it is on the way"),
        )
    }

    /// The layout history in which the way goes in a direction.
    pub fn layouts(&self, direction: Direction) -> &'a LayoutHistory {
        match direction {
            Direction::Up => self.after,
            Direction::Down => self.before,
        }
    }

    /// The layout that it begins with.
    ///
    /// # Panics
    /// If its history does not have the version.
    pub fn source(&self) -> &'a Layout {
        self.before
            .at(self.from)
            .expect("both ends of a way are versions of the layout history")
    }

    /// The layout that it leads to.
    ///
    /// # Panics
    /// If its history does not have the version.
    pub fn target(&self) -> &'a Layout {
        self.after
            .at(self.to)
            .expect("both ends of a way are versions of the layout history")
    }

    /// The layouts that it passes, without that which it begins with.
    pub fn passed(&self) -> impl Iterator<Item = &'a Layout> {
        let way = *self;
        self.legs().into_iter().map(move |leg| {
            let (below, above) = way.sides(leg);
            match leg.direction {
                Direction::Up => above,
                Direction::Down => below,
            }
        })
    }

    /// Whether the version that it leads to is higher.
    pub fn direction(&self) -> Direction {
        Direction::between(self.from, self.to)
    }

    /// The migrations that run for the first time below others that ran.
    pub fn inserted(&self) -> Vec<DataVersion> {
        let ran = self.before.migrations().up_to(self.from);
        let wanted = self.after.migrations().up_to(self.to);
        ran.inserted(&wanted).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::manifest::Manifest;

    fn history(versions: &[DataVersion]) -> LayoutHistory {
        let manifests: Vec<_> = versions
            .iter()
            .map(|&version| Manifest::new(version, &format!("step-{version}")))
            .collect();
        LayoutHistory::new(&manifests).unwrap()
    }

    fn shown(way: &Way<'_>) -> String {
        let show = |leg: Leg| format!("{} {}", leg.direction, leg.version);
        way.legs()
            .into_iter()
            .map(show)
            .collect::<Vec<_>>()
            .join(", ")
    }

    #[test]
    fn way_goes_down_to_the_last_version_in_common_and_up() {
        let ran = history(&[1, 2, 5, 6]);
        let catalog = history(&[1, 2, 3, 5, 6, 9]);
        for (from, to, legs, inserted) in [
            (6, 9, "down 6, down 5, up 3, up 5, up 6, up 9", &[3][..]),
            (6, 3, "down 6, down 5, up 3", &[3]),
            (6, 2, "down 6, down 5", &[]),
            (2, 9, "up 3, up 5, up 6, up 9", &[]),
            (0, 2, "up 1, up 2", &[]),
            (2, 0, "down 2, down 1", &[]),
            (2, 2, "", &[]),
        ] {
            let way = Way::between(&ran, &catalog, from, to);
            assert_eq!(shown(&way), legs);
            assert_eq!(way.inserted(), inserted, "{legs}");
            assert_eq!(way.passed().count(), way.legs().len());
        }
        assert_eq!(
            shown(&Way::within(&catalog, 9, 3)),
            "down 9, down 6, down 5"
        );
    }
}
