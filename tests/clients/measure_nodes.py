"""A server with many nodes: fake commands of Slurm's, and in this process an agent of each instance
that connects as a real one does, writes lines and ends. What is measured is the server: its processor
time and memory, from submission until all agents run, and lines per second, durable.

    SHOAL_BIN=target/release/shoal python measure_nodes.py [NODES] [INSTANCES_PER_JOB] [LINES_PER_NODE]
"""

import asyncio
import getpass
import json
import os
import pathlib
import re
import ssl
import struct
import sys
import tempfile
import threading
import time

from house import House
from jobs import Jobs

BATCH = 100
# Batches that are not acknowledged yet.
WINDOW = 4
SBATCH = """#!/bin/sh
case " $* " in *" --test-only "*) exit 0;; esac
number=$$
cat > "{root}/new.$number"
for word in "$@"; do case "$word" in --job-name=*) echo "${{word#--job-name=}}" > "{root}/name.$number";; esac; done
mv "{root}/new.$number" "{root}/job.$number"
echo $number
"""
# The word before the first `|` of the format is the fence of all records.
OTHERS = {
    "squeue": 'sed "s/@/${{SQUEUE_FORMAT%%|*}}/g" "{root}/queue" 2>/dev/null || true',
    "scancel": "true",
    "sinfo": "true",
}


class Slurm:
    """Commands in a directory, and the queue that they print."""

    def __init__(self, root):
        self.root, self.jobs = root, {}
        scripts = {"sbatch": SBATCH, **{name: f"#!/bin/sh\n{text}\n" for name, text in OTHERS.items()}}
        for name, text in scripts.items():
            (root / name).write_text(text.format(root=root))
            (root / name).chmod(0o755)

    def submitted(self):
        """Numbers and scripts of jobs that are new."""
        for path in self.root.glob("job.*"):
            number = int(path.name.split(".")[1])
            if number not in self.jobs:
                self.jobs[number] = ["RUNNING", (self.root / f"name.{number}").read_text().strip()]
                self.write()
                yield number, path.read_text()

    def ended(self, number):
        self.jobs[number][0] = "COMPLETED"
        self.write()

    def write(self):
        user = f"{getpass.getuser()}|{os.geteuid()}"
        lines = [f"@|{number}|{state}|N/A||{user}|None@{name}@arn@" for number, (state, name) in self.jobs.items()]
        (self.root / "queue.new").write_text("\n".join([*lines, ""]))
        (self.root / "queue.new").rename(self.root / "queue")


class Agent:
    def __init__(self, nodes, host, words):
        self.nodes, self.host, self.words = nodes, host, words
        self.seq = self.acked = 0
        self.news = asyncio.Event()
        self.has_network = self.is_released = False

    def send(self, message):
        text = json.dumps(message).encode()
        self.writer.write(struct.pack("<IB", len(text) + 1, 0) + text)

    def report(self, kind, **more):
        self.seq += 1
        self.send({"type": "report", "seq": self.seq, "at_ms": int(time.time() * 1000), "report": kind, **more})

    async def receive(self):
        (length,) = struct.unpack("<I", await self.reader.readexactly(4))
        return json.loads((await self.reader.readexactly(length))[1:])

    async def listen(self):
        while True:
            message = await self.receive()
            match message["type"]:
                case "ack":
                    self.acked = message["seq"]
                case "network":
                    self.has_network = True
                case "order" if message["order"] in ("release", "park"):
                    self.is_released = True
            self.news.set()

    async def until(self, condition):
        while not condition():
            self.news.clear()
            await self.news.wait()

    async def connect(self):
        """As agents do: a server that has too many unknown callers closes some, who call again."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        address, port = self.words["server"].rsplit(":", 1)
        pause = 0.05
        while True:
            try:
                return await asyncio.open_connection(address, int(port), ssl=context)
            except ConnectionError:
                await asyncio.sleep(pause)
                pause = min(2 * pause, 1)

    async def run(self):
        self.reader, self.writer = await self.connect()
        hello = {"attempt": self.words["attempt"], "token": self.words["token"], "host": self.host, "pid": 1}
        self.send({"type": "hello", "protocol": 1, **hello})
        assignment = (await self.receive())["assignment"]
        listening = asyncio.create_task(self.listen())
        self.report("phase", phase="downloading")
        if assignment.get("machine_network"):
            self.report("network", handle=f"10.0.{self.host // 250}.{1 + self.host % 250}")
            await self.until(lambda: self.has_network)
        self.report("phase", phase="training")
        await self.until(lambda: self.acked == self.seq)
        await self.nodes.all_run(self)
        for begin in range(0, self.nodes.lines, BATCH):
            now = int(time.time() * 1000)
            lines = [{"at_ms": now, "text": f"step {begin + number}: loss=0.123456"} for number in range(BATCH)]
            self.report("logs", lines=lines)
            await self.until(lambda: self.seq - self.acked < WINDOW)
        await self.until(lambda: self.acked == self.seq)
        await self.nodes.all_wrote(self)
        end = {"outcome": {"exited": 0}, "out_of_memory": False, "failure_file": None, "stderr_tail": ""}
        self.report("rank_ended", end=end, final_metrics=[])
        for artifact in ("model", "output"):
            self.report("artifact_sent", artifact=artifact, bytes=0, files=0)
        self.report("uploaded")
        await self.until(lambda: self.is_released)
        listening.cancel()
        self.writer.close()


class Nodes:
    """All agents, and what they wait for together."""

    def __init__(self, slurm, count, lines, server):
        self.slurm, self.count, self.lines, self.server = slurm, count, lines, server
        self.running = self.written = 0
        self.run, self.wrote = asyncio.Event(), asyncio.Event()

    async def all_run(self, _):
        self.running += 1
        if self.running == self.count:
            self.times = {"run": time.monotonic()}
            self.cpu = {"run": cpu(self.server)}
            self.run.set()
        await self.run.wait()

    async def all_wrote(self, _):
        self.written += 1
        if self.written == self.count:
            self.times["wrote"], self.cpu["wrote"] = time.monotonic(), cpu(self.server)
            self.wrote.set()
        await self.wrote.wait()

    async def job(self, number, script):
        word = lambda name: re.search(rf"'--{name}' '([^']*)'", script)[1]
        token = re.search(r"SHOAL_AGENT_TOKEN='([^']*)'", script)[1]
        words = {"server": word("server"), "attempt": word("attempt"), "token": token}
        hosts = re.search(r"^for host in (.*); do$", script, re.M)[1].split()
        await asyncio.gather(*(Agent(self, int(host), words).run() for host in hosts))
        self.slurm.ended(number)

    async def serve(self):
        tasks = []
        while not self.wrote.is_set():
            tasks += [asyncio.create_task(self.job(number, script)) for number, script in self.slurm.submitted()]
            for task in tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(0.02)
        await asyncio.gather(*tasks)


def cpu(pid):
    """Processor seconds of a process."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid):
    """Its largest resident size, in MB."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^VmHWM:\s+(\d+) kB$", status, re.M)[1]) / 1000


def main():
    given = [int(word) for word in sys.argv[1:]]
    count, per_job, lines = [*given, *(500, 10, 2000)[len(given) :]]
    with tempfile.TemporaryDirectory() as directory:
        slurm = Slurm(pathlib.Path(directory))
        settings = 'agents_listen = "127.0.0.1:0"\ndefault_target = "many"\n[target.many]\nkind = "slurm"\n'
        house = House(settings=settings, variables={"PATH": f"{directory}:{os.environ['PATH']}"})
        try:
            jobs = Jobs(house)
            idle = memory(house.pid)
            nodes = Nodes(slurm, count, lines, house.pid)
            agents = threading.Thread(target=lambda: asyncio.run(nodes.serve()))
            began, before = time.monotonic(), cpu(house.pid)
            agents.start()
            names = [jobs.command("true", per_job) for _ in range(count // per_job)]
            agents.join()
            for name in names:
                jobs.completed(name)
            launched, wrote = nodes.times["run"] - began, nodes.times["wrote"] - nodes.times["run"]
            print(f"{count} nodes in {len(names)} jobs of {per_job} instances")
            print(f"until all agents run: {launched:.1f} s, {nodes.cpu['run'] - before:.1f} s of processor time")
            rate = count * lines / wrote
            print(
                f"lines: {rate:.0f}/s, {nodes.cpu['wrote'] - nodes.cpu['run']:.1f} s of processor time in {wrote:.1f} s"
            )
            print(f"until all jobs are over: {time.monotonic() - began:.1f} s")
            print(f"memory: {memory(house.pid):.0f} MB at most, {idle:.0f} MB before")
        finally:
            house.close()


if __name__ == "__main__":
    main()
