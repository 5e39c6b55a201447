//! What has left, as it counts: for the whole engine, for the link, and for the connection.

use farlink_wire::WireSize;

use crate::cx::Cx;
use crate::net::Way;
use crate::sender::{Plan, Purpose, Sender};
use crate::spent::{Heading, Spent};

/// A segment of this plan has left, or without one an acknowledgement.
pub fn count_sent(cx: &mut Cx<'_>, out: Way, tx: &mut Sender, plan: Option<&Plan>, size: WireSize) {
    let (heading, payload_bytes) = plan.map_or((Heading::Ack, 0), |p| (heading(p.purpose), p.len));
    note(cx, out, heading, payload_bytes, size);
    tx.note_spent(heading, payload_bytes, size);
    let counters = &mut *cx.counters;
    let Some(p) = plan else {
        counters.acks_out += u64::from(size.packets);
        counters.ack_bytes_out += u64::from(size.bytes);
        return;
    };
    counters.payload_out_bytes += u64::from(p.len);
    match p.purpose {
        Purpose::Retransmit => counters.retransmitted_bytes += u64::from(p.len),
        Purpose::TailProbe => {
            counters.tail_loss_probes += 1;
            counters.retransmitted_bytes += u64::from(p.len);
        }
        Purpose::Early => {
            counters.count_copy(p.len, size.bytes);
            if let Some(link) = cx.links.get_mut(out) {
                link.note_copy(cx.now, size.bytes);
            }
        }
        Purpose::SizeProbe => counters.count_copy(p.len, size.bytes),
        Purpose::WindowProbe => counters.zero_window_probes += 1,
        Purpose::New => {}
    }
}

/// A segment that belongs to no relay has left: a reset, a question.
pub fn count_bare(cx: &mut Cx<'_>, out: Way, size: WireSize) {
    note(cx, out, Heading::Probe, 0, size);
}

fn note(cx: &mut Cx<'_>, out: Way, heading: Heading, payload_bytes: u32, size: WireSize) {
    if let Some(spent) = cx.links.get_mut(out).map(|link| link.spent_mut()) {
        spent.note(heading, payload_bytes, size);
    }
}

fn heading(purpose: Purpose) -> Heading {
    match purpose {
        Purpose::New => Heading::New,
        Purpose::Retransmit | Purpose::TailProbe => Heading::Again,
        Purpose::Early | Purpose::SizeProbe => Heading::Copy,
        Purpose::WindowProbe => Heading::Probe,
    }
}

/// The other end of a way tells that so much of what this sender has sent came twice.
pub fn count_needless(cx: &mut Cx<'_>, out: Way, tx: &mut Sender, bytes: u64) {
    let bytes = tx.note_needless(bytes);
    cx.counters.needless_bytes += bytes;
    if let Some(link) = cx.links.get_mut(out) {
        let _: u64 = Spent::note_needless(link.spent_mut(), bytes);
    }
}
