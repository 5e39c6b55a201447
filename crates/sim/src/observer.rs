//! Sees every packet on every leg and asserts the invariants (ARCHITECTURE.md): what gateways say
//! in a host's name must be what that host has said.

mod allowances;
mod summary;

use std::collections::BTreeMap;

use farlink_gateway::Record;
use farlink_gateway::config::Notice;
use farlink_wire::{FARLINK_DATA, Flags, Instant, Offload, Parsed, SeqNum, TcpSegment, verify_checksums};

pub use allowances::Allowances;

use crate::display::{self, Origins};
use crate::hostile::Hostile;
use crate::packet::on_wire;
use crate::promised::{Iacks, InCustody, check_blocks, check_promises_nothing, custody_beyond_reach};
use crate::ranges::Ranges;
use crate::reassembly::Reassembly;
use crate::sizes::check_size;
use crate::syns::Syns;
use crate::truth::{Conn, Flow, FlowKey, Said, Truth, flow_of};

/// What one gateway has seen of one direction of a connection since it started.
#[derive(Debug, Default)]
struct Heard {
    /// Payload (and FIN) that arrived, as offsets in the stream.
    bytes: Ranges,
    /// The highest acknowledgement of the *other* stream that this side sent, as an offset.
    acked: Option<u64>,
    /// The same of segments that no other gateway has put its mark on.
    acked_unmarked: u64,
    /// SYNs of this side.
    syns: Syns,
    /// DSCPs and flow labels that arrived.
    labels: Vec<(u8, u32)>,
    /// TSval of the newest segment that the gateway made in this side's name.
    tsval_made: Option<u32>,
    /// The largest window, in bytes, that the gateway has announced in this side's name.
    shown_max: u64,
    /// When the last packet of this side came.
    at: Instant,
    /// The right edge of the window that the gateway announced in this side's name, as an offset in
    /// the other stream.
    edge: Option<u64>,
    /// The newest acknowledgement that left in this side's name with fields of the gateway's, as an
    /// offset in the other stream.
    ack_made: Option<u64>,
}

/// What one gateway has seen.
#[derive(Default)]
struct GatewayView {
    conns: BTreeMap<(FlowKey, usize), [Heard; 2]>,
    /// Newest TSval of each side that arrived, of any incarnation: numbers may not tell them apart.
    tsvals: BTreeMap<FlowKey, [Option<u32>; 2]>,
    /// The least and greatest TTL that arrived, likewise.
    ttls: BTreeMap<FlowKey, [Option<(u8, u8)>; 2]>,
    /// Damaged packets that it was given and has not passed on yet.
    damaged: u64,
    /// Flows that it may reset: those of the records that it was started with.
    may_reset: Vec<FlowKey>,
    /// What has come in fragments.
    came_in_parts: Reassembly,
    /// What has left in fragments, and was not forwarded as it came.
    left_in_parts: Reassembly,
}

/// The observer of one run.
pub struct Observer {
    allowed: Allowances,
    /// Virtual time.
    pub now: Instant,
    /// What the hosts said.
    pub truth: Truth,
    /// Who may say what, and which packets are forged.
    pub hostile: Hostile,
    gateways: BTreeMap<usize, GatewayView>,
    /// Gateways that promise nothing.
    in_custody_mode: BTreeMap<usize, InCustody>,
    /// Intermediate acknowledgements that may come.
    pub iacks: Iacks,
    /// The most bytes that gateways in touch together held beyond the largest window that their
    /// source was shown.
    pub beyond_windows_bytes: u64,
}

type Checked = Result<(), String>;

fn key_of(r: &Record) -> FlowKey {
    if r.a <= r.b { (r.a, r.b) } else { (r.b, r.a) }
}

impl Observer {
    /// An observer that lets pass what `allowed` says.
    #[must_use]
    pub fn new(allowed: Allowances) -> Self {
        Self {
            allowed,
            now: Instant::ZERO,
            truth: Truth::default(),
            hostile: Hostile::default(),
            gateways: BTreeMap::new(),
            in_custody_mode: BTreeMap::new(),
            iacks: Iacks::default(),
            beyond_windows_bytes: 0,
        }
    }

    /// A gateway starts: it knows nothing, but may reset the connections of these records.
    pub fn gateway_started(&mut self, node: usize, records: &[Record]) {
        let view = GatewayView { may_reset: records.iter().map(key_of).collect(), ..GatewayView::default() };
        self.gateways.insert(node, view);
    }

    /// This gateway promises nothing, and tells its sources of outages so.
    pub fn expect_no_promise(&mut self, node: usize, notice: Notice) {
        self.in_custody_mode.insert(node, InCustody::new(notice));
    }

    /// This gateway promises nothing at times, and to some. Then it tells its sources of outages
    /// so.
    pub fn expect_promises_or_none(&mut self, node: usize, notice: Notice) {
        self.in_custody_mode.insert(node, InCustody::at_times(notice));
    }

    /// One of the gateway's links is silent or down, as far as it knows, or none is.
    pub fn note_links(&mut self, node: usize, is_away: bool) {
        if let Some(custody) = self.in_custody_mode.get_mut(&node) {
            custody.note_links(self.now, is_away);
        }
    }

    /// A gateway gave up flows, or was killed with custody of those in `records`: they need not
    /// survive.
    pub fn excuse(&mut self, records: &[Record], why: &'static str) {
        for r in records {
            let Some(flow) = self.truth.flows.get_mut(&key_of(r)) else { continue };
            // The numbers tell which of several connections between these ports it is.
            let (low, high) =
                if r.a <= r.b { (r.acked_by_b, r.acked_by_a) } else { (r.acked_by_a, r.acked_by_b) };
            let is_it = |c: &Conn| {
                [(low, &c.sides[0]), (high, &c.sides[1])].into_iter().all(|(acked, said)| {
                    said.as_ref().is_some_and(|s| acked.since(s.isn) <= s.snd_max.since(s.isn))
                })
            };
            let index = flow.conns.iter().rposition(is_it).unwrap_or(flow.conns.len().saturating_sub(1));
            if let Some(c) = flow.conns.get_mut(index) {
                c.excuse = Some(why);
            }
        }
    }

    /// Sequence numbers of a segment as offsets, for display.
    #[must_use]
    pub fn origins(&self, s: &TcpSegment) -> Origins {
        let (key, side) = flow_of(s);
        let isn = |i: usize| {
            let flow = self.truth.flows.get(&key)?;
            Some(flow.conns.last()?.sides[i].as_ref()?.isn.0)
        };
        Origins { sender: isn(side).unwrap_or(0), receiver: isn(1 - side).unwrap_or(0) }
    }

    /// A host sends a packet.
    ///
    /// # Errors
    /// What a host of this simulator must not do.
    pub fn host_sent(&mut self, bytes: &[u8]) -> Checked {
        let Parsed::Tcp(s) = on_wire(bytes) else { return Ok(()) };
        if !verify_checksums(bytes, &s, &Offload::default()) {
            return Err("a host sent a wrong checksum".into());
        }
        let Some(conn) = self.truth.host_sent(&s)? else { return Ok(()) };
        let (key, side) = flow_of(&s);
        let conn = &self.truth.flows[&key].conns[conn];
        check_payload(bytes, &s, conn, side).map_err(|e| format!("host: {e}"))
    }

    /// A packet is handed to a gateway. `damaged`: a channel inverted a bit of it; `is_away`: one
    /// of the gateway's links is silent or down, as far as it knows.
    pub fn gateway_in(
        &mut self,
        node: usize,
        bytes: &[u8],
        offload: &Offload,
        (damaged, is_away): (bool, bool),
    ) {
        let view = self.gateways.entry(node).or_default();
        let s = match on_wire(bytes) {
            Parsed::Tcp(s) => s,
            Parsed::Fragment(_) => {
                if let Some(whole) = view.came_in_parts.push(self.now, bytes) {
                    self.gateway_in(node, &whole, &Offload::default(), (damaged, is_away));
                }
                return;
            }
            _ => return,
        };
        if damaged || !verify_checksums(bytes, &s, offload) {
            view.damaged += 1;
            return;
        }
        if self.hostile.excludes(bytes, &s) || s.is_iack() {
            return;
        }
        let (key, side) = flow_of(&s);
        if !s.flags.syn() {
            let of_both = view.conns.range_mut((key, 0)..=(key, usize::MAX)).flat_map(|(_, both)| both);
            of_both.for_each(|heard| heard.syns.note_over());
        }
        let raised_mss = self.allowed.raised_mss;
        let Some(flow) = self.truth.flows.get_mut(&key) else { return };
        let Some((index, _)) =
            flow.newest_first().find(|(_, c)| said_it(bytes, &s, flow, c, side, (false, raised_mss)).is_ok())
        else {
            return;
        };
        let conn = &mut flow.conns[index];
        conn.marked[side] |= s.options.farlink.as_ref().is_some_and(|f| f.form == FARLINK_DATA);
        let Some(said) = &conn.sides[side] else { return };
        let both = view.conns.entry((key, index)).or_default();
        let quiet = both.iter().all(|h| self.now.since(h.at) >= self.allowed.dormant_after);
        both[side].at = self.now;
        both.iter_mut().filter(|_| quiet).for_each(|h| h.edge = None);
        let heard = &mut both[side];
        if s.flags.rst() {
            return;
        }
        if s.flags.syn() {
            heard.syns.note_came(is_away);
        }
        let ttl = &mut view.ttls.entry(key).or_default()[side];
        let (least, most) = ttl.unwrap_or((s.ip.ttl, s.ip.ttl));
        *ttl = Some((least.min(s.ip.ttl), most.max(s.ip.ttl)));
        let label = (s.ip.dscp(), s.ip.flow_label);
        if !heard.labels.contains(&label) {
            heard.labels.push(label);
        }
        if let Some(t) = s.options.timestamps {
            // What a host echoes has come from the other one, if not this way.
            let newest = view.tsvals.entry(key).or_default();
            let echoed = (s.flags.ack() && newest[1 - side].is_some()).then_some((1 - side, t.ecr));
            for (side, stamp) in [Some((side, t.val)), echoed].into_iter().flatten() {
                if newest[side].is_none_or(|v| SeqNum(v).before(SeqNum(stamp))) {
                    newest[side] = Some(stamp);
                }
            }
        }
        let length = s.payload_len as u64 + u64::from(s.flags.fin());
        if !s.flags.syn() && length > 0 && s.seq != said.isn {
            let from = said.offset(s.seq);
            heard.bytes.add(from, from + length);
        }
        if s.flags.ack()
            && let Some(other) = &conn.sides[1 - side]
        {
            let offset = other.offset(s.ack);
            heard.acked = Some(heard.acked.map_or(offset, |a| a.max(offset)));
            if s.options.farlink.is_none() {
                heard.acked_unmarked = heard.acked_unmarked.max(offset);
            }
        }
    }

    /// A packet leaves a gateway's node, cut to what fits the wire, before its last hop is counted.
    /// `forwarded`: it is the one that just came in, perhaps edited.
    ///
    /// # Errors
    /// The invariant that it breaks.
    pub fn gateway_out(&mut self, node: usize, bytes: &[u8], forwarded: bool) -> Checked {
        let view = self.gateways.entry(node).or_default();
        let s = match on_wire(bytes) {
            Parsed::Tcp(s) => s,
            Parsed::Fragment(_) if !forwarded => {
                let whole = view.left_in_parts.push(self.now, bytes);
                return whole.map_or(Ok(()), |whole| self.check_whole(&whole));
            }
            _ => return Ok(()),
        };
        if !verify_checksums(bytes, &s, &Offload::default()) {
            if view.damaged == 0 {
                return Err("a packet with a wrong checksum".into());
            }
            view.damaged -= 1;
            return Ok(());
        }
        // A SYN may have waited for its link.
        let is_as_it_came = forwarded || s.flags.syn();
        if self.hostile.is_of_liar(&s) || (is_as_it_came && self.hostile.is_forged_but_edited(bytes, &s)) {
            return Ok(());
        }
        let (key, side) = flow_of(&s);
        let Some(flow) = self.truth.flows.get_mut(&key) else {
            return Err("a segment between addresses and ports that no host uses".into());
        };
        if s.flags.rst() {
            return check_reset(flow, &s, side, self.allowed.abandonment || view.may_reset.contains(&key));
        }
        if s.is_iack() {
            if forwarded {
                return self.iacks.check_came(&s);
            }
            let custody = InCustody::of(&self.in_custody_mode, node, self.now);
            let heard = |index| view.conns.get(&(key, index)).map(|h| (&h[1 - side].bytes, h[side].acked));
            return self.iacks.check_made(&s, flow, side, (self.now, custody.as_ref()), heard);
        }
        // The newest incarnation that it can belong to; if there is none, what is wrong with the
        // newest of all.
        let (mut wrong, mut judged) = (None, None);
        for (index, conn) in flow.newest_first() {
            let allowed = (self.hostile.has_forged(), self.allowed.raised_mss);
            match said_it(bytes, &s, flow, conn, side, allowed) {
                // A gateway that has lost its state asks a host where it stands before it resets
                // its connection.
                Ok(()) if view.may_reset.contains(&key) && s.seq_len() == 0 => return Ok(()),
                Ok(()) => {
                    let heard = view.conns.entry((key, index)).or_default();
                    if let Some((least, most)) = view.ttls.get(&key).and_then(|t| t[side]) {
                        check_ttl(&s, least, most)?;
                    }
                    let tsval = view.tsvals.get(&key).and_then(|t| t[side]);
                    let custody = InCustody::of(&self.in_custody_mode, node, self.now);
                    let closes = custody.is_some_and(|custody| custody.may_close_window(self.now));
                    check_made(&s, conn, side, heard, tsval, (self.now, forwarded, closes), &self.allowed)?;
                    if custody.is_some_and(|custody| custody.is_sure) && !forwarded {
                        check_blocks(&s, conn, side, &heard[1 - side].bytes)?;
                    }
                    judged = Some((index, u64::from(s.window) << conn.shift(side)));
                    break;
                }
                Err(e) => wrong = wrong.or(Some(e)),
            }
        }
        let Some((index, shown)) = judged else {
            return Err(wrong.unwrap_or_else(|| "a segment of no connection".into()));
        };
        if self.in_custody_mode.get(&node).is_some_and(|custody| custody.is_sure) && !forwarded {
            // A gateway further on that does not show itself is the receiver for all before it.
            let at = |view: &GatewayView| view.conns.get(&(key, index)).map(|h| h[side].acked_unmarked);
            let acked = self.gateways.values().filter_map(at).max().unwrap_or(0);
            check_promises_nothing(&s, &flow.conns[index], side, acked)?;
        }
        // To another gateway it would speak in its own option, too.
        let to_host = !forwarded && !s.flags.syn() && s.options.farlink.is_none();
        if let Some(source) = flow.conns[index].sides[1 - side].as_mut().filter(|_| to_host) {
            source.sent_window_max = source.sent_window_max.max(shown);
        }
        Ok(())
    }

    /// A segment has left in fragments: its host has said it.
    fn check_whole(&self, bytes: &[u8]) -> Checked {
        let Parsed::Tcp(s) = on_wire(bytes) else { return Ok(()) };
        let is_forged = self.hostile.has_forged() || self.hostile.has_forged_parts();
        let is_excused = is_forged || self.hostile.is_of_liar(&s) || s.flags.rst();
        if is_excused || !verify_checksums(bytes, &s, &Offload::default()) {
            return Ok(());
        }
        let (key, side) = flow_of(&s);
        let Some(flow) = self.truth.flows.get(&key) else { return Ok(()) };
        let allowed = (false, self.allowed.raised_mss);
        let judged = flow.newest_first().map(|(_, conn)| said_it(bytes, &s, flow, conn, side, allowed));
        judged.reduce(|newest, older| if older.is_ok() { older } else { newest }).unwrap_or(Ok(()))
    }

    /// A packet is delivered to a host.
    ///
    /// # Errors
    /// The invariant that it breaks.
    pub fn host_receives(&mut self, bytes: &[u8]) -> Checked {
        let Parsed::Tcp(s) = on_wire(bytes) else { return Ok(()) };
        if s.shim.is_some() {
            // Routed round the gateway that takes it out. The host knows no such protocol.
            return Ok(());
        }
        if !verify_checksums(bytes, &s, &Offload::default()) || self.hostile.is_of_liar(&s) {
            return Ok(());
        }
        if self.hostile.is_forged_but_edited(bytes, &s) {
            return Ok(());
        }
        if s.is_iack() {
            return self.iacks.check_came(&s);
        }
        let (key, side) = flow_of(&s);
        if let Some(flow) = self.truth.flows.get(&key)
            && let Some(conn) = flow.conns.last()
        {
            let in_touch = self
                .allowed
                .gateways_in_touch
                .is_some_and(|n| n == 1 || (n == 2 && conn.marked == [true; 2]));
            let beyond = custody_beyond_reach(&s, conn, side).unwrap_or(0);
            if in_touch {
                self.beyond_windows_bytes = self.beyond_windows_bytes.max(beyond);
            }
            if beyond > 0 && in_touch && !self.allowed.may_pin(conn) {
                return Err(format!(
                    "the custody of all gateways is {beyond} bytes above the largest window shown"
                ));
            }
            // Flows that depend on their gateways have a bound, too: what these may hold.
            if beyond > self.allowed.gateways * self.allowed.relay_bytes {
                return Err(format!(
                    "the custody of all gateways is {beyond} bytes above the largest window shown, and each may hold {}",
                    self.allowed.relay_bytes
                ));
            }
        }
        self.truth.host_was_shown(&s);
        Ok(())
    }

    /// A packet as text, with relative numbers.
    #[must_use]
    pub fn describe(&self, bytes: &[u8]) -> String {
        display::packet(bytes, |s| self.origins(s))
    }
}

/// Whether the side could have said this: its sequence range, payload, flags and options, and no
/// acknowledgement of more than the other side sent (invariant 2).
fn said_it(
    bytes: &[u8],
    s: &TcpSegment,
    flow: &Flow,
    conn: &Conn,
    side: usize,
    (may_be_forged, raised_mss): (bool, Option<u16>),
) -> Checked {
    let Some(said) = &conn.sides[side] else {
        return Err("a segment of a host that has not spoken".into());
    };
    let other = conn.sides[1 - side].as_ref();
    if s.flags.syn() {
        return check_syn(s, said, other, raised_mss);
    }
    let first = s.seq.since(said.isn);
    let span = said.snd_max.since(said.isn);
    // Keepalives repeat the number before SND.UNA, the ISN at the lowest.
    if first > span || first + s.seq_len() > span {
        return Err(format!(
            "sequence numbers up to {} of {span} that the host has sent",
            first + s.seq_len()
        ));
    }
    if s.flags.fin() && said.fin_at != Some(s.end_seq() - 1) {
        return Err("a FIN where the host has none".into());
    }
    check_payload(bytes, s, conn, side)?;
    if !s.flags.ack() {
        return Err("no ACK flag".into());
    }
    let Some(other) = other else {
        return Err("an acknowledgement of a host that has not spoken".into());
    };
    let acked = s.ack.since(other.isn);
    let sent = other.snd_max.since(other.isn);
    if acked > sent || acked == 0 {
        return Err(format!("acknowledges {acked} of {sent} that the other host has sent"));
    }
    if let Some(t) = s.options.timestamps {
        let newest = flow.newest_tsval;
        let newer = |n: u32, side: usize| newest[side].is_none_or(|newest| SeqNum(n).after(SeqNum(newest)));
        if newer(t.val, side) {
            return Err(format!("TSval {} is newer than the host's newest, {:?}", t.val, newest[side]));
        }
        if t.ecr != 0 && newer(t.ecr, 1 - side) {
            return Err(format!("TSecr {} is newer than the other's newest, {:?}", t.ecr, newest[1 - side]));
        }
    }
    for b in &s.options.sack {
        let sent = other.snd_max.since(other.isn);
        let (start, end) = (b.start.since(other.isn), b.end.since(other.isn));
        // What forged duplicates draw says only that they are known (RFC 2883).
        let of_duplicate = b.end.before_eq(s.ack) && may_be_forged;
        if (start == 0 || start >= end || end > sent) && !of_duplicate {
            return Err(format!("a SACK block {start}:{end} where the other host has sent {sent}"));
        }
    }
    Ok(())
}

fn check_payload(bytes: &[u8], s: &TcpSegment, conn: &Conn, side: usize) -> Checked {
    let Some(said) = &conn.sides[side] else { return Ok(()) };
    if s.payload_len == 0 {
        return Ok(());
    }
    let offset = said.offset(s.seq);
    match said.stream.first_difference(offset, s.payload(bytes)) {
        Some(d) => Err(format!("byte {} of the stream is not the host's", offset + d as u64)),
        None => Ok(()),
    }
}

/// A SYN is the host's own: number, answer, standard options (decision 8).
fn check_syn(s: &TcpSegment, said: &Said, other: Option<&Said>, raised_mss: Option<u16>) -> Checked {
    if s.seq != said.isn {
        return Err("a SYN with a number that is not the host's".into());
    }
    if s.flags.ack() != said.answered {
        return Err("a SYN for a SYN-ACK, or the reverse".into());
    }
    if s.flags.ack() && other.is_none_or(|o| s.ack != o.isn + 1) {
        return Err("a SYN-ACK that answers no SYN".into());
    }
    let raised = raised_mss.filter(|_| s.flags.ack() && s.options.mss == raised_mss);
    let standard = |o: &farlink_wire::TcpOptions| {
        (o.mss.max(raised), o.window_scale, o.sack_permitted, o.timestamps.is_some())
    };
    if standard(&s.options) != standard(&said.options) || s.options.unknown != said.options.unknown {
        return Err("standard options of a SYN changed".into());
    }
    if s.payload_len > 0 || s.flags.fin() {
        return Err("a SYN with data or FIN".into());
    }
    Ok(())
}

/// Only a host resets, except for the abandonment of custody (invariant 4).
fn check_reset(flow: &mut Flow, s: &TcpSegment, side: usize, allowed: bool) -> Checked {
    // The incarnation that the number belongs to. A connection that one host has reset is closed at
    // the other, too, and a closed port answers with RST: gateways say so for it.
    let near = |c: &Conn| {
        c.sides[side].as_ref().is_some_and(|x| s.seq.since(x.isn) <= x.snd_max.since(x.isn).saturating_add(1))
    };
    let newest = flow.conns.len().saturating_sub(1);
    let index = flow.conns.iter().rposition(near).unwrap_or(newest);
    let Some(conn) = flow.conns.get(index) else { return Err("a RST on no connection".into()) };
    let reset =
        flow.stray_reset[side] || flow.conns.iter().any(|c| c.sides.iter().flatten().any(|x| x.reset));
    // A host that has begun anew between the same ports has forgotten the old connection.
    let forgotten = index < newest;
    if reset || conn.excuse.is_some() || forgotten {
        return Ok(());
    }
    if s.payload_len > 0 {
        return Err("a RST with data".into());
    }
    flow.conns[index].abandoned = true;
    if allowed { Ok(()) } else { Err("a RST that no host sent".into()) }
}

/// The router has counted one hop before it handed the packet over; the TUN's second one is given
/// back by the gateway.
fn check_ttl(s: &TcpSegment, least: u8, most: u8) -> Checked {
    if s.flags.syn() || (least + 1..=most + 1).contains(&s.ip.ttl) {
        return Ok(());
    }
    Err(format!("TTL {} where the host's packets come with {least} to {most}", s.ip.ttl))
}

/// What a gateway may say of itself in a host's name.
fn check_made(
    s: &TcpSegment,
    conn: &Conn,
    side: usize,
    heard: &mut [Heard; 2],
    newest_tsval: Option<u32>,
    (now, forwarded, may_close): (Instant, bool, bool),
    allowed: &Allowances,
) -> Checked {
    let other = conn.sides[1 - side].as_ref();
    if s.flags.any(Flags::URG | Flags::ECE | Flags::CWR | Flags::AE) {
        return Err(format!("flags that no host set: {:?}", s.flags));
    }
    if s.flags.syn() {
        return heard[side].syns.check_goes(now, &s.options);
    }
    let Some(other) = other else { return Ok(()) };
    let shown = u64::from(s.window) << conn.shift(side);
    heard[side].shown_max = heard[side].shown_max.max(shown).max(other.shown_window_max);
    check_acknowledged_is_held(s, conn, side, heard, allowed)?;
    let edge = other.offset(s.ack) + (u64::from(s.window) << conn.shift(side));
    if forwarded {
        // The host's own word, late perhaps: where a gateway lets go, the windows are the host's
        // again.
        heard[side].edge = heard[side].edge.map(|e| e.min(edge));
        return Ok(());
    }
    if conn.has_timestamps() != s.options.timestamps.is_some() {
        return Err("timestamps where none are agreed, or none where they are (RFC 7323 3.2)".into());
    }
    // It may be older than the newest that came by, where that stood in a segment that nobody
    // should believe; PAWS at the hosts shows whether it was too old.
    if let (Some(t), Some(newest)) = (s.options.timestamps, newest_tsval)
        && SeqNum(t.val).after(SeqNum(newest))
    {
        return Err(format!("TSval {}, newer than the newest that came by, {newest}", t.val));
    }
    // A host's segment that is passed on with other fields may wait for the link in another queue
    // than what the gateway says next. What acknowledges less than the one before shows no window
    // (RFC 9293 section 3.10.7.4).
    let ack = other.offset(s.ack);
    let shows_no_window = heard[side].ack_made.is_some_and(|newest| ack < newest);
    let late = shows_no_window && s.payload_len == 0 && !s.flags.fin();
    heard[side].ack_made = heard[side].ack_made.max(Some(ack));
    if let (Some(t), false) = (s.options.timestamps, late) {
        if heard[side].tsval_made.is_some_and(|before| SeqNum(t.val).before(SeqNum(before))) {
            return Err(format!("TSval {} after {:?}", t.val, heard[side].tsval_made));
        }
        heard[side].tsval_made = Some(t.val);
    }
    if !s.options.sack.is_empty() && !conn.has_sack() {
        return Err("SACK blocks where no SACK is agreed".into());
    }
    let o = &s.options;
    if o.mss.is_some() || o.window_scale.is_some() || o.sack_permitted || !o.unknown.is_empty() || o.malformed
    {
        return Err("options that do not belong into this segment".into());
    }
    let labels = &heard[side].labels;
    if !labels.is_empty() && !labels.contains(&(s.ip.dscp(), s.ip.flow_label)) {
        return Err("DSCP or flow label not the host's".into());
    }
    // Once the FIN is acknowledged nothing more can come, and the window means nothing.
    let over = other.fin_at.is_some_and(|f| s.ack == f + 1);
    // A source to which nothing is promised is told to wait.
    let calms = may_close && s.window == 0 && s.payload_len == 0 && !s.flags.fin();
    if let Some(before) = heard[side].edge
        && edge + (1 << conn.shift(side)) <= before
        && !over
        && !calms
        && !shows_no_window
    {
        return Err(format!("the window's right edge goes back from {before} to {edge}"));
    }
    if !shows_no_window {
        heard[side].edge = heard[side].edge.max(Some(edge));
    }
    check_size(s, other.options.mss, allowed.large)
}

/// Only what is held without a gap, or covered by the real receiver's word, is acknowledged
/// (invariant 3), and custody stays within its bound (invariant 8).
fn check_acknowledged_is_held(
    s: &TcpSegment,
    conn: &Conn,
    side: usize,
    heard: &[Heard; 2],
    allowed: &Allowances,
) -> Checked {
    let (Some(said), Some(other)) = (&conn.sides[side], &conn.sides[1 - side]) else { return Ok(()) };
    let acked = other.offset(s.ack);
    let base = heard[side].acked.unwrap_or(0);
    let held = heard[1 - side].bytes.unbroken_end(base);
    if acked > held {
        return Err(format!(
            "acknowledges up to {acked}, but only {held} came by or were acknowledged by the host"
        ));
    }
    let fin = u64::from(other.fin_at.is_some_and(|f| s.ack == f + 1));
    let custody = (acked - fin).saturating_sub(base);
    // What the receiver itself promised is taken.
    let most = allowed.relay_bytes.max(said.window_max);
    if custody > most {
        return Err(format!("{custody} bytes in custody, {most} allowed"));
    }
    // Gateways that speak to each other may hold more: the one next to the source answers for all.
    let shown = heard[side].shown_max;
    // Of what is for a host that has reset nothing is held.
    if custody > shown && !allowed.may_pin(conn) && s.options.farlink.is_none() && !said.reset {
        return Err(format!("{custody} bytes in custody, the largest window shown is {shown}"));
    }
    Ok(())
}
