//! What goes wrong at a server is told as what it is: never as "not found", and never with a storage option in it.

use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use lance_namespace::ErrorCode;
use lancekeep::{Catalog, CreateMode, Error, ErrorKind, NamespaceIdent, Purge};
use tokio::time::error::Elapsed;

use super::Place;
use crate::common::rows;
use crate::namespace::calls::{Answer, answer};
use crate::namespace::operations::{Operation, operations};
use crate::support::servers::{Protocol, Server};

/// For one operation on a store that fails, the client's own repetitions included.
const PATIENCE: Duration = Duration::from_secs(60);

/// A root with a table `t`, a dropped one `d`, a table `n.t`, and a namespace `e`.
async fn filled(place: &Place) {
    let catalog = place.catalog().await;
    catalog.create_table("t", rows(0..3)).await.unwrap();
    catalog.create_table("d", rows(3..5)).await.unwrap();
    catalog.drop_table("d").await.unwrap();
    catalog.create_namespace("n").await.unwrap();
    catalog.create_namespace("e").await.unwrap();
    catalog.create_table(["n", "t"], rows(5..9)).await.unwrap();
    let (live, dropped) = (catalog.table_names(), catalog.list_dropped_tables());
    assert_eq!(live.await.unwrap(), ["t"]);
    assert_eq!(dropped.await.unwrap().len(), 1);
}

/// The catalog of a process that knows nothing yet, and gives up early.
async fn hasty(place: &Place) -> Catalog {
    place
        .builder()
        .storage_option("client_max_retries", "1")
        .build()
        .await
        .unwrap()
}

/// All that an error says, with its causes.
fn texts(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = format!("{error} {error:?} {error:#?}");
    let mut next = error.source();
    while let Some(cause) = next {
        text += &format!(" {cause} {cause:?} {cause:#?}");
        next = cause.source();
    }
    text
}

type Outcome = (&'static str, Result<Result<(), Error>, Elapsed>);

async fn outcome(what: &'static str, call: BoxFuture<'_, Result<(), Error>>) -> Outcome {
    (what, tokio::time::timeout(PATIENCE, call).await)
}

/// Each call by a catalog of its own, and all together, because what fails for good often waits first.
macro_rules! outcomes {
    ($catalog:ident on $place:ident; $($what:literal: $call:expr;)*) => {
        join_all([$(outcome($what, Box::pin(async {
            let $catalog = hasty($place).await;
            $call.await.map(drop)
        }))),*]).await
    };
}

/// Everything that a catalog does fails as the store does, and tells whether to try again.
async fn all_fail(place: &Place, retryable: bool) {
    let child = ["n", "t"];
    let root = NamespaceIdent::root();
    let outcomes = outcomes! { catalog on place;
        "status": catalog.table_status("t");
        "status of nothing": catalog.table_status("none");
        "exists": catalog.table_exists("t");
        "exists of nothing": catalog.table_exists("none");
        "open": catalog.open_table("t");
        "open nothing": catalog.open_table("none");
        "open a version": catalog.open_table("t").version(1);
        "open a tag": catalog.open_table("t").tag("first");
        "names": catalog.table_names();
        "list": catalog.list_tables();
        "a page": catalog.list_tables().limit(1);
        "written ones": catalog.list_tables().include_declared(false);
        "list the dropped": catalog.list_dropped_tables();
        "versions": catalog.list_versions("t");
        "latest version": catalog.latest_version("t");
        "create": catalog.create_table("n", rows(0..1));
        "create what is there": catalog.create_table("t", rows(0..1));
        "create where needed": catalog.create_table("t", rows(0..1)).mode(CreateMode::ExistOk);
        "overwrite": catalog.create_table("t", rows(0..1)).mode(CreateMode::Overwrite);
        "revive": catalog.create_table("d", rows(0..1));
        "declare": catalog.declare_table("n");
        "drop": catalog.drop_table("t");
        "drop if there": catalog.drop_table("t").if_exists();
        "drop all": catalog.drop_all_tables();
        "deregister": catalog.deregister_table("t");
        "register": catalog.register_table("d", "d.lance");
        "undrop": catalog.undrop_table("d");
        "purge": catalog.purge_table("d");
        "measure": catalog.purge_dropped(Purge::all().dry_run());
        "purge all": catalog.purge_dropped(Purge::all());
        "reconcile": catalog.reconcile(false);
        "look": catalog.reconcile(true);

        "child status": catalog.table_status(child);
        "child exists": catalog.table_exists(child);
        "open a child": catalog.open_table(child);
        "list children": catalog.list_tables().namespace("n");
        "create a child": catalog.create_table(["n", "u"], rows(0..1));
        "declare a child": catalog.declare_table(["n", "u"]);
        "drop a child": catalog.drop_table(child);
        "drop a child if there": catalog.drop_table(child).if_exists();
        "deregister a child": catalog.deregister_table(child);
        "register a child": catalog.register_table(["n", "u"], "x");
        "namespaces": catalog.list_namespaces(&root);
        "namespaces inside": catalog.list_namespaces("n");
        "describe": catalog.describe_namespace("n");
        "namespace exists": catalog.namespace_exists("n");
        "make": catalog.create_namespace("m");
        "make inside": catalog.create_namespace(["n", "m"]);
        "unmake": catalog.drop_namespace("e");
        "unmake if there": catalog.drop_namespace("e").if_exists();
    };
    let mut wrong = Vec::new();
    for (what, outcome) in outcomes {
        match outcome {
            Ok(Err(error)) => {
                check_text(what, &error, place);
                let told = (error.kind(), error.is_retryable());
                if told != (ErrorKind::Storage, retryable) {
                    wrong.push(format!("{what}: {told:?}: {error:?}"));
                }
            }
            Ok(Ok(())) => wrong.push(format!("{what}: success")),
            Err(_) => wrong.push(format!("{what}: no end")),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[track_caller]
fn check_text(what: &str, error: &Error, place: &Place) {
    let text = texts(error);
    for (key, value) in &place.options {
        // Flags and names are no secrets, and would be everywhere.
        let kept = value.len() >= 4 && !matches!(value.as_str(), "true" | "false");
        assert!(
            !kept || !text.contains(value.as_str()),
            "{what}: {key} in {text}"
        );
    }
}

/// Whoever asks through the trait is not told either that something is not there.
async fn all_refused_by_the_trait(place: &Place) {
    let missing = [
        ErrorCode::TableNotFound,
        ErrorCode::NamespaceNotFound,
        ErrorCode::TableVersionNotFound,
        ErrorCode::TableTagNotFound,
    ];
    let mut wrong = Vec::new();
    let all = operations();
    let ask = async |o: &Operation| o.on(&hasty(place).await, &["t"]).await;
    let results = all.iter().map(async |o| (o, ask(o).await));
    for (operation, result) in join_all(results).await {
        if let Answer::Refused(code) = answer(&result)
            && missing.contains(&code)
        {
            wrong.push((operation.name, result.err().map(|e| e.to_string())));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The credentials are wrong.
async fn refused(protocol: Protocol) {
    let server = Server::start(protocol);
    let place = Place::on(&server);
    filled(&place).await;
    let names = place.names().await;
    let place = Place::at(place.uri.clone(), server.wrong_options());
    all_fail(&place, false).await;
    all_refused_by_the_trait(&place).await;
    if protocol == Protocol::Azure {
        let good = Place::at(place.uri.clone(), server.options());
        assert_eq!(good.names().await, names);
    }
}

/// The bucket or container is not there.
async fn missing(protocol: Protocol) {
    let server = Server::shared(protocol);
    let uri = format!("{}/root", server.uri_of("lancekeep-nowhere"));
    let place = Place::at(uri, server.options());
    all_fail(&place, false).await;
    all_refused_by_the_trait(&place).await;
}

/// Nobody is there to answer any more.
async fn stopped(protocol: Protocol) {
    let mut server = Server::start(protocol);
    let place = Place::on(&server);
    filled(&place).await;
    assert!(hasty(&place).await.table_exists("t").await.unwrap());
    server.stop();
    all_fail(&place, true).await;
    all_refused_by_the_trait(&place).await;
}

macro_rules! on_servers {
    ($($test:ident: $on_s3:ident, $on_azure:ident;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $on_s3() {
                $test(Protocol::S3).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $on_azure() {
                $test(Protocol::Azure).await;
            }
        )*
    };
}

on_servers! {
    refused: wrong_credentials_on_s3, wrong_credentials_on_azure;
    missing: a_missing_bucket_on_s3, a_missing_container_on_azure;
    stopped: a_stopped_server_on_s3, a_stopped_server_on_azure;
}
