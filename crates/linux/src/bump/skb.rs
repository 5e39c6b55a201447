//! What the kernel calls the fields of a packet, and the helpers of a program at an interface
//! (linux/bpf.h).

use std::os::fd::AsRawFd;

use super::assembler::Assembler;

// Fields of struct __sk_buff.
pub(super) const SKB_PKT_TYPE: i16 = 4;
pub(super) const SKB_MARK: i16 = 8;
pub(super) const SKB_PROTOCOL: i16 = 16;
pub(super) const SKB_VLAN_PRESENT: i16 = 20;
pub(super) const SKB_PRIORITY: i16 = 32;
pub(super) const SKB_INGRESS_IFINDEX: i16 = 36;
pub(super) const SKB_IFINDEX: i16 = 40;
pub(super) const SKB_TC_INDEX: i16 = 44;

// enum bpf_func_id.
const MAP_LOOKUP_ELEM: i32 = 1;
pub(super) const SKB_STORE_BYTES: i32 = 9;
pub(super) const REDIRECT: i32 = 23;
pub(super) const SKB_LOAD_BYTES: i32 = 26;
pub(super) const SKB_CHANGE_HEAD: i32 = 43;
pub(super) const SKB_GET_XFRM_STATE: i32 = 66;
pub(super) const SKB_LOAD_BYTES_RELATIVE: i32 = 68;
pub(super) const FIB_LOOKUP: i32 = 69;
pub(super) const SK_RELEASE: i32 = 86;
pub(super) const SKC_LOOKUP_TCP: i32 = 99;
pub(super) const REDIRECT_NEIGH: i32 = 152;

pub(super) const HDR_START_NET: i32 = 1;
pub(super) const CURRENT_NETNS: i32 = -1;
pub(super) const REDIRECT_INGRESS: i32 = 1;

/// TCX_NEXT, and TC_ACT_UNSPEC: whoever comes next decides.
pub(super) const NEXT: i32 = -1;
/// TC_ACT_SHOT: it is dropped.
pub(super) const SHOT: i32 = 2;

/// The packet, in all programs: this register survives calls.
pub(super) const SKB: u8 = 6;

/// Register 0: the entry of the map for the key that is on the stack, or zero.
pub(super) fn look_up(a: &mut Assembler, map: &impl AsRawFd, key: i16) {
    a.map(1, map);
    a.address(2, key);
    a.call(MAP_LOOKUP_ELEM);
}
