"""Receives the master of a container's terminal, types the words given, and prints what the terminal shows until its end."""
import os, socket, sys

listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
connection = listener.accept()[0]
_, (master,), *_ = socket.recv_fds(connection, 4096, 1)
for text in sys.argv[2:]:
    os.write(master, text.encode().decode("unicode_escape").encode())
while True:
    try:
        shown = os.read(master, 4096)
    except OSError:  # EIO: no process has the terminal any more
        break
    if not shown:
        break
    os.write(1, shown.replace(b"\r\n", b"\n"))
