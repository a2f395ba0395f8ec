# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_stockade_global_optspecs
    string join \n V/version h/help
end

function __fish_stockade_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_stockade_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_stockade_using_subcommand
    set -l cmd (__fish_stockade_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c stockade -n "__fish_stockade_needs_command" -s V -l version -d 'Print version'
complete -c stockade -n "__fish_stockade_needs_command" -s h -l help -d 'Print help'
complete -c stockade -n "__fish_stockade_needs_command" -f -a "run" -d 'Run a command in a sandbox'
complete -c stockade -n "__fish_stockade_needs_command" -f -a "exec" -d 'Run a command in a session'
complete -c stockade -n "__fish_stockade_needs_command" -f -a "ps" -d 'List the sessions of this user'
complete -c stockade -n "__fish_stockade_needs_command" -f -a "inspect" -d 'Print the plan, usage and commands of a session, as JSON'
complete -c stockade -n "__fish_stockade_needs_command" -f -a "logs" -d 'Print what the command of a session printed'
complete -c stockade -n "__fish_stockade_needs_command" -f -a "attach" -d 'Print what the command of a session prints from now on'
complete -c stockade -n "__fish_stockade_needs_command" -f -a "cp" -d 'Copy files between the host and a session'
complete -c stockade -n "__fish_stockade_needs_command" -f -a "wait" -d 'Wait until sessions end, and print their exit codes'
complete -c stockade -n "__fish_stockade_needs_command" -f -a "stop" -d 'End sessions: SIGTERM to their commands, and SIGKILL to what is left'
complete -c stockade -n "__fish_stockade_needs_command" -f -a "kill" -d 'Send a signal to the command of a session, or to another one of its commands'
complete -c stockade -n "__fish_stockade_needs_command" -f -a "pause" -d 'Stop all processes of sessions'
complete -c stockade -n "__fish_stockade_needs_command" -f -a "unpause" -d 'Let the processes of paused sessions continue'
complete -c stockade -n "__fish_stockade_needs_command" -f -a "net" -d 'Change the hosts that a session may reach, and show what it reached'
complete -c stockade -n "__fish_stockade_needs_command" -f -a "rm" -d 'Remove what is kept of sessions that have ended'
complete -c stockade -n "__fish_stockade_needs_command" -f -a "plan" -d 'Print what a run would do, without running it'
complete -c stockade -n "__fish_stockade_needs_command" -f -a "why" -d 'Say whether a run may read a path, reach a host or make a system call, and what decides that'
complete -c stockade -n "__fish_stockade_needs_command" -f -a "learn" -d 'Run a command once, and write a narrow policy under which it ran'
complete -c stockade -n "__fish_stockade_needs_command" -f -a "doctor" -d 'Test what this host can enforce'
complete -c stockade -n "__fish_stockade_needs_command" -f -a "top" -d 'Show running sandboxes and their resource usage'
complete -c stockade -n "__fish_stockade_needs_command" -f -a "gc" -d 'Remove what killed supervisors left behind'
complete -c stockade -n "__fish_stockade_needs_command" -f -a "audit" -d 'Verify an audit log'
complete -c stockade -n "__fish_stockade_needs_command" -f -a "completions" -d 'Print the completions for a shell'
complete -c stockade -n "__fish_stockade_needs_command" -f -a "man" -d 'Show a page of the manual, or write all pages to a directory'
complete -c stockade -n "__fish_stockade_needs_command" -f -a "seccomp" -d 'Check, compile and explain seccomp profiles'
complete -c stockade -n "__fish_stockade_using_subcommand run" -s p -l profile -d 'Add a policy: default, strict, build, or a file (with a slash or .toml in its name)' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand run" -l allow-degraded -d 'Run even if this host cannot enforce NAME' -r -f -a "cpu\t''
memory\t''
pids\t''
keyring\t''
namespace-limits\t''
landlock\t''
io\t''
cpuset\t''
hugetlb\t''
rdma\t''
misc\t''
dmem\t''
udp\t''
host-id\t''
idmap\t''
proc\t''
outer-proc\t''
hostname\t''
namespaces\t''"
complete -c stockade -n "__fish_stockade_using_subcommand run" -s v -l volume -d 'Mount SRC at DST: ro or rw (default), noexec, optional' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand run" -l mount -d 'Mount with these keys: type=bind|tmpfs, source, destination, readonly, noexec, optional, size, nr_inodes, mode' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l tmpfs -d 'Mount a new tmpfs at DST: size=, nr_inodes=, mode=, exec, ro' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l ro -d 'Mount PATH read-only at the same path' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand run" -l rw -d 'Mount PATH read-write at the same path' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand run" -l workspace -d 'Mount DIR read-write at /workspace, the working directory' -r -f -a "(__fish_complete_directories)"
complete -c stockade -n "__fish_stockade_using_subcommand run" -l rootfs -d 'Use DIR, read-only, as the root, instead of the view of the host' -r -f -a "(__fish_complete_directories)"
complete -c stockade -n "__fish_stockade_using_subcommand run" -l toolchain -d 'Show python, node, rust, java, go, or auto for all, where PATH has them' -r -f -a "python\t''
node\t''
rust\t''
java\t''
go\t''
auto\t''"
complete -c stockade -n "__fish_stockade_using_subcommand run" -l device -d 'Provide this device node of the host' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand run" -l scratch-size -d 'Size limit of /tmp, the home and /dev/shm together' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l scratch-inodes -d 'Limit on the number of files there' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -s e -l env -d 'Set a variable, or pass the caller\'s value' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l env-file -d 'Read variables from FILE, one a line' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand run" -s w -l workdir -d 'Working directory in the sandbox, or a relative path of the host that it shows' -r -f -a "(__fish_complete_directories)"
complete -c stockade -n "__fish_stockade_using_subcommand run" -l umask -d 'File mode creation mask, octal' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -s u -l user -d 'User of the command in the sandbox' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l host-user -d 'User of the command on the host (needs root)' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l cap-add -d 'Keep a capability inside the user namespace' -r -f -a "CHOWN\t''
DAC_OVERRIDE\t''
DAC_READ_SEARCH\t''
FOWNER\t''
FSETID\t''
KILL\t''
SETGID\t''
SETUID\t''
SETPCAP\t''
LINUX_IMMUTABLE\t''
NET_BIND_SERVICE\t''
NET_BROADCAST\t''
NET_ADMIN\t''
NET_RAW\t''
IPC_LOCK\t''
IPC_OWNER\t''
SYS_MODULE\t''
SYS_RAWIO\t''
SYS_CHROOT\t''
SYS_PTRACE\t''
SYS_PACCT\t''
SYS_ADMIN\t''
SYS_BOOT\t''
SYS_NICE\t''
SYS_RESOURCE\t''
SYS_TIME\t''
SYS_TTY_CONFIG\t''
MKNOD\t''
LEASE\t''
AUDIT_WRITE\t''
AUDIT_CONTROL\t''
SETFCAP\t''
MAC_OVERRIDE\t''
MAC_ADMIN\t''
SYSLOG\t''
WAKE_ALARM\t''
BLOCK_SUSPEND\t''
AUDIT_READ\t''
PERFMON\t''
BPF\t''
CHECKPOINT_RESTORE\t''"
complete -c stockade -n "__fish_stockade_using_subcommand run" -l cap-drop -d 'Drop a capability that a policy keeps; ALL drops every one' -r -f -a "CHOWN\t''
DAC_OVERRIDE\t''
DAC_READ_SEARCH\t''
FOWNER\t''
FSETID\t''
KILL\t''
SETGID\t''
SETUID\t''
SETPCAP\t''
LINUX_IMMUTABLE\t''
NET_BIND_SERVICE\t''
NET_BROADCAST\t''
NET_ADMIN\t''
NET_RAW\t''
IPC_LOCK\t''
IPC_OWNER\t''
SYS_MODULE\t''
SYS_RAWIO\t''
SYS_CHROOT\t''
SYS_PTRACE\t''
SYS_PACCT\t''
SYS_ADMIN\t''
SYS_BOOT\t''
SYS_NICE\t''
SYS_RESOURCE\t''
SYS_TIME\t''
SYS_TTY_CONFIG\t''
MKNOD\t''
LEASE\t''
AUDIT_WRITE\t''
AUDIT_CONTROL\t''
SETFCAP\t''
MAC_OVERRIDE\t''
MAC_ADMIN\t''
SYSLOG\t''
WAKE_ALARM\t''
BLOCK_SUSPEND\t''
AUDIT_READ\t''
PERFMON\t''
BPF\t''
CHECKPOINT_RESTORE\t''"
complete -c stockade -n "__fish_stockade_using_subcommand run" -l network -d 'Sockets of TCP and UDP: none, in the sandbox (default), to hosts of --allow-net, or on the host\'s network' -r -f -a "none\t''
loopback\t''
egress\t''
host\t''"
complete -c stockade -n "__fish_stockade_using_subcommand run" -l hostname -d 'Host name in the sandbox' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l name -d 'Name of the sandbox' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l label -d 'Label of the sandbox, for its report, its audit line, ps and top' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l allow-net -d 'Let the command reach this host: a name, *.DOMAIN, an address or a network; ports 80 and 443 by default' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l deny-net -d 'Never let it reach this host, whatever is allowed' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l publish -d 'Forward connections from this port of the host, on 127.0.0.1 by default, to a port of the sandbox' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l add-host -d 'The address of a name, which no name server is asked about' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l dns -d 'The name server for allowed names, instead of the host\'s' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l upstream-proxy -d 'Make every connection through this proxy: http://[USER:PASSWORD@]HOST[:PORT] or socks5://…' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l net-connections -d 'Limit on connections at a time' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l net-rate -d 'Limit on bytes per second, of all connections together' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l net-budget -d 'End the run after this many bytes, of all connections together' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l net-connect-timeout -d 'Time to resolve a name and connect' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l net-idle-timeout -d 'End a connection after this time without a byte' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l net-log -d 'Append a line of JSON for each connection and refused name to FILE or descriptor N' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand run" -l seccomp -d 'Filter system calls with this profile; a FILE is OCI or seccompiler JSON' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand run" -l seccomp-bpf -d 'Filter system calls with this compiled program' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand run" -l seccomp-allow -d 'Allow these calls too: debug, sysv, aio, splice, nested, setuid-bits or nettools' -r -f -a "debug\t''
sysv\t''
aio\t''
splice\t''
nested\t''
setuid-bits\t''
nettools\t''"
complete -c stockade -n "__fish_stockade_using_subcommand run" -l security-opt -d 'The same, in docker\'s syntax' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l allow-read -d 'Allow reading only below these paths (and /proc and /dev)' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand run" -l allow-write -d 'Allow writing only below these paths' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand run" -l allow-exec -d 'Allow execution only below these paths, and never on writable mounts' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand run" -l allow-connect -d 'Allow TCP connections only to these ports' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l allow-bind -d 'Allow binding only these TCP ports' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l landlock -d 'Landlock enforces these rules: refuse to run without it, use it if possible, or do not use it' -r -f -a "require\t''
auto\t''
off\t''"
complete -c stockade -n "__fish_stockade_using_subcommand run" -l landlock-abi -d 'Refuse to run with an older Landlock ABI than N' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -s m -l memory -d 'Memory limit of the whole process tree, or unlimited' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l memory-high -d 'Memory usage above which the tree is slowed down' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l swap -d 'Swap limit of the tree; with a memory limit the default is no swap' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l cpus -d 'CPU limit of the tree, such as 0.5, or unlimited' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l cpu-weight -d 'Share of the CPUs, 1 to 10000; the default of a cgroup is 100' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l cpuset-cpus -d 'CPUs that the tree may use, such as 0-3,7' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l cpuset-mems -d 'NUMA nodes that the tree may use' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l pids-limit -d 'Limit on processes and threads of the tree, or unlimited' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l io-max -d 'Limit on disk traffic: rbps, wbps (bytes/s), riops, wiops (per second)' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l io-weight -d 'Share of the disks, 1 to 10000; the default of a cgroup is 100' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l hugetlb -d 'Limit on huge pages of this size, such as 2M=64M' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l cgroup-set -d 'Any other file of a cgroup v2 controller, such as memory.low=64M' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand run" -l ulimit -d 'Resource limit of each process' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l timeout -d 'End the run after this wall-clock time, such as 30s' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l cpu-time -d 'End the run after this CPU time of the tree' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l idle-timeout -d 'End the run after this time without output' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l kill-after -d 'Time between the first signal and SIGKILL' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l oom-score-adj -d 'Preference of the OOM killer for the tree, -1000 to 1000: high values are killed first' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l output-limit -d 'Limit on the output of each stream: keep the start or the end, or end the run' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l report -d 'Write the report of the run to FILE or descriptor N, which the command cannot reach' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand run" -l audit -d 'Append a line about the run to this log, also if the run is refused; no bind mount may contain FILE' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand run" -l stats -d 'Write the resource usage as a line of JSON to the report\'s descriptor, at this interval' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l lifetime -d 'End the session after this time' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l idle-stop -d 'End the session when no command ran for this time' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l lease -d 'End the session or run at once when the other end of this pipe or socket is closed' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l follow -d 'Follow symlinks in these host paths even if other users could have made them'
complete -c stockade -n "__fish_stockade_using_subcommand run" -l sysfs -d 'Mount the host\'s /sys read-only'
complete -c stockade -n "__fish_stockade_using_subcommand run" -l keep-env -d 'Pass the caller\'s environment, without variables that make programs load code'
complete -c stockade -n "__fish_stockade_using_subcommand run" -l subuid -d 'Map the caller\'s subordinate ids with newuidmap'
complete -c stockade -n "__fish_stockade_using_subcommand run" -l time-namespace -d 'Start the monotonic and boot clocks at zero'
complete -c stockade -n "__fish_stockade_using_subcommand run" -l no-init -d 'Run the command as pid 1, without an init'
complete -c stockade -n "__fish_stockade_using_subcommand run" -l seccomp-strict -d 'Refuse a profile that has warnings'
complete -c stockade -n "__fish_stockade_using_subcommand run" -l require-budget -d 'Refuse the run if a limit of the policy cannot be enforced for the whole tree'
complete -c stockade -n "__fish_stockade_using_subcommand run" -s i -l interactive -d 'Pass standard input to the command'
complete -c stockade -n "__fish_stockade_using_subcommand run" -s t -l tty -d 'Give the command a terminal of its own'
complete -c stockade -n "__fish_stockade_using_subcommand run" -l audit-sync -d 'Sync that line to the disk before exiting'
complete -c stockade -n "__fish_stockade_using_subcommand run" -l debug -d 'Print each step of the start to standard error as it happens'
complete -c stockade -n "__fish_stockade_using_subcommand run" -l explain-denials -d 'List what the command was denied, by which rule, and what would allow it'
complete -c stockade -n "__fish_stockade_using_subcommand run" -l summary -d 'Print status, time, CPU, memory and denials to standard error at the end'
complete -c stockade -n "__fish_stockade_using_subcommand run" -s q -l quiet -d 'Print neither warnings nor which limit was reached'
complete -c stockade -n "__fish_stockade_using_subcommand run" -s d -l detach -d 'Make a session: a sandbox that stays, for exec. Prints its name when it is ready'
complete -c stockade -n "__fish_stockade_using_subcommand run" -l rm -d 'Keep nothing of the session when it has ended'
complete -c stockade -n "__fish_stockade_using_subcommand run" -s h -l help -d 'Print help'
complete -c stockade -n "__fish_stockade_using_subcommand exec" -s e -l env -d 'Set a variable, or pass the caller\'s value' -r
complete -c stockade -n "__fish_stockade_using_subcommand exec" -l env-file -d 'Read variables from FILE, one a line' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand exec" -s w -l workdir -d 'Working directory in the sandbox' -r -f -a "(__fish_complete_directories)"
complete -c stockade -n "__fish_stockade_using_subcommand exec" -s u -l user -d 'User of the command, among those that the session maps' -r
complete -c stockade -n "__fish_stockade_using_subcommand exec" -l umask -d 'File mode creation mask, octal' -r
complete -c stockade -n "__fish_stockade_using_subcommand exec" -s m -l memory -d 'Memory limit of the command\'s process tree' -r
complete -c stockade -n "__fish_stockade_using_subcommand exec" -l cpus -d 'CPU limit of the tree, such as 0.5' -r
complete -c stockade -n "__fish_stockade_using_subcommand exec" -l pids-limit -d 'Limit on processes and threads of the tree' -r
complete -c stockade -n "__fish_stockade_using_subcommand exec" -l timeout -d 'End the command after this wall-clock time, such as 30s' -r
complete -c stockade -n "__fish_stockade_using_subcommand exec" -l cpu-time -d 'End the command after this CPU time of the tree' -r
complete -c stockade -n "__fish_stockade_using_subcommand exec" -l idle-timeout -d 'End the command after this time without output' -r
complete -c stockade -n "__fish_stockade_using_subcommand exec" -l kill-after -d 'Time between the first signal and SIGKILL' -r
complete -c stockade -n "__fish_stockade_using_subcommand exec" -l output-limit -d 'Limit on the output of each stream: keep the start or the end, or end the command' -r
complete -c stockade -n "__fish_stockade_using_subcommand exec" -l report -d 'Write the report of the command to FILE or descriptor N' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand exec" -s i -l interactive -d 'Pass standard input to the command'
complete -c stockade -n "__fish_stockade_using_subcommand exec" -s t -l tty -d 'Give the command a terminal of its own'
complete -c stockade -n "__fish_stockade_using_subcommand exec" -s d -l detach -d 'Do not wait for the command, and print its id'
complete -c stockade -n "__fish_stockade_using_subcommand exec" -l explain-denials -d 'List what the command was denied, by which rule, and what would allow it'
complete -c stockade -n "__fish_stockade_using_subcommand exec" -l summary -d 'Print status, time, CPU, memory and denials to standard error at the end'
complete -c stockade -n "__fish_stockade_using_subcommand exec" -s q -l quiet -d 'Do not print which limit was reached'
complete -c stockade -n "__fish_stockade_using_subcommand exec" -s h -l help -d 'Print help'
complete -c stockade -n "__fish_stockade_using_subcommand ps" -l json -d 'Print one line of JSON per session'
complete -c stockade -n "__fish_stockade_using_subcommand ps" -s q -l quiet -d 'Print only names'
complete -c stockade -n "__fish_stockade_using_subcommand ps" -s a -l all -d 'Accepted as in docker ps: sessions that have ended are always listed'
complete -c stockade -n "__fish_stockade_using_subcommand ps" -s h -l help -d 'Print help'
complete -c stockade -n "__fish_stockade_using_subcommand inspect" -s h -l help -d 'Print help'
complete -c stockade -n "__fish_stockade_using_subcommand logs" -s f -l follow -d 'Continue until the command ends'
complete -c stockade -n "__fish_stockade_using_subcommand logs" -s h -l help -d 'Print help'
complete -c stockade -n "__fish_stockade_using_subcommand attach" -s h -l help -d 'Print help'
complete -c stockade -n "__fish_stockade_using_subcommand cp" -s L -l follow-link -d 'Copy what SRC points to, if it is a symlink'
complete -c stockade -n "__fish_stockade_using_subcommand cp" -s h -l help -d 'Print help'
complete -c stockade -n "__fish_stockade_using_subcommand wait" -s h -l help -d 'Print help'
complete -c stockade -n "__fish_stockade_using_subcommand stop" -s t -l time -d 'Time between the two, 10s by default' -r
complete -c stockade -n "__fish_stockade_using_subcommand stop" -s h -l help -d 'Print help'
complete -c stockade -n "__fish_stockade_using_subcommand kill" -s s -l signal -d 'The signal, KILL by default' -r
complete -c stockade -n "__fish_stockade_using_subcommand kill" -l command -d 'A command, such as c1, or all' -r
complete -c stockade -n "__fish_stockade_using_subcommand kill" -s h -l help -d 'Print help'
complete -c stockade -n "__fish_stockade_using_subcommand pause" -s h -l help -d 'Print help'
complete -c stockade -n "__fish_stockade_using_subcommand unpause" -s h -l help -d 'Print help'
complete -c stockade -n "__fish_stockade_using_subcommand net; and not __fish_seen_subcommand_from allow deny log" -s h -l help -d 'Print help'
complete -c stockade -n "__fish_stockade_using_subcommand net; and not __fish_seen_subcommand_from allow deny log" -f -a "allow" -d 'Allow hosts'
complete -c stockade -n "__fish_stockade_using_subcommand net; and not __fish_seen_subcommand_from allow deny log" -f -a "deny" -d 'Deny hosts, and end the connections to them'
complete -c stockade -n "__fish_stockade_using_subcommand net; and not __fish_seen_subcommand_from allow deny log" -f -a "log" -d 'Print the last thousand lines of the network log, as JSON'
complete -c stockade -n "__fish_stockade_using_subcommand net; and __fish_seen_subcommand_from allow" -s h -l help -d 'Print help'
complete -c stockade -n "__fish_stockade_using_subcommand net; and __fish_seen_subcommand_from deny" -s h -l help -d 'Print help'
complete -c stockade -n "__fish_stockade_using_subcommand net; and __fish_seen_subcommand_from log" -s f -l follow -d 'Continue until the session ends'
complete -c stockade -n "__fish_stockade_using_subcommand net; and __fish_seen_subcommand_from log" -s h -l help -d 'Print help'
complete -c stockade -n "__fish_stockade_using_subcommand rm" -s f -l force -d 'End those first that run'
complete -c stockade -n "__fish_stockade_using_subcommand rm" -s h -l help -d 'Print help'
complete -c stockade -n "__fish_stockade_using_subcommand plan" -s p -l profile -d 'Add a policy: default, strict, build, or a file (with a slash or .toml in its name)' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l allow-degraded -d 'Run even if this host cannot enforce NAME' -r -f -a "cpu\t''
memory\t''
pids\t''
keyring\t''
namespace-limits\t''
landlock\t''
io\t''
cpuset\t''
hugetlb\t''
rdma\t''
misc\t''
dmem\t''
udp\t''
host-id\t''
idmap\t''
proc\t''
outer-proc\t''
hostname\t''
namespaces\t''"
complete -c stockade -n "__fish_stockade_using_subcommand plan" -s v -l volume -d 'Mount SRC at DST: ro or rw (default), noexec, optional' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l mount -d 'Mount with these keys: type=bind|tmpfs, source, destination, readonly, noexec, optional, size, nr_inodes, mode' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l tmpfs -d 'Mount a new tmpfs at DST: size=, nr_inodes=, mode=, exec, ro' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l ro -d 'Mount PATH read-only at the same path' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l rw -d 'Mount PATH read-write at the same path' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l workspace -d 'Mount DIR read-write at /workspace, the working directory' -r -f -a "(__fish_complete_directories)"
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l rootfs -d 'Use DIR, read-only, as the root, instead of the view of the host' -r -f -a "(__fish_complete_directories)"
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l toolchain -d 'Show python, node, rust, java, go, or auto for all, where PATH has them' -r -f -a "python\t''
node\t''
rust\t''
java\t''
go\t''
auto\t''"
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l device -d 'Provide this device node of the host' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l scratch-size -d 'Size limit of /tmp, the home and /dev/shm together' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l scratch-inodes -d 'Limit on the number of files there' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -s e -l env -d 'Set a variable, or pass the caller\'s value' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l env-file -d 'Read variables from FILE, one a line' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand plan" -s w -l workdir -d 'Working directory in the sandbox, or a relative path of the host that it shows' -r -f -a "(__fish_complete_directories)"
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l umask -d 'File mode creation mask, octal' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -s u -l user -d 'User of the command in the sandbox' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l host-user -d 'User of the command on the host (needs root)' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l cap-add -d 'Keep a capability inside the user namespace' -r -f -a "CHOWN\t''
DAC_OVERRIDE\t''
DAC_READ_SEARCH\t''
FOWNER\t''
FSETID\t''
KILL\t''
SETGID\t''
SETUID\t''
SETPCAP\t''
LINUX_IMMUTABLE\t''
NET_BIND_SERVICE\t''
NET_BROADCAST\t''
NET_ADMIN\t''
NET_RAW\t''
IPC_LOCK\t''
IPC_OWNER\t''
SYS_MODULE\t''
SYS_RAWIO\t''
SYS_CHROOT\t''
SYS_PTRACE\t''
SYS_PACCT\t''
SYS_ADMIN\t''
SYS_BOOT\t''
SYS_NICE\t''
SYS_RESOURCE\t''
SYS_TIME\t''
SYS_TTY_CONFIG\t''
MKNOD\t''
LEASE\t''
AUDIT_WRITE\t''
AUDIT_CONTROL\t''
SETFCAP\t''
MAC_OVERRIDE\t''
MAC_ADMIN\t''
SYSLOG\t''
WAKE_ALARM\t''
BLOCK_SUSPEND\t''
AUDIT_READ\t''
PERFMON\t''
BPF\t''
CHECKPOINT_RESTORE\t''"
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l cap-drop -d 'Drop a capability that a policy keeps; ALL drops every one' -r -f -a "CHOWN\t''
DAC_OVERRIDE\t''
DAC_READ_SEARCH\t''
FOWNER\t''
FSETID\t''
KILL\t''
SETGID\t''
SETUID\t''
SETPCAP\t''
LINUX_IMMUTABLE\t''
NET_BIND_SERVICE\t''
NET_BROADCAST\t''
NET_ADMIN\t''
NET_RAW\t''
IPC_LOCK\t''
IPC_OWNER\t''
SYS_MODULE\t''
SYS_RAWIO\t''
SYS_CHROOT\t''
SYS_PTRACE\t''
SYS_PACCT\t''
SYS_ADMIN\t''
SYS_BOOT\t''
SYS_NICE\t''
SYS_RESOURCE\t''
SYS_TIME\t''
SYS_TTY_CONFIG\t''
MKNOD\t''
LEASE\t''
AUDIT_WRITE\t''
AUDIT_CONTROL\t''
SETFCAP\t''
MAC_OVERRIDE\t''
MAC_ADMIN\t''
SYSLOG\t''
WAKE_ALARM\t''
BLOCK_SUSPEND\t''
AUDIT_READ\t''
PERFMON\t''
BPF\t''
CHECKPOINT_RESTORE\t''"
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l network -d 'Sockets of TCP and UDP: none, in the sandbox (default), to hosts of --allow-net, or on the host\'s network' -r -f -a "none\t''
loopback\t''
egress\t''
host\t''"
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l hostname -d 'Host name in the sandbox' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l name -d 'Name of the sandbox' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l label -d 'Label of the sandbox, for its report, its audit line, ps and top' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l allow-net -d 'Let the command reach this host: a name, *.DOMAIN, an address or a network; ports 80 and 443 by default' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l deny-net -d 'Never let it reach this host, whatever is allowed' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l publish -d 'Forward connections from this port of the host, on 127.0.0.1 by default, to a port of the sandbox' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l add-host -d 'The address of a name, which no name server is asked about' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l dns -d 'The name server for allowed names, instead of the host\'s' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l upstream-proxy -d 'Make every connection through this proxy: http://[USER:PASSWORD@]HOST[:PORT] or socks5://…' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l net-connections -d 'Limit on connections at a time' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l net-rate -d 'Limit on bytes per second, of all connections together' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l net-budget -d 'End the run after this many bytes, of all connections together' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l net-connect-timeout -d 'Time to resolve a name and connect' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l net-idle-timeout -d 'End a connection after this time without a byte' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l net-log -d 'Append a line of JSON for each connection and refused name to FILE or descriptor N' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l seccomp -d 'Filter system calls with this profile; a FILE is OCI or seccompiler JSON' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l seccomp-bpf -d 'Filter system calls with this compiled program' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l seccomp-allow -d 'Allow these calls too: debug, sysv, aio, splice, nested, setuid-bits or nettools' -r -f -a "debug\t''
sysv\t''
aio\t''
splice\t''
nested\t''
setuid-bits\t''
nettools\t''"
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l security-opt -d 'The same, in docker\'s syntax' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l allow-read -d 'Allow reading only below these paths (and /proc and /dev)' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l allow-write -d 'Allow writing only below these paths' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l allow-exec -d 'Allow execution only below these paths, and never on writable mounts' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l allow-connect -d 'Allow TCP connections only to these ports' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l allow-bind -d 'Allow binding only these TCP ports' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l landlock -d 'Landlock enforces these rules: refuse to run without it, use it if possible, or do not use it' -r -f -a "require\t''
auto\t''
off\t''"
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l landlock-abi -d 'Refuse to run with an older Landlock ABI than N' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -s m -l memory -d 'Memory limit of the whole process tree, or unlimited' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l memory-high -d 'Memory usage above which the tree is slowed down' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l swap -d 'Swap limit of the tree; with a memory limit the default is no swap' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l cpus -d 'CPU limit of the tree, such as 0.5, or unlimited' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l cpu-weight -d 'Share of the CPUs, 1 to 10000; the default of a cgroup is 100' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l cpuset-cpus -d 'CPUs that the tree may use, such as 0-3,7' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l cpuset-mems -d 'NUMA nodes that the tree may use' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l pids-limit -d 'Limit on processes and threads of the tree, or unlimited' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l io-max -d 'Limit on disk traffic: rbps, wbps (bytes/s), riops, wiops (per second)' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l io-weight -d 'Share of the disks, 1 to 10000; the default of a cgroup is 100' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l hugetlb -d 'Limit on huge pages of this size, such as 2M=64M' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l cgroup-set -d 'Any other file of a cgroup v2 controller, such as memory.low=64M' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l ulimit -d 'Resource limit of each process' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l timeout -d 'End the run after this wall-clock time, such as 30s' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l cpu-time -d 'End the run after this CPU time of the tree' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l idle-timeout -d 'End the run after this time without output' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l kill-after -d 'Time between the first signal and SIGKILL' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l oom-score-adj -d 'Preference of the OOM killer for the tree, -1000 to 1000: high values are killed first' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l output-limit -d 'Limit on the output of each stream: keep the start or the end, or end the run' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l report -d 'Write the report of the run to FILE or descriptor N, which the command cannot reach' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l audit -d 'Append a line about the run to this log, also if the run is refused; no bind mount may contain FILE' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l stats -d 'Write the resource usage as a line of JSON to the report\'s descriptor, at this interval' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l lifetime -d 'End the session after this time' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l idle-stop -d 'End the session when no command ran for this time' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l lease -d 'End the session or run at once when the other end of this pipe or socket is closed' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l follow -d 'Follow symlinks in these host paths even if other users could have made them'
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l sysfs -d 'Mount the host\'s /sys read-only'
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l keep-env -d 'Pass the caller\'s environment, without variables that make programs load code'
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l subuid -d 'Map the caller\'s subordinate ids with newuidmap'
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l time-namespace -d 'Start the monotonic and boot clocks at zero'
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l no-init -d 'Run the command as pid 1, without an init'
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l seccomp-strict -d 'Refuse a profile that has warnings'
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l require-budget -d 'Refuse the run if a limit of the policy cannot be enforced for the whole tree'
complete -c stockade -n "__fish_stockade_using_subcommand plan" -s i -l interactive -d 'Pass standard input to the command'
complete -c stockade -n "__fish_stockade_using_subcommand plan" -s t -l tty -d 'Give the command a terminal of its own'
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l audit-sync -d 'Sync that line to the disk before exiting'
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l debug -d 'Print each step of the start to standard error as it happens'
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l explain-denials -d 'List what the command was denied, by which rule, and what would allow it'
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l summary -d 'Print status, time, CPU, memory and denials to standard error at the end'
complete -c stockade -n "__fish_stockade_using_subcommand plan" -s q -l quiet -d 'Print neither warnings nor which limit was reached'
complete -c stockade -n "__fish_stockade_using_subcommand plan" -s d -l detach -d 'Make a session: a sandbox that stays, for exec. Prints its name when it is ready'
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l rm -d 'Keep nothing of the session when it has ended'
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l json -d 'Print the plan as JSON'
complete -c stockade -n "__fish_stockade_using_subcommand plan" -s h -l help -d 'Print help'
complete -c stockade -n "__fish_stockade_using_subcommand why" -s p -l profile -d 'Add a policy: default, strict, build, or a file (with a slash or .toml in its name)' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand why" -l allow-degraded -d 'Run even if this host cannot enforce NAME' -r -f -a "cpu\t''
memory\t''
pids\t''
keyring\t''
namespace-limits\t''
landlock\t''
io\t''
cpuset\t''
hugetlb\t''
rdma\t''
misc\t''
dmem\t''
udp\t''
host-id\t''
idmap\t''
proc\t''
outer-proc\t''
hostname\t''
namespaces\t''"
complete -c stockade -n "__fish_stockade_using_subcommand why" -s v -l volume -d 'Mount SRC at DST: ro or rw (default), noexec, optional' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand why" -l mount -d 'Mount with these keys: type=bind|tmpfs, source, destination, readonly, noexec, optional, size, nr_inodes, mode' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l tmpfs -d 'Mount a new tmpfs at DST: size=, nr_inodes=, mode=, exec, ro' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l ro -d 'Mount PATH read-only at the same path' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand why" -l rw -d 'Mount PATH read-write at the same path' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand why" -l workspace -d 'Mount DIR read-write at /workspace, the working directory' -r -f -a "(__fish_complete_directories)"
complete -c stockade -n "__fish_stockade_using_subcommand why" -l rootfs -d 'Use DIR, read-only, as the root, instead of the view of the host' -r -f -a "(__fish_complete_directories)"
complete -c stockade -n "__fish_stockade_using_subcommand why" -l toolchain -d 'Show python, node, rust, java, go, or auto for all, where PATH has them' -r -f -a "python\t''
node\t''
rust\t''
java\t''
go\t''
auto\t''"
complete -c stockade -n "__fish_stockade_using_subcommand why" -l device -d 'Provide this device node of the host' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand why" -l scratch-size -d 'Size limit of /tmp, the home and /dev/shm together' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l scratch-inodes -d 'Limit on the number of files there' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -s e -l env -d 'Set a variable, or pass the caller\'s value' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l env-file -d 'Read variables from FILE, one a line' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand why" -s w -l workdir -d 'Working directory in the sandbox, or a relative path of the host that it shows' -r -f -a "(__fish_complete_directories)"
complete -c stockade -n "__fish_stockade_using_subcommand why" -l umask -d 'File mode creation mask, octal' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -s u -l user -d 'User of the command in the sandbox' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l host-user -d 'User of the command on the host (needs root)' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l cap-add -d 'Keep a capability inside the user namespace' -r -f -a "CHOWN\t''
DAC_OVERRIDE\t''
DAC_READ_SEARCH\t''
FOWNER\t''
FSETID\t''
KILL\t''
SETGID\t''
SETUID\t''
SETPCAP\t''
LINUX_IMMUTABLE\t''
NET_BIND_SERVICE\t''
NET_BROADCAST\t''
NET_ADMIN\t''
NET_RAW\t''
IPC_LOCK\t''
IPC_OWNER\t''
SYS_MODULE\t''
SYS_RAWIO\t''
SYS_CHROOT\t''
SYS_PTRACE\t''
SYS_PACCT\t''
SYS_ADMIN\t''
SYS_BOOT\t''
SYS_NICE\t''
SYS_RESOURCE\t''
SYS_TIME\t''
SYS_TTY_CONFIG\t''
MKNOD\t''
LEASE\t''
AUDIT_WRITE\t''
AUDIT_CONTROL\t''
SETFCAP\t''
MAC_OVERRIDE\t''
MAC_ADMIN\t''
SYSLOG\t''
WAKE_ALARM\t''
BLOCK_SUSPEND\t''
AUDIT_READ\t''
PERFMON\t''
BPF\t''
CHECKPOINT_RESTORE\t''"
complete -c stockade -n "__fish_stockade_using_subcommand why" -l cap-drop -d 'Drop a capability that a policy keeps; ALL drops every one' -r -f -a "CHOWN\t''
DAC_OVERRIDE\t''
DAC_READ_SEARCH\t''
FOWNER\t''
FSETID\t''
KILL\t''
SETGID\t''
SETUID\t''
SETPCAP\t''
LINUX_IMMUTABLE\t''
NET_BIND_SERVICE\t''
NET_BROADCAST\t''
NET_ADMIN\t''
NET_RAW\t''
IPC_LOCK\t''
IPC_OWNER\t''
SYS_MODULE\t''
SYS_RAWIO\t''
SYS_CHROOT\t''
SYS_PTRACE\t''
SYS_PACCT\t''
SYS_ADMIN\t''
SYS_BOOT\t''
SYS_NICE\t''
SYS_RESOURCE\t''
SYS_TIME\t''
SYS_TTY_CONFIG\t''
MKNOD\t''
LEASE\t''
AUDIT_WRITE\t''
AUDIT_CONTROL\t''
SETFCAP\t''
MAC_OVERRIDE\t''
MAC_ADMIN\t''
SYSLOG\t''
WAKE_ALARM\t''
BLOCK_SUSPEND\t''
AUDIT_READ\t''
PERFMON\t''
BPF\t''
CHECKPOINT_RESTORE\t''"
complete -c stockade -n "__fish_stockade_using_subcommand why" -l network -d 'Sockets of TCP and UDP: none, in the sandbox (default), to hosts of --allow-net, or on the host\'s network' -r -f -a "none\t''
loopback\t''
egress\t''
host\t''"
complete -c stockade -n "__fish_stockade_using_subcommand why" -l hostname -d 'Host name in the sandbox' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l name -d 'Name of the sandbox' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l label -d 'Label of the sandbox, for its report, its audit line, ps and top' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l allow-net -d 'Let the command reach this host: a name, *.DOMAIN, an address or a network; ports 80 and 443 by default' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l deny-net -d 'Never let it reach this host, whatever is allowed' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l publish -d 'Forward connections from this port of the host, on 127.0.0.1 by default, to a port of the sandbox' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l add-host -d 'The address of a name, which no name server is asked about' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l dns -d 'The name server for allowed names, instead of the host\'s' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l upstream-proxy -d 'Make every connection through this proxy: http://[USER:PASSWORD@]HOST[:PORT] or socks5://…' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l net-connections -d 'Limit on connections at a time' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l net-rate -d 'Limit on bytes per second, of all connections together' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l net-budget -d 'End the run after this many bytes, of all connections together' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l net-connect-timeout -d 'Time to resolve a name and connect' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l net-idle-timeout -d 'End a connection after this time without a byte' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l net-log -d 'Append a line of JSON for each connection and refused name to FILE or descriptor N' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand why" -l seccomp -d 'Filter system calls with this profile; a FILE is OCI or seccompiler JSON' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand why" -l seccomp-bpf -d 'Filter system calls with this compiled program' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand why" -l seccomp-allow -d 'Allow these calls too: debug, sysv, aio, splice, nested, setuid-bits or nettools' -r -f -a "debug\t''
sysv\t''
aio\t''
splice\t''
nested\t''
setuid-bits\t''
nettools\t''"
complete -c stockade -n "__fish_stockade_using_subcommand why" -l security-opt -d 'The same, in docker\'s syntax' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l allow-read -d 'Allow reading only below these paths (and /proc and /dev)' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand why" -l allow-write -d 'Allow writing only below these paths' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand why" -l allow-exec -d 'Allow execution only below these paths, and never on writable mounts' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand why" -l allow-connect -d 'Allow TCP connections only to these ports' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l allow-bind -d 'Allow binding only these TCP ports' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l landlock -d 'Landlock enforces these rules: refuse to run without it, use it if possible, or do not use it' -r -f -a "require\t''
auto\t''
off\t''"
complete -c stockade -n "__fish_stockade_using_subcommand why" -l landlock-abi -d 'Refuse to run with an older Landlock ABI than N' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -s m -l memory -d 'Memory limit of the whole process tree, or unlimited' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l memory-high -d 'Memory usage above which the tree is slowed down' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l swap -d 'Swap limit of the tree; with a memory limit the default is no swap' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l cpus -d 'CPU limit of the tree, such as 0.5, or unlimited' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l cpu-weight -d 'Share of the CPUs, 1 to 10000; the default of a cgroup is 100' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l cpuset-cpus -d 'CPUs that the tree may use, such as 0-3,7' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l cpuset-mems -d 'NUMA nodes that the tree may use' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l pids-limit -d 'Limit on processes and threads of the tree, or unlimited' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l io-max -d 'Limit on disk traffic: rbps, wbps (bytes/s), riops, wiops (per second)' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l io-weight -d 'Share of the disks, 1 to 10000; the default of a cgroup is 100' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l hugetlb -d 'Limit on huge pages of this size, such as 2M=64M' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l cgroup-set -d 'Any other file of a cgroup v2 controller, such as memory.low=64M' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand why" -l ulimit -d 'Resource limit of each process' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l timeout -d 'End the run after this wall-clock time, such as 30s' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l cpu-time -d 'End the run after this CPU time of the tree' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l idle-timeout -d 'End the run after this time without output' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l kill-after -d 'Time between the first signal and SIGKILL' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l oom-score-adj -d 'Preference of the OOM killer for the tree, -1000 to 1000: high values are killed first' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l output-limit -d 'Limit on the output of each stream: keep the start or the end, or end the run' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l report -d 'Write the report of the run to FILE or descriptor N, which the command cannot reach' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand why" -l audit -d 'Append a line about the run to this log, also if the run is refused; no bind mount may contain FILE' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand why" -l stats -d 'Write the resource usage as a line of JSON to the report\'s descriptor, at this interval' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l lifetime -d 'End the session after this time' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l idle-stop -d 'End the session when no command ran for this time' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l lease -d 'End the session or run at once when the other end of this pipe or socket is closed' -r
complete -c stockade -n "__fish_stockade_using_subcommand why" -l to -d 'What the exit code says about a path: read by default' -r -f -a "read\t''
write\t''
execute\t''"
complete -c stockade -n "__fish_stockade_using_subcommand why" -l follow -d 'Follow symlinks in these host paths even if other users could have made them'
complete -c stockade -n "__fish_stockade_using_subcommand why" -l sysfs -d 'Mount the host\'s /sys read-only'
complete -c stockade -n "__fish_stockade_using_subcommand why" -l keep-env -d 'Pass the caller\'s environment, without variables that make programs load code'
complete -c stockade -n "__fish_stockade_using_subcommand why" -l subuid -d 'Map the caller\'s subordinate ids with newuidmap'
complete -c stockade -n "__fish_stockade_using_subcommand why" -l time-namespace -d 'Start the monotonic and boot clocks at zero'
complete -c stockade -n "__fish_stockade_using_subcommand why" -l no-init -d 'Run the command as pid 1, without an init'
complete -c stockade -n "__fish_stockade_using_subcommand why" -l seccomp-strict -d 'Refuse a profile that has warnings'
complete -c stockade -n "__fish_stockade_using_subcommand why" -l require-budget -d 'Refuse the run if a limit of the policy cannot be enforced for the whole tree'
complete -c stockade -n "__fish_stockade_using_subcommand why" -s i -l interactive -d 'Pass standard input to the command'
complete -c stockade -n "__fish_stockade_using_subcommand why" -s t -l tty -d 'Give the command a terminal of its own'
complete -c stockade -n "__fish_stockade_using_subcommand why" -l audit-sync -d 'Sync that line to the disk before exiting'
complete -c stockade -n "__fish_stockade_using_subcommand why" -l debug -d 'Print each step of the start to standard error as it happens'
complete -c stockade -n "__fish_stockade_using_subcommand why" -l explain-denials -d 'List what the command was denied, by which rule, and what would allow it'
complete -c stockade -n "__fish_stockade_using_subcommand why" -l summary -d 'Print status, time, CPU, memory and denials to standard error at the end'
complete -c stockade -n "__fish_stockade_using_subcommand why" -s q -l quiet -d 'Print neither warnings nor which limit was reached'
complete -c stockade -n "__fish_stockade_using_subcommand why" -s d -l detach -d 'Make a session: a sandbox that stays, for exec. Prints its name when it is ready'
complete -c stockade -n "__fish_stockade_using_subcommand why" -l rm -d 'Keep nothing of the session when it has ended'
complete -c stockade -n "__fish_stockade_using_subcommand why" -l json -d 'Print the answers as JSON'
complete -c stockade -n "__fish_stockade_using_subcommand why" -s h -l help -d 'Print help'
complete -c stockade -n "__fish_stockade_using_subcommand learn" -s p -l profile -d 'Add a policy: default, strict, build, or a file (with a slash or .toml in its name)' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l allow-degraded -d 'Run even if this host cannot enforce NAME' -r -f -a "cpu\t''
memory\t''
pids\t''
keyring\t''
namespace-limits\t''
landlock\t''
io\t''
cpuset\t''
hugetlb\t''
rdma\t''
misc\t''
dmem\t''
udp\t''
host-id\t''
idmap\t''
proc\t''
outer-proc\t''
hostname\t''
namespaces\t''"
complete -c stockade -n "__fish_stockade_using_subcommand learn" -s v -l volume -d 'Mount SRC at DST: ro or rw (default), noexec, optional' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l mount -d 'Mount with these keys: type=bind|tmpfs, source, destination, readonly, noexec, optional, size, nr_inodes, mode' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l tmpfs -d 'Mount a new tmpfs at DST: size=, nr_inodes=, mode=, exec, ro' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l ro -d 'Mount PATH read-only at the same path' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l rw -d 'Mount PATH read-write at the same path' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l workspace -d 'Mount DIR read-write at /workspace, the working directory' -r -f -a "(__fish_complete_directories)"
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l rootfs -d 'Use DIR, read-only, as the root, instead of the view of the host' -r -f -a "(__fish_complete_directories)"
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l toolchain -d 'Show python, node, rust, java, go, or auto for all, where PATH has them' -r -f -a "python\t''
node\t''
rust\t''
java\t''
go\t''
auto\t''"
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l device -d 'Provide this device node of the host' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l scratch-size -d 'Size limit of /tmp, the home and /dev/shm together' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l scratch-inodes -d 'Limit on the number of files there' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -s e -l env -d 'Set a variable, or pass the caller\'s value' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l env-file -d 'Read variables from FILE, one a line' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand learn" -s w -l workdir -d 'Working directory in the sandbox, or a relative path of the host that it shows' -r -f -a "(__fish_complete_directories)"
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l umask -d 'File mode creation mask, octal' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -s u -l user -d 'User of the command in the sandbox' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l host-user -d 'User of the command on the host (needs root)' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l cap-add -d 'Keep a capability inside the user namespace' -r -f -a "CHOWN\t''
DAC_OVERRIDE\t''
DAC_READ_SEARCH\t''
FOWNER\t''
FSETID\t''
KILL\t''
SETGID\t''
SETUID\t''
SETPCAP\t''
LINUX_IMMUTABLE\t''
NET_BIND_SERVICE\t''
NET_BROADCAST\t''
NET_ADMIN\t''
NET_RAW\t''
IPC_LOCK\t''
IPC_OWNER\t''
SYS_MODULE\t''
SYS_RAWIO\t''
SYS_CHROOT\t''
SYS_PTRACE\t''
SYS_PACCT\t''
SYS_ADMIN\t''
SYS_BOOT\t''
SYS_NICE\t''
SYS_RESOURCE\t''
SYS_TIME\t''
SYS_TTY_CONFIG\t''
MKNOD\t''
LEASE\t''
AUDIT_WRITE\t''
AUDIT_CONTROL\t''
SETFCAP\t''
MAC_OVERRIDE\t''
MAC_ADMIN\t''
SYSLOG\t''
WAKE_ALARM\t''
BLOCK_SUSPEND\t''
AUDIT_READ\t''
PERFMON\t''
BPF\t''
CHECKPOINT_RESTORE\t''"
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l cap-drop -d 'Drop a capability that a policy keeps; ALL drops every one' -r -f -a "CHOWN\t''
DAC_OVERRIDE\t''
DAC_READ_SEARCH\t''
FOWNER\t''
FSETID\t''
KILL\t''
SETGID\t''
SETUID\t''
SETPCAP\t''
LINUX_IMMUTABLE\t''
NET_BIND_SERVICE\t''
NET_BROADCAST\t''
NET_ADMIN\t''
NET_RAW\t''
IPC_LOCK\t''
IPC_OWNER\t''
SYS_MODULE\t''
SYS_RAWIO\t''
SYS_CHROOT\t''
SYS_PTRACE\t''
SYS_PACCT\t''
SYS_ADMIN\t''
SYS_BOOT\t''
SYS_NICE\t''
SYS_RESOURCE\t''
SYS_TIME\t''
SYS_TTY_CONFIG\t''
MKNOD\t''
LEASE\t''
AUDIT_WRITE\t''
AUDIT_CONTROL\t''
SETFCAP\t''
MAC_OVERRIDE\t''
MAC_ADMIN\t''
SYSLOG\t''
WAKE_ALARM\t''
BLOCK_SUSPEND\t''
AUDIT_READ\t''
PERFMON\t''
BPF\t''
CHECKPOINT_RESTORE\t''"
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l network -d 'Sockets of TCP and UDP: none, in the sandbox (default), to hosts of --allow-net, or on the host\'s network' -r -f -a "none\t''
loopback\t''
egress\t''
host\t''"
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l hostname -d 'Host name in the sandbox' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l name -d 'Name of the sandbox' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l label -d 'Label of the sandbox, for its report, its audit line, ps and top' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l allow-net -d 'Let the command reach this host: a name, *.DOMAIN, an address or a network; ports 80 and 443 by default' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l deny-net -d 'Never let it reach this host, whatever is allowed' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l publish -d 'Forward connections from this port of the host, on 127.0.0.1 by default, to a port of the sandbox' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l add-host -d 'The address of a name, which no name server is asked about' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l dns -d 'The name server for allowed names, instead of the host\'s' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l upstream-proxy -d 'Make every connection through this proxy: http://[USER:PASSWORD@]HOST[:PORT] or socks5://…' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l net-connections -d 'Limit on connections at a time' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l net-rate -d 'Limit on bytes per second, of all connections together' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l net-budget -d 'End the run after this many bytes, of all connections together' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l net-connect-timeout -d 'Time to resolve a name and connect' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l net-idle-timeout -d 'End a connection after this time without a byte' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l net-log -d 'Append a line of JSON for each connection and refused name to FILE or descriptor N' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l seccomp -d 'Filter system calls with this profile; a FILE is OCI or seccompiler JSON' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l seccomp-bpf -d 'Filter system calls with this compiled program' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l seccomp-allow -d 'Allow these calls too: debug, sysv, aio, splice, nested, setuid-bits or nettools' -r -f -a "debug\t''
sysv\t''
aio\t''
splice\t''
nested\t''
setuid-bits\t''
nettools\t''"
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l security-opt -d 'The same, in docker\'s syntax' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l allow-read -d 'Allow reading only below these paths (and /proc and /dev)' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l allow-write -d 'Allow writing only below these paths' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l allow-exec -d 'Allow execution only below these paths, and never on writable mounts' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l allow-connect -d 'Allow TCP connections only to these ports' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l allow-bind -d 'Allow binding only these TCP ports' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l landlock -d 'Landlock enforces these rules: refuse to run without it, use it if possible, or do not use it' -r -f -a "require\t''
auto\t''
off\t''"
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l landlock-abi -d 'Refuse to run with an older Landlock ABI than N' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -s m -l memory -d 'Memory limit of the whole process tree, or unlimited' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l memory-high -d 'Memory usage above which the tree is slowed down' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l swap -d 'Swap limit of the tree; with a memory limit the default is no swap' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l cpus -d 'CPU limit of the tree, such as 0.5, or unlimited' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l cpu-weight -d 'Share of the CPUs, 1 to 10000; the default of a cgroup is 100' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l cpuset-cpus -d 'CPUs that the tree may use, such as 0-3,7' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l cpuset-mems -d 'NUMA nodes that the tree may use' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l pids-limit -d 'Limit on processes and threads of the tree, or unlimited' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l io-max -d 'Limit on disk traffic: rbps, wbps (bytes/s), riops, wiops (per second)' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l io-weight -d 'Share of the disks, 1 to 10000; the default of a cgroup is 100' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l hugetlb -d 'Limit on huge pages of this size, such as 2M=64M' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l cgroup-set -d 'Any other file of a cgroup v2 controller, such as memory.low=64M' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l ulimit -d 'Resource limit of each process' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l timeout -d 'End the run after this wall-clock time, such as 30s' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l cpu-time -d 'End the run after this CPU time of the tree' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l idle-timeout -d 'End the run after this time without output' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l kill-after -d 'Time between the first signal and SIGKILL' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l oom-score-adj -d 'Preference of the OOM killer for the tree, -1000 to 1000: high values are killed first' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l output-limit -d 'Limit on the output of each stream: keep the start or the end, or end the run' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l report -d 'Write the report of the run to FILE or descriptor N, which the command cannot reach' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l audit -d 'Append a line about the run to this log, also if the run is refused; no bind mount may contain FILE' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l stats -d 'Write the resource usage as a line of JSON to the report\'s descriptor, at this interval' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l lifetime -d 'End the session after this time' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l idle-stop -d 'End the session when no command ran for this time' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l lease -d 'End the session or run at once when the other end of this pipe or socket is closed' -r
complete -c stockade -n "__fish_stockade_using_subcommand learn" -s o -l output -d 'Write the policy to FILE, which the command cannot reach; required' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l follow -d 'Follow symlinks in these host paths even if other users could have made them'
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l sysfs -d 'Mount the host\'s /sys read-only'
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l keep-env -d 'Pass the caller\'s environment, without variables that make programs load code'
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l subuid -d 'Map the caller\'s subordinate ids with newuidmap'
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l time-namespace -d 'Start the monotonic and boot clocks at zero'
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l no-init -d 'Run the command as pid 1, without an init'
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l seccomp-strict -d 'Refuse a profile that has warnings'
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l require-budget -d 'Refuse the run if a limit of the policy cannot be enforced for the whole tree'
complete -c stockade -n "__fish_stockade_using_subcommand learn" -s i -l interactive -d 'Pass standard input to the command'
complete -c stockade -n "__fish_stockade_using_subcommand learn" -s t -l tty -d 'Give the command a terminal of its own'
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l audit-sync -d 'Sync that line to the disk before exiting'
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l debug -d 'Print each step of the start to standard error as it happens'
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l explain-denials -d 'List what the command was denied, by which rule, and what would allow it'
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l summary -d 'Print status, time, CPU, memory and denials to standard error at the end'
complete -c stockade -n "__fish_stockade_using_subcommand learn" -s q -l quiet -d 'Print neither warnings nor which limit was reached'
complete -c stockade -n "__fish_stockade_using_subcommand learn" -s d -l detach -d 'Make a session: a sandbox that stays, for exec. Prints its name when it is ready'
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l rm -d 'Keep nothing of the session when it has ended'
complete -c stockade -n "__fish_stockade_using_subcommand learn" -l check -d 'Run the command a second time, under the policy, and say whether it ends as before and whether more is denied'
complete -c stockade -n "__fish_stockade_using_subcommand learn" -s h -l help -d 'Print help'
complete -c stockade -n "__fish_stockade_using_subcommand doctor" -l json -d 'Print the findings as JSON'
complete -c stockade -n "__fish_stockade_using_subcommand doctor" -s h -l help -d 'Print help'
complete -c stockade -n "__fish_stockade_using_subcommand top" -l interval -d 'Time between samples, 1s by default' -r
complete -c stockade -n "__fish_stockade_using_subcommand top" -l once -d 'Print one sample and exit'
complete -c stockade -n "__fish_stockade_using_subcommand top" -l json -d 'Print one line of JSON per sample'
complete -c stockade -n "__fish_stockade_using_subcommand top" -s h -l help -d 'Print help'
complete -c stockade -n "__fish_stockade_using_subcommand gc" -s h -l help -d 'Print help'
complete -c stockade -n "__fish_stockade_using_subcommand audit; and not __fish_seen_subcommand_from verify" -s h -l help -d 'Print help'
complete -c stockade -n "__fish_stockade_using_subcommand audit; and not __fish_seen_subcommand_from verify" -f -a "verify" -d 'Verify the hash chain of an audit log'
complete -c stockade -n "__fish_stockade_using_subcommand audit; and __fish_seen_subcommand_from verify" -l head -d 'A head that was printed earlier; it must still be in the chain' -r
complete -c stockade -n "__fish_stockade_using_subcommand audit; and __fish_seen_subcommand_from verify" -s h -l help -d 'Print help'
complete -c stockade -n "__fish_stockade_using_subcommand completions" -s h -l help -d 'Print help'
complete -c stockade -n "__fish_stockade_using_subcommand man" -s h -l help -d 'Print help'
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and not __fish_seen_subcommand_from check compile dump explain" -s h -l help -d 'Print help'
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and not __fish_seen_subcommand_from check compile dump explain" -f -a "check" -d 'Print the errors and dangerous rules of a profile'
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and not __fish_seen_subcommand_from check compile dump explain" -f -a "compile" -d 'Compile a profile to BPF, for --seccomp-bpf'
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and not __fish_seen_subcommand_from check compile dump explain" -f -a "dump" -d 'Print the BPF program of a profile, or a compiled program, as text'
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and not __fish_seen_subcommand_from check compile dump explain" -f -a "explain" -d 'Print the rule that decides a system call'
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from check" -l allow -d 'Allow this group of calls too, as --seccomp-allow of run does' -r -f -a "debug\t''
sysv\t''
aio\t''
splice\t''
nested\t''
setuid-bits\t''
nettools\t''"
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from check" -l cap -d 'Assume that the workload keeps this capability: rules can depend on it' -r -f -a "CHOWN\t''
DAC_OVERRIDE\t''
DAC_READ_SEARCH\t''
FOWNER\t''
FSETID\t''
KILL\t''
SETGID\t''
SETUID\t''
SETPCAP\t''
LINUX_IMMUTABLE\t''
NET_BIND_SERVICE\t''
NET_BROADCAST\t''
NET_ADMIN\t''
NET_RAW\t''
IPC_LOCK\t''
IPC_OWNER\t''
SYS_MODULE\t''
SYS_RAWIO\t''
SYS_CHROOT\t''
SYS_PTRACE\t''
SYS_PACCT\t''
SYS_ADMIN\t''
SYS_BOOT\t''
SYS_NICE\t''
SYS_RESOURCE\t''
SYS_TIME\t''
SYS_TTY_CONFIG\t''
MKNOD\t''
LEASE\t''
AUDIT_WRITE\t''
AUDIT_CONTROL\t''
SETFCAP\t''
MAC_OVERRIDE\t''
MAC_ADMIN\t''
SYSLOG\t''
WAKE_ALARM\t''
BLOCK_SUSPEND\t''
AUDIT_READ\t''
PERFMON\t''
BPF\t''
CHECKPOINT_RESTORE\t''"
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from check" -l filter -d 'The filter of a seccompiler file that has several' -r
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from check" -l strict -d 'Exit with 1 if there is any warning'
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from check" -l no-network -d 'Assume that the run has --network none'
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from check" -s h -l help -d 'Print help'
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from compile" -s o -l output -d 'Write the program to FILE; required' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from compile" -l allow -d 'Allow this group of calls too, as --seccomp-allow of run does' -r -f -a "debug\t''
sysv\t''
aio\t''
splice\t''
nested\t''
setuid-bits\t''
nettools\t''"
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from compile" -l cap -d 'Assume that the workload keeps this capability: rules can depend on it' -r -f -a "CHOWN\t''
DAC_OVERRIDE\t''
DAC_READ_SEARCH\t''
FOWNER\t''
FSETID\t''
KILL\t''
SETGID\t''
SETUID\t''
SETPCAP\t''
LINUX_IMMUTABLE\t''
NET_BIND_SERVICE\t''
NET_BROADCAST\t''
NET_ADMIN\t''
NET_RAW\t''
IPC_LOCK\t''
IPC_OWNER\t''
SYS_MODULE\t''
SYS_RAWIO\t''
SYS_CHROOT\t''
SYS_PTRACE\t''
SYS_PACCT\t''
SYS_ADMIN\t''
SYS_BOOT\t''
SYS_NICE\t''
SYS_RESOURCE\t''
SYS_TIME\t''
SYS_TTY_CONFIG\t''
MKNOD\t''
LEASE\t''
AUDIT_WRITE\t''
AUDIT_CONTROL\t''
SETFCAP\t''
MAC_OVERRIDE\t''
MAC_ADMIN\t''
SYSLOG\t''
WAKE_ALARM\t''
BLOCK_SUSPEND\t''
AUDIT_READ\t''
PERFMON\t''
BPF\t''
CHECKPOINT_RESTORE\t''"
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from compile" -l filter -d 'The filter of a seccompiler file that has several' -r
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from compile" -l no-network -d 'Assume that the run has --network none'
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from compile" -s h -l help -d 'Print help'
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from dump" -l allow -d 'Allow this group of calls too, as --seccomp-allow of run does' -r -f -a "debug\t''
sysv\t''
aio\t''
splice\t''
nested\t''
setuid-bits\t''
nettools\t''"
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from dump" -l cap -d 'Assume that the workload keeps this capability: rules can depend on it' -r -f -a "CHOWN\t''
DAC_OVERRIDE\t''
DAC_READ_SEARCH\t''
FOWNER\t''
FSETID\t''
KILL\t''
SETGID\t''
SETUID\t''
SETPCAP\t''
LINUX_IMMUTABLE\t''
NET_BIND_SERVICE\t''
NET_BROADCAST\t''
NET_ADMIN\t''
NET_RAW\t''
IPC_LOCK\t''
IPC_OWNER\t''
SYS_MODULE\t''
SYS_RAWIO\t''
SYS_CHROOT\t''
SYS_PTRACE\t''
SYS_PACCT\t''
SYS_ADMIN\t''
SYS_BOOT\t''
SYS_NICE\t''
SYS_RESOURCE\t''
SYS_TIME\t''
SYS_TTY_CONFIG\t''
MKNOD\t''
LEASE\t''
AUDIT_WRITE\t''
AUDIT_CONTROL\t''
SETFCAP\t''
MAC_OVERRIDE\t''
MAC_ADMIN\t''
SYSLOG\t''
WAKE_ALARM\t''
BLOCK_SUSPEND\t''
AUDIT_READ\t''
PERFMON\t''
BPF\t''
CHECKPOINT_RESTORE\t''"
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from dump" -l filter -d 'The filter of a seccompiler file that has several' -r
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from dump" -l no-network -d 'Assume that the run has --network none'
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from dump" -s h -l help -d 'Print help'
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from explain" -l allow -d 'Allow this group of calls too, as --seccomp-allow of run does' -r -f -a "debug\t''
sysv\t''
aio\t''
splice\t''
nested\t''
setuid-bits\t''
nettools\t''"
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from explain" -l cap -d 'Assume that the workload keeps this capability: rules can depend on it' -r -f -a "CHOWN\t''
DAC_OVERRIDE\t''
DAC_READ_SEARCH\t''
FOWNER\t''
FSETID\t''
KILL\t''
SETGID\t''
SETUID\t''
SETPCAP\t''
LINUX_IMMUTABLE\t''
NET_BIND_SERVICE\t''
NET_BROADCAST\t''
NET_ADMIN\t''
NET_RAW\t''
IPC_LOCK\t''
IPC_OWNER\t''
SYS_MODULE\t''
SYS_RAWIO\t''
SYS_CHROOT\t''
SYS_PTRACE\t''
SYS_PACCT\t''
SYS_ADMIN\t''
SYS_BOOT\t''
SYS_NICE\t''
SYS_RESOURCE\t''
SYS_TIME\t''
SYS_TTY_CONFIG\t''
MKNOD\t''
LEASE\t''
AUDIT_WRITE\t''
AUDIT_CONTROL\t''
SETFCAP\t''
MAC_OVERRIDE\t''
MAC_ADMIN\t''
SYSLOG\t''
WAKE_ALARM\t''
BLOCK_SUSPEND\t''
AUDIT_READ\t''
PERFMON\t''
BPF\t''
CHECKPOINT_RESTORE\t''"
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from explain" -l filter -d 'The filter of a seccompiler file that has several' -r
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from explain" -l no-network -d 'Assume that the run has --network none'
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from explain" -s h -l help -d 'Print help'
complete -c stockade -n "__fish_stockade_using_subcommand run plan why learn" -s p -l profile -r -a "default strict build nested"
complete -c stockade -n "__fish_stockade_using_subcommand run plan why learn" -s u -l user -r -a "root sandbox nobody"
complete -c stockade -n "__fish_stockade_using_subcommand run plan why learn" -l seccomp -r -a "default strict docker unconfined"
complete -c stockade -n "__fish_stockade_using_subcommand run plan why learn" -l ulimit -r -a "cpu= fsize= data= stack= core= rss= nproc= nofile= memlock= as= locks= sigpending= msgqueue= nice= rtprio= rttime="
complete -c stockade -n "__fish_stockade_using_subcommand run plan why learn" -l output-limit -r -a "tail"
complete -c stockade -n "__fish_stockade_using_subcommand net; and __fish_seen_subcommand_from allow deny log" -f -a "(stockade ps -q 2>/dev/null)"
complete -c stockade -n "__fish_seen_subcommand_from exec inspect logs attach wait stop kill pause unpause rm" -f -a "(stockade ps -q 2>/dev/null)"
complete -c stockade -n "__fish_seen_subcommand_from cp" -F -a "(stockade ps -q 2>/dev/null | string replace -r '\$' ':')"
