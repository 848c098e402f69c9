//! A migration that changes nothing, with a version between those of the two that split
//! `desired_lrps`: where it has run, the first of them is inserted below it.

use bbs_sdk::{Manifest, Migration, export_migration};

#[derive(Debug)]
pub struct BetweenSplits;

impl Migration for BetweenSplits {
    fn manifest() -> Manifest {
        Manifest::new(1_795_000_150, "between-splits").summary("Changes nothing")
    }
}

export_migration!(BetweenSplits);
