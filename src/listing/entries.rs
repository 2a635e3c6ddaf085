//! What the children of a root are to the catalog, told by their names.

use uuid::Uuid;

use crate::error::Result;
use crate::ident::{self, TableIdent};
use crate::lifecycle::tombstone;
use crate::root;
use crate::store::RootStore;

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
    /// `<record>#<n>` on local disk: what a tombstone, a claim or the like is written to before it gets its name. Who
    /// writes it takes it away within that request, if it is not stopped.
    Staged { name: String, file: String },
    /// `<8 hex digits>_<id>/`, with a delimiter in the id: a directory as tables in namespaces have.
    ChildDir(String),
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
    pub(super) async fn hides(&self, store: &RootStore) -> Result<bool> {
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
    pub(crate) fn of_prefix(name: &str) -> Option<Self> {
        // First of all: the id of a table in a namespace may end as anything.
        if is_drawn(name) {
            return Some(Self::ChildDir(name.to_string()));
        }
        if let Some(table) = name.strip_suffix(".lance") {
            return Some(match ident::check_existing(table, usize::MAX) {
                Ok(()) => Self::Table(table.to_string()),
                Err(_) => Self::Unusable(table.to_string()),
            });
        }
        if let Some((stem, drop_id, rest)) = split_drop(name)
            && rest.strip_prefix("purge.").is_some_and(is_unique)
        {
            return Some(Self::PurgeDir {
                name: stem,
                drop_id,
                dir: name.to_string(),
            });
        }
        None
    }

    /// Of a file on local disk, where not every file is an object.
    fn of_file(name: &str, size: u64) -> Option<Self> {
        if let Some((record, number)) = name.rsplit_once('#')
            && is_number(number)
        {
            let (Self::Tombstone(Hiding { name: of, .. }) | Self::Claim { name: of, .. }) =
                Self::of_object(record, size)?
            else {
                return None;
            };
            return Some(Self::Staged {
                name: of,
                file: name.to_string(),
            });
        }
        Self::of_object(name, size)
    }

    pub(super) fn of_object(name: &str, size: u64) -> Option<Self> {
        if let Some(table) = name.strip_suffix(".deleted") {
            return ident::check_existing(table, usize::MAX).is_ok().then(|| {
                Self::Tombstone(Hiding {
                    name: table.to_string(),
                    maybe_creating: size == tombstone::CREATING_SIZE as u64,
                })
            });
        }
        let (stem, drop_id, rest) = split_drop(name)?;
        let is_ours = match rest.split_once('.') {
            None => rest == "claim",
            Some(("claim", n)) => n.parse::<u32>().is_ok_and(|g| g > 0 && g.to_string() == n),
            Some(("clock", unique)) => is_unique(unique),
            Some(_) => false,
        };
        is_ours.then(|| Self::Claim {
            name: stem,
            drop_id,
            object: name.to_string(),
        })
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// `<8 hex digits>_<id with a delimiter>`; no root table that a catalog makes is named so.
fn is_drawn(dir: &str) -> bool {
    dir.split_once('_').is_some_and(|(hash, id)| {
        hash.len() == 8
            && hash.bytes().all(|b| b.is_ascii_hexdigit())
            && id.contains(ident::DELIMITER)
    })
}

/// Eight random digits, as they end the names of what is renamed away and of what reads the store's clock.
fn is_unique(text: &str) -> bool {
    text.len() == 8 && text.bytes().all(is_lower_hex)
}

fn is_lower_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// Splits `<stem>.deleted.<uuid>.<rest>`, from the right: a stem may hold anything. Only what is spelled as we write it
/// is a record of ours, which `reconcile` may delete.
fn split_drop(name: &str) -> Option<(String, Uuid, &str)> {
    let at = name.rfind(".deleted.")?;
    let (stem, tail) = (&name[..at], &name[at + ".deleted.".len()..]);
    let (id, rest) = tail.split_at_checked(36)?;
    ident::check_existing(stem, usize::MAX).ok()?;
    let drop_id = Uuid::try_parse(id).ok()?;
    if drop_id.to_string() != id {
        return None;
    }
    Some((stem.to_string(), drop_id, rest.strip_prefix('.')?))
}

/// Every child of the root that means something to the catalog: ⌈children/1000⌉ LIST, or one pass over the directory.
pub(crate) async fn scan(store: &RootStore) -> Result<Vec<Entry>> {
    scan_into(store, Vec::push).await
}

/// The same, each child given to `add` as it is found, so that what means nothing to the caller is not kept.
pub(super) async fn scan_into<T>(store: &RootStore, add: fn(&mut T, Entry)) -> Result<T>
where
    T: Default + Send + 'static,
{
    if let Some(root) = store.local_path(&store.base) {
        return tokio::task::spawn_blocking(move || scan_directory(&root, add))
            .await
            .map_err(std::io::Error::other)
            .and_then(|scanned| scanned)
            .map_err(|e| store.local_failure("list", &store.base, e));
    }
    let mut found = T::default();
    let listed = match store
        .store
        .inner
        .list_with_delimiter(Some(&store.base))
        .await
    {
        Ok(listed) => listed,
        // A root that does not exist yet holds nothing.
        Err(object_store::Error::NotFound { .. }) => return Ok(found),
        Err(e) => return Err(store.storage("list", &store.base, e)),
    };
    let directories = listed.common_prefixes.into_iter();
    let directories = directories.filter_map(|p| Entry::of_prefix(p.filename()?));
    let objects = listed.objects.into_iter();
    let objects = objects.filter_map(|o| Entry::of_object(o.location.filename()?, o.size));
    directories
        .chain(objects)
        .for_each(|entry| add(&mut found, entry));
    Ok(found)
}

/// The same of a local directory, where one odd child must not make the others unreachable.
fn scan_directory<T: Default>(
    root: &std::path::Path,
    add: fn(&mut T, Entry),
) -> std::io::Result<T> {
    let mut found = T::default();
    let children = match std::fs::read_dir(root) {
        Ok(children) => children,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(found),
        Err(e) => return Err(e),
    };
    for child in children {
        let child = child?;
        let name = child.file_name();
        let Some(name) = name.to_str() else {
            let name = name.to_string_lossy();
            if name.ends_with(".lance") {
                add(&mut found, Entry::Unusable(name.into_owned()));
            }
            continue;
        };
        let kind = child.file_type()?;
        let is_dir = kind.is_dir() || (kind.is_symlink() && child.path().is_dir());
        let entry = if is_dir {
            Entry::of_prefix(name)
        } else if name.contains(".deleted") {
            // Gone again by now is as good as not found.
            let meta = match kind.is_symlink() {
                true => std::fs::metadata(child.path()).ok(),
                // Looks from the open directory on, not along the whole path.
                false => child.metadata().ok(),
            };
            meta.and_then(|meta| Entry::of_file(name, meta.len()))
        } else {
            None
        };
        if let Some(entry) = entry {
            add(&mut found, entry);
        }
    }
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
        for staged in [
            "t.deleted#1".to_string(),
            format!("t.deleted.{id}.claim.2#13"),
        ] {
            assert!(
                matches!(Entry::of_file(&staged, 0), Some(Entry::Staged { name, file }) if name == "t" && file == staged)
            );
        }
        for other in ["t.lance#1", "t.deleted#", "t.deleted#x", "#1", "notes#1"] {
            assert!(Entry::of_file(other, 0).is_none(), "{other}");
        }
        for other in [
            "t.lance",
            ".lance",
            "t.deleted.x.claim",
            "notes.txt",
            ".deleted",
        ] {
            assert!(Entry::of_object(other, 0).is_none(), "{other}");
        }
        // Nobody writes these; what is taken for litter is deleted.
        for rest in [
            "claim.",
            "claim.0",
            "claim.07",
            "claim.4294967296",
            "clock.x",
            "clock.0123ABCD",
        ] {
            let other = format!("t.deleted.{id}.{rest}");
            assert!(Entry::of_object(&other, 0).is_none(), "{other}");
        }
        let upper = "6F2F0D1C-7A5B-4F0E-9A39-0D7A1F7F2B11";
        assert!(Entry::of_object(&format!("t.deleted.{upper}.claim"), 0).is_none());
        assert!(Entry::of_prefix(&format!("t.deleted.{upper}.purge.0123abcd")).is_none());
        assert!(Entry::of_prefix(&format!("t.deleted.{id}.purge.by-hand")).is_none());
        assert!(matches!(
            Entry::of_prefix(&format!("t.deleted.{id}.purge.0123abcd")),
            Some(Entry::PurgeDir { name, drop_id, .. }) if name == "t" && drop_id == id
        ));
        assert!(matches!(
            Entry::of_prefix(".lance"),
            Some(Entry::Unusable(_))
        ));
        assert!(matches!(
            Entry::of_prefix("a%2Fb.lance"),
            Some(Entry::Unusable(_))
        ));
        assert!(Entry::of_prefix("t.deleted").is_none());
        for dir in ["0123abcd_a$t", "0123abcd_a$b$t_x"] {
            assert!(matches!(Entry::of_prefix(dir), Some(Entry::ChildDir(d)) if d == dir));
        }
        for other in ["__manifest", "0123abcd_t", "x_a$t", "notes"] {
            assert!(Entry::of_prefix(other).is_none(), "{other}");
        }
        for odd in [
            "0123abcd_a$t.lance".to_string(),
            format!("0123abcd_a$t.deleted.{id}.purge.x"),
        ] {
            assert!(matches!(Entry::of_prefix(&odd), Some(Entry::ChildDir(d)) if d == odd));
        }
    }
}
