//! Pages for man(1).

use super::document::{Block, Inline, Line, Page, plain};

/// A page. It has no date: the same program makes the same page.
pub fn render(page: &Page) -> String {
    let Page { name, section, about, blocks } = page;
    let version = env!("CARGO_PKG_VERSION");
    let mut out = format!(
        ".TH {} {section} \"\" \"Farlink {version}\" \"Farlink\"\n.SH NAME\n{} \\- {}\n",
        name.to_uppercase(),
        text(name),
        text(about)
    );
    put(&mut out, blocks);
    out
}

fn put(out: &mut String, blocks: &[Block]) {
    let mut is_first = true;
    for block in blocks {
        match block {
            Block::Heading { text: said, is_inner: false } => {
                out.push_str(&format!(".SH {}\n", text(&plain(said).to_uppercase())));
            }
            Block::Heading { text: said, is_inner: true } => {
                out.push_str(&format!(".SS {}\n", text(&plain(said))));
            }
            Block::Paragraph(said) => {
                // Behind a heading or the name of an item it begins by itself.
                if !is_first {
                    out.push_str(".PP\n");
                }
                put_line(out, said);
            }
            Block::Code(code) => put_code(out, code, is_first),
            Block::Items(items) => {
                for item in items {
                    out.push_str(".IP \\(bu 3\n");
                    put_inside(out, item);
                }
            }
            Block::Terms(terms) => terms.iter().for_each(|(term, blocks)| put_term(out, term, blocks)),
            Block::Table(rows) => put_rows(out, rows),
        }
        is_first = matches!(block, Block::Heading { .. });
    }
}

/// Lines that keep their form, indented.
fn put_code(out: &mut String, code: &str, is_first: bool) {
    out.push_str(if is_first { ".RS 4\n.nf\n" } else { ".PP\n.RS 4\n.nf\n" });
    for line in code.lines() {
        // A line that is empty would be a paragraph.
        out.push_str(if line.is_empty() { "\\&" } else { "" });
        out.push_str(&guarded(&text(line).replace('-', "\\-")));
        out.push('\n');
    }
    out.push_str(".fi\n.RE\n");
}

fn put_term(out: &mut String, term: &Line, blocks: &[Block]) {
    out.push_str(".TP\n");
    put_line(out, term);
    put_inside(out, blocks);
}

/// A row is a term; what its other cells say stands below it.
fn put_rows(out: &mut String, rows: &[Vec<Line>]) {
    let Some((_, rows)) = rows.split_first() else { return };
    for row in rows {
        let Some((first, rest)) = row.split_first() else { continue };
        let mut said = Line::new();
        for cell in rest.iter().filter(|cell| !cell.is_empty()) {
            if !said.is_empty() {
                said.push(Inline::Text("; ".to_owned()));
            }
            said.extend(cell.iter().cloned());
        }
        put_term(out, first, &[Block::Paragraph(said)]);
    }
}

/// What belongs to an item: its first paragraph stands beside it, the rest below.
fn put_inside(out: &mut String, blocks: &[Block]) {
    let Some((first, rest)) = blocks.split_first() else { return };
    match first {
        Block::Paragraph(said) => put_line(out, said),
        other => put(out, std::slice::from_ref(other)),
    }
    if !rest.is_empty() {
        out.push_str(".RS\n");
        put(out, rest);
        out.push_str(".RE\n");
    }
}

fn put_line(out: &mut String, said: &Line) {
    let mut line = String::new();
    for part in said {
        match part {
            Inline::Text(t) => line.push_str(&text(t)),
            Inline::Code(t) | Inline::Strong(t) => {
                line.push_str(&format!("\\fB{}\\fR", text(t).replace('-', "\\-")));
            }
            Inline::Variable(t) => line.push_str(&format!("\\fI{}\\fR", text(t))),
            Inline::Page(t, Some(to)) if to.contains("://") => {
                line.push_str(&format!("{} ({})", text(t), text(to)));
            }
            Inline::Page(t, _) => line.push_str(&format!("\\fB{}\\fR", text(t).replace('-', "\\-"))),
        }
    }
    // One sentence, one line: nothing is cut at the edge of an editor, and changes are small.
    let line = line.replace(". ", ".\n");
    for sentence in line.lines() {
        out.push_str(&guarded(sentence.trim()));
        out.push('\n');
    }
}

/// Text in which nothing is an escape.
fn text(said: &str) -> String {
    said.replace('\\', "\\e").replace('\'', "\\(aq").replace('`', "\\(ga").replace('"', "\\(dq")
}

/// A line that begins like a request is none.
fn guarded(line: &str) -> String {
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line.to_owned() }
}
