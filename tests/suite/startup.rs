//! The start-up decision for the state of the database: emptied databases that are initialised
//! again, starts that are refused before any write, rollbacks by several hosts, and versions
//! outside of the catalog.

mod fresh;
mod log_in;
mod messages;
mod poolers;
mod refusals;
mod rollback;
mod servers;
mod sessions;
mod wrong_keys;

use serde_json::Value;
use sqlx::{Connection, MySqlConnection};

use crate::harness::database::Kind;
use crate::harness::engine::Engine;
use crate::harness::fixture::{self, OLDEST};
use crate::harness::host::Installation;
use crate::harness::layouts::NEWEST;
use crate::harness::mariadb::administrator;
use crate::harness::modules;
