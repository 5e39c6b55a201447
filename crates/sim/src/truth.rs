//! What the hosts themselves have said: the measure of everything that gateways say in their name.

use std::collections::BTreeMap;

use farlink_wire::{Flags, SeqNum, TcpOptions, TcpSegment};

use crate::content::{Endpoint, Stream};

/// The two ends of a flow, the lower first.
pub type FlowKey = (Endpoint, Endpoint);

/// Which flow a segment belongs to, and which of its two sides sent it (0 is the lower end).
#[must_use]
pub fn flow_of(s: &TcpSegment) -> (FlowKey, usize) {
    let (a, b) = ((s.ip.src, s.src_port), (s.ip.dst, s.dst_port));
    if a <= b { ((a, b), 0) } else { ((b, a), 1) }
}

/// All that one host said in one connection.
#[derive(Clone, Debug)]
pub struct Said {
    /// Its ISN.
    pub isn: SeqNum,
    /// Options of its SYN.
    pub options: TcpOptions,
    /// Its SYN was a SYN-ACK.
    pub answered: bool,
    /// The highest sequence number that it sent, plus one.
    pub snd_max: SeqNum,
    /// Where its FIN stands.
    pub fin_at: Option<SeqNum>,
    /// It sent a RST.
    pub reset: bool,
    /// It acknowledged so far.
    pub acked: Option<SeqNum>,
    /// Its first and newest TSval.
    pub tsvals: Option<(u32, u32)>,
    /// The largest window, in bytes, that it announced.
    pub window_max: u64,
    /// The largest window, in bytes, that was shown to it, by anyone.
    pub shown_window_max: u64,
    /// The largest one that the gateway next to it has sent. It may have been lost on the way,
    /// which the gateway cannot know. What arrives next shows less by what was acknowledged between
    /// the two.
    pub sent_window_max: u64,
    /// The bytes it sends.
    pub stream: Stream,
}

/// One incarnation of a connection.
#[derive(Clone, Debug)]
pub struct Conn {
    /// What its sides said.
    pub sides: [Option<Said>; 2],
    /// Why it need not deliver everything.
    pub excuse: Option<&'static str>,
    /// A gateway has reset it.
    pub abandoned: bool,
    /// A gateway has heard the mark of another one on segments of this side.
    pub marked: [bool; 2],
}

impl Conn {
    /// Window scaling is in force: the shift of the windows that `side` announces.
    #[must_use]
    pub fn shift(&self, side: usize) -> u32 {
        match (&self.sides[side], &self.sides[1 - side]) {
            (Some(own), Some(other)) if other.options.window_scale.is_some() => {
                own.options.window_scale.map_or(0, u32::from)
            }
            _ => 0,
        }
    }

    /// Both sides agreed to timestamps.
    #[must_use]
    pub fn has_timestamps(&self) -> bool {
        self.sides.iter().all(|s| s.as_ref().is_some_and(|s| s.options.timestamps.is_some()))
    }

    /// Both sides agreed to SACK.
    #[must_use]
    pub fn has_sack(&self) -> bool {
        self.sides.iter().all(|s| s.as_ref().is_some_and(|s| s.options.sack_permitted))
    }
}

/// All incarnations of the connections between two endpoints, the newest last.
#[derive(Clone, Debug, Default)]
pub struct Flow {
    /// The incarnations.
    pub conns: Vec<Conn>,
    /// A RST was sent by a side that belongs to no incarnation (answers of a host that knows no
    /// connection).
    pub stray_reset: [bool; 2],
    /// Newest TSval of each side in any incarnation: late segments of an older one are echoed, too.
    pub newest_tsval: [Option<u32>; 2],
}

/// What is known of all flows.
#[derive(Debug, Default)]
pub struct Truth {
    /// The flows.
    pub flows: BTreeMap<FlowKey, Flow>,
}

/// `n` is in `from..=to`, which spans less than 2^31.
fn within(n: SeqNum, from: SeqNum, to: SeqNum) -> bool {
    n.since(from) <= to.since(from)
}

impl Said {
    fn new(s: &TcpSegment) -> Self {
        let stream = Stream::new((s.ip.src, s.src_port), (s.ip.dst, s.dst_port), s.seq.0);
        Self {
            isn: s.seq,
            options: s.options.clone(),
            answered: s.flags.ack(),
            snd_max: s.seq + 1,
            fin_at: None,
            reset: false,
            acked: None,
            tsvals: None,
            window_max: u64::from(s.window),
            shown_window_max: 0,
            sent_window_max: 0,
            stream,
        }
    }

    /// Where a sequence number stands in the stream; 0 is the first byte after the SYN.
    #[must_use]
    pub fn offset(&self, seq: SeqNum) -> u64 {
        u64::from(seq.since(self.isn + 1))
    }

    fn note(&mut self, s: &TcpSegment, shift: u32) {
        self.window_max = self.window_max.max(u64::from(s.window) << shift);
        if s.end_seq().after(self.snd_max) {
            self.snd_max = s.end_seq();
        }
        if s.flags.fin() {
            self.fin_at = Some(s.end_seq() - 1);
        }
        if s.flags.ack() && !s.flags.rst() {
            self.acked = Some(self.acked.map_or(s.ack, |a| a.max(s.ack)));
        }
        if let Some(t) = s.options.timestamps {
            let (first, newest) = self.tsvals.unwrap_or((t.val, t.val));
            let newer = SeqNum(newest).before(SeqNum(t.val));
            self.tsvals = Some((first, if newer { t.val } else { newest }));
        }
    }
}

impl Flow {
    /// The newest connections first.
    pub fn newest_first(&self) -> impl Iterator<Item = (usize, &Conn)> {
        self.conns.iter().enumerate().rev()
    }

    fn begin(&mut self, s: &TcpSegment, side: usize) -> usize {
        if s.flags.ack() {
            // A SYN-ACK answers the SYN whose ISN it acknowledges.
            let answers = |c: &Conn| c.sides[1 - side].as_ref().is_some_and(|o| o.isn + 1 == s.ack);
            if let Some(i) = self.conns.iter().rposition(answers) {
                match &self.conns[i].sides[side] {
                    Some(own) if own.isn == s.seq => return i,
                    None => {
                        self.conns[i].sides[side] = Some(Said::new(s));
                        return i;
                    }
                    Some(_) => {
                        let mut again = self.conns[i].clone();
                        again.sides[side] = Some(Said::new(s));
                        self.conns.push(again);
                        return self.conns.len() - 1;
                    }
                }
            }
        } else if let Some(i) =
            self.conns.iter().rposition(|c| c.sides[side].as_ref().is_some_and(|o| o.isn == s.seq))
        {
            return i;
        } else if let Some(last) = self.conns.last_mut()
            && last.sides[side].is_none()
            && last.sides[1 - side].as_ref().is_some_and(|o| !o.answered)
        {
            // Simultaneous open.
            last.sides[side] = Some(Said::new(s));
            return self.conns.len() - 1;
        }
        let mut conn = Conn { sides: [None, None], excuse: None, abandoned: false, marked: [false; 2] };
        conn.sides[side] = Some(Said::new(s));
        self.conns.push(conn);
        self.conns.len() - 1
    }

    /// The incarnation that a host's own segment belongs to.
    fn locate(&self, s: &TcpSegment, side: usize) -> Option<usize> {
        const AHEAD: u32 = 1 << 24;
        self.newest_first()
            .find(|(_, c)| {
                let own = c.sides[side].as_ref();
                let fits = own.is_some_and(|o| within(s.seq, o.isn, o.snd_max + AHEAD));
                let other = c.sides[1 - side].as_ref();
                let ack_fits = !s.flags.ack() || other.is_none_or(|o| within(s.ack, o.isn, o.snd_max));
                fits && ack_fits
            })
            .map(|(i, _)| i)
    }
}

impl Truth {
    /// A host sends a segment: it becomes the truth. The incarnation, unless it is a stray RST.
    pub fn host_sent(&mut self, s: &TcpSegment) -> Result<Option<usize>, String> {
        let (key, side) = flow_of(s);
        let flow = self.flows.entry(key).or_default();
        if let Some(t) = s.options.timestamps
            && flow.newest_tsval[side].is_none_or(|n| SeqNum(n).before(SeqNum(t.val)))
        {
            flow.newest_tsval[side] = Some(t.val);
        }
        let conn =
            if s.flags.contains(Flags::SYN) { Some(flow.begin(s, side)) } else { flow.locate(s, side) };
        match conn {
            Some(i) => {
                let shift = if s.flags.syn() { 0 } else { flow.conns[i].shift(side) };
                let Some(said) = flow.conns[i].sides[side].as_mut() else {
                    return Err("a host sent on a connection that it has not begun".into());
                };
                if s.flags.rst() {
                    said.reset = true;
                } else {
                    said.note(s, shift);
                }
                Ok(Some(i))
            }
            None if s.flags.rst() => {
                flow.stray_reset[side] = true;
                Ok(None)
            }
            None => Err("a host sent a segment of no connection".into()),
        }
    }

    /// A segment is delivered to a host: what windows it has been shown.
    pub fn host_was_shown(&mut self, s: &TcpSegment) {
        let (key, side) = flow_of(s);
        let Some(flow) = self.flows.get_mut(&key) else { return };
        let Some(conn) = flow.conns.last_mut() else { return };
        let shift = if s.flags.syn() { 0 } else { conn.shift(side) };
        if let Some(said) = conn.sides[1 - side].as_mut()
            && s.flags.ack()
            && !s.flags.rst()
        {
            said.shown_window_max = said.shown_window_max.max(u64::from(s.window) << shift);
        }
    }
}
