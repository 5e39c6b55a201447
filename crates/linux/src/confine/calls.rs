//! System calls that the daemon never makes, and what tries to take a machine over does. They fail
//! with EPERM. It is a list of what is refused: another libc, or a newer one, may make calls that
//! nobody has thought of here, and goes on.

/// All that the process starts from here on, and this thread, cannot run programs, listen at ports,
/// change owners and rights of files, or touch what is the machine's: other processes, mounts,
/// namespaces, modules, clocks, keys. Sockets are UNIX, IP and netlink only.
///
/// # Errors
/// Why that is not so.
pub fn refuse_calls() -> Result<(), String> {
    supported::refuse()
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
mod supported {
    pub(super) fn refuse() -> Result<(), String> {
        Err(format!("there is no filter of system calls for {}", std::env::consts::ARCH))
    }
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
mod supported {
    use std::collections::BTreeMap;

    use libc::c_long;
    use seccompiler::{
        BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
        SeccompFilter, SeccompRule, apply_filter,
    };

    /// Whatever they are told.
    const REFUSED: &[c_long] = &[
        // Programs and ports.
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_listen,
        // Owners and rights of files, which Landlock does not look at.
        libc::SYS_fchmod,
        libc::SYS_fchmodat,
        libc::SYS_fchown,
        libc::SYS_fchownat,
        libc::SYS_setxattr,
        libc::SYS_lsetxattr,
        libc::SYS_fsetxattr,
        libc::SYS_removexattr,
        libc::SYS_lremovexattr,
        libc::SYS_fremovexattr,
        libc::SYS_mknodat,
        libc::SYS_open_by_handle_at,
        // Other processes.
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_process_madvise,
        libc::SYS_pidfd_getfd,
        libc::SYS_kcmp,
        libc::SYS_perf_event_open,
        // Namespaces and mounts.
        libc::SYS_setns,
        libc::SYS_unshare,
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_pivot_root,
        libc::SYS_chroot,
        libc::SYS_move_mount,
        libc::SYS_open_tree,
        libc::SYS_fsopen,
        libc::SYS_fsconfig,
        libc::SYS_fsmount,
        libc::SYS_fspick,
        libc::SYS_mount_setattr,
        // The machine.
        libc::SYS_init_module,
        libc::SYS_finit_module,
        libc::SYS_delete_module,
        libc::SYS_kexec_load,
        libc::SYS_reboot,
        libc::SYS_swapon,
        libc::SYS_swapoff,
        libc::SYS_acct,
        libc::SYS_quotactl,
        libc::SYS_sethostname,
        libc::SYS_setdomainname,
        libc::SYS_settimeofday,
        libc::SYS_clock_settime,
        libc::SYS_clock_adjtime,
        libc::SYS_adjtimex,
        libc::SYS_syslog,
        libc::SYS_vhangup,
        // What is large in the kernel, and not used.
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_keyctl,
        libc::SYS_userfaultfd,
        libc::SYS_fanotify_init,
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
    ];

    /// Older names of the same, and what only this processor has.
    #[cfg(target_arch = "x86_64")]
    const MORE: &[c_long] = &[
        libc::SYS_chmod,
        libc::SYS_chown,
        libc::SYS_lchown,
        libc::SYS_mknod,
        libc::SYS_kexec_file_load,
        libc::SYS_iopl,
        libc::SYS_ioperm,
        libc::SYS_modify_ldt,
    ];
    #[cfg(not(target_arch = "x86_64"))]
    const MORE: &[c_long] = &[];

    /// fchmodat2 (Linux 6.6): the same number everywhere.
    const FCHMODAT2: c_long = 452;
    /// Calls of the x32 form of x86_64 have this bit, and are all refused that are refused at all.
    const X32: c_long = 0x4000_0000;

    /// An address of netlink has this length. Of IP it is longer, so no port is bound.
    const NETLINK_ADDRESS_BYTES: u64 = size_of::<libc::sockaddr_nl>() as u64;
    const FAMILIES: [libc::c_int; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

    pub(super) fn refuse() -> Result<(), String> {
        let program = filter().map_err(|error| error.to_string())?;
        // It takes no_new_privs, and sets it.
        apply_filter(&program).map_err(|error| error.to_string())
    }

    fn filter() -> Result<BpfProgram, BackendError> {
        let is_not = |argument, value| {
            SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, value)
        };
        let other_families =
            FAMILIES.map(|family| is_not(0, family as u64)).into_iter().collect::<Result<_, _>>()?;
        let bound = SeccompRule::new(vec![is_not(2, NETLINK_ADDRESS_BYTES)?])?;
        let opened = SeccompRule::new(other_families)?;
        let refused = REFUSED.iter().chain(MORE).chain(&[FCHMODAT2]).map(|call| (*call, Vec::new()));
        let some = [(libc::SYS_bind, vec![bound]), (libc::SYS_socket, vec![opened])];
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> = refused.chain(some).collect();
        if cfg!(target_arch = "x86_64") {
            let as_x32: Vec<_> = rules.iter().map(|(call, rules)| (call | X32, rules.clone())).collect();
            rules.extend(as_x32);
            // Those that have numbers of their own there.
            rules.extend((512..548).map(|call| (call | X32, Vec::new())));
        }
        let refuse = SeccompAction::Errno(libc::EPERM as u32);
        SeccompFilter::new(rules, SeccompAction::Allow, refuse, std::env::consts::ARCH.try_into()?)?
            .try_into()
    }
}
