//! The documents are read by strangers: one thought a sentence, and nothing cited that is not in
//! the repository.

use std::path::{Path, PathBuf};

/// A sentence of more words is read twice.
const WORDS_MAX: usize = 30;
/// Of a hundred sentences of a document, so many may be longer all the same.
const LONG_MAX_PERCENT: usize = 12;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// Every document but the change log, with its text.
fn documents() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for directory in ["", "docs"] {
        for entry in std::fs::read_dir(root().join(directory)).unwrap().map(Result::unwrap) {
            let name = entry.file_name().into_string().unwrap();
            if name.ends_with(".md") && name != "CHANGELOG.md" {
                found.push((name, std::fs::read_to_string(entry.path()).unwrap()));
            }
        }
    }
    found.sort();
    found
}

/// How many words each sentence has. Code, tables, headings and pictures are no sentences.
fn words_of_sentences(text: &str) -> Vec<usize> {
    let mut counts = Vec::new();
    let mut words = 0;
    let mut is_code = false;
    let mut end = |words: &mut usize| {
        if *words > 1 {
            counts.push(*words);
        }
        *words = 0;
    };
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with("```") {
            is_code = !is_code;
        }
        if line.is_empty() || is_code || line.starts_with(['|', '#', '!']) || line.starts_with("```") {
            end(&mut words);
            continue;
        }
        if line.starts_with("- ")
            || line.starts_with("* ")
            || line.split_once(". ").is_some_and(|(n, _)| n.parse::<u8>().is_ok())
        {
            end(&mut words);
        }
        let mut is_quoted = false;
        for word in line.split_whitespace() {
            let was_quoted = is_quoted;
            is_quoted ^= word.matches('`').count() % 2 == 1;
            // What stands in quotes is one word, however long it is.
            words += usize::from(!was_quoted && word.contains(char::is_alphanumeric));
            if !is_quoted && word.trim_end_matches(['*', ')', '"', '`']).ends_with(['.', '?', '!', ':', ';'])
            {
                end(&mut words);
            }
        }
    }
    end(&mut words);
    counts
}

#[test]
fn sentences_are_short() {
    let mut complaints = Vec::new();
    for (name, text) in documents() {
        let counts = words_of_sentences(&text);
        let long = counts.iter().filter(|n| **n > WORDS_MAX).count();
        if long * 100 > counts.len() * LONG_MAX_PERCENT {
            complaints.push(format!(
                "{name}: {long} of {} sentences have more than {WORDS_MAX} words",
                counts.len()
            ));
        }
    }
    assert!(complaints.is_empty(), "one thought a sentence:\n  {}", complaints.join("\n  "));
}

#[test]
fn documents_name_only_documents_that_exist() {
    let mut complaints = Vec::new();
    for (name, text) in documents() {
        let words = text.split(|c: char| c.is_whitespace() || "()`,|\"".contains(c));
        for word in words.filter(|w| w.ends_with(".md")) {
            let exists = [word.to_owned(), format!("docs/{word}")].iter().any(|p| root().join(p).exists());
            if !exists {
                complaints.push(format!("{name} names {word}"));
            }
        }
    }
    assert!(complaints.is_empty(), "documents that do not exist:\n  {}", complaints.join("\n  "));
}

#[test]
fn sentences_are_counted_as_a_reader_does() {
    let text = "# Heading\n\nOne two three. Four `five six` seven:\n\n```\nno code here at all\n```\n- eight nine\n- ten eleven twelve\n";
    assert_eq!(words_of_sentences(text), [3, 3, 2, 3]);
}
