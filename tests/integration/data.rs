//! What a table can be made from, what of Lance's options and history passes through the catalog, and what the
//! builders are to a caller.

use std::collections::HashMap;
use std::sync::Arc;

use futures::{TryStreamExt, stream};
use lancekeep::arrow::array::{
    Array, ArrayRef, BooleanArray, DictionaryArray, FixedSizeListArray, Int32Array, RecordBatch,
    RecordBatchIterator, RecordBatchReader, StringArray, StructArray,
};
use lancekeep::arrow::compute::concat_batches;
use lancekeep::arrow::datatypes::{DataType, Field, Float32Type, Int32Type, SchemaRef};
use lancekeep::lance::dataset::{Dataset, WriteParams};
use lancekeep::lance::deps::datafusion::error::DataFusionError;
use lancekeep::lance::deps::datafusion::execution::SendableRecordBatchStream;
use lancekeep::lance::deps::datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use lancekeep::uuid::Uuid;
use lancekeep::{Catalog, CreateMode, Error, Purge, TableData, TableState};

use crate::common::{ids, local, rows, table_ids};
use crate::support::{Actor, SharedMemory};

/// A catalog with the default leases: nothing here may need one to run out.
async fn catalog_for(actor: &Actor) -> Catalog {
    Catalog::builder("memory://root")
        .session(actor.session.clone())
        .build()
        .await
        .unwrap()
}

async fn in_memory() -> (SharedMemory, Actor, Catalog) {
    let memory = SharedMemory::new();
    let actor = memory.actor();
    let catalog = catalog_for(&actor).await;
    (memory, actor, catalog)
}

fn reader_of(batch: RecordBatch) -> impl RecordBatchReader + Send + 'static {
    let schema = batch.schema();
    RecordBatchIterator::new([Ok(batch)], schema)
}

fn stream_of(
    schema: SchemaRef,
    items: Vec<Result<RecordBatch, DataFusionError>>,
) -> SendableRecordBatchStream {
    Box::pin(RecordBatchStreamAdapter::new(schema, stream::iter(items)))
}

/// Rows of another schema than [`rows`].
fn names(names: &[&str]) -> RecordBatch {
    let names: ArrayRef = Arc::new(StringArray::from(names.to_vec()));
    RecordBatch::try_from_iter([("name", names)]).unwrap()
}

fn columns(dataset: &Dataset) -> Vec<&str> {
    let fields = &dataset.schema().fields;
    fields.iter().map(|field| field.name.as_str()).collect()
}

/// All rows, in the order in which they were written.
async fn all_rows(dataset: &Dataset) -> RecordBatch {
    let batches: Vec<RecordBatch> = dataset
        .scan()
        .try_into_stream()
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    concat_batches(&batches[0].schema(), &batches).unwrap()
}

async fn versions(dataset: &Dataset) -> Vec<u64> {
    let versions = dataset.versions().await.unwrap();
    versions.iter().map(|version| version.version).collect()
}

/// A table of five rows from each kind of source.
fn sources() -> Vec<(&'static str, TableData)> {
    let halves = || vec![rows(0..2), rows(2..5)];
    let boxed: Box<dyn RecordBatchReader + Send> = Box::new(reader_of(rows(0..5)));
    let items = halves().into_iter().map(Ok).collect();
    vec![
        ("a batch", rows(0..5).into()),
        ("batches", halves().into()),
        ("a boxed reader", boxed.into()),
        ("a reader", TableData::reader(reader_of(rows(0..5)))),
        ("a stream", stream_of(rows(0..1).schema(), items).into()),
    ]
}

async fn from_every_source(catalog: &Catalog) {
    let five: Vec<i32> = (0..5).collect();
    for (what, data) in sources() {
        let name = what.replace(' ', "_");
        let created = catalog.create_table(&name, data).await.unwrap();
        assert_eq!(created.version().version, 1, "{what}");
        assert_eq!(ids(&created).await, five, "{what}");
        assert_eq!(columns(&created), ["id"], "{what}");
        assert_eq!(table_ids(catalog, &name).await, five, "{what}");
    }
    // Over a dropped name, and over a live one.
    for (what, data) in sources() {
        let name = format!("over_{}", what.replace(' ', "_"));
        catalog.create_table(&name, rows(9..10)).await.unwrap();
        catalog.drop_table(&name).await.unwrap();
        let revived = catalog.create_table(&name, data).await.unwrap();
        assert_eq!(revived.version().version, 2, "{what}");
        assert_eq!(table_ids(catalog, &name).await, five, "{what}");
    }
    for (what, data) in sources() {
        let name = format!("over_{}", what.replace(' ', "_"));
        catalog
            .create_table(&name, rows(9..10))
            .mode(CreateMode::Overwrite)
            .await
            .unwrap();
        let over = catalog.create_table(&name, data);
        let over = over.mode(CreateMode::Overwrite).await.unwrap();
        assert_eq!(over.version().version, 4, "{what}");
        assert_eq!(table_ids(catalog, &name).await, five, "{what}");
    }
}

#[tokio::test]
async fn rows_come_from_every_kind_of_source_in_memory() {
    let (_memory, _actor, catalog) = in_memory().await;
    from_every_source(&catalog).await;
}

#[tokio::test]
async fn rows_come_from_every_kind_of_source_on_local_disk() {
    let (_dir, catalog) = local().await;
    from_every_source(&catalog).await;
}

#[tokio::test]
async fn batches_of_differing_schemas_are_invalid_and_change_nothing() {
    let (memory, _actor, catalog) = in_memory().await;
    let mixed = || vec![rows(0..1), names(&["a"])];
    let error = catalog.create_table("t", mixed()).await.unwrap_err();
    assert!(matches!(error, Error::InvalidInput { .. }), "{error:?}");
    assert_eq!(memory.dump().await, Vec::<String>::new());

    catalog.create_table("t", rows(0..3)).await.unwrap();
    let before = memory.dump().await;
    let over = catalog.create_table("t", mixed());
    let error = over.mode(CreateMode::Overwrite).await.unwrap_err();
    assert!(matches!(error, Error::InvalidInput { .. }), "{error:?}");
    assert_eq!(memory.dump().await, before);
    assert_eq!(table_ids(&catalog, "t").await, [0, 1, 2]);

    let dropped = catalog.drop_table("t").await.unwrap();
    let before = memory.dump().await;
    let error = catalog.create_table("t", mixed()).await.unwrap_err();
    assert!(matches!(error, Error::InvalidInput { .. }), "{error:?}");
    assert_eq!(memory.dump().await, before);
    let undone = catalog.undrop_table("t").await.unwrap();
    assert_eq!(undone.drop_id, dropped.drop_id);
    assert_eq!(table_ids(&catalog, "t").await, [0, 1, 2]);
}

#[tokio::test]
async fn no_batch_at_all_is_invalid_before_any_request() {
    let (_memory, actor, catalog) = in_memory().await;
    for state in ["absent", "live", "dropped"] {
        match state {
            "live" => drop(catalog.create_table("t", rows(0..3)).await.unwrap()),
            "dropped" => drop(catalog.drop_table("t").await.unwrap()),
            _ => {}
        }
        for mode in [
            CreateMode::Create,
            CreateMode::ExistOk,
            CreateMode::Overwrite,
        ] {
            actor.counter.reset();
            let create = catalog.create_table("t", Vec::<RecordBatch>::new());
            let error = create.mode(mode).await.unwrap_err();
            let at = format!("{state}, {mode:?}: {error:?}");
            assert!(matches!(error, Error::InvalidInput { .. }), "{at}");
            assert_eq!(actor.counter.total(), 0, "{at}");
        }
    }
}

#[tokio::test]
async fn a_stream_that_fails_makes_no_table() {
    let (_memory, _actor, catalog) = in_memory().await;
    let failing = || {
        let failure = DataFusionError::Execution("source failed".to_string());
        stream_of(rows(0..1).schema(), vec![Ok(rows(0..2)), Err(failure)])
    };
    let error = catalog.create_table("t", failing()).await.unwrap_err();
    assert!(error.to_string().contains("source failed"), "{error}");
    let missing = catalog.open_table("t").await.unwrap_err();
    assert!(
        matches!(missing, Error::TableNotFound { .. }),
        "{missing:?}"
    );
    catalog.create_table("t", rows(0..3)).await.unwrap();
    let over = catalog.create_table("t", failing());
    let error = over.mode(CreateMode::Overwrite).await.unwrap_err();
    assert!(error.to_string().contains("source failed"), "{error}");
    assert_eq!(table_ids(&catalog, "t").await, [0, 1, 2]);
}

async fn empty_and_append(catalog: &Catalog) {
    let schema = rows(0..1).schema();
    let mut table = catalog
        .create_table("t", TableData::empty(schema))
        .await
        .unwrap();
    assert_eq!(table.count_rows(None).await.unwrap(), 0);
    assert_eq!(columns(&table), ["id"]);
    let live = TableState::Live { version: 1 };
    assert_eq!(catalog.table_status("t").await.unwrap(), live);
    let opened = catalog.open_table("t").await.unwrap();
    assert_eq!(opened.count_rows(None).await.unwrap(), 0);

    table.append(reader_of(rows(0..3)), None).await.unwrap();
    assert_eq!(table_ids(catalog, "t").await, [0, 1, 2]);
    catalog.drop_table("t").await.unwrap();
    catalog.undrop_table("t").await.unwrap();
    assert_eq!(table_ids(catalog, "t").await, [0, 1, 2]);

    catalog.drop_table("t").await.unwrap();
    let empty = TableData::empty(names(&["a"]).schema());
    let revived = catalog.create_table("t", empty).await.unwrap();
    assert_eq!(revived.count_rows(None).await.unwrap(), 0);
    assert_eq!(columns(&revived), ["name"]);
    let before = catalog.open_table("t").version(2).await.unwrap();
    assert_eq!(ids(&before).await, [0, 1, 2]);
}

#[tokio::test]
async fn an_empty_table_can_be_appended_to_in_memory() {
    let (_memory, _actor, catalog) = in_memory().await;
    empty_and_append(&catalog).await;
}

#[tokio::test]
async fn an_empty_table_can_be_appended_to_on_local_disk() {
    let (_dir, catalog) = local().await;
    empty_and_append(&catalog).await;
}

/// Strings with nulls, vectors, a struct in a struct, a dictionary.
fn typed() -> RecordBatch {
    let names: ArrayRef = Arc::new(StringArray::from(vec![
        Some("a"),
        None,
        Some("ü"),
        Some(""),
    ]));
    let vectors = (0..4_u8).map(|n| Some([Some(f32::from(n)), Some(0.5)]));
    let vectors: ArrayRef =
        Arc::new(FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(vectors, 2));
    let flags: ArrayRef = Arc::new(BooleanArray::from(vec![
        Some(true),
        None,
        Some(false),
        Some(true),
    ]));
    let flag = Arc::new(Field::new("flag", DataType::Boolean, true));
    let inner: ArrayRef = Arc::new(StructArray::from(vec![(flag, flags)]));
    let inner_field = Arc::new(Field::new("inner", inner.data_type().clone(), false));
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None, Some(3), Some(-4)]));
    let number_field = Arc::new(Field::new("number", DataType::Int32, true));
    let outer: ArrayRef = Arc::new(StructArray::from(vec![
        (number_field, numbers),
        (inner_field, inner),
    ]));
    let kinds: DictionaryArray<Int32Type> = ["x", "y", "x", "x"].into_iter().collect();
    let kinds: ArrayRef = Arc::new(kinds);
    RecordBatch::try_from_iter_with_nullable([
        ("name", names, true),
        ("vector", vectors, true),
        ("outer", outer, false),
        ("kind", kinds, false),
    ])
    .unwrap()
}

async fn assert_typed(dataset: &Dataset, at: &str) {
    let expected = typed();
    let found = all_rows(dataset).await;
    assert_eq!(found.num_rows(), expected.num_rows(), "{at}");
    assert_eq!(found.num_columns(), expected.num_columns(), "{at}");
    for (field, column) in expected.schema().fields().iter().zip(expected.columns()) {
        let name = field.name();
        let read = found.column_by_name(name).unwrap();
        assert_eq!(read.data_type(), column.data_type(), "{at}: {name}");
        assert_eq!(read, column, "{at}: {name}");
    }
}

async fn types_round_trip(catalog: &Catalog) {
    let created = catalog.create_table("t", typed()).await.unwrap();
    assert_typed(&created, "created").await;
    catalog.drop_table("t").await.unwrap();
    catalog.undrop_table("t").await.unwrap();
    let opened = catalog.open_table("t").await.unwrap();
    assert_typed(&opened, "undropped").await;

    catalog.create_table("u", rows(0..3)).await.unwrap();
    catalog.drop_table("u").await.unwrap();
    let revived = catalog.create_table("u", typed()).await.unwrap();
    assert_typed(&revived, "revived").await;
    let opened = catalog.open_table("u").await.unwrap();
    assert_typed(&opened, "revived and opened").await;
}

#[tokio::test]
async fn data_types_round_trip_in_memory() {
    let (_memory, _actor, catalog) = in_memory().await;
    types_round_trip(&catalog).await;
}

#[tokio::test]
async fn data_types_round_trip_on_local_disk() {
    let (_dir, catalog) = local().await;
    types_round_trip(&catalog).await;
}

#[tokio::test]
async fn max_rows_per_file_passes_through() {
    let (_memory, _actor, catalog) = in_memory().await;
    let small = || WriteParams {
        max_rows_per_file: 2,
        ..Default::default()
    };
    let one = catalog.create_table("one", rows(0..5)).await.unwrap();
    assert_eq!(one.count_fragments(), 1);
    let create = catalog.create_table("t", rows(0..5));
    let created = create.write_params(small()).await.unwrap();
    assert_eq!(created.count_fragments(), 3);
    catalog.drop_table("t").await.unwrap();
    let revive = catalog.create_table("t", rows(10..17));
    let revived = revive.write_params(small()).await.unwrap();
    assert_eq!(revived.count_fragments(), 4);
    assert_eq!(table_ids(&catalog, "t").await, (10..17).collect::<Vec<_>>());
}

#[tokio::test]
async fn the_storage_version_passes_through() {
    let (_memory, _actor, catalog) = in_memory().await;
    let storage = |dataset: &Dataset| dataset.manifest().data_storage_format.version.to_string();
    let of_version = |version: &str| WriteParams {
        data_storage_version: Some(version.parse().unwrap()),
        ..Default::default()
    };
    let default = catalog.create_table("default", rows(0..3)).await.unwrap();
    assert!(!["2.0", "2.1"].contains(&storage(&default).as_str()));
    let create = catalog.create_table("t", rows(0..3));
    let created = create.write_params(of_version("2.0")).await.unwrap();
    assert_eq!(storage(&created), "2.0");
    let opened = catalog.open_table("t").await.unwrap();
    assert_eq!(storage(&opened), "2.0");
    assert_eq!(ids(&opened).await, [0, 1, 2]);

    catalog.drop_table("t").await.unwrap();
    let revive = catalog.create_table("t", rows(3..5));
    let revived = revive.write_params(of_version("2.1")).await.unwrap();
    assert_eq!(storage(&revived), "2.1");
    assert_eq!(table_ids(&catalog, "t").await, [3, 4]);
    let before = catalog.open_table("t").version(1).await.unwrap();
    assert_eq!(storage(&before), "2.0");
    assert_eq!(ids(&before).await, [0, 1, 2]);
}

#[tokio::test]
async fn stable_row_ids_pass_through_and_stay() {
    let (_memory, _actor, catalog) = in_memory().await;
    let plain = catalog.create_table("plain", rows(0..3)).await.unwrap();
    assert!(!plain.manifest().uses_stable_row_ids());
    let params = WriteParams {
        enable_stable_row_ids: true,
        ..Default::default()
    };
    let create = catalog.create_table("t", rows(0..3));
    let created = create.write_params(params).await.unwrap();
    assert!(created.manifest().uses_stable_row_ids());
    // They are the table's, not the write's.
    catalog.drop_table("t").await.unwrap();
    let revived = catalog.create_table("t", rows(3..5)).await.unwrap();
    assert!(revived.manifest().uses_stable_row_ids());
    let opened = catalog.open_table("t").await.unwrap();
    assert!(opened.manifest().uses_stable_row_ids());
    assert_eq!(ids(&opened).await, [3, 4]);
}

/// The names of the table's manifests.
async fn manifests(memory: &SharedMemory) -> Vec<String> {
    let dump = memory.dump().await;
    dump.iter()
        .filter_map(|path| path.strip_prefix("root/t.lance/_versions/"))
        .map(str::to_string)
        .collect()
}

#[tokio::test]
async fn a_table_with_old_manifest_names_lives_like_any_other() {
    let (memory, _actor, catalog) = in_memory().await;
    let params = WriteParams {
        enable_v2_manifest_paths: false,
        ..Default::default()
    };
    let create = catalog.create_table("t", rows(0..3));
    create.write_params(params).await.unwrap();
    assert_eq!(manifests(&memory).await, ["1.manifest"]);
    let over = catalog.create_table("t", rows(3..5));
    over.mode(CreateMode::Overwrite).await.unwrap();
    assert_eq!(manifests(&memory).await, ["1.manifest", "2.manifest"]);

    let dropped = catalog.drop_table("t").await.unwrap();
    assert_eq!(dropped.version, Some(2));
    let hidden = catalog.open_table("t").version(1).await.unwrap_err();
    assert!(matches!(hidden, Error::TableDropped { .. }), "{hidden:?}");
    catalog.undrop_table("t").await.unwrap();
    assert_eq!(table_ids(&catalog, "t").await, [3, 4]);

    catalog.drop_table("t").await.unwrap();
    let revived = catalog.create_table("t", rows(7..9)).await.unwrap();
    assert_eq!(revived.version().version, 3);
    let all = ["1.manifest", "2.manifest", "3.manifest"];
    assert_eq!(manifests(&memory).await, all);
    let live = TableState::Live { version: 3 };
    assert_eq!(catalog.table_status("t").await.unwrap(), live);
    let fresh = catalog_for(&memory.actor()).await;
    for reader in [&catalog, &fresh] {
        assert_eq!(table_ids(reader, "t").await, [7, 8]);
        for (version, expected) in [(1, vec![0, 1, 2]), (2, vec![3, 4]), (3, vec![7, 8])] {
            let old = reader.open_table("t").version(version).await.unwrap();
            assert_eq!(old.version().version, version);
            assert_eq!(ids(&old).await, expected);
        }
        let missing = reader.open_table("t").version(9).await.unwrap_err();
        assert!(
            matches!(missing, Error::VersionNotFound { .. }),
            "{missing:?}"
        );
    }

    catalog.drop_table("t").await.unwrap();
    assert!(catalog.purge_table("t").await.unwrap().objects > 0);
    assert_eq!(memory.dump().await, Vec::<String>::new());
    // The next table of that name has its own names, and nothing of the old one.
    catalog.create_table("t", rows(0..1)).await.unwrap();
    assert_eq!(
        manifests(&memory).await,
        [format!("{}.manifest", u64::MAX - 1)]
    );
    assert_eq!(table_ids(&catalog, "t").await, [0]);
}

#[tokio::test]
async fn transaction_properties_pass_through() {
    let (memory, _actor, catalog) = in_memory().await;
    let by = |who: &str| WriteParams {
        transaction_properties: Some(Arc::new(HashMap::from([(
            "by".to_string(),
            who.to_string(),
        )]))),
        ..Default::default()
    };
    let create = catalog.create_table("t", rows(0..1));
    create.write_params(by("create")).await.unwrap();
    let over = catalog.create_table("t", rows(1..2));
    let over = over.mode(CreateMode::Overwrite);
    over.write_params(by("overwrite")).await.unwrap();
    catalog.drop_table("t").await.unwrap();
    let revive = catalog.create_table("t", rows(2..3));
    revive.write_params(by("revive")).await.unwrap();

    let reader = catalog_for(&memory.actor()).await;
    for (version, who) in [(1, "create"), (2, "overwrite"), (3, "revive")] {
        let dataset = reader.open_table("t").version(version).await.unwrap();
        let transaction = dataset.read_transaction().await.unwrap().unwrap();
        let properties = transaction.transaction_properties.unwrap();
        assert_eq!(properties["by"], who, "version {version}");
    }
}

async fn history_of_a_revive(catalog: &Catalog) {
    let first = catalog.create_table("t", rows(0..3)).await.unwrap();
    first.tags().create("before", 1u64).await.unwrap();
    let over = catalog.create_table("t", rows(3..5));
    over.mode(CreateMode::Overwrite).await.unwrap();
    let dropped = catalog.drop_table("t").await.unwrap();
    // Hidden in every version.
    for hidden in [
        catalog.open_table("t").tag("before").await,
        catalog.open_table("t").tag("none").await,
        catalog.open_table("t").version(1).await,
        catalog.open_table("t").version(9).await,
        catalog.open_table("t").await,
    ] {
        let error = hidden.unwrap_err();
        assert!(
            matches!(&error, Error::TableDropped { dropped: d } if d.drop_id == dropped.drop_id),
            "{error:?}"
        );
    }

    let revived = catalog.create_table("t", names(&["a", "b"])).await.unwrap();
    assert_eq!(columns(&revived), ["name"]);
    for table in [revived, catalog.open_table("t").await.unwrap()] {
        assert_eq!(table.version().version, 3);
        assert_eq!(columns(&table), ["name"]);
        let found = all_rows(&table).await;
        assert_eq!(found.columns(), names(&["a", "b"]).columns());
        assert_eq!(versions(&table).await, [1, 2, 3]);
        let tags = table.tags().list().await.unwrap();
        assert_eq!(tags.keys().collect::<Vec<_>>(), ["before"]);
    }
    for (old, version, expected) in [
        (
            catalog.open_table("t").tag("before").await,
            1,
            vec![0, 1, 2],
        ),
        (catalog.open_table("t").version(1).await, 1, vec![0, 1, 2]),
        (catalog.open_table("t").version(2).await, 2, vec![3, 4]),
    ] {
        let old = old.unwrap();
        assert_eq!(old.version().version, version);
        assert_eq!(columns(&old), ["id"]);
        assert_eq!(ids(&old).await, expected);
    }
}

#[tokio::test]
async fn a_revive_with_another_schema_keeps_the_history_in_memory() {
    let (_memory, _actor, catalog) = in_memory().await;
    history_of_a_revive(&catalog).await;
}

#[tokio::test]
async fn a_revive_with_another_schema_keeps_the_history_on_local_disk() {
    let (_dir, catalog) = local().await;
    history_of_a_revive(&catalog).await;
}

#[tokio::test]
async fn an_undrop_brings_versions_and_tags_back() {
    let (memory, _actor, catalog) = in_memory().await;
    let first = catalog.create_table("t", rows(0..3)).await.unwrap();
    first.tags().create("before", 1u64).await.unwrap();
    let over = catalog.create_table("t", rows(3..5));
    over.mode(CreateMode::Overwrite).await.unwrap();
    let before = memory.dump().await;
    catalog.drop_table("t").await.unwrap();
    assert_ne!(memory.dump().await, before);
    catalog.undrop_table("t").await.unwrap();
    assert_eq!(memory.dump().await, before);
    let table = catalog.open_table("t").await.unwrap();
    assert_eq!(ids(&table).await, [3, 4]);
    assert_eq!(versions(&table).await, [1, 2]);
    let tagged = catalog.open_table("t").tag("before").await.unwrap();
    assert_eq!(ids(&tagged).await, [0, 1, 2]);
}

#[tokio::test]
async fn the_id_of_a_drop_that_is_over_undoes_and_purges_nothing() {
    let (memory, actor, catalog) = in_memory().await;
    catalog.create_table("t", rows(0..3)).await.unwrap();
    let first = catalog.drop_table("t").await.unwrap();
    catalog.undrop_table("t").await.unwrap();
    let second = catalog.drop_table("t").await.unwrap();
    assert_ne!(first.drop_id, second.drop_id);
    let before = memory.dump().await;
    actor.counter.reset();
    for stale in [first.drop_id, Uuid::new_v4(), Uuid::nil()] {
        let purge = || catalog.purge_table("t").drop_id(stale);
        for error in [
            catalog.undrop_table("t").drop_id(stale).await.map(drop),
            purge().await.map(drop),
            purge().dry_run().await.map(drop),
        ] {
            let error = error.unwrap_err();
            assert!(matches!(error, Error::TableNotFound { .. }), "{error:?}");
        }
    }
    assert_eq!(actor.counter.writes(), 0);
    assert_eq!(memory.dump().await, before);
    let listed = catalog.list_dropped_tables().await.unwrap();
    let listed: Vec<Uuid> = listed.iter().map(|d| d.drop_id).collect();
    assert_eq!(listed, [second.drop_id]);

    let undrop = catalog.undrop_table("t").drop_id(second.drop_id);
    assert_eq!(undrop.await.unwrap().drop_id, second.drop_id);
    assert_eq!(table_ids(&catalog, "t").await, [0, 1, 2]);
    // Of a live table no id is right.
    let undrop = catalog.undrop_table("t").drop_id(second.drop_id);
    let error = undrop.await.unwrap_err();
    assert!(matches!(error, Error::TableNotDropped { .. }), "{error:?}");
    let purge = catalog.purge_table("t").drop_id(second.drop_id);
    let error = purge.await.unwrap_err();
    assert!(matches!(error, Error::TableNotDropped { .. }), "{error:?}");

    let third = catalog.drop_table("t").await.unwrap();
    let measured = catalog.purge_table("t").drop_id(third.drop_id).dry_run();
    let measured = measured.await.unwrap();
    let purged = catalog.purge_table("t").drop_id(third.drop_id);
    assert_eq!(purged.await.unwrap(), measured);
    assert_eq!(memory.dump().await, Vec::<String>::new());
}

/// A revive that loses its commit would re-issue the drop; one that commits ends it, and its id with it.
#[tokio::test]
async fn the_id_of_a_drop_that_was_revived_is_over() {
    let (_memory, _actor, catalog) = in_memory().await;
    catalog.create_table("t", rows(0..3)).await.unwrap();
    let first = catalog.drop_table("t").await.unwrap();
    catalog.create_table("t", rows(3..5)).await.unwrap();
    let second = catalog.drop_table("t").await.unwrap();
    assert_eq!(second.version, Some(2));
    let purge = catalog.purge_table("t").drop_id(first.drop_id);
    let error = purge.await.unwrap_err();
    assert!(matches!(error, Error::TableNotFound { .. }), "{error:?}");
    let undrop = catalog.undrop_table("t").drop_id(second.drop_id);
    undrop.await.unwrap();
    assert_eq!(table_ids(&catalog, "t").await, [3, 4]);
}

/// What a service does with a catalog; it compiles or it does not.
fn fits_into_a_service(catalog: &Catalog) {
    fn shared<T: Clone + Send + Sync + 'static>(_: &T) {}
    fn send(_: impl Send) {}
    fn owned(_: impl Send + 'static) {}
    shared(catalog);
    owned(catalog.create_table("t", rows(0..1)));
    owned(catalog.create_table("t", rows(0..1)).into_future());
    owned(catalog.open_table("t").into_future());
    owned(catalog.list_tables().into_future());
    owned(catalog.list_tables().stream());
    owned(catalog.drop_table("t").into_future());
    owned(catalog.drop_table("t").if_exists().into_future());
    owned(catalog.undrop_table("t").into_future());
    owned(catalog.purge_table("t").into_future());
    owned(Catalog::connect("memory://root"));
    send(catalog.declare_table("t"));
    send(catalog.table_names());
    send(catalog.table_status("t"));
    send(catalog.table_exists("t"));
    send(catalog.drop_all_tables());
    send(catalog.list_dropped_tables());
    send(catalog.purge_dropped(Purge::expired()));
    send(catalog.reconcile(true));
}

#[tokio::test]
async fn nothing_happens_before_it_is_awaited() {
    let (memory, actor, catalog) = in_memory().await;
    actor.counter.reset();
    fits_into_a_service(&catalog);
    tokio::task::yield_now().await;
    assert_eq!(actor.counter.total(), 0);
    assert_eq!(memory.dump().await, Vec::<String>::new());
}

/// Every builder, awaited as it is and as a future on a task of its own.
#[tokio::test]
async fn builders_are_awaited_or_sent_elsewhere() {
    let (_memory, _actor, catalog) = in_memory().await;
    catalog.create_table("a", rows(0..1)).await.unwrap();
    let create = catalog.create_table("b", rows(0..2)).into_future();
    tokio::spawn(create).await.unwrap().unwrap();

    assert_eq!(ids(&catalog.open_table("a").await.unwrap()).await, [0]);
    let open = catalog.open_table("b").into_future();
    let opened = tokio::spawn(open).await.unwrap().unwrap();
    assert_eq!(ids(&opened).await, [0, 1]);

    assert_eq!(catalog.list_tables().await.unwrap().tables, ["a", "b"]);
    let page = tokio::spawn(catalog.list_tables().limit(1).into_future());
    let page = page.await.unwrap().unwrap();
    assert_eq!(page.tables, ["a"]);
    let stream = catalog.list_tables().stream();
    let streamed = tokio::spawn(stream.try_collect::<Vec<String>>());
    assert_eq!(streamed.await.unwrap().unwrap(), ["a", "b"]);

    let drop_a = catalog.drop_table("a").await.unwrap();
    let drop_b = tokio::spawn(catalog.drop_table("b").into_future());
    let drop_b = drop_b.await.unwrap().unwrap();
    let again = catalog.drop_table("a").if_exists().await.unwrap();
    assert_eq!(again, None);
    let again = tokio::spawn(catalog.drop_table("b").if_exists().into_future());
    assert_eq!(again.await.unwrap().unwrap(), None);

    let undone = catalog.undrop_table("a").await.unwrap();
    assert_eq!(undone.drop_id, drop_a.drop_id);
    let purge = tokio::spawn(catalog.purge_table("b").into_future());
    assert_eq!(purge.await.unwrap().unwrap().drop_id, drop_b.drop_id);
    catalog.drop_table("a").await.unwrap();
    let undrop = tokio::spawn(catalog.undrop_table("a").into_future());
    undrop.await.unwrap().unwrap();
    catalog.drop_table("a").await.unwrap();
    catalog.purge_table("a").await.unwrap();
    assert_eq!(catalog.table_names().await.unwrap(), Vec::<String>::new());
}
