//! Case 18 below the root: storage options reach `__manifest` and every child table, and are told to nobody.

use std::io::Write;
use std::sync::{Arc, Mutex};

use lance_namespace::LanceNamespace;
use lance_namespace::models::DescribeTableRequest;
use lancekeep::lance::session::Session;
use lancekeep::lance_io::object_store::ObjectStoreRegistry;
use lancekeep::{Catalog, CreateMode, Error, ErrorKind, NamespaceIdent};
use object_store::path::Path;
use object_store::{GetOptions, ObjectStore};

use super::leak::{Leak, LeakyProvider, SECRET, TOKEN};
use super::{Place, make};
use crate::common::rows;
use crate::support::SharedMemory;

const OPTIONS: [(&str, &str); 2] = [("secret_access_key", SECRET), ("session_token", TOKEN)];
const REDACTED: &str = "[storage option]";

/// A catalog with secret options, over a store that leaks them when told to. Short leases: what a refused create left
/// is waited for.
async fn leaky(memory: &SharedMemory, leak: &Leak) -> Catalog {
    let registry = ObjectStoreRegistry::default();
    let provider = LeakyProvider {
        stack: memory.raw(),
        leak: leak.clone(),
    };
    registry.insert("memory", Arc::new(provider));
    let session = Session::new(16 << 20, 16 << 20, Arc::new(registry));
    Catalog::builder("memory://root")
        .session(Arc::new(session))
        .storage_options(OPTIONS)
        .leases(crate::common::LEASE, crate::common::LEASE)
        .build()
        .await
        .unwrap()
}

/// All that an error says, with its causes.
fn texts(error: &Error) -> String {
    let mut text = format!("{error} {error:?} {error:#?}");
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        text += &format!(" {cause} {cause:?} {cause:#?}");
        next = cause.source();
    }
    text
}

#[track_caller]
fn assert_no_secret(what: &str, text: &str) {
    assert!(!text.contains("sentinel"), "{what}: {text}");
}

/// Everything that can be done below the root.
async fn everything(catalog: &Catalog) {
    catalog
        .create_namespace("a")
        .property("k", "v")
        .await
        .unwrap();
    make(catalog, &[&["a", "b"]]).await;
    let t = ["a", "t"];
    catalog.create_table(t, rows(0..3)).await.unwrap();
    let over = catalog.create_table(t, rows(3..5));
    over.mode(CreateMode::Overwrite).await.unwrap();
    catalog.declare_table(["a", "d"]).await.unwrap();
    catalog.create_table(["a", "d"], rows(0..1)).await.unwrap();
    catalog.list_tables().namespace("a").await.unwrap();
    let strict = catalog.list_tables().namespace("a");
    strict.include_declared(false).await.unwrap();
    catalog.list_namespaces("a").await.unwrap();
    catalog.open_table(t).version(1).await.unwrap();
    let location = catalog.deregister_table(t).await.unwrap();
    catalog.register_table(t, location.as_str()).await.unwrap();
    catalog.drop_table(["a", "d"]).await.unwrap();
    catalog.drop_namespace(["a", "b"]).await.unwrap();
    catalog.reconcile(false).await.unwrap();
}

#[tokio::test]
async fn lancedb_353_storage_options_reach_the_manifest_and_every_child() {
    let (memory, leak) = (SharedMemory::new(), Leak::default());
    let catalog = leaky(&memory, &leak).await;
    everything(&catalog).await;
    let opened = catalog.open_table(["a", "t"]).await.unwrap();
    let created = catalog.create_table(["a", "u"], rows(0..1)).await.unwrap();
    for dataset in [opened, created] {
        let options = dataset.initial_storage_options().unwrap();
        for (key, value) in OPTIONS {
            assert_eq!(options.get(key).map(String::as_str), Some(value));
        }
    }
    // A store without them would be another one: each that was asked for has them.
    let made = leak.made.lock().unwrap().clone();
    assert!(!made.is_empty());
    for (base, options) in &made {
        for (key, value) in OPTIONS {
            let found = options.get(key).map(String::as_str);
            assert_eq!(found, Some(value), "a store for {base} without {key}");
        }
    }
    // Nothing of them is kept.
    for path in memory.dump().await {
        let found = memory
            .raw()
            .get_opts(&Path::parse(&path).unwrap(), GetOptions::default())
            .await
            .unwrap();
        let content = found.bytes().await.unwrap();
        assert_no_secret(&path, &String::from_utf8_lossy(&content));
    }
}

#[tokio::test]
async fn lancedb_353_storage_options_reach_children_on_local_disk() {
    let place = Place::on_disk();
    let catalog = Catalog::builder(place.uri()).storage_options(OPTIONS);
    let catalog = catalog.build().await.unwrap();
    everything(&catalog).await;
    let opened = catalog.open_table(["a", "t"]).await.unwrap();
    let options = opened.initial_storage_options().unwrap();
    for (key, value) in OPTIONS {
        assert_eq!(options.get(key).map(String::as_str), Some(value));
    }
}

#[tokio::test]
async fn lance_5996_no_storage_option_is_in_debug_output_of_children() {
    let (memory, leak) = (SharedMemory::new(), Leak::default());
    let catalog = leaky(&memory, &leak).await;
    everything(&catalog).await;
    let t = ["a", "t"];
    let namespace = catalog.create_namespace("a").property("k", "v");
    for (what, text) in [
        ("catalog", format!("{catalog:?} {catalog:#?}")),
        ("create namespace", format!("{namespace:?} {namespace:#?}")),
        (
            "exist ok",
            format!("{:?}", catalog.create_namespace("a").exist_ok()),
        ),
        (
            "drop namespace",
            format!("{:?}", catalog.drop_namespace("a")),
        ),
        (
            "drop namespace if exists",
            format!("{:?}", catalog.drop_namespace("a").if_exists()),
        ),
        (
            "list",
            format!("{:?}", catalog.list_tables().namespace("a")),
        ),
        ("open", format!("{:?}", catalog.open_table(t))),
        ("drop", format!("{:?}", catalog.drop_table(t))),
        (
            "create",
            format!("{:?}", catalog.create_table(t, rows(0..1))),
        ),
    ] {
        assert_no_secret(what, &text);
        assert!(text.contains("memory://root"), "{what}: {text}");
    }
    let described = catalog.describe_namespace("a").await.unwrap();
    assert_no_secret("namespace", &format!("{described:?}"));
    let dropped = catalog.drop_table(t).await.unwrap();
    assert_no_secret("dropped", &format!("{dropped:?}"));
    // Nor does a describe through the trait hand them out.
    catalog.create_table(t, rows(0..1)).await.unwrap();
    let mut request = DescribeTableRequest::new();
    request.id = Some(t.map(str::to_string).to_vec());
    request.vend_credentials = Some(true);
    let described = LanceNamespace::describe_table(&catalog, request).await;
    assert_no_secret("describe", &format!("{:?}", described.unwrap()));
}

async fn errors(catalog: &Catalog) -> Vec<(&'static str, Error)> {
    let t = ["a", "t"];
    let root = NamespaceIdent::root();
    let list = || catalog.list_tables().namespace("a");
    let outcomes = [
        ("status", catalog.table_status(t).await.map(drop)),
        ("open", catalog.open_table(t).await.map(drop)),
        ("version", catalog.open_table(t).version(1).await.map(drop)),
        ("list", list().await.map(drop)),
        (
            "list strictly",
            list().include_declared(false).await.map(drop),
        ),
        ("namespaces", catalog.list_namespaces(&root).await.map(drop)),
        ("inside", catalog.list_namespaces("a").await.map(drop)),
        ("describe", catalog.describe_namespace("a").await.map(drop)),
        ("there", catalog.namespace_exists("a").await.map(drop)),
        (
            "create",
            catalog.create_table(["a", "n"], rows(0..1)).await.map(drop),
        ),
        (
            "overwrite",
            catalog
                .create_table(t, rows(0..1))
                .mode(CreateMode::Overwrite)
                .await
                .map(drop),
        ),
        (
            "materialise",
            catalog.create_table(["a", "d"], rows(0..1)).await.map(drop),
        ),
        ("declare", catalog.declare_table(["a", "n"]).await.map(drop)),
        (
            "register",
            catalog.register_table(["a", "n"], "x").await.map(drop),
        ),
        ("deregister", catalog.deregister_table(t).await.map(drop)),
        ("drop", catalog.drop_table(t).await.map(drop)),
        ("make", catalog.create_namespace("n").await.map(drop)),
        (
            "make inside",
            catalog.create_namespace(["a", "n"]).await.map(drop),
        ),
        ("unmake", catalog.drop_namespace(["a", "b"]).await.map(drop)),
    ];
    outcomes
        .into_iter()
        .filter_map(|(what, outcome)| Some((what, outcome.err()?)))
        .collect()
}

/// A root with a child table, a declared one, and an empty namespace.
async fn filled(memory: &SharedMemory) {
    let catalog = Place::Memory(memory.clone()).catalog().await;
    make(&catalog, &[&["a"], &["a", "b"]]).await;
    catalog.create_table(["a", "t"], rows(0..3)).await.unwrap();
    catalog.declare_table(["a", "d"]).await.unwrap();
}

#[tokio::test]
async fn lance_5996_no_storage_option_is_in_errors_of_children() {
    let start = SharedMemory::new();
    filled(&start).await;
    // Everything, and each kind of object by itself.
    for refused in [
        "",
        "__manifest",
        "__manifest/_versions",
        "__manifest/data",
        "_a$t",
        "_a$n",
        "_a$d",
        "/data/",
        "/_versions",
    ] {
        let (memory, leak) = (start.fork().await, Leak::default());
        let catalog = leaky(&memory, &leak).await;
        leak.refuse(refused);
        let errors = errors(&catalog).await;
        assert!(!errors.is_empty(), "{refused:?} refuses nothing");
        let mut redacted = 0;
        for (what, error) in &errors {
            let text = texts(error);
            assert_no_secret(&format!("{what}, {refused:?}"), &text);
            redacted += usize::from(text.contains(REDACTED));
        }
        if refused.is_empty() {
            assert_eq!(errors.len(), 19);
            for (what, error) in &errors {
                let kind = error.kind();
                let failed = matches!(kind, ErrorKind::Storage | ErrorKind::Unsupported);
                assert!(failed, "{what}: {error:?}");
            }
        }
        // The store's words did get through.
        assert!(redacted > 0, "{refused:?}: {errors:?}");
        leak.stop();
        assert!(catalog.namespace_exists("a").await.unwrap());
    }
}

/// Log lines of this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn lance_5996_no_storage_option_is_in_the_log_of_children() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::FmtSubscriber::builder()
        .with_env_filter(tracing_subscriber::EnvFilter::new("lancekeep=trace"))
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);

    let (memory, leak) = (SharedMemory::new(), Leak::default());
    let catalog = leaky(&memory, &leak).await;
    everything(&catalog).await;
    for refused in ["", "__manifest", "_a$", ".lance-reserved", "$.deleted"] {
        leak.refuse(refused);
        errors(&catalog).await;
        leak.stop();
    }
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert_no_secret("the log", &text);
}
