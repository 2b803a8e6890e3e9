//! System calls that no program of an instance may make (docs/isolation.md has the reasons): those
//! that serve the machine's administrator, which the kernel would refuse an unprivileged user
//! anyway, and those that training does not need and in which kernels had many of their holes.
//!
//! It is a list of what is refused, not of what is allowed: a program must not break because a
//! library or a kernel has a new call. Debuggers and profilers of a program's own processes,
//! process_vm_readv (MPI, NCCL, py-spy) and NUMA calls remain.
#![allow(unsafe_code, reason = "installing a filter has no safe wrapper")]

use std::io;

/// As the C library's headers name them.
macro_rules! calls {
    ($($name:ident)*) => { [$(libc::$name),*] };
}

/// Refused with EPERM, as an unprivileged user is.
const FORBIDDEN: [libc::c_long; 39] = calls![
    // Mounts and namespaces.
    SYS_mount SYS_umount2 SYS_pivot_root SYS_fsopen SYS_fsconfig SYS_fsmount SYS_fspick SYS_move_mount
    SYS_open_tree SYS_mount_setattr SYS_unshare SYS_setns SYS_chroot
    // Code in the kernel, and what looks into it.
    SYS_bpf SYS_init_module SYS_finit_module SYS_delete_module SYS_kexec_load SYS_perf_event_open SYS_syslog
    SYS_userfaultfd SYS_lookup_dcookie
    // Keys, which belong to users and not to namespaces.
    SYS_add_key SYS_request_key SYS_keyctl
    // Files without a path.
    SYS_open_by_handle_at SYS_fanotify_init
    // The machine.
    SYS_reboot SYS_swapon SYS_swapoff SYS_acct SYS_quotactl SYS_quotactl_fd SYS_settimeofday SYS_clock_settime
    SYS_vhangup SYS_nfsservctl SYS_sethostname SYS_setdomainname
];

/// The same, on machines of one kind.
#[cfg(target_arch = "x86_64")]
const FORBIDDEN_HERE: [libc::c_long; 6] =
    calls![SYS_kexec_file_load SYS_iopl SYS_ioperm SYS__sysctl SYS_uselib SYS_ustat];
#[cfg(not(target_arch = "x86_64"))]
const FORBIDDEN_HERE: [libc::c_long; 0] = [];

/// Refused as if the kernel did not have them: libraries try them and have another way.
const ABSENT: [libc::c_long; 3] = calls![SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register];

/// Kinds of sockets that there are. Others are not kept apart by network namespaces (AF_VSOCK
/// reaches the machine's hypervisor) or are code of the kernel that nobody else uses (AF_ALG). Raw
/// packets are the kernel's own to refuse.
const FAMILIES: [libc::c_int; 6] =
    [libc::AF_UNSPEC, libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK, libc::AF_PACKET];

/// `AUDIT_ARCH_*` of linux/audit.h: a program may make the calls of this one only, as their numbers
/// mean others elsewhere.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// Calls of x86-64's second numbering (x32) have this bit.
const X32: u32 = 0x4000_0000;

/// Offsets in struct seccomp_data. Both architectures are little-endian: the low half of an
/// argument comes first.
const NUMBER: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;

/// Forbids them to this process and all that come of it, for ever. It must have `no_new_privs`.
/// Kernels without filters do without.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) fn forbid() -> io::Result<()> {
    let mut program = program();
    let filter =
        libc::sock_fprog { len: u16::try_from(program.len()).map_err(io::Error::other)?, filter: program.as_mut_ptr() };
    // SAFETY: the filter outlives the call, which copies it, and its length is the vector's.
    let done =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::c_ulong::from(libc::SECCOMP_MODE_FILTER), &raw const filter) };
    match io::Error::last_os_error() {
        _ if done == 0 => Ok(()),
        error if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        error => Err(error),
    }
}

/// Numbers are known for two architectures.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn forbid() -> io::Result<()> {
    Ok(())
}

/// Classic BPF over struct seccomp_data (seccomp(2)).
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn program() -> Vec<libc::sock_filter> {
    let refuse = |errno: i32| libc::SECCOMP_RET_ERRNO | errno.cast_unsigned();
    let mut program =
        vec![load(ARCHITECTURE_AT), skip_if(libc::BPF_JEQ, ARCHITECTURE, 1), give(refuse(libc::ENOSYS)), load(NUMBER)];
    if cfg!(target_arch = "x86_64") {
        program.extend([skip_unless(libc::BPF_JGE, X32, 1), give(refuse(libc::ENOSYS))]);
    }
    let forbidden = FORBIDDEN.iter().chain(&FORBIDDEN_HERE).map(|call| (*call, libc::EPERM));
    for (call, errno) in forbidden.chain(ABSENT.map(|call| (call, libc::ENOSYS))) {
        program.extend([skip_unless(libc::BPF_JEQ, call as u32, 1), give(refuse(errno))]);
    }
    for call in [libc::SYS_socket, libc::SYS_socketpair] {
        let families = FAMILIES
            .iter()
            .flat_map(|family| [skip_unless(libc::BPF_JEQ, family.cast_unsigned(), 1), give(libc::SECCOMP_RET_ALLOW)]);
        let check: Vec<_> =
            [load(FIRST_ARGUMENT)].into_iter().chain(families).chain([give(refuse(libc::EAFNOSUPPORT))]).collect();
        program.push(skip_unless(libc::BPF_JEQ, call as u32, check.len() as u8));
        program.extend(check);
    }
    program.push(give(libc::SECCOMP_RET_ALLOW));
    program
}

fn load(offset: u32) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, jt: 0, jf: 0, k: offset }
}

fn skip_if(test: u32, value: u32, count: u8) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_JMP | test | libc::BPF_K) as u16, jt: count, jf: 0, k: value }
}

fn skip_unless(test: u32, value: u32, count: u8) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_JMP | test | libc::BPF_K) as u16, jt: 0, jf: count, k: value }
}

fn give(verdict: u32) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: verdict }
}
