//! Object stores for tests and benches: shared memory below, one decorator a file above it, and servers behind HTTP.
//!
//! Each consumer includes this with `mod support;` or `#[path = "…"] mod support;` and uses a part of it.

#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    unused_imports,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used
)]

pub mod counting;
pub mod faults;
pub mod gate;
pub mod latency;
pub mod paged;
pub mod provider;
pub mod request;
pub mod servers;
pub mod store_clock;
pub mod witness;

pub use counting::{Counter, CountingStore};
pub use faults::{Fault, FaultStore, Faults, When};
pub use gate::{Gate, GateStore};
pub use latency::LatencyStore;
pub use paged::{PagedStore, Pages};
pub use provider::{Actor, SharedMemory, Snapshot, session};
pub use request::{Kind, PAGE, Request};
pub use store_clock::{ClockedStore, StoreClock};
pub use witness::{Footprint, Sent, Trace, WitnessStore};
