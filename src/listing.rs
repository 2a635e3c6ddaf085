//! One pass over the root: names of tables, tombstones and claims, in pages.
//!
//! A page of the root's children tells which tables are there and which are hidden, because a tombstone
//! (`t.deleted`) sorts before its table (`t.lance/`). No table is probed, so a name without any version in its
//! directory, or deregistered by a stock client, is listed like a table; `include_declared(false)` looks at each.

use std::collections::{HashSet, VecDeque};
use std::future::{Future, IntoFuture};
use std::pin::Pin;

use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use lance_io::object_store::ReadDirOptions;
use object_store::ObjectMeta;
use object_store::path::Path;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::ident::{self, TableIdent};
use crate::lifecycle::tombstone;
use crate::root;
use crate::root::status::table_state;
use crate::store::RootStore;

/// Children in one page of the store.
const STORE_PAGE: usize = 1000;

/// Tables looked at together where a listing looks at each.
const PROBES: usize = 16;

/// What a child of the root is to the catalog.
#[derive(Debug)]
pub(crate) enum Entry {
    /// `<name>.lance/`
    Table(String),
    /// `<name>.deleted`
    Tombstone(Hiding),
    /// `<name>.deleted.<drop id>.claim[.<n>]`, and the objects that read the store's clock.
    Claim {
        name: String,
        drop_id: Uuid,
        object: String,
    },
    /// `<name>.deleted.<drop id>.purge.<unique>/`
    PurgeDir {
        name: String,
        drop_id: Uuid,
        dir: String,
    },
    /// A directory `<name>.lance/` with a name that no table of a catalog can have.
    Unusable(String),
}

/// A tombstone as a listing shows it.
#[derive(Debug)]
pub(crate) struct Hiding {
    pub(crate) name: String,
    /// By its size it may be a creating one, which hides nothing that has a version.
    maybe_creating: bool,
}

impl Hiding {
    /// Whether it hides its table: no request, or 2 where a table of that name is being created.
    async fn hides(&self, store: &RootStore) -> Result<bool> {
        if !self.maybe_creating {
            return Ok(true);
        }
        let Ok(slot) = root::reading_slot(store, &TableIdent::from(&self.name)) else {
            // Nothing of a name that Lance cannot address here can be opened anyway.
            return Ok(true);
        };
        match tombstone::read(store, &slot).await? {
            Some(t) if t.creating.is_some() => {
                Ok(store.latest_manifest(&slot.table).await?.is_none())
            }
            found => Ok(found.is_some()),
        }
    }
}

impl Entry {
    fn of_prefix(name: &str) -> Option<Self> {
        if let Some(table) = name.strip_suffix(".lance") {
            return Some(match ident::check_existing(table, usize::MAX) {
                Ok(()) => Self::Table(table.to_string()),
                Err(_) => Self::Unusable(table.to_string()),
            });
        }
        let (stem, drop_id, rest) = split_drop(name)?;
        rest.starts_with("purge.").then(|| Self::PurgeDir {
            name: stem,
            drop_id,
            dir: name.to_string(),
        })
    }

    fn of_object(name: &str, size: u64) -> Option<Self> {
        if let Some(table) = name.strip_suffix(".deleted") {
            return ident::check_existing(table, usize::MAX).is_ok().then(|| {
                Self::Tombstone(Hiding {
                    name: table.to_string(),
                    maybe_creating: size == tombstone::CREATING_SIZE as u64,
                })
            });
        }
        let (stem, drop_id, rest) = split_drop(name)?;
        let is_generation = |n: &str| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit());
        let is_claim = rest == "claim" || rest.strip_prefix("claim.").is_some_and(is_generation);
        (is_claim || rest.starts_with("clock.")).then(|| Self::Claim {
            name: stem,
            drop_id,
            object: name.to_string(),
        })
    }
}

/// Splits `<stem>.deleted.<uuid>.<rest>`, from the right: a stem may hold anything.
fn split_drop(name: &str) -> Option<(String, Uuid, &str)> {
    let at = name.rfind(".deleted.")?;
    let (stem, tail) = (&name[..at], &name[at + ".deleted.".len()..]);
    let (id, rest) = tail.split_at_checked(36)?;
    ident::check_existing(stem, usize::MAX).ok()?;
    Some((
        stem.to_string(),
        Uuid::try_parse(id).ok()?,
        rest.strip_prefix('.')?,
    ))
}

/// One page of the root, in the store's order.
struct RootPage {
    /// (sort key, entry); keys of directories end in a slash.
    entries: Vec<(String, Entry)>,
    next: Option<String>,
}

async fn root_page(store: &RootStore, token: Option<String>, limit: usize) -> Result<RootPage> {
    store.check_root()?;
    let options = ReadDirOptions {
        page_token: token,
        limit: Some(limit),
    };
    let page = match store.store.read_dir_page(store.base.clone(), options).await {
        Ok(page) => page,
        // A root that does not exist yet holds nothing.
        Err(e) if crate::store::is_not_found(&e) => {
            return Ok(RootPage {
                entries: Vec::new(),
                next: None,
            });
        }
        Err(e) => return Err(store.storage_via_lance("list", &store.base, e)),
    };
    let directories = page.result.common_prefixes.iter().filter_map(|p| {
        let name = p.filename()?;
        Some((format!("{name}/"), Entry::of_prefix(name)?))
    });
    let objects = page.result.objects.iter().filter_map(|o: &ObjectMeta| {
        let name = o.location.filename()?;
        Some((name.to_string(), Entry::of_object(name, o.size)?))
    });
    let mut entries: Vec<_> = directories.chain(objects).collect();
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(RootPage {
        entries,
        next: page.page_token,
    })
}

/// Every child of the root that means something to the catalog: ⌈children/1000⌉ LIST, or one pass over the directory.
pub(crate) async fn scan(store: &RootStore) -> Result<Vec<Entry>> {
    store.check_root()?;
    if let Some(root) = store.local_path(&store.base) {
        return tokio::task::spawn_blocking(move || scan_directory(&root))
            .await
            .map_err(std::io::Error::other)
            .and_then(|scanned| scanned)
            .map_err(|e| store.local_failure("list", &store.base, e));
    }
    let listed = match store
        .store
        .inner
        .list_with_delimiter(Some(&store.base))
        .await
    {
        Ok(listed) => listed,
        // A root that does not exist yet holds nothing.
        Err(object_store::Error::NotFound { .. }) => return Ok(Vec::new()),
        Err(e) => return Err(store.storage("list", &store.base, e)),
    };
    let directories = listed.common_prefixes.iter().filter_map(Path::filename);
    let objects = listed.objects.iter();
    Ok(directories
        .filter_map(Entry::of_prefix)
        .chain(objects.filter_map(|o| Entry::of_object(o.location.filename()?, o.size)))
        .collect())
}

/// The same of a local directory, where one odd child must not make the others unreachable.
fn scan_directory(root: &std::path::Path) -> std::io::Result<Vec<Entry>> {
    let children = match std::fs::read_dir(root) {
        Ok(children) => children,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let mut found = Vec::new();
    for child in children {
        let child = child?;
        let name = child.file_name();
        let Some(name) = name.to_str() else {
            let name = name.to_string_lossy();
            if name.ends_with(".lance") {
                found.push(Entry::Unusable(name.into_owned()));
            }
            continue;
        };
        let kind = child.file_type()?;
        let is_dir = kind.is_dir() || (kind.is_symlink() && child.path().is_dir());
        if is_dir {
            found.extend(Entry::of_prefix(name));
        } else if name.contains(".deleted") {
            // Gone again by now is as good as not found.
            if let Ok(meta) = std::fs::metadata(child.path()) {
                found.extend(Entry::of_object(name, meta.len()));
            }
        }
    }
    Ok(found)
}

/// The names that are not hidden, sorted.
pub(crate) async fn visible_names(store: &RootStore) -> Result<Vec<String>> {
    let (mut names, mut hidden) = (Vec::new(), HashSet::new());
    for entry in scan(store).await? {
        match entry {
            Entry::Table(name) => names.push(name),
            Entry::Tombstone(hiding) => {
                if hiding.hides(store).await? {
                    hidden.insert(hiding.name);
                }
            }
            Entry::Claim { .. } | Entry::PurgeDir { .. } | Entry::Unusable(_) => {}
        }
    }
    names.retain(|name| !hidden.contains(name));
    names.sort_unstable();
    Ok(names)
}

/// The names that have a tombstone, in no particular order.
pub(crate) async fn tombstoned_names(store: &RootStore) -> Result<Vec<String>> {
    Ok(scan(store)
        .await?
        .into_iter()
        .filter_map(|entry| match entry {
            Entry::Tombstone(hiding) => Some(hiding.name),
            _ => None,
        })
        .collect())
}

/// Where the next page begins: the store's page that held the last name, and that name's key in it.
#[derive(Debug, Serialize, Deserialize)]
struct PageToken {
    #[serde(skip_serializing_if = "Option::is_none")]
    page: Option<String>,
    size: usize,
    after: String,
}

impl PageToken {
    fn encode(&self) -> Result<String> {
        let json = serde_json::to_vec(self).map_err(|e| Error::InvalidInput {
            message: format!("the page token cannot be written: {e}"),
        })?;
        Ok(json.iter().map(|b| format!("{b:02x}")).collect())
    }

    fn decode(token: &str) -> Result<Self> {
        let invalid = || Error::InvalidInput {
            message: "the page token is not one that list_tables returned".to_string(),
        };
        if !token.len().is_multiple_of(2) || !token.is_ascii() {
            return Err(invalid());
        }
        let bytes: Option<Vec<u8>> = (0..token.len())
            .step_by(2)
            .map(|i| u8::from_str_radix(&token[i..i + 2], 16).ok())
            .collect();
        let token: Self = bytes
            .and_then(|b| serde_json::from_slice(&b).ok())
            .ok_or_else(invalid)?;
        if token.size == 0 || token.size > STORE_PAGE {
            return Err(invalid());
        }
        Ok(token)
    }
}

/// One page of table names.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TablePage {
    /// The names, in the order of the store's keys.
    pub tables: Vec<String>,
    /// Give it to [`ListTables::page_token`] for the next page; `None` on the last one.
    pub page_token: Option<String>,
}

/// A listing about to be made; await it for one page, or [`stream`](Self::stream) it. See [`Catalog::list_tables`].
#[derive(Debug)]
#[must_use = "a listing does nothing until it is awaited"]
pub struct ListTables {
    catalog: Catalog,
    limit: Option<usize>,
    token: Option<String>,
    include_declared: bool,
}

impl ListTables {
    pub(crate) fn new(catalog: Catalog) -> Self {
        Self {
            catalog,
            limit: None,
            token: None,
            include_declared: true,
        }
    }

    /// At most this many names in the page, at least 1. Without a limit the page holds all.
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Continue after the page that returned this token.
    pub fn page_token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// With `false` only tables that can be opened are listed: those that are declared, incomplete or deregistered by
    /// a stock client are left out, at the cost of 3 to 4 requests a table. Default: `true`.
    pub fn include_declared(mut self, include: bool) -> Self {
        self.include_declared = include;
        self
    }

    /// The names as they are read, page of the store by page of the store.
    pub fn stream(self) -> BoxStream<'static, Result<String>> {
        struct State {
            request: ListTables,
            ready: VecDeque<String>,
            done: bool,
        }
        let mut request = self;
        if request.catalog.store().store.is_cloud() {
            request.limit.get_or_insert(STORE_PAGE);
        }
        let state = State {
            request,
            ready: VecDeque::new(),
            done: false,
        };
        futures::stream::try_unfold(state, |mut state| async move {
            loop {
                if let Some(name) = state.ready.pop_front() {
                    return Ok(Some((name, state)));
                }
                if state.done {
                    return Ok(None);
                }
                let page = state.request.page().await?;
                state.ready = page.tables.into();
                state.done = page.page_token.is_none();
                state.request.token = page.page_token;
            }
        })
        .boxed()
    }

    async fn page(&self) -> Result<TablePage> {
        if self.limit == Some(0) {
            return Err(Error::InvalidInput {
                message: "a page holds at least 1 table, the limit is 0".to_string(),
            });
        }
        let store = self.catalog.store();
        let token = self.token.as_deref().map(PageToken::decode).transpose()?;
        let limit = self.limit.unwrap_or(usize::MAX);
        let unordered = !store.store.list_is_lexically_ordered && store.store.is_cloud();
        // Local disk lists a directory whole, whatever page is asked for.
        if unordered || self.limit.is_none() || store.store.has_direct_local_paths() {
            return self.page_of_all(token, limit).await;
        }
        // A page holds tombstones beside tables; a few more keys than names save a second request.
        let mut size = match &token {
            Some(token) => token.size,
            None => limit.saturating_add(16).min(STORE_PAGE),
        };
        let (mut at, after) = token.map_or((None, None), |t| (t.page, Some(t.after)));
        let mut tables: Vec<String> = Vec::new();
        let mut last: Option<PageToken> = None;
        let mut hidden = HashSet::new();
        // Tombstones that sort before this key are on pages that this call does not read.
        let mut unseen: Option<String> = at.is_none().then(String::new);
        loop {
            let page = root_page(store, at.clone(), size).await?;
            if unseen.is_none() {
                unseen = page.entries.first().map(|(key, _)| key.clone());
            }
            if let Some(unseen) = &unseen {
                hidden.extend(self.hidden_before(&page, unseen).await?);
            }
            let mut candidates = Vec::new();
            for (key, entry) in page.entries {
                match entry {
                    Entry::Tombstone(hiding) => {
                        if hiding.hides(store).await? {
                            hidden.insert(hiding.name);
                        }
                    }
                    Entry::Table(name) => {
                        if after.as_ref().is_none_or(|after| &key > after)
                            && !hidden.contains(&name)
                        {
                            candidates.push((key, name));
                        }
                    }
                    Entry::Claim { .. } | Entry::PurgeDir { .. } | Entry::Unusable(_) => {}
                }
            }
            let mut wanted = self.wanted(candidates);
            while let Some((key, name)) = wanted.try_next().await? {
                if tables.len() == limit {
                    let page_token = last.map(|t| t.encode()).transpose()?;
                    return Ok(TablePage { tables, page_token });
                }
                tables.push(name);
                last = Some(PageToken {
                    page: at.clone(),
                    size,
                    after: key,
                });
            }
            at = page.next;
            if at.is_none() {
                return Ok(TablePage {
                    tables,
                    page_token: None,
                });
            }
            // Many drops in a row fill pages with nothing to list.
            size = (size * 2).min(STORE_PAGE);
        }
    }

    /// Tables of a page that are hidden by a tombstone before `first`: few to look for, since `t.deleted` and
    /// `t.lance/` are close.
    async fn hidden_before(&self, page: &RootPage, first: &str) -> Result<Vec<String>> {
        let mut hidden = Vec::new();
        for (_, entry) in &page.entries {
            if let Entry::Table(name) = entry
                && format!("{name}.deleted").as_str() < first
            {
                let store = self.catalog.store();
                let tombstone = store.child(&format!("{name}.deleted"))?;
                if let Some(meta) = store.head(&tombstone).await?
                    && let Some(Entry::Tombstone(hiding)) =
                        Entry::of_object(&format!("{name}.deleted"), meta.size)
                    && hiding.hides(store).await?
                {
                    hidden.push(name.clone());
                }
            }
        }
        Ok(hidden)
    }

    /// One listing of the whole root: for a page without a limit, and where LIST has no order (S3 Express).
    async fn page_of_all(&self, token: Option<PageToken>, limit: usize) -> Result<TablePage> {
        let names = visible_names(self.catalog.store()).await?;
        let mut names: Vec<_> = names
            .into_iter()
            .map(|name| (format!("{name}.lance/"), name))
            .filter(|(key, _)| token.as_ref().is_none_or(|token| *key > token.after))
            .collect();
        names.sort_unstable();
        let mut wanted = self.wanted(names);
        let mut tables: Vec<String> = Vec::new();
        let mut last = String::new();
        while let Some((key, name)) = wanted.try_next().await? {
            if tables.len() == limit {
                let token = PageToken {
                    page: None,
                    size: STORE_PAGE,
                    after: last,
                };
                return Ok(TablePage {
                    tables,
                    page_token: Some(token.encode()?),
                });
            }
            tables.push(name);
            last = key;
        }
        Ok(TablePage {
            tables,
            page_token: None,
        })
    }

    /// Those (key, name) that are to be listed, in their order; looks at each only where it was asked to.
    fn wanted(&self, names: Vec<(String, String)>) -> BoxStream<'_, Result<(String, String)>> {
        let all = futures::stream::iter(names);
        if self.include_declared {
            return all.map(Ok).boxed();
        }
        all.map(move |(key, name)| async move {
            let state = table_state(&self.catalog, &TableIdent::from(&name)).await?;
            Ok(state.is_live().then_some((key, name)))
        })
        .buffered(PROBES)
        .try_filter_map(|wanted| async move { Ok(wanted) })
        .boxed()
    }
}

impl IntoFuture for ListTables {
    type Output = Result<TablePage>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.page().await })
    }
}

/// Every drop, read: ⌈children/1000⌉ LIST and 1 GET for each tombstone. Oldest first.
pub(crate) async fn read_tombstones(
    catalog: &Catalog,
) -> Result<Vec<(crate::store::Slot, crate::lifecycle::Tombstone)>> {
    let store = catalog.store();
    let names = tombstoned_names(store).await?;
    let mut found: Vec<_> = futures::stream::iter(names)
        .map(|name| async move {
            let slot = match root::reading_slot(store, &TableIdent::from(name)) {
                Ok(slot) => slot,
                Err(error) => {
                    tracing::warn!(%error, "a tombstone of a name that no table here can have");
                    return Ok(None);
                }
            };
            let tombstone = tombstone::read(store, &slot).await?;
            Ok::<_, Error>(tombstone.map(|t| (slot, t)))
        })
        .buffer_unordered(PROBES)
        .try_filter_map(|found| async move { Ok(found) })
        .try_filter(|(_, t)| std::future::ready(t.creating.is_none()))
        .try_collect()
        .await?;
    found.sort_by(|(a, x), (b, y)| (x.deleted_at, &a.ident).cmp(&(y.deleted_at, &b.ident)));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_records_are_told_apart() {
        let id = Uuid::new_v4();
        assert!(matches!(Entry::of_prefix("t.lance"), Some(Entry::Table(n)) if n == "t"));
        assert!(
            matches!(Entry::of_object("t.deleted", 0), Some(Entry::Tombstone(h)) if h.name == "t")
        );
        for claim in [
            format!("a.b.deleted.{id}.claim"),
            format!("a.b.deleted.{id}.claim.7"),
        ] {
            assert!(
                matches!(Entry::of_object(&claim, 0), Some(Entry::Claim { name, drop_id, .. })
                    if name == "a.b" && drop_id == id)
            );
        }
        // A table whose name looks like a claim is a table all the same.
        let odd = format!("t.deleted.{id}.claim");
        assert!(
            matches!(Entry::of_prefix(&format!("{odd}.lance")), Some(Entry::Table(n)) if n == odd)
        );
        assert!(
            matches!(Entry::of_object(&format!("{odd}.deleted"), 0), Some(Entry::Tombstone(h)) if h.name == odd)
        );
        for other in [
            "t.lance",
            ".lance",
            "t.deleted.x.claim",
            "notes.txt",
            ".deleted",
        ] {
            assert!(Entry::of_object(other, 0).is_none(), "{other}");
        }
        assert!(matches!(
            Entry::of_prefix(".lance"),
            Some(Entry::Unusable(_))
        ));
        assert!(matches!(
            Entry::of_prefix("a%2Fb.lance"),
            Some(Entry::Unusable(_))
        ));
        assert!(Entry::of_prefix("t.deleted").is_none());
    }

    #[test]
    fn page_tokens_round_trip_and_others_are_refused() {
        let token = PageToken {
            page: Some("x\"ü".to_string()),
            size: 21,
            after: "t.lance/".to_string(),
        };
        let decoded = PageToken::decode(&token.encode().unwrap()).unwrap();
        assert_eq!(
            (decoded.page, decoded.size, decoded.after),
            (token.page, 21, token.after)
        );
        for bad in [
            "",
            "0",
            "zz",
            "7b7d",
            "äöü",
            "7b2273697a65223a302c226166746572223a2278227d",
        ] {
            assert!(PageToken::decode(bad).is_err(), "{bad:?}");
        }
    }
}
