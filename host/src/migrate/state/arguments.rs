//! The arguments of migrations on this database: drawn at the first use, the same at every later
//! one. Owns `bbs_run_arguments`.

use std::collections::btree_map::Entry;

use bbs_database::{StatementResult, Transaction, of_few_lengths, signed};
use bbs_lens::Arguments;
use bbs_lens::layout::manifest::DataVersion;
use bbs_lens::transform::RunArguments;
use sea_query::{Expr, ExprTrait, Query};
use uuid::Uuid;

use super::exists;
use crate::migrate::MigrateError;

const RUN_ARGUMENTS: &str = "bbs_run_arguments";
const ARGUMENT_COLUMNS: [&str; 3] = ["version", "started_at_ns", "namespace"];

/// The arguments of these migrations; draws and stores those that are unknown.
pub(crate) async fn arguments(
    tx: &mut Transaction,
    versions: impl Iterator<Item = DataVersion>,
    now_ns: i64,
) -> Result<Arguments, MigrateError> {
    let versions: Vec<_> = versions.collect();
    let mut arguments = known_arguments(tx, &versions).await?;
    let known = arguments.len();
    let mut insert = Query::insert();
    insert.into_table(RUN_ARGUMENTS).columns(ARGUMENT_COLUMNS);
    for version in versions {
        if let Entry::Vacant(unknown) = arguments.entry(version) {
            let drawn = unknown.insert(RunArguments {
                started_at_ns: now_ns,
                namespace: Uuid::new_v4(),
            });
            insert.values_panic([
                signed(version).into(),
                drawn.started_at_ns.into(),
                drawn.namespace.to_string().into(),
            ]);
        }
    }
    if arguments.len() > known {
        tx.execute(&insert).await.about(RUN_ARGUMENTS)?;
    }
    Ok(arguments)
}

/// The stored arguments of these migrations, without those that were not used here. Reads only.
pub(crate) async fn known_arguments(
    tx: &mut Transaction,
    versions: &[DataVersion],
) -> Result<Arguments, MigrateError> {
    let mut arguments = Arguments::new();
    if !exists(tx, RUN_ARGUMENTS).await? {
        return Ok(arguments);
    }
    let versions = versions.iter().copied().map(signed).collect();
    let select = Query::select()
        .columns(ARGUMENT_COLUMNS)
        .from(RUN_ARGUMENTS)
        .and_where(Expr::col("version").is_in(of_few_lengths::<i64>(versions)))
        .take();
    for row in tx.fetch(&select).await.about(RUN_ARGUMENTS)? {
        let version = row.unsigned(0).about(RUN_ARGUMENTS)?;
        let started_at_ns = row.integer_or_zero(1).about(RUN_ARGUMENTS)?;
        let namespace = row.owned_text(2).about(RUN_ARGUMENTS)?;
        let namespace = Uuid::parse_str(&namespace)
            .map_err(|_| MigrateError::Namespace { version, namespace })?;
        let of_version = RunArguments {
            started_at_ns,
            namespace,
        };
        arguments.insert(version, of_version);
    }
    Ok(arguments)
}
