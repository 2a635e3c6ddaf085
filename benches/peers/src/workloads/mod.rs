//! What is measured.

use crate::measure::Group;
use crate::sizes::Sizes;

pub(crate) mod changes;
pub(crate) mod children;
pub(crate) mod commits;
pub(crate) mod listing;
pub(crate) mod memory;
pub(crate) mod one;
pub(crate) mod versions;

/// In the order in which they are run; one may give several groups.
pub(crate) const NAMES: [&str; 8] = [
    "list", "list-s3", "one", "change", "commit", "version", "child", "memory",
];

pub(crate) async fn run(name: &str, sizes: &Sizes) -> Vec<Group> {
    match name {
        "list" => listing::all_and_pages(sizes).await,
        "list-s3" => listing::pages_on_server(sizes).await,
        "one" => one::all(sizes).await,
        "change" => changes::all(sizes).await,
        "commit" => commits::all(sizes).await,
        "version" => versions::all(sizes).await,
        "child" => children::all(sizes).await,
        "memory" => memory::all(sizes).await,
        other => panic!("no workload {other:?}"),
    }
}
