//! The laws, the golden cases, and the ids of units with and without residue.

use bbs_sdk::testing::{
    Datum, Generator, Laws, Layout, Stepped, UnitData, check_golden, run, step,
};
use bbs_sdk::{Column, Direction, Table};
use prost::Message;

use super::residue::{InstanceIds, Residue};
use super::{ACTUAL, CURRENT, DESIRED, LrpDefinitions, OF_INSTANCE, PREVIOUS, UNCERTAIN};

fn layout() -> Layout {
    let desired = Table::new(DESIRED)
        .column(Column::varchar("process_guid", 255))
        .column(Column::varchar("modification_tag_epoch", 255));
    let desired = desired
        .primary_key(["process_guid"])
        .partition_key("process_guid");
    let actual = Table::new(ACTUAL)
        .column(Column::varchar("process_guid", 255))
        .column(Column::integer("instance_index"))
        .column(Column::integer("presence"))
        .column(Column::varchar("instance_guid", 255))
        .column(Column::varchar("modification_tag_epoch", 255))
        .primary_key(["process_guid", "instance_index", "presence"])
        .partition_key("process_guid");
    Layout::of([desired, actual])
}

fn id(generator: &mut Generator) -> Datum {
    if generator.once_in(4) {
        Datum::Null
    } else {
        Datum::Text(generator.text(20).into_bytes())
    }
}

#[test]
fn laws() {
    let laws = Laws::<LrpDefinitions>::over(layout());
    let laws = laws
        .fill(DESIRED, CURRENT, id)
        .fill(DESIRED, PREVIOUS, id)
        .fill(ACTUAL, OF_INSTANCE, id);
    laws.units(1000)
        .check()
        .unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn golden() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/golden");
    check_golden::<LrpDefinitions>(&layout(), folder).unwrap_or_else(|error| panic!("{error}"));
}

fn unit() -> UnitData {
    let instance = |index: i64| {
        [
            ("process_guid", "app".into()),
            ("instance_index", index.into()),
            ("presence", 0_i64.into()),
            ("instance_guid", "container".into()),
        ]
    };
    UnitData::default()
        .row(DESIRED, [("process_guid", "app".into())])
        .row(ACTUAL, instance(0))
        .row(ACTUAL, instance(1))
}

fn up(residue: Option<Vec<u8>>) -> UnitData {
    let left = Stepped::of(UnitData::default(), residue);
    step::<LrpDefinitions>(&layout(), Direction::Up, &run(), &[unit()], &[left])
        .remove(0)
        .expect("a step")
        .unit
}

#[test]
fn desired_lrp_and_its_instances_get_the_same_id() {
    let unit = up(None);
    let current = &unit.tables[DESIRED][0][CURRENT];
    assert_ne!(*current, Datum::Null);
    assert_eq!(unit.tables[DESIRED][0][PREVIOUS], Datum::Null);
    for row in &unit.tables[ACTUAL] {
        assert_eq!(
            (&row[OF_INSTANCE], &row[UNCERTAIN]),
            (current, &Datum::Null)
        );
    }
}

#[test]
fn ids_of_residue_are_restored_and_other_containers_get_the_current_one() {
    let ids = |index, container: &str| InstanceIds {
        index,
        presence: 0,
        container: container.into(),
        definition: Some(b"version-1".to_vec()),
        uncertain: Some(true),
    };
    let instances = vec![ids(0, "container"), ids(1, "container of before")];
    let residue = Residue {
        current: Some(b"version-2".to_vec()),
        previous: Some(b"version-1".to_vec()),
        instances,
    };
    let unit = up(Some(residue.encode_to_vec()));
    assert_eq!(unit.tables[DESIRED][0][CURRENT], "version-2".into());
    assert_eq!(unit.tables[DESIRED][0][PREVIOUS], "version-1".into());
    assert_eq!(unit.tables[ACTUAL][0][OF_INSTANCE], "version-1".into());
    assert_eq!(unit.tables[ACTUAL][0][UNCERTAIN], true.into());
    assert_eq!(unit.tables[ACTUAL][1][OF_INSTANCE], "version-2".into());
    assert_eq!(unit.tables[ACTUAL][1][UNCERTAIN], Datum::Null);
}
