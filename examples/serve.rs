//! Serves a catalog directory over the Lance REST namespace protocol, for clients in other languages.
//!
//! `cargo run --features rest --example serve -- ROOT [HOST] [PORT]`; loopback and a free port by default. It prints
//! the address, and Ctrl-C ends it after the requests under way.

#![allow(clippy::print_stdout)] // It is a program: printing is what it does.

use std::error::Error;
use std::sync::Arc;

use lancekeep::Catalog;
use lancekeep::rest::{RestAdapter, RestAdapterConfig};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let root = args.next().ok_or("usage: serve ROOT [HOST] [PORT]")?;
    let host = args.next().unwrap_or_else(|| "127.0.0.1".to_string());
    let port = args.next().map_or(Ok(0), |port| port.parse())?;

    let catalog = Catalog::connect(root).await?;
    println!("catalog {}", catalog.root_uri());
    let config = RestAdapterConfig {
        host: host.clone(),
        port,
    };
    let server = RestAdapter::new(Arc::new(catalog), config).start().await?;
    println!("serving on http://{host}:{}", server.port());

    tokio::signal::ctrl_c().await?;
    // It waits for the requests under way, so not on a thread that serves them.
    tokio::task::spawn_blocking(move || server.shutdown()).await?;
    println!("stopped");
    Ok(())
}
