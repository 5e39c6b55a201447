//! A document of the project as a page: of Markdown what these documents use.

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use super::document::{Block, Inline, Line, Page};

/// Reads a document. Its title, and what stands before the first section, become the description.
pub fn page(name: &str, section: u8, about: &str, text: &str) -> Page {
    let mut events = Parser::new_ext(text, Options::ENABLE_TABLES).peekable();
    let mut blocks = vec![Block::section("DESCRIPTION")];
    let mut read = blocks_until(&mut events, None);
    if matches!(read.first(), Some(Block::Heading { .. })) {
        read.remove(0);
    }
    blocks.append(&mut read);
    Page { name: name.to_owned(), section, about: about.to_owned(), blocks }
}

type Events<'a> = std::iter::Peekable<Parser<'a>>;

/// Blocks until this ends, whose end is taken, too.
fn blocks_until(events: &mut Events<'_>, end: Option<TagEnd>) -> Vec<Block> {
    let mut blocks = Vec::new();
    while let Some(event) = events.peek() {
        match event {
            Event::End(tag) if Some(*tag) == end => {
                events.next();
                break;
            }
            // An item of a list without blank lines has text and no paragraph.
            Event::Text(_) | Event::Code(_) | Event::SoftBreak | Event::HardBreak => {
                blocks.push(Block::Paragraph(line(events)));
            }
            Event::Start(Tag::Strong | Tag::Emphasis | Tag::Link { .. }) => {
                blocks.push(Block::Paragraph(line(events)));
            }
            Event::Start(_) => {
                let Some(Event::Start(tag)) = events.next() else { break };
                blocks.extend(block(events, &tag));
            }
            _ => _ = events.next(),
        }
    }
    blocks
}

/// What begins with this tag, to its end.
fn block(events: &mut Events<'_>, tag: &Tag<'_>) -> Option<Block> {
    let end = tag.to_end();
    match tag {
        Tag::Paragraph => Some(Block::Paragraph(line_until(events, end))),
        Tag::Heading { level, .. } => {
            let is_inner = *level > HeadingLevel::H2;
            Some(Block::Heading { text: line_until(events, end), is_inner })
        }
        Tag::CodeBlock(_) => {
            let mut code = String::new();
            for event in events.take_while(|event| !matches!(event, Event::End(e) if *e == end)) {
                if let Event::Text(text) = event {
                    code.push_str(&text);
                }
            }
            Some(Block::Code(code.trim_end().to_owned()))
        }
        Tag::List(_) => {
            let mut items = Vec::new();
            while let Some(event) = events.next() {
                match event {
                    Event::Start(Tag::Item) => items.push(blocks_until(events, Some(TagEnd::Item))),
                    Event::End(e) if e == end => break,
                    _ => {}
                }
            }
            Some(Block::Items(items))
        }
        Tag::Table(_) => {
            let mut rows = Vec::new();
            while let Some(event) = events.next() {
                match event {
                    Event::Start(Tag::TableHead | Tag::TableRow) => rows.push(Vec::new()),
                    Event::Start(Tag::TableCell) => {
                        let cell = line_until(events, TagEnd::TableCell);
                        rows.last_mut()?.push(cell);
                    }
                    Event::End(e) if e == end => break,
                    _ => {}
                }
            }
            Some(Block::Table(rows))
        }
        _ => {
            blocks_until(events, Some(end));
            None
        }
    }
}

fn line_until(events: &mut Events<'_>, end: TagEnd) -> Line {
    let said = line(events);
    events.next_if(|event| matches!(event, Event::End(e) if *e == end));
    said
}

/// Text until something else comes.
fn line(events: &mut Events<'_>) -> Line {
    let mut said = Line::new();
    while let Some(event) = events.next_if(|e| {
        matches!(e, Event::Text(_) | Event::Code(_) | Event::SoftBreak | Event::HardBreak)
            || matches!(e, Event::Start(Tag::Strong | Tag::Emphasis | Tag::Link { .. }))
    }) {
        match event {
            Event::Text(text) => said.push(Inline::Text(text.into_string())),
            Event::Code(code) => said.push(Inline::Code(code.into_string())),
            Event::Start(tag) => {
                let inner = super::document::plain(&line_until(events, tag.to_end()));
                said.push(match tag {
                    Tag::Link { dest_url, .. } => link(inner, &dest_url),
                    Tag::Emphasis => Inline::Variable(inner),
                    _ => Inline::Strong(inner),
                });
            }
            _ => said.push(Inline::Text(" ".to_owned())),
        }
    }
    said
}

/// Another document is none of these pages: its name stands in the text.
fn link(text: String, to: &str) -> Inline {
    match to.contains("://") {
        true => Inline::Page(text, Some(to.to_owned())),
        false if to.starts_with('#') => Inline::Text(text),
        false => Inline::Text(format!("{text} (docs/{to})")),
    }
}
