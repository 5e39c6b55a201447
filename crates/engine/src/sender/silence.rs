//! Nothing is heard of what was sent: after two timeouts in a row a segment at a time asks for the receiver.

/// Timeouts in a row after which no more is sent than one segment each, whatever the controller would allow.
const ASK_AFTER: u32 = 2;

/// How long nothing has been heard of what was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Silence {
    /// Timeouts since the receiver acknowledged anything.
    pub timeouts: u32,
    /// What has been sent since the last one.
    pub asked_bytes: u32,
}

impl Silence {
    /// The receiver, or the way there, may be gone: a segment asks for it. A controller without a window of its own would send
    /// all there is at every timeout, and a link would carry nothing but repetitions for hosts that are off.
    pub fn asks(&self) -> bool {
        self.timeouts >= ASK_AFTER
    }
    /// It has been asked, and nothing else is sent before the answer or the next timeout.
    pub fn waits(&self, mss: u32) -> bool {
        self.asks() && self.asked_bytes >= mss
    }
}
