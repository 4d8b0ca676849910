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
    /// Whether landlock limits which files may be truncated.
    pub(super) may_truncate: bool,
    /// Whether landlock, or a user of its own, limits which processes get signals.
    pub(super) may_signal: bool,
    /// The process id of the agent.
    pub(super) process: u32,
    /// The process id of the parent: the hub or the guard.
    pub(super) parent: u32,
    /// The process id of the hub.
    pub(super) hub: u32,
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
    // open_tree_attr, which libc does not name on every platform.
    467,
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
    // fchmodat2, setxattrat, removexattrat and file_setattr, which libc does not name on every
    // platform.
    452,
    463,
    466,
    469,
];

/// System calls that send a signal to the process of their first argument.
const SIGNALS: &[c_long] = &[
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
];

/// System calls that change how the process of their first argument is scheduled.
const SCHEDULING: &[c_long] = &[
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setaffinity,
];

/// Commands of `fcntl` that send signals to other processes, or that delay their access to a file:
/// `F_SETOWN`, `F_SETSIG`, `F_SETOWN_EX` and `F_SETLEASE`.
const DESCRIPTOR_SIGNALS: [u64; 4] = [8, 10, 15, 1024];

/// Requests of `ioctl` that do the same: `FIOSETOWN` and `SIOCSPGRP`.
const OWNER_REQUESTS: [u64; 2] = [0x8901, 0x8902];

/// Operations of `prctl`: a process must end with its parent, the hub must be able to inspect it, and
/// its orphans belong to the guard.
const PROCESS_CONTROLS: [i32; 3] =
    [libc::PR_SET_PDEATHSIG, libc::PR_SET_DUMPABLE, libc::PR_SET_CHILD_SUBREAPER];

/// The number 2 selects all processes of a user in `setpriority`, the number 3 in `ioprio_set`.
const OF_A_USER: [(c_long, u64); 2] = [(libc::SYS_setpriority, 2), (libc::SYS_ioprio_set, 3)];

/// Calls with another number in the x32 ABI than in the 64-bit ABI.
#[cfg(target_arch = "x86_64")]
const X32_NUMBERS: &[(c_long, i64)] = &[
    (libc::SYS_ioctl, 514),
    (libc::SYS_sendmsg, 518),
    (libc::SYS_ptrace, 521),
    (libc::SYS_rt_sigqueueinfo, 524),
    (libc::SYS_kexec_load, 528),
    (libc::SYS_rt_tgsigqueueinfo, 536),
    (libc::SYS_sendmmsg, 538),
    (libc::SYS_process_vm_readv, 539),
    (libc::SYS_process_vm_writev, 540),
];
#[cfg(not(target_arch = "x86_64"))]
const X32_NUMBERS: &[(c_long, i64)] = &[];

/// The system calls that a filter matches. An empty list of rules matches every call.
type Calls = BTreeMap<i64, Vec<SeccompRule>>;

fn condition(
    argument: u8,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
}

fn rule(conditions: &[(u8, SeccompCmpOp, u64)]) -> Result<SeccompRule, BackendError> {
    let conditions = conditions
        .iter()
        .map(|(argument, operator, value)| condition(*argument, operator.clone(), *value));
    SeccompRule::new(conditions.collect::<Result<_, _>>()?)
}

fn number(flag: i32) -> u64 {
    u64::from(flag.unsigned_abs())
}

/// Returns the calls that fail with `EPERM`.
fn refused(rules: &Rules) -> Result<Calls, BackendError> {
    use SeccompCmpOp::{Eq, Ne};
    let mut calls: Calls = NEVER.iter().map(|call| (*call, Vec::new())).collect();
    // Own limits are hard limits. Other processes of the same user must keep theirs.
    calls.insert(libc::SYS_prlimit64, vec![rule(&[(0, Ne, 0)])?]);
    if !rules.has_own_user {
        calls.extend(OF_OTHER_FILES.iter().map(|call| (*call, Vec::new())));
    }
    if !rules.may_truncate {
        calls.insert(libc::SYS_truncate, Vec::new());
        // Without a right to write: `O_RDONLY`, or 3, which permits neither reading nor writing.
        // A descriptor with the right to write needs that right from landlock.
        let truncates = |mode: i32| {
            let mask = SeccompCmpOp::MaskedEq(number(libc::O_ACCMODE | libc::O_TRUNC));
            (mask, number(mode | libc::O_TRUNC))
        };
        let opens = [
            #[cfg(target_arch = "x86_64")]
            (libc::SYS_open, 1),
            (libc::SYS_openat, 2),
        ];
        for (call, argument) in opens {
            let modes = [libc::O_RDONLY, libc::O_ACCMODE].map(truncates);
            let modes = modes.into_iter().map(|(mask, flags)| rule(&[(argument, mask, flags)]));
            calls.insert(call, modes.collect::<Result<_, _>>()?);
        }
    }
    let equals = |argument, values: &[u64]| {
        values.iter().map(|value| rule(&[(argument, Eq, *value)])).collect::<Result<Vec<_>, _>>()
    };
    calls.insert(libc::SYS_fcntl, equals(1, &DESCRIPTOR_SIGNALS)?);
    calls.insert(libc::SYS_ioctl, equals(1, &OWNER_REQUESTS)?);
    calls.insert(libc::SYS_prctl, equals(0, &PROCESS_CONTROLS.map(number))?);
    let process = u64::from(rules.process);
    for call in SCHEDULING {
        calls.insert(*call, vec![rule(&[(0, Ne, process), (0, Ne, 0)])?]);
    }
    for (call, user) in OF_A_USER {
        let other = rule(&[(1, Ne, process), (1, Ne, 0)])?;
        calls.insert(call, vec![rule(&[(0, Eq, user)])?, other]);
    }
    add_processes(rules, &mut calls)?;
    add_sockets(rules, &mut calls)?;
    Ok(calls)
}

/// Adds the calls that start processes and that send signals.
fn add_processes(rules: &Rules, calls: &mut Calls) -> Result<(), BackendError> {
    use SeccompCmpOp::{Eq, MaskedEq, Ne};
    let user_namespace = number(libc::CLONE_NEWUSER);
    let thread = number(libc::CLONE_THREAD);
    let thread_with_files = number(libc::CLONE_THREAD | libc::CLONE_FILES);
    let mut clone = vec![
        rule(&[(0, MaskedEq(user_namespace), user_namespace)])?,
        // The threads of a process have the same descriptors, so that the hub finds all of them.
        rule(&[(0, MaskedEq(thread_with_files), thread)])?,
    ];
    let process = u64::from(rules.process);
    if !rules.has_processes {
        // A thread is permitted, another process is not.
        clone.push(rule(&[(0, MaskedEq(thread), 0)])?);
        #[cfg(target_arch = "x86_64")]
        calls.extend([libc::SYS_fork, libc::SYS_vfork].map(|call| (call, Vec::new())));
        for call in SIGNALS {
            calls.insert(*call, vec![rule(&[(0, Ne, process), (0, Ne, 0)])?]);
        }
    } else if !rules.may_signal {
        // All processes, the hub and the guard, as a process and as a group. The ids of their threads
        // are not known, so this filter alone does not confine an agent.
        let ids = [1, rules.hub, rules.parent].map(|id| [id, id.wrapping_neg()]);
        let ids = ids.as_flattened().iter().map(|id| u64::from(*id));
        for call in SIGNALS {
            let others = ids.clone().map(|id| rule(&[(0, Eq, id)]));
            calls.insert(*call, others.collect::<Result<_, _>>()?);
        }
        calls.insert(libc::SYS_tkill, Vec::new());
    }
    calls.insert(libc::SYS_clone, clone);
    Ok(())
}

/// Adds the calls that make and connect sockets.
fn add_sockets(rules: &Rules, calls: &mut Calls) -> Result<(), BackendError> {
    use SeccompCmpOp::{Eq, MaskedEq, Ne};
    // A pair of datagram sockets can send to any socket that has a path. A pair of streams cannot.
    const TYPES: u64 = 0xf;
    let streams = [libc::SOCK_STREAM, libc::SOCK_SEQPACKET].map(number);
    let others = (0..=TYPES).filter(|kind| !streams.contains(kind));
    let mut pairs =
        others.map(|kind| rule(&[(1, MaskedEq(TYPES), kind)])).collect::<Result<Vec<_>, _>>()?;
    pairs.push(rule(&[(0, Ne, number(libc::AF_UNIX))])?);
    calls.insert(libc::SYS_socketpair, pairs);
    if rules.has_network {
        let (v4, v6) = (number(libc::AF_INET), number(libc::AF_INET6));
        let routes = number(libc::AF_NETLINK);
        let other = rule(&[(0, Ne, v4), (0, Ne, v6), (0, Ne, routes)])?;
        calls.insert(libc::SYS_socket, vec![other, rule(&[(0, Eq, routes), (2, Ne, 0)])?]);
    } else {
        let all = [
            libc::SYS_socket,
            libc::SYS_bind,
            libc::SYS_connect,
            // A message can contain descriptors of deleted files, which nothing counts there.
            libc::SYS_sendmsg,
            libc::SYS_sendmmsg,
        ];
        calls.extend(all.map(|call| (call, Vec::new())));
    }
    Ok(())
}

/// Adds each call under its number of the x32 ABI, which has the same identification of the
/// architecture.
fn with_x32(calls: Calls) -> Calls {
    const X32: i64 = 0x4000_0000;
    if !cfg!(target_arch = "x86_64") {
        return calls;
    }
    let same = calls.iter().map(|(call, rules)| (call | X32, rules.clone()));
    let other = X32_NUMBERS
        .iter()
        .filter_map(|(call, other)| calls.get(call).map(|rules| (other | X32, rules.clone())));
    let others: Vec<_> = same.chain(other).collect();
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
    // The arguments of clone3 and openat2 are in memory, where no filter can read them. Without them,
    // programs use clone and openat.
    let mut absent = Calls::from([(libc::SYS_clone3, Vec::new())]);
    if !rules.may_truncate {
        absent.insert(libc::SYS_openat2, Vec::new());
    }
    apply(absent, ENOSYS)?;
    apply(refused(rules).map_err(|error| error.to_string())?, EPERM)
}
