//! Which table a version belongs to: what keeps a writer of an earlier table of the same name out.
//!
//! Every table that a catalog creates carries an incarnation in its manifests' configuration, a UUID that is new for each
//! creation and that every later version inherits. A new version must carry the one of the version before it. That stops
//! whoever builds on a manifest of an earlier table. A writer that reads on before it commits, as Lance does, builds on the
//! new table's manifest, though; so a writer also says which version it began with (the anchor), and that must still be
//! the same object. While it is, the table is the one that the writer read, and its incarnation that of the anchor: so
//! where that one is known the version before is not read. The tables that stock clients created carry none; there the
//! anchor alone tells, where it has a tag.
//!
//! Stock clients tell no anchor. For them every data and deletion file that a new version names, and the one before does
//! not, must exist: those of an earlier table were purged. (Files of indices are not looked at.) What stays open is a stock
//! client with a handle of an earlier table that writes its files after the new one was created: Lance builds its version
//! on the new table, as if it had read that. And a transaction whose files were written for an earlier table, committed
//! through a handle of the new one: the anchor is the handle's.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use lance_table::format::{DeletionFile, pb};
use lance_table::io::commit::ManifestLocation;
use lance_table::io::deletion::relative_deletion_file_path;

use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::lifecycle::Moment;
use crate::store::join;
use crate::versions::Chain;

#[cfg(any(test, fuzzing))]
pub(crate) mod properties;

/// The key of the incarnation in a manifest's configuration.
pub(crate) const INCARNATION: &str = "lancekeep.incarnation";

/// Files looked for one by one; more are looked for in a listing.
const FEW: usize = 16;

/// Incarnations kept in memory.
const CACHED: usize = 1024;

/// The version that a writer began with, as it found it.
#[derive(Debug, Clone)]
pub(crate) struct Anchor {
    pub(crate) version: u64,
    pub(crate) e_tag: Option<String>,
    pub(crate) size: Option<u64>,
    /// Whether it carries no incarnation, as the writer saw; not known of writers in other processes.
    pub(crate) is_bare: bool,
}

impl Anchor {
    pub(crate) fn of(at: &ManifestLocation) -> Self {
        Self {
            version: at.version,
            e_tag: at.e_tag.clone(),
            size: at.size,
            is_bare: false,
        }
    }

    /// Whether what is there now is what the writer found. Without a tag on one side only the size tells.
    pub(crate) fn is(&self, now: &ManifestLocation) -> bool {
        same_tag(self.e_tag.as_deref(), now.e_tag.as_deref())
            && match (self.size, now.size) {
                (Some(a), Some(b)) => a == b,
                _ => true,
            }
    }
}

/// Whether two tags are those of one object, as far as they tell.
pub(crate) fn same_tag(a: Option<&str>, b: Option<&str>) -> bool {
    match (a, b) {
        // Some stores quote the tags of one kind of answer only.
        (Some(a), Some(b)) => a.trim_matches('"') == b.trim_matches('"'),
        _ => true,
    }
}

/// When a handle saw last that its table is not hidden, from before it asked.
///
/// Within a commit window from then no purge deletes anything, so whatever is read is of one table, in whatever order.
#[derive(Debug, Default)]
pub(crate) struct Seen(Mutex<Option<Moment>>);

impl Seen {
    pub(crate) fn set(&self, at: Moment) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(at);
    }

    /// If it is no longer ago than that.
    pub(crate) fn within(&self, recent: Duration) -> Option<Moment> {
        let at = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        at.filter(|at| at.elapsed() < recent)
    }
}

/// What a manifest says of the table it belongs to.
#[derive(Debug, Clone)]
pub(crate) struct Belonging {
    pub(crate) incarnation: Option<String>,
    /// Data and deletion files in the table's own directory, relative to it.
    files: HashSet<String>,
}

impl Belonging {
    /// Reads a whole manifest file: a protobuf message whose position the last 16 bytes tell (Lance's manifest format).
    pub(crate) fn parse(content: &Bytes, path: &str) -> Result<Self> {
        let corrupt = |why: &str| Error::CorruptMetadata {
            path: path.to_string(),
            message: format!("no Lance manifest: {why}"),
        };
        let end = content
            .len()
            .checked_sub(16)
            .ok_or_else(|| corrupt("too short"))?;
        if &content[end + 12..] != b"LANC" {
            return Err(corrupt("no magic number at its end"));
        }
        let mut position = [0; 8];
        position.copy_from_slice(&content[end..end + 8]);
        let position = usize::try_from(u64::from_le_bytes(position))
            .ok()
            .filter(|p| p.checked_add(4).is_some_and(|start| start <= end))
            .ok_or_else(|| corrupt("its message is not within it"))?;
        let mut length = [0; 4];
        length.copy_from_slice(&content[position..position + 4]);
        let length = u32::from_le_bytes(length) as usize;
        if length > end - position - 4 {
            return Err(corrupt("its message is cut off"));
        }
        let message = content.slice(position..end);
        let manifest: pb::Manifest = lance_io::utils::read_message_from_buf(&message)
            .map_err(|e| corrupt(&e.to_string()))?;
        let mut files = HashSet::new();
        for fragment in &manifest.fragments {
            for file in fragment.files.iter().filter(|f| f.base_id.is_none()) {
                files.insert(format!("data/{}", file.path));
            }
            let deletions = fragment.deletion_file.as_ref();
            if let Some(deletions) = deletions.filter(|d| d.base_id.is_none()) {
                let deletions =
                    DeletionFile::try_from(*deletions).map_err(|e| corrupt(&e.to_string()))?;
                files.insert(relative_deletion_file_path(fragment.id, &deletions));
            }
        }
        Ok(Self {
            incarnation: manifest.config.get(INCARNATION).cloned(),
            files,
        })
    }
}

/// The incarnations of versions that were read, by path and tag.
#[derive(Debug, Default)]
pub(crate) struct Incarnations {
    known: Mutex<HashMap<ManifestKey, String>>,
}

/// Path, tag and size of a manifest.
type ManifestKey = (String, Option<String>, Option<u64>);

impl Incarnations {
    fn key(at: &ManifestLocation) -> ManifestKey {
        // Some stores quote the tags of one kind of answer only.
        let tag = at.e_tag.as_deref().map(|tag| tag.trim_matches('"'));
        (at.path.to_string(), tag.map(str::to_string), at.size)
    }

    fn get(&self, at: &ManifestLocation) -> Option<String> {
        // Without a tag the next table's version could pass for this one.
        at.e_tag.as_ref()?;
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&Self::key(at)).cloned()
    }

    pub(crate) fn remember(&self, at: &ManifestLocation, incarnation: &str) {
        if at.e_tag.is_none() {
            return;
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= CACHED {
            known.clear();
        }
        known.insert(Self::key(at), incarnation.to_string());
    }
}

fn replaced(chain: &Chain, why: &str) -> Error {
    Error::TableReplaced {
        ident: chain.slot.ident.clone(),
        reason: why.to_string(),
    }
}

/// What is in the anchor's place now, `None` where that is the version before the new one, which is looked at anyway. 1 HEAD
/// where the writer began with an older version, which can be asked for before the latest one is known.
pub(crate) async fn look_ahead(
    catalog: &Catalog,
    chain: &Chain,
    anchor: Option<&Anchor>,
    before: u64,
) -> Option<Result<Option<ManifestLocation>>> {
    let anchor = anchor.filter(|anchor| anchor.version != before)?;
    let store = catalog.store();
    Some(store.manifest_of(&chain.path, anchor.version).await)
}

/// Refuses a version that belongs to another table than the latest one does. No request where the anchor tells more than a
/// number, and its incarnation or that of the latest version is known, or that it has none; else 1 GET, and where the
/// version before carries no incarnation a HEAD for each new file (a LIST of the table's when they are more than 16). `now`:
/// what is in the anchor's place.
pub(crate) async fn check(
    catalog: &Catalog,
    chain: &Chain,
    staged: &Belonging,
    latest: &ManifestLocation,
    anchor: Option<&Anchor>,
    now: Option<&ManifestLocation>,
) -> Result<()> {
    let anchored = still_anchored(chain, anchor, now);
    // Without a tag on both sides the anchor is a number and a size, which another table can have too.
    let strong = now.filter(|now| {
        anchored.is_ok() && now.e_tag.is_some() && anchor.is_some_and(|a| a.e_tag.is_some())
    });
    let is_bare = anchor.is_some_and(|anchor| anchor.is_bare);
    let belongs = same_table(catalog, chain, staged, latest, strong, is_bare).await;
    belongs.and(anchored)
}

async fn same_table(
    catalog: &Catalog,
    chain: &Chain,
    staged: &Belonging,
    latest: &ManifestLocation,
    anchored: Option<&ManifestLocation>,
    is_bare: bool,
) -> Result<()> {
    let known = catalog.incarnations();
    if let Some(anchored) = anchored {
        // One table has one incarnation, or none.
        let incarnation = known.get(latest).or_else(|| known.get(anchored));
        if (incarnation.is_some() || is_bare) && incarnation == staged.incarnation {
            return Ok(());
        }
    }
    let Some((content, _)) = catalog.store().get(&latest.path).await? else {
        return Err(replaced(chain, "the version before it is gone"));
    };
    let before = Belonging::parse(&content, latest.path.as_ref())?;
    if let Some(incarnation) = &before.incarnation {
        known.remember(latest, incarnation);
    }
    if staged.incarnation != before.incarnation {
        return Err(read_another(chain));
    }
    if anchored.is_some() && before.incarnation.is_some() {
        return Ok(());
    }
    let new: Vec<&String> = staged.files.difference(&before.files).collect();
    all_there(catalog, chain, &new).await
}

fn read_another(chain: &Chain) -> Error {
    replaced(chain, "the writer read a table that was purged since")
}

/// Whether every file that the version names is there.
pub(crate) async fn check_files(
    catalog: &Catalog,
    chain: &Chain,
    staged: &Belonging,
) -> Result<()> {
    let files: Vec<&String> = staged.files.iter().collect();
    all_there(catalog, chain, &files).await
}

async fn all_there(catalog: &Catalog, chain: &Chain, files: &[&String]) -> Result<()> {
    let store = catalog.store();
    let there: HashSet<String> = if files.len() > FEW {
        let prefix = format!("{}/", chain.path);
        let listed = store.list_all(&chain.path).await?;
        let names = listed
            .iter()
            .filter_map(|o| o.location.as_ref().strip_prefix(&prefix));
        names.map(str::to_string).collect()
    } else {
        let looks = files.iter().map(|file| async move {
            let found = store.head(&join(&chain.path, file)?).await?;
            Ok::<_, Error>(found.map(|_| file.to_string()))
        });
        let found = futures::future::try_join_all(looks).await?;
        found.into_iter().flatten().collect()
    };
    match files.iter().all(|file| there.contains(*file)) {
        true => Ok(()),
        false => Err(replaced(
            chain,
            "the new version names files that are not there",
        )),
    }
}

/// A writer that read a later version than there is read another table.
pub(crate) fn check_not_ahead(
    chain: &Chain,
    latest: &ManifestLocation,
    anchor: Option<&Anchor>,
) -> Result<()> {
    match anchor.is_some_and(|anchor| anchor.version > latest.version) {
        true => Err(replaced(
            chain,
            "the writer read a later version than there is",
        )),
        false => Ok(()),
    }
}

fn still_anchored(
    chain: &Chain,
    anchor: Option<&Anchor>,
    now: Option<&ManifestLocation>,
) -> Result<()> {
    let Some(anchor) = anchor else {
        return Ok(());
    };
    match now {
        None => Err(replaced(
            chain,
            "the version that the writer read is gone, so nothing tells whether this is its table",
        )),
        Some(now) if anchor.is(now) => Ok(()),
        Some(_) => Err(replaced(
            chain,
            "the version that the writer read is another table's now",
        )),
    }
}
