//! From a configuration to a served API, on one screen: what runs, in which order, and what each failure
//! means. The only place where the parts meet; it does no work of its own.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use crate::api::Api;
use crate::clock::SystemClock;
use crate::config::{Config, ConfigError};
use crate::http::{self, Gate};
use crate::layout::database::{Database, DatabaseError};
use crate::layout::manifest::DataVersion;
use crate::lock::fence::{Fence, FenceError};
use crate::lock::file::{FileLock, FileLockError};
use crate::migrate::{self, Decision, Intent, MigrateError};
use crate::modules::catalog::{Catalog, CatalogError};
use crate::modules::sandbox::{Limits, Sandbox, SandboxError};
use crate::progress::Progress;
use crate::record::{Keyring, KeyringError};
use crate::store::Store;

/// How often a master looks whether its lock file is still the one it locked.
const LOCK_CHECK_INTERVAL: Duration = Duration::from_secs(1);
