//! An embeddable catalog for [Lance](https://lance.org) tables in a directory or a bucket, with a `drop` that can be
//! taken back.
//!
//! For Rust applications that keep Lance or LanceDB tables and want to create, list, open, drop, restore and purge
//! them safely from any number of processes, without running a service. A root is a directory or a bucket prefix;
//! its tables are the directories `<root>/<name>.lance`, readable by every stock Lance client. A directory of
//! tables that plain Lance or LanceDB wrote is a catalog already.
//!
//! # Quick start
//!
//! ```no_run
//! use arrow::array::{Int32Array, RecordBatch};
//! use lancekeep::{Catalog, Purge, arrow};
//! use std::sync::Arc;
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let catalog = Catalog::connect("/data/warehouse").await?;
//! let ids = Arc::new(Int32Array::from(vec![1, 2, 3])) as _;
//! catalog.create_table("users", RecordBatch::try_from_iter([("id", ids)])?).await?;
//!
//! let dropped = catalog.drop_table("users").reason("clean-up").await?; // hidden, and kept
//! println!("can be restored until {:?}", dropped.expires_at);
//!
//! catalog.undrop_table("users").await?;                                // back, as it was
//! let users = catalog.open_table("users").await?;                      // a Lance Dataset
//! assert_eq!(users.count_rows(None).await?, 3);
//!
//! catalog.drop_table("users").await?;
//! let report = catalog.purge_dropped(Purge::all()).await?;             // gone, for good
//! println!("{} bytes reclaimed", report.bytes());
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! On local disk, memory, and every object store on which Lance itself commits safely (S3, Google Cloud Storage,
//! Azure Blob Storage; with the crate's features `aws`, `gcp`, `azure`), for any number of processes:
//!
//! - **A drop loses nothing.** It writes two small objects and deletes none. Reads through handles opened before it
//!   go on until the table is purged.
//! - **A purge is final and alone.** Of concurrent restores and purges of one drop exactly one wins, and the others
//!   get a typed error that says who did. A table is never live while a purge of it is decided; after a successful undrop no
//!   purge of that drop deletes anything. A purge deletes nothing outside the table's own directory and records.
//! - **A create shows its own rows or none.** Over a dropped name the old rows are never visible, and stay in the
//!   history.
//! - **A crash is only a pause.** Whatever request was a process's last, the table is live, dropped or absent, never
//!   half of one, and whoever comes across it finishes what was decided. [`Catalog::reconcile`] does so for all.
//! - **An error says what happened.** A storage failure is never reported as "not found", bad names are refused
//!   before any request, and no value of a storage option is printed (but `true`, `false` and those under four
//!   characters).
//!
//! Clocks only decide *when*: how soon an expired drop may be purged (twice: by the catalog's clock and by the
//! store's own times), and how soon the work of a dead process is taken over. They never decide *whether* it is safe,
//! as long as no single request takes longer than half a lease to take effect (30 seconds for a restore, 7.5 minutes
//! for a purge; see [`CatalogBuilder::leases`](catalog::CatalogBuilder::leases)).
//!
//! # What is not guaranteed
//!
//! - A client that reads the directory itself (a native LanceDB connection, `Dataset::open` on the path) does not
//!   know tombstones: it goes on seeing and writing a dropped table, and what it commits is in the kept history, there
//!   after an undrop. Stock *namespace* clients see Lance's own marker and stop listing and opening the table.
//! - A writer that keeps a handle over a drop, a purge and another create of the same name can commit onto the new
//!   table, as with plain Lance; [managed versioning](catalog::CatalogBuilder::managed_versioning) refuses that.
//! - Handles opened before a purge fail when it deletes what they still need.
//! - The drop of a table in a namespace is immediate and final in this version; its
//!   [`outcome`](lifecycle::DroppedTable::outcome) says so, and a retention asked for it is refused.
//! - Stock clients that write to namespaces of the same root keep their own races: two that use a fresh root for the first
//!   time can lose one's first namespace, and a namespace dropped while something is created in it can vanish from above
//!   it ([`Catalog::reconcile`] puts it back).
//!
//! # Namespaces
//!
//! An id of two parts or more is a table in a namespace: `catalog.create_table(["ml", "features"], rows)`. Namespaces
//! have properties, nest to any depth, and are dropped when they are empty. What they hold, and where it is stored, is
//! recorded in `<root>/__manifest`, as stock namespace clients with a manifest do it, so these see the same; it comes
//! into being with the first namespace. The tables themselves are ordinary Lance tables below the root.
//!
//! On a root that such a client has been using, an id of one part is what the directory shows, `<name>.lance`, whatever
//! else the manifest says of it: most clients register their root tables there too, which changes nothing. A root table
//! registered at another place is not shown; [`Catalog::reconcile`] reports it, and
//! [`Catalog::register_table`] gives it an id in a namespace.
//!
//! # Managed versioning
//!
//! With [`managed_versioning`](catalog::CatalogBuilder::managed_versioning) the datasets that a catalog returns commit
//! through it, and so does every client that asks it for a table and follows the namespace protocol's
//! `managed_versioning` (`DatasetBuilder::from_namespace`, `Dataset::write_into_namespace`, LanceDB, over REST too). A
//! commit to a dropped table is refused, and so is one by a writer that read an earlier table of the name. A version is
//! still its manifest in the table's directory and nothing else, so every stock reader sees the same. An append through a
//! dataset that a catalog returned costs 2 requests and no round trip more than plain Lance's on an object store: the
//! tombstone and the marker, beside the listing with which Lance begins a commit (before it, so 1 round trip more, after a
//! pause of more than a quarter of the commit window). An overwrite asks for them and for the latest version right before
//! its manifest, 3 requests and 1 round trip; so does everything on local disk. See [`versions`] and [`manifest_store`] for
//! what it costs other clients, and what stays open for stock writers.
//!
//! # Map
//!
//! [`Catalog`] has every operation; [`catalog`] its builders and options; [`listing`] pages and streams; [`table`]
//! what creating, opening and asking for the state of a table take and give; [`lifecycle`] the protocol, and what
//! drops, purges and reconciliation report; [`versions`] a table's versions; [`manifest_store`] Lance's external manifest store on any namespace; [`ident`] names; [`error`] what each kind of error asks of the caller.
//! A catalog is a [`LanceNamespace`](lance_namespace::LanceNamespace) too, for clients that speak that trait, and with
//! the feature `rest` for those that speak its REST form. Public items say what they cost in requests where they cost any.

// In tests a panic is the right answer to a surprise.
#![cfg_attr(
    any(test, fuzzing),
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::print_stdout
    )
)]

pub mod catalog;
mod child;
pub mod error;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod ident;
pub mod lifecycle;
pub mod listing;
mod managed;
pub mod manifest_store;
mod root;
mod store;
pub mod versions;

/// What creating, opening and asking for the state of a table or namespace take and give.
pub mod table {
    pub use crate::child::namespaces::Namespace;
    pub use crate::root::create::{CreateMode, CreateTable};
    pub use crate::root::data::TableData;
    pub use crate::root::open::OpenTable;
    pub use crate::root::status::TableState;
}

/// Serving a catalog over the Lance REST namespace protocol, by the base's adapter: give it an `Arc` of a [`Catalog`].
#[cfg(feature = "rest")]
pub mod rest {
    pub use lance_namespace_impls::{RestAdapter, RestAdapterConfig, RestAdapterHandle};
}

pub use catalog::{Catalog, Purge};
pub use error::{Error, ErrorKind, Result};
pub use ident::{NamespaceIdent, TableIdent};
pub use lifecycle::{DropOutcome, DroppedTable};
pub use manifest_store::NamespaceExternalManifestStore;
pub use store::{Clock, SystemClock};
pub use table::{CreateMode, Namespace, TableData, TableState};
pub use versions::TableVersion;

pub use arrow;
pub use chrono;
pub use lance;
pub use lance_io;
pub use lance_namespace;
pub use object_store;
pub use uuid;

/// The README's code, compiled by the doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
