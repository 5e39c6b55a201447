//! The page: one HTML file with everything in it, for light and dark screens, that asks nothing of
//! a network.

use super::words::escaped;

/// The style sheet. Plots are drawn in ink on paper; on dark screens ink and paper change places.
const STYLE: &str = "
:root { --paper: #ffffff; --ink: #16191d; --muted: #5b6470; --line: #d9dde2; --shade: #f4f6f8; --near: #dff3e4; --bad: #b3261e;
  --grid: #dddddd; --link: #0b5cad; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #14171b; --ink: #e8eaed; --muted: #a0a8b2; --line: #363c44; --shade: #1c2026; --near: #17381f; --bad: #ff8a80;
    --grid: #30363d; --link: #7ab8ff; }
}
body { margin: 0 auto; max-width: 1180px; padding: 1.2rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.7rem; } h2 { font-size: 1.35rem; border-bottom: 1px solid var(--line); padding-bottom: .2rem; margin-top: 2.4rem; }
h3 { font-size: 1.08rem; margin-top: 1.6rem; }
a { color: var(--link); }
code, pre { font: 12.5px/1.45 ui-monospace, monospace; background: var(--shade); border-radius: 3px; }
code { padding: .1em .3em; overflow-wrap: anywhere; } pre { padding: .5em .7em; white-space: pre-wrap; overflow-wrap: anywhere; }
figure { margin: 1.6rem 0; } figcaption { color: var(--muted); font-size: 13px; max-width: 860px; }
figcaption b { color: var(--ink); font-size: 15px; }
svg { width: 100%; max-width: 860px; height: auto; display: block; }
svg [fill=\"#000000\"] { fill: var(--ink); } svg [stroke=\"#000000\"] { stroke: var(--ink); }
svg [stroke=\"#DDDDDD\"] { stroke: var(--grid); } svg [stroke=\"#666666\"] { stroke: var(--muted); }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 13px; margin: .8rem 0; }
th, td { border: 1px solid var(--line); padding: .25rem .5rem; text-align: right; vertical-align: top; white-space: nowrap; }
th { background: var(--shade); font-weight: 600; text-align: left; } tr:first-child th { white-space: normal; vertical-align: bottom; text-align: center; }
small { color: var(--muted); } td.near { background: var(--near); } .bad { color: var(--bad); } .remark { color: var(--muted); font-size: 13px; }
details { margin: 1rem 0; } summary { cursor: pointer; color: var(--link); }
";

/// A part of the page.
pub(super) struct Section {
    pub(super) anchor: String,
    pub(super) title: String,
    pub(super) body: String,
}

/// A figure with its caption and the command that made it.
pub(super) fn figure(number: usize, title: &str, remark: &str, command: &str, svg: &str) -> String {
    format!(
        "<figure id=\"figure-{number}\">\n<figcaption><b>Figure {number}. {}</b></figcaption>\n{svg}\n<figcaption>{} Made by \
         <code>{}</code></figcaption>\n</figure>\n",
        escaped(title),
        escaped(remark),
        escaped(command)
    )
}

/// The whole page.
pub(super) fn page(title: &str, intro: &str, sections: &[Section]) -> String {
    let mut contents = String::new();
    let mut bodies = String::new();
    for section in sections {
        let (anchor, name) = (&section.anchor, escaped(&section.title));
        contents += &format!("<li><a href=\"#{anchor}\">{name}</a></li>\n");
        bodies += &format!("<section id=\"{anchor}\">\n<h2>{name}</h2>\n{}</section>\n", section.body);
    }
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, \
         initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n<title>{0}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <h1>{0}</h1>\n{intro}<nav><ol>\n{contents}</ol></nav>\n{bodies}</body>\n</html>\n",
        escaped(title)
    )
}
