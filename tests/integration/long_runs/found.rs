//! What seeds found, as schedules written by hand: a seed stops meaning the same with every change of the scheduler.

use lancekeep::ErrorKind;

use crate::common::{catalog_of, rows};
use crate::support::{Gate, Kind, SharedMemory};

/// An open has been told which version is the latest and that nothing hides it; before it reads that, the table is
/// dropped and purged. It is gone then, and the store is in order.
#[tokio::test]
async fn a_table_that_is_purged_under_an_open_is_not_found() {
    let gate = Gate::new();
    let memory = SharedMemory::new();
    let others = catalog_of(&memory.actor()).await;
    others.create_table("t", rows([1])).await.unwrap();
    let catalog = catalog_of(&memory.actor_at_gate(&gate, 0)).await;
    let open = tokio::spawn(gate.run(0, catalog.open_table("t").into_future()));
    loop {
        gate.wait_until_blocked(&[0]).await;
        let waiting = gate.waiting();
        let others_first = waiting.iter().position(|(_, request)| {
            request.kind != Kind::Get || !request.path.ends_with(".manifest")
        });
        // All but the reading of the manifest.
        let Some(nth) = others_first else {
            break;
        };
        gate.release_nth(0, nth);
    }
    assert!(!gate.is_finished(0));
    others.drop_table("t").await.unwrap();
    others.purge_table("t").await.unwrap();
    gate.open();
    let error = open.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TableNotFound, "{error:?}");
}
