//! What a plot says, before it is drawn: axes with units, series with names, the limit.

use plotters::style::RGBColor;

/// A position along an axis, which may be logarithmic.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Axis {
    /// What it is, with its unit.
    pub(super) title: String,
    /// Positions of both ends.
    pub(super) ends: (f64, f64),
    /// Positions and texts.
    pub(super) ticks: Vec<(f64, String)>,
    scale: Scale,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Scale {
    Linear,
    /// Zero stands at this position, below the smallest other value.
    Log {
        zero: Option<f64>,
    },
}

impl Axis {
    /// From zero to the largest value.
    pub(super) fn from_zero(
        title: &str,
        values: impl Iterator<Item = f64>,
        word: impl Fn(f64) -> String,
    ) -> Self {
        let high = values.filter(|v| v.is_finite()).fold(0.0, f64::max);
        let high = if high > 0.0 { high } else { 1.0 };
        let step = nice_step(high / 5.0);
        let ticks = (0..=(high * 1.02 / step) as u32).map(|n| f64::from(n) * step);
        let ticks = ticks.map(|v| (v, word(v))).collect();
        Self { title: title.into(), ends: (0.0, high * 1.04), ticks, scale: Scale::Linear }
    }

    /// From one fixed value to another.
    pub(super) fn between(title: &str, low: f64, high: f64, step: f64, word: impl Fn(f64) -> String) -> Self {
        let steps = ((high - low) / step).round() as u32;
        let ticks = (0..=steps).map(|n| low + f64::from(n) * step).map(|v| (v, word(v))).collect();
        Self { title: title.into(), ends: (low, high), ticks, scale: Scale::Linear }
    }

    /// Logarithmic; zero, where it occurs, stands apart at the low end.
    pub(super) fn log(title: &str, values: impl Iterator<Item = f64>, word: impl Fn(f64) -> String) -> Self {
        let values: Vec<f64> = values.filter(|v| v.is_finite() && *v >= 0.0).collect();
        let positive = values.iter().copied().filter(|v| *v > 0.0);
        let (low, high) = positive.fold((f64::INFINITY, 0.0_f64), |(l, h), v| (l.min(v), h.max(v)));
        let (low, high) = if high > 0.0 { (low.log10(), high.log10()) } else { (0.0, 1.0) };
        let room = ((high - low) * 0.04).max(0.04);
        let has_zero = values.contains(&0.0);
        let zero = has_zero.then(|| low - ((high - low) * 0.2).max(0.3));
        let ends = (zero.unwrap_or(low) - room, high + room);
        let mut ticks: Vec<_> = decades(low - room, high + room).map(|v| (v.log10(), word(v))).collect();
        ticks.extend(zero.map(|at| (at, word(0.0))));
        Self { title: title.into(), ends, ticks, scale: Scale::Log { zero } }
    }

    /// Where a value stands.
    pub(super) fn place(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => value,
            Scale::Log { .. } if value > 0.0 => value.log10(),
            Scale::Log { zero } => zero.unwrap_or(self.ends.0),
        }
    }

    /// The text at a tick.
    pub(super) fn word(&self, place: f64) -> String {
        let nearest = self.ticks.iter().min_by(|a, b| (a.0 - place).abs().total_cmp(&(b.0 - place).abs()));
        nearest.map_or(String::new(), |(_, text)| text.clone())
    }
}

/// 1, 2 or 5 times a power of ten.
fn nice_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|s| *s >= least * 0.999).unwrap_or(power * 10.0)
}

/// The round values between two powers of ten: decades where there are many, 1 2 5 or all nine
/// where there are few.
fn decades(low: f64, high: f64) -> impl Iterator<Item = f64> {
    let mantissas: &[f64] = match high - low {
        span if span > 3.2 => &[1.0],
        span if span > 1.4 => &[1.0, 2.0, 5.0],
        span if span > 0.45 => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0],
        _ => &[1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0, 7.0, 8.0, 9.0],
    };
    let powers = low.floor() as i32..=high.floor() as i32;
    powers.flat_map(move |p| mantissas.iter().map(move |m| m * 10f64.powi(p))).filter(move |v| {
        let place = v.log10();
        place >= low && place <= high
    })
}

/// How a series looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mark {
    /// A line.
    Line,
    /// A dashed line.
    Dashed,
    /// A line with a dot at each point.
    Dotted,
    /// Small dots.
    Dots,
    /// Larger dots, for what is rare.
    Bold,
    /// What a paper measured: hollow diamonds.
    Paper,
}

/// Points with a name.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) colour: RGBColor,
    pub(super) mark: Mark,
    pub(super) points: Vec<(f64, f64)>,
    /// Half the height of an error bar at each point; empty: none.
    pub(super) deviations: Vec<f64>,
}

impl Series {
    pub(super) fn new(name: &str, colour: RGBColor, mark: Mark, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), colour, mark, points, deviations: Vec::new() }
    }

    /// The physical limit.
    pub(super) fn limit(points: Vec<(f64, f64)>) -> Self {
        Self::new(LIMIT, BLACK, Mark::Line, points)
    }
}

/// How the limit is called in each legend.
pub(super) const LIMIT: &str = "physical limit";
/// Ink: what is white on dark paper.
pub(super) const BLACK: RGBColor = RGBColor(0, 0, 0);
/// Colours that differ for most eyes (Okabe and Ito); black is kept for the limit.
pub(super) const WARM: [RGBColor; 5] = [
    RGBColor(213, 94, 0),
    RGBColor(230, 159, 0),
    RGBColor(204, 121, 167),
    RGBColor(128, 128, 128),
    RGBColor(170, 120, 80),
];
/// For Farlink's own.
pub(super) const COOL: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(86, 180, 233),
    RGBColor(120, 94, 240),
    RGBColor(60, 190, 170),
    RGBColor(150, 180, 60),
];

/// A plot.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Figure {
    /// What is shown, under which conditions.
    pub(super) title: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) series: Vec<Series>,
    /// From where to where along `x` something held, as the remark says.
    pub(super) shaded: Vec<(f64, f64)>,
    /// A sentence on how to read it.
    pub(super) remark: String,
}

/// A map of colours.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct HeatMap {
    pub(super) title: String,
    pub(super) x: (String, Vec<String>),
    pub(super) y: (String, Vec<String>),
    /// By row of `y`, then column of `x`: time over limit.
    pub(super) ratios: Vec<Vec<Option<f64>>>,
    pub(super) remark: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_ticks_inside_their_ends() {
        let axis = Axis::from_zero("time, s", [0.3, 13.8].into_iter(), |v| format!("{v}"));
        assert_eq!(axis.ticks.iter().map(|t| t.1.as_str()).collect::<Vec<_>>(), ["0", "5", "10"]);
        let axis = Axis::log("size", [10_240.0, 10_240_000.0].into_iter(), |v| format!("{v}"));
        let texts: Vec<_> = axis.ticks.iter().map(|t| t.1.as_str()).collect();
        assert_eq!(texts, ["10000", "100000", "1000000", "10000000"]);
        assert!(axis.ticks.iter().all(|(at, _)| *at >= axis.ends.0 && *at <= axis.ends.1));
    }

    #[test]
    fn zero_stands_apart_on_a_logarithmic_axis() {
        let axis = Axis::log("loss", [0.0, 0.001, 0.05].into_iter(), |v| format!("{v}"));
        assert!(axis.place(0.0) < axis.place(0.001) - 0.29);
        assert_eq!(axis.word(axis.place(0.0)), "0");
        assert!(axis.place(0.0) > axis.ends.0);
    }

    #[test]
    fn one_value_or_none_makes_an_axis_too() {
        for values in [vec![], vec![0.0], vec![7.0]] {
            let linear = Axis::from_zero("a", values.iter().copied(), |v| format!("{v}"));
            let log = Axis::log("a", values.iter().copied(), |v| format!("{v}"));
            for axis in [linear, log] {
                assert!(axis.ends.0 < axis.ends.1 && axis.ends.1.is_finite(), "{axis:?}");
            }
        }
    }
}
