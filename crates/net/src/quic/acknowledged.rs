//! Counts what a client acknowledges, for `send_timeout` (T4): `quinn_proto` tells it to nobody but the congestion
//! controller, which this one wraps.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory, ControllerMetrics, CubicConfig};

/// What a client has acknowledged of a path.
#[derive(Debug, Default)]
pub(super) struct Count {
    /// Bytes of acknowledged packets.
    bytes: AtomicU64,
    /// With the last acknowledgement nothing was in flight, and nothing was to be sent.
    is_all: AtomicBool,
}

impl Count {
    /// The counter of a connection's present path.
    pub(super) fn of(connection: &quinn_proto::Connection) -> Arc<Self> {
        let controller = connection.congestion_state().clone_box().into_any();
        controller.downcast::<Counting>().map(|counting| counting.count).unwrap_or_default()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn is_all(&self) -> bool {
        self.is_all.load(Ordering::Relaxed)
    }
}

/// Makes the controllers.
#[derive(Debug, Default)]
pub(super) struct CountingConfig(Arc<CubicConfig>);

impl ControllerFactory for CountingConfig {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let inner = Arc::clone(&self.0).build(now, current_mtu);
        Box::new(Counting { inner, count: Arc::default() })
    }
}

struct Counting {
    inner: Box<dyn Controller>,
    count: Arc<Count>,
}

impl Controller for Counting {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.inner.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.count.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.inner.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest: Option<u64>,
    ) {
        self.count.is_all.store(in_flight == 0 && app_limited, Ordering::Relaxed);
        self.inner.on_end_acks(now, in_flight, app_limited, largest);
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, persists: bool, lost: u64) {
        self.inner.on_congestion_event(now, sent, persists, lost);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.inner.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        self.inner.window()
    }

    fn metrics(&self) -> ControllerMetrics {
        self.inner.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self { inner: self.inner.clone_box(), count: Arc::clone(&self.count) })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
