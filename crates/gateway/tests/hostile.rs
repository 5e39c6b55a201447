//! A whole gateway, fed by random bytes and by every input that the fuzzer kept.

mod targets;

use proptest::prelude::*;
use std::path::Path;

#[test]
fn the_corpus_holds() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/gateway");
    let mut files: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 20, "fuzz/corpus/gateway has been lost");
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        let result = std::panic::catch_unwind(|| targets::gateway::run(&bytes));
        assert!(result.is_ok(), "it fails on {}", file.display());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_scripts(data in proptest::collection::vec(any::<u8>(), 0..400)) {
        targets::gateway::run(&data);
    }
}
