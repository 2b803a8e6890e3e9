"""A server that dies loses nothing, and touches nothing that runs."""

import signal

from jobs import Jobs


def test_a_running_job_outlives_the_server(new_house):
    house = new_house()
    jobs = Jobs(house)
    script = "i=0; while [ $i -lt 30 ]; do echo line $i; i=$((i+1)); sleep 0.1; done; echo m > /opt/ml/model/m"
    name = jobs.script(script)
    jobs.saying(name, "line 3")
    house.stop(signal.SIGKILL)
    house.start()
    jobs = Jobs(house)
    jobs.completed(name)
    assert [line for line in jobs.lines(name) if line.startswith("line")] == [f"line {i}" for i in range(30)]
    assert jobs.artifact(name) == {"m": b"m\n"}


def test_what_waits_is_not_forgotten(new_house):
    house = new_house("--instances", "1")
    jobs = Jobs(house)
    first = jobs.script("echo ready; sleep 1")
    jobs.saying(first, "ready")
    second = jobs.script("true")
    house.stop(signal.SIGKILL)
    house.start()
    jobs = Jobs(house)
    jobs.completed(first)
    jobs.completed(second)


def test_a_second_server_is_told_who_has_the_directory(house):
    second = house.shoal("serve", "--listen", "127.0.0.1:0", check=False, timeout=30)
    assert second.returncode == 1
    assert str(house.pid) in second.stderr
