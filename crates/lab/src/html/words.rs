//! Quantities and conditions as people read them.

use serde_json::Value;

use crate::scenario::Params;

/// Three or four significant digits, without trailing zeros after the point.
pub(super) fn short(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { "0".into() } else { "-".into() };
    }
    let digits = value.abs().log10().floor() as i32;
    if !(-4..9).contains(&digits) {
        return exponent(value);
    }
    let decimals = (2 - digits).clamp(0, 7) as usize;
    trimmed(&format!("{value:.decimals$}"))
}

/// `1e-6`.
fn exponent(value: f64) -> String {
    let digits = value.abs().log10().floor();
    let mantissa = trimmed(&format!("{:.2}", value / 10f64.powf(digits)));
    format!("{mantissa}e{digits:.0}")
}

fn trimmed(text: &str) -> String {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text.into() }
}

fn scaled(value: f64, units: [&str; 5]) -> String {
    let mut value = value;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    let decimals = if value >= 100.0 { 1 } else { 3 };
    let digits = trimmed(&format!("{value:.decimals$}"));
    format!("{digits} {}", units[unit])
}

/// `10.24 MB`.
pub(super) fn bytes(value: f64) -> String {
    scaled(value, ["B", "kB", "MB", "GB", "TB"])
}

/// `8 Mbit/s`.
pub(super) fn rate(bps: f64) -> String {
    scaled(bps, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"])
}

/// Seconds with a precision that suits them, without the unit: `0.511`, `13.18`, `589.2`.
pub(super) fn time(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.1}"),
        v if v >= 10.0 => format!("{v:.2}"),
        v => format!("{v:.3}"),
    }
}

/// `1 %`.
pub(super) fn percent(share: f64) -> String {
    format!("{} %", short(share * 100.0))
}

/// A condition in words.
pub(super) fn condition(name: &str, value: &Value) -> String {
    let number = value.as_f64();
    match (name, number) {
        ("rate_bps", Some(0.0)) => "rate unlimited".into(),
        ("rate_bps", Some(n)) => rate(n),
        ("rate_up_bps", Some(n)) => format!("{} up", rate(n)),
        ("rtt_ms", Some(n)) => format!("RTT {} ms", short(n)),
        ("size_bytes", Some(n)) => bytes(n),
        ("ber", Some(0.0)) => "no bit errors".into(),
        ("ber", Some(n)) => format!("BER {}", exponent(n)),
        ("loss", Some(0.0)) => "no loss".into(),
        ("loss", Some(n)) => format!("{} loss", percent(n)),
        ("loss_burst", Some(n)) if n <= 1.0 => "single losses".into(),
        ("loss_burst", Some(n)) => format!("losses in bursts of {} packets", short(n)),
        ("wink_p", Some(0.0)) => "link always there".into(),
        ("wink_p", Some(n)) => format!("link away with p = {}", short(n)),
        ("wink_i_ms", Some(n)) => format!("winks of {} ms", short(n)),
        ("flows", Some(1.0)) => "1 flow".into(),
        ("flows", Some(n)) => format!("{} flows", short(n)),
        ("ip", Some(n)) => format!("IPv{}", short(n)),
        ("direction", _) if value.as_str() == Some("up") => "upload".into(),
        ("direction", _) if value.as_str() == Some("down") => "download".into(),
        _ => format!("{} {}", heading(name), plain(name, value)),
    }
}

/// A condition's value alone, under the heading of its name.
pub(super) fn plain(name: &str, value: &Value) -> String {
    match (name, value) {
        ("rate_bps" | "rate_up_bps", Value::Number(n)) => rate(n.as_f64().unwrap_or(0.0)),
        ("size_bytes", Value::Number(n)) => bytes(n.as_f64().unwrap_or(0.0)),
        ("rtt_ms" | "wink_i_ms", Value::Number(n)) => format!("{} ms", short(n.as_f64().unwrap_or(0.0))),
        ("loss", Value::Number(n)) => percent(n.as_f64().unwrap_or(0.0)),
        ("ber", Value::Number(n)) => match n.as_f64() {
            Some(0.0) | None => "0".into(),
            Some(n) => exponent(n),
        },
        (_, Value::Number(n)) => short(n.as_f64().unwrap_or(0.0)),
        (_, Value::String(text)) => text.clone(),
        (_, other) => other.to_string(),
    }
}

/// A param's name as the heading of a column.
pub(super) fn heading(name: &str) -> String {
    match name {
        "rate_bps" => "rate".into(),
        "rate_up_bps" => "rate up".into(),
        "rtt_ms" => "RTT".into(),
        "size_bytes" => "size".into(),
        "ber" => "BER".into(),
        "wink_p" => "wink p".into(),
        "wink_i_ms" => "wink i".into(),
        other => other
            .trim_end_matches("_bytes")
            .trim_end_matches("_bps")
            .trim_end_matches("_ms")
            .replace('_', " "),
    }
}

/// Conditions in words, in the order in which people think of them.
pub(super) fn conditions(of: &Params) -> String {
    let mut names: Vec<_> = of.keys().collect();
    names.sort_by_key(|n| (super::subjects::order(n), (*n).clone()));
    let words: Vec<_> = names.iter().map(|n| condition(n, &of[*n])).collect();
    words.join(", ")
}

/// A text as a part of a file's name or an anchor.
pub(super) fn slug(text: &str) -> String {
    let mut slug = String::new();
    for c in text.chars().map(|c| c.to_ascii_lowercase()) {
        if c.is_ascii_alphanumeric() {
            slug.push(c);
        } else if !slug.ends_with('-') && !slug.is_empty() {
            slug.push('-');
        }
    }
    slug.trim_end_matches('-').into()
}

/// A text inside HTML.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn quantities_are_short_and_have_units() {
        let all = [short(1.0), short(0.511_3), short(644.22), short(1e-6), short(123_456.0), short(0.0)];
        assert_eq!(all, ["1", "0.511", "644", "1e-6", "123456", "0"]);
        assert_eq!([bytes(10_240_000.0), bytes(100_000.0), bytes(0.0)], ["10.24 MB", "100 kB", "0 B"]);
        assert_eq!(
            [rate(384_000.0), rate(1_536_000.0), rate(1e9)],
            ["384 kbit/s", "1.536 Mbit/s", "1 Gbit/s"]
        );
        assert_eq!([time(0.0123), time(13.844), time(589.21)], ["0.012", "13.84", "589.2"]);
        assert_eq!(condition("loss", &json!(0.01)), "1 % loss");
        assert_eq!(condition("page_shape", &json!("cnn")), "page shape cnn");
        assert_eq!(slug("8 Mbit/s, RTT 500 ms"), "8-mbit-s-rtt-500-ms");
        assert_eq!(escaped("a<b & \"c\""), "a&lt;b &amp; &quot;c&quot;");
    }
}
