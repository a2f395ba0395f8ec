"""What a container gets of the node: resources and their changes, reports of use and of memory that ran out, volumes, devices."""

import os
import subprocess

from cri_view import BIDIRECTIONAL, EXITED, HOST_TO_CONTAINER, RUNNING, limits, pid_of, portrait
from scenario import Absent, Failed, Scenarios, eventually, expect, refusal

scenarios = Scenarios()
GREEDY = "x=a; while :; do x=$x$x; done"


@scenarios.add("resources, as the kubelet sends them for each class of quality")
def _(c):
    sizes = [{"page_size": name, "limit": 0} for name in ("2MB", "1GB")]
    pod = c.pod()
    seen = {}
    for name, resources in {
        "best-effort": {"cpu_shares": 2, "cpu_period": 100000, "oom_score_adj": 1000, "hugepage_limits": sizes},
        "burstable": {"cpu_shares": 256, "cpu_period": 100000, "cpu_quota": 50000, "memory_limit_in_bytes": 64 << 20, "oom_score_adj": 900},
        "guaranteed": {"cpu_shares": 1024, "cpu_period": 100000, "cpu_quota": 100000, "memory_limit_in_bytes": 128 << 20, "cpuset_cpus": "0",
                       "hugepage_limits": sizes},
        "small": {"cpu_shares": 2, "cpu_period": 100000, "cpu_quota": 1000, "memory_limit_in_bytes": 16 << 20},
        "no-swap": {"memory_limit_in_bytes": 64 << 20, "memory_swap_limit_in_bytes": 64 << 20},
    }.items():
        id = c.stay(pod, name=name, resources=resources)
        seen[name] = (limits(pid_of(c, id)), open(f"/proc/{pid_of(c, id)}/oom_score_adj").read(), c.said(id, "nproc"))
    return seen


@scenarios.add("unified resources of cgroup v2")
def _(c):
    if not c.house.cgroup2:
        raise Absent("cgroup v1")
    pod = c.pod()
    id = c.stay(pod, resources={"memory_limit_in_bytes": 64 << 20, "unified": {"memory.high": str(32 << 20), "memory.min": str(8 << 20), "pids.max": "77"}})
    found = limits(pid_of(c, id))
    expect(found["memory.high"] == [str(32 << 20)] and found["pids.max"] == ["77"], str(found))
    return found


@scenarios.add("resize in place: up, down, below what is in use; by kubelet's steps with the pod's cgroup")
def _(c):
    pod = c.pod()
    id = c.stay(pod, resources={"cpu_period": 100000, "cpu_quota": 50000, "cpu_shares": 512, "memory_limit_in_bytes": 64 << 20})
    pid, seen = pid_of(c, id), []
    for change in ({"cpu_quota": 80000}, {"cpu_quota": 20000, "cpu_shares": 128}, {"memory_limit_in_bytes": 96 << 20}, {"memory_limit_in_bytes": 48 << 20},
                   {"cpu_quota": -1}, {"cpuset_cpus": "0"}, {"cpu_quota": 30000, "memory_limit_in_bytes": 64 << 20, "cpu_shares": 1024}):
        c.call("UpdateContainerResources", container_id=id, linux={"cpu_period": 100000, **change})
        seen.append(limits(pid))
    c.said(id, "sh", "-c", "head -c 30000000 /dev/zero >/dev/shm/use")
    refused = []
    for size in (8 << 20, 64 << 20):
        try:
            c.call("UpdateContainerResources", container_id=id, linux={"memory_limit_in_bytes": size})
            refused.append(False)
        except Failed:
            refused.append(True)
    # v1 refuses a limit below what is in use, v2 ends the container.
    return seen, c.house.cgroup2 or (refused, c.status(id).state, limits(pid))


@scenarios.add("a container that only exists is resized, and starts so")
def _(c):
    pod = c.pod()
    id = c.stay(pod, start=False, resources={"memory_limit_in_bytes": 64 << 20})
    c.call("UpdateContainerResources", container_id=id, linux={"memory_limit_in_bytes": 80 << 20, "cpu_period": 100000, "cpu_quota": 25000})
    c.call("StartContainer", container_id=id)
    return limits(pid_of(c, id))


@scenarios.add("out of memory: OOMKilled and 137, for the first process and for another")
def _(c):
    pod = c.pod()
    first = c.container(pod, ["sh", "-c", f"sleep 0.3; {GREEDY}"], name="first", resources={"memory_limit_in_bytes": 20 << 20})
    ends = [c.ended(first)]
    expect(ends[0] == (137, "OOMKilled"), str(ends))
    other = c.container(pod, ["sh", "-c", f"sleep 0.3; sh -c '{GREEDY}'; echo status $?; sleep 0.5; exit 5"], name="other",
                        resources={"memory_limit_in_bytes": 20 << 20})
    ends.append(c.ended(other))
    probed = c.stay(pod, name="probed", resources={"memory_limit_in_bytes": 20 << 20})
    answer = c.exec(probed, "sh", "-c", GREEDY)[1]
    lives = c.status(probed).state == RUNNING
    again = c.ended(c.container(pod, ["sh", "-c", "exit 3"], name="first", attempt=1, resources={"memory_limit_in_bytes": 20 << 20}))
    # On cgroup v2 the kubelet's containerd has the whole container killed; which of two processes v1 takes is the kernel's choice.
    return ends, [line for line in c.log(other) if "status" in line[2]], (answer, lives), again


@scenarios.add("statistics of containers and of the pod")
def _(c):
    pod = c.pod()
    id = c.container(pod, ["sh", "-c", "head -c 8000000 /dev/zero >/dev/shm/use; touch /file; while :; do :; done"], resources={"cpu_quota": 30000})
    stats = lambda: c.call("ContainerStats", container_id=id).stats  # noqa: E731
    eventually("memory is in use", lambda: stats().memory.working_set_bytes.value > 8000000)
    one = stats().cpu.usage_core_nano_seconds.value
    eventually("time passes", lambda: stats().cpu.usage_core_nano_seconds.value > one)
    expect(any(one.attributes.id == id for one in c.call("ListContainerStats").stats), "it is not listed")
    of_pod = c.call("PodSandboxStats", pod_sandbox_id=pod.id).stats.linux
    expect(of_pod.memory.working_set_bytes.value >= 8000000 and of_pod.cpu.usage_core_nano_seconds.value > 0, str(of_pod))
    return len(of_pod.containers), of_pod.process.process_count.value


@scenarios.add("volumes: files, directories, read-only, below each other, from memory")
def _(c):
    pod = c.pod()
    base = f"{pod.directory}/volumes"
    # A ConfigMap: files that are links into a directory that is exchanged as a whole.
    os.makedirs(f"{base}/map/..2026")
    os.makedirs(f"{base}/data/sub")
    with open(f"{base}/map/..2026/key", "w") as file:
        file.write("value\n")
    os.symlink("..2026", f"{base}/map/..data")
    os.symlink("..data/key", f"{base}/map/key")
    os.makedirs(f"{base}/memory")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", f"{base}/memory"], check=True)
    try:
        mount = lambda path, source, **more: {"container_path": path, "host_path": f"{base}/{source}", **more}  # noqa: E731
        id = c.stay(pod, mounts=[
            mount("/etc/config", "map", readonly=True), mount("/data", "data"), mount("/data/sub/deep", "memory"), mount("/var/data", "data/sub", readonly=True),
            mount("/etc/one-file", "map/..2026/key", readonly=True), mount("/cache", "memory"), mount("/lib/new/directory", "data")])
        out = c.said(id, "sh", "-c", "cat /etc/config/key /etc/one-file; echo x >/data/file; echo y >/cache/file; cat /lib/new/directory/file /data/sub/deep/file")
        expect(out == "value\nvalue\nx\ny\n", out)
        refused = [c.exec(id, "touch", path) for path in ("/etc/config/x", "/etc/one-file", "/var/data/x")]
        full = c.exec(id, "sh", "-c", "head -c 2000000 /dev/zero >/cache/full")[1]
        os.makedirs(f"{base}/map/..2027")
        with open(f"{base}/map/..2027/key", "w") as file:
            file.write("new\n")
        os.symlink("..2027", f"{base}/map/..new")
        os.rename(f"{base}/map/..new", f"{base}/map/..data")
        expect(c.said(id, "cat", "/etc/config/key") == "new\n", "the exchange is not seen")
        return refused, full, portrait(c, pod, id)["outside"]["mounts"]
    finally:
        c.remove(c.started.pop())
        subprocess.run(["umount", f"{base}/memory"], check=False)


@scenarios.add("volumes: mounts that appear later, by propagation")
def _(c):
    base = c.house.room("propagation")
    subprocess.run(["mount", "--bind", base, base], check=True)
    subprocess.run(["mount", "--make-shared", base], check=True)
    try:
        pod = c.pod(security={"privileged": True})
        ids = {name: c.stay(pod, name=name, security={"privileged": True}, mounts=[{"container_path": "/volume", "host_path": base, "propagation": kind}])
               for name, kind in {"none": 0, "to": HOST_TO_CONTAINER, "both": BIDIRECTIONAL}.items()}
        for directory in ("host", "inner"):
            os.makedirs(f"{base}/{directory}", exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "host", f"{base}/host"], check=True)
        open(f"{base}/host/seen", "w").close()
        seen = {name: {"host": c.exec(id, "test", "-e", "/volume/host/seen")[1] == 0} for name, id in ids.items()}
        for name, id in ids.items():
            c.said(id, "sh", "-c", f"mkdir -p /volume/{name} && mount -t tmpfs {name} /volume/{name} && touch /volume/{name}/seen")
            seen[name]["back"] = os.path.exists(f"{base}/{name}/seen")
            seen[name]["across"] = [other for other, one in ids.items() if c.exec(one, "test", "-e", f"/volume/{name}/seen")[1] == 0]
        expect(seen["to"]["host"] and not seen["none"]["host"] and seen["both"]["back"] and not seen["to"]["back"], str(seen))
        c.remove(c.started.pop())
        # What a container mounted for the node stays.
        expect(os.path.exists(f"{base}/both/seen"), "the mount went with the container")
        return seen
    finally:
        subprocess.run(["umount", "-R", base], check=False)


@scenarios.add("recursively read-only volumes")
def _(c):
    handlers = {one.name: one.features.recursive_read_only_mounts for one in c.call("Status").runtime_handlers}
    if not handlers.get(c.runtime):
        raise Absent("containerd 1 has no recursively read-only mounts" if c.version == 1 else f"not offered: {handlers}")
    base = c.house.room("recursive")
    os.makedirs(f"{base}/below", exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "below", f"{base}/below"], check=True)
    try:
        pod = c.pod()
        id = c.stay(pod, mounts=[{"container_path": "/volume", "host_path": base, "readonly": True, "recursive_read_only": True}])
        seen = [c.exec(id, "touch", path) for path in ("/volume/x", "/volume/below/x")]
        expect(all("Read-only" in out for out, _ in seen), str(seen))
        c.remove(c.started.pop())
        return seen
    finally:
        subprocess.run(["umount", f"{base}/below"], check=False)


@scenarios.add("devices: by their permissions, for a user, and one that is not there")
def _(c):
    pod = c.pod()
    device = lambda path, host, permissions: {"container_path": path, "host_path": host, "permissions": permissions}  # noqa: E731
    id = c.stay(pod, devices=[device("/dev/mine", "/dev/full", "rw"), device("/dev/only-read", "/dev/kmsg", "r"), device("/dev/deep/er", "/dev/zero", "mrw")])
    seen = [c.exec(id, "sh", "-c", script) for script in (
        "echo x >/dev/mine", "head -c 4 /dev/deep/er | wc -c", "echo x >/dev/only-read", "mknod /tmp/kmsg c 1 11 && head -c 0 /tmp/kmsg",
        "mknod /tmp/mem c 1 1 && head -c 1 /tmp/mem", "mknod /tmp/null c 1 3 && echo x >/tmp/null", "mknod /tmp/tun c 10 200 && head -c 0 /tmp/tun")]
    user = c.stay(pod, name="user", devices=[device("/dev/mine", "/dev/full", "rw")], security={"run_as_user": {"value": 1000}})
    view = portrait(c, pod, id)["outside"]
    refusal(c.container, pod, ["true"], name="none", devices=[device("/dev/none", "/dev/not-there", "rw")])
    return seen, c.exec(user, "sh", "-c", "echo x >/dev/mine; ls -ln /dev/mine | cut -c1-30"), view["devices"], view["limits"]


@scenarios.add("huge pages: a volume of them, and their limit")
def _(c):
    try:
        with open("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages") as file:
            reserved = int(file.read())
    except OSError:
        raise Absent("the kernel has no pages of 2 MiB") from None
    base = c.house.room("huge")
    subprocess.run(["mount", "-t", "hugetlbfs", "-o", "pagesize=2M", "none", base], check=True)
    try:
        pod = c.pod()
        id = c.stay(pod, mounts=[{"container_path": "/huge", "host_path": base}], resources={"hugepage_limits": [{"page_size": "2MB", "limit": 4 << 20}]})
        seen = {name: value for name, value in limits(pid_of(c, id)).items() if name.startswith("hugetlb")}
        out = c.exec(id, "sh", "-c", "grep -c hugetlbfs /proc/self/mountinfo; truncate -s 4M /huge/file")
        c.remove(c.started.pop())
        return seen, out, reserved
    finally:
        subprocess.run(["umount", base], check=False)


@scenarios.add("a limit on the pod's cgroup holds for its containers")
def _(c):
    if c.house.systemd:
        raise Absent("systemd owns the pod's cgroup")
    pod = c.pod()
    file = next(f"{cgroup}/{name}" for cgroup in c.cgroups(pod) for name in ("memory.max", "memory.limit_in_bytes") if os.path.exists(f"{cgroup}/{name}"))
    with open(file, "w") as limit:
        limit.write(str(24 << 20))
    id = c.container(pod, ["sh", "-c", f"sleep 0.3; {GREEDY}"])
    code = c.ended(id)[0]
    expect(c.status(id).state == EXITED and code == 137, f"exit code {code}")
    return code
