//! Deletion of rows from `__manifest`, on exactly the version that was seen.
//!
//! Lance's own deletion, as the very next version or not at all: Lance by itself would take it over onto whatever others
//! have committed since, also onto a format that this build must not write. It tells how many rows it took. That another
//! commit came first is no error but [`Deletion::Lost`]; on S3 an attempt that Lance gave up can still turn out to have
//! landed, which [`Attempt::landed`] finds out. Whatever else is unclear stays an error.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use lance::dataset::{CommitBuilder, Dataset, DeleteBuilder};
use lance_core::Result;
use lance_io::object_store::ObjectStore;
use lance_namespace_impls::dir::manifest_feature_flags::ensure_writable;
use lance_table::format::{IndexMetadata, Manifest, Transaction};
use lance_table::io::commit::{
    CommitError, CommitHandler, ManifestLocation, ManifestNamingScheme, ManifestWriter,
};
use object_store::ObjectStore as OSObjectStore;
use object_store::path::Path;

use super::snapshot::is_gone;

/// How a deletion ended.
pub(super) enum Deletion {
    /// It took so many rows; none, and then nothing was committed.
    Done(u64),
    /// Another commit came first.
    Lost(Attempt),
}

/// A deletion that was given up.
pub(super) struct Attempt {
    dataset: Arc<Dataset>,
    transaction: String,
}

impl Attempt {
    /// Whether it took effect all the same: whether the version that it would have made is its own.
    pub(super) async fn landed(&self) -> Result<bool> {
        let next = self.dataset.manifest().version + 1;
        let found = self.dataset.read_transaction_by_version(next).await?;
        Ok(found.is_some_and(|found| found.uuid == self.transaction))
    }
}

/// Deletes the rows of this version that a predicate keeps. `plain`: what Lance commits with there.
pub(super) async fn delete(
    dataset: &Dataset,
    plain: &Arc<dyn CommitHandler>,
    predicate: &str,
) -> Result<Deletion> {
    ensure_writable(dataset.metadata())?;
    let dataset = Arc::new(dataset.clone());
    let delete = DeleteBuilder::new(Arc::clone(&dataset), predicate);
    let staged = delete.execute_uncommitted().await?;
    if staged.num_deleted_rows == 0 {
        return Ok(Deletion::Done(0));
    }
    let next = Arc::new(Next {
        plain: Arc::clone(plain),
        version: dataset.manifest().version + 1,
        refused: AtomicBool::new(false),
    });
    let transaction = staged.transaction.uuid.clone();
    // The base's own commits clean up nothing either, whatever a manifest of long ago says.
    let mut commit = CommitBuilder::new(Arc::clone(&dataset))
        .with_commit_handler(next.clone())
        .with_max_retries(0)
        .with_skip_auto_cleanup(true);
    if let Some(rows) = staged.affected_rows {
        commit = commit.with_affected_rows(rows);
    }
    match commit.execute(staged.transaction).await {
        Ok(_) => Ok(Deletion::Done(staged.num_deleted_rows)),
        // Gone: a later version, cleaned up under Lance's look at it.
        Err(e) if is_lost(&e) || is_gone(&e) || next.refused.load(Ordering::Acquire) => {
            Ok(Deletion::Lost(Attempt {
                dataset,
                transaction,
            }))
        }
        Err(e) => Err(e),
    }
}

/// Whether another commit came first.
fn is_lost(e: &lance_core::Error) -> bool {
    use lance_core::Error as L;
    matches!(
        e,
        L::IncompatibleTransaction { .. }
            | L::RetryableCommitConflict { .. }
            | L::CommitConflict { .. }
            | L::TooMuchWriteContention { .. }
    )
}

/// Commits one version, and no other.
#[derive(Debug)]
struct Next {
    plain: Arc<dyn CommitHandler>,
    version: u64,
    refused: AtomicBool,
}

#[async_trait]
#[allow(clippy::too_many_arguments)] // The signatures are Lance's.
impl CommitHandler for Next {
    fn is_version_not_found_definitive(&self) -> bool {
        self.plain.is_version_not_found_definitive()
    }

    fn propagate_commit_error_after_success(&self) -> bool {
        self.plain.propagate_commit_error_after_success()
    }

    async fn resolve_latest_location(
        &self,
        base_path: &Path,
        object_store: &ObjectStore,
    ) -> Result<ManifestLocation> {
        self.plain
            .resolve_latest_location(base_path, object_store)
            .await
    }

    async fn resolve_version_location(
        &self,
        base_path: &Path,
        version: u64,
        object_store: &dyn OSObjectStore,
    ) -> Result<ManifestLocation> {
        self.plain
            .resolve_version_location(base_path, version, object_store)
            .await
    }

    async fn commit(
        &self,
        manifest: &mut Manifest,
        indices: Option<Vec<IndexMetadata>>,
        base_path: &Path,
        object_store: &ObjectStore,
        manifest_writer: ManifestWriter,
        naming_scheme: ManifestNamingScheme,
        transaction: Option<Transaction>,
    ) -> std::result::Result<ManifestLocation, CommitError> {
        if manifest.version != self.version {
            self.refused.store(true, Ordering::Release);
            return Err(CommitError::CommitConflict);
        }
        self.plain
            .commit(
                manifest,
                indices,
                base_path,
                object_store,
                manifest_writer,
                naming_scheme,
                transaction,
            )
            .await
    }
}
