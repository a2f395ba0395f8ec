# What the commands of a case are made of. rt() is the runtime with its state directory, $B the bundle, $ID the container.
run() { rt run --bundle "$B" "$@" "$ID"; }
create() { rt create --bundle "$B" --pid-file "$B/pid" "$@" "$ID"; }
start() { rt start "$ID"; }
up() { create "$@" && start; }
inside() { rt exec "$ID" sh -c "$1"; }
remove() { rt delete "$@" "$ID"; }
# The container's status; empty without a container.
status() { rt state "$ID" 2>/dev/null | sed -n 's/.*"status": *"\([a-z]*\)".*/\1/p'; }
# The container's process, and a line of its status.
pid() { cat "$B/pid"; }
of_init() { sed -n "s/^$1:[[:space:]]*//p" "/proc/$(pid)/status"; }
# The exit code of a command, whose output is not wanted.
code() { "$@" >>"$B/said" 2>&1; echo "$?"; }
# Waits, at most some seconds, until a command succeeds.
until_so() {
    tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ "$tries" -lt 400 ] || { echo "never: $*"; return 1; }
        sleep 0.02
    done
}
is() { [ "$(status)" = "$1" ]; }
await() { until_so is "$1"; }
# Waits for a line of the container's output.
printed() { until_so grep -q "$1" "$B/host.out"; }
# Changes config.json with a sed expression.
edit() { sed -i "$1" "$B/config.json"; }
# Receives a terminal at console.sock, and prints what comes from it.
console() {
    "$PYTHON" "$B/console.py" "$B/console.sock" "$@" &
    CONSOLE=$!
    until_so test -S "$B/console.sock"
}
console_ends() { wait "$CONSOLE"; }
# Starts a process in a new namespace of a kind. ns leads to the namespace, and its root's /etc/ns has its name.
donor() {
    # A pid namespace begins with its first process, whose parent stays outside.
    case $1 in pid) link=ns/pid_for_children fork='--fork --kill-child' ;; *) link=ns/$1 fork= ;; esac
    unshare "--$1" $fork sh -c 'echo up >donor; exec sleep 60' &
    DONOR=$!
    until_so test -s donor
    readlink "/proc/$DONOR/$link" >rootfs/etc/ns
    ln -s "/proc/$DONOR/$link" ns
}
