//! What bytes are spent on, for people: what each link carries of split TCP, and for what.

use serde_json::Value;

use crate::view::{Table, bytes, list, number, text};

/// One line for each link that has carried split TCP.
pub fn table(status: &Value) -> Table {
    let headings = ["LINK", "PAYLOAD", "AGAIN", "HEADERS", "COPIES", "ACKS", "PROBES", "NEEDLESS"];
    let fields = ["payload", "repeated", "header", "copy", "ack", "probe", "needless"];
    let mut table = Table::new(&headings);
    for link in list(status, "/links") {
        let spent = fields.map(|field| number(link, &format!("/spent/{field}_bytes")));
        if spent.iter().any(|n| *n > 0) {
            table.row([text(link, "/name")].into_iter().chain(spent.map(bytes)));
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use farlink_gateway::{LinkStatus, Spent, Status};

    use super::*;

    #[test]
    fn each_link_has_a_line_once_it_has_carried_something() {
        let mut status = Status::default();
        let spent =
            Spent { payload_bytes: 9_000, repeated_bytes: 1_400, needless_bytes: 700, ..Spent::default() };
        status.links.push(LinkStatus { name: "geo".into(), spent, ..Default::default() });
        status.links.push(LinkStatus { name: "idle".into(), ..Default::default() });
        let table = table(&serde_json::to_value(&status).unwrap()).to_string();
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<_> = table.lines().map(words).collect();
        assert_eq!(lines[1..], ["geo 9.0 kB 1.4 kB 0 B 0 B 0 B 0 B 700 B"]);
    }
}
