//! Totals by host, as `farlink status` shows them.

use serde_json::Value;

use crate::view::{Table, bytes, list, number, text};

/// So many hosts are shown; `--json` has all that are told apart.
const HOSTS_SHOWN: usize = 10;

/// What the connections of the busiest hosts have carried, and those of all others together.
pub fn table(status: &Value) -> Table {
    let mut table = Table::new(&["HOST", "CONNECTIONS", "TO SERVERS", "TO THE HOST"]);
    let all = list(status, "/hosts");
    let (shown, rest) = all.split_at(all.len().min(HOSTS_SHOWN));
    let row = |of: &[Value]| {
        let sum = |key: &str| -> u64 { of.iter().map(|host| number(host, key)).sum() };
        [sum("/connections").to_string(), bytes(sum("/to_server_bytes")), bytes(sum("/to_client_bytes"))]
    };
    for host in shown {
        table.row([text(host, "/host")].into_iter().chain(row(std::slice::from_ref(host))));
    }
    if !rest.is_empty() {
        table.row(["others".to_owned()].into_iter().chain(row(rest)));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use farlink_gateway::{HostStatus, HostTotals, Status};

    #[test]
    fn the_busiest_hosts_are_shown_and_the_others_together() {
        let one = |n: u64| HostStatus {
            host: format!("10.0.0.{n}"),
            totals: HostTotals { connections: n, to_server_bytes: 1_000, to_client_bytes: 2_000_000 },
        };
        let table = |hosts| table(&serde_json::to_value(Status { hosts, ..Status::default() }).unwrap());
        assert!(table(Vec::new()).is_empty());
        let text = table((1..=12).map(one).collect()).to_string();
        let lines: Vec<_> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(lines[1], "10.0.0.1 1 1.0 kB 2.0 MB");
        assert_eq!((lines.len(), &*lines[11]), (12, "others 23 2.0 kB 4.0 MB"));
    }
}
