"""Lives of containers: ends and their reasons, restarts, probes, logs, and a containerd that starts anew meanwhile."""

import os
import signal
import time

from cri_view import CREATED, EXITED, RUNNING, from_inside, nameless, pid_of
from docker import LOOP
from scenario import Scenarios, eventually, expect, refusal

scenarios = Scenarios()


@scenarios.add("created, started, stopped within its time, removed; each of it once more")
def _(c):
    pod = c.pod()
    id = c.stay(pod, start=False)
    states = [c.status(id).state]
    c.call("StartContainer", container_id=id)
    states.append(c.status(id).state)
    again = refusal(c.call, "StartContainer", container_id=id)
    c.call("StopContainer", container_id=id, timeout=10)
    c.call("StopContainer", container_id=id, timeout=10)
    states.append(c.status(id).state)
    expect(states == [CREATED, RUNNING, EXITED] and "CONTAINER_RUNNING" in again, f"{states} {again}")
    end = c.ended(id)
    c.call("RemoveContainer", container_id=id)
    c.call("RemoveContainer", container_id=id)
    created, running = c.stay(pod, name="created", start=False), c.stay(pod, name="running")
    c.call("RemoveContainer", container_id=created)
    c.call("RemoveContainer", container_id=running)
    expect(not c.call("ListContainers", filter={"pod_sandbox_id": pod.id}).containers, "something is left")
    return end


@scenarios.add("ends: exit codes, signals, grace periods")
def _(c):
    pod = c.pod()
    ends = {}
    for name, script in {"none": "exit 0", "code": "exit 7", "high": "exit 255", "of a child": "sh -c 'kill -KILL $$'; exit $?",
                         "of its own": "kill -KILL $$; exit 3"}.items():
        ends[name] = c.ended(c.container(pod, ["sh", "-c", script], name=name.replace(" ", "-")))
    killed = c.stay(pod, name="killed")
    os.kill(pid_of(c, killed), signal.SIGKILL)
    ends["from outside"] = c.ended(killed)
    stubborn = c.container(pod, ["sh", "-c", 'trap "" TERM; echo up; while :; do sleep 0.1; done'], name="stubborn")
    eventually("it ignores signals", lambda: c.log(stubborn))
    start = time.monotonic()
    c.call("StopContainer", container_id=stubborn, timeout=1)
    expect(0.9 < time.monotonic() - start < 10, f"the stop took {time.monotonic() - start} s")
    ends["stubborn"] = c.ended(stubborn)
    at_once = c.stay(pod, name="at-once")
    c.call("StopContainer", container_id=at_once, timeout=0)
    ends["at once"] = c.ended(at_once)
    expect(ends["of a child"] == (137, "Error") and ends["none"] == (0, "Completed") and ends["stubborn"][0] == 137, str(ends))
    return ends


@scenarios.add("a program that is not there, not a program, or in no directory")
def _(c):
    pod = c.pod()
    said = {}
    for number, (command, more) in enumerate({
        ("nonsense",): {}, ("/etc/passwd",): {}, ("/tmp",): {}, ("./busybox",): {"working_dir": "/nowhere"},
    }.items()):
        id = c.container(pod, command, name=f"n{number}", start=False, **more)
        text = refusal(c.call, "StartContainer", container_id=id)
        status = c.status(id)
        # What the kernel says of a directory; newer runc looks first.
        text = text.lower().replace("is a directory", "permission denied")
        known = [one for one in ("executable file not found", "permission denied", "no such file or directory") if one in text]
        said[command[0]] = (status.state, status.exit_code, status.reason, known or text)
        c.call("RemoveContainer", container_id=id)
    return said


@scenarios.add("restarts: attempts, their logs, the last message")
def _(c):
    pod = c.pod()
    seen = []
    for attempt in range(3):
        id = c.container(pod, ["sh", "-c", f"echo run {attempt}; echo went wrong {attempt} >/dev/termination-log; exit 1"], attempt=attempt)
        end, status = c.ended(id), c.status(id)
        expect(status.log_path == f"{pod.logs}/main/{attempt}.log" and status.started_at >= status.created_at > 0, str(status))
        with open(f"{pod.directory}/main/{attempt}.message") as file:
            seen.append((end, c.log(id), file.read(), status.metadata.attempt))
        if attempt:
            c.call("RemoveContainer", container_id=before)
        before = id
    expect(seen[2] == ((1, "Error"), [("stdout", "F", "run 2")], "went wrong 2\n", 2), str(seen))
    return seen


@scenarios.add("a last message of a container without privileges, on a read-only root")
def _(c):
    pod = c.pod()
    id = c.container(pod, ["sh", "-c", "echo bye >/dev/termination-log; echo x >/x"],
                     security={"run_as_user": {"value": 1000}, "readonly_rootfs": True, "capabilities": {"drop_capabilities": ["ALL"]}})
    end = c.ended(id)
    with open(f"{pod.directory}/main/0.message") as file:
        expect(file.read() == "bye\n", "no message")
    return end, c.log(id)


@scenarios.add("hooks: postStart at once, preStop before the end")
def _(c):
    pod = c.pod()
    id = c.container(pod, ["sh", "-c", "trap 'cat /tmp/hooks; exit 0' TERM; while :; do sleep 0.1; done"])
    c.said(id, "sh", "-c", "echo postStart >/tmp/hooks")
    c.said(id, "sh", "-c", "echo preStop >>/tmp/hooks")
    c.call("StopContainer", container_id=id, timeout=5)
    return c.ended(id), c.log(id)


@scenarios.add("ExecSync: outputs, status, directory, environment, programs that are not there")
def _(c):
    pod = c.pod()
    id = c.stay(pod, working_dir="/var/data", security={"run_as_user": {"value": 1234}, "no_new_privs": True})
    answer = c.call("ExecSync", container_id=id, cmd=["sh", "-c", "pwd; id; cat file; echo $KUBERNETES_SERVICE_PORT; echo err >&2; exit 3"], timeout=5)
    expect(answer.exit_code == 3 and answer.stderr == b"err\n" and b"from the image" in answer.stdout, str(answer))
    large = c.call("ExecSync", container_id=id, cmd=["sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x"], timeout=20)
    refused = ["executable file not found" in refusal(c.call, "ExecSync", container_id=id, cmd=["nonsense"], timeout=5),
               "permission denied" in refusal(c.call, "ExecSync", container_id=id, cmd=["/etc/passwd"], timeout=5).lower()]
    killed = c.call("ExecSync", container_id=id, cmd=["sh", "-c", "kill -9 $$"], timeout=5).exit_code
    return answer.stdout.decode(), len(large.stdout), refused, killed, nameless(pod, id, from_inside(c, id))


@scenarios.add("probes that hang end at their timeout; the container goes on")
def _(c):
    pod = c.pod()
    id = c.stay(pod)
    for script in ("sleep 1000", "trap '' TERM INT; while :; do sleep 0.1; done", "kill -STOP $$", "sleep 1000 >/dev/null 2>&1 & sleep 1000"):
        start = time.monotonic()
        said = refusal(c.call, "ExecSync", container_id=id, cmd=["sh", "-c", script], timeout=1)
        expect("DEADLINE_EXCEEDED" in said or "timeout" in said, said)
        expect(time.monotonic() - start < 20, f"{script}: it took {time.monotonic() - start:.0f} s")
    left = c.said(id, "ps", "-o", "args")
    # A child in the background becomes the container's, as with every runtime.
    expect(left.count("sh -c") == 1, left)
    return left.count("sleep 1000"), c.status(id).state


@scenarios.add("probes: a hundred a minute for each of three containers")
def _(c):
    seconds = float(os.environ.get("STOCKADE_ENGINES_PROBES", "30"))
    pod = c.pod()
    ids = [c.stay(pod, name=name, security=more, resources={"memory_limit_in_bytes": 32 << 20}) for name, more in {
        "plain": {}, "strict": {"run_as_user": {"value": 1000}, "no_new_privs": True, "readonly_rootfs": True, "seccomp": {"profile_type": 0},
                                "capabilities": {"drop_capabilities": ["ALL"]}}, "filtered": {"seccomp": {"profile_type": 0}}}.items()]
    shim = int(open(f"/proc/{pid_of(c, ids[0])}/stat").read().rsplit(")", 1)[1].split()[1])
    held = lambda: (len(os.listdir(f"/proc/{shim}/fd")), len(open("/proc/self/mountinfo").readlines()))  # noqa: E731
    before, start, wrong, times = held(), time.monotonic(), [], []
    rounds = int(seconds / 0.6)
    for number in range(rounds):
        time.sleep(max(0, start + number * 0.6 - time.monotonic()))
        for id in ids:
            began, expected = time.monotonic(), number % 4 and 1
            answer = c.call("ExecSync", container_id=id, cmd=["sh", "-c", f"echo {number}; exit {expected}"], timeout=5)
            times.append(time.monotonic() - began)
            if (answer.stdout, answer.exit_code) != (f"{number}\n".encode(), expected):
                wrong.append(answer)
    expect(not wrong, f"{len(wrong)} of {len(times)} probes came out wrong: {wrong[:3]}")
    expect(c.status(ids[0]).state == RUNNING, "a container ended")
    eventually(f"the shim frees what the probes took: {before}, {held()}", lambda: held()[0] <= before[0] + 3 and held()[1] == before[1])
    c.note(f"{len(times)} probes, the median in {sorted(times)[len(times) // 2] * 1000:.0f} ms")
    expect(not any("exit" in c.said(id, "ps", "-o", "args").replace("exit 9", "") for id in ids), "probes are left")


@scenarios.add("logs: both streams, long and last lines")
def _(c):
    pod = c.pod()
    id = c.container(pod, ["sh", "-c", "echo out; echo err >&2; head -c 40000 /dev/zero | tr '\\0' x; echo; printf 'no end'"])
    c.ended(id)
    lines = c.log(id)
    long = [(tag, len(text)) for stream, tag, text in lines if text.startswith("xx")]
    expect(("stdout", "F", "out") in lines and ("stderr", "F", "err") in lines and lines[-1][2] == "no end", str(lines)[:300])
    return long, [line for line in lines if len(line[2]) < 100 and line[0] == "stdout"]


@scenarios.add("logs are rotated")
def _(c):
    pod = c.pod()
    id = c.container(pod, ["sh", "-c", "n=0; while :; do echo $n; n=$((n+1)); sleep 0.01; done"])
    path = c.status(id).log_path
    eventually("it logs", lambda: len(c.log(id)) > 10)
    for rotation in range(3):
        os.rename(path, f"{path}.{rotation}")
        c.call("ReopenContainerLog", container_id=id)
        eventually("it logs to the new file", lambda: len(c.log(id)) > 10)
    c.call("StopContainer", container_id=id, timeout=0)
    numbers = []
    for name in (f"{path}.0", f"{path}.1", f"{path}.2", path):
        with open(name) as file:
            numbers += [int(line.split(" ", 3)[3]) for line in file]
    expect(numbers == list(range(len(numbers))), "lines are lost or in another order")
    expect("not running" in refusal(c.call, "ReopenContainerLog", container_id=id), "a log of what ended is opened again")


@scenarios.add("containerd starts anew: pods go on, ends and logs of meanwhile are known")
def _(c):
    pod = c.pod()
    stays = c.stay(pod, name="stays")
    ends = c.container(pod, ["sh", "-c", "while test ! -e /etc/go; do sleep 0.1; done; echo over; exit 6"], name="ends")
    dies = c.stay(pod, name="dies")
    created = c.stay(pod, name="created", start=False)
    pids = {id: pid_of(c, id) for id in (stays, ends, dies)}
    c.daemon.stop()
    open(f"/proc/{pids[ends]}/root/etc/go", "w").close()
    os.kill(pids[dies], signal.SIGKILL)
    eventually("both end", lambda: not any(os.path.exists(f"/proc/{pids[id]}/root/etc/passwd") for id in (ends, dies)))
    c.start()
    eventually("what runs is known again", lambda: c.status(stays).state == RUNNING)
    found = [c.ended(ends), c.ended(dies), c.status(created).state]
    expect(pid_of(c, stays) == pids[stays], "it is another process")
    c.said(stays, "true")
    c.call("UpdateContainerResources", container_id=stays, linux={"cpu_period": 100000, "cpu_quota": 30000})
    c.call("StopContainer", container_id=stays, timeout=5)
    later = c.container(pod, ["sh", "-c", "echo later"], name="later")
    return found, c.ended(stays), c.ended(later), c.log(later)


@scenarios.add("containerd is killed while probes run")
def _(c):
    pod = c.pod()
    id = c.stay(pod)
    c.daemon.process.send_signal(signal.SIGKILL)
    c.daemon.stop()
    c.start()
    eventually("it is known again", lambda: c.status(id).state == RUNNING)
    said = c.said(id, "echo", "alive")
    c.call("StopPodSandbox", pod_sandbox_id=pod.id)
    return said, c.ended(id)


@scenarios.add("a pod is stopped and removed with what runs in it")
def _(c):
    pod = c.pod()
    ids = [c.stay(pod), c.container(pod, ["sh", "-c", f"sh -c '{LOOP}' & wait"], name="deep"), c.stay(pod, name="created", start=False)]
    pids = [pid_of(c, id) for id in ids[:2]]
    c.call("StopPodSandbox", pod_sandbox_id=pod.id)
    c.call("StopPodSandbox", pod_sandbox_id=pod.id)
    expect(not any(os.path.exists(f"/proc/{pid}") for pid in pids), "its containers go on")
    state = c.call("PodSandboxStatus", pod_sandbox_id=pod.id).status.state
    ends = [c.ended(id) for id in ids[:2]]
    c.call("RemovePodSandbox", pod_sandbox_id=pod.id)
    text = refusal(c.status, ids[0])
    expect("NOT_FOUND" in text, text)
    return state, ends
