//! What somebody does to other people's BPF programs at an interface.

use farlink_linux::bpf::{Attached, ByteOrder, Instruction, Side, load, registers};

fn call(command: libc::c_long, words: &mut [u64]) -> u64 {
    // SAFETY: what the words point to lives through the call.
    let rc = unsafe { libc::syscall(libc::SYS_bpf, command, words.as_mut_ptr(), size_of_val(words)) };
    assert!(rc >= 0, "bpf({command}): {}", std::io::Error::last_os_error());
    rc as u64
}

/// What holds the programs at this side of an interface, in the order in which they are asked.
fn links(interface: u32, is_ingress: bool) -> Vec<u32> {
    const BPF_PROG_QUERY: libc::c_long = 16;
    let (mut programs, mut links) = ([0u32; 64], [0u32; 64]);
    // BPF_TCX_INGRESS, BPF_TCX_EGRESS.
    let side: u32 = if is_ingress { 46 } else { 47 };
    let mut query = [
        u64::from(interface) | u64::from(side) << 32,
        0,
        programs.as_mut_ptr() as u64,
        programs.len() as u64,
        0,
        links.as_mut_ptr() as u64,
        0,
        0,
    ];
    call(BPF_PROG_QUERY, &mut query);
    links[..query[3] as usize].to_vec()
}

fn detach_link(link: u32) {
    const BPF_LINK_GET_FD_BY_ID: libc::c_long = 30;
    const BPF_LINK_DETACH: libc::c_long = 34;
    let fd = call(BPF_LINK_GET_FD_BY_ID, &mut [u64::from(link), 0]);
    call(BPF_LINK_DETACH, &mut [fd]);
    // SAFETY: the kernel has just made it for us.
    unsafe { libc::close(fd as libc::c_int) };
}

/// Takes away every program that a link holds at this side of an interface of the calling thread's
/// network namespace, as `bpftool link detach` does. Returns how many there were.
pub fn detach(interface: u32, is_ingress: bool) -> usize {
    let all = links(interface, is_ingress);
    all.iter().for_each(|link| detach_link(*link));
    all.len()
}

/// The same of the oldest alone where packets come in: each newer one was put before it.
pub fn detach_oldest(interface: u32) -> usize {
    links(interface, true).last().map_or(0, |link| {
        detach_link(*link);
        1
    })
}

/// A program that lets everything pass.
fn let_pass() -> std::os::fd::OwnedFd {
    load("let-pass", &[Instruction(MOV, 0, 0, -1), EXIT]).unwrap()
}

/// Puts as many programs at this side of an interface as there is room for. They go with the value.
pub fn fill(interface: u32, side: Side) -> Vec<Attached> {
    let mut all = Vec::new();
    while let Ok(attached) = Attached::at(&let_pass(), interface, side) {
        all.push(attached);
        assert!(all.len() < 1000, "there is room without end");
    }
    all
}

const MOV: u8 = 0xb7;
const EXIT: Instruction = Instruction(0x95, 0, 0, 0);

/// Puts a program in front of all others where packets leave by an interface: it drops what has
/// this mark of the traffic control (`tc_index`). It goes with the value.
pub fn drop_marked(interface: u32, tc_index: i32) -> std::os::fd::OwnedFd {
    use std::os::fd::{AsRawFd, FromRawFd};
    const BPF_LINK_CREATE: libc::c_long = 28;
    const BPF_TCX_EGRESS: u32 = 47;
    const BPF_F_BEFORE: u32 = 8;
    let of = |destination, source| registers(ByteOrder::NATIVE, destination, source);
    let program = [
        // r0 = skb->tc_index
        Instruction(0x61, of(0, 1), 44, 0),
        Instruction(0x55, of(0, 0), 2, tc_index),
        // TC_ACT_SHOT, else TCX_NEXT
        Instruction(MOV, of(0, 0), 0, 2),
        EXIT,
        Instruction(MOV, of(0, 0), 0, -1),
        EXIT,
    ];
    let program = load("drop-marked", &program).unwrap();
    let words = [program.as_raw_fd().cast_unsigned(), interface, BPF_TCX_EGRESS, BPF_F_BEFORE, 0, 0, 0, 0];
    // SAFETY: the words live through the call.
    let rc = unsafe { libc::syscall(libc::SYS_bpf, BPF_LINK_CREATE, words.as_ptr(), size_of_val(&words)) };
    assert!(rc >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the kernel has just made it for us.
    unsafe { std::os::fd::OwnedFd::from_raw_fd(rc as libc::c_int) }
}

/// The variable that switches tcx off.
pub const TCX: &str = "FARLINK_TCX";

/// Runs a test of this binary again, in a process of its own, where programs are attached as
/// kernels before 6.6 do it.
pub fn older_kernel(test: &str) {
    let program = std::env::current_exe().unwrap();
    let mut command = std::process::Command::new(program);
    let output = command.args([test, "--exact", "--nocapture"]).env(TCX, "off").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{test}: {said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("1 passed"), "{test} is there: {said}");
}
