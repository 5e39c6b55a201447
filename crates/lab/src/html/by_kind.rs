//! What gateways' queues did to each kind of traffic: who had the link, who waited, who lost. And
//! what went past them.

use farlink_gateway::Kind;

use super::subjects::{Point, Table, mean};
use super::words::{conditions, escaped, short};

/// A line for each kind of each cell that has more than split connections, and one for what went
/// past the queue.
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
         <p class=\"remark\">Of the link by which the most left. Shares are of all its bytes, through its queue or past it. What \
         connections that are split wait is not counted: their data waits in the gateway, and is not dropped. Nothing is known of what \
         went past the queue but how much it was.</p>\n"
    )
}

fn of_point(of: &str, point: &Point) -> String {
    let number = |name: &str| mean(point.metrics.get(name)?);
    let of_kind = |kind: Kind, what: &str| number(&format!("{}_{what}", kind.name()));
    let past = number("past_the_queue_bytes");
    let carried: f64 = Kind::ALL.into_iter().filter_map(|kind| of_kind(kind, "carried_bytes")).sum();
    let all = carried + past.unwrap_or(0.0);
    let row = |name: &str, bytes: f64, figures: [Option<f64>; 4]| {
        let [packets, dropped, mean_wait, longest_wait] = figures.map(|f| f.map_or("-".into(), short));
        format!(
            "<tr><th>{}</th><th>{}</th><th>{name}</th><td>{}</td><td>{packets}</td><td>{dropped}</td><td>{mean_wait}</td>\
             <td>{longest_wait}</td></tr>\n",
            escaped(of),
            escaped(&point.subject.name),
            short(100.0 * bytes / all.max(1.0)),
        )
    };
    let mut rows = String::new();
    for kind in Kind::ALL {
        let Some(bytes) = of_kind(kind, "carried_bytes") else { continue };
        let figures = ["packets", "dropped_packets", "waited_mean_ms", "waited_max_ms"];
        rows += &row(kind.title(), bytes, figures.map(|what| of_kind(kind, what)));
    }
    if let Some(bytes) = past {
        rows += &row("past the queue", bytes, [number("past_the_queue_packets"), None, None, None]);
    }
    rows
}
