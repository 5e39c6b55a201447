//! What whoever attends to a running driver may look at and do, between two batches of packets.

use farlink_gateway::Gateway;
use farlink_wire::Instant;

use super::profile::Profile;
use super::{DiversionStatus, Driver, DriverStatus};
use crate::clock;
use crate::divert::Diverted;

/// What whoever attends to a running driver may look at and do, between two batches of packets.
pub struct Attendance<'a> {
    pub(super) driver: &'a mut Driver,
}

impl Attendance<'_> {
    /// The gateway.
    pub fn gateway(&mut self) -> &mut Gateway {
        &mut self.driver.gateway
    }
    /// The time.
    #[must_use]
    pub fn now(&self) -> Instant {
        clock::now()
    }
    /// What the driver counts.
    #[must_use]
    pub fn status(&self) -> DriverStatus {
        self.driver.status()
    }
    /// What is diverted where.
    #[must_use]
    pub fn diverted(&self) -> Vec<Diverted> {
        self.driver.diverted()
    }
    /// The interfaces of which everything is diverted that leaves by them.
    #[must_use]
    pub fn whole(&self) -> Vec<String> {
        self.driver.whole()
    }
    /// How diversion stands.
    #[must_use]
    pub fn diversion(&self) -> DiversionStatus {
        self.driver.diversion()
    }
    /// Whether the stages of the datapath are measured.
    #[must_use]
    pub fn is_profiled(&self) -> bool {
        self.driver.net.profile.is_some()
    }
    /// Measures each stage of the datapath from now on, beginning at zero, or no more.
    pub fn set_profile(&mut self, on: bool) {
        self.driver.net.profile = on.then(|| Box::new(Profile::default()));
    }
    /// SIGHUP has come since this was asked last: another configuration is to be read.
    pub fn take_reload(&mut self) -> bool {
        core::mem::take(&mut self.driver.is_reload_wanted)
    }
    /// What is asked takes longer: it is gone on with after the next batch of packets.
    pub fn attend_again(&mut self) {
        self.driver.is_asked_again = true;
    }
    /// Starts draining, as SIGTERM does.
    pub fn drain(&mut self) {
        self.driver.start_drain();
    }
    /// An interface, or the link behind it, went away or came back, as somebody outside knows
    /// better than the kernel (a modem).
    ///
    /// # Errors
    /// The name is not that of a diverted interface; the text says which there are.
    pub fn link_state(&mut self, interface: &str, up: bool) -> std::result::Result<(), String> {
        let Driver { gateway, net, .. } = &mut *self.driver;
        let Some(id) = net.ports.iter().find(|p| p.interface == interface).map(|p| p.id) else {
            let names: Vec<&str> = net.ports.iter().map(|p| p.interface.as_str()).collect();
            return Err(format!(
                "there is no diverted interface {interface}; there are {}",
                names.join(", ")
            ));
        };
        gateway.link_declared(clock::now(), id, up, net);
        Ok(())
    }
}
