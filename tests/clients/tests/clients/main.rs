//! Real clients over a `lancekeep::Catalog`, directly and served over REST; a module a client.

mod common;
mod datafusion;
mod lancedb;
mod python;
mod rest;
