//! Random bytes, random packets and damaged packets through every door of the crate.

mod targets;

use proptest::prelude::*;
use targets::TARGETS;

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parse(data in proptest::collection::vec(any::<u8>(), 0..200)) {
        TARGETS[0].1(&data);
    }

    #[test]
    fn edit(data in proptest::collection::vec(any::<u8>(), 0..200)) {
        TARGETS[1].1(&data);
    }

    #[test]
    fn fragments(data in proptest::collection::vec(any::<u8>(), 0..400)) {
        TARGETS[2].1(&data);
    }

    #[test]
    fn supersegments(data in proptest::collection::vec(any::<u8>(), 0..200)) {
        TARGETS[3].1(&data);
    }
}
