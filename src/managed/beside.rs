//! The look for a drop that is made beside Lance's own for newer versions.
//!
//! Lance begins every attempt of a commit with a listing of the versions since its own, except that of a strict overwrite.
//! That listing also tells what the fence asks for: the latest version, and whether the one with which the handle began is
//! still the same object. So the tombstone and the marker are asked for beside it, and the commit that Lance then builds
//! on what was listed sends its PUT alone, if not too much of the commit window is over by then.
//!
//! Promises: a commit rests on a look that began no earlier than the commit itself did. One look serves one commit, and of
//! two attempts through one handle at the same time the later look counts. Where anything is missing, no look is kept, and
//! the commit looks for itself.

use std::sync::{Arc, Mutex, PoisonError};

use futures::TryStreamExt;
use lance_core::Result;
use lance_io::object_store::ObjectStore;
use lance_table::format::{Transaction, pb};
use lance_table::io::commit::{CommitHandler, ManifestLocation};
use object_store::path::Path;

use crate::catalog::Catalog;
use crate::lifecycle::Moment;
use crate::root::open;
use crate::store::Slot;
use crate::versions::create::Look;
use crate::versions::fence::{Anchor, Seen};

/// How far the version with which a handle began may be behind the one since which Lance lists: on the same page of the
/// listing, whose pages are of 1,000.
const BEHIND: u64 = 500;

/// The last look of a handle.
#[derive(Debug, Default)]
pub(super) struct Looks(Mutex<Last>);

#[derive(Debug, Default)]
struct Last {
    /// Counts the looks that have begun.
    begun: u64,
    kept: Option<(Path, Look)>,
}

impl Looks {
    /// Lance lists, after which no earlier look counts, whether or not another one is made beside it.
    pub(super) fn begin(&self) -> u64 {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.begun += 1;
        last.kept = None;
        last.begun
    }

    fn keep(&self, begun: u64, base: Path, look: Look) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.begun == begun {
            last.kept = Some((base, look));
        }
    }

    /// The look of a commit of this transaction, which is used up by it.
    pub(super) fn take(&self, base: &Path, transaction: Option<&Transaction>) -> Option<Look> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (of, look) = last.kept.take()?;
        // Others, as an overwrite or the first version of a branch, may come without a listing of their own, so that a look
        // which is there can be older than they are.
        use pb::transaction::Operation as O;
        let listed = matches!(
            transaction?.as_pb().operation,
            Some(
                O::Append(_)
                    | O::Delete(_)
                    | O::Update(_)
                    | O::Rewrite(_)
                    | O::Merge(_)
                    | O::CreateIndex(_)
                    | O::Project(_)
                    | O::UpdateConfig(_)
                    | O::DataReplacement(_)
            )
        );
        (listed && of == *base).then_some(look)
    }
}

/// Who looks, and at what.
pub(super) struct Beside {
    pub(super) catalog: Catalog,
    pub(super) slot: Slot,
    pub(super) plain: Arc<dyn CommitHandler>,
    pub(super) looks: Arc<Looks>,
    pub(super) seen: Arc<Seen>,
    pub(super) anchor: Anchor,
    /// What [`Looks::begin`] gave for the listing.
    pub(super) begun: u64,
}

impl Beside {
    /// The versions since one, the newest first: 1 LIST as Lance makes it, and 2 GET beside it; before it where the handle
    /// has not seen lately that its table is not hidden.
    pub(super) async fn list(
        self,
        base: Path,
        object_store: &ObjectStore,
        since: u64,
    ) -> Result<Vec<ManifestLocation>> {
        let began = Moment::now();
        let recent = self.catalog.lifecycle().commit_window() / 4;
        let earlier = self.seen.within(recent);
        let check = open::check(self.catalog.clone(), self.slot.clone());
        let list = self.since(&base, object_store, since);
        let (checked, listed) = match earlier {
            Some(_) => tokio::join!(check, list),
            // Listed while the table was dropped, it would be one that may be purged since.
            None => (check.await, list.await),
        };
        let (newer, others) = listed?;
        // Hidden, or not known: the commit finds out, and says so.
        if checked.is_ok() {
            self.seen.set(began);
            let anchored = self.anchor.version;
            let mut all = newer.iter().chain(&others);
            let latest = all.clone().next().cloned();
            let anchored = all.find(|at| at.version == anchored).cloned();
            if let Some(latest) = latest {
                let look = Look {
                    since: earlier.unwrap_or(began),
                    latest,
                    anchored,
                };
                self.looks.keep(self.begun, base, look);
            }
        }
        Ok(newer)
    }

    /// The versions since one, and those below down to the one with which the handle began.
    async fn since(
        &self,
        base: &Path,
        object_store: &ObjectStore,
        since: u64,
    ) -> Result<(Vec<ManifestLocation>, Vec<ManifestLocation>)> {
        let lowest = since.min(self.anchor.version);
        let mut all = self.plain.list_manifest_locations(base, object_store, true);
        let (mut newer, mut others) = (Vec::new(), Vec::new());
        while let Some(at) = all.try_next().await? {
            let version = at.version;
            match version > since {
                true => newer.push(at),
                false => others.push(at),
            }
            if version <= lowest {
                break;
            }
        }
        Ok((newer, others))
    }
}

/// Whether Lance's listing tells what a commit needs: on this store, and of the version with which the handle began.
pub(super) fn serves(
    catalog: &Catalog,
    object_store: &ObjectStore,
    anchor: &Anchor,
    since: u64,
) -> bool {
    let store = &catalog.store().store;
    // Elsewhere the listing is another one, or its tags are.
    Arc::ptr_eq(&object_store.inner, &store.inner)
        && object_store.list_is_lexically_ordered
        && anchor.e_tag.is_some()
        && since.saturating_sub(anchor.version) <= BEHIND
}
