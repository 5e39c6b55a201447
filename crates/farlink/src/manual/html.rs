//! Pages for a browser. They ask nothing of a network.

use super::document::{Block, Inline, Line, Page, plain};

const STYLE: &str = "body{max-width:50em;margin:2em auto;padding:0 1em;font:16px/1.5 sans-serif;color:#222;background:#fff}\
h1,h2,h3{line-height:1.2}h2{border-bottom:1px solid #ccc;margin-top:2em}code,pre{font-family:monospace;background:#f4f4f4}\
pre{padding:.7em;overflow:auto}table{border-collapse:collapse}th,td{border:1px solid #ccc;padding:.2em .6em;text-align:left;\
vertical-align:top}dt{font-weight:bold;margin-top:.6em}\
@media(prefers-color-scheme:dark){body{color:#ddd;background:#1b1b1b}code,pre{background:#2a2a2a}a{color:#8ab4f8}}";

/// A page.
pub fn render(page: &Page) -> String {
    let mut body = String::new();
    put(&mut body, &page.blocks);
    let title = format!("{}({})", page.name, page.section);
    whole(&title, &format!("<h1>{}</h1>\n<p>{}</p>\n{body}", escaped(&title), escaped(&page.about)))
}

/// The list of all pages.
pub fn index(pages: &[Page]) -> String {
    let one = |page: &Page| {
        let title = format!("{}({})", page.name, page.section);
        let [title, about] = [&title, &page.about].map(|text| escaped(text));
        format!("<dt><a href=\"{}.html\">{title}</a></dt><dd>{about}</dd>\n", page.file())
    };
    let all: String = pages.iter().map(one).collect();
    whole("Farlink", &format!("<h1>Farlink {}</h1>\n<dl>\n{all}</dl>\n", env!("CARGO_PKG_VERSION")))
}

fn whole(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{}</title><style>{STYLE}</style></head><body>\n\
         {body}</body></html>\n",
        escaped(title)
    )
}

fn put(out: &mut String, blocks: &[Block]) {
    for block in blocks {
        match block {
            Block::Heading { text, is_inner } => {
                let level = if *is_inner { 3 } else { 2 };
                let (id, text) = (anchor(&plain(text)), line(text));
                out.push_str(&format!("<h{level} id=\"{id}\">{text}</h{level}>\n"));
            }
            Block::Paragraph(said) => out.push_str(&format!("<p>{}</p>\n", line(said))),
            Block::Code(code) => out.push_str(&format!("<pre>{}</pre>\n", escaped(code))),
            Block::Items(items) => {
                out.push_str("<ul>\n");
                for item in items {
                    out.push_str("<li>");
                    put_inside(out, item);
                    out.push_str("</li>\n");
                }
                out.push_str("</ul>\n");
            }
            Block::Terms(terms) => {
                out.push_str("<dl>\n");
                for (term, blocks) in terms {
                    out.push_str(&format!("<dt>{}</dt><dd>", line(term)));
                    put_inside(out, blocks);
                    out.push_str("</dd>\n");
                }
                out.push_str("</dl>\n");
            }
            Block::Table(rows) => put_table(out, rows),
        }
    }
}

/// What belongs to an item: a paragraph alone is its text.
fn put_inside(out: &mut String, blocks: &[Block]) {
    match blocks {
        [Block::Paragraph(said)] => out.push_str(&line(said)),
        _ => put(out, blocks),
    }
}

fn put_table(out: &mut String, rows: &[Vec<Line>]) {
    out.push_str("<table>\n");
    for (n, row) in rows.iter().enumerate() {
        let cell = if n == 0 { "th" } else { "td" };
        let cells: String = row.iter().map(|said| format!("<{cell}>{}</{cell}>", line(said))).collect();
        out.push_str(&format!("<tr>{cells}</tr>\n"));
    }
    out.push_str("</table>\n");
}

fn line(said: &Line) -> String {
    let one = |part: &Inline| match part {
        Inline::Text(t) => escaped(t),
        Inline::Code(t) => format!("<code>{}</code>", escaped(t)),
        Inline::Strong(t) => format!("<strong>{}</strong>", escaped(t)),
        Inline::Variable(t) => format!("<var>{}</var>", escaped(t)),
        Inline::Page(t, None) => escaped(t),
        Inline::Page(t, Some(to)) if to.contains("://") => {
            format!("<a href=\"{}\">{}</a>", escaped(to), escaped(t))
        }
        Inline::Page(t, Some(to)) => format!("<a href=\"{}.html\">{}</a>", escaped(to), escaped(t)),
    };
    said.iter().map(one).collect()
}

/// A name for a place in a page.
fn anchor(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c.to_ascii_lowercase() } else { '-' };
    let name: String = text.chars().map(plain).collect();
    name.trim_matches('-').to_owned()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
