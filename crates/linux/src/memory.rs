//! How much memory this process may use: what the machine has, and what its control group allows.

use std::fs;
use std::path::{Path, PathBuf};

/// Control groups of version 1 that are not bounded say nearly 2^63.
const BOUND_MOST_BYTES: u64 = 1 << 60;

/// What there is, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Of the machine; `None`: it does not say.
    pub total_bytes: Option<u64>,
    /// What the control group of this process and those above it allow; `None`: there is no bound.
    pub allowed_bytes: Option<u64>,
}

impl Memory {
    /// As the kernel says it now.
    #[must_use]
    pub fn of_this_process() -> Self {
        Self::below(Path::new("/"))
    }

    fn below(root: &Path) -> Self {
        let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let total_bytes = total_bytes(&read("proc/meminfo"));
        let groups = read("proc/self/cgroup");
        let allowed = |line: &str| allowed_bytes(root, line);
        Self { total_bytes, allowed_bytes: groups.lines().filter_map(allowed).min() }
    }
}

/// `MemTotal` of /proc/meminfo, proc(5).
fn total_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1_024)
}

/// The smallest bound of a group and of those above it. A line of /proc/self/cgroup, cgroups(7):
/// number, controllers, path; version 2 has no controllers.
fn allowed_bytes(root: &Path, line: &str) -> Option<u64> {
    let mut parts = line.splitn(3, ':');
    let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    let (mount, file) = match controllers {
        "" => ("sys/fs/cgroup", "memory.max"),
        _ if controllers.split(',').any(|c| c == "memory") => {
            ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
        }
        _ => return None,
    };
    let mount = root.join(mount);
    // In a container the path may be that of another root: what is not there bounds nothing.
    let group: PathBuf = mount.join(path.trim_start_matches('/'));
    let groups = group.ancestors().take_while(|group| group.starts_with(&mount));
    let bounds = groups.filter_map(|group| fs::read_to_string(group.join(file)).ok()?.trim().parse().ok());
    bounds.filter(|bytes| *bytes < BOUND_MOST_BYTES).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A root directory with these files, which is removed with it.
    struct Root(PathBuf);

    impl Root {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("farlink-memory-{}-{name}", std::process::id()));
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Self(root)
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal:       131072 kB\nMemFree:  5 kB\n");

    fn of(name: &str, files: &[(&str, &str)]) -> (Option<u64>, Option<u64>) {
        let root = Root::new(name, files);
        let memory = Memory::below(&root.0);
        (memory.total_bytes, memory.allowed_bytes)
    }

    #[test]
    fn the_smallest_bound_of_a_group_and_those_above_it_counts() {
        let files = [
            MEMINFO,
            ("proc/self/cgroup", "0::/system.slice/farlink.service\n"),
            ("sys/fs/cgroup/system.slice/farlink.service/memory.max", "max\n"),
            ("sys/fs/cgroup/system.slice/memory.max", "67108864\n"),
        ];
        assert_eq!(of("v2", &files), (Some(128 << 20), Some(64 << 20)));
    }

    #[test]
    fn a_group_of_version_1_says_it_elsewhere() {
        let files = [
            MEMINFO,
            ("proc/self/cgroup", "11:cpu,cpuacct:/\n4:memory:/box\n1:name=systemd:/x\n"),
            ("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "33554432\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        assert_eq!(of("v1", &files), (Some(128 << 20), Some(32 << 20)));
    }

    #[test]
    fn what_nobody_says_bounds_nothing() {
        assert_eq!(of("empty", &[]), (None, None));
        let odd = [("proc/meminfo", "MemTotal: many\n"), ("proc/self/cgroup", "0::\nx\n::/../..\n")];
        assert_eq!(of("odd", &odd), (None, None));
        assert!(Memory::of_this_process().total_bytes > Some(1 << 20), "this machine does");
    }
}
