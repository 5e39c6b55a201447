//! Spreads what the kernel does with packets out of the TUNs over all processors.
//!
//! A packet that is written into a TUN is routed, filtered and handed to the next device, or to a
//! socket of this machine, within the write: on one processor, the one that runs the event loop.
//! For small packets that is most of the work, and the other processors can do it (receive packet
//! steering: Documentation/networking/scaling.rst of the kernel). Large super-segments are better
//! handled where they are in the cache (`farlink bench`: 10,000 connections at once gain half, 8
//! bulk ones lose a tenth). So it is switched on and off by what leaves.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use farlink_wire::{Duration, Instant};

/// How often it is looked at.
const PERIOD: Duration = Duration::from_secs(1);
/// Packets per second, and their mean size, from which on spreading pays.
const ON: (u64, u64) = (10_000, 8 << 10);
/// The same for ending it.
const OFF: (u64, u64) = (5_000, 16 << 10);

/// What takes the kernel a moment.
pub type Work = Box<dyn FnOnce() + Send>;

/// Switches it on and off.
#[derive(Debug, Default)]
pub struct Spreader {
    /// With the number of the device.
    files: Vec<(u32, Arc<File>)>,
    /// All processors, as the kernel reads them; empty: there is one only.
    mask: String,
    on: bool,
    looked_at: Option<Instant>,
    packets: u64,
    bytes: u64,
}

impl Spreader {
    /// For these devices of the calling thread's network namespace, by name and number. Where the
    /// kernel does not let us, nothing is spread.
    #[must_use]
    pub fn new<'a>(devices: impl Iterator<Item = (&'a str, u32)>) -> Self {
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
        let mask = mask(online.trim()).unwrap_or_default();
        if mask.is_empty() {
            return Self::default();
        }
        let mut devices = devices.peekable();
        let has_devices = devices.peek().is_some();
        let files: Vec<_> =
            devices.filter_map(|(name, index)| Some((index, file_of(name, index)?))).collect();
        if files.is_empty() && has_devices {
            tracing::info!(
                "the kernel's part of the work stays on one processor: no access to rps_cpus of the TUNs"
            );
        }
        Self { files, mask, ..Self::default() }
    }

    /// One more device, by the number that it has, and its file.
    #[must_use]
    pub fn add(&mut self, index: u32, file: Option<Arc<File>>) -> Option<Work> {
        let file = file.filter(|_| !self.mask.is_empty())?;
        self.files.push((index, Arc::clone(&file)));
        let text = self.mask.clone();
        self.on.then(|| -> Work { Box::new(move || write(&file, &text)) })
    }

    /// A device is gone. Its file is closed where the work that is returned is done.
    #[must_use]
    pub fn remove(&mut self, index: u32) -> Option<Work> {
        let place = self.files.iter().position(|(known, _)| *known == index)?;
        let (_, file) = self.files.swap_remove(place);
        Some(Box::new(move || drop(file)))
    }

    /// Packets and bytes written so far, into all TUNs together. Returns what is to be done, by
    /// somebody who may wait for the kernel.
    #[must_use]
    pub fn attend(&mut self, now: Instant, packets: u64, bytes: u64) -> Option<Work> {
        let Some(before) = self.looked_at else {
            self.looked_at = Some(now);
            return None;
        };
        let passed = now.since(before);
        if passed < PERIOD || self.files.is_empty() {
            return None;
        }
        self.looked_at = Some(now);
        // What a device had written goes with it.
        let new_packets = packets.saturating_sub(self.packets);
        let new_bytes = bytes.saturating_sub(self.bytes);
        (self.packets, self.bytes) = (packets, bytes);
        let per_second = (new_packets as f64 / passed.as_secs_f64()) as u64;
        let want = pays(self.on, per_second, new_bytes / new_packets.max(1));
        (want != self.on).then(|| self.set(want))
    }

    /// The kernel's work is spread now.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.on
    }

    fn set(&mut self, on: bool) -> Work {
        let text = if on { self.mask.clone() } else { "0".to_owned() };
        let files: Vec<_> = self.files.iter().map(|(_, file)| Arc::clone(file)).collect();
        self.on = on;
        tracing::debug!(on, "spreading the kernel's work over the processors");
        Box::new(move || files.iter().for_each(|file| write(file, &text)))
    }
}

fn write(file: &File, text: &str) {
    if let Err(error) = file.write_all_at(text.as_bytes(), 0) {
        tracing::debug!(%error, "rps_cpus of a TUN");
    }
}

fn pays(on: bool, packets_per_s: u64, mean_bytes: u64) -> bool {
    if on {
        packets_per_s >= OFF.0 && mean_bytes <= OFF.1
    } else {
        packets_per_s >= ON.0 && mean_bytes <= ON.1
    }
}

/// The kernel's bit mask of a list of processors ("0-3,6"), words of 32 bits separated by commas;
/// `None`: there is one only, or the list is none.
fn mask(online: &str) -> Option<String> {
    let mut words: Vec<u32> = Vec::new();
    let mut count = 0;
    for range in online.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        for cpu in first..=last.min(first + 8191) {
            words.resize(words.len().max(cpu / 32 + 1), 0);
            *words.get_mut(cpu / 32)? |= 1 << (cpu % 32);
            count += 1;
        }
    }
    let text: Vec<String> = words.iter().rev().map(|w| format!("{w:08x}")).collect();
    (count > 1).then(|| text.join(","))
}

/// The file of a device's only receive queue, if /sys shows the network namespace that the device
/// is in.
pub(crate) fn file_of(name: &str, index: u32) -> Option<Arc<File>> {
    let device = Path::new("/sys/class/net").join(name);
    let shown = std::fs::read_to_string(device.join("ifindex")).ok()?;
    if shown.trim().parse() != Ok(index) {
        return None;
    }
    File::options().write(true).open(device.join("queues/rx-0/rps_cpus")).ok().map(Arc::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_become_the_words_that_the_kernel_reads() {
        assert_eq!(mask("0-1").as_deref(), Some("00000003"));
        assert_eq!(mask("0-3,6").as_deref(), Some("0000004f"));
        assert_eq!(mask("0,33").as_deref(), Some("00000002,00000001"));
        assert_eq!((mask("0"), mask(""), mask("x-1")), (None, None, None));
    }

    #[test]
    fn many_small_packets_are_spread_and_few_or_large_ones_are_not() {
        assert!(pays(false, 40_000, 5_000));
        assert!(!pays(false, 20_000, 48_000) && !pays(false, 9_000, 200));
        // It does not swing: what began goes on until it is clear.
        assert!(pays(true, 20_000, 12_000) && !pays(false, 20_000, 12_000));
        assert!(!pays(true, 20_000, 48_000) && !pays(true, 100, 200));
    }
}
