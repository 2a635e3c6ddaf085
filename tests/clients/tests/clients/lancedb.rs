//! LanceDB's Rust crate: a `Connection` whose database is a catalog.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use futures::TryStreamExt;
use lancedb::connection::NamespaceClientPushdownOperation as Pushdown;
use lancedb::database::CreateTableMode;
use lancedb::database::namespace::LanceNamespaceDatabase;
use lancedb::embeddings::MemoryRegistry;
use lancedb::index::Index;
use lancedb::query::{ExecutableQuery, QueryBase};
use lancedb::{Connection, Error, Table};
use lancekeep::arrow::array::{AsArray, RecordBatch};
use lancekeep::arrow::datatypes::Int32Type;
use lancekeep::lance::session::Session;
use lancekeep::lance_namespace::LanceNamespace;
use lancekeep::lance_namespace::models::{
    CreateNamespaceRequest, DeclareTableRequest, DescribeTableRequest, DropNamespaceRequest,
};
use lancekeep::{Catalog, TableState};

use crate::common::{deregister, id, local, managed, register, rows};

/// A LanceDB connection over this namespace client.
pub(crate) fn connection(
    client: Arc<dyn LanceNamespace>,
    pushed: impl IntoIterator<Item = Pushdown>,
) -> Connection {
    let database = LanceNamespaceDatabase::from_namespace_client(
        client,
        "lancekeep".to_string(),
        HashMap::new(),
        HashMap::new(),
        None,
        // One for all tables that come and go under a name, as in an application that runs for long (lancedb#3626).
        Some(Arc::new(Session::default())),
        pushed.into_iter().collect::<HashSet<_>>(),
    );
    Connection::new(Arc::new(database), Arc::new(MemoryRegistry::new()))
}

/// The ids of the batches in their order, with the names.
fn contents(batches: &[RecordBatch]) -> Vec<(i32, String)> {
    let mut found = Vec::new();
    for batch in batches {
        let ids = batch["id"].as_primitive::<Int32Type>().values();
        let names = batch["name"].as_string::<i32>().iter();
        found.extend(
            ids.iter()
                .copied()
                .zip(names.map(|n| n.unwrap().to_string())),
        );
    }
    found
}

async fn ids(query: impl ExecutableQuery) -> Vec<i32> {
    let batches: Vec<RecordBatch> = query.execute().await.unwrap().try_collect().await.unwrap();
    contents(&batches).into_iter().map(|(id, _)| id).collect()
}

/// All rows, by id.
async fn all(table: &Table) -> Vec<(i32, String)> {
    let stream = table.query().execute().await.unwrap();
    let batches: Vec<RecordBatch> = stream.try_collect().await.unwrap();
    let mut found = contents(&batches);
    found.sort();
    found
}

/// A LanceDB application and what it does its work with.
pub(crate) struct Application<'a> {
    pub(crate) db: &'a Connection,
    pub(crate) namespace: &'a [&'a str],
    /// Whether queries run on the catalog's side.
    pub(crate) pushed: bool,
}

impl Application<'_> {
    fn namespace(&self) -> Vec<String> {
        self.namespace.iter().map(ToString::to_string).collect()
    }

    async fn create(
        &self,
        name: &str,
        batch: RecordBatch,
        mode: CreateTableMode,
    ) -> Result<Table, Error> {
        let create = self.db.create_table(name, batch).mode(mode);
        create.namespace(self.namespace()).execute().await
    }

    async fn open(&self, name: &str) -> Result<Table, Error> {
        let open = self.db.open_table(name);
        open.namespace(self.namespace()).execute().await
    }

    async fn drop_table(&self, name: &str) -> Result<(), Error> {
        self.db.drop_table(name, &self.namespace()).await
    }

    async fn make_namespaces(&self) {
        for depth in 1..=self.namespace.len() {
            let mut request = CreateNamespaceRequest::new();
            request.id = id(&self.namespace[..depth]);
            request.properties = Some(HashMap::from([("owner".to_string(), "us".to_string())]));
            self.db.create_namespace(request).await.unwrap();
            let (parent, name) = (&self.namespace()[..depth - 1], self.namespace[depth - 1]);
            let listing = self.db.list_namespaces(parent, Default::default());
            let names: Vec<String> = listing.try_collect().await.unwrap();
            assert_eq!(names, [name]);
        }
    }

    async fn remove_namespaces(&self) {
        for depth in (1..=self.namespace.len()).rev() {
            let mut request = DropNamespaceRequest::new();
            request.id = id(&self.namespace[..depth]);
            self.db.drop_namespace(request).await.unwrap();
        }
    }

    /// Create, add, query, search, update, delete; the rows that are left.
    async fn work(&self) -> (Table, Vec<(i32, String)>) {
        let made = self.create("t", rows(0..6), CreateTableMode::Create).await;
        assert_eq!(made.unwrap().count_rows(None).await.unwrap(), 6);
        let again = self.create("t", rows(0..1), CreateTableMode::Create).await;
        assert!(
            matches!(again, Err(Error::TableAlreadyExists { .. })),
            "{again:?}"
        );

        let table = self.open("t").await.unwrap();
        table.add(rows(6..9)).execute().await.unwrap();
        assert_eq!(table.count_rows(None).await.unwrap(), 9);
        assert_eq!(ids(table.query().only_if("id >= 7")).await, [7, 8]);
        assert_eq!(ids(table.query().only_if("name = 'name 3'")).await, [3]);
        let near = || table.query().nearest_to(&[4.1, 0.0]).unwrap().limit(2);
        assert_eq!(ids(near()).await, [4, 5]);
        assert_eq!(ids(near().only_if("id <> 4")).await, [5, 3]);

        let index = table.create_index(&["id"], Index::BTree(Default::default()));
        index.execute().await.unwrap();
        assert_eq!(table.list_indices().await.unwrap().len(), 1);
        let update = table
            .update()
            .only_if("id = 2")
            .column("name", "'it''s two'");
        assert_eq!(update.execute().await.unwrap().rows_updated, 1);
        table.delete("id < 2 or id = 7").await.unwrap();
        let left = all(&table).await;
        let expected: Vec<(i32, String)> = [2, 3, 4, 5, 6, 8]
            .map(|i| {
                (
                    i,
                    if i == 2 {
                        "it's two".to_string()
                    } else {
                        format!("name {i}")
                    },
                )
            })
            .to_vec();
        assert_eq!(left, expected);
        (table, left)
    }

    /// Every name exactly once, in pages of LanceDB's two ways to ask.
    async fn pages(&self) {
        for i in 0..7 {
            let made = self
                .create(&format!("u{i}"), rows(0..1), CreateTableMode::Create)
                .await;
            made.unwrap();
        }
        let expected = ["t", "u0", "u1", "u2", "u3", "u4", "u5", "u6"];
        let mut names: Vec<String> = Vec::new();
        loop {
            let mut page = self.db.table_names().namespace(self.namespace()).limit(3);
            if let Some(last) = names.last() {
                page = page.start_after(last);
            }
            let page = page.execute().await.unwrap();
            assert!(page.len() <= 3);
            if page.is_empty() {
                break;
            }
            names.extend(page);
        }
        assert_eq!(names, expected);

        for size in [1, 3, 4, 8, 100] {
            let options = lancedb::listing::ListingOptions::default().page_limit(size);
            let listing = self.db.list_tables(&self.namespace(), options);
            let mut names: Vec<String> = listing.try_collect().await.unwrap();
            names.sort();
            assert_eq!(names, expected, "in pages of {size}");
        }
    }

    async fn names(&self) -> Vec<String> {
        let names = self.db.table_names().namespace(self.namespace());
        names.execute().await.unwrap()
    }

    /// A create that stopped between LanceDB's two steps, the declaration and the first write, is finished by the
    /// next one (lancedb#3288).
    async fn a_declared_table(&self, client: &dyn LanceNamespace) {
        let mut request = DeclareTableRequest::new();
        let parts: Vec<&str> = [self.namespace, &["declared"]].concat();
        request.id = id(&parts);
        client.declare_table(request).await.unwrap();
        let opened = self.open("declared").await;
        assert!(
            matches!(opened, Err(Error::TableNotFound { .. })),
            "{opened:?}"
        );
        let made = self
            .create("declared", rows(0..2), CreateTableMode::Create)
            .await;
        assert_eq!(ids(made.unwrap().query()).await, [0, 1]);
        let renamed = self
            .db
            .rename_table("declared", "other", &self.namespace(), &[])
            .await;
        let error = renamed.unwrap_err().to_string();
        assert!(
            error.contains("not supported") || error.contains("not implemented"),
            "{error}"
        );
    }

    /// After a drop of `t`: nobody finds it.
    async fn assert_gone(&self) {
        let opened = self.open("t").await;
        assert!(
            matches!(opened, Err(Error::TableNotFound { .. })),
            "{opened:?}"
        );
        let dropped = self.drop_table("t").await;
        assert!(
            matches!(dropped, Err(Error::TableNotFound { .. })),
            "{dropped:?}"
        );
        assert!(!self.names().await.contains(&"t".to_string()));
    }
}

/// The life of a root table: a drop is taken back through the catalog.
pub(crate) async fn life_at_the_root(app: &Application<'_>, catalog: &Catalog) {
    let (table, left) = app.work().await;
    app.pages().await;

    app.drop_table("t").await.unwrap();
    app.assert_gone().await;
    assert_eq!(app.names().await.len(), 7);
    if app.pushed {
        let error = table.query().execute().await.err().unwrap().to_string();
        assert!(error.contains("was dropped at"), "{error}");
    } else {
        // A handle that was opened before the drop reads on.
        assert_eq!(all(&table).await, left);
    }

    // LanceDB creates by declaring, which would bury what was dropped: refused in every mode, with the way out.
    let dropped = catalog.list_dropped_tables().await.unwrap();
    let modes = [
        CreateTableMode::Create,
        CreateTableMode::exist_ok(|open| open),
        CreateTableMode::Overwrite,
    ];
    for mode in modes {
        let error = app
            .create("t", rows(0..1), mode)
            .await
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("undrop_table restores it"), "{error}");
    }
    assert_eq!(catalog.list_dropped_tables().await.unwrap(), dropped);

    catalog.undrop_table("t").await.unwrap();
    let table = app.open("t").await.unwrap();
    assert_eq!(all(&table).await, left);
    assert_eq!(table.list_indices().await.unwrap().len(), 1);
    table.add(rows(20..21)).execute().await.unwrap();
    assert_eq!(table.count_rows(None).await.unwrap(), 7);
    assert_eq!(app.names().await.len(), 8);

    // After a purge the name is free, and nothing of the old table comes back.
    app.drop_table("t").await.unwrap();
    catalog.purge_table("t").await.unwrap();
    assert_eq!(catalog.table_status("t").await.unwrap(), TableState::Absent);
    app.create("t", rows(50..52), CreateTableMode::Create)
        .await
        .unwrap();
    assert_eq!(ids(app.open("t").await.unwrap().query()).await, [50, 51]);
    let table = app.open("t").await.unwrap();
    table.delete("id = 50").await.unwrap();
    assert_eq!(ids(table.query()).await, [51]);
    app.create("t", rows(60..61), CreateTableMode::Overwrite)
        .await
        .unwrap();
    assert_eq!(ids(app.open("t").await.unwrap().query()).await, [60]);
    app.a_declared_table(catalog).await;
    let there = app
        .create("t", rows(0..1), CreateTableMode::exist_ok(|open| open))
        .await;
    assert_eq!(ids(there.unwrap().query()).await, [60]);
}

/// The life of a table in a namespace: its drop is final, the way back is to deregister it instead.
pub(crate) async fn life_in_a_namespace(app: &Application<'_>, catalog: &Catalog) {
    let client: &dyn LanceNamespace = catalog;
    let parts: Vec<&str> = [app.namespace, &["t"]].concat();
    app.make_namespaces().await;
    let (_, left) = app.work().await;
    app.pages().await;

    let location = deregister(client, &parts).await;
    app.assert_gone().await;
    assert_eq!(app.names().await.len(), 7);
    register(client, &parts, &location).await;
    let table = app.open("t").await.unwrap();
    assert_eq!(all(&table).await, left);
    assert_eq!(table.list_indices().await.unwrap().len(), 1);
    table.add(rows(20..21)).execute().await.unwrap();
    assert_eq!(table.count_rows(None).await.unwrap(), 7);

    let mut request = DescribeTableRequest::new();
    request.id = id(&parts);
    let described = client.describe_table(request).await.unwrap();
    let directory = described.location.unwrap();
    let directory = Path::new(directory.trim_start_matches("file://"));
    assert!(directory.is_dir(), "{directory:?}");
    app.drop_table("t").await.unwrap();
    app.assert_gone().await;
    assert!(!directory.exists(), "{directory:?}");
    assert!(catalog.list_dropped_tables().await.unwrap().is_empty());

    app.create("t", rows(50..52), CreateTableMode::Create)
        .await
        .unwrap();
    assert_eq!(ids(app.open("t").await.unwrap().query()).await, [50, 51]);
    app.a_declared_table(client).await;
    app.db.drop_all_tables(&app.namespace()).await.unwrap();
    assert!(app.names().await.is_empty());
    app.remove_namespaces().await;
    assert!(catalog.table_names().await.unwrap().is_empty());
}

/// Both lives, each on a root of its own.
async fn lives_over(catalog: Catalog, pushed: &[Pushdown]) {
    let db = connection(Arc::new(catalog.clone()), pushed.iter().copied());
    let app = |namespace| Application {
        db: &db,
        namespace,
        pushed: pushed.contains(&Pushdown::QueryTable),
    };
    life_at_the_root(&app(&[]), &catalog).await;
    db.drop_all_tables(&[]).await.unwrap();
    assert_eq!(catalog.list_dropped_tables().await.unwrap().len(), 9);
    catalog
        .purge_dropped(lancekeep::Purge::all())
        .await
        .unwrap();
    life_in_a_namespace(&app(&["a", "b"]), &catalog).await;
}

async fn lives(pushed: &[Pushdown]) {
    let (_dir, catalog) = local().await;
    lives_over(catalog, pushed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lancedb_over_a_catalog() {
    lives(&[]).await;
}

/// LanceDB follows the flag: its commits go through the catalog.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lancedb_over_managed_versions() {
    let (_dir, catalog) = managed().await;
    lives_over(catalog, &[]).await;
}

/// LanceDB can have queries done by the namespace. (It names a second push-down, of creates, which version 0.41.0
/// never looks at: with it too a create declares the table and writes to its location.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lancedb_with_its_work_pushed_down() {
    lives(&[Pushdown::QueryTable, Pushdown::CreateTable]).await;
}

/// Two processes create one table: its rows are those of one of them, never of both.
///
/// A fault of Lance 14.0.2 on the way: `CommitBuilder::execute_inner` (`dataset/write/commit.rs`) commits a create over
/// a table that appeared after the create had looked, and LanceDB goes on to write when somebody else has declared
/// the table (`LanceNamespaceDatabase::create_table`). So both can be told that they made it; the first one's rows
/// are then in the history. `Catalog::create_table`, and the create of the namespace trait, do not do this.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn creates_through_lancedb_do_not_mix() {
    let (dir, one) = local().await;
    let other = Catalog::connect(dir.path().to_str().unwrap())
        .await
        .unwrap();
    let (one, other) = (
        connection(Arc::new(one), []),
        connection(Arc::new(other), []),
    );
    for namespace in [&[][..], &["a", "b"]] {
        let [one, other] = [&one, &other].map(|db| Application {
            db,
            namespace,
            pushed: false,
        });
        one.make_namespaces().await;
        for round in 0..10 {
            let name = format!("t{round}");
            let (first, second) = tokio::join!(
                one.create(&name, rows(0..1), CreateTableMode::Create),
                other.create(&name, rows(10..12), CreateTableMode::Create),
            );
            let table = one.open(&name).await.unwrap();
            let found = ids(table.query()).await;
            match (&first, &second) {
                (Ok(_), Err(e)) if lost(e) => assert_eq!(found, [0]),
                (Err(e), Ok(_)) if lost(e) => assert_eq!(found, [10, 11]),
                (Ok(_), Ok(_)) => {
                    assert!(found == [0] || found == [10, 11], "{found:?}");
                    table.checkout(1).await.unwrap();
                    let before = ids(table.query()).await;
                    assert!(
                        before != found && (before == [0] || before == [10, 11]),
                        "{before:?}"
                    );
                }
                failed => panic!("{failed:?}"),
            }
        }
    }
}

/// What LanceDB makes of a create that came second.
fn lost(error: &Error) -> bool {
    matches!(error, Error::TableAlreadyExists { .. })
}

/// Case 22: LanceDB writes to the locations that the catalog tells, so they must be right for every kind of root.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lancedb_2623_locations_in_roots_of_every_spelling() {
    for (directory, uri) in [
        ("plain", "{}/plain"),
        ("slash", "{}/slash/"),
        ("uri", "file://{}/uri"),
        ("with space", "{}/with space"),
        ("uri space", "file://{}/uri%20space"),
        ("50%", "{}/50%"),
        ("a%20b", "{}/a%20b"),
        ("größe", "{}/größe"),
    ] {
        let parent = tempfile::tempdir().unwrap();
        let beside = || {
            let entries = std::fs::read_dir(parent.path()).unwrap();
            let mut names: Vec<String> = entries
                .map(|e| e.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        let uri = uri.replace("{}", parent.path().to_str().unwrap());
        let catalog = Catalog::connect(&uri).await.unwrap();
        let client: &dyn LanceNamespace = &catalog;
        let db = connection(Arc::new(catalog.clone()), []);
        for namespace in [&[][..], &["a", "b"]] {
            let app = Application {
                db: &db,
                namespace,
                pushed: false,
            };
            app.make_namespaces().await;
            let made = app.create("t", rows(0..2), CreateTableMode::Create).await;
            made.unwrap().add(rows(2..4)).execute().await.unwrap();
            let parts: Vec<&str> = [namespace, &["t"]].concat();
            let location = deregister(client, &parts).await;
            app.assert_gone().await;
            register(client, &parts, &location).await;

            // A catalog that opens the root anew finds the rows there.
            let anew = Catalog::connect(&uri).await.unwrap();
            let anew = connection(Arc::new(anew), []);
            let app = Application { db: &anew, ..app };
            let opened = app.open("t").await.unwrap();
            assert_eq!(ids(opened.query()).await, [0, 1, 2, 3], "{uri}");
            let there = parent.path().join(directory).join(&location);
            assert!(there.is_dir(), "{uri}: {location}");
            app.drop_table("t").await.unwrap();
            app.assert_gone().await;

            // Nothing was written beside it.
            assert_eq!(beside(), [directory], "{uri}");
        }
        catalog.undrop_table("t").await.unwrap();
        let opened = db.open_table("t").execute().await.unwrap();
        assert_eq!(ids(opened.query()).await, [0, 1, 2, 3]);
    }
}
