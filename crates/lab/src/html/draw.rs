//! Figures as SVG, with plotters. The page's style sheet turns ink and paper over for dark screens.

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::figure::{Axis, BLACK, Figure, HeatMap, LIMIT, Mark, Series};
use super::words::short;

/// Pixels of a plot, legend included.
const WIDTH: u32 = 860;
const HEIGHT: u32 = 430;
/// Of the legend, at the right.
const LEGEND_WIDTH: u32 = 232;
/// Characters of a legend's line.
const LEGEND_CHARS: usize = 29;
/// Points of a series that are drawn; more are thinned out.
const POINTS_MAX: usize = 4_000;
const GRID: RGBColor = RGBColor(221, 221, 221);
/// What holds in a part of the plot: a tint that grid and lines show through, in both lights.
const SHADE: RGBColor = RGBColor(86, 180, 233);
const SHADE_SHARE: f64 = 0.18;
const MUTED: RGBColor = RGBColor(102, 102, 102);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// A figure as an SVG element.
pub(super) fn figure(figure: &Figure) -> Result<String> {
    svg(&figure.title, HEIGHT, |root| {
        let (plot, legend) = root.split_horizontally(WIDTH - LEGEND_WIDTH);
        chart(&plot, figure)?;
        draw_legend(&legend, &figure.series)
    })
}

/// A heat map as an SVG element.
pub(super) fn heat_map(map: &HeatMap) -> Result<String> {
    let height = 150 + 34 * u32::try_from(map.y.1.len()).unwrap_or(0).min(40);
    svg(&map.title, height, |root| {
        let (plot, legend) = root.split_horizontally(WIDTH - 130);
        heat(&plot, map)?;
        colour_bar(&legend)
    })
}

fn svg(title: &str, height: u32, draw: impl FnOnce(&Area<'_>) -> Drawn) -> Result<String> {
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
        draw(&root).map_err(|e| anyhow!("{title}: {e}"))?;
        root.present().map_err(|e| anyhow!("{title}: {e}"))?;
    }
    // Everything that is said ten thousand times is said shorter, and no line ends with white
    // space.
    let text = text
        .replace(" font-family=\"sans-serif\"", "")
        .replace(" opacity=\"1\"", "")
        .replace(" stroke-width=\"1\"", "")
        .replace(">\n", ">")
        .replace("\n</text>", "</text>");
    let start = text.find("<svg").unwrap_or(0);
    let body = text.get(start..).unwrap_or_default().split_once('>').map_or("", |(_, body)| body);
    let name = super::words::escaped(title);
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" role=\"img\" \
         aria-label=\"{name}\">\n{body}"
    ))
}

/// A drawing as a file of its own: on white, with its title above and the command that made it
/// below.
pub(super) fn alone(svg: &str, title: &str, command: &str) -> String {
    let body = svg.split_once(">\n").map_or("", |(_, body)| body).trim_end().trim_end_matches("</svg>");
    let height = svg
        .split("viewBox=\"0 0 ")
        .nth(1)
        .and_then(|v| v.split([' ', '"']).nth(1)?.parse().ok())
        .unwrap_or(HEIGHT);
    let lines = wrapped(&format!("Made by: {command}"), 124);
    let below: String = (0..)
        .zip(&lines)
        .map(|(n, line)| {
            let y = height + 44 + 15 * n;
            format!(
                "<text x=\"12\" y=\"{y}\" font-size=\"11\" fill=\"#666666\">{}</text>\n",
                super::words::escaped(line)
            )
        })
        .collect();
    let total = height + 56 + 15 * lines.len() as u32;
    let name = super::words::escaped(title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {total}\" width=\"{WIDTH}\" height=\"{total}\" \
         font-family=\"sans-serif\">\n<title>{name}</title>\n<rect width=\"{WIDTH}\" height=\"{total}\" fill=\"#FFFFFF\"/>\n\
         <text x=\"{}\" y=\"22\" font-size=\"15\" font-weight=\"bold\" text-anchor=\"middle\">{name}</text>\n\
         <g transform=\"translate(0 28)\">\n{body}</g>\n{below}</svg>\n",
        WIDTH / 2
    )
}

/// Plain text of this size.
fn style(size: i32, colour: RGBColor, h: HPos, v: VPos) -> TextStyle<'static> {
    // The backend divides font sizes by 1.24.
    ("sans-serif", f64::from(size) * 1.24).into_font().color(&colour).pos(Pos::new(h, v))
}

fn chart(area: &Area<'_>, figure: &Figure) -> Drawn {
    let (x, y) = (&figure.x, &figure.y);
    let mut chart = ChartBuilder::on(area)
        .margin_top(14)
        .margin_right(16)
        .margin_left(8)
        .x_label_area_size(46)
        .y_label_area_size(70)
        .build_cartesian_2d(Places(x), Places(y))?;
    chart
        .configure_mesh()
        .x_desc(x.title.as_str())
        .y_desc(y.title.as_str())
        .x_label_formatter(&|v| x.word(*v))
        .y_label_formatter(&|v| y.word(*v))
        .label_style(style(12, BLACK, HPos::Center, VPos::Center))
        .axis_desc_style(style(13, BLACK, HPos::Center, VPos::Center))
        .bold_line_style(GRID)
        .axis_style(MUTED)
        .draw()?;
    chart.draw_series(figure.shaded.iter().map(|(from, to)| {
        let corners = [(x.place(*from), y.ends.0), (x.place(*to), y.ends.1)];
        Rectangle::new(corners, SHADE.mix(SHADE_SHARE).filled())
    }))?;
    for series in &figure.series {
        let width = width_of(series);
        let points: Vec<(f64, f64)> = thinned(&series.points)
            .map(|(a, b)| (x.place(a), y.place(b).clamp(y.ends.0, y.ends.1)))
            .collect();
        let (colour, dots) = (series.colour, points.clone());
        match series.mark {
            Mark::Line | Mark::Dotted => {
                chart.draw_series(LineSeries::new(points, colour.stroke_width(width)))?;
            }
            Mark::Dashed => {
                chart.draw_series(DashedLineSeries::new(points, 6, 4, colour.stroke_width(2)))?;
            }
            Mark::Dots => {
                chart.draw_series(points.into_iter().map(|p| Circle::new(p, 1, colour.filled())))?;
            }
            Mark::Bold => {
                chart.draw_series(points.into_iter().map(|p| Circle::new(p, 3, colour.filled())))?;
            }
            Mark::Paper => {
                for at in points.iter().map(|p| chart.backend_coord(p)) {
                    area.draw(&diamond(at, colour))?;
                }
            }
        }
        if series.mark == Mark::Dotted {
            chart.draw_series(dots.into_iter().map(|p| Circle::new(p, 3, colour.filled())))?;
        }
        for ((a, b), d) in series.points.iter().zip(&series.deviations) {
            let ends = [(x.place(*a), y.place((b - d).max(0.0))), (x.place(*a), y.place(b + d))];
            chart.draw_series(LineSeries::new(ends, colour.stroke_width(1)))?;
        }
    }
    Ok(())
}

/// An axis as plotters wants it: linear, with our own ticks.
struct Places<'a>(&'a Axis);

impl Ranged for Places<'_> {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let (low, high) = self.0.ends;
        let share = (value - low) / (high - low);
        limit.0 + (f64::from(limit.1 - limit.0) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() {
            Vec::new()
        } else {
            self.0.ticks.iter().map(|t| t.0).collect()
        }
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.0.ends.0..self.0.ends.1
    }
}

/// Every n-th of too many points, the last one always.
fn thinned(points: &[(f64, f64)]) -> impl Iterator<Item = (f64, f64)> {
    let step = points.len().div_ceil(POINTS_MAX).max(1);
    let last = points.len().saturating_sub(1);
    points.iter().enumerate().filter(move |(n, _)| n % step == 0 || *n == last).map(|(_, p)| *p)
}

/// Pixels of a line. The limit is drawn first and stands out behind what reaches it.
fn width_of(series: &Series) -> u32 {
    if series.name == LIMIT { 5 } else { 2 }
}

/// A hollow diamond around a pixel.
fn diamond((x, y): (i32, i32), colour: RGBColor) -> PathElement<(i32, i32)> {
    PathElement::new(vec![(x - 5, y), (x, y - 5), (x + 5, y), (x, y + 5), (x - 5, y)], colour.stroke_width(2))
}

/// One entry below the other, in a column of its own, so that it hides nothing.
fn draw_legend(area: &Area<'_>, series: &[Series]) -> Drawn {
    let mut y = 24;
    for series in series {
        let colour = series.colour;
        let wide = width_of(series);
        let line = |from: i32, to: i32| PathElement::new(vec![(from, y), (to, y)], colour.stroke_width(wide));
        match series.mark {
            Mark::Line => area.draw(&line(4, 28))?,
            Mark::Dashed => {
                area.draw(&line(4, 12))?;
                area.draw(&line(18, 26))?;
            }
            Mark::Dotted => {
                area.draw(&line(4, 28))?;
                area.draw(&Circle::new((16, y), 3, colour.filled()))?;
            }
            Mark::Dots => {
                for x in [8, 16, 24] {
                    area.draw(&Circle::new((x, y), 1, colour.filled()))?;
                }
            }
            Mark::Bold => area.draw(&Circle::new((16, y), 3, colour.filled()))?,
            Mark::Paper => area.draw(&diamond((16, y), colour))?,
        }
        for line in wrapped(&series.name, LEGEND_CHARS) {
            area.draw(&Text::new(line, (36, y), style(12, BLACK, HPos::Left, VPos::Center)))?;
            y += 15;
        }
        y += 6;
    }
    Ok(())
}

/// Lines of at most so many characters, broken between words.
pub(super) fn wrapped(text: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut().filter(|l| l.chars().count() + 1 + word.chars().count() <= most) {
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.into()),
        }
    }
    lines
}

/// The colour of a time over limit: blue at the limit, yellow at twice, red from ten times on.
fn heat_colour(ratio: f64) -> RGBColor {
    const STOPS: [(f64, (f64, f64, f64)); 5] = [
        (0.0, (33.0, 102.0, 172.0)),
        (0.15, (103.0, 169.0, 207.0)),
        (0.35, (247.0, 220.0, 130.0)),
        (0.7, (239.0, 138.0, 98.0)),
        (1.0, (178.0, 24.0, 43.0)),
    ];
    let at = ratio.max(1.0).log10().min(1.0);
    let upper = STOPS.iter().position(|s| s.0 >= at).unwrap_or(STOPS.len() - 1).max(1);
    let ((a, from), (b, to)) = (STOPS[upper - 1], STOPS[upper]);
    let share = ((at - a) / (b - a)).clamp(0.0, 1.0);
    let mix = |x: f64, y: f64| (x + (y - x) * share).round() as u8;
    RGBColor(mix(from.0, to.0), mix(from.1, to.1), mix(from.2, to.2))
}

/// Text that can be read on a colour, in both lights: it is not ink, which turns.
fn text_on(colour: RGBColor) -> RGBColor {
    let light = 0.3 * f64::from(colour.0) + 0.6 * f64::from(colour.1) + 0.1 * f64::from(colour.2);
    if light > 140.0 { RGBColor(17, 17, 17) } else { RGBColor(250, 250, 250) }
}

fn heat(area: &Area<'_>, map: &HeatMap) -> Drawn {
    let (width, height) = area.dim_in_pixel();
    let (columns, rows) = (map.x.1.len().max(1) as i32, map.y.1.len().max(1) as i32);
    let (left, top, right, bottom) = (96, 14, width as i32 - 10, height as i32 - 62);
    let x = |column: i32| left + (right - left) * column / columns;
    let y = |row: i32| top + (bottom - top) * row / rows;
    let label = |text: &str, at: (i32, i32), h: HPos| {
        area.draw(&Text::new(text.to_string(), at, style(12, BLACK, h, VPos::Center)))
    };
    for (row, ratios) in (0..).zip(&map.ratios) {
        for (column, ratio) in (0..).zip(ratios) {
            let Some(ratio) = ratio else { continue };
            let colour = heat_colour(*ratio);
            let corners = [(x(column) + 1, y(row) + 1), (x(column + 1) - 1, y(row + 1) - 1)];
            area.draw(&Rectangle::new(corners, colour.filled()))?;
            let centre = ((x(column) + x(column + 1)) / 2, (y(row) + y(row + 1)) / 2);
            let text = style(if columns > 14 { 9 } else { 12 }, text_on(colour), HPos::Center, VPos::Center);
            area.draw(&Text::new(short(*ratio), centre, text))?;
        }
    }
    for (row, text) in (0..).zip(&map.y.1) {
        label(text, (left - 8, (y(row) + y(row + 1)) / 2), HPos::Right)?;
    }
    for (column, text) in (0..).zip(&map.x.1) {
        label(text, ((x(column) + x(column + 1)) / 2, bottom + 14), HPos::Center)?;
    }
    let title = style(13, BLACK, HPos::Center, VPos::Center);
    area.draw(&Text::new(map.x.0.clone(), ((left + right) / 2, bottom + 40), title.clone()))?;
    let turned = title.transform(FontTransform::Rotate270);
    Ok(area.draw(&Text::new(map.y.0.clone(), (14, (top + bottom) / 2), turned))?)
}

fn colour_bar(area: &Area<'_>) -> Drawn {
    let text = |line: &str, at: (i32, i32)| {
        area.draw(&Text::new(line.to_string(), at, style(12, BLACK, HPos::Left, VPos::Center)))
    };
    text("time over the", (4, 20))?;
    text(LIMIT, (4, 35))?;
    for (n, (ratio, word)) in [
        (1.0, "1: at the limit"),
        (1.15, "1.15"),
        (1.5, "1.5"),
        (2.2, "2.2"),
        (5.0, "5"),
        (10.0, "10 or more"),
    ]
    .into_iter()
    .enumerate()
    {
        let y = 50 + 15 * n as i32;
        area.draw(&Rectangle::new([(4, y), (20, y + 14)], heat_colour(ratio).filled()))?;
        text(word, (26, y + 7))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_go_from_blue_to_red_and_text_on_them_can_be_read() {
        assert_eq!(heat_colour(1.0), RGBColor(33, 102, 172));
        assert_eq!(heat_colour(1e9), RGBColor(178, 24, 43));
        assert_eq!(text_on(heat_colour(2.2)), RGBColor(17, 17, 17));
        assert_eq!(text_on(heat_colour(1.0)), RGBColor(250, 250, 250));
    }

    #[test]
    fn long_names_are_broken_between_words() {
        assert_eq!(wrapped("Farlink, rate unknown, IW 16", 22), ["Farlink, rate unknown,", "IW 16"]);
        assert_eq!(wrapped("", 22), [""]);
    }

    #[test]
    fn many_points_are_thinned_and_the_last_one_stays() {
        let points: Vec<_> = (0..100_001).map(|n| (f64::from(n), 0.0)).collect();
        let drawn: Vec<_> = thinned(&points).collect();
        assert!(drawn.len() <= POINTS_MAX + 1);
        assert_eq!(drawn.last(), Some(&(100_000.0, 0.0)));
    }
}
