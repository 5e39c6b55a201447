//! The program *capture*, at both sides of a bumped interface, as instructions: what is selected
//! goes to the device, with a word in the Ethernet header about where it was met. What comes from
//! the device (`frame.rs`) meets it a second time, and passes.

use super::assembler::{Assembler, FP, If, Label, Width};
use super::frame::{self, Met};
use super::skb::{
    CURRENT_NETNS, FIB_LOOKUP, HDR_START_NET, NEXT, SK_RELEASE, SKB, SKB_GET_XFRM_STATE, SKB_IFINDEX,
    SKB_INGRESS_IFINDEX, SKB_LOAD_BYTES_RELATIVE, SKB_PKT_TYPE, SKB_PROTOCOL, SKB_VLAN_PRESENT,
    SKC_LOOKUP_TCP, look_up,
};
use super::words::{
    Entry, RANK_SHIFT, SLOT_LEFT, SLOT_PLAIN, SLOT_SENT, SLOT_V6, SLOTS_SHIFT, WHOLE, WITHOUT_V4, WITHOUT_V6,
};
use crate::bpf::{Instruction, Map, Side};
use crate::error::Result;

const TCP: u8 = 6;
/// Where its flags are, in bytes.
const TCP_FLAGS: i32 = 13;
const SYN: i32 = 0x02;
const SYN_AND_ACK: i32 = 0x12;
const ICMP: i32 = 1;
const ICMPV6: i32 = 58;
const HOP_BY_HOP: i32 = 0;
const FRAGMENT: i32 = 44;
/// In network byte order, as `__sk_buff` has them.
const ETH_P_IP: u16 = 0x0800_u16.to_be();
const ETH_P_IPV6: u16 = 0x86dd_u16.to_be();

// BPF_FIB_LKUP_RET_...: what becomes of a packet.
const FIB_SUCCESS: i32 = 0;
const FIB_NOT_FORWARDED: i32 = 4;
const FIB_UNSUPPORTED_LWT: i32 = 6;
const FIB_NO_NEIGHBOUR: i32 = 7;
const FIB_FRAGMENTATION_NEEDED: i32 = 8;
/// struct bpf_xfrm_state.
const XFRM_STATE_BYTES: i32 = 28;
/// PACKET_HOST (linux/if_packet.h): it is for the interface's own hardware address.
const PACKET_HOST: i32 = 0;

/// struct bpf_fib_lookup.
const FIB_BYTES: i16 = 64;

// The stack, from the frame pointer down.
const OWN: i16 = -4;
const FROM: i16 = -8;
const OWN_RANK: i16 = -12;
const OWN_ENTRY: i16 = -16;
const SLOT: i16 = -20;
// From here on to -36: the words for the device.
const HEADER: i16 = -80;
const BEHIND: i16 = -144;
const FIB: i16 = -208;
const TUPLE: i16 = -248;

// Registers that survive calls, beside that of the packet.
const DEVICE: u8 = 7;
/// Not zero: it is selected wherever it goes. Zero: only where everything is taken.
const CHOSEN: u8 = 8;
/// It is for an address of this machine.
const CHOSEN_FOR_US: i32 = 2;
/// The rank of this interface, before anything is chosen, and when that is done.
const RANK: u8 = 9;
/// Bytes of the tuple of ports and addresses of a TCP connection; zero: there is none.
const TUPLE_BYTES: u8 = 9;
/// In place of [`DEVICE`] where a packet is counted: the first slot of its kind.
const FIRST_SLOT: u8 = 7;

/// What the programs look up, and what they take.
#[derive(Debug)]
pub(super) struct Tables<'a> {
    /// Bumped interface -> its device for what comes in. The kernel forgets one that is gone.
    pub(super) incoming: &'a Map<u32>,
    /// The same for what leaves.
    pub(super) leaving: &'a Map<u32>,
    /// Interface -> its entry.
    pub(super) interfaces: &'a Map<Entry>,
    /// TCP packets that bumps see, `SLOTS` for each rank.
    pub(super) counts: &'a Map<u64>,
    /// Marks and priorities: see [`super::marks`].
    pub(super) marks: &'a Map<super::marks::Words>,
    /// The kernel has IPsec.
    pub(super) has_ipsec: bool,
    /// IP protocols of which packets are taken, and ICMP errors about them.
    pub(super) protocols: &'a [u8],
}

/// Where a program ends.
#[derive(Clone, Copy)]
struct Ends {
    pass: Label,
    decide: Label,
    rest: Label,
}

/// The program for one side of an interface. `has_ethernet`: its packets begin with an Ethernet
/// header.
pub(super) fn capture(side: Side, has_ethernet: bool, tables: &Tables<'_>) -> Result<Vec<Instruction>> {
    let mut a = Assembler::default();
    let ends = Ends { pass: a.label(), decide: a.label(), rest: a.label() };
    let (guarded, v6, take, count) = (a.label(), a.label(), a.label(), a.label());
    a.copy(SKB, 1);
    a.load(Width::Word, 1, SKB, SKB_IFINDEX);
    a.store(Width::Word, FP, OWN, 1);
    look_at_own_entry(&mut a, side, tables);
    frame::pass_second_time(&mut a, side, tables.marks, (guarded, ends.pass));
    if side == Side::Egress {
        a.load(Width::Word, RANK, FP, OWN_ENTRY);
        a.jump_if(RANK, If::Equal, 0, ends.pass);
        a.shift_right(RANK, RANK_SHIFT.cast_signed());
        a.constant(FIRST_SLOT, SLOT_SENT.cast_signed());
        a.jump(count);
    }
    a.set(guarded);
    // The tag of a packet that is for a VLAN above this interface would be lost.
    a.load(Width::Word, 1, SKB, SKB_VLAN_PRESENT);
    a.jump_if(1, If::Differs, 0, ends.pass);
    if side == Side::Ingress {
        pass_strangers(&mut a, tables, ends.pass);
    }
    find_device(&mut a, side, tables, (count, ends.pass));
    a.constant(CHOSEN, 1);
    a.constant(TUPLE_BYTES, 0);
    a.clear(TUPLE, 40);
    a.clear(FIB, FIB_BYTES);
    a.load(Width::Word, 1, SKB, SKB_PROTOCOL);
    a.jump_if(1, If::Equal, i32::from(ETH_P_IPV6), v6);
    a.jump_if(1, If::Differs, i32::from(ETH_P_IP), ends.pass);
    choose_v4(&mut a, tables.protocols, ends);
    a.set(v6);
    choose_v6(&mut a, tables.protocols, ends);
    a.set(ends.rest);
    a.constant(CHOSEN, 0);
    a.set(ends.decide);
    match side {
        Side::Ingress => ask_routes(&mut a, tables, take, ends.pass),
        Side::Egress => {
            a.jump_if(CHOSEN, If::Differs, 0, take);
            a.load(Width::Word, 1, FP, OWN_ENTRY);
            a.jump_if(1, If::HasBits, WHOLE.cast_signed(), take);
            a.jump(ends.pass);
        }
    }
    a.set(take);
    pass_if_let_go(&mut a, side, (count, ends.pass));
    let what = Met { side, came_by: FROM, device: DEVICE, for_machine: (CHOSEN, CHOSEN_FOR_US) };
    frame::send_to_device(&mut a, &what, has_ethernet, ends.pass);
    a.set(count);
    count_tcp(&mut a, tables, ends.pass);
    a.set(ends.pass);
    a.constant(0, NEXT);
    a.exit();
    a.finish()
}

/// What is for others (the interface hears all while somebody listens, or is a port of a bridge),
/// and what has come out of IPsec: that would be forgotten, and refused.
fn pass_strangers(a: &mut Assembler, tables: &Tables<'_>, pass: Label) {
    a.load(Width::Word, 1, SKB, SKB_PKT_TYPE);
    a.jump_if(1, If::Differs, PACKET_HOST, pass);
    if tables.has_ipsec {
        a.copy(1, SKB);
        a.constant(2, 0);
        a.address(3, FIB);
        a.constant(4, XFRM_STATE_BYTES);
        a.constant(5, 0);
        a.call(SKB_GET_XFRM_STATE);
        a.jump_if(0, If::Equal, 0, pass);
    }
}

/// What would be taken passes while its family takes the ordinary way. On the way in it is counted.
fn pass_if_let_go(a: &mut Assembler, side: Side, (count, pass): (Label, Label)) {
    let (v4, go) = (a.label(), a.label());
    a.load(Width::Word, 1, FP, OWN_ENTRY);
    a.load(Width::Word, 2, SKB, SKB_PROTOCOL);
    a.jump_if(2, If::Equal, i32::from(ETH_P_IP), v4);
    a.and(1, WITHOUT_V6.cast_signed());
    a.jump_if(1, If::Equal, 0, go);
    let let_go = a.label();
    a.jump(let_go);
    a.set(v4);
    a.and(1, WITHOUT_V4.cast_signed());
    a.jump_if(1, If::Equal, 0, go);
    a.set(let_go);
    if side == Side::Ingress {
        // It may be for nobody here.
        a.jump_if(CHOSEN, If::Equal, CHOSEN_FOR_US, pass);
        a.load(Width::Word, RANK, FP, OWN_RANK);
        a.constant(FIRST_SLOT, SLOT_PLAIN.cast_signed());
        a.jump(count);
    } else {
        a.jump(pass);
    }
    a.set(go);
}

/// Counts a TCP packet for the bump of this rank, unless it is a later fragment.
fn count_tcp(a: &mut Assembler, tables: &Tables<'_>, pass: Label) {
    let (v6, known) = (a.label(), a.label());
    a.load(Width::Word, 1, SKB, SKB_PROTOCOL);
    a.jump_if(1, If::Equal, i32::from(ETH_P_IPV6), v6);
    a.jump_if(1, If::Differs, i32::from(ETH_P_IP), pass);
    load_bytes(a, 0, HEADER, V4.header_bytes, pass);
    a.load(Width::Byte, 1, FP, HEADER + 9);
    a.jump_if(1, If::Differs, i32::from(TCP), pass);
    // Nothing with options is taken.
    a.load(Width::Byte, 1, FP, HEADER);
    a.jump_if(1, If::Differs, 0x45, pass);
    a.load(Width::Half, 1, FP, HEADER + 6);
    a.and(1, i32::from(0x1fff_u16.to_be()));
    a.jump_if(1, If::Differs, 0, pass);
    load_bytes(a, V4.header_bytes + TCP_FLAGS, BEHIND, 1, pass);
    a.jump(known);
    a.set(v6);
    a.add(FIRST_SLOT, SLOT_V6.cast_signed());
    load_bytes(a, 0, HEADER, V6.header_bytes, pass);
    a.load(Width::Byte, 1, FP, HEADER + 6);
    a.jump_if(1, If::Differs, i32::from(TCP), pass);
    load_bytes(a, V6.header_bytes + TCP_FLAGS, BEHIND, 1, pass);
    a.set(known);
    let is_syn = a.label();
    a.load(Width::Byte, 1, FP, BEHIND);
    a.and(1, SYN_AND_ACK);
    a.jump_if(1, If::Equal, SYN, is_syn);
    a.add(FIRST_SLOT, 1);
    a.set(is_syn);
    a.shift_left(RANK, SLOTS_SHIFT);
    a.add_register(FIRST_SLOT, RANK);
    a.store(Width::Word, FP, SLOT, FIRST_SLOT);
    look_up(a, tables.counts, SLOT);
    a.jump_if(0, If::Equal, 0, pass);
    a.constant(1, 1);
    a.add_atomically(0, 1);
}

/// The entry of this interface, or zero where it is not configured; and that a packet was seen.
fn look_at_own_entry(a: &mut Assembler, side: Side, tables: &Tables<'_>) {
    let known = a.label();
    a.store_word(FP, OWN_ENTRY, 0);
    look_up(a, tables.interfaces, OWN);
    a.jump_if(0, If::Equal, 0, known);
    a.load(Width::Word, 1, 0, 0);
    a.store(Width::Word, FP, OWN_ENTRY, 1);
    let seen = if side == Side::Ingress { 4 } else { 8 };
    a.load(Width::Word, 1, 0, seen);
    a.jump_if(1, If::Differs, 0, known);
    a.store_word(0, seen, 1);
    a.set(known);
}

/// The device, if there is one now. On the way out only what was forwarded from an interface that
/// is configured, and does not take it; what that one took is counted as it leaves.
fn find_device(a: &mut Assembler, side: Side, tables: &Tables<'_>, (count, pass): (Label, Label)) {
    if side == Side::Ingress {
        a.load(Width::Word, 1, FP, OWN);
    } else {
        a.load(Width::Word, 1, SKB, SKB_INGRESS_IFINDEX);
        // This machine's own.
        a.jump_if(1, If::Equal, 0, pass);
    }
    a.store(Width::Word, FP, FROM, 1);
    a.load(Width::Word, RANK, FP, OWN_ENTRY);
    a.jump_if(RANK, If::Equal, 0, pass);
    a.shift_right(RANK, RANK_SHIFT.cast_signed());
    a.store(Width::Word, FP, OWN_RANK, RANK);
    if side == Side::Egress {
        let takes = a.label();
        look_up(a, tables.interfaces, FROM);
        a.jump_if(0, If::Equal, 0, pass);
        load_rank(a, 1);
        a.jump_if_above(1, RANK, false, takes);
        // What came in by this very interface was taken then, too.
        a.copy(RANK, 1);
        a.constant(FIRST_SLOT, SLOT_LEFT.cast_signed());
        a.jump(count);
        a.set(takes);
    }
    let devices = if side == Side::Ingress { tables.incoming } else { tables.leaving };
    look_up(a, devices, OWN);
    a.jump_if(0, If::Equal, 0, pass);
    a.load(Width::Word, DEVICE, 0, 0);
}

/// Of the entry that register 0 points to.
fn load_rank(a: &mut Assembler, into: u8) {
    a.load(Width::Word, into, 0, 0);
    a.shift_right(into, RANK_SHIFT.cast_signed());
}

/// Passes what the other interface takes, or what is not to be taken since the other one is not
/// configured. Register 0 then points to the other one's entry.
fn pass_if_outranked(a: &mut Assembler, tables: &Tables<'_>, other: i16, pass: Label) {
    look_up(a, tables.interfaces, other);
    a.jump_if(0, If::Equal, 0, pass);
    load_rank(a, 1);
    a.jump_if_above(RANK, 1, false, pass);
}

/// Loads bytes from behind the start of the IP header; goes on at `short` where there are fewer.
fn load_bytes(a: &mut Assembler, offset: i32, to: i16, bytes: i32, short: Label) {
    a.copy(1, SKB);
    a.constant(2, offset);
    a.address(3, to);
    a.constant(4, bytes);
    a.constant(5, HDR_START_NET);
    a.call(SKB_LOAD_BYTES_RELATIVE);
    a.jump_if(0, If::Differs, 0, short);
}

fn copy_words(a: &mut Assembler, from: i16, to: i16, words: i16) {
    for at in (0..words * 4).step_by(4) {
        a.load(Width::Word, 1, FP, from + at);
        a.store(Width::Word, FP, to + at, 1);
    }
}

fn copy_half(a: &mut Assembler, from: i16, to: i16) {
    a.load(Width::Half, 1, FP, from);
    a.store(Width::Half, FP, to, 1);
}

/// The protocol in register 1 is one of those that are taken.
fn is_selected(a: &mut Assembler, protocols: &[u8], then: Label) {
    for protocol in protocols {
        a.jump_if(1, If::Equal, i32::from(*protocol), then);
    }
}

/// Its protocol is TCP: the tuple begins with its addresses, and its ports are known.
struct Layout {
    address_words: i16,
    /// Of the header on the stack.
    src: i16,
    dst: i16,
    header_bytes: i32,
}

const V4: Layout = Layout { address_words: 1, src: 12, dst: 16, header_bytes: 20 };
const V6: Layout = Layout { address_words: 4, src: 8, dst: 24, header_bytes: 40 };

impl Layout {
    fn ports(&self) -> i16 {
        TUPLE + self.address_words * 8
    }
    fn tuple_bytes(&self) -> i32 {
        i32::from(self.address_words) * 8 + 4
    }

    /// The tuple of a packet of TCP.
    fn note_own(&self, a: &mut Assembler, ends: Ends) {
        load_bytes(a, self.header_bytes, self.ports(), 4, ends.decide);
        copy_words(a, HEADER + self.src, TUPLE, self.address_words);
        copy_words(a, HEADER + self.dst, TUPLE + self.address_words * 4, self.address_words);
        a.constant(TUPLE_BYTES, self.tuple_bytes());
        a.jump(ends.decide);
    }

    /// The tuple of what would answer the packet that an ICMP error quotes.
    fn note_quoted(&self, a: &mut Assembler, ends: Ends) {
        let quoted = BEHIND + 8;
        copy_words(a, quoted + self.dst, TUPLE, self.address_words);
        copy_words(a, quoted + self.src, TUPLE + self.address_words * 4, self.address_words);
        let ports = quoted + if self.address_words == 1 { 20 } else { 40 };
        copy_half(a, ports + 2, self.ports());
        copy_half(a, ports, self.ports() + 2);
        a.constant(TUPLE_BYTES, self.tuple_bytes());
        a.jump(ends.decide);
    }

    /// What the kernel is asked about the route.
    fn fill(&self, a: &mut Assembler) {
        copy_words(a, HEADER + self.src, FIB + 16, self.address_words);
        copy_words(a, HEADER + self.dst, FIB + 32, self.address_words);
    }
}

fn choose_v4(a: &mut Assembler, protocols: &[u8], ends: Ends) {
    let (selected, icmp, quoted) = (a.label(), a.label(), a.label());
    load_bytes(a, 0, HEADER, V4.header_bytes, ends.pass);
    // With options: nobody knows what they are to do.
    a.load(Width::Byte, 1, FP, HEADER);
    a.jump_if(1, If::Differs, 0x45, ends.pass);
    // To many.
    a.load(Width::Byte, 1, FP, HEADER + 16);
    a.jump_if(1, If::AtLeast, 224, ends.pass);
    a.constant(1, libc::AF_INET);
    a.store(Width::Byte, FP, FIB, 1);
    a.load(Width::Byte, 1, FP, HEADER + 1);
    a.store(Width::Byte, FP, FIB + 12, 1);
    V4.fill(a);
    a.load(Width::Byte, 1, FP, HEADER + 9);
    a.store(Width::Byte, FP, FIB + 1, 1);
    is_selected(a, protocols, selected);
    a.load(Width::Half, 2, FP, HEADER + 6);
    a.and(2, i32::from(0x1fff_u16.to_be()));
    a.jump_if(2, If::Differs, 0, ends.rest);
    a.jump_if(1, If::Equal, ICMP, icmp);
    a.jump(ends.rest);

    a.set(selected);
    a.jump_if(1, If::Differs, i32::from(TCP), ends.decide);
    a.load(Width::Half, 2, FP, HEADER + 6);
    a.and(2, i32::from(0x1fff_u16.to_be()));
    a.jump_if(2, If::Differs, 0, ends.decide);
    V4.note_own(a, ends);

    a.set(icmp);
    load_bytes(a, 20, BEHIND, 32, ends.rest);
    a.load(Width::Byte, 1, FP, BEHIND);
    let is_error = a.label();
    for kind in [3, 11, 12] {
        a.jump_if(1, If::Equal, kind, is_error);
    }
    a.jump(ends.rest);
    a.set(is_error);
    a.load(Width::Byte, 1, FP, BEHIND + 8 + 9);
    is_selected(a, protocols, quoted);
    a.jump(ends.rest);
    a.set(quoted);
    a.jump_if(1, If::Differs, i32::from(TCP), ends.decide);
    a.load(Width::Byte, 1, FP, BEHIND + 8);
    a.jump_if(1, If::Differs, 0x45, ends.decide);
    V4.note_quoted(a, ends);
}

fn choose_v6(a: &mut Assembler, protocols: &[u8], ends: Ends) {
    let (selected, icmp, fragment, quoted) = (a.label(), a.label(), a.label(), a.label());
    load_bytes(a, 0, HEADER, V6.header_bytes, ends.pass);
    a.load(Width::Byte, 1, FP, HEADER + 24);
    a.jump_if(1, If::Equal, 0xff, ends.pass);
    let is_global = a.label();
    a.jump_if(1, If::Differs, 0xfe, is_global);
    a.load(Width::Byte, 1, FP, HEADER + 25);
    a.and(1, 0xc0);
    a.jump_if(1, If::Equal, 0x80, ends.pass);
    a.set(is_global);
    a.constant(1, libc::AF_INET6);
    a.store(Width::Byte, FP, FIB, 1);
    V6.fill(a);
    a.load(Width::Byte, 1, FP, HEADER + 6);
    a.store(Width::Byte, FP, FIB + 1, 1);
    is_selected(a, protocols, selected);
    // Each router looks at these options, so the kernel would act on them twice.
    a.jump_if(1, If::Equal, HOP_BY_HOP, ends.pass);
    a.jump_if(1, If::Equal, ICMPV6, icmp);
    a.jump_if(1, If::Equal, FRAGMENT, fragment);
    a.jump(ends.rest);

    a.set(selected);
    a.jump_if(1, If::Differs, i32::from(TCP), ends.decide);
    V6.note_own(a, ends);

    a.set(fragment);
    load_bytes(a, 40, BEHIND, 8, ends.rest);
    a.load(Width::Byte, 1, FP, BEHIND);
    is_selected(a, protocols, ends.decide);
    a.jump(ends.rest);

    a.set(icmp);
    load_bytes(a, 40, BEHIND, 52, ends.rest);
    a.load(Width::Byte, 1, FP, BEHIND);
    // Types 1 to 4.
    a.jump_if(1, If::Equal, 0, ends.rest);
    a.jump_if(1, If::AtLeast, 5, ends.rest);
    a.load(Width::Byte, 1, FP, BEHIND + 8 + 6);
    is_selected(a, protocols, quoted);
    a.jump_if(1, If::Differs, FRAGMENT, ends.rest);
    a.load(Width::Byte, 1, FP, BEHIND + 8 + 40);
    is_selected(a, protocols, ends.decide);
    a.jump(ends.rest);
    a.set(quoted);
    a.jump_if(1, If::Differs, i32::from(TCP), ends.decide);
    V6.note_quoted(a, ends);
}

/// On the way in: what this machine would forward to a configured interface is taken, and what is
/// for an address of its own but for none of its sockets: NAT knows whose it is.
fn ask_routes(a: &mut Assembler, tables: &Tables<'_>, take: Label, pass: Label) {
    let (forwarded, local) = (a.label(), a.label());
    a.load(Width::Word, 1, FP, OWN);
    a.store(Width::Word, FP, FIB + 8, 1);
    a.copy(1, SKB);
    a.address(2, FIB);
    a.constant(3, i32::from(FIB_BYTES));
    a.constant(4, 0);
    a.call(FIB_LOOKUP);
    for forwards in [FIB_SUCCESS, FIB_NO_NEIGHBOUR, FIB_FRAGMENTATION_NEEDED] {
        a.jump_if(0, If::Equal, forwards, forwarded);
    }
    a.jump_if(0, If::Equal, FIB_NOT_FORWARDED, local);
    // Into a tunnel of the routing table, of which the answer does not say the interface.
    a.jump_if(0, If::Differs, FIB_UNSUPPORTED_LWT, pass);
    a.jump_if(CHOSEN, If::Differs, 0, take);
    a.jump(pass);

    a.set(forwarded);
    a.load(Width::Word, RANK, FP, OWN_RANK);
    pass_if_outranked(a, tables, FIB + 8, pass);
    a.jump_if(CHOSEN, If::Differs, 0, take);
    a.load(Width::Word, 1, 0, 0);
    a.jump_if(1, If::HasBits, WHOLE.cast_signed(), take);
    a.jump(pass);

    a.set(local);
    a.jump_if(CHOSEN, If::Equal, 0, pass);
    a.constant(CHOSEN, CHOSEN_FOR_US);
    a.jump_if(TUPLE_BYTES, If::Equal, 0, take);
    a.copy(1, SKB);
    a.address(2, TUPLE);
    // The verifier knows two sizes: each needs a call of its own.
    let (six, found) = (a.label(), a.label());
    a.jump_if(TUPLE_BYTES, If::Equal, V6.tuple_bytes(), six);
    a.constant(3, V4.tuple_bytes());
    a.constant(4, CURRENT_NETNS);
    a.constant(5, 0);
    a.call(SKC_LOOKUP_TCP);
    a.jump(found);
    a.set(six);
    a.constant(3, V6.tuple_bytes());
    a.constant(4, CURRENT_NETNS);
    a.constant(5, 0);
    a.call(SKC_LOOKUP_TCP);
    a.set(found);
    a.jump_if(0, If::Equal, 0, take);
    a.copy(1, 0);
    a.call(SK_RELEASE);
    a.jump(pass);
}
