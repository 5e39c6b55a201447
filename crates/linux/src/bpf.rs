//! The system call bpf(2), as far as programs at an interface need it (linux/bpf.h): load a
//! program, make a map, put something into it and look it up, attach (tcx, from Linux 6.6 on, else
//! [`Filter`]), and ask whether that still stands.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::classifier::Filter;
use crate::error::{Error, Result};

const BPF_MAP_CREATE: libc::c_long = 0;
const BPF_MAP_LOOKUP_ELEM: libc::c_long = 1;
const BPF_MAP_UPDATE_ELEM: libc::c_long = 2;
const BPF_MAP_DELETE_ELEM: libc::c_long = 3;
const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_long = 15;
const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
const BPF_TCX_INGRESS: u32 = 46;
const BPF_TCX_EGRESS: u32 = 47;
const BPF_F_BEFORE: u32 = 1 << 3;
const BPF_F_AFTER: u32 = 1 << 4;
/// What the verifier may say of a program that it refuses.
const LOG_BYTES: usize = 64 * 1024;
/// Helpers of redirection are for programs under a licence that the GPL is compatible with.
const LICENCE: &[u8] = b"Dual MIT/GPL\0";

/// One instruction: code, registers (see [`registers`]), offset, constant.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction(pub u8, pub u8, pub i16, pub i32);

/// In which order a processor has the bytes of a number, and a C compiler the bits of a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// The smallest first.
    Little,
    /// The largest first.
    Big,
}

impl ByteOrder {
    /// That of this processor.
    pub const NATIVE: Self = if cfg!(target_endian = "big") { Self::Big } else { Self::Little };
}

/// The byte of an instruction that names its registers. struct bpf_insn (linux/bpf.h) has two bit
/// fields there, the destination first: which half of the byte is first depends on the order.
#[must_use]
pub const fn registers(order: ByteOrder, destination: u8, source: u8) -> u8 {
    match order {
        ByteOrder::Little => source << 4 | destination,
        ByteOrder::Big => destination << 4 | source,
    }
}

/// Which way packets pass an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// They come in.
    Ingress,
    /// They leave.
    Egress,
}

fn words<const N: usize>(values: [u32; N]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_ne_bytes()).collect()
}

fn pointer<T>(to: *const T) -> [u8; 8] {
    (to as usize as u64).to_ne_bytes()
}

fn descriptor(fd: &OwnedFd) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

/// `attributes`: the union of linux/bpf.h as bytes. What it points to must live through the call.
fn call(command: libc::c_long, attributes: &[u8]) -> io::Result<i32> {
    // SAFETY: pointer and length describe `attributes`; the callers keep what is pointed to.
    let rc = unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_ptr(), attributes.len()) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(i32::try_from(rc).unwrap_or(-1)) }
}

fn owned(fd: i32) -> OwnedFd {
    // SAFETY: the kernel has just made it for us.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Loads a program for tc (BPF_PROG_TYPE_SCHED_CLS).
///
/// # Errors
/// The kernel refuses it; the text has the verifier's last words.
pub fn load(name: &str, program: &[Instruction]) -> Result<OwnedFd> {
    let error = match try_load(program, &mut []) {
        Ok(loaded) => return Ok(loaded),
        Err(error) => error,
    };
    // Once more, for the verifier's words.
    let mut log = vec![0u8; LOG_BYTES];
    match try_load(program, &mut log) {
        Ok(loaded) => Ok(loaded),
        Err(_) => {
            let end = log.iter().position(|b| *b == 0).unwrap_or(0);
            let said = String::from_utf8_lossy(log.get(..end).unwrap_or_default()).into_owned();
            let last: Vec<&str> = said.lines().rev().take(4).collect();
            let last: Vec<&str> = last.into_iter().rev().collect();
            Err(Error::os(format!("loading the BPF program {name} ({})", last.join(" | ")), error))
        }
    }
}

fn try_load(program: &[Instruction], log: &mut [u8]) -> io::Result<OwnedFd> {
    let count = u32::try_from(program.len()).unwrap_or(u32::MAX);
    let mut attributes = words([BPF_PROG_TYPE_SCHED_CLS, count]);
    attributes.extend(pointer(program.as_ptr()));
    attributes.extend(pointer(LICENCE.as_ptr()));
    if !log.is_empty() {
        attributes.extend(words([1, u32::try_from(log.len()).unwrap_or(u32::MAX)]));
        attributes.extend(pointer(log.as_mut_ptr()));
    }
    call(BPF_PROG_LOAD, &attributes).map(owned)
}

/// BPF_MAP_TYPE_HASH.
pub const HASH: u32 = 1;
/// BPF_MAP_TYPE_ARRAY.
pub const ARRAY: u32 = 2;
/// BPF_MAP_TYPE_DEVMAP_HASH: its values are interfaces, and an entry goes when its interface does.
pub const DEVICE_HASH: u32 = 25;

/// BPF_F_MMAPABLE: a map that can be mapped into memory.
const MAPPABLE: u32 = 1 << 10;

/// What a map of programs holds: plain numbers, without gaps between them.
pub trait Plain: Copy + Default + sealed::Plain {}

mod sealed {
    pub trait Plain {}
    impl Plain for u32 {}
    impl Plain for u64 {}
    impl Plain for [u8; 8] {}
    impl Plain for [u32; 2] {}
    impl Plain for [u32; 3] {}
}

impl<T: Copy + Default + sealed::Plain> Plain for T {}

/// A map that programs share with this process. Its keys are numbers of four bytes, its values of
/// this type: the kernel reads and writes as many bytes as the type has.
#[derive(Debug)]
pub struct Map<V> {
    fd: OwnedFd,
    values: PhantomData<V>,
}

impl<V> AsRawFd for Map<V> {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl<V> AsFd for Map<V> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl<V: Plain> Map<V> {
    /// Makes a map of this type (BPF_MAP_TYPE_...).
    ///
    /// # Errors
    /// The kernel refuses: no privilege, no memory, unknown type.
    pub fn new(kind: u32, entries: u32) -> Result<Self> {
        Self::with_flags(kind, entries, 0)
    }

    /// Makes an array that can be mapped into memory (Linux 5.5).
    ///
    /// # Errors
    /// The kernel refuses: no privilege, no memory, or it is too old.
    pub fn shared_array(entries: u32) -> Result<Self> {
        Self::with_flags(ARRAY, entries, MAPPABLE)
    }

    fn with_flags(kind: u32, entries: u32, flags: u32) -> Result<Self> {
        let value_bytes = u32::try_from(size_of::<V>()).unwrap_or(u32::MAX);
        let attributes = words([kind, 4, value_bytes, entries, flags]);
        let made = call(BPF_MAP_CREATE, &attributes).map_err(|e| Error::os("making a BPF map", e))?;
        Ok(Self { fd: owned(made), values: PhantomData })
    }

    /// Puts an entry into it.
    ///
    /// # Errors
    /// There is no room, or the map takes no such value (of a device map: no such interface).
    pub fn put(&self, key: u32, value: V) -> Result<()> {
        let mut attributes = self.attributes(&key, &raw const value);
        attributes.extend(0u64.to_ne_bytes());
        call(BPF_MAP_UPDATE_ELEM, &attributes).map(|_| ()).map_err(|e| Error::os("filling a BPF map", e))
    }

    /// Takes the entry with this key out, if there is one.
    pub fn take_out(&self, key: u32) {
        let mut attributes = words([descriptor(&self.fd), 0]);
        attributes.extend(pointer(&raw const key));
        // The only error that there can be is that it is not there.
        let _ = call(BPF_MAP_DELETE_ELEM, &attributes);
    }

    /// What stands under this key.
    #[must_use]
    pub fn get(&self, key: u32) -> Option<V> {
        let mut value = V::default();
        let mut attributes = self.attributes(&key, &raw mut value);
        attributes.extend(0u64.to_ne_bytes());
        call(BPF_MAP_LOOKUP_ELEM, &attributes).ok().map(|_| value)
    }

    fn attributes(&self, key: &u32, value: *const V) -> Vec<u8> {
        let mut attributes = words([descriptor(&self.fd), 0]);
        attributes.extend(pointer(&raw const *key));
        attributes.extend(pointer(value));
        attributes
    }
}

/// The number by which the kernel knows a program.
///
/// # Errors
/// The kernel does not answer.
pub fn program_id(program: &OwnedFd) -> Result<u32> {
    // struct bpf_prog_info: type, number.
    let mut info = [0u32; 2];
    let mut attributes = words([descriptor(program), size_of_val(&info) as u32]);
    attributes.extend(pointer(info.as_mut_ptr()));
    call(BPF_OBJ_GET_INFO_BY_FD, &attributes).map_err(|e| Error::os("asking for a BPF program", e))?;
    Ok(info[1])
}

/// A program that stands at an interface. Dropping it takes it away.
#[derive(Debug)]
pub enum Attached {
    /// By tcx: it goes with the process, too.
    Link(OwnedFd),
    /// By a classifier.
    Filter(Filter),
}

/// By what a program stands at an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// By tcx, which takes no place from anybody.
    Tcx,
    /// By a filter, in a qdisc that takes the place of another one.
    Filter,
}

/// `off` in the environment: programs are attached as kernels before 6.6 do it.
const TCX: &str = "FARLINK_TCX";

impl Attached {
    /// Attaches a program to an interface, outside of all others: first of what comes in, last of
    /// what leaves.
    ///
    /// # Errors
    /// There is no such interface, or the kernel can neither do it by tcx nor by a classifier.
    pub fn at(program: &OwnedFd, interface: u32, side: Side) -> Result<Self> {
        if std::env::var_os(TCX).is_none_or(|value| value != "off") {
            match attach(program, interface, side) {
                // Kernels before 6.6 do not know what to attach to.
                Err(e) if e.is(libc::EINVAL) => {}
                other => return other.map(Self::Link),
            }
        }
        Filter::attach(program, interface, side).map(Self::Filter)
    }

    /// By what it stands there.
    #[must_use]
    pub const fn means(&self) -> Means {
        match self {
            Self::Link(_) => Means::Tcx,
            Self::Filter(_) => Means::Filter,
        }
    }

    /// The interface at which it stands. `None`: somebody has taken it away, or the interface is
    /// gone.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn stands_at(&self) -> Result<Option<u32>> {
        match self {
            Self::Link(link) => stands_at(link),
            Self::Filter(filter) => filter.stands_at(),
        }
    }
}

/// As [`Attached::stands_at`].
fn stands_at(attached: &OwnedFd) -> Result<Option<u32>> {
    // struct bpf_link_info: type, number and program, then of tcx the interface, at the next
    // multiple of eight bytes.
    let mut info = [0u32; 16];
    let mut attributes = words([descriptor(attached), size_of_val(&info) as u32]);
    attributes.extend(pointer(info.as_mut_ptr()));
    call(BPF_OBJ_GET_INFO_BY_FD, &attributes)
        .map_err(|e| Error::os("asking where a BPF program stands", e))?;
    Ok(Some(info[4]).filter(|interface| *interface != 0))
}

/// By tcx. Closing the descriptor, or the end of the process, detaches it.
fn attach(program: &OwnedFd, interface: u32, side: Side) -> Result<OwnedFd> {
    let (kind, place) = match side {
        Side::Ingress => (BPF_TCX_INGRESS, BPF_F_BEFORE),
        Side::Egress => (BPF_TCX_EGRESS, BPF_F_AFTER),
    };
    let attributes = words([descriptor(program), interface, kind, place, 0, 0, 0, 0]);
    let what = || format!("attaching a BPF program to interface {interface}");
    call(BPF_LINK_CREATE, &attributes).map(owned).map_err(|e| Error::os(what(), e))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LET_PASS: [Instruction; 2] = [
        Instruction(0xb7, 0, 0, -1), // r0 = TCX_NEXT
        Instruction(0x95, 0, 0, 0),  // exit
    ];

    #[test]
    fn programs_are_loaded_and_bad_ones_explained() {
        match load("let-pass", &LET_PASS) {
            Ok(_) => {}
            Err(e) if e.is(libc::EPERM) => return eprintln!("skipped: no privilege for bpf(2)"),
            Err(e) => panic!("{e}"),
        }
        let refused = load("no-answer", &LET_PASS[1..]).unwrap_err().to_string();
        assert!(refused.contains("R0"), "the verifier's words: {refused}");
        let array = Map::new(ARRAY, 1).unwrap();
        array.put(0, 7u32).unwrap();
        assert!(array.put(1, 7).unwrap_err().is(libc::E2BIG));
        assert_eq!((array.get(0), array.get(1)), (Some(7), None));
        let numbers = Map::<u64>::new(ARRAY, 1).unwrap();
        assert_eq!((numbers.get(0), numbers.get(1)), (Some(0), None));
    }

    /// Each value is as long as the map says, whatever it holds: with values of other sizes the
    /// kernel would read or write beyond them.
    #[test]
    fn a_map_has_values_of_its_type() {
        let of_four = match Map::<u32>::new(HASH, 2) {
            Ok(map) => map,
            Err(e) if e.is(libc::EPERM) => return eprintln!("skipped: no privilege for bpf(2)"),
            Err(e) => panic!("{e}"),
        };
        let of_eight = Map::<[u8; 8]>::new(HASH, 2).unwrap();
        for key in [1, u32::MAX] {
            of_four.put(key, !key).unwrap();
            of_eight.put(key, [7; 8]).unwrap();
            assert_eq!((of_four.get(key), of_eight.get(key)), (Some(!key), Some([7; 8])));
        }
        of_four.take_out(1);
        assert_eq!((of_four.get(1), of_four.get(2)), (None, None));
    }

    /// As linux/bpf.h has them on both kinds of processors.
    #[test]
    fn registers_stand_as_the_processor_has_bit_fields() {
        assert_eq!(registers(ByteOrder::Little, 2, 10), 0xa2);
        assert_eq!(registers(ByteOrder::Big, 2, 10), 0x2a);
        let native = if 1u16.to_ne_bytes() == [1, 0] { ByteOrder::Little } else { ByteOrder::Big };
        assert_eq!(ByteOrder::NATIVE, native);
    }

    #[test]
    fn a_program_stands_at_an_interface() {
        let attached = crate::netns::Namespace::create(&format!("flb{}", std::process::id()));
        let Ok(ns) = attached else { return eprintln!("skipped: no privilege for namespaces") };
        let outcome = ns.run(|| {
            let program = load("let-pass", &LET_PASS)?;
            for side in [Side::Ingress, Side::Egress] {
                let attached = attach(&program, 1, side)?;
                assert_eq!(stands_at(&attached)?, Some(1));
            }
            let other = load("let-pass", &LET_PASS)?;
            for side in [Side::Ingress, Side::Egress] {
                let first = Filter::attach(&program, 1, side)?;
                assert_eq!(first.stands_at()?, Some(1));
                // One of a process that was killed gives way.
                let second = Filter::attach(&other, 1, side)?;
                assert_eq!((first.stands_at()?, second.stands_at()?), (None, Some(1)));
                drop(first);
                assert_eq!(second.stands_at()?, Some(1), "what is another's stays");
            }
            let kept = Filter::attach(&program, 1, Side::Egress)?;
            std::mem::forget(kept);
            let qdiscs = || std::process::Command::new("tc").args(["qdisc", "show", "dev", "lo"]).output();
            let has_clsact = |said: &[u8]| String::from_utf8_lossy(said).contains("clsact");
            if let Ok(output) = qdiscs() {
                assert!(has_clsact(&output.stdout));
                drop(Filter::attach(&program, 1, Side::Egress)?);
                assert!(!has_clsact(&qdiscs().unwrap().stdout), "nothing is left");
                std::mem::forget(Filter::attach(&program, 1, Side::Ingress)?);
                assert_eq!(crate::classifier::sweep()?, 1);
                assert!(!has_clsact(&qdiscs().unwrap().stdout), "nothing is left");
            }
            Ok(attach(&program, 999, Side::Ingress).is_err_and(|e| e.is(libc::ENODEV) || e.is(libc::EINVAL)))
        });
        let _ = ns.delete();
        match outcome {
            Ok(is_refused) => assert!(is_refused),
            Err(e) if e.is(libc::EPERM) || e.is(libc::EINVAL) => eprintln!("skipped: {e}"),
            Err(e) => panic!("{e}"),
        }
    }
}
