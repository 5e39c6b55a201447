//! What somebody does to other people's BPF programs at an interface.

/// Takes away every program that a link holds at this side of an interface of the calling thread's
/// network namespace, as `bpftool link detach` does. Returns how many there were.
pub fn detach(interface: u32, is_ingress: bool) -> usize {
    const BPF_PROG_QUERY: libc::c_long = 16;
    const BPF_LINK_GET_FD_BY_ID: libc::c_long = 30;
    const BPF_LINK_DETACH: libc::c_long = 34;
    let call = |command: libc::c_long, words: &mut [u64]| {
        // SAFETY: what the words point to lives through the call.
        let rc = unsafe { libc::syscall(libc::SYS_bpf, command, words.as_mut_ptr(), size_of_val(words)) };
        assert!(rc >= 0, "bpf({command}): {}", std::io::Error::last_os_error());
        rc as u64
    };
    let two = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let (mut programs, mut links) = ([0u32; 8], [0u32; 8]);
    // BPF_TCX_INGRESS, BPF_TCX_EGRESS.
    let side = if is_ingress { 46 } else { 47 };
    let mut query = [
        two(interface, side),
        0,
        programs.as_mut_ptr() as u64,
        programs.len() as u64,
        0,
        links.as_mut_ptr() as u64,
        0,
        0,
    ];
    call(BPF_PROG_QUERY, &mut query);
    let count = query[3] as usize;
    for link in &links[..count] {
        let fd = call(BPF_LINK_GET_FD_BY_ID, &mut [u64::from(*link), 0]);
        call(BPF_LINK_DETACH, &mut [fd]);
        // SAFETY: the kernel has just made it for us.
        unsafe { libc::close(fd as libc::c_int) };
    }
    count
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
