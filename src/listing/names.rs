//! The names of all tables of a root, or of all that have a tombstone: no more of the root is kept than they.

use std::cmp::Ordering;
use std::collections::HashSet;

use crate::error::Result;
use crate::listing::SUFFIX;
use crate::listing::entries::{Entry, Hiding, scan_into};
use crate::store::RootStore;

/// What a listing of names keeps of a scan.
#[derive(Default)]
struct Seen {
    names: Vec<String>,
    tombstones: Vec<Hiding>,
}

/// The names that are not hidden, in no particular order; no more of the root is kept.
pub(super) async fn unhidden_names(store: &RootStore) -> Result<Vec<String>> {
    let seen: Seen = scan_into(store, |seen: &mut Seen, entry| match entry {
        Entry::Table(name) => seen.names.push(name),
        Entry::Tombstone(hiding) => seen.tombstones.push(hiding),
        Entry::Claim { .. }
        | Entry::PurgeDir { .. }
        | Entry::Staged { .. }
        | Entry::ChildDir(_)
        | Entry::Unusable(_) => {}
    })
    .await?;
    let mut hidden = HashSet::new();
    for hiding in seen.tombstones {
        if hiding.hides(store).await? {
            hidden.insert(hiding.name);
        }
    }
    let mut names = seen.names;
    names.retain(|name| !hidden.contains(name));
    Ok(names)
}

/// The names that are not hidden, sorted.
pub(crate) async fn visible_names(store: &RootStore) -> Result<Vec<String>> {
    let mut names = unhidden_names(store).await?;
    names.sort_unstable();
    Ok(names)
}

/// The names that have a tombstone, in no particular order.
pub(super) async fn tombstoned_names(store: &RootStore) -> Result<Vec<String>> {
    scan_into(store, |names: &mut Vec<String>, entry| {
        if let Entry::Tombstone(hiding) = entry {
            names.push(hiding.name);
        }
    })
    .await
}

/// The order of the store's keys, in which a table is its directory `<name>.lance/`.
pub(super) fn by_key(a: &str, b: &str) -> Ordering {
    let common = a.len().min(b.len());
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let key = |rest: &[u8]| [rest, SUFFIX.as_bytes()].concat();
    // Almost always the names differ before either ends.
    a[..common]
        .cmp(&b[..common])
        .then_with(|| key(&a[common..]).cmp(&key(&b[common..])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_names_is_that_of_their_keys() {
        let names = [
            "a", "a-b", "a.b", "a.lance", "a.lancf", "a.lan", "aa", "a0", "b", "ab",
        ];
        for a in names {
            for b in names {
                let key = |name| format!("{name}{SUFFIX}");
                assert_eq!(by_key(a, b), key(a).cmp(&key(b)), "{a} {b}");
            }
        }
    }
}
