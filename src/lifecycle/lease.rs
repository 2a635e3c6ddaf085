//! How long the owner of a claim may act: it sends nothing destructive once half its lease has passed since before it sent
//! its newest generation, and cuts off what is under way at that moment. Nobody takes over before the whole lease is over.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::lifecycle::{Claim, Moment};
use crate::store::Slot;

/// The right to carry out one decision, for half a lease.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) claim: Claim,
    started: Moment,
}

impl Lease {
    /// Begins now, for a claim that is about to be sent.
    pub(crate) fn from_now(claim: Claim) -> Self {
        Self {
            claim,
            started: Moment::now(),
        }
    }

    fn deadline(&self) -> Instant {
        self.started.after(self.claim.lease() / 2)
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    fn is_over(&self) -> bool {
        self.elapsed() >= self.claim.lease() / 2
    }

    fn overrun(&self, slot: &Slot) -> Error {
        Error::Conflict {
            ident: slot.ident.clone(),
            message: format!(
                "half the lease of {:?} passed before the work was done; it can be resumed",
                self.claim.lease()
            ),
        }
    }

    /// Runs a destructive request while the lease allows it, and cuts it off when it does no longer.
    pub(crate) async fn guard<T>(
        &self,
        slot: &Slot,
        request: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        if self.is_over() {
            return Err(self.overrun(slot));
        }
        tokio::time::timeout_at(self.deadline(), request)
            .await
            .unwrap_or_else(|_| Err(self.overrun(slot)))
    }

    /// Whether the lease still allows something destructive, to ask on another thread.
    pub(crate) fn deadline_check(&self) -> impl Fn() -> bool + Send + 'static {
        let (half, started) = (self.claim.lease() / 2, self.started);
        move || started.elapsed() < half
    }

    /// What is left for a request that takes its own time-out.
    pub(crate) fn remaining(&self, slot: &Slot) -> Result<Duration> {
        match (self.claim.lease() / 2).checked_sub(self.elapsed()) {
            Some(left) if !left.is_zero() => Ok(left),
            _ => Err(self.overrun(slot)),
        }
    }
}
