//! What gateways' queues did to each kind of traffic: who had the link, who waited, who lost.

use farlink_gateway::Kind;

use super::subjects::{Point, Table, mean};
use super::words::{conditions, escaped, short};

/// A line for each kind of each cell that has more than split connections.
pub(super) fn table(table: &Table) -> String {
    let mut rows = String::new();
    for group in table.groups(&[]) {
        for point in &group.points {
            rows += &of_point(&conditions(&group.of), point);
        }
    }
    if rows.is_empty() {
        return rows;
    }
    format!(
        "<h3>By kind of traffic</h3>\n<div class=\"wide\"><table>\n<tr><th>cell</th><th>who</th><th>kind</th><th>share, %</th>\
         <th>packets</th><th>dropped</th><th>waited, ms</th><th>at most, ms</th></tr>\n{rows}</table></div>\n\
         <p class=\"remark\">Of the gateway's queue that carried the most. Shares are of its bytes. What connections that are split \
         wait is not counted: their data waits in the gateway, and is not dropped.</p>\n"
    )
}

fn of_point(of: &str, point: &Point) -> String {
    let number = |kind: Kind, what: &str| mean(point.metrics.get(&format!("{}_{what}", kind.name()))?);
    let all: f64 = Kind::ALL.into_iter().filter_map(|kind| number(kind, "carried_bytes")).sum();
    let mut rows = String::new();
    for kind in Kind::ALL {
        let Some(bytes) = number(kind, "carried_bytes") else { continue };
        let cell = |what: &str| number(kind, what).map_or("-".into(), short);
        rows += &format!(
            "<tr><th>{}</th><th>{}</th><th>{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
            escaped(of),
            escaped(&point.subject.name),
            kind.title(),
            short(100.0 * bytes / all.max(1.0)),
            cell("packets"),
            cell("dropped_packets"),
            cell("waited_mean_ms"),
            cell("waited_max_ms"),
        );
    }
    rows
}
