//! What only local disk knows: directories, and the file system's own failures.

use std::path::PathBuf;

use chrono::{DateTime, Utc};
use object_store::path::Path;

use crate::error::{Error, Result};
use crate::store::RootStore;

impl RootStore {
    /// The file system path, where objects are plain files.
    pub(crate) fn local_path(&self, path: &Path) -> Option<PathBuf> {
        self.store
            .has_direct_local_paths()
            .then(|| PathBuf::from(lance_io::local::to_local_path(path)))
    }

    /// Whether a directory is there, which only local disk knows.
    pub(crate) fn is_dir(&self, path: &Path) -> bool {
        self.local_path(path).is_some_and(|p| p.is_dir())
    }

    /// Whether a file is there where a table's directory would be.
    pub(crate) fn is_loose_file(&self, path: &Path) -> bool {
        self.local_path(path).is_some_and(|p| p.is_file())
    }

    /// When a file directly under the root was last written to, with local disk's own clock; `None` where it is gone.
    pub(crate) fn file_modified(&self, file: &str) -> Result<Option<DateTime<Utc>>> {
        let Some(root) = self.local_path(&self.base) else {
            return Ok(None);
        };
        let modified = std::fs::symlink_metadata(root.join(file)).and_then(|m| m.modified());
        match modified {
            Ok(modified) => Ok(Some(modified.into())),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(self.local_failure("stat", &self.base, e)),
        }
    }

    /// Deletes a file directly under the root that is no object; one that is gone is deleted.
    pub(crate) fn remove_file(&self, file: &str) -> Result<()> {
        let Some(root) = self.local_path(&self.base) else {
            return Ok(());
        };
        match std::fs::remove_file(root.join(file)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(self.local_failure("delete", &self.base, e))
            }
            _ => Ok(()),
        }
    }

    /// A failure of the local file system.
    pub(crate) fn local_failure(
        &self,
        operation: &'static str,
        path: &Path,
        error: std::io::Error,
    ) -> Error {
        let error = object_store::Error::Generic {
            store: "LocalFileSystem",
            source: Box::new(error),
        };
        self.storage(operation, path, error)
    }

    /// Removes a local directory if nothing is in it; a no-op on object stores.
    pub(crate) async fn remove_empty_dir(&self, dir: &Path) {
        if let Some(path) = self.local_path(dir) {
            // `rmdir` refuses a directory with anything in it, which is the point.
            let _ = tokio::fs::remove_dir(path).await;
        }
    }
}
