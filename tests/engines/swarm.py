"""Swarm: one node, and the round's runtime is the default of its Docker."""

import json
import os

import docker
from scenario import Absent, Scenarios, eventually, expect

scenarios = Scenarios()
# The number of tasks of the job; fewer in the bounded form.
TASKS = int(os.environ.get("STOCKADE_ENGINES_TASKS", "200"))


class Engine(docker.Engine):
    """A dockerd that is a swarm."""

    name = "swarm"
    scenarios = scenarios
    swarm = True

    def up(self):
        if self.house.systemd is False and os.getppid() != 0 and not os.path.exists("/proc/sys/net"):
            raise Absent("no network")
        super().up()
        self.docker("swarm", "init", "--advertise-addr", "127.0.0.1", "--listen-addr", "127.0.0.1:2377")

    def down(self):
        if getattr(self, "daemon", None):
            self.docker("swarm", "leave", "--force", status=None)
            super().down()

    def remove(self, name):
        self.docker("service", "rm", name, status=None)

    def service(self, *words, command=()):
        name = self.fresh()
        self.docker("service", "create", "--detach", "--name", name, "--network", "host", "--no-resolve-image", *words, "bb", *command, timeout=120)
        return name

    def tasks(self, name, state):
        """The number of tasks in a state."""
        states = self.docker("service", "ps", "--no-trunc", "--format", "{{.CurrentState}}", name).splitlines()
        return sum(one.startswith(state) for one in states)


@scenarios.add("a replicated job")
def _(s):
    number = TASKS
    name = s.service("--mode", "replicated-job", "--replicas", str(number), "--max-concurrent", "4", "--restart-condition", "none",
                     command=("sh", "-c", "exit 0"))
    eventually(f"{number} tasks complete", lambda: s.tasks(name, "Complete") == number, 300)
    expect(s.tasks(name, "Failed") == 0, "tasks failed")


@scenarios.add("a replicated service with limits; scaled, updated, removed")
def _(s):
    name = s.service("--replicas", "3", "--limit-memory", "64m", "--limit-cpu", "0.5", "--limit-pids", "40", "--stop-grace-period", "5s",
                     command=("sh", "-c", docker.LOOP))
    eventually("three run", lambda: s.tasks(name, "Running") == 3, 60)
    ids = s.docker("ps", "-q", "--filter", f"label=com.docker.swarm.service.name={name}").split()
    expect(len(ids) == 3, f"{len(ids)} containers")
    for one in ids:
        host = json.loads(s.docker("inspect", one))[0]["HostConfig"]
        expect(host["Runtime"] in ("", s.runtime), f"another runtime: {host['Runtime']}")
        expect(s.cgroup_value(one, "memory.max", ("memory", "memory.limit_in_bytes")) == str(64 << 20), "memory")
        expect(s.cgroup_value(one, "pids.max", ("pids", "pids.max")) == "40", "pids")
    s.docker("service", "scale", "--detach", f"{name}=5")
    eventually("five run", lambda: s.tasks(name, "Running") == 5, 60)
    s.docker("service", "update", "--detach", "--limit-memory", "80m", "--update-parallelism", "5", name)
    eventually("five run with the new limit", lambda: updated(s, name), 90)
    s.docker("service", "rm", name)
    eventually("none is left", lambda: not s.docker("ps", "-q", "--filter", f"label=com.docker.swarm.service.name={name}").split(), 60)


def updated(s, name):
    """Whether five containers have the new limit."""
    ids = s.docker("ps", "-q", "--filter", f"label=com.docker.swarm.service.name={name}").split()
    # One of them may end between two checks.
    return len(ids) == 5 and all(s.cgroup_value(one, "memory.max", ("memory", "memory.limit_in_bytes")) == str(80 << 20) for one in ids)


@scenarios.add("a task that is killed is replaced")
def _(s):
    name = s.service("--replicas", "1", "--restart-delay", "100ms", command=("sh", "-c", docker.LOOP))
    eventually("it runs", lambda: s.tasks(name, "Running") == 1, 60)
    one = s.docker("ps", "-q", "--filter", f"label=com.docker.swarm.service.name={name}").split()[0]
    os.kill(int(s.inspect(one, ".State.Pid")), 9)
    eventually("another runs", lambda: s.tasks(name, "Running") == 1 and one not in s.docker("ps", "-q"), 60)


@scenarios.add("a job of which tasks fail")
def _(s):
    name = s.service("--mode", "replicated-job", "--replicas", "2", "--restart-condition", "none", command=("sh", "-c", "exit 3"))
    eventually("both are known to have failed", lambda: s.tasks(name, "Failed") == 2, 60)
