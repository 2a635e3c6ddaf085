//! How long the owner of a claim may act: it sends nothing destructive once half its lease has passed since before it sent
//! its newest generation, and cuts off what is under way at that moment. Nobody takes over before the whole lease is over.

use std::future::Future;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::lifecycle::Claim;
use crate::store::Slot;

/// The right to carry out one decision, for half a lease.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) claim: Claim,
    started: Instant,
    /// The same moment on the clock that goes on while the machine is suspended.
    started_wall: SystemTime,
}

impl Lease {
    /// Begins now, for a claim that is about to be sent.
    pub(crate) fn from_now(claim: Claim) -> Self {
        Self {
            claim,
            started: Instant::now(),
            started_wall: SystemTime::now(),
        }
    }

    fn deadline(&self) -> Instant {
        self.started + self.claim.lease() / 2
    }

    /// Used up, by the clock that says more: the monotonic one stops while the machine is suspended.
    pub(crate) fn elapsed(&self) -> Duration {
        let wall = self.started_wall.elapsed().unwrap_or_default();
        self.started.elapsed().max(wall)
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
        let (half, started, wall) = (self.claim.lease() / 2, self.started, self.started_wall);
        move || started.elapsed().max(wall.elapsed().unwrap_or_default()) < half
    }

    /// What is left for a request that takes its own time-out.
    pub(crate) fn remaining(&self, slot: &Slot) -> Result<Duration> {
        match (self.claim.lease() / 2).checked_sub(self.elapsed()) {
            Some(left) if !left.is_zero() => Ok(left),
            _ => Err(self.overrun(slot)),
        }
    }
}
