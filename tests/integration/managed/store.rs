//! The conformance of manifest stores: ours over a catalog, a stock directory and REST, and Lance's own beside it.

use futures::future::join_all;
use lance_namespace::ErrorCode;
use lance_namespace::models::ListTableVersionsRequest;
use lance_table::io::commit::external_manifest::ExternalManifestStore;
use lance_table::io::commit::{ManifestLocation, ManifestNamingScheme, VERSIONS_DIR};
use lancekeep::NamespaceExternalManifestStore;
use lancekeep::lance::io::commit::namespace_manifest::LanceNamespaceExternalManifestStore;
use object_store::ObjectStoreExt;
use object_store::path::Path;

use super::subject::{Behind, Subject};
use super::{LanceResult, code_of, names};
use crate::stores::{Place, Store, on_each_store};

/// Contestants, and how often they meet.
const EIGHT: u8 = 8;
const MEETINGS: usize = 4;

/// What a store does; where ours and Lance's own differ.
#[derive(Debug, Clone, Copy)]
struct Rules {
    /// A version that is not there is Lance's "not found", on which Lance's handler falls back to what is on the store;
    /// Lance's own store passes the namespace's code on, and the handler gives up.
    says_not_found: bool,
    /// Size and tag come with a location; Lance's own store drops them, and the handler asks again.
    knows_size: bool,
    /// `put_if_exists` and `put_if_not_exists` work; Lance's own store refuses them.
    generic_puts: bool,
    /// `delete` deletes; that of Lance's own store is the default, which does nothing and says that it did.
    deletes: bool,
}

const OURS: Rules = Rules {
    says_not_found: true,
    knows_size: true,
    generic_puts: true,
    deletes: true,
};

const LANCES: Rules = Rules {
    says_not_found: false,
    knows_size: false,
    generic_puts: false,
    deletes: false,
};

/// The latest version of a chain, as the store tells it in both of its ways.
async fn latest(store: &dyn ExternalManifestStore, base: &str) -> Option<ManifestLocation> {
    let pair = store.get_latest_version(base).await.unwrap();
    let location = store.get_latest_manifest_location(base).await.unwrap();
    let of_location = location.as_ref().map(|l| (l.version, l.path.to_string()));
    assert_eq!(pair, of_location);
    location
}

/// The latest version of the table itself and its naming scheme; at least two versions are there.
async fn current(
    s: &Subject<'_>,
    store: &dyn ExternalManifestStore,
) -> (u64, ManifestNamingScheme) {
    let found = latest(store, s.base()).await.unwrap();
    assert!(found.version >= 2);
    (found.version, found.naming_scheme)
}

#[track_caller]
fn is_not_found<T: std::fmt::Debug>(found: LanceResult<T>, rules: &Rules) {
    let error = found.unwrap_err();
    let not_found = matches!(error, lance_core::Error::NotFound { .. });
    assert_eq!(not_found, rules.says_not_found, "{error}");
    if !rules.says_not_found {
        assert_eq!(code_of(&error), Some(ErrorCode::TableVersionNotFound));
    }
}

#[track_caller]
fn is_refused<T: std::fmt::Debug>(found: LanceResult<T>, code: ErrorCode) {
    let error = found.unwrap_err();
    assert_eq!(code_of(&error), Some(code), "{error}");
}

async fn gets(s: &Subject<'_>, store: &dyn ExternalManifestStore, rules: &Rules) {
    let (last, scheme) = current(s, store).await;
    for version in 1..=last {
        let path = scheme.manifest_path(&s.table, version);
        let found = store.get(s.base(), version).await.unwrap();
        assert_eq!(found, path.to_string());
        let location = store
            .get_manifest_location(s.base(), version)
            .await
            .unwrap();
        assert_eq!((location.version, &location.path), (version, &path));
        assert_eq!(location.naming_scheme, scheme);
        let meta = s.objects.head(&path).await.unwrap();
        assert_eq!(location.size, rules.knows_size.then_some(meta.size));
        assert_eq!(location.e_tag, meta.e_tag.filter(|_| rules.knows_size));
    }
    is_not_found(store.get(s.base(), last + 7).await, rules);
    let missing = store.get_manifest_location(s.base(), last + 7).await;
    is_not_found(missing, rules);
    // A chain that is not there has no latest version; a place that is not the table's is a mistake.
    let no_branch = format!("{}/tree/none", s.base());
    assert!(latest(store, &no_branch).await.is_none());
    let beside = format!("{}2", s.base());
    for elsewhere in ["elsewhere", beside.as_str()] {
        assert!(store.get_latest_version(elsewhere).await.is_err());
        assert!(store.get(elsewhere, 1).await.is_err());
    }
}

async fn puts(s: &Subject<'_>, store: &dyn ExternalManifestStore) {
    let (last, scheme) = current(s, store).await;
    let at = |version| scheme.manifest_path(&s.table, version);
    let next = last + 1;

    // Two ahead, and nothing staged.
    let ahead = s.stage(&at(2), &at(next + 1)).await;
    let put = s.put(store, &s.table, next + 1, &ahead, scheme).await;
    is_refused(put, ErrorCode::ConcurrentModification);
    let nothing = (Path::parse(format!("{}-none", at(next))).unwrap(), 10);
    let put = s.put(store, &s.table, next, &nothing, scheme).await;
    is_refused(put, ErrorCode::InvalidInput);
    assert_eq!(current(s, store).await.0, last);
    assert!(s.content(&at(next + 1)).await.is_none());

    // The next one; the same again; another one.
    let wanted = s.content(&at(2)).await;
    for _ in 0..2 {
        let staged = s.stage(&at(2), &at(next)).await;
        let put = s.put(store, &s.table, next, &staged, scheme).await.unwrap();
        assert_eq!((put.version, &put.path), (next, &at(next)));
        assert_eq!((put.size, put.naming_scheme), (Some(staged.1), scheme));
        assert_eq!(s.content(&at(next)).await, wanted);
        assert!(s.content(&staged.0).await.is_none(), "staged manifest left");
        assert_eq!(current(s, store).await, (next, scheme));
    }
    for version in [next, 2] {
        let before = s.content(&at(version)).await;
        let other = s.stage(&at(1), &at(version)).await;
        let put = s.put(store, &s.table, version, &other, scheme).await;
        is_refused(put, ErrorCode::ConcurrentModification);
        assert_eq!(s.content(&at(version)).await, before);
    }

    // A catalog takes only what is staged beside its place; the stock directory takes any object.
    let (elsewhere, size) = s.stage(&at(2), &s.table.clone().join("elsewhere")).await;
    let put = s
        .put(store, &s.table, next + 1, &(elsewhere, size), scheme)
        .await;
    match s.behind {
        Behind::Directory => assert_eq!(put.unwrap().version, next + 1),
        _ => is_refused(put, ErrorCode::InvalidInput),
    }
}

async fn generic_puts(s: &Subject<'_>, store: &dyn ExternalManifestStore, rules: &Rules) {
    let (last, scheme) = current(s, store).await;
    let at = |version| scheme.manifest_path(&s.table, version);
    let (next, base) = (last + 1, s.base());
    let (staged, size) = s.stage(&at(2), &at(next)).await;
    let put = store
        .put_if_not_exists(base, next, staged.as_ref(), size, None)
        .await;
    let path = at(next).to_string();
    if !rules.generic_puts {
        let recorded = at(last).to_string();
        let set = store.put_if_exists(base, last, &recorded, size, None).await;
        for refused in [put, set] {
            let error = refused.unwrap_err();
            assert!(matches!(error, lance_core::Error::NotSupported { .. }));
        }
        assert!(s.content(&at(next)).await.is_none());
        return;
    }
    put.unwrap();
    assert_eq!(current(s, store).await.0, next);
    let (staged, size) = s.stage(&at(2), &at(next)).await;
    let again = store
        .put_if_not_exists(base, next, staged.as_ref(), size, None)
        .await;
    again.unwrap();
    let (other, size) = s.stage(&at(1), &at(next)).await;
    let put = store
        .put_if_not_exists(base, next, other.as_ref(), size, None)
        .await;
    is_refused(put, ErrorCode::ConcurrentModification);

    // Recorded where it is, as often as one likes, and never moved.
    for _ in 0..2 {
        let set = store.put_if_exists(base, next, &path, size, None).await;
        set.unwrap();
        let put = store.put_if_not_exists(base, next, &path, size, None).await;
        put.unwrap();
    }
    let set = store.put_if_exists(base, next, other.as_ref(), size, None);
    is_refused(set.await, ErrorCode::ConcurrentModification);
    let absent = at(next + 1).to_string();
    let set = store.put_if_exists(base, next + 1, &absent, size, None);
    is_not_found(set.await, rules);
    let put = store.put_if_not_exists(base, next + 1, &absent, size, None);
    is_not_found(put.await, rules);
    assert_eq!(current(s, store).await.0, next);
    assert_eq!(s.content(&at(next)).await, s.content(&at(2)).await);
}

async fn branches(s: &Subject<'_>, store: &dyn ExternalManifestStore, rules: &Rules) {
    let main = current(s, store).await;
    let mut plain = s.place.plain(&s.uri).await;
    let branch = plain.create_branch("b", 2_u64, None).await.unwrap();
    let chain = branch.branch_location().path;
    let base = chain.to_string();
    let first = latest(store, &base).await.unwrap();
    assert_eq!(first.version, branch.version().version);
    assert!(first.path.as_ref().starts_with(&base));

    // A branch has a naming scheme of its own.
    let scheme = first.naming_scheme;
    let next = first.version + 1;
    let target = scheme.manifest_path(&chain, next);
    let staged = s.stage(&first.path, &target).await;
    let put = s.put(store, &chain, next, &staged, scheme).await.unwrap();
    assert_eq!((put.version, &put.path), (next, &target));
    assert_eq!(latest(store, &base).await.unwrap().version, next);
    assert_eq!(store.get(&base, next).await.unwrap(), target.to_string());
    is_not_found(store.get(&base, next + 1).await, rules);
    let skipped = scheme.manifest_path(&chain, next + 2);
    let staged = s.stage(&first.path, &skipped).await;
    let put = s.put(store, &chain, next + 2, &staged, scheme).await;
    is_refused(put, ErrorCode::ConcurrentModification);
    assert_eq!(current(s, store).await, main);

    store.delete(&base).await.unwrap();
    assert_eq!(latest(store, &base).await.is_none(), rules.deletes);
    assert_eq!(current(s, store).await, main);
}

/// What is no version, in the directory of versions.
async fn litter(s: &Subject<'_>, store: &dyn ExternalManifestStore) {
    let (last, scheme) = current(s, store).await;
    let at = |version| scheme.manifest_path(&s.table, version);
    let (left, _) = s.stage(&at(2), &at(last + 1)).await;
    let content = s.content(&at(2)).await.unwrap();
    let dir = s.table.clone().join(VERSIONS_DIR);
    // The second is a detached manifest: the highest bit marks its number.
    let junk = [
        "notes.txt",
        "d9223372036854775909.manifest",
        "x.manifest",
        ".tmp_7.manifest_9c100374",
    ];
    for name in junk {
        let path = dir.clone().join(name);
        s.objects.put(&path, content.clone().into()).await.unwrap();
    }
    assert_eq!(current(s, store).await, (last, scheme));
    let mut request = ListTableVersionsRequest::new();
    request.id = Some(s.id.clone());
    request.descending = Some(false);
    let listed = s.namespace.list_table_versions(request).await.unwrap();
    let numbers: Vec<i64> = listed.versions.iter().map(|v| v.version).collect();
    assert!(numbers.iter().copied().eq(1..=last.cast_signed()));
    let staged = s.stage(&at(2), &at(last + 1)).await;
    let put = s.put(store, &s.table, last + 1, &staged, scheme).await;
    assert_eq!(put.unwrap().version, last + 1);
    assert_eq!(current(s, store).await, (last + 1, scheme));
    // Somebody may still be at it.
    assert!(s.content(&left).await.is_some());
}

/// The delete of a table's record takes every version, and nothing else.
async fn deletes(s: &Subject<'_>, store: &dyn ExternalManifestStore, rules: &Rules) {
    let before = names(s.objects.as_ref(), &s.table).await;
    for _ in 0..2 {
        store.delete(s.base()).await.unwrap();
        assert_eq!(latest(store, s.base()).await.is_none(), rules.deletes);
    }
    let after = names(s.objects.as_ref(), &s.table).await;
    let version = |name: &&String| {
        let scheme = ManifestNamingScheme::detect_scheme(name);
        scheme.is_some_and(|scheme| scheme.parse_version(name).is_some())
    };
    let versions = before.iter().filter(version).count();
    assert!(versions > 2);
    let gone = if rules.deletes { versions } else { 0 };
    assert_eq!(before.len() - after.len(), gone);
    assert!(after.iter().any(|name| name == "notes.txt"));
}

/// Eight put the same version, each with a manifest of its own; one wins, and what it staged is what is there.
async fn one_of_eight_puts(place: &Place) {
    for behind in [Behind::Root, Behind::Child] {
        let place = place.below(&format!("{behind:?}"));
        let s = Subject::of(behind, ManifestNamingScheme::V2, &place).await;
        let namespace = || s.namespace.clone();
        let new =
            || NamespaceExternalManifestStore::new(namespace(), s.id.clone(), s.table.clone());
        let stores: Vec<_> = (0..EIGHT).map(|_| new()).collect();
        for _ in 0..MEETINGS {
            let (last, scheme) = current(&s, &stores[0]).await;
            let target = scheme.manifest_path(&s.table, last + 1);
            let content = s.content(&scheme.manifest_path(&s.table, 2)).await.unwrap();
            let mut contents = Vec::new();
            let mut staged = Vec::new();
            for i in 0..EIGHT {
                // Between the message and what tells its place nobody looks.
                let (message, end) = content.split_at(content.len() - 16);
                contents.push([message, &[i; 3], end].concat());
                staged.push(
                    s.stage_content(contents[usize::from(i)].clone(), &target)
                        .await,
                );
            }
            let puts = stores.iter().zip(&staged);
            let puts = puts.map(|(store, staged)| s.put(store, &s.table, last + 1, staged, scheme));
            let done = join_all(puts).await;
            let won: Vec<usize> = (0..done.len()).filter(|i| done[*i].is_ok()).collect();
            assert_eq!(won.len(), 1, "{done:?}");
            for lost in done.into_iter().filter(Result::is_err) {
                is_refused(lost, ErrorCode::ConcurrentModification);
            }
            assert_eq!(s.content(&target).await.as_ref(), Some(&contents[won[0]]));
            assert_eq!(current(&s, &stores[0]).await, (last + 1, scheme));
        }
    }
}

async fn conforms(behind: Behind, place: &Place) {
    for scheme in [ManifestNamingScheme::V1, ManifestNamingScheme::V2] {
        for ours in [true, false] {
            let rules = if ours { OURS } else { LANCES };
            println!("{behind:?} {scheme:?} {rules:?}");
            let place = place.below(&format!("{scheme:?}-{ours}"));
            let s = Subject::of(behind, scheme, &place).await;
            let make = |id: Vec<String>, table: Path| -> Box<dyn ExternalManifestStore> {
                let namespace = s.namespace.clone();
                if ours {
                    Box::new(NamespaceExternalManifestStore::new(namespace, id, table))
                } else {
                    let store = LanceNamespaceExternalManifestStore::new(namespace, id, table);
                    Box::new(store)
                }
            };
            let store = make(s.id.clone(), s.table.clone());
            let store = store.as_ref();
            assert_eq!(current(&s, store).await, (2, scheme));
            gets(&s, store, &rules).await;
            branches(&s, store, &rules).await;
            puts(&s, store).await;
            generic_puts(&s, store, &rules).await;
            gets(&s, store, &rules).await;
            litter(&s, store).await;
            deletes(&s, store, &rules).await;

            let mut absent = s.id.clone();
            absent.pop();
            absent.push("absent".to_string());
            let path = Path::parse(format!("{}-absent", s.base())).unwrap();
            let store = make(absent, path.clone());
            assert!(latest(store.as_ref(), path.as_ref()).await.is_none());
        }
    }
}

async fn over_a_root_table(place: &Place) {
    conforms(Behind::Root, place).await;
}

async fn over_a_child_table(place: &Place) {
    conforms(Behind::Child, place).await;
}

on_each_store!(over_a_root_table, over_a_child_table, one_of_eight_puts);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_a_stock_directory() {
    conforms(Behind::Directory, &Place::new(Store::Disk)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_rest() {
    conforms(Behind::Rest, &Place::new(Store::Disk)).await;
}
