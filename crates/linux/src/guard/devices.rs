//! Looks after the devices of bumps: one that somebody takes down is brought up again, and the
//! event loop hears what they drop.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::driver::Pulse;
use crate::error::{Context, Result};
use crate::netlink::Socket;

/// The thread. Dropping this ends it.
#[derive(Debug)]
pub(crate) struct DeviceKeeper {
    thread: Option<JoinHandle<()>>,
    stop: Arc<(Mutex<bool>, Condvar)>,
}

impl DeviceKeeper {
    /// For devices with these numbers, in the calling thread's network namespace.
    pub(crate) fn start(devices: Vec<u32>, pulse: Arc<Pulse>) -> Result<Self> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let mut socket = Socket::open()?;
        let until = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("guard".to_owned())
            .spawn(move || {
                while !super::waited(&until) {
                    // What cannot be asked now is asked again.
                    let _ = look(&mut socket, &devices, &pulse);
                }
            })
            .context(|| "starting the guard of devices".to_owned())?;
        Ok(Self { thread: Some(thread), stop })
    }
}

fn look(socket: &mut Socket, devices: &[u32], pulse: &Pulse) -> Result<()> {
    for link in socket.links()? {
        let Some(n) = devices.iter().position(|index| *index == link.index) else { continue };
        if let Some(port) = pulse.ports.get(n) {
            port.note_dropped(link.tx_dropped);
        }
        if !link.up {
            socket.link_up(link.index, true)?;
        }
    }
    Ok(())
}

impl Drop for DeviceKeeper {
    fn drop(&mut self) {
        *self.stop.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
