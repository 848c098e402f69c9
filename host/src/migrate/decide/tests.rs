//! Every cell of the specification's `Version` table, for both intents, with and without an
//! unfinished `down`.

use super::*;

const LOW: DataVersion = 10;
const MID: DataVersion = 20;
const HIGH: DataVersion = 30;

fn at(current: DataVersion, target: DataVersion) -> Found {
    Found::Versioned {
        current,
        target,
        going_down: None,
        came_down: false,
    }
}

fn going_down(current: DataVersion, target: DataVersion, to: DataVersion) -> Found {
    Found::Versioned {
        current,
        target,
        going_down: Some(to),
        came_down: false,
    }
}

fn up(found: &Found) -> Decision {
    decide(found, Intent::Up { wanted: MID })
}

/// Decides as a host that takes the database down to `LOW` when it ends.
fn up_until_drained(found: &Found) -> Decision {
    decide(
        found,
        Intent::UpUntilDrained {
            wanted: MID,
            back_to: LOW,
        },
    )
}

fn came_down(current: DataVersion, target: DataVersion, going_down: Option<DataVersion>) -> Found {
    Found::Versioned {
        current,
        target,
        going_down,
        came_down: true,
    }
}

fn down(found: &Found) -> Decision {
    decide(found, Intent::Down { to: MID })
}

#[test]
fn below_wanted_with_target_below_begins() {
    assert_eq!(up(&at(LOW, LOW)), Decision::Begin { from: LOW, to: MID });
    assert_eq!(up(&at(LOW, 15)), Decision::Begin { from: LOW, to: MID });
}

#[test]
fn below_wanted_with_target_equal_continues() {
    assert_eq!(up(&at(LOW, MID)), Decision::Continue { from: LOW, to: MID });
}

#[test]
fn below_wanted_with_target_above_continues_to_wanted() {
    assert_eq!(
        up(&at(LOW, HIGH)),
        Decision::Continue { from: LOW, to: MID }
    );
}

#[test]
fn at_wanted_with_target_below_shuts_down() {
    assert_eq!(
        up(&at(MID, LOW)),
        Decision::ShutDown(Reason::Botched {
            current: MID,
            target: LOW
        })
    );
}

#[test]
fn at_wanted_with_target_equal_serves() {
    assert_eq!(up(&at(MID, MID)), Decision::Serve);
}

#[test]
fn at_wanted_with_target_above_serves() {
    assert_eq!(up(&at(MID, HIGH)), Decision::Serve);
}

#[test]
fn above_wanted_shuts_down_whatever_the_target() {
    for target in [LOW, MID, HIGH] {
        let reason = Reason::Newer {
            current: HIGH,
            wanted: MID,
        };
        assert_eq!(
            up(&at(HIGH, target)),
            Decision::ShutDown(reason),
            "target {target}"
        );
    }
}

#[test]
fn unfinished_down_stops_every_up_and_names_the_command() {
    for current in [LOW, MID, HIGH] {
        for target in [LOW, MID, HIGH] {
            let Decision::ShutDown(reason) = up(&going_down(current, target, LOW)) else {
                panic!("{current} {target} went on");
            };
            assert_eq!(reason, Reason::GoingDown { to: LOW });
            assert!(
                reason.to_string().contains("bbs migrate down --to 10"),
                "{reason}"
            );
        }
    }
}

#[test]
fn down_from_above_begins_unless_the_target_is_below_for_no_known_reason() {
    assert_eq!(
        down(&at(HIGH, HIGH)),
        Decision::Begin {
            from: HIGH,
            to: MID
        }
    );
    assert_eq!(
        down(&at(HIGH, 40)),
        Decision::Begin {
            from: HIGH,
            to: MID
        }
    );
    for target in [LOW, MID] {
        assert_eq!(
            down(&at(HIGH, target)),
            Decision::ShutDown(Reason::Botched {
                current: HIGH,
                target
            })
        );
    }
}

#[test]
fn down_to_where_it_is_has_nothing_to_do() {
    assert_eq!(down(&at(MID, MID)), Decision::Serve);
    assert_eq!(down(&at(MID, HIGH)), Decision::Serve);
    assert_eq!(
        down(&at(MID, LOW)),
        Decision::ShutDown(Reason::Botched {
            current: MID,
            target: LOW
        })
    );
}

#[test]
fn down_from_below_is_refused() {
    for target in [5, LOW, MID, HIGH] {
        let reason = Reason::NothingBelow {
            current: LOW,
            to: MID,
        };
        assert_eq!(down(&at(LOW, target)), Decision::ShutDown(reason));
    }
}

#[test]
fn unfinished_down_is_resumed_only_by_the_same_down() {
    for target in [MID, HIGH, LOW] {
        assert_eq!(
            down(&going_down(HIGH, target, MID)),
            Decision::Continue {
                from: HIGH,
                to: MID
            }
        );
        assert_eq!(
            down(&going_down(MID, target, MID)),
            Decision::Continue { from: MID, to: MID }
        );
        let below = Reason::NothingBelow {
            current: LOW,
            to: MID,
        };
        assert_eq!(
            down(&going_down(LOW, target, MID)),
            Decision::ShutDown(below)
        );
        for current in [LOW, MID, HIGH] {
            let other = Decision::ShutDown(Reason::GoingDown { to: LOW });
            assert_eq!(down(&going_down(current, target, LOW)), other);
        }
    }
}

#[test]
fn fresh_database_begins_up_and_has_nothing_to_take_down() {
    assert_eq!(up(&Found::Fresh), Decision::Begin { from: 0, to: MID });
    assert_eq!(
        down(&Found::Fresh),
        Decision::ShutDown(Reason::NothingThere)
    );
}

#[test]
fn rows_without_a_version_are_refused_by_name() {
    let found = Found::Unversioned {
        tables: vec!["desired_lrps".into(), "tasks".into()],
    };
    for decision in [up(&found), down(&found)] {
        let Decision::ShutDown(reason) = decision else {
            panic!("went on")
        };
        assert!(
            reason.to_string().contains("desired_lrps, tasks"),
            "{reason}"
        );
    }
}

#[test]
fn host_with_the_rollback_setting_stays_where_a_rollback_left_the_database() {
    assert_eq!(
        up_until_drained(&came_down(LOW, LOW, None)),
        Decision::Stay { at: LOW }
    );
    // A host without the setting migrates up, which ends the rollback.
    assert_eq!(
        up(&came_down(LOW, LOW, None)),
        Decision::Begin { from: LOW, to: MID }
    );
    assert_eq!(down(&came_down(MID, MID, None)), Decision::Serve);
}

#[test]
fn host_with_the_rollback_setting_decides_like_any_other_elsewhere() {
    for current in [5, LOW, 15, MID, HIGH] {
        for target in [5, LOW, 15, MID, HIGH, 40] {
            for going in [None, Some(LOW), Some(5)] {
                for came in [false, true] {
                    let found = Found::Versioned {
                        current,
                        target,
                        going_down: going,
                        came_down: came,
                    };
                    let stays = came && (current, target, going) == (LOW, LOW, None);
                    let wanted = if stays {
                        Decision::Stay { at: LOW }
                    } else {
                        up(&found)
                    };
                    assert_eq!(up_until_drained(&found), wanted, "{found:?}");
                }
            }
        }
    }
    assert_eq!(
        up_until_drained(&Found::Fresh),
        Decision::Begin { from: 0, to: MID }
    );
    let rows = Found::Unversioned {
        tables: vec!["tasks".into()],
    };
    assert_eq!(up_until_drained(&rows), up(&rows));
}

#[test]
fn up_begun_since_a_rollback_is_continued() {
    assert_eq!(
        up_until_drained(&came_down(LOW, MID, None)),
        Decision::Continue { from: LOW, to: MID }
    );
    assert_eq!(
        up_until_drained(&came_down(LOW, 15, None)),
        Decision::Begin { from: LOW, to: MID }
    );
}

#[test]
fn pin_at_the_version_of_the_rollback_is_served_without_staying() {
    let intent = Intent::UpUntilDrained {
        wanted: LOW,
        back_to: LOW,
    };
    assert_eq!(decide(&came_down(LOW, LOW, None), intent), Decision::Serve);
}

#[test]
fn refusal_of_a_foreign_target_has_the_statement_that_corrects_it() {
    let reason = Reason::Botched {
        current: MID,
        target: LOW,
    };
    let statement =
        r#"SET value = '{"CurrentVersion":20,"TargetVersion":20}' WHERE id = 'version'"#;
    assert!(reason.to_string().ends_with(statement), "{reason}");
}

#[test]
fn only_a_migration_that_is_under_way_is_continued() {
    let decided = up(&at(LOW, HIGH));
    let begun = Decision::Begin { from: LOW, to: MID };
    assert_eq!(decided.clone().resuming(None), begun);
    assert_eq!(decided.clone().resuming(Some(HIGH)), begun);
    assert_eq!(decided.clone().resuming(Some(MID)), decided);
    assert_eq!(Decision::Serve.resuming(None), Decision::Serve);
}
