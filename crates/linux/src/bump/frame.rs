//! What the programs and the gateway tell each other in Ethernet headers: where a packet was met,
//! where it goes, and which mark and priority it has. The program *inject*, where packets come in
//! from the device, sends them to the side of the interface that is named.

use super::assembler::{Assembler, FP, If, Label, Width};
use super::marks::Words;
use super::skb::{
    NEXT, REDIRECT, REDIRECT_INGRESS, REDIRECT_NEIGH, SHOT, SKB, SKB_CHANGE_HEAD, SKB_LOAD_BYTES, SKB_MARK,
    SKB_PRIORITY, SKB_PROTOCOL, SKB_STORE_BYTES, SKB_TC_INDEX, look_up,
};
use crate::bpf::{Instruction, Map, Side};
use crate::error::Result;

/// Bytes of an Ethernet header.
pub(super) const ETHERNET_BYTES: usize = 14;
const HEADER: i32 = ETHERNET_BYTES as i32;

/// First byte of the Ethernet header's words to each other: a local address.
pub(super) const LOCAL: u8 = 2;
/// Met on the way in.
pub(super) const FROM_WIRE: u8 = 0;
/// Met on the way out.
pub(super) const FROM_STACK: u8 = 1;
/// Met on the way in, and for an address of this machine: NAT may know whose it is.
pub(super) const FOR_MACHINE: u8 = 2;
/// It has a mark or a priority. Then this header stands before its own, and has them where others
/// have their destination and type: four bytes of the mark, two and two of the priority.
pub(super) const MARKED: u8 = 0x80;
/// To the side at which packets come in.
pub(super) const TO_STACK: u8 = 0;
/// Out, to the next hop.
pub(super) const TO_NEIGHBOUR: u8 = 1;
/// Out, where there are no next hops.
pub(super) const TO_WIRE: u8 = 2;
/// Out, to the hardware address that is its destination.
pub(super) const TO_NEXT_HOP: u8 = 3;
/// The way takes so many bits of its byte. The others, and those above [`LOCAL`] in the byte
/// before, are the place of its mark and priority in the table.
pub(super) const WAY_BITS: u32 = 2;
/// So many bits of the place stand in the byte of the way.
pub(super) const LOW_BITS: u32 = 8 - WAY_BITS;
/// Places in the table of marks and priorities.
pub(super) const PLACES: u16 = 1 << (2 * LOW_BITS);

/// `tc_index` of a packet that comes from the device, with its place in the table below. Nobody
/// else writes this field but the qdisc dsmark, which Linux 6.7 removed.
const PASSED: i32 = 0xF000;
const PASSED_BITS: i32 = 0xF000;
const PLACE_BITS: i32 = 0x0FFF;

// The stack of *capture*: the words for the device, and a key.
const FRAME: i16 = -36;
const WORD: i16 = FRAME + 6;
const KEY: i16 = -20;

/// A packet that *capture* has met.
pub(super) struct Met {
    /// At this side.
    pub(super) side: Side,
    /// On the stack: the interface by which it came in.
    pub(super) came_by: i16,
    /// The register that has the device.
    pub(super) device: u8,
    /// The register that has this number where it is for the machine itself.
    pub(super) for_machine: (u8, i32),
}

/// Puts bytes of the stack into the packet.
fn put(a: &mut Assembler, (at, from, bytes): (i32, i16, i32), failed: Label) {
    a.copy(1, SKB);
    a.constant(2, at);
    a.address(3, from);
    a.constant(4, bytes);
    a.constant(5, 0);
    a.call(SKB_STORE_BYTES);
    a.jump_if(0, If::Differs, 0, failed);
}

/// Puts zeros before the packet.
fn lengthen(a: &mut Assembler, bytes: i32, failed: Label) {
    a.copy(1, SKB);
    a.constant(2, bytes);
    a.constant(3, 0);
    a.call(SKB_CHANGE_HEAD);
    a.jump_if(0, If::Differs, 0, failed);
}

/// Source address of the Ethernet header: 02, the side, and the interface by which it came in. The
/// destination stays: on the way out it is the next hop.
pub(super) fn send_to_device(a: &mut Assembler, met: &Met, has_ethernet: bool, pass: Label) {
    let (is_told, marked, redirect, lost) = (a.label(), a.label(), a.label(), a.label());
    a.constant(1, i32::from(LOCAL));
    a.store(Width::Byte, FP, WORD, 1);
    a.constant(1, i32::from(if met.side == Side::Ingress { FROM_WIRE } else { FROM_STACK }));
    a.jump_if(met.for_machine.0, If::Differs, met.for_machine.1, is_told);
    a.constant(1, i32::from(FOR_MACHINE));
    a.set(is_told);
    a.store(Width::Byte, FP, WORD + 1, 1);
    a.load(Width::Word, 1, FP, met.came_by);
    a.store(Width::Word, FP, WORD + 2, 1);
    a.load(Width::Word, 1, SKB, SKB_MARK);
    a.load(Width::Word, 2, SKB, SKB_PRIORITY);
    a.jump_if(1, If::Differs, 0, marked);
    a.jump_if(2, If::Differs, 0, marked);
    if has_ethernet {
        put(a, (6, WORD, 6), pass);
    } else {
        lengthen(a, HEADER, pass);
        a.store_word(FP, FRAME, 0);
        a.constant(1, 0);
        a.store(Width::Half, FP, FRAME + 4, 1);
        a.load(Width::Word, 1, SKB, SKB_PROTOCOL);
        a.store(Width::Half, FP, FRAME + 12, 1);
        put(a, (0, FRAME, HEADER), lost);
    }
    a.jump(redirect);

    a.set(marked);
    a.store(Width::Word, FP, FRAME, 1);
    a.store(Width::Word, FP, KEY, 2);
    for (half, to) in [(KEY, FRAME + 4), (KEY + 2, FRAME + 12)] {
        a.load(Width::Half, 1, FP, half);
        a.store(Width::Half, FP, to, 1);
    }
    a.load(Width::Byte, 1, FP, WORD + 1);
    a.add(1, i32::from(MARKED));
    a.store(Width::Byte, FP, WORD + 1, 1);
    lengthen(a, if has_ethernet { HEADER } else { 2 * HEADER }, pass);
    put(a, (0, FRAME, HEADER), lost);

    a.set(redirect);
    a.copy(1, met.device);
    a.constant(2, 0);
    a.call(REDIRECT);
    a.exit();
    // It begins with what nobody else can read.
    a.set(lost);
    a.constant(0, SHOT);
    a.exit();
}

/// What comes from the device passes, and on the way out goes on behind this; all else goes on at
/// `first_time`. On the way into the machine the kernel has taken its priority away.
pub(super) fn pass_second_time(
    a: &mut Assembler,
    side: Side,
    marks: &Map<Words>,
    (first_time, pass): (Label, Label),
) {
    a.load(Width::Word, 1, SKB, SKB_TC_INDEX);
    a.copy(2, 1);
    a.and(2, PASSED_BITS);
    a.jump_if(2, If::Differs, PASSED, first_time);
    a.constant(2, 0);
    a.store(Width::Word, SKB, SKB_TC_INDEX, 2);
    if side == Side::Ingress {
        a.and(1, PLACE_BITS);
        a.jump_if(1, If::Equal, 0, pass);
        a.store(Width::Word, FP, KEY, 1);
        look_up(a, marks, KEY);
        a.jump_if(0, If::Equal, 0, pass);
        a.load(Width::Word, 1, 0, 4);
        a.store(Width::Word, SKB, SKB_PRIORITY, 1);
        a.jump(pass);
    }
}

/// The program where packets come in from the device. Source address of their Ethernet header: 02,
/// the way that they go, and the interface. `addresses`: interface -> its hardware address.
pub(super) fn inject(addresses: &Map<[u8; 8]>, marks: &Map<Words>) -> Result<Vec<Instruction>> {
    // The number of the interface has to lie at a multiple of four.
    const INTERFACE: i16 = -8;
    const SOURCE: i16 = INTERFACE - 2;
    const PLACE: i16 = -16;
    /// The register of the way.
    const WAY: u8 = 7;
    let mut a = Assembler::default();
    let (unmarked, out, neighbour) = (a.label(), a.label(), a.label());
    let (next_hop, end) = (a.label(), a.label());
    a.copy(SKB, 1);
    a.constant(2, 6);
    a.address(3, SOURCE);
    a.constant(4, 6);
    a.call(SKB_LOAD_BYTES);
    a.jump_if(0, If::Differs, 0, end);
    a.load(Width::Byte, 2, FP, SOURCE);
    a.shift_right(2, WAY_BITS.cast_signed());
    a.shift_left(2, LOW_BITS.cast_signed());
    a.load(Width::Byte, WAY, FP, SOURCE + 1);
    a.copy(1, WAY);
    a.shift_right(1, WAY_BITS.cast_signed());
    a.add_register(2, 1);
    a.and(WAY, (1 << WAY_BITS) - 1);
    a.copy(1, 2);
    a.add(1, PASSED);
    a.store(Width::Word, SKB, SKB_TC_INDEX, 1);

    a.jump_if(2, If::Equal, 0, unmarked);
    a.store(Width::Word, FP, PLACE, 2);
    look_up(&mut a, marks, PLACE);
    a.jump_if(0, If::Equal, 0, unmarked);
    a.load(Width::Word, 1, 0, 0);
    a.store(Width::Word, SKB, SKB_MARK, 1);
    a.load(Width::Word, 1, 0, 4);
    a.store(Width::Word, SKB, SKB_PRIORITY, 1);
    a.jump_if(WAY, If::Differs, i32::from(TO_STACK), unmarked);
    // Who listens at the interface knows our packets by this address.
    a.constant(1, i32::from(LOCAL));
    a.store(Width::Byte, FP, SOURCE, 1);
    a.constant(1, i32::from(TO_STACK));
    a.store(Width::Byte, FP, SOURCE + 1, 1);
    put(&mut a, (6, SOURCE, 2), end);

    a.set(unmarked);
    a.load(Width::Word, 1, FP, INTERFACE);
    a.jump_if(WAY, If::Differs, i32::from(TO_STACK), out);
    a.constant(2, REDIRECT_INGRESS);
    a.call(REDIRECT);
    a.exit();
    a.set(out);
    a.constant(2, 0);
    a.jump_if(WAY, If::Equal, i32::from(TO_NEIGHBOUR), neighbour);
    a.jump_if(WAY, If::Equal, i32::from(TO_NEXT_HOP), next_hop);
    a.call(REDIRECT);
    a.exit();
    a.set(neighbour);
    a.constant(3, 0);
    a.constant(4, 0);
    a.call(REDIRECT_NEIGH);
    a.exit();
    a.set(next_hop);
    look_up(&mut a, addresses, INTERFACE);
    a.jump_if(0, If::Equal, 0, end);
    a.copy(1, SKB);
    a.constant(2, 6);
    a.copy(3, 0);
    a.constant(4, 6);
    a.constant(5, 0);
    a.call(SKB_STORE_BYTES);
    a.load(Width::Word, 1, FP, INTERFACE);
    a.constant(2, 0);
    a.call(REDIRECT);
    a.exit();
    a.set(end);
    a.constant(0, NEXT);
    a.exit();
    a.finish()
}
