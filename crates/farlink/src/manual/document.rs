//! A page as a value: what man pages and HTML pages are made of.

/// A piece of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inline {
    /// As it is.
    Text(String),
    /// What is typed, or stands in a file.
    Code(String),
    /// What matters.
    Strong(String),
    /// What is to be replaced by something.
    Variable(String),
    /// Another page; `None`: what is no page of these, with its name behind it in the text.
    Page(String, Option<String>),
}

/// A paragraph's text.
pub type Line = Vec<Inline>;

/// A part of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// Of a section, or of something within one.
    Heading { text: Line, is_inner: bool },
    /// Text.
    Paragraph(Line),
    /// Lines that keep their form.
    Code(String),
    /// A list; each item has blocks of its own.
    Items(Vec<Vec<Block>>),
    /// What each of these means.
    Terms(Vec<(Line, Vec<Block>)>),
    /// Rows of cells, the first one names the columns.
    Table(Vec<Vec<Line>>),
}

/// A page of the manual.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Such as `farlink-run`.
    pub name: String,
    /// Of the manual: 1 commands, 5 files.
    pub section: u8,
    /// What it is about, in one line.
    pub about: String,
    /// The rest.
    pub blocks: Vec<Block>,
}

impl Page {
    /// Its file, without the ending that says how it is written: `farlink-run.1`.
    pub fn file(&self) -> String {
        format!("{}.{}", self.name, self.section)
    }
}

impl Inline {
    /// Without its form.
    pub fn plain(&self) -> &str {
        match self {
            Self::Text(t) | Self::Code(t) | Self::Strong(t) | Self::Variable(t) | Self::Page(t, _) => t,
        }
    }
}

impl Block {
    /// The heading of a section.
    pub fn section(text: &str) -> Self {
        Self::Heading { text: vec![Inline::Text(text.to_owned())], is_inner: false }
    }
}

/// A text in which code stands between backquotes.
pub fn quoted(text: &str) -> Line {
    let parts = text.split('`').enumerate().filter(|(_, part)| !part.is_empty());
    let one = |(n, part): (usize, &str)| match n % 2 {
        0 => Inline::Text(part.to_owned()),
        _ => Inline::Code(part.to_owned()),
    };
    parts.map(one).collect()
}

/// The same on one line.
pub fn plain(line: &Line) -> String {
    line.iter().map(Inline::plain).collect()
}
