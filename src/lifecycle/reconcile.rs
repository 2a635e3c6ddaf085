//! Reconcile: find what stopped processes and other clients left, and finish or remove what is the catalog's own.

use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, TimeDelta, Utc};
use futures::StreamExt;
use uuid::Uuid;

use crate::catalog::Catalog;
use crate::child;
use crate::error::Result;
use crate::ident::TableIdent;
use crate::lifecycle::{Held, Lifecycle, Marker, Recovered, Tombstone, tombstone};
use crate::listing::{Entry, scan};
use crate::root;
use crate::store::Slot;

/// Names looked at together.
const TOGETHER: usize = 16;

/// What was found about one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FindingKind {
    /// A restore was decided and not finished.
    UnfinishedRestore,
    /// A purge was decided and not finished.
    UnfinishedPurge,
    /// A create over an absent name was not finished.
    UnfinishedCreate,
    /// A claim, or an object that read the store's clock, whose drop is over.
    StaleClaim,
    /// On local disk, a file that a process was stopped in while it wrote a record. Mended when it is older than a lease.
    UnfinishedWrite,
    /// A directory that a purge renamed away and did not delete.
    PurgeLeftover,
    /// Lance's marker and the tombstone disagree, so stock clients see another state than we do.
    MarkerMismatch,
    /// A tombstone that cannot be read. Left alone: undrop or purge the table by name.
    UnreadableTombstone,
    /// A dropped table, or one in a namespace, whose directory is gone. Left alone: purging it (dropping it, in a
    /// namespace) clears its record.
    MissingLocation,
    /// A table's directory without any version. Left alone: create over it, or drop it.
    IncompleteTable,
    /// Deregistered by another client. Left alone: undrop brings it back.
    DeregisteredTable,
    /// A table, or a namespace, is in this namespace, which is missing. Mended by putting it back, without properties.
    MissingNamespace,
    /// A directory as tables in namespaces have, which no id names: of a create that was stopped or is under way, or of
    /// a table that was deregistered. Left alone: register it, or delete it by hand.
    UnregisteredDirectory,
    /// An id of one part that another client registered in the namespace manifest at a directory which is not
    /// `<name>.lance`. Left alone, and not shown as a root table: register it as a table in a namespace.
    RegisteredElsewhere,
    /// The name could not be looked at; the error says why.
    Unexamined,
}

/// One finding.
#[derive(Debug)]
#[non_exhaustive]
pub struct Finding {
    /// The table; for [`FindingKind::MissingNamespace`] the namespace, for
    /// [`FindingKind::UnregisteredDirectory`] the directory.
    pub ident: TableIdent,
    /// What was found.
    pub kind: FindingKind,
    /// Whether it was mended. False in a dry run, for what is left alone, and while its owner's lease lasts.
    pub mended: bool,
    /// What went wrong while mending it.
    pub error: Option<crate::error::Error>,
}

/// What reconcile saw and did.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct ReconcileReport {
    /// The findings: of the root by name, then of the namespaces.
    pub findings: Vec<Finding>,
    /// Names looked at, and rows of the namespace manifest.
    pub names: usize,
    /// Whether nothing was changed.
    pub dry_run: bool,
}

impl ReconcileReport {
    /// Whether nothing was found.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    /// The findings of a kind.
    pub fn of(&self, kind: FindingKind) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |f| f.kind == kind)
    }
}

/// What the root holds under one name.
#[derive(Default)]
struct Name {
    table: bool,
    claims: HashMap<Uuid, Vec<String>>,
    purge_dirs: HashMap<Uuid, Vec<String>>,
    staged: Vec<String>,
}

struct Work<'a> {
    catalog: &'a Catalog,
    slot: Slot,
    dry_run: bool,
    findings: Vec<Finding>,
}

pub(crate) async fn reconcile(catalog: &Catalog, dry_run: bool) -> Result<ReconcileReport> {
    let mut names: BTreeMap<String, Name> = BTreeMap::new();
    let (mut unusable, mut child_dirs) = (Vec::new(), Vec::new());
    for entry in scan(catalog.store()).await? {
        match entry {
            Entry::Unusable(name) => unusable.push(name),
            Entry::ChildDir(name) => child_dirs.push(name),
            Entry::Table(name) => names.entry(name).or_default().table = true,
            Entry::Tombstone(hiding) => {
                names.entry(hiding.name).or_default();
            }
            Entry::Claim {
                name,
                drop_id,
                object,
            } => names
                .entry(name)
                .or_default()
                .claims
                .entry(drop_id)
                .or_default()
                .push(object),
            Entry::Staged { name, file } => names.entry(name).or_default().staged.push(file),
            Entry::PurgeDir { name, drop_id, dir } => names
                .entry(name)
                .or_default()
                .purge_dirs
                .entry(drop_id)
                .or_default()
                .push(dir),
        }
    }
    let mut report = ReconcileReport {
        names: names.len(),
        dry_run,
        ..Default::default()
    };
    for name in unusable {
        report.findings.push(Finding {
            ident: TableIdent::from(&name),
            kind: FindingKind::Unexamined,
            mended: false,
            error: crate::ident::check_existing(&name, usize::MAX).err(),
        });
    }
    let mut done = futures::stream::iter(names)
        .map(|(name, found)| async move {
            let ident = TableIdent::from(name);
            let mut work = match root::reading_slot(catalog.store(), &ident) {
                Ok(slot) => Work {
                    catalog,
                    slot,
                    dry_run,
                    findings: Vec::new(),
                },
                Err(error) => {
                    return vec![Finding {
                        ident,
                        kind: FindingKind::Unexamined,
                        mended: false,
                        error: Some(error),
                    }];
                }
            };
            if let Err(error) = work.examine(&found).await {
                work.findings.push(Finding {
                    ident,
                    kind: FindingKind::Unexamined,
                    mended: false,
                    error: Some(error),
                });
            }
            work.findings
        })
        .buffered(TOGETHER);
    while let Some(findings) = done.next().await {
        report.findings.extend(findings);
    }
    let (rows, findings) = child::reconcile::examine(catalog, child_dirs, dry_run).await?;
    report.names += rows;
    report.findings.extend(findings);
    Ok(report)
}

impl Lifecycle {
    /// Whether what was written then is older than this catalog's longer lease, by the store's own clock: a write of a
    /// record does not take that long.
    async fn is_abandoned(&self, slot: &Slot, written: DateTime<Utc>) -> Result<bool> {
        let longest = self.restore_lease.max(self.purge_lease);
        let longest = TimeDelta::from_std(longest).unwrap_or(TimeDelta::MAX);
        let now = self.store_now(slot, Uuid::new_v4()).await?;
        Ok(now - written >= longest)
    }
}

impl Work<'_> {
    fn note(&mut self, kind: FindingKind, outcome: Result<bool>) {
        let (mended, error) = match outcome {
            Ok(mended) => (mended, None),
            Err(e) => (false, Some(e)),
        };
        self.findings.push(Finding {
            ident: self.slot.ident.clone(),
            kind,
            mended,
            error,
        });
    }

    async fn examine(&mut self, found: &Name) -> Result<()> {
        let lifecycle = self.catalog.lifecycle();
        let mut current = tombstone::read(self.catalog.store(), &self.slot).await?;
        if let Some(t) = current.take() {
            let held = match t.creating {
                Some(creating) => Some(lifecycle.creator(&self.slot, &t, creating).await?),
                None => lifecycle.holder(&self.slot, t.drop_id).await?,
            };
            if let Some(held) = held {
                self.unfinished(&t, &held).await;
                current = tombstone::read(self.catalog.store(), &self.slot).await?;
            } else {
                current = Some(t);
            }
        }
        self.litter(found, current.as_ref()).await?;
        self.staged(found).await?;
        match &current {
            Some(t) if t.creating.is_some() => Ok(()),
            Some(t) => self.dropped(t, found).await,
            None => self.not_dropped(found).await,
        }
    }

    async fn unfinished(&mut self, tombstone: &Tombstone, held: &Held) {
        let kind = match held.claim.action {
            _ if held.claim.creating => FindingKind::UnfinishedCreate,
            crate::lifecycle::Action::Restore => FindingKind::UnfinishedRestore,
            crate::lifecycle::Action::Purge => FindingKind::UnfinishedPurge,
        };
        let outcome = if self.dry_run {
            Ok(false)
        } else {
            self.catalog
                .lifecycle()
                .recover(&self.slot, tombstone, held)
                .await
                .map(|r| !matches!(r, Recovered::Elsewhere))
        };
        self.note(kind, outcome);
    }

    /// Claims and purge directories of drops that are over.
    async fn litter(&mut self, found: &Name, current: Option<&Tombstone>) -> Result<()> {
        let store = self.catalog.store().clone();
        let over = |drop_id: &Uuid| current.is_none_or(|t| t.drop_id != *drop_id);
        for objects in found
            .claims
            .iter()
            .filter(|(id, _)| over(id))
            .map(|(_, o)| o)
        {
            for object in objects {
                let path = store.child(object)?;
                // Deleted by now: its owner finished between the listing and this look.
                if store.head(&path).await?.is_none() {
                    continue;
                }
                let outcome = match self.dry_run {
                    true => Ok(false),
                    false => store.delete(&path).await.map(|()| true),
                };
                self.note(FindingKind::StaleClaim, outcome);
            }
        }
        for dirs in found
            .purge_dirs
            .iter()
            .filter(|(id, _)| over(id))
            .map(|(_, d)| d)
        {
            for dir in dirs {
                let path = store.child(dir)?;
                // Gone by now: its purge was finished between the listing and this look.
                if !store.is_dir(&path) {
                    continue;
                }
                let outcome = match self.dry_run {
                    true => Ok(false),
                    false => self
                        .catalog
                        .lifecycle()
                        .remove_dir(&path)
                        .await
                        .map(|_| true),
                };
                self.note(FindingKind::PurgeLeftover, outcome);
            }
        }
        Ok(())
    }

    /// Files that records were to be written to.
    async fn staged(&mut self, found: &Name) -> Result<()> {
        let store = self.catalog.store().clone();
        for file in &found.staged {
            // Gone by now: its write was finished between the listing and this look.
            let Some(written) = store.file_modified(file)? else {
                continue;
            };
            let outcome = match self.dry_run {
                true => Ok(false),
                false => self
                    .catalog
                    .lifecycle()
                    .is_abandoned(&self.slot, written)
                    .await
                    .and_then(|abandoned| match abandoned {
                        true => store.remove_file(file).map(|()| true),
                        false => Ok(false),
                    }),
            };
            self.note(FindingKind::UnfinishedWrite, outcome);
        }
        Ok(())
    }

    async fn dropped(&mut self, tombstone: &Tombstone, found: &Name) -> Result<()> {
        if tombstone.parse_error.is_some() {
            self.note(FindingKind::UnreadableTombstone, Ok(false));
        }
        let lifecycle = self.catalog.lifecycle();
        if lifecycle
            .holder(&self.slot, tombstone.drop_id)
            .await?
            .is_some()
        {
            // Somebody is at it; the data and the marker are theirs to remove or to write.
            return Ok(());
        }
        if !found.table {
            self.note(FindingKind::MissingLocation, Ok(false));
            return Ok(());
        }
        if lifecycle.read_marker(&self.slot).await? != Marker::OfDrop(tombstone.drop_id) {
            self.mend_marker().await;
        }
        Ok(())
    }

    async fn not_dropped(&mut self, found: &Name) -> Result<()> {
        if !found.table {
            return Ok(());
        }
        let store = self.catalog.store().clone();
        match self.catalog.lifecycle().read_marker(&self.slot).await? {
            Marker::OfDrop(_) => self.mend_marker().await,
            Marker::Foreign => {
                self.note(FindingKind::DeregisteredTable, Ok(false));
                return Ok(());
            }
            Marker::Absent => {}
        }
        if store.latest_manifest(&self.slot.table).await?.is_none() {
            let (objects, prefixes) = store.list_dir(&self.slot.table).await?;
            let declared = objects.iter().any(|o| o == ".lance-reserved");
            let gone = objects.is_empty() && prefixes.is_empty() && !store.is_dir(&self.slot.table);
            if !declared && !gone {
                self.note(FindingKind::IncompleteTable, Ok(false));
            }
        }
        Ok(())
    }

    async fn mend_marker(&mut self) {
        let outcome = match self.dry_run {
            true => Ok(false),
            false => self.catalog.lifecycle().sync_marker(&self.slot).await,
        };
        self.note(FindingKind::MarkerMismatch, outcome);
    }
}
