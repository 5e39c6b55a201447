//! What gateways hold, beside what it costs in time: what a policy of flow control chooses between.

use super::figure::{Axis, BLACK, Figure, Mark, Series};
use super::plots::{Drawing, Plot, colour};
use super::subjects::{Point, Table, mean};
use super::words::short;

/// Every cell of a run with several numbers of connections, those of a subject joined in their
/// order.
pub(super) fn plot(table: &Table) -> Option<Plot> {
    let mut all: Vec<Series> = Vec::new();
    for subject in &table.subjects {
        let of = table.points.iter().filter(|p| p.subject == *subject);
        let lost = |p: &Point| Some((100.0 * (p.mean_ratio()? - 1.0)).max(0.0));
        let place = |p: &Point| Some((p.number("flows")?, lost(p)?, mean(&p.held_over_aim)?));
        let mut places: Vec<_> = of.filter_map(place).collect();
        places.sort_by(|a, b| a.0.total_cmp(&b.0));
        let points = places.into_iter().map(|(_, lost, held)| (lost, held)).collect::<Vec<_>>();
        if points.len() > 1 {
            all.push(Series::new(&subject.name, colour(table, subject), Mark::Dotted, points));
        }
    }
    if all.is_empty() {
        return None;
    }
    let lost = |p: &(f64, f64)| p.0;
    let most = all.iter().flat_map(|s| s.points.iter().map(lost)).fold(0.0, f64::max);
    let held: Vec<f64> = all.iter().flat_map(|s| s.points.iter().map(|p| p.1)).chain([1.0]).collect();
    all.push(Series::new("aim", BLACK, Mark::Dashed, vec![(0.0, 1.0), (most, 1.0)]));
    let figure = Figure {
        title: "What a gateway holds, and how long it takes: one point for each number of connections".into(),
        x: Axis::from_zero("time beyond the physical limit, per cent of it", [most].into_iter(), short),
        y: Axis::log("held at most, over the aim", held.iter().copied(), short),
        series: all,
        shaded: Vec::new(),
        remark: "Nearer to the lower left corner is better. A line begins with the fewest connections. The aim is twice the \
                 bandwidth-delay product, or four segments for each connection, whichever is more."
            .into(),
    };
    Some(Plot { name: "held".into(), drawing: Drawing::Figure(figure) })
}
