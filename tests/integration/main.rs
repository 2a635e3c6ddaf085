//! One binary for all integration tests; a module a topic.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout
)]

#[path = "../support/mod.rs"]
mod support;

mod bad_input;
mod bounded;
mod cases;
mod children;
mod common;
mod crashes;
mod data;
mod interleavings;
mod killed;
mod lifecycle;
mod long_runs;
mod managed;
mod namespace;
mod properties;
mod races;
mod reconcile;
mod requests;
mod schedules;
mod stores;
mod teeth;
