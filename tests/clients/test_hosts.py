"""Hosts of one job: names that resolve, ports of their own, a network between them."""

import json
import os

import pytest

# Looks how much of the processor an instance gets.
pytestmark = pytest.mark.alone

TALK = """
import os, socket, time
me, hosts = os.environ["SM_CURRENT_HOST"], sorted(__import__("json").loads(os.environ["SM_HOSTS"]))
server = socket.create_server(("0.0.0.0", 29500))
def say(host):
    until = time.time() + 60
    while True:
        try:
            with socket.create_connection((host, 29500), timeout=10) as peer:
                return peer.sendall(me.encode())
        except OSError:
            if time.time() > until: raise
            time.sleep(0.05)
for host in hosts:
    say(host)
heard = []
for _ in hosts:
    peer, _ = server.accept()
    heard.append(peer.recv(100).decode())
print(sorted(heard))
"""


def test_every_host_hears_every_host_on_the_same_port(jobs):
    name = jobs.python(TALK, instances=3)
    jobs.completed(name)
    for host in ("algo-1", "algo-2", "algo-3"):
        assert jobs.lines(name, host) == ["['algo-1', 'algo-2', 'algo-3']"]


def test_names(jobs):
    script = """
    hostname
    getent hosts algo-1 algo-2 localhost | awk '{print $2}' | tr '\\n' ' '; echo
    getent hosts $(hostname) | awk '{print $1}'
    """
    name = jobs.script(script, instances=2)
    jobs.completed(name)
    lines = {host: jobs.lines(name, host) for host in ("algo-1", "algo-2")}
    for host, (hostname, names, address) in lines.items():
        assert hostname == host
        assert {"algo-1", "algo-2", "localhost"} <= set(names.split())
        assert not address.startswith("127."), "frameworks tell the others this address"
    assert lines["algo-1"][2] != lines["algo-2"][2]


def test_what_torch_needs_to_meet(jobs):
    name = jobs.script(
        "echo $MASTER_ADDR $MASTER_PORT $SM_MASTER_ADDR $SM_HOST_COUNT $SM_CURRENT_HOST_RANK", instances=2
    )
    jobs.completed(name)
    assert jobs.lines(name, "algo-1") == ["algo-1 7777 algo-1 2 0"]
    assert jobs.lines(name, "algo-2") == ["algo-1 7777 algo-1 2 1"]


def test_memory_and_cores_are_those_of_the_instance(jobs):
    name = jobs.script(
        "cat /opt/ml/input/config/resourceconfig.json; echo; echo $SM_NUM_CPUS", instance_type="ml.t3.medium"
    )
    jobs.completed(name)
    resources, cores = jobs.lines(name)
    assert json.loads(resources)["current_instance_type"] == "ml.t3.medium"
    assert int(cores) in (1, 2)


def test_threads_are_those_of_the_share_and_what_the_job_sets_is_its_own(jobs):
    """More instances than cores have one each; that is on any machine what SM_NUM_CPUS tells."""
    line = "echo $SM_NUM_CPUS ${OMP_NUM_THREADS:-all} ${TF_NUM_INTRAOP_THREADS:-all} $GOMP_SPINCOUNT"
    name = jobs.script(line, instances=2)
    own = jobs.script(line, Environment={"OMP_NUM_THREADS": "7", "GOMP_SPINCOUNT": "9"})
    jobs.completed(name)
    for host in ("algo-1", "algo-2"):
        [(cores, openmp, tensorflow, spins)] = [line.split() for line in jobs.lines(name, host)]
        assert openmp == tensorflow and openmp in (cores, "all") and int(spins) > 0
        if os.cpu_count() == 2:
            assert openmp == "1", "two instances share two cores"
            assert any("1 thread (OMP_NUM_THREADS and others)" in line for line in jobs.logs(name)[host])
    jobs.completed(own)
    [(_, openmp, _, spins)] = [line.split() for line in jobs.lines(own)]
    assert (openmp, spins) == ("7", "9")


def test_a_host_has_one_interface_and_a_loopback(jobs):
    name = jobs.script("ls /sys/class/net | sort | tr '\\n' ' '; echo", instances=2)
    jobs.completed(name)
    assert jobs.lines(name) == ["eth0 lo "]


def test_hosts_send_each_other_packets_as_large_as_a_link_takes(jobs):
    program = """
import os, socket, time
size = 4 << 20
if os.environ["SM_CURRENT_HOST"] == "algo-1":
    with socket.create_server(("0.0.0.0", 7000)) as server, server.accept()[0] as line:
        line.sendall(line.recv(size, socket.MSG_WAITALL))
else:
    while True:
        try:
            line = socket.create_connection(("algo-1", 7000))
            break
        except OSError:
            time.sleep(0.02)
    sent = os.urandom(size)
    line.sendall(sent)
    assert line.recv(size, socket.MSG_WAITALL) == sent
    print(open("/sys/class/net/eth0/mtu").read().strip(), line.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG) > 60000)
"""
    name = jobs.python(program, instances=2)
    jobs.completed(name)
    assert jobs.lines(name, "algo-2") == ["65535 True"]
