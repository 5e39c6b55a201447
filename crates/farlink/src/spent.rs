//! What bytes are spent on, for people: what each link carries of split TCP and for what, and what
//! is used of budgets.

use std::process::ExitCode;

use farlink_gateway::BudgetLevel;
use serde_json::{Value, json};

use crate::out::{out, outln};
use crate::view::{Table, bytes, list, number, text};

/// Exit statuses of `farlink status --budget`: four fifths of a budget are used,
const LOW: u8 = 4;
/// or all of it.
const USED_UP: u8 = 5;

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

/// What is used of a link's budget, percent, rounded down; `None`: it has none.
pub fn used_percent(link: &Value) -> Option<u64> {
    let (used, budget) = (number(link, "/budget_used_bytes"), number(link, "/budget_bytes"));
    (u128::from(used) * 100).checked_div(budget.into()).map(|n| u64::try_from(n).unwrap_or(u64::MAX))
}

/// One line for each link with a budget.
pub fn budget_table(status: &Value) -> Table {
    let mut table = Table::new(&["LINK", "BUDGET", "USED", "PERCENT", "LEVEL"]);
    for link in list(status, "/links") {
        if let Some(percent) = used_percent(link) {
            let period = text(link, "/budget_period");
            table.row([
                text(link, "/name"),
                format!("{}/{period}", bytes(number(link, "/budget_bytes"))),
                bytes(number(link, "/budget_used_bytes")),
                percent.to_string(),
                text(link, "/budget_level"),
            ]);
        }
    }
    table
}

/// `farlink status --budget`: the exit status is for scripts, by the budget that is used most.
pub fn budgets(status: &Value, is_json: bool) -> anyhow::Result<ExitCode> {
    if is_json {
        let fields = ["name", "budget_bytes", "budget_period", "budget_used_bytes", "budget_level"];
        let of = |link: &Value| -> Value {
            fields.iter().map(|field| ((*field).to_owned(), link[*field].clone())).collect()
        };
        let with_budget = list(status, "/links").iter().filter(|link| used_percent(link).is_some());
        outln!("{}", serde_json::to_string_pretty(&json!(with_budget.map(of).collect::<Vec<_>>()))?);
    } else {
        let table = budget_table(status);
        if table.is_empty() {
            outln!("no link has a budget");
        } else {
            out!("{table}");
        }
    }
    Ok(ExitCode::from(exit_status(status)))
}

fn exit_status(status: &Value) -> u8 {
    let is = |level: BudgetLevel| {
        list(status, "/links").iter().any(|link| text(link, "/budget_level") == level.name())
    };
    if is(BudgetLevel::UsedUp) {
        USED_UP
    } else if is(BudgetLevel::Low) {
        LOW
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use farlink_gateway::{LinkStatus, Spent, Status};

    use super::*;

    #[test]
    fn the_budget_that_is_used_most_makes_the_exit_status() {
        let of = |levels: &[(u64, BudgetLevel)]| {
            let links = levels.iter().map(|(used, level)| LinkStatus {
                name: "geo".into(),
                budget_bytes: 20_000_000_000,
                budget_used_bytes: *used,
                budget_period: Some("month"),
                budget_level: Some(level.name()),
                ..Default::default()
            });
            let links = links.chain([LinkStatus::default()]).collect();
            serde_json::to_value(Status { links, ..Status::default() }).unwrap()
        };
        let fine = (1_000_000_000, BudgetLevel::Fine);
        let (low, used_up) = ((16_000_000_000, BudgetLevel::Low), (u64::MAX, BudgetLevel::UsedUp));
        assert_eq!(exit_status(&of(&[])), 0);
        assert_eq!(exit_status(&of(&[fine])), 0);
        assert_eq!(exit_status(&of(&[fine, low])), LOW);
        assert_eq!(exit_status(&of(&[low, used_up, fine])), USED_UP);
        let table = budget_table(&of(&[low])).to_string();
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(table.lines().map(words).next_back().unwrap(), "geo 20.0 GB/month 16.0 GB 80 low");
    }

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
