# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_stockade_global_optspecs
    string join \n h/help V/version
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

complete -c stockade -n "__fish_stockade_needs_command" -s h -l help -d 'Print help'
complete -c stockade -n "__fish_stockade_needs_command" -s V -l version -d 'Print version'
complete -c stockade -n "__fish_stockade_needs_command" -f -a "run" -d 'Run a command in a sandbox'
complete -c stockade -n "__fish_stockade_needs_command" -f -a "plan" -d 'Show what a run would do, and run nothing'
complete -c stockade -n "__fish_stockade_needs_command" -f -a "doctor" -d 'Try what this host can enforce'
complete -c stockade -n "__fish_stockade_needs_command" -f -a "top" -d 'Show running sandboxes and what they use'
complete -c stockade -n "__fish_stockade_needs_command" -f -a "gc" -d 'Remove what killed supervisors left behind'
complete -c stockade -n "__fish_stockade_needs_command" -f -a "audit" -d 'Verify an audit log'
complete -c stockade -n "__fish_stockade_needs_command" -f -a "completions" -d 'Print the completions of a shell'
complete -c stockade -n "__fish_stockade_needs_command" -f -a "man" -d 'Print the manual page, or write all of them'
complete -c stockade -n "__fish_stockade_needs_command" -f -a "seccomp" -d 'Check, compile and explain seccomp profiles'
complete -c stockade -n "__fish_stockade_using_subcommand run" -s p -l profile -d 'Policy to add: default, strict, build, or a file (with a slash in it or .toml)' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand run" -l allow-degraded -d 'Run even if this host cannot enforce NAME' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -s v -l volume -d 'Mount SRC at DST: ro or rw (default), noexec, optional' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand run" -l mount -d 'Mount by name=value: type=bind|tmpfs, source, destination, readonly, noexec, optional, size, nr_inodes, mode' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l tmpfs -d 'Mount an own tmpfs: size=, nr_inodes=, mode=, exec, ro' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l ro -d 'Mount PATH read-only at the same path' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand run" -l rw -d 'Mount PATH read-write at the same path' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand run" -l workspace -d 'Mount DIR read-write at /workspace, and work there' -r -f -a "(__fish_complete_directories)"
complete -c stockade -n "__fish_stockade_using_subcommand run" -l rootfs -d 'Use DIR, read-only, as the root instead of the view of the host' -r -f -a "(__fish_complete_directories)"
complete -c stockade -n "__fish_stockade_using_subcommand run" -l device -d 'Provide this host device node' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand run" -l scratch-size -d 'Most that /tmp, the home and /dev/shm can hold together' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l scratch-inodes -d 'Most files there' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -s e -l env -d 'Set a variable, or pass the caller\'s on' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l env-file -d 'Read such lines from FILE' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand run" -s w -l workdir -d 'Working directory inside' -r -f -a "(__fish_complete_directories)"
complete -c stockade -n "__fish_stockade_using_subcommand run" -l umask -d 'File mode creation mask, octal' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -s u -l user -d 'Who the command is, inside' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l host-user -d 'Host user that it is, outside (as root)' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l cap-add -d 'Keep a capability inside the user namespace' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l cap-drop -d 'Drop a capability that a policy keeps, or ALL' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l network -d 'What can be reached' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l hostname -d 'Host name inside' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l name -d 'Name of the sandbox' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l seccomp -d 'Filter system calls by this profile; a FILE is OCI\'s or seccompiler\'s JSON' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand run" -l seccomp-bpf -d 'Filter system calls by this compiled program' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand run" -l seccomp-allow -d 'Allow these calls too: debug, sysv, aio, splice, nested, setuid-bits or nettools' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l security-opt -d 'The same in docker\'s words' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l allow-read -d 'Let nothing be read but what is named so (and /proc and /dev)' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand run" -l allow-write -d 'Let nothing be written but what is named so' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand run" -l allow-exec -d 'Let nothing be executed but what is named so, and nothing on writable mounts' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand run" -l allow-connect -d 'Let no TCP port be connected to but what is named so' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l allow-bind -d 'Let no TCP port be bound but what is named so' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l landlock -d 'What to do without Landlock, which enforces this: refuse, run, not use it' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l landlock-abi -d 'Refuse to run with less than this Landlock ABI' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -s m -l memory -d 'Memory of the whole tree, or unlimited' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l memory-high -d 'Memory from which on the tree is slowed down' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l swap -d 'Swap of the whole tree; none when it has a memory budget and this is not given' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l cpus -d 'CPUs of the whole tree, such as 0.5, or unlimited' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l cpu-weight -d 'Share of the CPUs, 1 to 10000; others have 100' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l cpuset-cpus -d 'CPUs it may run on, such as 0-3,7' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l cpuset-mems -d 'NUMA nodes its memory may come from' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l pids-limit -d 'Processes and threads of the whole tree, or unlimited' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l io-max -d 'Traffic with a disk: rbps, wbps (bytes/s), riops, wiops (per second)' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l io-weight -d 'Share of the disks, 1 to 10000; others have 100' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l hugetlb -d 'Huge pages of that size, such as 2M=64M' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l cgroup-set -d 'Any other file of a cgroup v2 controller, such as memory.low=64M' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand run" -l ulimit -d 'Resource limit of each process' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l timeout -d 'End the run after this wall-clock time, such as 30s' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l cpu-time -d 'End the run after this CPU time of the whole tree' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l idle-timeout -d 'End the run after this time without output' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l kill-after -d 'Time from the polite signal to SIGKILL' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l oom-score-adj -d '-1000 to 1000: when memory is short, kill it later or sooner' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l output-limit -d 'Most that is passed on of each output stream' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l report -d 'Write the report of the run there, out of the command\'s reach' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand run" -l audit -d 'Append a line about the run to this log, which no bind shows, also when it is refused' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand run" -l stats -d 'Write a line of JSON about what is used there too, once in this time' -r
complete -c stockade -n "__fish_stockade_using_subcommand run" -l follow -d 'Follow symlinks in these paths of the host also where other users could have made them'
complete -c stockade -n "__fish_stockade_using_subcommand run" -l sysfs -d 'Mount the host\'s /sys read-only'
complete -c stockade -n "__fish_stockade_using_subcommand run" -l keep-env -d 'Pass the caller\'s whole environment on, but what makes programs load code'
complete -c stockade -n "__fish_stockade_using_subcommand run" -l subuid -d 'Map the caller\'s subordinate ids, with newuidmap'
complete -c stockade -n "__fish_stockade_using_subcommand run" -l time-namespace -d 'Start the monotonic and boot clocks at zero'
complete -c stockade -n "__fish_stockade_using_subcommand run" -l no-init -d 'Make the command pid 1, without an init before it'
complete -c stockade -n "__fish_stockade_using_subcommand run" -l seccomp-strict -d 'Refuse a profile with anything to warn about'
complete -c stockade -n "__fish_stockade_using_subcommand run" -s i -l interactive -d 'Let the command read standard input'
complete -c stockade -n "__fish_stockade_using_subcommand run" -s t -l tty -d 'Give the command a terminal of its own'
complete -c stockade -n "__fish_stockade_using_subcommand run" -l audit-sync -d 'Have that line on the disk before the end'
complete -c stockade -n "__fish_stockade_using_subcommand run" -l explain-denials -d 'List what the command was refused, by which rule, and what would allow it'
complete -c stockade -n "__fish_stockade_using_subcommand run" -s h -l help -d 'Print help; --help says more than -h'
complete -c stockade -n "__fish_stockade_using_subcommand plan" -s p -l profile -d 'Policy to add: default, strict, build, or a file (with a slash in it or .toml)' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l allow-degraded -d 'Run even if this host cannot enforce NAME' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -s v -l volume -d 'Mount SRC at DST: ro or rw (default), noexec, optional' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l mount -d 'Mount by name=value: type=bind|tmpfs, source, destination, readonly, noexec, optional, size, nr_inodes, mode' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l tmpfs -d 'Mount an own tmpfs: size=, nr_inodes=, mode=, exec, ro' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l ro -d 'Mount PATH read-only at the same path' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l rw -d 'Mount PATH read-write at the same path' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l workspace -d 'Mount DIR read-write at /workspace, and work there' -r -f -a "(__fish_complete_directories)"
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l rootfs -d 'Use DIR, read-only, as the root instead of the view of the host' -r -f -a "(__fish_complete_directories)"
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l device -d 'Provide this host device node' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l scratch-size -d 'Most that /tmp, the home and /dev/shm can hold together' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l scratch-inodes -d 'Most files there' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -s e -l env -d 'Set a variable, or pass the caller\'s on' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l env-file -d 'Read such lines from FILE' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand plan" -s w -l workdir -d 'Working directory inside' -r -f -a "(__fish_complete_directories)"
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l umask -d 'File mode creation mask, octal' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -s u -l user -d 'Who the command is, inside' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l host-user -d 'Host user that it is, outside (as root)' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l cap-add -d 'Keep a capability inside the user namespace' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l cap-drop -d 'Drop a capability that a policy keeps, or ALL' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l network -d 'What can be reached' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l hostname -d 'Host name inside' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l name -d 'Name of the sandbox' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l seccomp -d 'Filter system calls by this profile; a FILE is OCI\'s or seccompiler\'s JSON' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l seccomp-bpf -d 'Filter system calls by this compiled program' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l seccomp-allow -d 'Allow these calls too: debug, sysv, aio, splice, nested, setuid-bits or nettools' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l security-opt -d 'The same in docker\'s words' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l allow-read -d 'Let nothing be read but what is named so (and /proc and /dev)' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l allow-write -d 'Let nothing be written but what is named so' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l allow-exec -d 'Let nothing be executed but what is named so, and nothing on writable mounts' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l allow-connect -d 'Let no TCP port be connected to but what is named so' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l allow-bind -d 'Let no TCP port be bound but what is named so' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l landlock -d 'What to do without Landlock, which enforces this: refuse, run, not use it' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l landlock-abi -d 'Refuse to run with less than this Landlock ABI' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -s m -l memory -d 'Memory of the whole tree, or unlimited' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l memory-high -d 'Memory from which on the tree is slowed down' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l swap -d 'Swap of the whole tree; none when it has a memory budget and this is not given' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l cpus -d 'CPUs of the whole tree, such as 0.5, or unlimited' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l cpu-weight -d 'Share of the CPUs, 1 to 10000; others have 100' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l cpuset-cpus -d 'CPUs it may run on, such as 0-3,7' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l cpuset-mems -d 'NUMA nodes its memory may come from' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l pids-limit -d 'Processes and threads of the whole tree, or unlimited' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l io-max -d 'Traffic with a disk: rbps, wbps (bytes/s), riops, wiops (per second)' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l io-weight -d 'Share of the disks, 1 to 10000; others have 100' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l hugetlb -d 'Huge pages of that size, such as 2M=64M' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l cgroup-set -d 'Any other file of a cgroup v2 controller, such as memory.low=64M' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l ulimit -d 'Resource limit of each process' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l timeout -d 'End the run after this wall-clock time, such as 30s' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l cpu-time -d 'End the run after this CPU time of the whole tree' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l idle-timeout -d 'End the run after this time without output' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l kill-after -d 'Time from the polite signal to SIGKILL' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l oom-score-adj -d '-1000 to 1000: when memory is short, kill it later or sooner' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l output-limit -d 'Most that is passed on of each output stream' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l report -d 'Write the report of the run there, out of the command\'s reach' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l audit -d 'Append a line about the run to this log, which no bind shows, also when it is refused' -r -F
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l stats -d 'Write a line of JSON about what is used there too, once in this time' -r
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l follow -d 'Follow symlinks in these paths of the host also where other users could have made them'
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l sysfs -d 'Mount the host\'s /sys read-only'
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l keep-env -d 'Pass the caller\'s whole environment on, but what makes programs load code'
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l subuid -d 'Map the caller\'s subordinate ids, with newuidmap'
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l time-namespace -d 'Start the monotonic and boot clocks at zero'
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l no-init -d 'Make the command pid 1, without an init before it'
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l seccomp-strict -d 'Refuse a profile with anything to warn about'
complete -c stockade -n "__fish_stockade_using_subcommand plan" -s i -l interactive -d 'Let the command read standard input'
complete -c stockade -n "__fish_stockade_using_subcommand plan" -s t -l tty -d 'Give the command a terminal of its own'
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l audit-sync -d 'Have that line on the disk before the end'
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l explain-denials -d 'List what the command was refused, by which rule, and what would allow it'
complete -c stockade -n "__fish_stockade_using_subcommand plan" -l json -d 'Print the plan as JSON'
complete -c stockade -n "__fish_stockade_using_subcommand plan" -s h -l help -d 'Print help; --help says more than -h'
complete -c stockade -n "__fish_stockade_using_subcommand doctor" -l json -d 'Print the findings as JSON'
complete -c stockade -n "__fish_stockade_using_subcommand doctor" -s h -l help -d 'Print help; --help says more than -h'
complete -c stockade -n "__fish_stockade_using_subcommand top" -l interval -d 'The period; 1s unless told' -r
complete -c stockade -n "__fish_stockade_using_subcommand top" -l once -d 'Look once'
complete -c stockade -n "__fish_stockade_using_subcommand top" -l json -d 'Print a line of JSON a period'
complete -c stockade -n "__fish_stockade_using_subcommand top" -s h -l help -d 'Print help; --help says more than -h'
complete -c stockade -n "__fish_stockade_using_subcommand gc" -s h -l help -d 'Print help; --help says more than -h'
complete -c stockade -n "__fish_stockade_using_subcommand audit" -l head -d 'A head that was printed earlier: it must still be in the chain' -r
complete -c stockade -n "__fish_stockade_using_subcommand audit" -s h -l help -d 'Print help; --help says more than -h'
complete -c stockade -n "__fish_stockade_using_subcommand completions" -s h -l help -d 'Print help; --help says more than -h'
complete -c stockade -n "__fish_stockade_using_subcommand man" -s h -l help -d 'Print help; --help says more than -h'
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and not __fish_seen_subcommand_from check compile dump explain" -s h -l help -d 'Print help'
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and not __fish_seen_subcommand_from check compile dump explain" -f -a "check" -d 'Say what is wrong or dangerous in a profile'
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and not __fish_seen_subcommand_from check compile dump explain" -f -a "compile" -d 'Compile a profile to BPF, for --seccomp-bpf'
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and not __fish_seen_subcommand_from check compile dump explain" -f -a "dump" -d 'Show a profile\'s program, or a compiled one, as text'
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and not __fish_seen_subcommand_from check compile dump explain" -f -a "explain" -d 'Say which rule decides a call'
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from check" -l allow -d 'Add a group of calls, as --seccomp-allow of run does' -r
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from check" -l cap -d 'Take this capability for kept: profiles can depend on it' -r
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from check" -l filter -d 'The filter of a seccompiler file that has several' -r
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from check" -l strict -d 'Exit with 1 when there is anything to say'
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from check" -l network -d 'Take the run for one with a network'
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from check" -s h -l help -d 'Print help'
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from compile" -s o -l output -d 'Where to write it' -r
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from compile" -l allow -d 'Add a group of calls, as --seccomp-allow of run does' -r
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from compile" -l cap -d 'Take this capability for kept: profiles can depend on it' -r
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from compile" -l filter -d 'The filter of a seccompiler file that has several' -r
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from compile" -l network -d 'Take the run for one with a network'
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from compile" -s h -l help -d 'Print help'
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from dump" -l allow -d 'Add a group of calls, as --seccomp-allow of run does' -r
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from dump" -l cap -d 'Take this capability for kept: profiles can depend on it' -r
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from dump" -l filter -d 'The filter of a seccompiler file that has several' -r
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from dump" -l network -d 'Take the run for one with a network'
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from dump" -s h -l help -d 'Print help'
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from explain" -l allow -d 'Add a group of calls, as --seccomp-allow of run does' -r
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from explain" -l cap -d 'Take this capability for kept: profiles can depend on it' -r
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from explain" -l filter -d 'The filter of a seccompiler file that has several' -r
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from explain" -l network -d 'Take the run for one with a network'
complete -c stockade -n "__fish_stockade_using_subcommand seccomp; and __fish_seen_subcommand_from explain" -s h -l help -d 'Print help'
