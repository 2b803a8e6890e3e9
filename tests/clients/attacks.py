"""What a training program may try: each piece of Python must fail with an error, or come to
something empty.
"""

# Names that pieces use; `T` says where the targets are on the machine.
BEFORE = """
import ctypes, json, os, resource, signal, socket, struct, subprocess, sys, urllib.request
libc = ctypes.CDLL(None, use_errno=True)

def call(number, *arguments):
    result = libc.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result or "worked"

def c(name, *arguments):
    result = getattr(libc, name)(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result or "worked"

def read(path):
    with open(path, "rb") as file:
        return file.read(100)

def write(path, text="x"):
    with open(path, "w") as file:
        return file.write(text)

def connect(family, address, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as client:
        client.settimeout(2)
        client.connect(address)
        return "connected"

def of_all_processes(name):
    found = b""
    for pid in os.listdir("/proc"):
        try:
            found += read(f"/proc/{pid}/{name}") if pid.isdigit() else b""
        except OSError:
            pass
    return found

def fetch(path):
    return urllib.request.urlopen(os.environ["AWS_ENDPOINT_URL"] + path, timeout=5).read().decode()

ROLE = "arn:aws:iam::123456789012:role/tests"

def api(target, prefix="SageMaker", **body):
    headers = {"x-amz-target": f"{prefix}.{target}", "content-type": "application/x-amz-json-1.1"}
    status, said = s3("POST", "/", json.dumps(body).encode(), service="sagemaker", more=headers)
    return status == 200 and said
"""

FILES = {
    "the server's keys": 'read(T["data"] + "/keys")',
    "the server's database": 'read(T["data"] + "/shoal.db")',
    "the data directory": 'os.listdir(T["data"])',
    "the data directory through the first process": 'os.listdir("/proc/1/root" + T["data"])',
    "the data directory through its working directory": 'os.listdir("/proc/1/cwd" + T["data"])',
    "the server's socket": 'connect(socket.AF_UNIX, T["data"] + "/link.sock")',
    "another job's directory": 'os.listdir(T["run"])',
    "another job's file": 'read(T["run"] + "/algo-1/ml/model/secret")',
    "a file of root": 'read(T["root_file"])',
    "a file that everybody on the machine may read": 'read(T["open_file"])',
    "passwords": 'read("/etc/shadow")',
    "root's home": 'os.listdir("/root")',
    "a home": 'os.listdir("/home/" + os.listdir("/home")[0])',
    "shared memory of the machine": 'read("/dev/shm/" + T["shm"])',
    "files by handle": """
handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128)); mount = ctypes.c_int()
call(303, -100, b"/usr", handle, ctypes.byref(mount), 0)
fd = os.open("/usr", os.O_RDONLY)
call(304, fd, handle, os.O_RDONLY)""",
    "what others have open": 'os.listdir("/proc/1/fd") and [os.readlink(f"/proc/1/fd/{fd}") for fd in os.listdir("/proc/1/fd") if "data" in os.readlink(f"/proc/1/fd/{fd}")]',
}

WRITES = {
    "a program of the machine": 'write("/usr/bin/planted")',
    "an account": 'write("/etc/passwd")',
    "the root directory": 'write("/planted")',
    "another name for a setuid program": 'os.link("/usr/bin/su", "/opt/ml/model/su")',
    "core_pattern": 'write("/proc/sys/kernel/core_pattern", "|/planted")',
    "user namespaces": 'write("/proc/sys/user/max_user_namespaces", "100")',
    "sysrq": 'write("/proc/sysrq-trigger", "h")',
    "sysfs": 'write("/sys/kernel/uevent_helper", "/planted")',
    "sysfs of a device": 'write("/sys/class/net/lo/mtu", "1000")',
    "limits of its control groups": """
[path for path, _, files in os.walk("/sys/fs/cgroup") for name in files if name in ("memory.max", "memory.limit_in_bytes") and write(path + "/" + name, "-1")]""",
    "the kernel's keys": 'write("/proc/sys/kernel/keys/maxkeys", "1")',
    "control groups": 'write("/sys/fs/cgroup/cgroup.procs", "0")',
    "the kernel's log": 'write("/dev/kmsg")',
    "memory": 'read("/dev/mem")',
    "kernel memory": 'read("/proc/kcore")',
    "a device of one's own": 'os.mknod("/tmp/disk", 0o60600, os.makedev(8, 0))',
    "fuse": 'read("/dev/fuse")',
    "kvm": 'os.open("/dev/kvm", os.O_RDWR)',
    "its own user map": 'write("/proc/self/uid_map", "0 0 1")',
    "a first process that is easier to kill": 'write("/proc/self/oom_score_adj", "-1000")',
}

NETWORK = {
    "a port of the machine's loopback": 'connect(socket.AF_INET, ("127.0.0.1", T["port"]))',
    "the same over IPv6": 'connect(socket.AF_INET6, ("::1", T["port"]))',
    "the server's own port": 'connect(socket.AF_INET, ("127.0.0.1", T["server_port"]))',
    "another job's port": 'connect(socket.AF_INET, ("10.77.0.1", 29500))',
    "another job's neighbour": 'connect(socket.AF_INET, ("10.77.0.2", 29500))',
    "the metadata service": 'connect(socket.AF_INET, ("169.254.169.254", 80))',
    "the world": 'connect(socket.AF_INET, ("192.0.2.1", 80))',
    "names": 'socket.getaddrinfo("example.com", 80)',
    "an abstract socket of the machine": 'connect(socket.AF_UNIX, "\\0" + T["abstract"])',
    "an abstract socket of another job": 'connect(socket.AF_UNIX, "\\0victim")',
    "raw sockets": "socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)",
    "packets": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "virtual sockets": "connect(socket.AF_VSOCK, (2, 22))",
    "another address": 'subprocess.run(["ip", "address", "add", "10.77.0.9/16", "dev", "eth0"], check=True, capture_output=True)',
    "the server's front page": 'T["victim_job"] in fetch("/")',
    "the server's console": 'T["victim_job"] in fetch("/console")',
    "the server's metrics": 'T["victim_job"] in fetch("/metrics")',
    "all jobs": 'api("ListTrainingJobs")',
    "a job of its own": """
algorithm = {"TrainingImage": "shoal/host", "TrainingInputMode": "File", "ContainerEntrypoint": ["id"]}
resources = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1}
rest = {"OutputDataConfig": {"S3OutputPath": "s3://tests/out"}, "StoppingCondition": {"MaxRuntimeInSeconds": 9}, "RoleArn": ROLE}
api("CreateTrainingJob", TrainingJobName="planted", AlgorithmSpecification=algorithm, ResourceConfig=resources, **rest)""",
    "a command in another job": 'api("StartVisit", "Shoal", TrainingJobName=T["victim_job"], Command=["id"])',
    "a role": 's3("POST", "/", f"Action=AssumeRole&Version=2011-06-15&RoleArn={ROLE}&RoleSessionName=x".encode(), service="sts")[0] == 200',
    "another job's description": 'api("DescribeTrainingJob", TrainingJobName=T["victim_job"])',
    "another job's end": 'api("StopTrainingJob", TrainingJobName=T["victim_job"])',
    "another job's model": 's3("GET", "/tests/out/" + T["victim_job"] + "/output/model.tar.gz")[0] != 403',
    "a place in another job's output": 's3("PUT", "/tests/out/" + T["victim_job"] + "/output/planted", b"x")[0] != 403',
    "a place beside its own output": 's3("PUT", "/tests/out/" + os.environ["TRAINING_JOB_NAME"] + "-more/x", b"x")[0] != 403',
    "a copy of another job's data": """
headers = {"x-amz-copy-source": "/tests/attacks/secret.txt"}
s3("PUT", "/tests/out/" + os.environ["TRAINING_JOB_NAME"] + "/output/stolen", more=headers)[0] != 403""",
}

PROCESSES = {
    "the server": 'os.kill(T["server_pid"], 0)',
    "another job's program": 'os.kill(T["victim_pid"], 0)',
    "a debugger on the server": 'call(101, 16, T["server_pid"], 0, 0)',
    "another process's files by pidfd": 'call(438, call(434, T["victim_pid"], 0), 0, 0)',
    "another job's memory": "read(f\"/proc/{T['victim_pid']}/mem\")",
    "others in /proc": '[pid for pid in os.listdir("/proc") if pid.isdigit() and int(pid) > 1000]',
    "an agent's secret": 'b"AGENT_TOKEN" in of_all_processes("environ") + of_all_processes("cmdline")',
    "the first process's memory": 'read("/proc/1/mem")',
    "a debugger on the first process": "call(101, 16, 1, 0, 0)",
    "the first process's descriptors": "call(438, call(434, 1, 0), 0, 0)",
    "shared memory by key": 'c("shmget", T["shm_key"], 0, 0)',
}

KERNEL = {
    "root": "os.setuid(0)",
    "groups": "os.setgroups([0])",
    "a mount": 'c("mount", b"none", b"/mnt", b"tmpfs", 0, None)',
    "the new mount interface": 'call(430, b"tmpfs", 0)',
    "another root": 'os.chroot("/usr")',
    "a user namespace": 'c("unshare", 0x10000000)',
    "a network namespace": 'c("unshare", 0x40000000)',
    "the first process's namespaces": 'c("setns", os.open("/proc/1/ns/mnt", os.O_RDONLY), 0)',
    "a name": 'c("sethostname", b"x", 1)',
    "the clock": 'c("clock_settime", 0, struct.pack("qq", 0, 0))',
    "a reboot": 'c("reboot", 0x89ABCDEF)',
    "a kernel module": 'call(175, b"x", 1, b"")',
    "another kernel": "call(246, 0, 0, 0, 0)",
    "the kernel's messages": "c('klogctl', 3, ctypes.create_string_buffer(100), 100)",
    "a program in the kernel": 'call(321, 5, struct.pack("IIQQ", 1, 0, 0, 0) + bytes(100), 120)',
    "ports": 'c("iopl", 3)',
    "a ring of the kernel": "call(425, 8, bytes(120)) >= 0",
    "page faults of its own": "call(323, 1) >= 0",
    "keys of the kernel": "call(250, 0, -4, 0) >= 0",
    "counters of the kernel": 'call(298, struct.pack("IIQ", 1, 120, 0) + bytes(104), 0, -1, -1, 0) >= 0',
    "the kernel's ciphers": "socket.socket(38, socket.SOCK_SEQPACKET)",
    "a virtual socket": "socket.socket(40, socket.SOCK_STREAM)",
    "swap": 'c("swapoff", b"/dev/sda")',
    "accounting": 'c("acct", b"/tmp/x")',
    "a better place in the queue": "os.setpriority(os.PRIO_PROCESS, 0, -10)",
    "the place before all others": "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))",
    "capabilities": """
[line for line in open("/proc/self/status") if line.startswith(("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb")) and int(line.split()[1], 16)]""",
    "new privileges": """"NoNewPrivs:\\t1" not in open("/proc/self/status").read()""",
    "a setuid program": 'b"uid=0" in subprocess.run(["su", "-c", "id"], capture_output=True, stdin=subprocess.DEVNULL).stdout',
}

ATTACKS = {"files": FILES, "writes": WRITES, "network": NETWORK, "processes": PROCESSES, "kernel": KERNEL}
