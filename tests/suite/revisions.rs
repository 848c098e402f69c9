//! Diego's older revisions through the translators as components: against what Diego's BBS
//! answered, against an oracle of its rules, and over HTTP.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bbs::testing::modules::translate::Translate;
use bbs_proto::models as proto;
use bbs_proto::prost::Message;

use crate::harness::database::Kind;
use crate::harness::layouts::on_layouts_of_sqlite;
use crate::harness::modules::{self, translators};
use crate::harness::server::{Options, Server};
use crate::harness::workspace;

mod downloads;
mod generated;
mod group_events;
mod layers;
mod matrix;
mod served;
mod streams;
mod timeouts;
mod worked_example;

/// The component that serves a version.
fn translator(serves: &str) -> Arc<dyn Translate> {
    let found = translators()
        .into_iter()
        .find(|translator| translator.manifest().serves.to_string() == serves);
    found.expect("the default catalog has the version")
}

/// The answer of a translator's method over an answer of the newer version.
fn translated(translator: &dyn Translate, method: &str, request: &[u8], newer: &[u8]) -> Vec<u8> {
    modules::call(translator, method, request, &mut |_, _| Ok(newer.to_vec())).unwrap()
}

/// The rows of a file of vectors, without its header.
fn vectors(name: &str) -> Vec<Vec<String>> {
    let path = workspace().join("tests/vectors").join(name);
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines()
        .skip(1)
        .map(|line| line.split('\t').map(str::to_owned).collect())
        .collect()
}

/// A list with one encoded object.
fn list_of(object: &[u8]) -> Vec<u8> {
    OneObject {
        object: object.to_vec(),
    }
    .encode_to_vec()
}

/// Any of Diego's answers with one object.
#[derive(Clone, PartialEq, bbs_proto::prost::Message)]
struct OneObject {
    #[prost(bytes = "vec", tag = "2")]
    object: Vec<u8>,
}

/// Goal: the component answers byte for byte what Diego's BBS makes of the same object.
#[test]
fn reads_without_layers_equal_those_of_diego() {
    let translator = translator("1.0");
    let vectors = vectors("revisions.tsv");
    assert_eq!(vectors.len(), 20);
    for vector in vectors {
        let [case, message, current, older] = &vector[..4] else {
            panic!("{vector:?}")
        };
        let [current, older] = [current, older].map(|text| STANDARD.decode(text).unwrap());
        let methods = match message.as_str() {
            "DesiredLRP" => ["DesiredLRPs_r2", "DesiredLRPByProcessGuid_r2"],
            _ => ["Tasks_r2", "TaskByGuid_r2"],
        };
        for method in methods {
            let answer = translated(&*translator, method, &[], &list_of(&current));
            assert_eq!(answer, list_of(&older), "{case} of {method}");
        }
    }
}

/// `ORDINARY:RUNNING` as an actual LRP; `-` as none.
fn instance(text: &str) -> Option<proto::ActualLrp> {
    let (presence, state) = text.split_once(':')?;
    Some(proto::ActualLrp {
        presence: proto::actual_lrp::Presence::from_str_name(presence)
            .unwrap()
            .into(),
        state: state.into(),
        ..Default::default()
    })
}

#[test]
fn groups_show_the_rows_that_diego_shows() {
    let translator = translator("1.0");
    let vectors = vectors("groups.tsv");
    assert_eq!(vectors.len(), 41);
    for vector in vectors {
        let [rows, in_instance, in_evacuating, ..] = &vector[..] else {
            panic!("{vector:?}")
        };
        let actual_lrps: Vec<_> = rows.split_whitespace().filter_map(instance).collect();
        let newer = proto::ActualLrPsResponse {
            error: None,
            actual_lrps,
        }
        .encode_to_vec();
        let answer = translated(&*translator, "ActualLRPGroups", &[], &newer);
        let groups = proto::ActualLrpGroupsResponse::decode(&answer[..])
            .unwrap()
            .actual_lrp_groups;
        let instance_slot = instance(in_instance);
        let evacuating = instance(in_evacuating);
        let expected = (!rows.is_empty()).then_some(proto::ActualLrpGroup {
            instance: instance_slot,
            evacuating,
        });
        assert_eq!(groups, Vec::from_iter(expected), "{rows}");
    }
}
