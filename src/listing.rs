//! One pass over the root: names of tables, tombstones and claims, in pages.
//!
//! A page of the root's children tells which tables are there and which are hidden, because a tombstone
//! (`t.deleted`) sorts before its table (`t.lance/`). No table is probed, so a name without any version in its
//! directory, or deregistered by a stock client, is listed like a table; `include_declared(false)` looks at each.
//!
//! In memory are, for a page of at most L names on stores that list in pages (S3, Azure, Google Cloud Storage): the L
//! names and at most 1,000 children of the root, however many it has. A stream there is pages of 1,000. Elsewhere, and
//! for a page without a limit and [`Catalog::table_names`]: the names of all tables and drops, about 50 bytes and its
//! length each, and on an object store, until they are read, the paths of all children.

use std::collections::{HashSet, VecDeque};
use std::future::{Future, IntoFuture};
use std::pin::Pin;

use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use lance_io::object_store::ReadDirOptions;
use lance_namespace::models::ListTablesRequest;
use object_store::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::catalog::Catalog;
use crate::child;
use crate::error::{Error, Result};
use crate::ident::{NamespaceIdent, TableIdent};
use crate::lifecycle::tombstone;
use crate::root;
use crate::root::status::table_state;
use crate::store::RootStore;

mod entries;
mod names;
#[cfg(any(test, fuzzing))]
pub(crate) mod properties;

pub(crate) use entries::{Entry, scan};
pub(crate) use names::visible_names;
use names::{by_key, tombstoned_names, unhidden_names};

/// What a root table's key ends with.
const SUFFIX: &str = ".lance/";

fn key_of(name: &str) -> String {
    format!("{name}{SUFFIX}")
}

/// Children in one page of the store.
const STORE_PAGE: usize = 1000;

/// Tables looked at together where a listing looks at each.
const PROBES: usize = 16;

/// One page of the root, in the store's order.
struct RootPage {
    /// (sort key, entry); keys of directories end in a slash.
    entries: Vec<(String, Entry)>,
    next: Option<String>,
}

async fn root_page(store: &RootStore, token: Option<String>, limit: usize) -> Result<RootPage> {
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
        let read: Self = bytes
            .and_then(|b| serde_json::from_slice(&b).ok())
            .ok_or_else(invalid)?;
        // Other spellings of the same were not returned either.
        if read.size == 0 || read.size > STORE_PAGE || read.encode()? != token {
            return Err(invalid());
        }
        Ok(read)
    }
}

/// One page of table names.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TablePage {
    /// The names, in the order of the store's keys; in a child namespace sorted.
    pub tables: Vec<String>,
    /// Give it to [`ListTables::page_token`] for the next page; `None` on the last one.
    pub page_token: Option<String>,
}

/// A listing about to be made; await it for one page, or [`stream`](Self::stream) it. See [`Catalog::list_tables`].
#[derive(Debug)]
#[must_use = "a listing does nothing until it is awaited"]
pub struct ListTables {
    catalog: Catalog,
    namespace: NamespaceIdent,
    limit: Option<usize>,
    token: Option<String>,
    include_declared: bool,
}

impl ListTables {
    pub(crate) fn new(catalog: Catalog) -> Self {
        Self {
            catalog,
            namespace: NamespaceIdent::root(),
            limit: None,
            token: None,
            include_declared: true,
        }
    }

    /// List the tables directly in this namespace instead of the root's, sorted: 1 LIST a page, whatever its
    /// size, and some reads more after commits to the namespace manifest by others.
    pub fn namespace(mut self, namespace: impl Into<NamespaceIdent>) -> Self {
        self.namespace = namespace.into();
        self
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

    /// The names as they are read, page of the store by page of the store. In memory are, on S3, Azure and Google Cloud
    /// Storage, 1,000 children of the root, however many it has; elsewhere, and in a namespace, all names.
    pub fn stream(self) -> BoxStream<'static, Result<String>> {
        struct State {
            request: ListTables,
            ready: VecDeque<String>,
            done: bool,
        }
        let mut request = self;
        if request.namespace.is_root() && request.catalog.store().store.is_cloud() {
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
        if !self.namespace.is_root() {
            return self.page_of_children().await;
        }
        let store = self.catalog.store();
        let token = self.token.as_deref().map(PageToken::decode).transpose()?;
        let limit = self.limit.unwrap_or(usize::MAX);
        let unordered = !store.store.list_is_lexically_ordered && store.store.is_cloud();
        // Local disk lists a directory whole, whatever page is asked for.
        if unordered || self.limit.is_none() || store.store.has_direct_local_paths() {
            return self.page_of_all(token, limit).await;
        }
        // A page holds tombstones, and tables that they hide, beside the others: some more keys than names save a second
        // request where up to a tenth is dropped.
        let mut size = match &token {
            Some(token) => token.size,
            None => limit.saturating_add(limit / 4 + 16).min(STORE_PAGE),
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
            let end = page.entries.last().map(|(key, _)| key.clone());
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
                    Entry::Claim { .. }
                    | Entry::PurgeDir { .. }
                    | Entry::Staged { .. }
                    | Entry::ChildDir(_)
                    | Entry::Unusable(_) => {}
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
            // However many drops there are, those of tables behind us are not kept.
            hidden.retain(|name| Some(key_of(name)) > end);
            // Many drops in a row fill pages with nothing to list.
            size = (size * 2).min(STORE_PAGE);
        }
    }

    async fn page_of_children(&self) -> Result<TablePage> {
        let mut request = ListTablesRequest::new();
        request.id = Some(self.namespace.parts().to_vec());
        // More than this is all of them.
        request.limit = self.limit.and_then(|limit| i32::try_from(limit).ok());
        request.page_token = self.token.clone();
        request.include_declared = Some(self.include_declared);
        let page = child::list::tables(&self.catalog, request).await?;
        Ok(TablePage {
            tables: page.tables,
            page_token: page.page_token,
        })
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
        let mut names = unhidden_names(self.catalog.store()).await?;
        if let Some(token) = &token {
            names.retain(|name| key_of(name) > token.after);
        }
        // Which one comes after the page tells that there is one. Of those that are looked at, any number may fall away.
        if self.include_declared && names.len() > limit {
            names.select_nth_unstable_by(limit, |a, b| by_key(a, b));
            names.truncate(limit + 1);
        }
        names.sort_unstable_by(|a, b| by_key(a, b));
        let keyed = names.into_iter().map(|name| (key_of(&name), name));
        let mut wanted = self.wanted(keyed);
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
    fn wanted<'a>(
        &'a self,
        names: impl IntoIterator<Item = (String, String), IntoIter: Send + 'a>,
    ) -> BoxStream<'a, Result<(String, String)>> {
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
            // {"size":1,"after":"x"} with a capital digit, with a sign for a digit (of a space), and as a list.
            "7B2273697a65223a312c226166746572223a2278227d",
            "+97b2273697a65223a312c226166746572223a2278227d",
            "5b6e756c6c2c312c2278225d",
        ] {
            assert!(PageToken::decode(bad).is_err(), "{bad:?}");
        }
    }
}
