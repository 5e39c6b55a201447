//! What interfaces have carried, read without the kernel's lock for interfaces (RTNL): where /sys
//! shows this network namespace, one by one; elsewhere out of the list in /proc.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::Count;

const SYSFS: &str = "/sys/class/net";
/// Of the network namespace of the thread that reads it.
const LIST: &str = "/proc/thread-self/net/dev";
/// In the order of an interface's files.
const FILES: [&str; 4] = ["rx_packets", "rx_bytes", "tx_packets", "tx_bytes"];

/// An interface that is read out of the list is tried again after so many times: it may have been
/// a moment at which others came and went.
const LIST_TIMES: u32 = 200;

/// Where an interface is read.
#[derive(Debug)]
enum Source {
    Files([File; 4]),
    /// So many times more out of the list.
    List(u32),
}

/// Reads the counters of interfaces.
#[derive(Debug, Default)]
pub struct Counters {
    sources: HashMap<u32, Source>,
}

impl Counters {
    /// What an interface has received since it is there, and sent. `None`: it is not there.
    pub fn read(&mut self, index: u32, name: &str) -> Option<[Count; 2]> {
        let open = || open(index, name).map_or(Source::List(LIST_TIMES), Source::Files);
        let counted = match self.sources.entry(index).or_insert_with(open) {
            Source::Files(files) => of_files(files),
            Source::List(0) => None,
            Source::List(left) => {
                *left -= 1;
                return of_list(&fs::read_to_string(LIST).ok()?, name);
            }
        };
        if counted.is_none() {
            self.sources.remove(&index);
        }
        counted.or_else(|| of_list(&fs::read_to_string(LIST).ok()?, name))
    }
}

fn of_files(files: &[File; 4]) -> Option<[Count; 2]> {
    let number = |file: &File| {
        let mut text = [0; 24];
        let n = file.read_at(&mut text, 0).ok()?;
        std::str::from_utf8(text.get(..n)?).ok()?.trim().parse::<u64>().ok()
    };
    let [received, received_bytes, sent, sent_bytes] = files;
    Some([
        Count { packets: number(received)?, bytes: number(received_bytes)? },
        Count { packets: number(sent)?, bytes: number(sent_bytes)? },
    ])
}

/// The line of an interface in the list: eight columns received, eight sent.
fn of_list(list: &str, name: &str) -> Option<[Count; 2]> {
    let line = list.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'))?;
    let columns: Vec<u64> = line.split_whitespace().map_while(|column| column.parse().ok()).collect();
    let count = |bytes: usize| Some(Count { packets: *columns.get(bytes + 1)?, bytes: *columns.get(bytes)? });
    Some([count(0)?, count(8)?])
}

fn open(index: u32, name: &str) -> Option<[File; 4]> {
    let directory = Path::new(SYSFS).join(name);
    let shown = fs::read_to_string(directory.join("ifindex")).ok()?;
    if shown.trim().parse() != Ok(index) || !shows_this_namespace() {
        return None;
    }
    let [a, b, c, d] = FILES.map(|file| File::open(directory.join("statistics").join(file)).ok());
    Some([a?, b?, c?, d?])
}

/// /sys may have been mounted in another network namespace, with interfaces of the same names.
fn shows_this_namespace() -> bool {
    let Ok(list) = fs::read_to_string(LIST) else { return false };
    let here: BTreeSet<&str> = list.lines().filter_map(|line| Some(line.split_once(':')?.0.trim())).collect();
    let Ok(entries) = fs::read_dir(SYSFS) else { return false };
    let names = entries.flatten().filter(|entry| entry.path().join("ifindex").exists());
    let shown: BTreeSet<String> = names.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    here.len() == shown.len() && here.iter().all(|name| shown.contains(*name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_the_kernel_is_read() {
        let list = "Inter-|   Receive                                                |  Transmit\n \
                    face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n\
                    \x20   lo: 12 3 0 0 0 0 0 0 45 6 0 0 0 0 0 0\n\
                    \x20 eth0:7 8 0 0 0 0 0 0 9 10 0 0 0 0 0 0\n";
        let count = |packets, bytes| Count { packets, bytes };
        assert_eq!(of_list(list, "lo"), Some([count(3, 12), count(6, 45)]));
        assert_eq!(of_list(list, "eth0"), Some([count(8, 7), count(10, 9)]));
        assert_eq!((of_list(list, "eth"), of_list(list, "th0")), (None, None));
    }

    #[test]
    fn an_interface_of_this_namespace_is_counted() {
        let mut counters = Counters::default();
        let index = fs::read_to_string("/sys/class/net/lo/ifindex").unwrap().trim().parse().unwrap();
        assert!(counters.read(index, "lo").is_some());
        assert!(counters.read(u32::MAX, "none-such").is_none());
    }
}
