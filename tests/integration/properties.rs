//! Arbitrary bytes under every name that a catalog reads, and arbitrary names in its root.
//!
//! Each case starts from a copy of one root with a dropped table, a live one, and a live one beside them that nothing may
//! touch; plants what is bad; and asks everything of the catalog. Promised: no panic; answers that agree with each other;
//! a typed error or a whole table; what cannot be read keeps its table; and every object of others as it was. A quarter of
//! `PROPTEST_CASES`, since a case is a hundred requests. Parsers alone are tried in `src`, beside each.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use bytes::Bytes;
use futures::TryStreamExt;
use lancekeep::object_store::path::Path;
use lancekeep::object_store::{ObjectStore, ObjectStoreExt};
use lancekeep::uuid::Uuid;
use lancekeep::{Catalog, Error, ErrorKind, Purge, TableState};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Just, Strategy, any};
use proptest::test_runner::{Config, TestCaseError};
use proptest::{prop_assert, prop_assert_eq, prop_oneof, proptest};
use tokio::runtime::Runtime;

use crate::common::{catalog_of, ids, rows};
use crate::support::{Actor, Fault, Kind, SharedMemory};

mod locations;

/// One case for so many of `PROPTEST_CASES`. What fails is printed, shrunk; no files are written beside the sources.
fn one_of(every: u32) -> Config {
    let config = Config::default();
    Config {
        failure_persistence: None,
        cases: (config.cases / every).max(1),
        ..config
    }
}

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new().unwrap())
}

/// Runs it on a thread of its own: whichever test comes first asks for it from within the runtime.
fn made<T: Send>(work: impl Future<Output = T> + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| runtime().block_on(work));
        thread.join().unwrap()
    })
}

/// The root that every case begins with: `dropped`, `live` and `beside`, with the rows of [`ROWS`].
fn prepared() -> &'static (SharedMemory, Uuid) {
    static PREPARED: OnceLock<(SharedMemory, Uuid)> = OnceLock::new();
    PREPARED.get_or_init(|| {
        made(async {
            let memory = SharedMemory::new();
            let catalog = catalog_of(&memory.actor()).await;
            for (name, ids) in ROWS {
                catalog.create_table(name, rows(ids)).await.unwrap();
            }
            let dropped = catalog.drop_table("dropped").retention(None).await.unwrap();
            (memory, dropped.drop_id)
        })
    })
}

const ROWS: [(&str, [i32; 3]); 3] = [
    ("dropped", [1, 2, 3]),
    ("live", [4, 5, 6]),
    ("beside", [7, 8, 9]),
];

fn rows_of(name: &str) -> [i32; 3] {
    ROWS.iter().find(|(n, _)| *n == name).unwrap().1
}

struct World {
    memory: SharedMemory,
    actor: Actor,
    catalog: Catalog,
}

type Checked = Result<(), TestCaseError>;

impl World {
    async fn new(ordered: bool) -> Self {
        Self::over(prepared().0.fork().await, ordered).await
    }

    async fn over(memory: SharedMemory, ordered: bool) -> Self {
        let actor = match ordered {
            true => memory.actor(),
            false => memory.actor_unordered(),
        };
        let catalog = catalog_of(&actor).await;
        Self {
            memory,
            actor,
            catalog,
        }
    }

    /// Whether the store took it: some names are none there.
    async fn plant(&self, path: &str, content: &[u8]) -> bool {
        let Ok(path) = Path::parse(format!("root/{path}")) else {
            return false;
        };
        let content = Bytes::copy_from_slice(content);
        self.memory.raw().put(&path, content.into()).await.is_ok()
    }

    /// Every object with its content.
    async fn objects(&self) -> BTreeMap<String, Bytes> {
        let raw = self.memory.raw();
        let metas: Vec<_> = raw.list(None).try_collect().await.unwrap();
        let mut objects = BTreeMap::new();
        for meta in metas {
            let content = raw
                .get(&meta.location)
                .await
                .unwrap()
                .bytes()
                .await
                .unwrap();
            objects.insert(meta.location.to_string(), content);
        }
        objects
    }

    /// What does not belong to the table is as it was.
    fn assert_others_untouched(
        name: &str,
        before: &BTreeMap<String, Bytes>,
        after: &BTreeMap<String, Bytes>,
    ) -> Checked {
        let others = |objects: &BTreeMap<String, Bytes>| {
            let own = [
                format!("root/{name}.lance/"),
                format!("root/{name}.deleted"),
            ];
            objects
                .iter()
                .filter(|(path, _)| !own.iter().any(|own| path.starts_with(own)))
                .map(|(path, content)| (path.clone(), content.clone()))
                .collect::<BTreeMap<_, _>>()
        };
        prop_assert_eq!(others(before), others(after));
        Ok(())
    }

    /// The ways to ask for a table agree. Gives whether it can be opened.
    async fn ask(&self, name: &str) -> Result<bool, TestCaseError> {
        let catalog = &self.catalog;
        let opened = catalog.open_table(name).await;
        let state = catalog.table_status(name).await;
        let exists = catalog.table_exists(name).await;
        let listed = catalog.table_names().await.unwrap();
        let mut paged: Vec<String> = catalog
            .list_tables()
            .limit(1)
            .stream()
            .try_collect()
            .await
            .unwrap();
        paged.sort();
        prop_assert_eq!(&paged, &listed);
        let is_listed = listed.iter().any(|n| n == name);
        let in_drops = catalog.list_dropped_tables().await.unwrap();
        let drop = in_drops.iter().find(|d| d.ident == name.into());
        match (&opened, &state) {
            (Ok(dataset), Ok(TableState::Live { .. })) => {
                prop_assert_eq!(ids(dataset).await, rows_of(name));
                prop_assert!(is_listed && drop.is_none());
                prop_assert!(exists.unwrap());
            }
            (
                Err(Error::TableDropped { dropped }),
                Ok(TableState::Dropped(d) | TableState::Restoring(d) | TableState::Purging(d)),
            ) => {
                prop_assert_eq!(&**dropped, d);
                prop_assert_eq!(drop, Some(d));
                prop_assert!(!is_listed && !exists.unwrap());
            }
            (Err(Error::TableDeregistered { .. }), Ok(TableState::Deregistered)) => {
                prop_assert!(drop.is_none() && !exists.unwrap());
            }
            // What is there is no manifest: Lance's own error, and not that nothing is there.
            (Err(Error::Lance { .. } | Error::Storage { .. }), _) => {}
            other => prop_assert!(false, "{other:?}"),
        }
        Ok(opened.is_ok())
    }

    /// Whatever became of it, the table is whole or gone, and nobody else lost anything.
    async fn settle(&self, name: &str, before: &BTreeMap<String, Bytes>) -> Checked {
        let beside = self.catalog.open_table("beside").await.unwrap();
        prop_assert_eq!(ids(&beside).await, rows_of("beside"));
        Self::assert_others_untouched(name, before, &self.objects().await)
    }
}

/// Bytes: any, pieces of JSON, and records with any values in them.
fn content(drop_id: Uuid) -> impl Strategy<Value = Vec<u8>> {
    // Mostly what is read, so that more than the parser is asked.
    let number = prop_oneof![
        1 => Just("null".to_string()),
        1 => any::<i64>().prop_map(|n| n.to_string()),
        1 => any::<u64>().prop_map(|n| n.to_string()),
        9 => (0..3_u64).prop_map(|n| n.to_string()),
    ];
    let format = || prop_oneof![9 => Just(1_u32), 1 => 0..3_u32];
    let tombstone = (
        vec(number.clone(), 4),
        format(),
        any::<bool>(),
        option::of(any::<u128>()),
    )
        .prop_map(|(n, format, pad, creating)| {
            let creating = creating
                .map(|owner| {
                    let owner = Uuid::from_u128(owner);
                    format!(r#","creating":{{"owner":"{owner}","lease_ms":{}}}"#, n[2])
                })
                .unwrap_or_default();
            let record = format!(
                r#"{{"format":{format},"deleted_at_ms":{},"ttl_ms":{},"held_since_ms":{}{creating}}}"#,
                n[0], n[1], n[3]
            );
            match pad {
                true => format!("{record:<1024}"),
                false => record,
            }
        });
    let claim = (
        number,
        format(),
        prop_oneof![2 => Just(0_u32), 1 => 0..3_u32],
        "restore|purge|restore|purge|drop",
        any::<[bool; 3]>(),
    )
        .prop_map(move |(n, format, generation, action, flags)| {
            let revive = match flags[2] {
                true => format!(r#"{{"base_version":{n},"transaction":"{drop_id}"}}"#),
                false => "null".to_string(),
            };
            format!(
                r#"{{"format":{format},"drop_id":"{drop_id}","action":"{action}","owner":"{drop_id}",
                "generation":{generation},"lease_ms":{n},"creating":{},"if_expired":{},"revive":{revive}}}"#,
                flags[0], flags[1]
            )
        });
    prop_oneof![
        1 => vec(any::<u8>(), 0..64),
        1 => vec(any::<u8>(), 1024),
        1 => "[\\[\\]{}:,\"a-z0-9]{0,40}".prop_map(String::into_bytes),
        5 => tombstone.prop_map(String::into_bytes),
        5 => claim.prop_map(String::into_bytes),
        1 => Just(drop_id.to_string().into_bytes()),
    ]
}

/// Names as the catalog writes them, nearly so, and any others.
fn child_name() -> impl Strategy<Value = String> {
    let drop_id = prepared().1.to_string();
    let record = (
        "(dropped|live|ghost|beside.lance|a\\.deleted|0123abcd_a\\$t\\$)",
        prop_oneof![
            Just(drop_id.clone()),
            Just(drop_id.to_uppercase()),
            "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
        ],
        "(claim|claim\\.[0-9]{1,10}|clock\\.[0-9a-f]{6,9}|clock\\.x|purge\\.[0-9a-f]{8}|purge\\.keep|x)(/x)?",
    )
        .prop_map(|(stem, id, rest)| format!("{stem}.deleted.{id}.{rest}"));
    prop_oneof![
        record,
        "[a-z.]{1,9}\\.(deleted|lance|claim)(/[a-z.]{1,9})?",
        "[a-zA-Z0-9_.%$ ä-]{1,20}(/[a-z]{1,5})?",
        any::<String>(),
    ]
}

/// Named so that nobody but a catalog writes it, and of a drop that is over.
fn is_litter(path: &str) -> bool {
    let Some((_, rest)) = path.rsplit_once(".deleted.") else {
        return false;
    };
    let Some((id, rest)) = rest.split_once('.') else {
        return false;
    };
    let of_drop = Uuid::parse_str(id).is_ok_and(|parsed| parsed.to_string() == id);
    let generation = rest
        .strip_prefix("claim.")
        .is_some_and(|n| n.parse::<u32>().is_ok_and(|g| g > 0 && g.to_string() == n));
    let clock = rest
        .strip_prefix("clock.")
        .is_some_and(|u| u.len() == 8 && u.bytes().all(|b| b.is_ascii_hexdigit()));
    of_drop && (rest == "claim" || generation || clock)
}

proptest! {
    #![proptest_config(one_of(4))]

    /// A tombstone beside a live table: what is a drop can be taken back, what cannot be read is kept.
    #[test]
    fn any_bytes_as_a_tombstone(content in content(prepared().1), ordered in any::<bool>(), purge in any::<bool>()) {
        runtime().block_on(async {
            let world = World::new(ordered).await;
            let catalog = &world.catalog;
            world.plant("live.deleted", &content).await;
            let before = world.objects().await;
            world.ask("live").await?;
            let dropped = catalog.list_dropped_tables().await.unwrap();
            let planted = dropped.iter().find(|d| d.ident == "live".into());
            let (unreadable, never) = match planted {
                Some(d) => (d.parse_error.is_some(), d.expires_at.is_none()),
                None => (false, true),
            };
            prop_assert!(!unreadable || never);

            // A failure of the store is told as one.
            world.actor.faults.fail_matching(
                |r| r.kind == Kind::Get && r.path.ends_with("live.deleted"),
                Fault::Unavailable503,
            );
            for error in [
                catalog.open_table("live").await.map(drop).unwrap_err(),
                catalog.table_status("live").await.map(drop).unwrap_err(),
                catalog.undrop_table("live").await.map(drop).unwrap_err(),
                catalog.purge_table("live").await.map(drop).unwrap_err(),
            ] {
                prop_assert_eq!(error.kind(), ErrorKind::Storage);
            }
            world.actor.faults.clear();
            prop_assert_eq!(&world.objects().await, &before);

            catalog.reconcile(true).await.unwrap();
            prop_assert_eq!(&world.objects().await, &before);
            catalog.reconcile(false).await.unwrap();
            if never {
                let report = catalog.purge_dropped(Purge::expired()).await.unwrap();
                prop_assert!(report.tables.is_empty(), "{report:?}");
            }
            if unreadable {
                let report = catalog.purge_dropped(Purge::all()).await.unwrap();
                prop_assert!(report.tables.iter().all(|t| t.ident != "live".into()), "{report:?}");
            }
            world.ask("live").await?;
            if purge {
                match catalog.purge_table("live").await {
                    Ok(_) => prop_assert_eq!(catalog.table_status("live").await.unwrap(), TableState::Absent),
                    Err(Error::TableNotDropped { .. } | Error::Conflict { .. }) => {}
                    Err(e) => prop_assert!(false, "{e:?}"),
                }
            } else {
                match catalog.undrop_table("live").await {
                    Ok(_) | Err(Error::TableNotDropped { .. }) => prop_assert!(world.ask("live").await?),
                    // The lease of whoever says that it is creating the table.
                    Err(Error::Conflict { .. }) => {}
                    Err(e) => prop_assert!(false, "{e:?}"),
                }
            }
            // The drop beside it may have been purged with all.
            let after = world.objects().await;
            let only = |objects: &BTreeMap<String, Bytes>| {
                objects.iter().filter(|(p, _)| !p.starts_with("root/dropped."))
                    .map(|(p, c)| (p.clone(), c.clone())).collect::<BTreeMap<_, _>>()
            };
            World::assert_others_untouched("live", &only(&before), &only(&after))
        })?;
    }

    /// Claims on a drop: who decided what is told by type, or it is left alone.
    #[test]
    fn any_bytes_as_claims(
        contents in vec(content(prepared().1), 1..4), action in 0..4, ordered in any::<bool>()
    ) {
        runtime().block_on(async {
            let drop_id = prepared().1;
            let world = World::new(ordered).await;
            for (generation, content) in contents.iter().enumerate() {
                let name = match generation {
                    0 => format!("dropped.deleted.{drop_id}.claim"),
                    n => format!("dropped.deleted.{drop_id}.claim.{n}"),
                };
                world.plant(&name, content).await;
            }
            let before = world.objects().await;
            prop_assert!(!world.ask("dropped").await?);
            let catalog = &world.catalog;
            let failed = match action {
                0 => catalog.undrop_table("dropped").await.map(drop).err(),
                1 => catalog.purge_table("dropped").await.map(drop).err(),
                2 => catalog.drop_table("dropped").await.map(drop).err(),
                _ => {
                    catalog.reconcile(false).await.unwrap();
                    None
                }
            };
            if let Some(error) = failed {
                prop_assert!(matches!(
                    error.kind(),
                    ErrorKind::CorruptMetadata
                        | ErrorKind::RestoreInProgress
                        | ErrorKind::PurgeInProgress
                        | ErrorKind::Conflict
                        | ErrorKind::TableNotFound
                        | ErrorKind::TableNotDropped
                ), "{error:?}");
            }
            if catalog.table_status("dropped").await.unwrap() != TableState::Absent {
                world.ask("dropped").await?;
            }
            world.settle("dropped", &before).await
        })?;
    }

    /// Lance's marker, its version hint, and what is staged or litter beside its manifests.
    #[test]
    fn any_bytes_inside_a_table(
        content in content(prepared().1),
        name in prop_oneof![
            Just(".lance-deregistered".to_string()),
            Just(".lance-reserved".to_string()),
            Just("_versions/latest_version_hint.json".to_string()),
            "_versions/[0-9]{1,20}\\.manifest-[0-9a-f]{8}",
            "_versions/[a-z.]{1,12}",
            "(data|_refs/tags|_transactions|tree)/[a-z.]{1,12}",
        ],
        hint in option::of(any::<u64>()),
        ordered in any::<bool>(),
    ) {
        runtime().block_on(async {
            let world = World::new(ordered).await;
            let content = match hint {
                Some(version) => format!(r#"{{"version":{version}}}"#).into_bytes(),
                None => content,
            };
            world.plant(&format!("live.lance/{name}"), &content).await;
            let before = world.objects().await;
            let catalog = &world.catalog;
            world.ask("live").await?;
            catalog.reconcile(false).await.unwrap();
            if !world.ask("live").await? {
                prop_assert_eq!(name.as_str(), ".lance-deregistered");
                catalog.undrop_table("live").await.unwrap();
            }
            prop_assert!(world.ask("live").await?, "not as it was");
            let versions = catalog.list_versions("live").await.unwrap();
            prop_assert_eq!(versions.len(), 1);
            catalog.drop_table("live").await.unwrap();
            prop_assert!(!world.ask("live").await?);
            catalog.purge_table("live").await.unwrap();
            prop_assert_eq!(catalog.table_status("live").await.unwrap(), TableState::Absent);
            let left = world.objects().await;
            prop_assert!(left.keys().all(|path| !path.starts_with("root/live.")));
            world.settle("live", &before).await
        })?;
    }

    /// Whatever else is in the root stays there, unless it is a record of ours whose drop is over.
    #[test]
    fn any_names_in_the_root(
        names in vec((child_name(), vec(any::<u8>(), 0..20)), 1..6), ordered in any::<bool>()
    ) {
        runtime().block_on(async {
            let world = World::new(ordered).await;
            for (name, content) in &names {
                world.plant(name, content).await;
            }
            let before = world.objects().await;
            let catalog = &world.catalog;
            let listed = catalog.table_names().await.unwrap();
            let mut paged: Vec<String> =
                catalog.list_tables().limit(2).stream().try_collect().await.unwrap();
            paged.sort();
            prop_assert_eq!(&paged, &listed);
            for (name, _) in &names {
                let _ = catalog.table_status(name.as_str()).await;
                let _ = catalog.open_table(name.as_str()).await;
            }
            catalog.list_dropped_tables().await.unwrap();
            catalog.reconcile(true).await.unwrap();
            prop_assert_eq!(&world.objects().await, &before);
            catalog.reconcile(false).await.unwrap();
            catalog.purge_dropped(Purge::expired()).await.unwrap();
            let after = world.objects().await;
            let marker = |path: &str| path.ends_with("/.lance-deregistered");
            for (path, content) in &before {
                let now = after.get(path);
                prop_assert!(
                    now == Some(content) || (now.is_none() && is_litter(path)) || marker(path),
                    "{path} is {now:?}"
                );
            }
            for path in after.keys() {
                prop_assert!(before.contains_key(path) || marker(path), "{path} is new");
            }
            // What was planted may stand for a tombstone of theirs, never for one of this.
            if names.iter().all(|(name, _)| !name.starts_with("beside.")) {
                let beside = catalog.open_table("beside").await.unwrap();
                prop_assert_eq!(ids(&beside).await, rows_of("beside"));
            }
            Ok(())
        })?;
    }

    /// A token is one that a listing returned, or it is refused; it shows nothing that is hidden.
    #[test]
    fn any_page_token(
        text in prop_oneof![any::<String>(), "[0-9a-f]{0,60}"],
        page in option::of(any::<String>()),
        size in 0_usize..1100,
        after in prop_oneof![any::<String>(), "(beside|dropped|live)(\\.lance/?)?"],
        forged in any::<bool>(),
        ordered in any::<bool>(),
    ) {
        runtime().block_on(async {
            let world = World::new(ordered).await;
            let page = page.map(|page| serde_json::json!(page));
            let json = match page {
                Some(page) => format!(r#"{{"page":{page},"size":{size},"after":{}}}"#, serde_json::json!(after)),
                None => format!(r#"{{"size":{size},"after":{}}}"#, serde_json::json!(after)),
            };
            let token = match forged {
                true => json.bytes().map(|b| format!("{b:02x}")).collect(),
                false => text,
            };
            match world.catalog.list_tables().limit(1).page_token(&token).await {
                Ok(page) => {
                    prop_assert!(forged);
                    prop_assert!(page.tables.len() <= 1);
                    let allowed = |name: &String| name == "beside" || name == "live";
                    prop_assert!(page.tables.iter().all(allowed), "{page:?}");
                    let is_after = |name: &String| format!("{name}.lance/") > after;
                    prop_assert!(page.tables.iter().all(is_after), "{page:?}");
                }
                // The store refuses what is not its own.
                Err(Error::Storage { .. }) => prop_assert!(forged && token.starts_with("7b2270")),
                Err(e) => prop_assert_eq!(e.kind(), ErrorKind::InvalidInput, "{}", e),
            }
            Ok::<_, TestCaseError>(())
        })?;
    }
}
