//! Any location in a row of the namespace manifest, which any client may write.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures::TryStreamExt;
use lancekeep::arrow::array::{ArrayRef, RecordBatch, RecordBatchIterator, StringArray};
use lancekeep::lance::dataset::builder::DatasetBuilder;
use lancekeep::lance::dataset::{Dataset, WriteMode, WriteParams};
use lancekeep::lance_namespace::LanceNamespace;
use lancekeep::lance_namespace::models::ListTablesRequest;
use lancekeep::{DropOutcome, ErrorKind, Purge};
use proptest::option;
use proptest::prelude::{Just, Strategy, any};
use proptest::{prop_assert, prop_assert_eq, prop_oneof, proptest};

use super::{Checked, ROWS, World, made, one_of, rows_of, runtime};
use crate::common::{catalog_of, ids, rows};
use crate::support::{Actor, SharedMemory};

const MANIFEST: &str = "memory://root/__manifest";

/// The root of the other properties with a table in a namespace, and where that is.
fn prepared() -> &'static (SharedMemory, String) {
    static PREPARED: OnceLock<(SharedMemory, String)> = OnceLock::new();
    PREPARED.get_or_init(|| {
        let memory = super::prepared().0.clone();
        made(async {
            let memory = memory.fork().await;
            let catalog = catalog_of(&memory.actor()).await;
            catalog.create_namespace("ns").await.unwrap();
            catalog
                .create_table(["ns", "t"], rows(10..13))
                .await
                .unwrap();
            let location = memory
                .dump()
                .await
                .iter()
                .filter_map(|path| path.split('/').nth(1))
                .find(|dir| dir.ends_with("_ns$t"))
                .unwrap()
                .to_string();
            (memory, location)
        })
    })
}

/// Adds a row like that of `ns$t`, for `ns$bad` at the location.
async fn add_row(actor: &Actor, location: Option<&str>) {
    let manifest = DatasetBuilder::from_uri(MANIFEST)
        .with_session(actor.session.clone())
        .load()
        .await
        .unwrap();
    let mut scanner = manifest.scan();
    scanner.filter("object_id = 'ns$t'").unwrap();
    let found: Vec<RecordBatch> = scanner
        .try_into_stream()
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    let found = &found[0];
    let schema = found.schema();
    let columns = schema.fields().iter().map(|field| {
        let column = found.column_by_name(field.name()).unwrap();
        match field.name().as_str() {
            "object_id" => Arc::new(StringArray::from(vec!["ns$bad"])) as ArrayRef,
            "location" => Arc::new(StringArray::from(vec![location])) as ArrayRef,
            _ => column.clone(),
        }
    });
    let row = RecordBatch::try_new(schema.clone(), columns.collect()).unwrap();
    let params = WriteParams {
        mode: WriteMode::Append,
        session: Some(actor.session.clone()),
        ..Default::default()
    };
    let reader = RecordBatchIterator::new([Ok(row.clone())], row.schema());
    Dataset::write(reader, MANIFEST, Some(params))
        .await
        .unwrap();
}

fn location() -> impl Strategy<Value = Option<String>> {
    let own = prepared().1.clone();
    let text = prop_oneof![
        Just(own.clone()),
        Just(format!("/{own}/")),
        Just(format!("{own}/data")),
        Just(format!("memory://root/{own}")),
        "(beside|live)\\.lance(/data|/_versions)?|__manifest(/data|/_versions)?",
        "(\\./|/|//|\\.\\./|\\.\\./root/|memory://(root|other)/|x/\\.\\./|s3://b/)?(beside|live|dropped|__manifest|x)(%2E|\\.)?(lance|deleted|\\.)?(/|/data|/_versions|/\\.\\.)?",
        "[./%$]{0,4}",
        any::<String>(),
    ];
    option::weighted(0.95, text)
}

proptest! {
    #![proptest_config(one_of(16))]

    #[test]
    fn any_location_in_the_manifest(location in location(), ordered in any::<bool>(), deregister in any::<bool>()) {
        runtime().block_on(async {
            let memory = prepared().0.fork().await;
            let world = World::over(memory, ordered).await;
            add_row(&world.actor, location.as_deref()).await;
            let before = world.objects().await;
            let catalog = &world.catalog;
            let bad = ["ns", "bad"];

            let _ = catalog.open_table(bad).await;
            let _ = catalog.table_status(bad).await;
            let listed = catalog.list_tables().namespace("ns").await.unwrap().tables;
            prop_assert!(listed.contains(&"t".to_string()), "{listed:?}");
            // One bad row hides no other table from a walk over all.
            for include_declared in [true, false] {
                let mut request = ListTablesRequest::new();
                request.include_declared = Some(include_declared);
                let all = catalog.list_all_tables(request).await.unwrap().tables;
                prop_assert!(all.contains(&"ns$t".to_string()), "{all:?}");
            }
            catalog.reconcile(true).await.unwrap();
            let unchanged = |now: &BTreeMap<String, Bytes>| -> Checked {
                for (path, content) in &before {
                    if !path.starts_with("root/__manifest/") {
                        prop_assert_eq!(now.get(path), Some(content), "{}", path);
                    }
                }
                Ok(())
            };
            unchanged(&world.objects().await)?;
            catalog.reconcile(false).await.unwrap();
            catalog.purge_dropped(Purge::expired()).await.unwrap();
            // Nothing is stored there but what is others': a drop takes the row away at most.
            let gone = match deregister {
                true => catalog.deregister_table(bad).await.map(drop),
                false => catalog.drop_table(bad).await.map(|dropped| {
                    assert!(matches!(
                        dropped.outcome,
                        DropOutcome::Deregistered | DropOutcome::Deleted
                    ));
                }),
            };
            if let Err(e) = gone {
                let told = matches!(
                    e.kind(),
                    ErrorKind::CorruptMetadata | ErrorKind::InvalidIdent | ErrorKind::TableNotFound
                        | ErrorKind::InvalidInput | ErrorKind::Lance | ErrorKind::Unsupported
                );
                prop_assert!(told, "{e:?}");
            }
            unchanged(&world.objects().await)?;
            for (name, _) in ROWS.iter().filter(|(name, _)| *name != "dropped") {
                let table = catalog.open_table(*name).await.unwrap();
                prop_assert_eq!(ids(&table).await, rows_of(name));
            }
            let table = catalog.open_table(["ns", "t"]).await.unwrap();
            prop_assert_eq!(ids(&table).await, [10, 11, 12]);
            Ok(())
        })?;
    }
}

/// A row gives no right to delete what is another's, wherever it points.
#[test]
fn a_drop_deletes_nothing_of_others() {
    let within = format!("{}/data", prepared().1);
    for location in [
        "__manifest",
        "__manifest/data",
        "beside.lance",
        "beside.lance/data",
        "x/beside.lance",
        prepared().1.as_str(),
        within.as_str(),
    ] {
        runtime().block_on(async {
            let world = World::over(prepared().0.fork().await, true).await;
            add_row(&world.actor, Some(location)).await;
            let before = world.objects().await;
            let dropped = world.catalog.drop_table(["ns", "bad"]).await.unwrap();
            assert_eq!(dropped.outcome, DropOutcome::Deregistered, "{location}");
            let after = world.objects().await;
            assert!(
                before.keys().all(|path| after.contains_key(path)),
                "{location}"
            );
            let listed = world.catalog.list_tables().namespace("ns").await.unwrap();
            assert_eq!(listed.tables, ["t"], "{location}");
        });
    }
}

/// Nothing can be opened where a row leads nowhere; the others are listed all the same.
#[test]
fn a_row_that_leads_nowhere_hides_no_other() {
    for location in [None, Some(""), Some("a//b"), Some("../x")] {
        runtime().block_on(async {
            let world = World::over(prepared().0.fork().await, true).await;
            add_row(&world.actor, location).await;
            let mut request = ListTablesRequest::new();
            request.include_declared = Some(false);
            let all = world.catalog.list_all_tables(request).await.unwrap().tables;
            assert_eq!(all, ["beside", "live", "ns$t"], "{location:?}");
        });
    }
}
