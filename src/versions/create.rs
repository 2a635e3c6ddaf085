//! Create a version: publish its manifest, staged or held in memory, under its number.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lance_namespace::NamespaceError;
use lance_table::io::commit::{ManifestLocation, ManifestNamingScheme};
use object_store::path::Path;

use crate::catalog::Catalog;
use crate::child;
use crate::error::{Error, Result};
use crate::ident::TableIdent;
use crate::lifecycle::{MAX_ROUNDS, Moment};
use crate::store::{Published, RootStore};
use crate::versions::fence::{self, Anchor, Belonging, Seen};
use crate::versions::{Chain, TableVersion, chain_of, check, first_of_branch};

/// A version about to be created.
#[derive(Debug, Clone)]
pub(crate) struct NewVersion {
    pub(crate) version: u64,
    pub(crate) source: Source,
    pub(crate) naming_scheme: ManifestNamingScheme,
    pub(crate) anchor: Option<Anchor>,
}

/// Where its manifest comes from.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// It is staged at this path, from the root of the store.
    Staged(String),
    /// A handle of this catalog has it in memory.
    Held(Box<Held>),
}

#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) content: Bytes,
    /// The chain that the handle reads.
    pub(crate) base: Path,
    /// The handle's looks for a drop.
    pub(crate) seen: Arc<Seen>,
    /// Whether it was sent before, so that a version of this number may be its own.
    pub(crate) again: bool,
    /// The look that was made when the version was begun.
    pub(crate) look: Option<Look>,
}

/// What was seen of the table before a version of it is put.
#[derive(Debug, Clone)]
pub(crate) struct Look {
    /// The table is not hidden since then, or the commit window is still open.
    pub(crate) since: Moment,
    pub(crate) latest: ManifestLocation,
    /// What is in the place of the version with which the writer began.
    pub(crate) anchored: Option<ManifestLocation>,
}

/// A refusal as a writer is told it.
pub(crate) fn refusal(error: Error) -> lance_core::Error {
    match error {
        // Not "not found": the table is there, and whoever undrops it can commit again.
        Error::TableDropped { .. } | Error::TableDeregistered { .. } => {
            NamespaceError::InvalidTableState {
                message: error.to_string(),
            }
            .into()
        }
        e => e.into(),
    }
}

fn conflict(chain: &Chain, message: impl Into<String>) -> Error {
    Error::Conflict {
        ident: chain.slot.ident.clone(),
        message: message.into(),
    }
}

/// The staged manifest's path: beside the final one, under its name and a suffix, as Lance stages them.
fn staged_path(chain: &Chain, version: u64, staged: &str, target: &Path) -> Result<Path> {
    let path = Path::parse(staged).map_err(|e| Error::InvalidInput {
        message: format!("invalid path of a staged manifest {staged:?}: {e}"),
    })?;
    let is_ours = staged
        .strip_prefix(target.as_ref())
        .and_then(|rest| rest.strip_prefix('-'))
        .is_some_and(|suffix| !suffix.is_empty() && !suffix.contains('/'));
    if !is_ours {
        return Err(Error::InvalidInput {
            message: format!(
                "version {version} of {} is staged beside its place, at {target}-<suffix>, not at {staged:?}",
                chain.slot.ident
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

/// A create under way.
struct Create<'a> {
    catalog: &'a Catalog,
    chain: Chain,
    new: &'a NewVersion,
    /// The manifest's place.
    target: Path,
    /// `None` where it is held in memory.
    staged: Option<Path>,
}

/// A manifest, and what it says of its table.
struct Read {
    content: Bytes,
    belonging: Belonging,
}

impl Read {
    fn of(content: Bytes, path: &Path) -> Result<Self> {
        let belonging = Belonging::parse(&content, path.as_ref())?;
        Ok(Self { content, belonging })
    }
}

/// Creates the version. Staged: 2 GET of the drop state and 1 GET of the staged manifest together; then 1 LIST; 1 PUT; 1
/// DELETE of the staged manifest. So 6 requests in 4 round trips. Held in memory: 1 PUT where the handle looked when the
/// version was begun; else 2 GET and 1 LIST together where it saw within a quarter of the commit window that its table is
/// not hidden, and 1 PUT: 4 requests in 2 round trips, 3 after a longer pause. More where too little is known of the
/// version before, and for writers that tell no anchor (see [`fence`]).
///
/// Nothing can make a PUT wait for a drop or a purge that came in between. But a purge under managed versioning waits until
/// its drop is one commit window old, and a commit sends its PUT within half a window after it saw no drop, so it lands
/// before the purge looks.
///
/// Of a version that is held in memory nothing is on the store before its PUT. When its number is taken the first time this
/// is a conflict without a look: Lance compares what is there itself.
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
    let staged = match &new.source {
        Source::Staged(path) => Some(staged_path(&chain, new.version, path, &target)?),
        // Another table has the id by now, somewhere else.
        Source::Held(held) if held.base != chain.path => {
            return Err(child::not_registered(&chain.slot.ident));
        }
        Source::Held(_) => None,
    };
    let create = Create {
        catalog,
        chain,
        new,
        target,
        staged,
    };
    let window = catalog.lifecycle().commit_window();
    let held = match &new.source {
        Source::Held(held) => Some(Read::of(held.content.clone(), &create.target)?),
        Source::Staged(_) => None,
    };
    if let (Some(look), Some(held)) = (create.look(), held.as_ref())
        && let Round::Done(created) = create.follow(window, look, held).await?
    {
        return Ok(created);
    }
    // So that as much of the half is left for what is still to be asked.
    let mut earlier = create.seen().and_then(|seen| seen.within(window / 4));
    for _ in 0..MAX_ROUNDS {
        match create.round(window, earlier.take(), held.as_ref()).await? {
            Round::Done(created) => return Ok(created),
            Round::Late => {}
        }
    }
    Err(unclear(
        &create.chain,
        "the store is too slow for the commit window",
    ))
}

impl Create<'_> {
    fn store(&self) -> &RootStore {
        self.catalog.store()
    }

    fn seen(&self) -> Option<&Seen> {
        match &self.new.source {
            Source::Held(held) => Some(&held.seen),
            Source::Staged(_) => None,
        }
    }

    /// What is staged, if anything still is.
    async fn fetch(&self) -> Result<Option<Bytes>> {
        match &self.staged {
            Some(staged) => Ok(self.store().get(staged).await?.map(|(content, _)| content)),
            None => Ok(None),
        }
    }

    /// The look that was made when the version was begun, if it tells what has to be known: else the version is built on
    /// another one than was seen, or another commit of the handle came in between.
    fn look(&self) -> Option<&Look> {
        let Source::Held(held) = &self.new.source else {
            return None;
        };
        let (look, anchor) = (held.look.as_ref()?, self.new.anchor.as_ref()?);
        let anchored = look.anchored.as_ref()?;
        let fits =
            look.latest.version + 1 == self.new.version && anchored.version == anchor.version;
        fits.then_some(look)
    }

    /// The latest version, and what is in the anchor's place where that is another one.
    async fn versions(
        &self,
    ) -> (
        Result<Option<ManifestLocation>>,
        Option<Result<Option<ManifestLocation>>>,
    ) {
        let Self { chain, new, .. } = self;
        tokio::join!(
            self.store().latest_tagged(&chain.path),
            fence::look_ahead(self.catalog, chain, new.anchor.as_ref(), new.version - 1),
        )
    }

    /// One try. `earlier`: when the writer saw before that its table is not hidden.
    async fn round(
        &self,
        window: Duration,
        earlier: Option<Moment>,
        held: Option<&Read>,
    ) -> Result<Round> {
        let (chain, new) = (&self.chain, self.new);
        let began = Moment::now();
        let drop_state = check(self.catalog, chain);
        let (checked, fetched, looked) = match earlier {
            Some(_) => {
                let (checked, looked) = tokio::join!(drop_state, self.versions());
                (checked, None, Some(looked))
            }
            None => {
                let (checked, fetched) = tokio::join!(drop_state, self.fetch());
                (checked, fetched?, None)
            }
        };
        if let Err(hidden) = checked {
            // A repetition of what was created before the drop is told so.
            return match self.existing(fetched).await {
                Ok(Some(created)) => Ok(Round::Done(created)),
                _ => Err(hidden),
            };
        }
        if let Some(seen) = self.seen() {
            seen.set(began);
        }
        let since = earlier.unwrap_or(began);
        // Else not before the drop state is known: read while the table was dropped, it would be one of a table purged since.
        let (latest, anchored) = match looked {
            Some(looked) => looked,
            None => self.versions().await,
        };
        let latest = latest?;
        if latest.as_ref().is_some_and(|l| l.version >= new.version) {
            return self.taken(fetched).await;
        }
        let parsed;
        let read = match (held, &self.staged, fetched) {
            (Some(held), _, _) => held,
            (None, Some(staged), Some(content)) => {
                parsed = Read::of(content, staged)?;
                &parsed
            }
            (None, staged, _) => {
                let at = staged.as_ref().map(Path::as_ref).unwrap_or_default();
                return Err(Error::InvalidInput {
                    message: format!("no manifest is staged at {at}"),
                });
            }
        };
        let Some(before) = latest else {
            if since.elapsed() > window / 2 {
                return Ok(Round::Late);
            }
            return self.first(read).await;
        };
        let look = Look {
            since,
            anchored: match anchored {
                Some(found) => found?,
                None => Some(before.clone()),
            },
            latest: before,
        };
        self.follow(window, &look, read).await
    }

    /// Puts the version after the latest one that was seen.
    async fn follow(&self, window: Duration, look: &Look, read: &Read) -> Result<Round> {
        let (chain, new) = (&self.chain, self.new);
        let (since, before) = (look.since, &look.latest);
        if before.naming_scheme != new.naming_scheme {
            return Err(Error::InvalidInput {
                message: format!(
                    "the manifests of {} are named as {:?}, not {:?}",
                    chain.slot.ident, before.naming_scheme, new.naming_scheme
                ),
            });
        }
        let anchor = new.anchor.as_ref();
        fence::check_not_ahead(chain, before, anchor)?;
        if before.version + 1 != new.version {
            let message = format!(
                "version {} cannot follow version {}",
                new.version, before.version
            );
            return Err(conflict(chain, message));
        }
        let now = look.anchored.as_ref();
        fence::check(self.catalog, chain, &read.belonging, before, anchor, now).await?;
        if since.elapsed() > window / 2 {
            return Ok(Round::Late);
        }
        let publish = self.publish(read);
        let left = window.saturating_sub(since.elapsed());
        let Ok(published) = tokio::time::timeout(left, publish).await else {
            return Err(unclear(chain, "its PUT took longer than the commit window"));
        };
        let Published::Here { e_tag } = published? else {
            return self.taken(Some(read.content.clone())).await;
        };
        // Nothing hides a table in a namespace while it is being dropped: its row tells.
        if chain.slot.ident.is_child() {
            let now = child::registered(self.catalog, &chain.slot.ident).await?;
            if now.is_none_or(|now| now.location != chain.slot.location) {
                return Err(child::not_registered(&chain.slot.ident));
            }
        }
        let location = self.published_at(read, e_tag);
        if let Some(incarnation) = &read.belonging.incarnation {
            let known = self.catalog.incarnations();
            known.remember(&location, incarnation);
        }
        self.discard().await;
        Ok(Round::Done(location.into()))
    }

    async fn publish(&self, read: &Read) -> Result<Published> {
        let content = read.content.clone();
        let first_time = matches!(&self.new.source, Source::Held(held) if !held.again);
        self.store()
            .publish(&self.target, content, first_time)
            .await
    }

    fn published_at(&self, read: &Read, e_tag: Option<String>) -> ManifestLocation {
        ManifestLocation {
            version: self.new.version,
            path: self.target.clone(),
            size: Some(read.content.len() as u64),
            naming_scheme: self.new.naming_scheme,
            e_tag,
            identity: None,
        }
    }

    /// The first version of a chain. The table's own is created as the catalog creates tables: alone, so that no purge of
    /// an earlier table of the name takes what was written for it. 1 PUT, 1 DELETE of what is staged, and a look at each
    /// file more.
    async fn first(&self, read: &Read) -> Result<Round> {
        let (catalog, chain) = (self.catalog, &self.chain);
        // A branch is registered after its first version is there.
        let expected = first_of_branch(catalog, chain).await?;
        if let Some(expected) = expected.filter(|v| *v != self.new.version) {
            let message = format!("the first version is {expected}, not {}", self.new.version);
            return Err(conflict(chain, message));
        }
        let look = async {
            fence::check_files(catalog, chain, &read.belonging).await?;
            self.store().latest_tagged(&chain.path).await
        };
        let publish = async {
            Ok(match look.await {
                Ok(None) => Ok(self.publish(read).await?),
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
                self.discard().await;
                Ok(Round::Done(self.published_at(read, e_tag).into()))
            }
            Published::Other => self.taken(Some(read.content.clone())).await,
        }
    }

    /// The number is taken: by ourselves, which is a success, or by another version.
    async fn taken(&self, content: Option<Bytes>) -> Result<Round> {
        match self.existing(content).await? {
            Some(created) => Ok(Round::Done(created)),
            None => Err(conflict(
                &self.chain,
                format!("version {} exists already", self.new.version),
            )),
        }
    }

    /// The version that is there, if it has this content, that which is staged; `None` if it has another.
    async fn existing(&self, staged: Option<Bytes>) -> Result<Option<TableVersion>> {
        let (store, chain) = (self.store(), &self.chain);
        let content = match &self.new.source {
            Source::Held(held) if !held.again => return Ok(None),
            Source::Held(held) => Some(held.content.clone()),
            Source::Staged(_) => staged,
        };
        let Some(there) = store.manifest_of(&chain.path, self.new.version).await? else {
            return Err(unclear(
                chain,
                &format!("version {} was cleaned up or is gone", self.new.version),
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
                let belonging = Belonging::parse(&content, self.target.as_ref())?;
                fence::check_files(self.catalog, chain, &belonging).await?;
                self.discard().await;
                Ok(Some(there.into()))
            }
            _ => Ok(None),
        }
    }

    /// Staged manifests that are published are litter.
    async fn discard(&self) {
        if let Some(staged) = &self.staged
            && let Err(error) = self.store().delete(staged).await
        {
            let table = &self.chain.slot.ident;
            tracing::warn!(%table, %error, "a staged manifest is left behind");
        }
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
