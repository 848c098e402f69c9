//! Migrations that are inserted below those that ran, killed at every crash point, and the way back
//! to Diego's next release.

use super::*;
use crate::harness::modules;
use crate::next_diego::{GPU, NEWEST as MARKER};

const UP: &str = "up-with-inserted";
const DOWN: &str = "down-with-inserted";

pub(super) fn migrations() -> Vec<Arc<dyn Transform>> {
    fixture::migrations_in(&modules::modules_with_next_diego())
}

on_each_database!(insertion_killed_at_any_point_loses_nothing_on_the_way_there_and_back);
async fn insertion_killed_at_any_point_loses_nothing_on_the_way_there_and_back(kind: Kind) {
    let start = at_newest(kind).await;
    let before = inspect(&start, NEWEST).await;
    let undisturbed = start.copy();
    let mut wanted = Vec::new();
    for (direction, version) in [(UP, MARKER), (DOWN, GPU)] {
        complete(direction, version, &undisturbed).await;
        wanted.push((
            direction,
            version,
            inspect_with(migrations(), &undisturbed, version).await,
        ));
    }
    for table in [
        "bbs_lrp_definitions",
        "bbs_lrp_updates",
        "actual_lrps",
        "tasks",
        "domains",
    ] {
        assert!(wanted[0].2[table] == before[table], "{table}");
    }
    for point in points_of_variant(kind) {
        let database = start.copy();
        // The way down is that of any other migration: one database suffices.
        let ways = if kind == Kind::Sqlite {
            &wanted[..]
        } else {
            &wanted[..1]
        };
        for (direction, version, wanted) in ways {
            assert!(
                run(direction, *version, &database, Some(point)),
                "{direction} {point}: it is not reached"
            );
            complete(direction, *version, &database).await;
            let found = inspect_with(migrations(), &database, *version).await;
            assert!(
                found == *wanted,
                "{direction} {point}: differs from an uninterrupted migration"
            );
        }
    }
}
