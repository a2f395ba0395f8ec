"""Streams: `kubectl exec`, `attach`, `port-forward`, with and without a terminal."""

from cri_socket import ERROR, STDERR, STDIN, STDOUT, Streams
from cri_view import RUNNING
from scenario import Scenarios, eventually, expect, refusal

scenarios = Scenarios()


def exec_streams(c, id, *command, tty=False, stdin=True):
    return Streams(c.call("Exec", container_id=id, cmd=command, tty=tty, stdin=stdin, stdout=True, stderr=not tty).url)


def attach(c, id, tty=False, stdin=True):
    return Streams(c.call("Attach", container_id=id, tty=tty, stdin=stdin, stdout=True, stderr=not tty).url)


def printed(lines):
    """What commands printed on a terminal. It also shows what was typed, before or after the prompt."""
    typed = ("tty; stty", "trap", "exit", "echo", "^C")
    return [line for line in lines if line and "$" not in line and not any(one in line for one in typed)]


@scenarios.add("exec: outputs, input, exit code")
def _(c):
    id = c.stay(c.pod())
    streams = exec_streams(c, id, "sh", "-c", "echo out; echo err >&2; read line; echo got $line; exit 7")
    streams.until(STDOUT, "out\n")
    streams.send(STDIN, b"a line\n")
    code = streams.end()
    seen = code, streams.said(STDOUT), streams.said(STDERR)
    expect(seen == (7, "out\ngot a line\n", "err\n"), str(seen))
    good = exec_streams(c, id, "sh", "-c", "head -c 300000 /dev/zero | tr '\\0' x; exit 0", stdin=False)
    killed = exec_streams(c, id, "sh", "-c", "kill -9 $$", stdin=False)
    missing = exec_streams(c, id, "nonsense", stdin=False).end()
    expect("executable file not found" in str(missing), str(missing))
    return seen, good.end(), len(good.said(STDOUT)), killed.end()


@scenarios.add("exec with a terminal: size, signals, exit code")
def _(c):
    id = c.stay(c.pod(), security={"run_as_user": {"value": 1000}})
    streams = exec_streams(c, id, "sh", tty=True)
    streams.resize(99, 33)
    streams.until(STDOUT, "$ ")
    streams.send(STDIN, b"tty; stty size; ls -ln $(tty) | cut -c1-50; id -u\n")
    streams.until(STDOUT, "1000\r\n")
    streams.resize(88, 22)
    streams.send(STDIN, b"trap 'stty size; echo interrupted' INT; sleep 1000\n")
    eventually("it sleeps", lambda: "sleep 1000" in c.said(id, "ps", "-o", "args"))
    streams.send(STDIN, b"\x03")
    streams.until(STDOUT, "interrupted\r\n")
    streams.send(STDIN, b"exit 9\n")
    code, out = streams.end(), streams.said(STDOUT)
    expect(code == 9 and "33 99" in out and "22 88" in out and "/dev/pts/0" in out, f"{code}: {out}")
    return code, printed(out.replace("\r", "").splitlines())


@scenarios.add("exec: a client that goes away leaves the container running")
def _(c):
    id = c.stay(c.pod())
    streams = exec_streams(c, id, "sh", "-c", "echo up; cat", tty=True)
    streams.until(STDOUT, "up")
    streams.close()
    expect(c.status(id).state == RUNNING and c.said(id, "echo", "alive") == "alive\n", "the container ended")


@scenarios.add("attach: outputs, input once")
def _(c):
    pod = c.pod()
    id = c.container(pod, ["sh", "-c", "echo before; read line; echo got $line; echo err >&2; cat; echo end; exit 4"], stdin=True, stdin_once=True)
    streams = attach(c, id)
    streams.send(STDIN, b"a line\n")
    streams.until(STDOUT, "got a line\n")
    streams.until(STDERR, "err\n")
    streams.send(STDIN, b"more\n")
    streams.until(STDOUT, "more\n")
    # The first client to go ends the container's input, as `stdinOnce` says.
    streams.close()
    # The two streams have no order between them.
    return c.ended(id), sorted(c.log(id))


@scenarios.add("attach with a terminal, twice")
def _(c):
    pod = c.pod()
    id = c.container(pod, ["sh"], stdin=True, tty=True, security={"run_as_user": {"value": 1000}})
    first = attach(c, id, tty=True)
    first.resize(99, 33)
    first.send(STDIN, b"tty; stty size; id -u\n")
    first.until(STDOUT, "1000\r\n")
    first.close()
    second = attach(c, id, tty=True)
    second.send(STDIN, b"echo aga''in; ls -ln /dev/console /dev/stdout | cut -c1-25\n")
    second.until(STDOUT, "again\r\n")
    second.send(STDIN, b"exit 6\n")
    second.until(STDOUT, "exit 6")
    return c.ended(id), printed(text.rstrip("\r") for _, _, text in c.log(id))


@scenarios.add("port-forward: to a server of the pod, and to no server")
def _(c):
    pod = c.pod()
    c.container(pod, ["sh", "-c", "while :; do { read line; echo served $line; } | nc -l -p 8000 -e sh -c 'read line; echo served $line'; done"], name="server")
    peer = c.stay(pod, name="peer")
    eventually("it listens", lambda: ":1F40" in c.said(peer, "cat", "/proc/net/tcp", "/proc/net/tcp6"))
    url = c.call("PortForward", pod_sandbox_id=pod.id, port=[8000]).url
    # Two channels for each port, data and errors. Both begin with the port.
    streams = Streams(url, "?port=8000")
    streams.send(0, b"one line\n")
    streams.until(0, "served one line\n")
    streams.close()
    none = Streams(c.call("PortForward", pod_sandbox_id=pod.id, port=[8001]).url, "?port=8001")
    none.send(0, b"x")
    none.until(1, "refused")
    none.close()
    expect(c.said(peer, "echo", "alive") == "alive\n", "the pod suffers")


@scenarios.add("no streams of a container that ended")
def _(c):
    id = c.container(c.pod(), ["true"])
    c.ended(id)
    text = refusal(c.call, "Exec", container_id=id, cmd=["true"], stdout=True)
    return "running state" in text or text, ERROR
