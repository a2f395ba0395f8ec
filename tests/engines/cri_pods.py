"""Pods: what the kubelet makes them of, their namespaces, their networks and their kinds of containers."""

import os
import threading

from cri_view import EXITED, NAMESPACES, NODE, POD, RUNNING, TARGET, namespace, pid_of, pid_of_pod, portrait
from scenario import Failed, Scenarios, eventually, expect, refusal

scenarios = Scenarios()


@scenarios.add("the node is ready; the image is there")
def _(c):
    conditions = {one.type: one.status for one in c.call("Status", verbose=True).status.conditions}
    image = c.call("ImageStatus", image={"image": "docker.io/library/bb:1"}).image
    expect(image.id.startswith("sha256:"), f"the image: {image}")
    expect(c.call("ImageFsInfo").image_filesystems[0].timestamp > 0, "no usage of the images' file system")
    return conditions


@scenarios.add("an unknown handler is refused")
def _(c):
    text = refusal(c.pod, handler="nonsense")
    expect('no runtime for "nonsense"' in text, text)


@scenarios.add("a pod and a container as the kubelet makes them")
def _(c):
    pod = c.pod()
    status = c.call("PodSandboxStatus", pod_sandbox_id=pod.id).status
    expect(status.runtime_handler == c.runtime and status.network.ip.startswith("10.88.77."), str(status))
    return portrait(c, pod, c.stay(pod))


@scenarios.add("namespaces: shared by a pod, or a container's own")
def _(c):
    pod = c.pod()
    pids = {name: pid_of(c, c.stay(pod, name=name)) for name in ("one", "two")} | {"pod": pid_of_pod(c, pod)}
    seen = {}
    for kind in NAMESPACES:
        found = {name: namespace(pid, kind) for name, pid in pids.items()}
        seen[kind] = {"both": found["one"] == found["two"], "pod": found["one"] == found["pod"], "node": found["one"] == namespace("self", kind)}
    expect(seen["net"]["pod"] and seen["ipc"]["both"] and seen["uts"]["both"] and not seen["pid"]["both"] and not seen["mnt"]["both"], str(seen))
    return seen


@scenarios.add("shareProcessNamespace: containers see and signal each other")
def _(c):
    pod = c.pod(pid=POD)
    worker = c.stay(pod, name="worker")
    other = c.container(pod, ["sleep", "1234"], name="other")
    said = c.said(other, "ps", "-o", "pid,args")
    expect("sleep 1000000" in said.splitlines()[1] and "sleep 1234" in said, said)
    pid = next(line.split()[0] for line in said.splitlines() if "trap" in line)
    c.said(other, "kill", "-TERM", pid)
    expect(c.ended(worker) == (9, "Error"), str(c.status(worker)))
    # The pod's first process goes on, and takes over orphans.
    c.said(other, "sh", "-c", "(sleep 0.1 & ) ; true")
    # The end of one container does not end the others.
    expect(c.status(other).state == RUNNING, "the other container ended too")
    c.call("StopContainer", container_id=other, timeout=1)
    return c.ended(other)


@scenarios.add("hostNetwork, hostPID, hostIPC")
def _(c):
    pod = c.pod(network=NODE, pid=NODE, ipc=NODE)
    id = c.stay(pod)
    expect(all(namespace(pid_of(c, id), kind) == namespace("self", kind) for kind in ("net", "pid", "ipc")), "not the node's namespaces")
    expect("engines/all" in c.said(id, "ps"), "it does not see the node's processes")
    seen = portrait(c, pod, id)
    pid = pid_of(c, id)
    c.call("StopContainer", container_id=id, timeout=10)
    expect(not os.path.exists(f"/proc/{pid}"), "it goes on")
    return c.ended(id), seen


@scenarios.add("hostPID: what a container leaves behind ends with it")
def _(c):
    pod = c.pod(pid=NODE)
    id = c.container(pod, ["sh", "-c", "sleep 98765 & setsid sleep 98765 & sleep 0.3; exit 4"])
    expect(c.ended(id) == (4, "Error"), str(c.status(id)))
    left = lambda: [one for one in os.listdir("/proc") if one.isdigit() and b"98765" in cmdline(one)]  # noqa: E731
    eventually("its processes end", lambda: not left())


def cmdline(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""


@scenarios.add("init containers: one after another, again after a failure; then the others")
def _(c):
    pod = c.pod()
    volume = f"{pod.directory}/volume"
    os.makedirs(volume)
    shared = [{"container_path": "/shared", "host_path": volume}]
    init = lambda name, script, attempt=0: c.ended(c.container(pod, ["sh", "-c", script], name=name, attempt=attempt, mounts=shared))  # noqa: E731
    codes = [init("first", "echo first >/shared/order"), init("second", "test -e /shared/again || { touch /shared/again; exit 3; }"),
             init("second", "test -e /shared/again && echo second >>/shared/order", attempt=1)]
    main = c.container(pod, ["sh", "-c", "cat /shared/order; exit 0"], mounts=shared)
    codes.append(c.ended(main))
    expect([text for _, _, text in c.log(main)] == ["first", "second"], str(c.log(main)))
    expect([code for code, _ in codes] == [0, 3, 0, 0], str(codes))
    listed = c.call("ListContainers", filter={"pod_sandbox_id": pod.id}).containers
    expect(all(one.state == EXITED for one in listed), str(listed))
    return codes, sorted((one.metadata.name, one.metadata.attempt) for one in listed)


@scenarios.add("a sidecar: started first with a probe, ended last")
def _(c):
    pod = c.pod()
    sidecar = c.container(pod, ["sh", "-c", "trap 'echo over; exit 0' TERM; sleep 0.3; touch /ready; while :; do sleep 0.1; done"], name="sidecar")
    eventually("its startup probe succeeds", lambda: c.exec(sidecar, "test", "-e", "/ready", within=1)[1] == 0)
    main = c.container(pod, ["sh", "-c", "sleep 0.2; exit 5"])
    ends = [c.ended(main)]
    expect(c.status(sidecar).state == RUNNING, "it ended before the container that it serves")
    c.call("StopContainer", container_id=sidecar, timeout=5)
    return [*ends, c.ended(sidecar), c.log(sidecar)]


@scenarios.add("an ephemeral container in the processes of another")
def _(c):
    pod = c.pod()
    target = c.stay(pod)
    debugger = c.stay(pod, name="debugger", namespaces={"pid": TARGET, "target_id": target},
                      security={"capabilities": {"add_capabilities": ["SYS_PTRACE"]}})
    own = {kind: namespace(pid_of(c, debugger), kind) == namespace(pid_of(c, target), kind) for kind in NAMESPACES}
    expect(own["pid"] and not own["mnt"], str(own))
    expect("trap" in c.said(debugger, "ps", "-o", "args").splitlines()[1], "the target is not pid 1")
    c.said(debugger, "sh", "-c", "echo from the debugger >/proc/1/root/tmp/note")
    expect(c.said(target, "cat", "/tmp/note") == "from the debugger\n", "no way into the target's files")
    seen = portrait(c, pod, debugger)
    # The end of the debugger leaves the target; the end of the target ends the debugger, whose pid 1 it was.
    c.call("StopContainer", container_id=debugger, timeout=5)
    expect(c.status(target).state == RUNNING, "the target ended as well")
    again = c.stay(pod, name="debugger", attempt=1, namespaces={"pid": TARGET, "target_id": target})
    c.call("StopContainer", container_id=target, timeout=5)
    return own, seen, c.ended(debugger), c.ended(target), c.ended(again)


@scenarios.add("a network of its own: address, localhost, two pods that reach each other")
def _(c):
    pod, other = c.pod(), c.pod()
    c.container(pod, ["sh", "-c", "while :; do echo served | nc -l -p 8000; done"], name="server")
    near, far = c.stay(pod), c.stay(other)
    address = c.call("PodSandboxStatus", pod_sandbox_id=pod.id).status.network.ip
    eventually("a neighbour reaches it", lambda: "served" in c.exec(near, "sh", "-c", "nc 127.0.0.1 8000 </dev/null")[0])
    eventually("another pod reaches it", lambda: "served" in c.exec(far, "sh", "-c", f"nc {address} 8000 </dev/null")[0])
    expect(f"{address}/" in c.said(near, "ip", "addr", "show", "eth0"), "it has another address")


@scenarios.add("twenty pods at once, and none of them left")
def _(c):
    failures = []

    def one(number):
        try:
            pod = c.pod()
            id = c.stay(pod)
            expect(c.said(id, "hostname").strip() == pod.name, "another host name")
            c.call("StopContainer", container_id=id, timeout=10)
            expect(c.ended(id) == (9, "Error"), str(c.status(id)))
        except Failed as failed:
            failures.append(str(failed))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(not failures, "; ".join(failures[:3]))
    pods = [c.pods[id] for id in c.started]
    expect(len(pods) == 20, f"{len(pods)} pods")
    for pod in pods:
        c.call("StopPodSandbox", pod_sandbox_id=pod.id)
        c.call("RemovePodSandbox", pod_sandbox_id=pod.id)
        for cgroup in c.cgroups(pod):
            left = [entry.name for entry in os.scandir(cgroup) if entry.is_dir()] if os.path.isdir(cgroup) else []
            expect(not left, f"{cgroup}: {left}")
    listed = c.call("ListPodSandbox").pods
    expect(not listed, str(listed))
    return left_behind(c)


def left_behind(c):
    """What no pod has any more: shims, mounts, states of containers."""
    with open("/proc/self/mountinfo") as file:
        mounts = [line.split()[4] for line in file if "/io.containerd.runtime.v2.task/" in line or "/shm" in line and c.dir in line]
    states = [entry for top in ("/run/containerd/runc/k8s.io",) if os.path.isdir(top) for entry in os.listdir(top)]
    shims = [pid for pid in os.listdir("/proc") if pid.isdigit() and b"containerd-shim" in cmdline(pid)]
    expect(not mounts and not states and not shims, f"{mounts} {states} {shims}")
