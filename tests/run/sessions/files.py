session = Session(sys.argv[1])


def open_file(path, access="read", **fields):
    id = session.send("open", path=path, access=access, **fields)
    reply, fds = session.receive()
    assert reply["id"] == id
    return reply, fds


def errno_of(op, **fields):
    reply = session.ask(op, **fields)
    assert reply["event"] == "error" and reply["error"]["step"] == "session_file", reply
    return reply["error"]["errno"]


def done(op, **fields):
    reply = session.ask(op, **fields)
    assert reply["event"] == "done", reply
    return reply


def write(path, content, **fields):
    reply, fds = open_file(path, "write", create=True, truncate=True, **fields)
    assert reply["event"] == "done", reply
    os.write(fds[0], content)
    os.close(fds[0])
    return reply["file"]


def read(path):
    reply, fds = open_file(path)
    assert reply["event"] == "done", reply
    with open(fds[0], "rb") as file:
        return file.read()


# A file: made, described, read, appended to, replaced.
file = write("/tmp/a", b"hello", mode=0o640)
assert file["type"] == "file" and file["mode"] == 0o640 and file["size_bytes"] == 0, file
assert write("/tmp/b", b"")["mode"] == 0o666 & ~0o022, "the session's umask"
assert read("/tmp/a") == b"hello"
reply, (fd,) = open_file("/tmp/a", "write", append=True)
assert fcntl.fcntl(fd, fcntl.F_GETFL) & (os.O_APPEND | os.O_NONBLOCK) == os.O_APPEND
os.write(fd, b" there")
os.close(fd)
assert read("/tmp/a") == b"hello there"
file = done("stat", path="/tmp/a")["file"]
assert (file["size_bytes"], file["links"], file["type"]) == (11, 1, "file"), file
assert errno_of("open", path="/tmp/a", access="write", create=True, exclusive=True) == 17
assert errno_of("open", path="/tmp/none", access="read") == 2
assert errno_of("open", path="/tmp/a/b", access="read") == 20
assert errno_of("open", path="/tmp", access="read") == 21
assert errno_of("open", path="/usr/x", access="write", create=True) in (13, 30)

# Names that are not UTF-8.
odd = {"hex": b"/tmp/\xff\n".hex()}
write(odd, b"odd")
assert read(odd) == b"odd"

# Directories.
done("make_dir", path="/tmp/d", mode=0o1777)
assert done("stat", path="/tmp/d")["file"]["mode"] == 0o1777
assert errno_of("make_dir", path="/tmp/d") == 17
done("make_dir", path="/tmp/d/e/f/g", parents=True)
done("make_dir", path="/tmp/d/e/f/g", parents=True)
assert errno_of("make_dir", path="/tmp/x/y") == 2
write("/tmp/p/q/r", b"deep", parents=True)
assert read("/tmp/p/q/r") == b"deep"
assert errno_of("list", path="/tmp/a") == 20
assert done("list", path="/tmp/d")["entries"][0]["name"] == "e"

# Two thousand entries, by pages of every size.
session_ids = [session.send("open", path=f"/tmp/many/{n}", access="write", create=True, parents=True) for n in range(60)]
for id in session_ids:
    reply, fds = session.receive()
    assert (reply["id"], reply["event"]) == (id, "done"), reply
    os.close(fds[0])
for start in range(60, 2000, 60):
    numbers = range(start, min(start + 60, 2000))
    for n in numbers:
        session.send("make_dir", path=f"/tmp/many/{n}")
    for n in numbers:
        assert session.receive()[0]["event"] == "done"
for limit in (1000, 333, 7):
    names, fields = [], {}
    while True:
        reply = done("list", path="/tmp/many", limit=limit, **fields)
        assert len(reply["entries"]) <= limit
        names += [entry["name"] for entry in reply["entries"]]
        if "next" not in reply:
            break
        fields = {"from": reply["next"]}
    assert sorted(names) == sorted(str(n) for n in range(2000)), (limit, len(names))
assert errno_of("remove", path="/tmp/many") == 39
rounds = 0
while done("remove", path="/tmp/many", recursive=True).get("more"):
    rounds += 1
assert errno_of("stat", path="/tmp/many") == 2

# A tree that is deeper than a path can name.
done("make_dir", path="/tmp/deep")
for _ in range(40):
    done("make_dir", path="/tmp/deep/" + "/".join(["d" * 100] * 9), parents=True)
    done("make_dir", path="/tmp/deeper")
    done("rename", path="/tmp/deep", to="/tmp/deeper/x")
    done("rename", path="/tmp/deeper", to="/tmp/deep")
while done("remove", path="/tmp/deep", recursive=True).get("more"):
    pass
assert errno_of("stat", path="/tmp/deep") == 2

# Links: their own attributes, and where they lead.
done("symlink", path="/tmp/l", target="a")
assert done("stat", path="/tmp/l", no_follow=True)["file"]["target"] == "a"
assert done("stat", path="/tmp/l")["file"]["type"] == "file"
assert errno_of("open", path="/tmp/l", access="read", no_follow=True) == 40
done("symlink", path="/tmp/loop", target="loop")
assert errno_of("stat", path="/tmp/loop") == 40
assert errno_of("set_attributes", path="/tmp/l", mode=0o600) is None
done("set_attributes", path="/tmp/l", modified_ns=-1_500_000_000)
assert done("stat", path="/tmp/l", no_follow=True)["file"]["modified_ns"] == -1_500_000_000
done("set_attributes", path="/tmp/a", mode=0o604, modified_ns=5_000_000_007)
file = done("stat", path="/tmp/a")["file"]
assert (file["mode"], file["modified_ns"]) == (0o604, 5_000_000_007), file

# Renaming and removing.
assert errno_of("rename", path="/tmp/a", to="/tmp/b", no_replace=True) == 17
done("rename", path="/tmp/a", to="/tmp/b")
assert read("/tmp/b") == b"hello there"
done("remove", path="/tmp/l")
assert errno_of("remove", path="/tmp/l") == 2
assert errno_of("remove", path="/", recursive=True) == 22
assert errno_of("remove", path="/tmp/d/..", recursive=True) == 22

# Nothing leads to what is not the sandbox's: this process, its program and its descriptors are the runtime's.
for path in ("/proc/self/exe", "/proc/self/fd/0", "/proc/self/root/etc/passwd", "/proc/self/cwd/etc/passwd", "/proc/1/root/etc/passwd"):
    assert errno_of("open", path=path, access="read") in (13, 40), path
    assert errno_of("set_attributes", path=path, mode=0o600) in (None, 1, 13, 40), path
done("symlink", path="/tmp/exe", target="/proc/self/exe")
assert errno_of("open", path="/tmp/exe", access="read") in (13, 40)

# Every mistake is named.
for fields, named in [
    (dict(op="open", path="a", access="read"), "path"),
    (dict(op="open", path="/a", access="read", mode=0o4755), "mode"),
    (dict(op="make_dir", path="/a", mode=0o2755), "mode"),
    (dict(op="lst", path="/a"), "op"),
    (dict(op="list", path="/a", from_="1"), "from_"),
]:
    reply = session.ask(**fields)
    assert reply["event"] == "error" and reply["error"]["object"] == named, reply
long = "/" + "x" * 300
assert errno_of("stat", path=long) == 36
assert session.ask("stat", path="/" + "x/" * 3000)["error"]["object"] == "path"
status = session.ask("status")["status"]
assert status["running"] == [], "the file server is no command"
print("ok")
