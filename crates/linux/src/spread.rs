//! Spreads what the kernel does with packets out of the TUNs over the other processors.
//!
//! A packet that is written into a TUN is routed, filtered and handed to the next device, or to a socket of this machine, within the
//! write: on one processor, the one that runs the event loop. For small packets that is most of the work, and the other processors
//! can do it (receive packet steering: Documentation/networking/scaling.rst of the kernel). The event loop's own processor gets
//! none of it: with many small packets the loop is what everything waits for (`farlink bench --only many --many 8000`: a quarter more than
//! with all processors). Large super-segments are better handled where they are in the cache (`farlink bench`: 8 bulk connections lose
//! a tenth). So it is switched on and off by what leaves. Where the others do not keep up, the kernel drops packets before it looks
//! at them; then the event loop's processor takes its part for a while.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use farlink_wire::{Duration, Instant};

/// How often it is looked at.
const PERIOD: Duration = Duration::from_secs(1);
/// Packets per second, and their mean size, from which on spreading pays.
const ON: (u64, u64) = (10_000, 8 << 10);
/// The same for ending it.
const OFF: (u64, u64) = (5_000, 16 << 10);

/// More than one packet over this that the other processors had no room for: they do not keep up.
const DROPS: u64 = 250;
/// So long all processors share the work then.
const HELP: Duration = Duration::from_secs(3);

/// Who does the kernel's work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Spread {
    /// Whoever writes.
    #[default]
    Off,
    /// All processors.
    All,
    /// All but this one, where the event loop is.
    Without(usize),
}

/// What the kernel shows of a device's only receive queue.
#[derive(Debug)]
struct Device {
    /// `rps_cpus`, to be written.
    processors: File,
    /// `rx_dropped`.
    dropped: Option<File>,
}

/// Switches it on and off.
#[derive(Debug, Default)]
pub struct Spreader {
    devices: Vec<Device>,
    /// All processors, a bit for each; empty: there is one only.
    all: Vec<u32>,
    now: Spread,
    /// All share the work until then.
    help_until: Option<Instant>,
    looked_at: Option<Instant>,
    packets: u64,
    bytes: u64,
    dropped: u64,
}

impl Spreader {
    /// For these devices of the calling thread's network namespace, by name and number. Where the kernel does not let us, nothing
    /// is spread.
    #[must_use]
    pub fn new<'a>(devices: impl Iterator<Item = (&'a str, u32)>) -> Self {
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
        let Some(all) = processors(online.trim()) else { return Self::default() };
        let devices: Vec<Device> = devices.filter_map(|(name, index)| open(name, index)).collect();
        if devices.is_empty() {
            tracing::info!(
                "the kernel's part of the work stays on one processor: no access to rps_cpus of the TUNs"
            );
        }
        Self { devices, all, ..Self::default() }
    }

    /// Packets and bytes written so far, into all TUNs together. Called by the event loop.
    pub fn attend(&mut self, now: Instant, packets: u64, bytes: u64) {
        let Some(before) = self.looked_at else {
            self.looked_at = Some(now);
            return;
        };
        let passed = now.since(before);
        if passed < PERIOD || self.devices.is_empty() {
            return;
        }
        self.looked_at = Some(now);
        let (new_packets, new_bytes) = (packets - self.packets, bytes - self.bytes);
        (self.packets, self.bytes) = (packets, bytes);
        let per_second = (new_packets as f64 / passed.as_secs_f64()) as u64;
        let want = pays(self.is_on(), per_second, new_bytes / new_packets.max(1));
        let here = rustix::thread::sched_getcpu();
        self.decide(now, want.then_some(here), new_packets);
    }

    /// The kernel's work is spread now.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.now != Spread::Off
    }

    /// `here` is where the event loop runs, if spreading pays. It moves seldom, and is followed.
    fn decide(&mut self, now: Instant, here: Option<usize>, new_packets: u64) {
        let dropped: u64 = self.devices.iter().filter_map(|d| number(d.dropped.as_ref()?)).sum();
        let new_drops = dropped.saturating_sub(core::mem::replace(&mut self.dropped, dropped));
        if self.is_on() && new_drops > new_packets / DROPS {
            self.help_until = Some(now + HELP);
        }
        let helps = self.help_until.is_some_and(|until| now < until);
        let next = match here {
            None => Spread::Off,
            Some(_) if helps => Spread::All,
            Some(here) => Spread::Without(here),
        };
        if core::mem::replace(&mut self.now, next) == next {
            return;
        }
        let text = match next {
            Spread::Off => "0".to_owned(),
            Spread::All => mask_without(&self.all, None),
            Spread::Without(here) => mask_without(&self.all, Some(here)),
        };
        for device in &self.devices {
            if let Err(error) = device.processors.write_all_at(text.as_bytes(), 0) {
                tracing::debug!(%error, "rps_cpus of a TUN");
            }
        }
        tracing::debug!(mask = text, new_drops, "spreading the kernel's work over the processors");
    }
}

/// The number in a file.
fn number(file: &File) -> Option<u64> {
    let mut bytes = [0; 24];
    let n = file.read_at(&mut bytes, 0).ok()?;
    std::str::from_utf8(bytes.get(..n)?).ok()?.trim().parse().ok()
}

fn pays(on: bool, packets_per_s: u64, mean_bytes: u64) -> bool {
    if on {
        packets_per_s >= OFF.0 && mean_bytes <= OFF.1
    } else {
        packets_per_s >= ON.0 && mean_bytes <= ON.1
    }
}

/// The bits of a list of processors ("0-3,6"); `None`: there is one only, or the list is none.
fn processors(online: &str) -> Option<Vec<u32>> {
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
    (count > 1).then_some(words)
}

/// All processors, or all but one, as the kernel reads them: words of 32 bits separated by commas, the highest first.
fn mask_without(all: &[u32], spared: Option<usize>) -> String {
    let text = all.iter().enumerate().rev().map(|(n, word)| {
        let own = spared.filter(|spared| spared / 32 == n).map_or(0, |spared| 1 << (spared % 32));
        format!("{:08x}", word & !own)
    });
    text.collect::<Vec<_>>().join(",")
}

/// The files of a device, if /sys shows the network namespace that the device is in.
fn open(name: &str, index: u32) -> Option<Device> {
    let device = Path::new("/sys/class/net").join(name);
    let shown = std::fs::read_to_string(device.join("ifindex")).ok()?;
    if shown.trim().parse() != Ok(index) {
        return None;
    }
    let processors = File::options().write(true).open(device.join("queues/rx-0/rps_cpus")).ok()?;
    Some(Device { processors, dropped: File::open(device.join("statistics/rx_dropped")).ok() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_become_the_words_that_the_kernel_reads_without_the_event_loops() {
        let mask = |online, spared| processors(online).map(|all| mask_without(&all, Some(spared)));
        assert_eq!(mask("0-1", 0).as_deref(), Some("00000002"));
        assert_eq!(mask("0-1", 1).as_deref(), Some("00000001"));
        assert_eq!(mask("0-3,6", 2).as_deref(), Some("0000004b"));
        assert_eq!(mask("0,33", 33).as_deref(), Some("00000000,00000001"));
        assert_eq!(mask("0-1", 7).as_deref(), Some("00000003"), "one that came later");
        assert_eq!((mask("0", 0), mask("", 0), mask("x-1", 0)), (None, None, None));
    }

    #[test]
    fn the_event_loop_is_followed_and_helps_while_others_drop_packets() {
        let path = |name| std::env::temp_dir().join(format!("flt-{name}-{}", std::process::id()));
        let (mask, drops) = (path("rps_cpus"), path("rx_dropped"));
        std::fs::write(&drops, "7\n").unwrap();
        let processors = File::options().create(true).truncate(true).write(true).open(&mask).unwrap();
        let devices = vec![Device { processors, dropped: File::open(&drops).ok() }];
        let mut spreader = Spreader { devices, all: vec![3], ..Spreader::default() };
        let mut after = |second: u64, here| {
            std::fs::write(&mask, "").unwrap();
            spreader.decide(Instant::from_millis(second * 1000), here, 20_000);
            std::fs::read_to_string(&mask).unwrap()
        };
        assert_eq!(after(0, None), "", "off as it was");
        assert_eq!(after(1, Some(0)), "00000002");
        assert_eq!(after(2, Some(0)), "", "it has not moved");
        assert_eq!(after(3, Some(1)), "00000001");
        std::fs::write(&drops, "60\n").unwrap();
        assert_eq!(after(4, Some(1)), "", "a few drops are no matter");
        std::fs::write(&drops, "200\n").unwrap();
        assert_eq!(after(5, Some(1)), "00000003", "many are");
        assert_eq!(after(7, Some(1)), "");
        assert_eq!(after(8, Some(1)), "00000001", "the next try");
        assert_eq!(after(9, None), "0");
        std::fs::remove_file(&mask).unwrap();
        std::fs::remove_file(&drops).unwrap();
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
