//! The second reading of the store: fills the tables of [`VERSION`], and gives the database its
//! version once everything is there. Owns the order of the writes: the row of `bbs_import` before
//! the first table, and after the last row one transaction with the version. Killed before it, the
//! next attempt drops the tables and begins anew.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bbs_database::{Row, StatementResult, Transaction, bulk, of_few_lengths};
use bbs_lens::TableBuilder;
use bbs_lens::layout::schema::Sealing;
use bbs_lens::layout::values::Value;
use bbs_proto::models::DesiredLrpSchedulingInfo;
use bbs_units::Measure;
use bbs_work::batches::{self, BatchPace, ReadBatches, Worked, WorkedBatches};
use bbs_work::pauses;
use bbs_work::progress::Counted;
use futures_util::{StreamExt, pin_mut};
use sea_query::{Alias, Expr, ExprTrait, Order, Query};
use uuid::Uuid;

use super::classify::{Class, Classified, Classifier};
use super::error::RefusedRow;
use super::fingerprint::{FingerprintBuilder, StoreFingerprint};
use super::report::ImportReport;
use super::rows::{ImportedRow, stored};
use super::state::{ImportPhase, ImportState, write};
use super::survey::{
    ALONE_RUN, ALONE_SCHEDULING, KeyOrder, Survey, classified, classifier, run_info_key,
};
use super::{ImportError, VERSION};
use crate::etcd::Leaf;
use crate::etcd::client::EtcdClient;
use crate::etcd::record::{RecordKey, RecordKind};
use crate::lock::fence::Fence;
use crate::migrate::filling::{self, ExistingRows};
use crate::migrate::{
    self, Context, ForeignRecord, Found, IMPORT, IMPORT_RUN, MigrateError, OnUnreadable, fault,
};

/// Leaves that one transaction writes, unless they have [`migrate::Tuning::batch_bytes`] before.
/// Whatever the time that it takes: no client waits for the tables that an import fills.
const BATCH_LEAVES: u64 = 2000;
/// Leaves that are looked up or deleted by one statement.
const CHUNK: usize = 256;

/// Fills the empty database with what the survey saw. Drops what an earlier attempt left if there
/// was one.
///
/// # Errors
/// Another BBS has begun to use the database; then nothing is recorded or dropped. Or the store
/// changes meanwhile or cannot be read as a whole, the database refuses too many of its rows,
/// another host has raised the fence, or the database fails; then it has no version, and the next
/// attempt begins anew.
pub async fn copy(
    etcd: &Arc<EtcdClient>,
    context: &Context,
    fence: &Fence,
    survey: &Survey,
    existing: ExistingRows,
) -> Result<ImportState, ImportError> {
    context
        .progress
        .enter("prepare", "creating the tables to import into", None);
    migrate::create_own_tables(context, fence).await?;
    let mut state = ImportState {
        phase: ImportPhase::Copying,
        fingerprint: survey.fingerprint.clone(),
        report: ImportReport::default(),
    };
    let mut tx = fence.begin().await?;
    check_unused(&mut tx, context, existing).await?;
    write(&mut tx, &state).await?;
    fault::point(fault::BEFORE_IMPORT);
    tx.commit().await.about(IMPORT)?;
    fault::point(fault::AFTER_IMPORT_BEGIN);
    let layout = filling::create_tables(context, fence, VERSION, existing).await?;
    fault::point(fault::AFTER_IMPORT_TABLES);

    let classifier = Arc::new(classifier(context, survey.stored_as)?);
    let mut filler = Filler {
        context,
        fence,
        survey,
        classifier,
        report: ImportReport {
            import_id: Some(Uuid::new_v4().to_string()),
            ..survey.report.without_counts()
        },
        rows: BTreeMap::new(),
        refused_rows: BTreeMap::new(),
    };
    filler.read(etcd).await?;
    fault::point(fault::AFTER_IMPORT_READ);
    filler.keep_runs_alone().await?;
    context
        .progress
        .enter("index", "creating the indexes of the imported tables", None);
    filling::create_indexes(context, fence, &layout).await?;
    filler.check_rows().await?;
    fault::point(fault::AFTER_IMPORT_INDEXES);

    (state.phase, state.report) = (ImportPhase::Copied, filler.report);
    let mut tx = fence.begin().await?;
    write(&mut tx, &state).await?;
    filling::declare(&mut tx, VERSION, context.keyring.active_label()).await?;
    fault::point(fault::BEFORE_IMPORT_COMMIT);
    tx.commit().await.about(IMPORT)?;
    fault::point(fault::AFTER_IMPORT);
    Ok(state)
}

/// Checks that no other BBS has begun to use the database while the store was surveyed, nor the
/// names of indexes: from the record of the import on, the next attempt drops the tables with all
/// rows.
async fn check_unused(
    tx: &mut Transaction,
    context: &Context,
    existing: ExistingRows,
) -> Result<(), ImportError> {
    if let Found::Versioned { .. } = migrate::found_in(tx).await? {
        return Err(ImportError::InUse);
    }
    Ok(filling::check_in(tx, context, VERSION, existing).await?)
}

async fn delete_runs(tx: &mut Transaction, guids: Vec<&str>) -> Result<(), ImportError> {
    let mut delete = Query::delete();
    delete
        .from_table(IMPORT_RUN)
        .and_where(Expr::col("process_guid").is_in(of_few_lengths(guids)));
    tx.execute(&delete).await.about(IMPORT_RUN)?;
    Ok(())
}

/// Reads the leaves of the store. Returns whether it still is what the survey saw.
async fn read(
    etcd: Arc<EtcdClient>,
    classifier: Arc<Classifier>,
    surveyed: StoreFingerprint,
    batch_bytes: u64,
    mut found: ReadBatches<Vec<Classified>>,
) -> Result<bool, ImportError> {
    let mut fingerprint = FingerprintBuilder::default();
    let mut order = KeyOrder::default();
    let (reading, batches) = classified(&etcd, &classifier);
    pin_mut!(batches);
    let mut is_at_end = false;
    while !is_at_end {
        let most = found.next_size().await;
        let mut leaves = Vec::new();
        let mut bytes = 0;
        while (leaves.len() as u64) < most && bytes < batch_bytes {
            let Some(batch) = batches.next().await else {
                is_at_end = true;
                break;
            };
            for leaf in batch? {
                order.check(&leaf.leaf.key)?;
                fingerprint.add(&leaf.leaf);
                bytes += leaf.leaf.value.len() as u64;
                leaves.push(leaf);
            }
        }
        let count = leaves.len() as u64;
        if !found.send(leaves, count).await {
            return Ok(true);
        }
    }
    let view = reading.await??;
    Ok(fingerprint.is_unchanged_since(&surveyed, &view.cluster_id))
}

/// Fills the tables batch by batch.
struct Filler<'a> {
    context: &'a Context,
    fence: &'a Fence,
    survey: &'a Survey,
    classifier: Arc<Classifier>,
    report: ImportReport,
    /// Rows that are written, by table.
    rows: BTreeMap<&'static str, u64>,
    /// Records whose rows the database refuses, by kind.
    refused_rows: BTreeMap<RecordKind, u64>,
}

/// What one transaction writes.
#[derive(Default)]
struct BatchOutcome {
    rows: BTreeMap<&'static str, u64>,
    report: ImportReport,
}

impl Filler<'_> {
    async fn read(&mut self, etcd: &Arc<EtcdClient>) -> Result<(), ImportError> {
        self.context.progress.enter(
            "import",
            "copying the records of etcd",
            Some(Counted::Records.total(self.survey.leaves())),
        );
        let pace = BatchPace {
            first: BATCH_LEAVES,
            least: BATCH_LEAVES,
            most: BATCH_LEAVES,
            ..self.context.pace()
        };
        let etcd = Arc::clone(etcd);
        let classifier = Arc::clone(&self.classifier);
        let surveyed = self.survey.fingerprint.clone();
        let batch_bytes = self.context.tuning.batch_bytes;
        let is_unchanged = batches::run(
            pace,
            |found| read(etcd, classifier, surveyed, batch_bytes, found),
            |leaves| Ok(Worked::Done(leaves)),
            |leaves| self.write(leaves),
        )
        .await?;
        if is_unchanged {
            Ok(())
        } else {
            Err(ImportError::Changed)
        }
    }

    /// Writes each batch in as many transactions as it needs: a scheduling information brings a run
    /// information with it, which is in the database and may be much larger.
    async fn write(
        &mut self,
        mut batches: WorkedBatches<Vec<Classified>>,
    ) -> Result<(), ImportError> {
        while let Some(mut leaves) = batches.next().await {
            let count = leaves.len() as u64;
            let run_bytes = self.run_bytes(&leaves).await?;
            while !leaves.is_empty() {
                let rest = leaves.split_off(self.fitting(&leaves, &run_bytes));
                self.write_batch(&leaves).await?;
                leaves = rest;
            }
            batches.written(count);
        }
        Ok(())
    }

    /// The number of leaves that fill a batch, the one that reaches its limit among them.
    fn fitting(&self, leaves: &[Classified], run_bytes: &HashMap<String, u64>) -> usize {
        let bytes = |leaf: &Classified| {
            let joined = match &leaf.class {
                Class::SchedulingInfo { guid, .. } => run_bytes.get(guid).copied(),
                _ => None,
            };
            leaf.leaf.value.len() as u64 + joined.unwrap_or_default()
        };
        let sums = leaves.iter().map(bytes).scan(0, |sum: &mut u64, bytes| {
            *sum = sum.saturating_add(bytes);
            Some(*sum)
        });
        sums.take_while(|sum| *sum < self.context.tuning.batch_bytes)
            .count()
            .saturating_add(1)
            .min(leaves.len())
    }

    /// The lengths of the run information that leaves are joined with, by process guid.
    async fn run_bytes(&self, leaves: &[Classified]) -> Result<HashMap<String, u64>, ImportError> {
        let guids = leaves.iter().filter_map(|leaf| match &leaf.class {
            Class::SchedulingInfo { guid, .. } => Some(guid.as_str()),
            _ => None,
        });
        // Halves of one desired LRP may be in the same batch.
        let in_batch = leaves.iter().filter_map(|leaf| match &leaf.class {
            Class::RunInfo { guid } => Some((guid.clone(), leaf.leaf.value.len() as u64)),
            _ => None,
        });
        let mut found: HashMap<_, _> = in_batch.collect();
        let mut reader = self.context.database.read().await?;
        for chunk in guids.collect::<Vec<_>>().chunks(CHUNK) {
            let length = bbs_units::text_length(["leaf"].into_iter()).expect("one column");
            let mut select = Query::select();
            select
                .column("process_guid")
                .expr(length.cast_as(Alias::new(reader.dialect().integer_cast())));
            select
                .from(IMPORT_RUN)
                .and_where(Expr::col("process_guid").is_in(of_few_lengths(chunk.to_vec())));
            for row in reader.fetch(&select).await.about(IMPORT_RUN)? {
                let guid = row.text_or_empty(0).about(IMPORT_RUN)?;
                let length = row.unsigned(1).about(IMPORT_RUN)?;
                found.insert(guid.to_owned(), length);
            }
        }
        Ok(found)
    }

    /// Writes a batch in one transaction, or, if the database refuses a row of it, leaf by leaf.
    async fn write_batch(&mut self, leaves: &[Classified]) -> Result<(), ImportError> {
        match self.write_retrying(leaves).await {
            Err(fault) if fault.refused_row().is_some() => {
                for leaf in leaves {
                    self.write_alone(leaf).await?;
                }
                Ok(())
            }
            written => written,
        }
    }

    async fn write_alone(&mut self, leaf: &Classified) -> Result<(), ImportError> {
        let written = self.write_retrying(std::slice::from_ref(leaf)).await;
        let refused = written.as_ref().err().and_then(ImportError::refused_row);
        let Some(RefusedRow { flaw, is_of_key }) = refused else {
            return written;
        };
        // No correction makes two keys different that the database compares as the same.
        if !is_of_key && self.context.tuning.on_unreadable == OnUnreadable::Stop {
            let key = leaf.leaf.key.clone();
            return Err(ImportError::RefusedRow { key, flaw });
        }
        let mut outcome = BatchOutcome::default();
        outcome.report.of(leaf.kind).seen += 1;
        let mut tx = self.fence.begin().await?;
        self.quarantine(&mut tx, leaf.kind, &leaf.leaf, &flaw, &mut outcome)
            .await?;
        tx.commit().await.about(IMPORT)?;
        self.accept(outcome);
        let refused = self.refused_rows.entry(leaf.kind).or_default();
        *refused += 1;
        let limit = self.context.tuning.quarantine_limit;
        self.survey.check_limit(leaf.kind, *refused, limit)
    }

    async fn write_retrying(&mut self, leaves: &[Classified]) -> Result<(), ImportError> {
        let written =
            pauses::retry_batch(&self.context.progress, ImportError::is_transient, || {
                self.write_once(leaves)
            });
        let outcome = written.await?;
        self.accept(outcome);
        Ok(())
    }

    /// Adds what is durable to the counts.
    fn accept(&mut self, outcome: BatchOutcome) {
        for (table, rows) in outcome.rows {
            *self.rows.entry(table).or_default() += rows;
        }
        self.context
            .progress
            .quarantined(outcome.report.total().quarantined);
        self.report.add(outcome.report);
    }

    async fn write_once(&self, leaves: &[Classified]) -> Result<BatchOutcome, ImportError> {
        let mut outcome = BatchOutcome::default();
        let mut tx = self.fence.begin_relaxed().await?;
        let mut tables: BTreeMap<&'static str, Vec<ImportedRow>> = BTreeMap::new();
        let mut run_infos = Vec::new();
        let mut schedules = Vec::new();
        for Classified {
            leaf, kind, class, ..
        } in leaves
        {
            outcome.report.of(*kind).seen += 1;
            match class {
                Class::Row(row) => {
                    outcome.report.of(*kind).imported += 1;
                    tables.entry(row.table).or_default().push(row.clone());
                }
                Class::Store(_) => outcome.report.of(*kind).imported += 1,
                Class::Expired => outcome.report.of(*kind).expired += 1,
                Class::Foreign(reason) => outcome.report.set_apart(*kind, &leaf.key, reason),
                Class::Damaged { reason, .. } => {
                    self.quarantine(&mut tx, *kind, leaf, reason, &mut outcome)
                        .await?
                }
                Class::RunInfo { guid } => run_infos.push((guid.as_str(), leaf)),
                Class::SchedulingInfo { guid, info } => {
                    schedules.push((guid.as_str(), info.as_ref(), leaf))
                }
            }
        }
        self.keep_runs(&mut tx, &run_infos).await?;
        for chunk in schedules.chunks(CHUNK) {
            let joined = self.join(&mut tx, chunk, &mut outcome).await?;
            tables.entry("desired_lrps").or_default().extend(joined);
        }
        for (name, rows) in &tables {
            let table = &self.classifier.layout.tables[*name];
            let stored = stored(table, rows.iter(), &self.context.keyring);
            let written = bulk::insert(&mut tx, name, table, &stored).await;
            written.about("the imported rows")?;
            outcome.rows.insert(name, rows.len() as u64);
        }
        fault::point(fault::BEFORE_IMPORT_BATCH);
        tx.commit().await.about(IMPORT)?;
        fault::point(fault::AFTER_IMPORT_BATCH);
        Ok(outcome)
    }

    /// Stores run information, sealed, until its scheduling information is read.
    async fn keep_runs(
        &self,
        tx: &mut Transaction,
        run_infos: &[(&str, &Leaf)],
    ) -> Result<(), ImportError> {
        if run_infos.is_empty() {
            return Ok(());
        }
        let table = migrate::import_run();
        let mut runs_read = TableBuilder::new(&table.columns);
        for (guid, leaf) in run_infos {
            let keyring = &self.context.keyring;
            let sealed = keyring.seal(Sealing::Sealed, leaf.value.as_bytes());
            runs_read.push_row([guid.as_bytes(), &sealed].map(Value::Text));
        }
        let count = u32::try_from(run_infos.len()).expect("batches are bounded");
        let rows = runs_read.finish(vec![0, count]);
        bulk::insert(tx, IMPORT_RUN, &table, &rows)
            .await
            .about(IMPORT_RUN)?;
        Ok(())
    }

    /// The rows of desired LRPs of which both halves are read.
    async fn join(
        &self,
        tx: &mut Transaction,
        schedules: &[(&str, &DesiredLrpSchedulingInfo, &Leaf)],
        outcome: &mut BatchOutcome,
    ) -> Result<Vec<ImportedRow>, ImportError> {
        let guids = || schedules.iter().map(|(guid, ..)| *guid);
        let mut select = Query::select();
        select
            .columns(["process_guid", "leaf"])
            .from(Alias::new(IMPORT_RUN));
        select.and_where(Expr::col("process_guid").is_in(of_few_lengths(guids().collect())));
        let mut found = HashMap::new();
        for row in tx.fetch(&select).await.about(IMPORT_RUN)? {
            let (guid, run_info) = self.run_info(&row)?;
            found.insert(guid, run_info);
        }
        let mut rows = Vec::new();
        let mut joined = Vec::new();
        for (guid, info, leaf) in schedules {
            let Some(run_info) = found.remove(*guid) else {
                self.quarantine(
                    tx,
                    RecordKind::SchedulingInfo,
                    leaf,
                    ALONE_SCHEDULING,
                    outcome,
                )
                .await?;
                continue;
            };
            joined.push(*guid);
            match self.classifier.joined((*info).clone(), &run_info) {
                Ok(row) => {
                    outcome.report.of(RecordKind::RunInfo).imported += 1;
                    outcome.report.of(RecordKind::SchedulingInfo).imported += 1;
                    rows.push(row);
                }
                Err(reason) => {
                    self.quarantine(tx, RecordKind::RunInfo, &run_info, &reason, outcome)
                        .await?;
                    self.quarantine(tx, RecordKind::SchedulingInfo, leaf, &reason, outcome)
                        .await?;
                }
            }
        }
        if !joined.is_empty() {
            delete_runs(tx, joined).await?;
        }
        Ok(rows)
    }

    /// The process guid and the run information of a row of `bbs_import_run`.
    fn run_info(&self, row: &Row) -> Result<(String, Leaf), ImportError> {
        let guid = row.text_or_empty(0).about(IMPORT_RUN)?;
        let sealed = row.bytes(1).about(IMPORT_RUN)?.unwrap_or_default();
        let opened = self.context.keyring.open(Sealing::Sealed, sealed).ok();
        let Some(value) = opened.and_then(|text| String::from_utf8(text).ok()) else {
            return Err(ImportError::DamagedRunInfo {
                guid: guid.to_owned(),
            });
        };
        let leaf = Leaf {
            key: run_info_key(guid),
            value,
            modified_index: 0,
            expires_at_ns: None,
        };
        Ok((guid.to_owned(), leaf))
    }

    /// Keeps the run information whose scheduling information was not in the store.
    async fn keep_runs_alone(&mut self) -> Result<(), ImportError> {
        loop {
            let kept =
                pauses::retry_batch(&self.context.progress, ImportError::is_transient, || {
                    self.keep_next_runs_alone()
                });
            let Some(outcome) = kept.await? else {
                return Ok(());
            };
            self.accept(outcome);
        }
    }

    /// Keeps the first of them in one transaction. `None` if there is none.
    async fn keep_next_runs_alone(&self) -> Result<Option<BatchOutcome>, ImportError> {
        let mut outcome = BatchOutcome::default();
        let mut tx = self.fence.begin().await?;
        let measure = Measure::Bytes {
            most: self.context.tuning.batch_bytes,
        };
        let found = bbs_units::next_units(
            &mut tx,
            &[&migrate::import_run()],
            None,
            CHUNK as u64,
            measure,
        )
        .await;
        let found = found.map_err(MigrateError::from)?;
        if found.units.is_empty() {
            return Ok(None);
        }
        let mut select = Query::select();
        select.columns(["process_guid", "leaf"]).from(IMPORT_RUN);
        select
            .order_by("process_guid", Order::Asc)
            .limit(found.units.len() as u64);
        let mut guids = Vec::new();
        for row in tx.fetch(&select).await.about(IMPORT_RUN)? {
            let (guid, leaf) = self.run_info(&row)?;
            outcome
                .report
                .quarantine(RecordKind::RunInfo, &leaf.key, ALONE_RUN);
            self.keep(&mut tx, &leaf, ALONE_RUN, None).await?;
            guids.push(guid);
        }
        delete_runs(&mut tx, guids.iter().map(String::as_str).collect()).await?;
        fault::point(fault::BEFORE_IMPORT_BATCH);
        tx.commit().await.about(IMPORT_RUN)?;
        fault::point(fault::AFTER_IMPORT_BATCH);
        Ok(Some(outcome))
    }

    /// Puts a leaf into quarantine. The instances of a desired LRP go on meanwhile.
    async fn quarantine(
        &self,
        tx: &mut Transaction,
        kind: RecordKind,
        leaf: &Leaf,
        reason: &str,
        outcome: &mut BatchOutcome,
    ) -> Result<(), ImportError> {
        outcome.report.quarantine(kind, &leaf.key, reason);
        let key = RecordKey::of(&leaf.key);
        let process_guid = match kind {
            RecordKind::DesiredLrp | RecordKind::SchedulingInfo | RecordKind::RunInfo => key.guid(),
            _ => None,
        };
        self.keep(tx, leaf, reason, process_guid).await
    }

    async fn keep(
        &self,
        tx: &mut Transaction,
        leaf: &Leaf,
        reason: &str,
        process_guid: Option<&str>,
    ) -> Result<(), ImportError> {
        let foreign = ForeignRecord {
            key: &leaf.key,
            process_guid,
            reason,
            content: leaf.value.as_bytes(),
        };
        Ok(migrate::keep_foreign(tx, self.context, VERSION, &foreign).await?)
    }

    /// Checks that the tables have the rows that were written.
    async fn check_rows(&self) -> Result<(), ImportError> {
        let mut reader = self.context.database.read().await?;
        for table in self.classifier.layout.tables.keys() {
            let count = Query::select()
                .expr(Expr::cust("COUNT(*)"))
                .from(Alias::new(table))
                .take();
            let found = reader.fetch_number(&count).await.about(IMPORT)?;
            let found = found.unsigned_abs();
            let expected = self.rows.get(table.as_str()).copied().unwrap_or_default();
            if found != expected {
                return Err(ImportError::Rows {
                    table: table.clone(),
                    found,
                    expected,
                });
            }
        }
        Ok(())
    }
}
