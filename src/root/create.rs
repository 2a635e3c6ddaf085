//! Create a root table: new, over a dropped name, or over a live one; and the steps that child tables share with it.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow::array::{RecordBatch, RecordBatchIterator};
use lance::dataset::transaction::{Operation, Transaction};
use lance::dataset::{
    CommitBuilder, Dataset, InsertBuilder, WriteDestination, WriteMode, WriteParams,
};
use lance_table::io::commit::ManifestLocation;
use uuid::Uuid;

use crate::catalog::Catalog;
use crate::child;
use crate::error::{Error, ErrorKind, Result, from_lance};
use crate::ident::TableIdent;
use crate::lifecycle::{CommitFailure, Look, Tombstone, tombstone};
use crate::managed::ManagedCommitHandler;
use crate::root::data::{Source, TableData};
use crate::root::{self, committed_version, data_files};
use crate::store::{RootStore, Slot, join};
use crate::versions::fence::INCARNATION;

/// How long a commit into a directory that nobody else knows may take.
const PRIVATE_COMMIT: Duration = Duration::from_secs(600);

/// What a create does when a live table has the name. A dropped table is revived in every mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CreateMode {
    /// Refuse with [`Error::TableAlreadyExists`].
    #[default]
    Create,
    /// Open the table that is there; the data given is not written.
    ExistOk,
    /// Commit the data as a new version that replaces all rows; earlier versions stay in the history.
    Overwrite,
}

/// A create about to be made; await it. See [`Catalog::create_table`].
#[derive(Debug)]
#[must_use = "a create does nothing until it is awaited"]
pub struct CreateTable {
    pub(crate) catalog: Catalog,
    pub(crate) ident: TableIdent,
    data: TableData,
    pub(crate) mode: CreateMode,
    params: WriteParams,
}

impl CreateTable {
    pub(crate) fn new(catalog: Catalog, ident: TableIdent, data: TableData) -> Self {
        Self {
            catalog,
            ident,
            data,
            mode: CreateMode::default(),
            params: WriteParams::default(),
        }
    }

    /// What to do when a live table has the name.
    pub fn mode(mut self, mode: CreateMode) -> Self {
        self.mode = mode;
        self
    }

    /// Lance's write parameters: file sizes, storage version, stable row ids and so on. The catalog sets the mode,
    /// the session, the store parameters and the commit handler itself.
    pub fn write_params(mut self, params: WriteParams) -> Self {
        self.params = params;
        self
    }

    pub(crate) fn check_data(&self) -> Result<()> {
        match &self.data.0 {
            Source::Batches(batches) if batches.is_empty() => Err(Error::InvalidInput {
                message: "no record batch was given; use TableData::empty for a table without rows"
                    .to_string(),
            }),
            _ => Ok(()),
        }
    }

    async fn run(self) -> Result<Dataset> {
        if self.ident.is_child() {
            return child::create::create(self).await;
        }
        let catalog = self.catalog.clone();
        let slot = root::new_slot(catalog.store(), &self.ident)?;
        self.check_data()?;
        let mode = self.mode;
        let lifecycle = catalog.lifecycle();
        let mut patience = lifecycle.patience();
        // Most often nothing is there, which one look at everything shows.
        let latest = match lifecycle.look(&slot).await? {
            Look::Nothing => None,
            Look::Versions => catalog.store().latest_manifest(&slot.table).await?,
            Look::Hidden => {
                // What another process is creating decides what we answer.
                if let Some(tombstone) = lifecycle.hidden_or_wait(&slot, &mut patience).await? {
                    return self.revive(&slot, tombstone).await;
                }
                catalog.store().latest_manifest(&slot.table).await?
            }
        };
        if let Some(latest) = latest {
            return self.over_live(&slot, latest.version).await;
        }
        let lost = match self.create_new(&slot).await {
            Err(e @ (Error::Conflict { .. } | Error::TableAlreadyExists { .. })) => e,
            other => return other,
        };
        if mode == CreateMode::Overwrite {
            return Err(Error::Conflict {
                ident: slot.ident,
                message: "another process has just created it".to_string(),
            });
        }
        // The winner's table is as good as ours where ours was only wanted if there was none.
        if !matches!(
            lifecycle.hidden_or_wait(&slot, &mut patience).await,
            Ok(None)
        ) {
            return Err(lost);
        }
        let live = catalog.store().latest_manifest(&slot.table).await?;
        match (mode, live) {
            (CreateMode::ExistOk, Some(_)) => catalog.open_table(slot.ident).await,
            (_, Some(_)) => Err(Error::TableAlreadyExists { ident: slot.ident }),
            (_, None) => Err(lost),
        }
    }

    pub(crate) fn params(&self, mode: WriteMode) -> WriteParams {
        let store = self.catalog.store();
        WriteParams {
            mode,
            store_params: Some(store.params.clone()),
            session: Some(store.session.clone()),
            commit_handler: None,
            ..self.params.clone()
        }
    }

    /// The table is live: by the mode.
    pub(crate) async fn over_live(self, slot: &Slot, version: u64) -> Result<Dataset> {
        match self.mode {
            CreateMode::Create => Err(Error::TableAlreadyExists {
                ident: slot.ident.clone(),
            }),
            CreateMode::ExistOk => self.catalog.open_table(slot.ident.clone()).await,
            CreateMode::Overwrite => {
                let catalog = self.catalog.clone();
                let params = self.params(WriteMode::Overwrite);
                // Before the open, so that no other table can have come in between unnoticed.
                let base = catalog.store().manifest_of(&slot.table, version).await?;
                let dataset = Arc::new(catalog.open_table(slot.ident.clone()).await?);
                let Some(base) = base else {
                    return Err(Error::Conflict {
                        ident: slot.ident.clone(),
                        message: "the version that was read is gone".to_string(),
                    });
                };
                let (transaction, dest) = self
                    .write(slot, WriteDestination::Dataset(dataset), &params)
                    .await?;
                commit_alone(&catalog, slot, dest, &params, transaction, Some(&base)).await
            }
        }
    }

    /// Nothing has a version at the slot yet.
    pub(crate) async fn create_new(self, slot: &Slot) -> Result<Dataset> {
        let catalog = self.catalog.clone();
        let params = self.params(WriteMode::Create);
        let (transaction, dest) = self
            .write(slot, WriteDestination::Uri(&slot.uri), &params)
            .await?;
        commit_alone(&catalog, slot, dest, &params, transaction, None).await
    }

    async fn revive(self, slot: &Slot, tombstone: Tombstone) -> Result<Dataset> {
        let catalog = self.catalog.clone();
        if let Some(why) = &tombstone.parse_error {
            return Err(Error::CorruptMetadata {
                path: slot.tombstone.to_string(),
                message: format!(
                    "{why}; undrop or purge the table by name before creating over it"
                ),
            });
        }
        let base = catalog.store().latest_manifest(&slot.table).await?;
        let (mode, dest) = match &base {
            Some(_) => {
                let hidden = match root::load_for(&catalog, slot, None).await {
                    Ok(hidden) => hidden,
                    Err(e) => return Err(overtaken(&catalog, slot, &tombstone, e).await),
                };
                (
                    WriteMode::Overwrite,
                    WriteDestination::Dataset(Arc::new(hidden)),
                )
            }
            None => (WriteMode::Create, WriteDestination::Uri(slot.uri.as_str())),
        };
        let base = base.map(|m| m.version);
        let params = self.params(mode);
        let (transaction, dest) = match self.write(slot, dest, &params).await {
            Ok(written) => written,
            Err(e) => return Err(overtaken(&catalog, slot, &tombstone, e).await),
        };
        let id = transaction_id(&transaction, slot)?;
        let in_doubt = AtomicBool::new(false);
        let revived = catalog
            .lifecycle()
            .revive(slot, &tombstone, base, id, |left| {
                commit_leased(
                    &catalog,
                    slot,
                    dest,
                    &params,
                    transaction.clone(),
                    left,
                    base,
                    &in_doubt,
                )
            })
            .await;
        if revived.is_err() && !in_doubt.load(Ordering::Relaxed) {
            discard(&catalog, slot, &transaction).await;
        }
        revived
    }

    /// Writes the data files without committing them.
    pub(crate) async fn write<'a>(
        self,
        slot: &Slot,
        dest: WriteDestination<'a>,
        params: &WriteParams,
    ) -> Result<(Transaction, WriteDestination<'a>)> {
        let insert = InsertBuilder::new(dest.clone()).with_params(params);
        let written = match self.data.0 {
            Source::Batches(batches) => {
                // An empty vector was refused above.
                let schema = batches.first().map(RecordBatch::schema).ok_or_else(|| {
                    Error::InvalidInput {
                        message: "no record batch was given".to_string(),
                    }
                })?;
                if batches.iter().any(|b| b.schema() != schema) {
                    return Err(Error::InvalidInput {
                        message: "all record batches must have the same schema".to_string(),
                    });
                }
                let reader = RecordBatchIterator::new(batches.into_iter().map(Ok), schema);
                insert.execute_uncommitted_stream(reader).await
            }
            Source::Reader(reader) => insert.execute_uncommitted_stream(reader).await,
            Source::Stream(stream) => insert.execute_uncommitted_stream(stream).await,
        };
        let store = self.catalog.store();
        match written {
            Ok(mut transaction) => {
                if matches!(params.mode, WriteMode::Create) {
                    incarnate(&mut transaction);
                }
                Ok((transaction, dest))
            }
            Err(e) => {
                remove_empty_dirs(store, slot).await;
                Err(from_lance(
                    e,
                    "write the data of",
                    &slot.ident,
                    &store.redactor,
                ))
            }
        }
    }
}

impl IntoFuture for CreateTable {
    type Output = Result<Dataset>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

/// Gives a new table its incarnation, which every later version inherits.
fn incarnate(transaction: &mut Transaction) {
    if let Operation::Overwrite {
        config_upsert_values,
        ..
    } = &mut transaction.operation
    {
        let id = Uuid::new_v4().to_string();
        config_upsert_values
            .get_or_insert_default()
            .insert(INCARNATION.to_string(), id);
    }
}

/// Why a revive could not write: a restore or a purge that was decided meanwhile explains it better than Lance can.
async fn overtaken(catalog: &Catalog, slot: &Slot, revived: &Tombstone, error: Error) -> Error {
    if error.kind() == ErrorKind::InvalidInput {
        return error;
    }
    // The claim first: who finishes deletes the tombstone before the claim, so none of both is missed.
    if let Ok(Some(held)) = catalog.lifecycle().holder(slot, revived.drop_id).await {
        return held.error(slot);
    }
    match tombstone::read(catalog.store(), slot).await {
        Ok(current)
            if current
                .as_ref()
                .is_none_or(|t| t.drop_id != revived.drop_id) =>
        {
            Error::Conflict {
                ident: slot.ident.clone(),
                message: "its drop was finished by another process meanwhile".to_string(),
            }
        }
        _ => error,
    }
}

/// Commits while nobody else creates, drops or purges the table.
async fn commit_alone(
    catalog: &Catalog,
    slot: &Slot,
    dest: WriteDestination<'_>,
    params: &WriteParams,
    transaction: Transaction,
    base: Option<&ManifestLocation>,
) -> Result<Dataset> {
    let version = base.map(|b| b.version);
    let in_doubt = AtomicBool::new(false);
    let committed = catalog
        .lifecycle()
        .commit_alone(slot, &transaction, base, |left| {
            commit_leased(
                catalog,
                slot,
                dest,
                params,
                transaction.clone(),
                left,
                version,
                &in_doubt,
            )
        })
        .await;
    if committed.is_err() && !in_doubt.load(Ordering::Relaxed) {
        discard(catalog, slot, &transaction).await;
    }
    committed
}

/// Commits the first version in a directory that nobody else knows.
pub(crate) async fn commit_private(
    catalog: &Catalog,
    slot: &Slot,
    dest: WriteDestination<'_>,
    params: &WriteParams,
    transaction: Transaction,
) -> Result<Dataset> {
    let in_doubt = AtomicBool::new(false);
    let (patience, files) = (PRIVATE_COMMIT, transaction.clone());
    let committed = commit_leased(
        catalog,
        slot,
        dest,
        params,
        transaction,
        patience,
        None,
        &in_doubt,
    );
    match committed.await {
        Ok(dataset) => Ok(dataset),
        Err(CommitFailure::Failed(error) | CommitFailure::Unknown(error)) => {
            // Whether it lands yet or not, no id will ever name this directory.
            discard(catalog, slot, &files).await;
            Err(error)
        }
    }
}

/// Commits under a lease, where a failure is looked into: its acknowledgement may be all that was lost. `in_doubt` is
/// set while the files written may belong to the history, or may come to.
#[allow(clippy::too_many_arguments)] // Half of them are one request to Lance.
async fn commit_leased(
    catalog: &Catalog,
    slot: &Slot,
    dest: WriteDestination<'_>,
    params: &WriteParams,
    transaction: Transaction,
    left: Duration,
    base: Option<u64>,
    in_doubt: &AtomicBool,
) -> std::result::Result<Dataset, CommitFailure> {
    let store = catalog.store();
    let id = transaction_id(&transaction, slot).map_err(CommitFailure::Failed)?;
    let mut builder = CommitBuilder::new(dest)
        .use_stable_row_ids(params.enable_stable_row_ids)
        .enable_v2_manifest_paths(params.enable_v2_manifest_paths)
        .with_skip_auto_cleanup(params.skip_auto_cleanup)
        .with_store_params(store.params.clone())
        .with_session(store.session.clone())
        .with_timeout(Some(left));
    if let Some(version) = params.data_storage_version {
        builder = builder.with_storage_format(version);
    }
    let managed = catalog
        .is_managed()
        .then(|| Arc::new(ManagedCommitHandler::creating(catalog, slot)));
    if let Some(handler) = &managed {
        builder = builder.with_commit_handler(handler.clone());
    }
    in_doubt.store(true, Ordering::Relaxed);
    let error = match builder.execute(transaction).await {
        Ok(dataset) => {
            if let Some(handler) = managed {
                handler.created();
            }
            return Ok(dataset);
        }
        Err(e) => from_lance(e, "commit", &slot.ident, &store.redactor),
    };
    match committed_version(store, slot, base, id).await {
        // Not a later one, which others may have made of it since.
        Ok(Some(version)) => root::load_for(catalog, slot, Some(version))
            .await
            .map_err(CommitFailure::Unknown),
        // A refusal is final; after anything else the request may still be under way.
        Ok(None)
            if error.kind() == ErrorKind::Conflict
                || (!error.is_retryable() && error.kind() != ErrorKind::Lance) =>
        {
            // A refused permission may be the answer to a repetition of a request that went through.
            if error.kind() != ErrorKind::Storage {
                in_doubt.store(false, Ordering::Relaxed);
            }
            Err(CommitFailure::Failed(error))
        }
        Ok(None) | Err(_) => Err(CommitFailure::Unknown(error)),
    }
}

/// Deletes the data files of a transaction that is known not to be committed; what is left on failure is litter for Lance's cleanup.
async fn discard(catalog: &Catalog, slot: &Slot, transaction: &Transaction) {
    let store = catalog.store();
    let paths: Vec<_> = data_files(transaction)
        .into_iter()
        .filter_map(|file| join(&slot.table, &format!("data/{file}")).ok())
        .collect();
    for batch in paths.chunks(crate::store::DELETE_BATCH) {
        if let Err(error) = store.delete_batch(batch).await {
            tracing::warn!(table = %slot.ident, %error, "data files of a create that lost are left behind");
            return;
        }
    }
    remove_empty_dirs(store, slot).await;
}

/// Local disk keeps the directories that were made for a write; while they are empty they are ours to take.
async fn remove_empty_dirs(store: &RootStore, slot: &Slot) {
    if let Ok(data) = join(&slot.table, "data") {
        store.remove_empty_dir(&data).await;
    }
    store.remove_empty_dir(&slot.table).await;
}

fn transaction_id(transaction: &Transaction, slot: &Slot) -> Result<Uuid> {
    Uuid::try_parse(&transaction.uuid).map_err(|_| Error::CorruptMetadata {
        path: slot.table.to_string(),
        message: format!(
            "Lance named a transaction {:?}, not a UUID",
            transaction.uuid
        ),
    })
}
