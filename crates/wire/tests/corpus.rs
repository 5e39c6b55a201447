//! Every input that the fuzzer kept, replayed.

mod targets;

use std::path::Path;

#[test]
fn the_corpus_holds() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, run) in targets::TARGETS {
        let mut files: Vec<_> =
            std::fs::read_dir(corpus.join(name)).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        assert!(files.len() > 20, "fuzz/corpus/{name} has been lost");
        for file in files {
            let bytes = std::fs::read(&file).unwrap();
            let result = std::panic::catch_unwind(|| run(&bytes));
            assert!(result.is_ok(), "{name} fails on {}", file.display());
        }
    }
}
