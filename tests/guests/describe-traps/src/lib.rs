//! Panics in `describe`. Made with the SDK, which logs the panic.

use bbs_sdk::{Manifest, Migration, export_migration};

#[derive(Debug)]
pub struct DescribeTraps;

impl Migration for DescribeTraps {
    fn manifest() -> Manifest {
        panic!("describe traps")
    }
}

export_migration!(DescribeTraps);
