//! What is captured at each interface, in each direction, and how that stands: the one state that
//! status, check, metrics and log go by.

use serde::{Deserialize, Serialize};

use super::diagnosis::{Diagnosis, Remedy, Severity};
use crate::bump::Refusal;
use crate::error::Holder;

/// Which way packets pass an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// They come in.
    In,
    /// They leave.
    Out,
}

impl Direction {
    /// Both, in the order in which they are told.
    pub const BOTH: [Self; 2] = [Self::In, Self::Out];
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CaptureState {
    /// It is not there: a finding says why.
    Wanted,
    /// All that it takes is there.
    Attached,
    /// And packets have shown that it sees what passes.
    Proven,
}

/// What is captured at one interface in one direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capture {
    /// The interface, as it is called now.
    pub interface: String,
    /// Which way its packets pass it.
    pub direction: Direction,
    /// How far it is.
    pub state: CaptureState,
}

/// No program stands at an interface, or device, where one is wanted.
pub(crate) fn not_attached(name: &str, refusal: &Refusal) -> Diagnosis {
    let text = &refusal.text;
    let finding = match refusal.holder {
        Some(Holder::IngressQdisc) => Diagnosis::new(
            "ingress-qdisc",
            Severity::Problem,
            format!("{text}: what passes {name} is not diverted. `method = \"auto\"` takes policy routing then, which needs no such place"),
        )
        .mended_by(Remedy::configure("divert.method", "\"auto\"")),
        Some(Holder::Farlink) => Diagnosis::new(
            "other-instance",
            Severity::Problem,
            format!("what passes {name} is not diverted by this gateway: {text}"),
        ),
        None => Diagnosis::new(
            "not-attached",
            Severity::Problem,
            format!("what passes {name} is not diverted, since no program can be put there: {text}. It is tried again"),
        ),
    };
    finding.seen("interface", name)
}

/// Packets pass an interface, and its program sees none of them.
pub(crate) fn not_seen(name: &str, direction: Direction, packets: u64) -> Diagnosis {
    let (way, how) = match direction {
        Direction::In => ("came in by", "in"),
        Direction::Out => ("left by", "out"),
    };
    let text = format!(
        "{packets} packets {way} {name} lately, by its own counters, and the program of the bump there saw none of them, so nothing of that is \
         split: something takes them past the kernel's network stack (an XDP program, an offload of the hardware, a program that sends by itself)"
    );
    Diagnosis::new("not-seen", Severity::Problem, text)
        .seen("interface", name)
        .seen("direction", how)
        .seen("packets", packets)
}
