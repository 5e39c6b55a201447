//! A fast link one way and a slow one back: what acknowledgements, losses and the client's window
//! leave of a download, by the equations of Hasegawa (IPSJ Digital Courier 2, 2006), and which
//! size of segment is best. Rates are bits per second of IP packets, sizes bytes.

use anyhow::{Result, bail};
use serde::Serialize;

/// Fragments of the largest segment that is tried: 44 of 1,480 bytes are 65,120.
const FRAGMENTS_MAX: u32 = 44;
/// An IP datagram is no larger (RFC 791).
const DATAGRAM_MAX_BYTES: u32 = 65_535;
/// Identifications of IPv4 that may be used in the time for which a datagram may live (RFC 6864,
/// RFC 9293: 240 s).
const IDENTIFICATIONS: f64 = 65_536.0;
const LIFETIME_S: f64 = 240.0;
/// A size is as good as the best one if it comes so near.
const AS_GOOD: f64 = 0.99;
/// So many segments in a window show a loss by three acknowledgements behind it (RFC 5681 3.2).
const SEGMENTS_FOR_RETRANSMIT: f64 = 4.0;
/// A host acknowledges every second full-sized segment (RFC 9293 3.8.6.3).
const SEGMENTS_PER_ACK: f64 = 2.0;

/// Equation (1): packets that the link brings for each acknowledgement that can go back. The paper
/// says that `k >= 1/N` avoids congestion, N being the segments for each acknowledgement. Its own
/// example has k = 1.94 with N = 2, so k <= N is meant.
#[must_use]
pub fn k(down: (f64, f64), up: (f64, f64)) -> f64 {
    let per_second = |(bps, packet_bytes): (f64, f64)| bps / (8.0 * packet_bytes);
    per_second(down) / per_second(up)
}

/// Equation (4): the probability that a segment of so many bits is lost where each bit is wrong
/// with this probability.
#[must_use]
pub fn segment_loss(bit_error: f64, bits: f64) -> f64 {
    -(bits * (-bit_error).ln_1p()).exp_m1()
}

/// Equations (2) and (5): bits per second at this loss of segments, in a round trip of so many
/// seconds (Mathis; Padhye). Without losses or round trip there is no bound.
#[must_use]
pub fn loss_bound_bps(rtt_s: f64, segment_bits: f64, segments_per_ack: f64, loss: f64) -> f64 {
    (3.0 / (2.0 * segments_per_ack * loss)).sqrt() / rtt_s * segment_bits
}

/// Equations (3) and (6): the congestion window in segments at which losses come.
#[must_use]
pub fn window_segments(segments_per_ack: f64, loss: f64) -> f64 {
    (8.0 / (3.0 * segments_per_ack * loss)).sqrt()
}

/// Equation (7): what is sent again, for each byte.
#[must_use]
pub fn repeated_share(loss: f64) -> f64 {
    loss / (1.0 - loss)
}

/// How losses are told.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Losses {
    /// Of packets and fragments.
    Fragment(f64),
    /// Of bits, as the paper has it.
    Bit(f64),
}

/// The link, and the client at its end.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Asymmetric {
    /// Rate towards the client.
    pub rate_bps: f64,
    /// Rate back.
    pub rate_up_bps: f64,
    /// Round-trip time without queues, seconds.
    pub rtt_s: f64,
    /// MTU of the path, bytes.
    pub mtu_bytes: u32,
    /// IPv6 in place of IPv4.
    pub is_v6: bool,
    /// 12 bytes of options in each segment.
    pub has_timestamps: bool,
    /// The client's window; `None`: it holds nothing back.
    pub window_bytes: Option<f64>,
    /// Losses towards the client.
    pub losses: Losses,
    /// Acknowledgements for each oversized segment: 1 with Linux and FreeBSD of today, 0.5 with
    /// the paper's Linux 2.4 and Windows 2000.
    pub acks_per_oversized: f64,
}

/// One size of segment.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Size {
    /// Packets on the link for each segment; 1: it is not cut.
    pub fragments: u32,
    /// Its payload, bytes.
    pub payload_bytes: u32,
    /// Payload of what the link carries.
    pub eta: f64,
    /// Equation (1).
    pub k: f64,
    /// Payload for each acknowledgement.
    pub payload_per_ack_bytes: f64,
    /// Part of the return link that acknowledgements take at the throughput below.
    pub return_load: f64,
    /// Equation (4), or its like for fragments.
    pub loss: f64,
    /// Equation (7).
    pub repeated_share: f64,
    /// Goodput that the return link allows.
    pub by_acks_bps: f64,
    /// Goodput that the client's window allows; nothing: no bound.
    pub by_window_bps: Option<f64>,
    /// Equation (5): goodput that losses allow to a sender that takes them for congestion; nothing:
    /// no bound.
    pub by_losses_bps: Option<f64>,
    /// The least of these and of what the link carries.
    pub goodput_bps: f64,
    /// Datagrams per second; beyond 273 IPv4 identifications come again within 240 s.
    pub datagrams_per_s: f64,
    /// Enough of them are in the window to tell a loss by three acknowledgements.
    pub has_fast_retransmit: bool,
}

impl Asymmetric {
    /// Finds what makes no sense.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<()> {
        if !(self.rate_bps > 0.0 && self.rate_up_bps > 0.0) {
            bail!("rates above zero are needed");
        }
        if self.mtu_bytes <= self.head_bytes() + self.fragment_head_bytes() + 8 {
            bail!("an MTU of {} bytes leaves no room for payload", self.mtu_bytes);
        }
        if !(self.acks_per_oversized > 0.0 && self.acks_per_oversized <= 1.0) {
            bail!("acknowledgements for each segment: above 0, 1 at most");
        }
        let (Losses::Fragment(p) | Losses::Bit(p)) = self.losses;
        if !(0.0..1.0).contains(&p) {
            bail!("losses are from 0 to below 1");
        }
        Ok(())
    }

    fn ip_bytes(&self) -> u32 {
        if self.is_v6 { 40 } else { 20 }
    }

    fn tcp_bytes(&self) -> u32 {
        if self.has_timestamps { 32 } else { 20 }
    }

    fn head_bytes(&self) -> u32 {
        self.ip_bytes() + self.tcp_bytes()
    }

    /// What a fragment has besides: IPv6 has a header for it.
    fn fragment_head_bytes(&self) -> u32 {
        if self.is_v6 { 8 } else { 0 }
    }

    /// Bytes of a pure acknowledgement.
    #[must_use]
    pub fn ack_bytes(&self) -> u32 {
        self.head_bytes()
    }

    /// Payload of a segment that fills so many packets, and the bytes of these; `None`: no datagram
    /// is so large. All but the last carry a multiple of eight (RFC 791, RFC 8200 4.5).
    #[must_use]
    pub fn shape(&self, fragments: u32) -> Option<(u32, u32)> {
        let room = match fragments {
            0 | 1 => self.mtu_bytes.checked_sub(self.ip_bytes())?,
            n => {
                let each = self.mtu_bytes.checked_sub(self.ip_bytes() + self.fragment_head_bytes())?;
                (each / 8 * 8).checked_mul(n - 1)?.checked_add(each)?
            }
        };
        let payload = room.checked_sub(self.tcp_bytes()).filter(|payload| *payload > 0)?;
        // The length of IPv6 leaves its header out.
        let datagram = room + if self.is_v6 { 0 } else { self.ip_bytes() };
        if datagram > DATAGRAM_MAX_BYTES {
            return None;
        }
        let heads =
            if fragments > 1 { self.ip_bytes() + self.fragment_head_bytes() } else { self.ip_bytes() };
        Some((payload, room + heads * fragments.max(1)))
    }

    /// What becomes of a download in segments of so many packets; `None`: no datagram is so large.
    #[must_use]
    pub fn of(&self, fragments: u32) -> Option<Size> {
        let (payload, wire) = self.shape(fragments)?;
        let (payload_bytes, wire_bytes) = (f64::from(payload), f64::from(wire));
        let segments_per_ack = if fragments > 1 { 1.0 / self.acks_per_oversized } else { SEGMENTS_PER_ACK };
        let eta = payload_bytes / wire_bytes;
        let ack = (self.rate_up_bps, f64::from(self.ack_bytes()));
        let loss = match self.losses {
            Losses::Fragment(p) => 1.0 - (1.0 - p).powi(fragments.max(1) as i32),
            Losses::Bit(e) => segment_loss(e, 8.0 * wire_bytes),
        };
        let acks_per_s = self.rate_up_bps / (8.0 * f64::from(self.ack_bytes()));
        let by_acks_bps = 8.0 * payload_bytes * segments_per_ack * acks_per_s;
        let by_link_bps = self.rate_bps * eta * (1.0 - loss);
        // A window is open again when its acknowledgement is back.
        let trip_s = self.rtt_s + 8.0 * wire_bytes / self.rate_bps + 1.0 / acks_per_s;
        let by_window_bps = self.window_bytes.map(|window| {
            let whole = (window / payload_bytes).floor() * payload_bytes;
            8.0 * whole / trip_s
        });
        let finite = |bps: f64| bps.is_finite().then_some(bps);
        let by_losses_bps = finite(loss_bound_bps(self.rtt_s, 8.0 * payload_bytes, segments_per_ack, loss));
        let bounds = [Some(by_link_bps), Some(by_acks_bps), by_window_bps, by_losses_bps];
        let goodput_bps = bounds.into_iter().flatten().fold(f64::INFINITY, f64::min);
        let datagrams_per_s = goodput_bps / (8.0 * payload_bytes);
        let in_window = self.window_bytes.unwrap_or(f64::INFINITY) / payload_bytes;
        Some(Size {
            fragments: fragments.max(1),
            payload_bytes: payload,
            eta,
            k: k((self.rate_bps, wire_bytes), ack),
            payload_per_ack_bytes: payload_bytes * segments_per_ack,
            return_load: datagrams_per_s / segments_per_ack / acks_per_s,
            loss,
            repeated_share: repeated_share(loss),
            by_acks_bps,
            by_window_bps,
            by_losses_bps,
            goodput_bps,
            datagrams_per_s,
            has_fast_retransmit: in_window.min(window_segments(segments_per_ack, loss))
                >= SEGMENTS_FOR_RETRANSMIT,
        })
    }

    /// All sizes, from segments that are not cut to the largest.
    #[must_use]
    pub fn sizes(&self) -> Vec<Size> {
        (1..=FRAGMENTS_MAX).map_while(|n| self.of(n)).collect()
    }

    /// The best one: of those that come within 1 % of the greatest goodput the smallest whose
    /// window still shows losses, or else the smallest.
    #[must_use]
    pub fn best(&self) -> Option<Size> {
        let all = self.sizes();
        let most = all.iter().map(|size| size.goodput_bps).fold(0.0, f64::max);
        let good = || all.iter().filter(|size| size.goodput_bps >= AS_GOOD * most);
        good().find(|size| size.has_fast_retransmit).or_else(|| good().next()).copied()
    }

    /// Payload that each acknowledgement must stand for if the link is to be full of data.
    #[must_use]
    pub fn needed_per_ack_bytes(&self, eta: f64) -> f64 {
        eta * self.rate_bps * f64::from(self.ack_bytes()) / self.rate_up_bps
    }
}

/// Datagrams per second of one source, destination and protocol beyond which IPv4 identifications
/// come again while an old fragment may still be under way (RFC 6864).
#[must_use]
pub fn datagrams_max_per_s() -> f64 {
    IDENTIFICATIONS / LIFETIME_S
}

#[cfg(test)]
mod tests {
    use super::*;

    const KBIT: f64 = 1_000.0;

    fn papers(rate_up_bps: f64) -> Asymmetric {
        Asymmetric {
            rate_bps: 8e6,
            rate_up_bps,
            rtt_s: 0.0,
            mtu_bytes: 1500,
            is_v6: false,
            has_timestamps: true,
            window_bytes: None,
            losses: Losses::Fragment(0.0),
            acks_per_oversized: 1.0,
        }
    }

    fn near(a: f64, b: f64, share: f64) -> bool {
        (a / b - 1.0).abs() < share
    }

    #[test]
    fn k_is_below_n_where_the_return_link_suffices() {
        // The paper's example of 2.1: 110 kbit/s for 8 Mbit/s.
        assert!(near(k((8e6, 1500.0), (110e3, 40.0)), 1.94, 1e-3));
        let plain = |kbit| Asymmetric { has_timestamps: false, ..papers(kbit * KBIT) };
        // With N = 2 the return link is full at 106.7 kbit/s.
        for (kbit, is_enough) in [(110.0, true), (104.0, false)] {
            let normal = plain(kbit).of(1).unwrap();
            assert_eq!(normal.k <= 2.0, is_enough);
            assert_eq!(normal.by_acks_bps >= 8e6 * normal.eta, is_enough);
        }
    }

    #[test]
    fn equations_two_to_seven() {
        // 6.4: 4,420 bytes are 3.5e4 bits; 2.8e-8 wrong bits lose one segment in a thousand.
        let bits = 8.0 * 4_420.0;
        let loss = segment_loss(2.8e-8, bits);
        assert!(near(loss, 1e-3, 0.02), "{loss}");
        assert!(near(repeated_share(loss), 1e-3, 0.02));
        // Four times the segment at the same bit error: twice the throughput and the window.
        let of = |bits: f64| {
            let loss = segment_loss(1e-9, bits);
            (loss_bound_bps(0.5, bits, 2.0, loss), window_segments(2.0, loss) * bits)
        };
        let (small, large) = (of(10_000.0), of(40_000.0));
        assert!(near(large.0 / small.0, 2.0, 1e-3) && near(large.1 / small.1, 2.0, 1e-3));
        assert!(near(loss_bound_bps(0.5, 1.0, 2.0, 0.01), 2.0 * 75.0_f64.sqrt(), 1e-9));
        assert!(near(window_segments(2.0, 0.01), (400.0_f64 / 3.0).sqrt(), 1e-9));
    }

    #[test]
    fn segments_fill_their_fragments() {
        let v4 = papers(32.0 * KBIT);
        for (fragments, payload, wire) in [
            (1, 1_448, 1_500),
            (3, 4_408, 4_500),
            (9, 13_288, 13_500),
            (12, 17_728, 18_000),
            (18, 26_608, 27_000),
        ] {
            assert_eq!(v4.shape(fragments), Some((payload, wire)));
        }
        // The paper's 4,420 bytes, without timestamps.
        assert_eq!(Asymmetric { has_timestamps: false, ..v4 }.shape(3), Some((4_420, 4_500)));
        assert_eq!(v4.shape(44), Some((65_088, 66_000)));
        assert_eq!(v4.shape(45), None, "no datagram is so large");
        let v6 = Asymmetric { is_v6: true, ..v4 };
        assert_eq!(v6.shape(1), Some((1_428, 1_500)));
        assert_eq!(v6.shape(2), Some((1_448 + 1_452 - 32, 1_448 + 1_452 + 96)));
        assert_eq!(Asymmetric { mtu_bytes: 552, ..v4 }.shape(2), Some((528 + 532 - 32, 528 + 532 + 40)));
    }

    #[test]
    fn what_each_acknowledgement_must_stand_for() {
        for (kbit, bytes) in [(128.0, 3_198.0), (64.0, 6_396.0), (32.0, 12_792.0), (9.6, 42_640.0)] {
            assert!(near(papers(kbit * KBIT).needed_per_ack_bytes(0.984), bytes, 1e-9));
        }
        for (fragments, load) in [(9, 0.963), (12, 0.722), (18, 0.481)] {
            let size = papers(32.0 * KBIT).of(fragments).unwrap();
            assert!(near(size.return_load, load, 2e-3), "{size:?}");
            assert!(near(size.goodput_bps, 8e6 * size.eta, 1e-9));
        }
        assert!(papers(32.0 * KBIT).of(8).unwrap().return_load > 0.999);
        let best = |kbit: f64| papers(kbit * KBIT).best().unwrap().fragments;
        assert_eq!([best(128.0), best(64.0), best(32.0)], [3, 5, 9]);
        assert!((29..=44).contains(&best(9.6)), "{}", best(9.6));
        assert!(near(datagrams_max_per_s(), 273.0, 1e-2));
    }

    /// The return link carries nothing but acknowledgements, so their bytes are the time (6.1).
    #[test]
    fn the_papers_acknowledgements_are_its_throughput() {
        // 10 MB are 10 MiB: 143,800 bytes of 40 for every second segment of 1,460.
        let bytes = 10.0 * f64::from(1 << 20);
        assert!(near(bytes / 2_920.0 * 40.0, 143_800.0, 2e-3));
        for (ack_bytes, mbit) in [(200_928.0, 1.6), (143_800.0, 2.2), (266_188.0, 1.2)] {
            let bps = bytes * 8.0 / (8.0 * ack_bytes / 32e3);
            assert!(bps / 1e6 >= mbit && bps / 1e6 < 1.1 * mbit, "{bps}");
        }
        let clients = [
            (Asymmetric { has_timestamps: true, ..papers(32e3) }, 1.6),
            (Asymmetric { has_timestamps: false, ..papers(32e3) }, 2.2),
        ];
        for (client, mbit) in clients {
            let bps = client.of(1).unwrap().goodput_bps;
            assert!(bps / 1e6 >= mbit && bps / 1e6 < 1.12 * mbit, "{bps}");
        }
        // Every second oversized segment was acknowledged: three times as much. Today each is: 1.5.
        let times = |acks_per_oversized| {
            let client = Asymmetric { acks_per_oversized, ..papers(32e3) };
            client.of(3).unwrap().goodput_bps / client.of(1).unwrap().goodput_bps
        };
        assert!(near(times(0.5), 3.0, 0.02) && near(times(1.0), 1.5, 0.02));
    }

    #[test]
    fn windows_and_losses_bound_what_is_sent() {
        let far = Asymmetric { rtt_s: 0.5, window_bytes: Some(65_535.0), ..papers(128.0 * KBIT) };
        let normal = far.of(1).unwrap();
        assert!(near(normal.goodput_bps, 1.03e6, 0.03), "{normal:?}");
        let small = Asymmetric { window_bytes: Some(17_520.0), ..far }.of(1).unwrap();
        assert!(near(small.goodput_bps, 0.28e6, 0.05), "{small:?}");
        // 17,520 / 4,408 are 3.97 segments, not the paper's 6: too few to tell a loss.
        let papers_choice = Asymmetric { window_bytes: Some(17_520.0), ..papers(32e3) };
        assert!(!papers_choice.of(3).unwrap().has_fast_retransmit);
        assert!(papers_choice.of(2).unwrap().has_fast_retransmit);
        let lossy = Asymmetric { losses: Losses::Fragment(1e-3), rtt_s: 0.5, ..papers(32e3) };
        let nine = lossy.of(9).unwrap();
        assert!(near(nine.loss, 9e-3, 5e-3) && nine.by_losses_bps.is_some());
        assert!(nine.goodput_bps < papers(32e3).of(9).unwrap().goodput_bps);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert!(papers(32e3).check().is_ok());
        for wrong in [
            Asymmetric { rate_up_bps: 0.0, ..papers(1.0) },
            Asymmetric { mtu_bytes: 60, ..papers(1.0) },
            Asymmetric { acks_per_oversized: 0.0, ..papers(1.0) },
            Asymmetric { losses: Losses::Bit(1.0), ..papers(1.0) },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }
}
