//! Instructions of BPF by name, and jumps to labels (linux/bpf.h, RFC 9669).

use std::os::fd::AsRawFd;

use crate::bpf::{ByteOrder, Instruction, registers};
use crate::error::{Error, Result};

/// The frame pointer: the stack lies below it.
pub(super) const FP: u8 = 10;

const LDX_W: u8 = 0x61;
const LDX_H: u8 = 0x69;
const LDX_B: u8 = 0x71;
const STX_W: u8 = 0x63;
const STX_H: u8 = 0x6b;
const STX_B: u8 = 0x73;
const ST_W: u8 = 0x62;
const ST_DW: u8 = 0x7a;
const LD_IMM64: u8 = 0x18;
const MOV: u8 = 0xb7;
const MOV_REG: u8 = 0xbf;
const ADD: u8 = 0x07;
const AND: u8 = 0x57;
const LSH: u8 = 0x67;
const RSH: u8 = 0x77;
const ADD_REG: u8 = 0x0f;
/// BPF_STX | BPF_ATOMIC | BPF_DW; with BPF_ADD as its constant.
const ATOMIC_DW: u8 = 0xdb;
const ATOMIC_ADD: i32 = 0;
const JA: u8 = 0x05;
const JEQ: u8 = 0x15;
const JNE: u8 = 0x55;
const JSET: u8 = 0x45;
const JGE: u8 = 0x35;
const JGT_REG: u8 = 0x2d;
const JGE_REG: u8 = 0x3d;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// LD_IMM64 loads the address of the map of this descriptor.
const PSEUDO_MAP_FD: u8 = 1;

/// A place that is jumped to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(usize);

/// How much is loaded or stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    Byte,
    Half,
    Word,
}

/// When a jump is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum If {
    Equal,
    Differs,
    /// Unsigned.
    AtLeast,
    /// One of these bits is set.
    HasBits,
}

/// A program in the making.
#[derive(Debug)]
pub(super) struct Assembler {
    /// For processors of this kind.
    order: ByteOrder,
    code: Vec<Instruction>,
    /// Where each label stands.
    places: Vec<Option<usize>>,
    /// Which instruction jumps to which label.
    jumps: Vec<(usize, Label)>,
}

impl Default for Assembler {
    fn default() -> Self {
        Self::of(ByteOrder::NATIVE)
    }
}

impl Assembler {
    fn of(order: ByteOrder) -> Self {
        Self { order, code: Vec::new(), places: Vec::new(), jumps: Vec::new() }
    }
    fn push(&mut self, code: u8, dst: u8, src: u8, offset: i16, constant: i32) {
        self.code.push(Instruction(code, registers(self.order, dst, src), offset, constant));
    }
    /// A label that is not set yet.
    pub(super) fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }
    /// The label stands here.
    pub(super) fn set(&mut self, label: Label) {
        if let Some(place) = self.places.get_mut(label.0) {
            *place = Some(self.code.len());
        }
    }
    pub(super) fn load(&mut self, width: Width, dst: u8, src: u8, offset: i16) {
        let code = match width {
            Width::Byte => LDX_B,
            Width::Half => LDX_H,
            Width::Word => LDX_W,
        };
        self.push(code, dst, src, offset, 0);
    }
    pub(super) fn store(&mut self, width: Width, dst: u8, offset: i16, src: u8) {
        let code = match width {
            Width::Byte => STX_B,
            Width::Half => STX_H,
            Width::Word => STX_W,
        };
        self.push(code, dst, src, offset, 0);
    }
    pub(super) fn store_word(&mut self, dst: u8, offset: i16, constant: i32) {
        self.push(ST_W, dst, 0, offset, constant);
    }
    /// Clears `bytes` of the stack, a multiple of eight, from this offset on.
    pub(super) fn clear(&mut self, offset: i16, bytes: i16) {
        for at in (offset..offset + bytes).step_by(8) {
            self.push(ST_DW, FP, 0, at, 0);
        }
    }
    pub(super) fn constant(&mut self, dst: u8, value: i32) {
        self.push(MOV, dst, 0, 0, value);
    }
    pub(super) fn copy(&mut self, dst: u8, src: u8) {
        self.push(MOV_REG, dst, src, 0, 0);
    }
    pub(super) fn add(&mut self, dst: u8, value: i32) {
        self.push(ADD, dst, 0, 0, value);
    }
    pub(super) fn and(&mut self, dst: u8, value: i32) {
        self.push(AND, dst, 0, 0, value);
    }
    pub(super) fn shift_right(&mut self, dst: u8, bits: i32) {
        self.push(RSH, dst, 0, 0, bits);
    }
    pub(super) fn shift_left(&mut self, dst: u8, bits: i32) {
        self.push(LSH, dst, 0, 0, bits);
    }
    pub(super) fn add_register(&mut self, dst: u8, src: u8) {
        self.push(ADD_REG, dst, src, 0, 0);
    }
    /// Adds a register to the eight bytes that another one points to; others may do so meanwhile.
    pub(super) fn add_atomically(&mut self, to: u8, src: u8) {
        self.push(ATOMIC_DW, to, src, 0, ATOMIC_ADD);
    }
    /// Jumps where register `a` is above register `b`, unsigned; `or_equal`: or equal.
    pub(super) fn jump_if_above(&mut self, a: u8, b: u8, or_equal: bool, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.push(if or_equal { JGE_REG } else { JGT_REG }, a, b, 0, 0);
    }
    /// The address of a place on the stack.
    pub(super) fn address(&mut self, dst: u8, offset: i16) {
        self.copy(dst, FP);
        self.add(dst, i32::from(offset));
    }
    /// The address of a map.
    pub(super) fn map(&mut self, dst: u8, map: &impl AsRawFd) {
        self.push(LD_IMM64, dst, PSEUDO_MAP_FD, 0, map.as_raw_fd());
        self.push(0, 0, 0, 0, 0);
    }
    pub(super) fn jump(&mut self, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.push(JA, 0, 0, 0, 0);
    }
    pub(super) fn jump_if(&mut self, register: u8, condition: If, value: i32, to: Label) {
        let code = match condition {
            If::Equal => JEQ,
            If::Differs => JNE,
            If::AtLeast => JGE,
            If::HasBits => JSET,
        };
        self.jumps.push((self.code.len(), to));
        self.push(code, register, 0, 0, value);
    }
    /// Calls a helper: arguments in registers 1 to 5, the result in 0; 6 to 9 survive.
    pub(super) fn call(&mut self, helper: i32) {
        self.push(CALL, 0, 0, 0, helper);
    }
    pub(super) fn exit(&mut self) {
        self.push(EXIT, 0, 0, 0, 0);
    }

    /// The program, its jumps in place.
    ///
    /// # Errors
    /// A label stands nowhere, or too far away.
    pub(super) fn finish(mut self) -> Result<Vec<Instruction>> {
        for (at, label) in &self.jumps {
            let to = self.places.get(label.0).copied().flatten();
            let distance = to.and_then(|to| i16::try_from(to as i64 - *at as i64 - 1).ok());
            match (self.code.get_mut(*at), distance) {
                (Some(instruction), Some(distance)) => instruction.2 = distance,
                _ => return Err(Error::Refused(format!("BPF: the jump at {at} leads nowhere"))),
            }
        }
        Ok(self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_count_from_the_next_instruction() {
        let mut a = Assembler::default();
        let (end, start) = (a.label(), a.label());
        a.set(start);
        a.jump_if(1, If::Equal, 7, end);
        a.constant(0, 0);
        a.set(end);
        a.exit();
        let code = a.finish().unwrap();
        assert_eq!(code[0], Instruction(JEQ, registers(ByteOrder::NATIVE, 1, 0), 1, 7));
        assert_eq!(code[2], Instruction(EXIT, 0, 0, 0));
        let mut back = Assembler::default();
        let start = back.label();
        back.set(start);
        back.exit();
        back.jump(start);
        assert_eq!(back.finish().unwrap()[1].2, -2);
        let mut nowhere = Assembler::default();
        let never = nowhere.label();
        nowhere.jump(never);
        assert!(nowhere.finish().is_err());
    }

    /// Whoever is stored and where, copied, jumped by and loaded: the same program for processors
    /// of both kinds.
    #[test]
    fn programs_are_made_for_processors_of_both_kinds() {
        let program = |order| {
            let mut a = Assembler::of(order);
            let end = a.label();
            a.copy(6, 1);
            a.load(Width::Word, 2, 6, 40);
            a.jump_if_above(2, 9, false, end);
            a.store(Width::Half, FP, -4, 3);
            a.map(1, &std::io::stdin());
            a.set(end);
            a.exit();
            a.finish().unwrap().into_iter().map(|i| i.1).collect::<Vec<_>>()
        };
        assert_eq!(program(ByteOrder::Little), [0x16, 0x62, 0x92, 0x3a, 0x11, 0, 0]);
        assert_eq!(program(ByteOrder::Big), [0x61, 0x26, 0x29, 0xa3, 0x11, 0, 0]);
    }
}
