//! System calls that no program may make, tried one by one, and uses of their neighbours that must
//! go on.

use crate::Test;
use crate::stage::{Outcome, Stage};

pub(crate) const TESTS: &[Test] = &[
    ("refused_calls_are_refused", refused_calls_are_refused),
    ("debuggers_mpi_and_shared_memory_go_on", debuggers_mpi_and_shared_memory_go_on),
];

/// Name, number and the error that is expected of it.
fn calls() -> Vec<(&'static str, i64, i32)> {
    let eperm = [
        ("mount", libc::SYS_mount),
        ("umount2", libc::SYS_umount2),
        ("pivot_root", libc::SYS_pivot_root),
        ("fsopen", libc::SYS_fsopen),
        ("open_tree", libc::SYS_open_tree),
        ("move_mount", libc::SYS_move_mount),
        ("unshare", libc::SYS_unshare),
        ("setns", libc::SYS_setns),
        ("bpf", libc::SYS_bpf),
        ("userfaultfd", libc::SYS_userfaultfd),
        ("perf_event_open", libc::SYS_perf_event_open),
        ("add_key", libc::SYS_add_key),
        ("request_key", libc::SYS_request_key),
        ("keyctl", libc::SYS_keyctl),
        ("open_by_handle_at", libc::SYS_open_by_handle_at),
        ("init_module", libc::SYS_init_module),
        ("kexec_load", libc::SYS_kexec_load),
        ("syslog", libc::SYS_syslog),
        ("reboot", libc::SYS_reboot),
        ("clock_settime", libc::SYS_clock_settime),
        ("quotactl", libc::SYS_quotactl),
    ];
    let enosys = [
        ("io_uring_setup", libc::SYS_io_uring_setup),
        ("io_uring_enter", libc::SYS_io_uring_enter),
        ("io_uring_register", libc::SYS_io_uring_register),
    ];
    let with = |errno| move |(name, number)| (name, number, errno);
    eperm.into_iter().map(with(libc::EPERM)).chain(enosys.into_iter().map(with(libc::ENOSYS))).collect()
}

fn python(stage: &Stage, code: &str) -> Result<String, String> {
    stage.python()?;
    let mut instance = stage.shell("");
    instance.spec.command = ["python3", "-c", code].map(str::to_owned).to_vec();
    let ended = stage.finish(&instance);
    assert_eq!(ended.stderr, "");
    Ok(ended.stdout)
}

fn refused_calls_are_refused(stage: &Stage) -> Outcome {
    let calls = calls();
    // Arguments that the kernel would answer with another error: only the filter says these.
    let list: String = calls.iter().map(|(_, number, _)| format!("{number},")).collect();
    let code = format!(
        "import ctypes, socket\n\
         libc = ctypes.CDLL(None, use_errno=True)\n\
         for number in [{list}]:\n\
         \x20   result = libc.syscall(number, ctypes.c_long(-1), ctypes.c_long(-1), ctypes.c_long(-1), ctypes.c_long(-1), ctypes.c_long(-1))\n\
         \x20   print(result, ctypes.get_errno())\n\
         for family in [38, 40, 21, 44, 4]:\n\
         \x20   print(libc.socket(family, 5, 0), ctypes.get_errno())\n\
         print([line.split()[1] for line in open('/proc/self/status') if line.startswith('Seccomp:')])"
    );
    let told = python(stage, &code)?;
    let mut lines = told.lines();
    for (name, _, errno) in calls {
        assert_eq!(lines.next(), Some(&*format!("-1 {errno}")), "{name}");
    }
    for family in ["AF_ALG", "AF_VSOCK", "AF_RDS", "AF_XDP", "AF_IPX"] {
        assert_eq!(lines.next(), Some(&*format!("-1 {}", libc::EAFNOSUPPORT)), "{family}");
    }
    assert_eq!(lines.next(), Some("['2']"), "a filter is in force");
    Ok(())
}

/// What py-spy, gdb and strace do (ptrace, process_vm_readv), MPI's copies between ranks, shared
/// memory of several kinds, NUMA's policies, and new calls that libraries look for.
fn debuggers_mpi_and_shared_memory_go_on(stage: &Stage) -> Outcome {
    let code = "
import ctypes, mmap, os, platform, signal, socket
from multiprocessing import shared_memory
libc = ctypes.CDLL(None, use_errno=True)
x86 = platform.machine() == 'x86_64'
def call(name, *arguments):
    return libc.syscall(*[ctypes.c_long(argument) for argument in arguments])
word = ctypes.create_string_buffer(b'rank')
child = os.fork()
if child == 0:
    signal.pause()
class Part(ctypes.Structure):
    _fields_ = [('base', ctypes.c_void_p), ('length', ctypes.c_size_t)]
into = ctypes.create_string_buffer(4)
local, remote = Part(ctypes.addressof(into), 4), Part(ctypes.addressof(word), 4)
print(libc.process_vm_readv(child, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0), into.raw.decode())
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
print(libc.ptrace(16, child, None, None), os.waitpid(child, 0)[0] == child, libc.ptrace(17, child, None, None))
os.kill(child, signal.SIGKILL); os.waitpid(child, 0)
memory = shared_memory.SharedMemory(create=True, size=4096); memory.unlink(); memory.close()
print(os.memfd_create('x') > 0, libc.shmget(0, 4096, 0o1600) >= 0)
# get_mempolicy, clone3 with no arguments, pidfd_open
print(call('get_mempolicy', 239 if x86 else 236, 0, 0, 0, 0, 0), call('clone3', 435, 0, 0) == -1 and ctypes.get_errno() != 38)
print(os.pidfd_open(os.getpid()) > 0, socket.socket(socket.AF_UNIX).close(), socket.socket(socket.AF_INET6).close())
print(socket.socket(16, socket.SOCK_RAW, 0).close(), [s.close() for s in socket.socketpair()])
";
    let told = python(stage, code)?;
    assert_eq!(told, "4 rank\n0 True 0\nTrue True\n0 True\nTrue None None\nNone [None, None]\n");
    Ok(())
}
