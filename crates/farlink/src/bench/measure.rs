//! What is spent: processor time of the machine and of processes, resident memory. From /proc.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Processor time used since the start of the machine and of some processes, and when that was
/// read.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    at: Instant,
    machine_cpu_s: f64,
    process_cpu_s: f64,
}

/// Between two readings.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    /// Time that passed.
    pub seconds: f64,
    /// Of the whole machine: hosts, kernel and gateway together.
    pub machine_cpu_s: f64,
    /// Of the processes alone, system calls included.
    pub process_cpu_s: f64,
}

impl Usage {
    /// Reads it.
    pub fn now(pids: &[u32]) -> Result<Self> {
        let (busy, _) = machine_ticks()?;
        let processes: u64 = pids.iter().map(|pid| process_ticks(*pid)).sum();
        let per_second = ticks_per_second();
        Ok(Self {
            at: Instant::now(),
            machine_cpu_s: busy as f64 / per_second,
            process_cpu_s: processes as f64 / per_second,
        })
    }
    /// What was used between an earlier reading and this one.
    pub fn since(&self, earlier: &Self) -> Used {
        Used {
            seconds: (self.at - earlier.at).as_secs_f64(),
            machine_cpu_s: self.machine_cpu_s - earlier.machine_cpu_s,
            process_cpu_s: self.process_cpu_s - earlier.process_cpu_s,
        }
    }
}

/// The share of processor time that is in use, 0 to 1, watched for a while.
pub fn busy_share(watch: Duration) -> Result<f64> {
    let (busy, total) = machine_ticks()?;
    std::thread::sleep(watch);
    let (busy_after, total_after) = machine_ticks()?;
    Ok((busy_after - busy) as f64 / (total_after - total).max(1) as f64)
}

fn ticks_per_second() -> f64 {
    // SAFETY: a plain query.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    if ticks > 0 { ticks as f64 } else { 100.0 }
}

/// Busy and total ticks of all processors: user nice system idle iowait irq softirq steal.
fn machine_ticks() -> Result<(u64, u64)> {
    let stat = std::fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    let line = stat.lines().next().unwrap_or_default();
    let ticks: Vec<u64> = line.split_whitespace().skip(1).take(8).filter_map(|t| t.parse().ok()).collect();
    let total: u64 = ticks.iter().sum();
    let idle: u64 = ticks.iter().skip(3).take(2).sum();
    Ok((total - idle, total))
}

/// Fields 14 and 15 of /proc/PID/stat, counted behind the command's closing bracket; 0 for a
/// process that has gone.
fn process_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let behind_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    behind_name.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<u64>().ok()).sum()
}

/// Anonymous memory that is resident, of some processes together.
pub fn resident_bytes(pids: &[u32]) -> Result<u64> {
    let mut sum = 0;
    for pid in pids {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))
            .with_context(|| format!("process {pid} has gone"))?;
        let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:")).unwrap_or_default();
        sum += line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024;
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_work_is_counted() {
        let own = [std::process::id()];
        let before = Usage::now(&own).unwrap();
        let mut x = 1u64;
        while Usage::now(&own).unwrap().since(&before).process_cpu_s < 0.03 {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        let used = Usage::now(&own).unwrap().since(&before);
        assert!(used.machine_cpu_s >= 0.0 && used.seconds > 0.0);
        assert!(resident_bytes(&own).unwrap() > 10_000);
        assert!(resident_bytes(&[u32::MAX]).is_err());
    }
}
