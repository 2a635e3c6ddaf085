//! A moment by two clocks: what has to be done within a time of it must not be done later because the machine slept.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// A moment on the monotonic clock, and on the one that goes on while the machine is suspended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    monotonic: Instant,
    wall: SystemTime,
}

impl Moment {
    pub(crate) fn now() -> Self {
        Self {
            monotonic: Instant::now(),
            wall: SystemTime::now(),
        }
    }

    /// What has passed by the clock that says more: a wall clock that was set back says nothing.
    pub(crate) fn elapsed(self) -> Duration {
        let wall = self.wall.elapsed().unwrap_or_default();
        self.monotonic.elapsed().max(wall)
    }

    /// So long after it, for a timer.
    pub(crate) fn after(self, time: Duration) -> Instant {
        self.monotonic + time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_that_says_more_counts() {
        let hour = Duration::from_secs(3600);
        let now = Moment::now();
        assert!(now.elapsed() < hour);
        // The machine slept: only the wall clock went on.
        let slept = Moment {
            wall: now.wall - hour,
            ..now
        };
        assert!(slept.elapsed() >= hour);
        let set_back = Moment {
            wall: now.wall + hour,
            ..now
        };
        assert!(set_back.elapsed() < hour);
    }
}
