//! Create a version: publish a staged manifest under its number.

use bytes::Bytes;
use lance_table::io::commit::{ManifestLocation, ManifestNamingScheme};
use object_store::path::Path;
use tokio::time::Instant;

use crate::catalog::Catalog;
use crate::child;
use crate::error::{Error, Result};
use crate::ident::TableIdent;
use crate::lifecycle::MAX_ROUNDS;
use crate::store::Published;
use crate::versions::fence::{self, Anchor, Belonging};
use crate::versions::{Chain, TableVersion, chain_of, check, first_of_branch};

/// A version about to be created.
#[derive(Debug, Clone)]
pub(crate) struct NewVersion {
    pub(crate) version: u64,
    /// Path of the staged manifest, from the root of the store.
    pub(crate) staged: String,
    pub(crate) naming_scheme: ManifestNamingScheme,
    pub(crate) anchor: Option<Anchor>,
}

fn conflict(chain: &Chain, message: impl Into<String>) -> Error {
    Error::Conflict {
        ident: chain.slot.ident.clone(),
        message: message.into(),
    }
}

/// The staged manifest's path: beside the final one, under its name and a suffix, as Lance stages them.
fn staged_path(chain: &Chain, new: &NewVersion, target: &Path) -> Result<Path> {
    let path = Path::parse(&new.staged).map_err(|e| Error::InvalidInput {
        message: format!("invalid path of a staged manifest {:?}: {e}", new.staged),
    })?;
    let is_ours = new
        .staged
        .strip_prefix(target.as_ref())
        .and_then(|rest| rest.strip_prefix('-'))
        .is_some_and(|suffix| !suffix.is_empty() && !suffix.contains('/'));
    if !is_ours {
        return Err(Error::InvalidInput {
            message: format!(
                "version {} of {} is staged beside its place, at {target}-<suffix>, not at {:?}",
                new.version, chain.slot.ident, new.staged
            ),
        });
    }
    Ok(path)
}

/// How a round of a create ended.
enum Round {
    Done(TableVersion),
    /// Too much time has passed since the look at the drop state.
    Late,
}

/// Creates the version: 2 GET of the drop state and 1 GET of the staged manifest together; then 1 LIST, and where the
/// incarnation of the version before is not known yet 1 GET; 1 PUT; 1 DELETE of the staged manifest. So 6 requests in 4
/// round trips, and more for writers that tell no anchor (see [`fence`]).
///
/// Nothing can make a PUT wait for a drop or a purge that came in between. But a purge under managed versioning waits until
/// its drop is one commit window old, and a commit sends its PUT within half a window after it saw no drop, so it lands
/// before the purge looks.
pub(crate) async fn create(
    catalog: &Catalog,
    ident: &TableIdent,
    branch: Option<&str>,
    new: &NewVersion,
) -> Result<TableVersion> {
    if new.version == 0 || new.version >= i64::MAX as u64 {
        return Err(Error::InvalidInput {
            message: format!("{} is no version number", new.version),
        });
    }
    let chain = chain_of(catalog, ident, branch).await?;
    let target = new.naming_scheme.manifest_path(&chain.path, new.version);
    let staged = staged_path(&chain, new, &target)?;
    for _ in 0..MAX_ROUNDS {
        match round(catalog, &chain, new, &target, &staged).await? {
            Round::Done(created) => return Ok(created),
            Round::Late => {}
        }
    }
    Err(unclear(
        &chain,
        "the store is too slow for the commit window",
    ))
}

async fn round(
    catalog: &Catalog,
    chain: &Chain,
    new: &NewVersion,
    target: &Path,
    staged: &Path,
) -> Result<Round> {
    let store = catalog.store();
    let window = catalog.lifecycle().commit_window();
    let began = Instant::now();
    let (checked, content) = tokio::join!(check(catalog, chain), store.get(staged));
    let content = content?.map(|(content, _)| content);
    if let Err(hidden) = checked {
        // A repetition of what was created before the drop is told so.
        return match existing(catalog, chain, new, staged, content).await {
            Ok(Some(created)) => Ok(Round::Done(created)),
            _ => Err(hidden),
        };
    }
    // Not before the drop state is known: read while the table was dropped, it would be one of a table purged since.
    let latest = store.latest_tagged(&chain.path).await?;
    if latest.as_ref().is_some_and(|l| l.version >= new.version) {
        return taken(catalog, chain, new, staged, content).await;
    }
    let Some(content) = content else {
        return Err(Error::InvalidInput {
            message: format!("no manifest is staged at {staged}"),
        });
    };
    let belonging = Belonging::parse(&content, staged.as_ref())?;
    let Some(before) = &latest else {
        if began.elapsed() > window / 2 {
            return Ok(Round::Late);
        }
        return first(catalog, chain, new, target, staged, content, &belonging).await;
    };
    if before.naming_scheme != new.naming_scheme {
        return Err(Error::InvalidInput {
            message: format!(
                "the manifests of {} are named as {:?}, not {:?}",
                chain.slot.ident, before.naming_scheme, new.naming_scheme
            ),
        });
    }
    fence::check_not_ahead(chain, before, new.anchor.as_ref())?;
    if before.version + 1 != new.version {
        let message = format!(
            "version {} cannot follow version {}",
            new.version, before.version
        );
        return Err(conflict(chain, message));
    }
    fence::check(catalog, chain, &belonging, before, new.anchor.as_ref()).await?;
    if began.elapsed() > window / 2 {
        return Ok(Round::Late);
    }
    let publish = store.publish(target, content.clone());
    let left = window.saturating_sub(began.elapsed());
    let Ok(published) = tokio::time::timeout(left, publish).await else {
        return Err(unclear(chain, "its PUT took longer than the commit window"));
    };
    let Published::Here { e_tag } = published? else {
        return taken(catalog, chain, new, staged, Some(content)).await;
    };
    // Nothing hides a table in a namespace while it is being dropped: its row tells.
    if chain.slot.ident.is_child() {
        let now = child::registered(catalog, &chain.slot.ident).await?;
        if now.is_none_or(|now| now.location != chain.slot.location) {
            return Err(child::not_registered(&chain.slot.ident));
        }
    }
    let size = content.len() as u64;
    let location = published_at(new, target, size, e_tag);
    if let Some(incarnation) = &belonging.incarnation {
        catalog.incarnations().remember(&location, incarnation);
    }
    discard(catalog, chain, staged).await;
    Ok(Round::Done(location.into()))
}

fn published_at(
    new: &NewVersion,
    target: &Path,
    size: u64,
    e_tag: Option<String>,
) -> ManifestLocation {
    ManifestLocation {
        version: new.version,
        path: target.clone(),
        size: Some(size),
        naming_scheme: new.naming_scheme,
        e_tag,
        identity: None,
    }
}

/// The first version of a chain. The table's own is created as the catalog creates tables: alone, so that no purge of an
/// earlier table of the name takes what was written for it. 1 PUT, 1 DELETE, and a look at each file more.
async fn first(
    catalog: &Catalog,
    chain: &Chain,
    new: &NewVersion,
    target: &Path,
    staged: &Path,
    content: Bytes,
    belonging: &Belonging,
) -> Result<Round> {
    let store = catalog.store();
    // A branch is registered after its first version is there.
    let expected = first_of_branch(catalog, chain).await?;
    if let Some(expected) = expected.filter(|v| *v != new.version) {
        let message = format!("the first version is {expected}, not {}", new.version);
        return Err(conflict(chain, message));
    }
    let look = async {
        fence::check_files(catalog, chain, belonging).await?;
        store.latest_tagged(&chain.path).await
    };
    let publish = async {
        Ok(match look.await {
            Ok(None) => Ok(store.publish(target, content.clone()).await?),
            Ok(Some(_)) => Ok(Published::Other),
            // Nothing was sent, so nothing has to be waited for.
            Err(e) => Err(e),
        })
    };
    let published = match &chain.branch {
        Some(_) => publish.await?,
        None => {
            // Clears away what a stopped create left; a drop that came in between is found when the name is taken.
            catalog.lifecycle().hidden(&chain.slot).await?;
            catalog.lifecycle().alone(&chain.slot, publish).await?
        }
    };
    match published? {
        Published::Here { e_tag } => {
            discard(catalog, chain, staged).await;
            let location = published_at(new, target, content.len() as u64, e_tag);
            Ok(Round::Done(location.into()))
        }
        Published::Other => taken(catalog, chain, new, staged, Some(content)).await,
    }
}

/// Whether the version counts cannot be told; the same request sent again finds out.
fn unclear(chain: &Chain, why: &str) -> Error {
    Error::Storage {
        operation: "create a version in",
        path: chain.path.to_string(),
        retryable: true,
        source: format!("{why}; whether the version counts is not known").into(),
    }
}

/// The number is taken: by ourselves, which is a success, or by another version.
async fn taken(
    catalog: &Catalog,
    chain: &Chain,
    new: &NewVersion,
    staged: &Path,
    content: Option<Bytes>,
) -> Result<Round> {
    match existing(catalog, chain, new, staged, content).await? {
        Some(created) => Ok(Round::Done(created)),
        None => Err(conflict(
            chain,
            format!("version {} exists already", new.version),
        )),
    }
}

/// The version that is there, if it has this content; `None` if it has another.
async fn existing(
    catalog: &Catalog,
    chain: &Chain,
    new: &NewVersion,
    staged: &Path,
    content: Option<Bytes>,
) -> Result<Option<TableVersion>> {
    let store = catalog.store();
    let Some(there) = store.manifest_of(&chain.path, new.version).await? else {
        return Err(unclear(
            chain,
            &format!("version {} was cleaned up or is gone", new.version),
        ));
    };
    let Some(content) = content else {
        return Err(unclear(
            chain,
            "the version is there, and what was staged for it is gone",
        ));
    };
    if there.size.is_some_and(|size| size != content.len() as u64) {
        return Ok(None);
    }
    match store.get(&there.path).await? {
        Some((found, _)) if found == content => {
            // One that landed in what a purge had emptied names files that are gone.
            let belonging = Belonging::parse(&content, staged.as_ref())?;
            fence::check_files(catalog, chain, &belonging).await?;
            discard(catalog, chain, staged).await;
            Ok(Some(there.into()))
        }
        _ => Ok(None),
    }
}

/// Staged manifests that are published are litter.
async fn discard(catalog: &Catalog, chain: &Chain, staged: &Path) {
    if let Err(error) = catalog.store().delete(staged).await {
        tracing::warn!(table = %chain.slot.ident, %error, "a staged manifest is left behind");
    }
}
