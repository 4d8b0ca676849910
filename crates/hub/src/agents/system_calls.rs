//! The system calls that an agent must not use (seccomp). They fail with an error, so that programs
//! can go on without them.

use std::collections::BTreeMap;

use libc::{ENOSYS, EPERM, c_long};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, apply_filter,
};

/// Whether there is a filter for this processor.
pub(super) const IS_SUPPORTED: bool =
    cfg!(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"));

/// What decides which system calls are permitted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Whether the agent may start processes.
    pub(super) has_processes: bool,
    /// Whether the agent may use the network.
    pub(super) has_network: bool,
    /// Whether no other program runs as the agent's user.
    pub(super) has_own_user: bool,
    /// Whether another mechanism limits which files may be truncated.
    pub(super) may_truncate: bool,
    /// The process id of the agent.
    pub(super) process: u32,
}

/// System calls that no agent may use: those that reach other processes, that go around the limits,
/// that change the system, and that leave the process group.
const NEVER: &[c_long] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kcmp,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_process_madvise,
    // Its operations are not system calls, so no filter sees them.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Memory that no limit counts, or that remains after the process.
    libc::SYS_memfd_create,
    libc::SYS_memfd_secret,
    libc::SYS_shmget,
    libc::SYS_msgget,
    libc::SYS_semget,
    libc::SYS_mq_open,
    libc::SYS_userfaultfd,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_quotactl,
    libc::SYS_acct,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_kexec_load,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_setsid,
    libc::SYS_setpgid,
];

/// System calls that change the owner or the permissions of files: landlock does not limit them, and
/// the files of the hub belong to the same user.
const OF_OTHER_FILES: &[c_long] = &[
    libc::SYS_fchmodat,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_utimensat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
    // fchmodat2, which libc does not name on every platform.
    452,
];

/// System calls that send a signal to the process of their first argument.
const SIGNALS: &[c_long] = &[
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
];

/// The system calls that a filter matches. An empty list of rules matches every call.
type Calls = BTreeMap<i64, Vec<SeccompRule>>;

fn condition(
    argument: u8,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
}

/// Returns the calls that fail with `EPERM`.
fn refused(rules: &Rules) -> Result<Calls, BackendError> {
    use SeccompCmpOp::{Eq, MaskedEq, Ne};
    let mut calls: Calls = NEVER.iter().map(|call| (*call, Vec::new())).collect();
    // Own limits are hard limits. Other processes of the same user must keep theirs.
    calls.insert(libc::SYS_prlimit64, vec![SeccompRule::new(vec![condition(0, Ne, 0)?])?]);
    if !rules.has_own_user {
        calls.extend(OF_OTHER_FILES.iter().map(|call| (*call, Vec::new())));
    }
    if !rules.may_truncate {
        calls.insert(libc::SYS_truncate, Vec::new());
    }
    let mask = |flag: i32| u64::from(flag.unsigned_abs());
    let user_namespace = mask(libc::CLONE_NEWUSER);
    let mut clone =
        vec![SeccompRule::new(vec![condition(0, MaskedEq(user_namespace), user_namespace)?])?];
    if !rules.has_processes {
        // A thread is permitted, another process is not.
        clone.push(SeccompRule::new(vec![condition(0, MaskedEq(mask(libc::CLONE_THREAD)), 0)?])?);
        #[cfg(target_arch = "x86_64")]
        calls.extend([libc::SYS_fork, libc::SYS_vfork].map(|call| (call, Vec::new())));
        let process = u64::from(rules.process);
        for call in SIGNALS {
            let others = vec![condition(0, Ne, process)?, condition(0, Ne, 0)?];
            calls.insert(*call, vec![SeccompRule::new(others)?]);
        }
    }
    calls.insert(libc::SYS_clone, clone);
    if rules.has_network {
        let family = |family: i32| u64::from(family.unsigned_abs());
        let (v4, v6) = (family(libc::AF_INET), family(libc::AF_INET6));
        let routes = family(libc::AF_NETLINK);
        calls.insert(
            libc::SYS_socket,
            vec![
                SeccompRule::new(vec![
                    condition(0, Ne, v4)?,
                    condition(0, Ne, v6)?,
                    condition(0, Ne, routes)?,
                ])?,
                SeccompRule::new(vec![condition(0, Eq, routes)?, condition(2, Ne, 0)?])?,
            ],
        );
    } else {
        calls.insert(libc::SYS_socket, Vec::new());
    }
    Ok(calls)
}

/// Adds each call under its number of the x32 ABI, which has the same identification of the
/// architecture.
fn with_x32(calls: Calls) -> Calls {
    const X32: i64 = 0x4000_0000;
    if !cfg!(target_arch = "x86_64") {
        return calls;
    }
    let others: Vec<_> = calls.iter().map(|(call, rules)| (call | X32, rules.clone())).collect();
    calls.into_iter().chain(others).collect()
}

fn apply(calls: Calls, error: i32) -> Result<(), String> {
    let build = || -> Result<BpfProgram, BackendError> {
        SeccompFilter::new(
            with_x32(calls),
            SeccompAction::Allow,
            SeccompAction::Errno(error.unsigned_abs()),
            TargetArch::try_from(std::env::consts::ARCH)?,
        )?
        .try_into()
    };
    apply_filter(&build().map_err(|error| error.to_string())?).map_err(|error| error.to_string())
}

/// Applies the filters to this process, for ever.
///
/// # Errors
/// A sentence with the cause.
pub(super) fn restrict(rules: &Rules) -> Result<(), String> {
    // The arguments of clone3 are in memory, where no filter can read them. Without it, the system
    // library uses clone.
    apply(Calls::from([(libc::SYS_clone3, Vec::new())]), ENOSYS)?;
    apply(refused(rules).map_err(|error| error.to_string())?, EPERM)
}
