_stockade() {
    local i cur prev opts cmd
    COMPREPLY=()
    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
        cur="$2"
    else
        cur="${COMP_WORDS[COMP_CWORD]}"
    fi
    prev="$3"
    cmd=""
    opts=""

    for i in "${COMP_WORDS[@]:0:COMP_CWORD}"
    do
        case "${cmd},${i}" in
            ",$1")
                cmd="stockade"
                ;;
            stockade,attach)
                cmd="stockade__subcmd__attach"
                ;;
            stockade,audit)
                cmd="stockade__subcmd__audit"
                ;;
            stockade,completions)
                cmd="stockade__subcmd__completions"
                ;;
            stockade,cp)
                cmd="stockade__subcmd__cp"
                ;;
            stockade,doctor)
                cmd="stockade__subcmd__doctor"
                ;;
            stockade,exec)
                cmd="stockade__subcmd__exec"
                ;;
            stockade,gc)
                cmd="stockade__subcmd__gc"
                ;;
            stockade,inspect)
                cmd="stockade__subcmd__inspect"
                ;;
            stockade,kill)
                cmd="stockade__subcmd__kill"
                ;;
            stockade,learn)
                cmd="stockade__subcmd__learn"
                ;;
            stockade,logs)
                cmd="stockade__subcmd__logs"
                ;;
            stockade,man)
                cmd="stockade__subcmd__man"
                ;;
            stockade,net)
                cmd="stockade__subcmd__net"
                ;;
            stockade,pause)
                cmd="stockade__subcmd__pause"
                ;;
            stockade,plan)
                cmd="stockade__subcmd__plan"
                ;;
            stockade,ps)
                cmd="stockade__subcmd__ps"
                ;;
            stockade,rm)
                cmd="stockade__subcmd__rm"
                ;;
            stockade,run)
                cmd="stockade__subcmd__run"
                ;;
            stockade,seccomp)
                cmd="stockade__subcmd__seccomp"
                ;;
            stockade,stop)
                cmd="stockade__subcmd__stop"
                ;;
            stockade,top)
                cmd="stockade__subcmd__top"
                ;;
            stockade,unpause)
                cmd="stockade__subcmd__unpause"
                ;;
            stockade,wait)
                cmd="stockade__subcmd__wait"
                ;;
            stockade,why)
                cmd="stockade__subcmd__why"
                ;;
            stockade__subcmd__audit,verify)
                cmd="stockade__subcmd__audit__subcmd__verify"
                ;;
            stockade__subcmd__net,allow)
                cmd="stockade__subcmd__net__subcmd__allow"
                ;;
            stockade__subcmd__net,deny)
                cmd="stockade__subcmd__net__subcmd__deny"
                ;;
            stockade__subcmd__net,log)
                cmd="stockade__subcmd__net__subcmd__log"
                ;;
            stockade__subcmd__seccomp,check)
                cmd="stockade__subcmd__seccomp__subcmd__check"
                ;;
            stockade__subcmd__seccomp,compile)
                cmd="stockade__subcmd__seccomp__subcmd__compile"
                ;;
            stockade__subcmd__seccomp,dump)
                cmd="stockade__subcmd__seccomp__subcmd__dump"
                ;;
            stockade__subcmd__seccomp,explain)
                cmd="stockade__subcmd__seccomp__subcmd__explain"
                ;;
            *)
                ;;
        esac
    done

    case "${cmd}" in
        stockade)
            opts="-V -h --version --help run exec ps inspect logs attach cp wait stop kill pause unpause net rm plan why learn doctor top gc audit completions man seccomp"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 1 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        stockade__subcmd__attach)
            opts="-h --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        stockade__subcmd__audit)
            opts="-h --help verify"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        stockade__subcmd__audit__subcmd__verify)
            opts="-h --head --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --head)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        stockade__subcmd__completions)
            opts="-h --help bash zsh fish"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        stockade__subcmd__cp)
            opts="-L -h --follow-link --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        stockade__subcmd__doctor)
            opts="-h --json --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        stockade__subcmd__exec)
            opts="-e -w -u -m -i -t -d -q -h --env --env-file --workdir --user --umask --memory --cpus --pids-limit --timeout --cpu-time --idle-timeout --kill-after --interactive --tty --detach --output-limit --report --explain-denials --summary --quiet --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --env)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -e)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --env-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --workdir)
                    COMPREPLY=()
                    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
                        compopt -o plusdirs
                    fi
                    return 0
                    ;;
                -w)
                    COMPREPLY=()
                    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
                        compopt -o plusdirs
                    fi
                    return 0
                    ;;
                --user)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -u)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --umask)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --memory)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -m)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpus)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pids-limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpu-time)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --idle-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kill-after)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --output-limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --report)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        stockade__subcmd__gc)
            opts="-h --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        stockade__subcmd__inspect)
            opts="-h --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        stockade__subcmd__kill)
            opts="-s -h --signal --command --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --signal)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -s)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --command)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        stockade__subcmd__learn)
            opts="-p -v -e -w -u -m -i -t -q -d -o -h --profile --allow-degraded --volume --mount --tmpfs --ro --rw --workspace --rootfs --follow --toolchain --device --sysfs --scratch-size --scratch-inodes --env --env-file --keep-env --workdir --umask --user --host-user --subuid --cap-add --cap-drop --network --hostname --name --label --time-namespace --no-init --allow-net --deny-net --publish --add-host --dns --upstream-proxy --net-connections --net-rate --net-budget --net-connect-timeout --net-idle-timeout --net-log --seccomp --seccomp-bpf --seccomp-allow --seccomp-strict --security-opt --allow-read --allow-write --allow-exec --allow-connect --allow-bind --landlock --landlock-abi --memory --memory-high --swap --cpus --cpu-weight --cpuset-cpus --cpuset-mems --pids-limit --require-budget --io-max --io-weight --hugetlb --cgroup-set --ulimit --timeout --cpu-time --idle-timeout --kill-after --oom-score-adj --interactive --tty --output-limit --report --audit --audit-sync --debug --explain-denials --summary --quiet --stats --detach --lifetime --idle-stop --lease --rm --output --check --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --profile)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -p)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --allow-degraded)
                    COMPREPLY=($(compgen -W "cpu memory pids keyring namespace-limits landlock io cpuset hugetlb rdma misc dmem udp host-id idmap proc outer-proc hostname namespaces" -- "${cur}"))
                    return 0
                    ;;
                --volume)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -v)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --mount)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tmpfs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --ro)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --rw)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --workspace)
                    COMPREPLY=()
                    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
                        compopt -o plusdirs
                    fi
                    return 0
                    ;;
                --rootfs)
                    COMPREPLY=()
                    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
                        compopt -o plusdirs
                    fi
                    return 0
                    ;;
                --toolchain)
                    COMPREPLY=($(compgen -W "python node rust java go auto" -- "${cur}"))
                    return 0
                    ;;
                --device)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scratch-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scratch-inodes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --env)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -e)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --env-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --workdir)
                    COMPREPLY=()
                    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
                        compopt -o plusdirs
                    fi
                    return 0
                    ;;
                -w)
                    COMPREPLY=()
                    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
                        compopt -o plusdirs
                    fi
                    return 0
                    ;;
                --umask)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --user)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -u)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --host-user)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cap-add)
                    COMPREPLY=($(compgen -W "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE" -- "${cur}"))
                    return 0
                    ;;
                --cap-drop)
                    COMPREPLY=($(compgen -W "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE" -- "${cur}"))
                    return 0
                    ;;
                --network)
                    COMPREPLY=($(compgen -W "none loopback egress host" -- "${cur}"))
                    return 0
                    ;;
                --hostname)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --label)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --allow-net)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --deny-net)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --publish)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --add-host)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --dns)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --upstream-proxy)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --net-connections)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --net-rate)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --net-budget)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --net-connect-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --net-idle-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --net-log)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --seccomp)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --seccomp-bpf)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --seccomp-allow)
                    COMPREPLY=($(compgen -W "debug sysv aio splice nested setuid-bits nettools" -- "${cur}"))
                    return 0
                    ;;
                --security-opt)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --allow-read)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --allow-write)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --allow-exec)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --allow-connect)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --allow-bind)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --landlock)
                    COMPREPLY=($(compgen -W "require auto off" -- "${cur}"))
                    return 0
                    ;;
                --landlock-abi)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --memory)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -m)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --memory-high)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --swap)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpus)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpu-weight)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpuset-cpus)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpuset-mems)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pids-limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --io-max)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --io-weight)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hugetlb)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cgroup-set)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --ulimit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpu-time)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --idle-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kill-after)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --oom-score-adj)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --output-limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --report)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --audit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --stats)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --lifetime)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --idle-stop)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --lease)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --output)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -o)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        stockade__subcmd__logs)
            opts="-f -h --follow --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        stockade__subcmd__man)
            opts="-h --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        stockade__subcmd__net)
            opts="-h --help allow deny log"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        stockade__subcmd__net__subcmd__allow)
            opts="-h --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        stockade__subcmd__net__subcmd__deny)
            opts="-h --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        stockade__subcmd__net__subcmd__log)
            opts="-f -h --follow --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        stockade__subcmd__pause)
            opts="-h --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        stockade__subcmd__plan)
            opts="-p -v -e -w -u -m -i -t -q -d -h --profile --allow-degraded --volume --mount --tmpfs --ro --rw --workspace --rootfs --follow --toolchain --device --sysfs --scratch-size --scratch-inodes --env --env-file --keep-env --workdir --umask --user --host-user --subuid --cap-add --cap-drop --network --hostname --name --label --time-namespace --no-init --allow-net --deny-net --publish --add-host --dns --upstream-proxy --net-connections --net-rate --net-budget --net-connect-timeout --net-idle-timeout --net-log --seccomp --seccomp-bpf --seccomp-allow --seccomp-strict --security-opt --allow-read --allow-write --allow-exec --allow-connect --allow-bind --landlock --landlock-abi --memory --memory-high --swap --cpus --cpu-weight --cpuset-cpus --cpuset-mems --pids-limit --require-budget --io-max --io-weight --hugetlb --cgroup-set --ulimit --timeout --cpu-time --idle-timeout --kill-after --oom-score-adj --interactive --tty --output-limit --report --audit --audit-sync --debug --explain-denials --summary --quiet --stats --detach --lifetime --idle-stop --lease --rm --json --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --profile)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -p)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --allow-degraded)
                    COMPREPLY=($(compgen -W "cpu memory pids keyring namespace-limits landlock io cpuset hugetlb rdma misc dmem udp host-id idmap proc outer-proc hostname namespaces" -- "${cur}"))
                    return 0
                    ;;
                --volume)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -v)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --mount)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tmpfs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --ro)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --rw)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --workspace)
                    COMPREPLY=()
                    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
                        compopt -o plusdirs
                    fi
                    return 0
                    ;;
                --rootfs)
                    COMPREPLY=()
                    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
                        compopt -o plusdirs
                    fi
                    return 0
                    ;;
                --toolchain)
                    COMPREPLY=($(compgen -W "python node rust java go auto" -- "${cur}"))
                    return 0
                    ;;
                --device)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scratch-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scratch-inodes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --env)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -e)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --env-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --workdir)
                    COMPREPLY=()
                    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
                        compopt -o plusdirs
                    fi
                    return 0
                    ;;
                -w)
                    COMPREPLY=()
                    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
                        compopt -o plusdirs
                    fi
                    return 0
                    ;;
                --umask)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --user)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -u)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --host-user)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cap-add)
                    COMPREPLY=($(compgen -W "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE" -- "${cur}"))
                    return 0
                    ;;
                --cap-drop)
                    COMPREPLY=($(compgen -W "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE" -- "${cur}"))
                    return 0
                    ;;
                --network)
                    COMPREPLY=($(compgen -W "none loopback egress host" -- "${cur}"))
                    return 0
                    ;;
                --hostname)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --label)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --allow-net)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --deny-net)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --publish)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --add-host)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --dns)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --upstream-proxy)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --net-connections)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --net-rate)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --net-budget)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --net-connect-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --net-idle-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --net-log)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --seccomp)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --seccomp-bpf)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --seccomp-allow)
                    COMPREPLY=($(compgen -W "debug sysv aio splice nested setuid-bits nettools" -- "${cur}"))
                    return 0
                    ;;
                --security-opt)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --allow-read)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --allow-write)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --allow-exec)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --allow-connect)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --allow-bind)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --landlock)
                    COMPREPLY=($(compgen -W "require auto off" -- "${cur}"))
                    return 0
                    ;;
                --landlock-abi)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --memory)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -m)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --memory-high)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --swap)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpus)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpu-weight)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpuset-cpus)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpuset-mems)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pids-limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --io-max)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --io-weight)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hugetlb)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cgroup-set)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --ulimit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpu-time)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --idle-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kill-after)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --oom-score-adj)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --output-limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --report)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --audit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --stats)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --lifetime)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --idle-stop)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --lease)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        stockade__subcmd__ps)
            opts="-q -a -h --json --quiet --all --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        stockade__subcmd__rm)
            opts="-f -h --force --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        stockade__subcmd__run)
            opts="-p -v -e -w -u -m -i -t -q -d -h --profile --allow-degraded --volume --mount --tmpfs --ro --rw --workspace --rootfs --follow --toolchain --device --sysfs --scratch-size --scratch-inodes --env --env-file --keep-env --workdir --umask --user --host-user --subuid --cap-add --cap-drop --network --hostname --name --label --time-namespace --no-init --allow-net --deny-net --publish --add-host --dns --upstream-proxy --net-connections --net-rate --net-budget --net-connect-timeout --net-idle-timeout --net-log --seccomp --seccomp-bpf --seccomp-allow --seccomp-strict --security-opt --allow-read --allow-write --allow-exec --allow-connect --allow-bind --landlock --landlock-abi --memory --memory-high --swap --cpus --cpu-weight --cpuset-cpus --cpuset-mems --pids-limit --require-budget --io-max --io-weight --hugetlb --cgroup-set --ulimit --timeout --cpu-time --idle-timeout --kill-after --oom-score-adj --interactive --tty --output-limit --report --audit --audit-sync --debug --explain-denials --summary --quiet --stats --detach --lifetime --idle-stop --lease --rm --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --profile)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -p)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --allow-degraded)
                    COMPREPLY=($(compgen -W "cpu memory pids keyring namespace-limits landlock io cpuset hugetlb rdma misc dmem udp host-id idmap proc outer-proc hostname namespaces" -- "${cur}"))
                    return 0
                    ;;
                --volume)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -v)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --mount)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tmpfs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --ro)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --rw)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --workspace)
                    COMPREPLY=()
                    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
                        compopt -o plusdirs
                    fi
                    return 0
                    ;;
                --rootfs)
                    COMPREPLY=()
                    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
                        compopt -o plusdirs
                    fi
                    return 0
                    ;;
                --toolchain)
                    COMPREPLY=($(compgen -W "python node rust java go auto" -- "${cur}"))
                    return 0
                    ;;
                --device)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scratch-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scratch-inodes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --env)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -e)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --env-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --workdir)
                    COMPREPLY=()
                    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
                        compopt -o plusdirs
                    fi
                    return 0
                    ;;
                -w)
                    COMPREPLY=()
                    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
                        compopt -o plusdirs
                    fi
                    return 0
                    ;;
                --umask)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --user)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -u)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --host-user)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cap-add)
                    COMPREPLY=($(compgen -W "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE" -- "${cur}"))
                    return 0
                    ;;
                --cap-drop)
                    COMPREPLY=($(compgen -W "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE" -- "${cur}"))
                    return 0
                    ;;
                --network)
                    COMPREPLY=($(compgen -W "none loopback egress host" -- "${cur}"))
                    return 0
                    ;;
                --hostname)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --label)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --allow-net)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --deny-net)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --publish)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --add-host)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --dns)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --upstream-proxy)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --net-connections)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --net-rate)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --net-budget)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --net-connect-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --net-idle-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --net-log)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --seccomp)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --seccomp-bpf)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --seccomp-allow)
                    COMPREPLY=($(compgen -W "debug sysv aio splice nested setuid-bits nettools" -- "${cur}"))
                    return 0
                    ;;
                --security-opt)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --allow-read)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --allow-write)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --allow-exec)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --allow-connect)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --allow-bind)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --landlock)
                    COMPREPLY=($(compgen -W "require auto off" -- "${cur}"))
                    return 0
                    ;;
                --landlock-abi)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --memory)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -m)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --memory-high)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --swap)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpus)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpu-weight)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpuset-cpus)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpuset-mems)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pids-limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --io-max)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --io-weight)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hugetlb)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cgroup-set)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --ulimit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpu-time)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --idle-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kill-after)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --oom-score-adj)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --output-limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --report)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --audit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --stats)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --lifetime)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --idle-stop)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --lease)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        stockade__subcmd__seccomp)
            opts="-h --help check compile dump explain"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        stockade__subcmd__seccomp__subcmd__check)
            opts="-h --strict --allow --cap --filter --no-network --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --allow)
                    COMPREPLY=($(compgen -W "debug sysv aio splice nested setuid-bits nettools" -- "${cur}"))
                    return 0
                    ;;
                --cap)
                    COMPREPLY=($(compgen -W "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE" -- "${cur}"))
                    return 0
                    ;;
                --filter)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        stockade__subcmd__seccomp__subcmd__compile)
            opts="-o -h --output --allow --cap --filter --no-network --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --output)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -o)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --allow)
                    COMPREPLY=($(compgen -W "debug sysv aio splice nested setuid-bits nettools" -- "${cur}"))
                    return 0
                    ;;
                --cap)
                    COMPREPLY=($(compgen -W "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE" -- "${cur}"))
                    return 0
                    ;;
                --filter)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        stockade__subcmd__seccomp__subcmd__dump)
            opts="-h --allow --cap --filter --no-network --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --allow)
                    COMPREPLY=($(compgen -W "debug sysv aio splice nested setuid-bits nettools" -- "${cur}"))
                    return 0
                    ;;
                --cap)
                    COMPREPLY=($(compgen -W "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE" -- "${cur}"))
                    return 0
                    ;;
                --filter)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        stockade__subcmd__seccomp__subcmd__explain)
            opts="-h --allow --cap --filter --no-network --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --allow)
                    COMPREPLY=($(compgen -W "debug sysv aio splice nested setuid-bits nettools" -- "${cur}"))
                    return 0
                    ;;
                --cap)
                    COMPREPLY=($(compgen -W "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE" -- "${cur}"))
                    return 0
                    ;;
                --filter)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        stockade__subcmd__stop)
            opts="-t -h --time --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --time)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -t)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        stockade__subcmd__top)
            opts="-h --interval --once --json --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        stockade__subcmd__unpause)
            opts="-h --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        stockade__subcmd__wait)
            opts="-h --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        stockade__subcmd__why)
            opts="-p -v -e -w -u -m -i -t -q -d -h --profile --allow-degraded --volume --mount --tmpfs --ro --rw --workspace --rootfs --follow --toolchain --device --sysfs --scratch-size --scratch-inodes --env --env-file --keep-env --workdir --umask --user --host-user --subuid --cap-add --cap-drop --network --hostname --name --label --time-namespace --no-init --allow-net --deny-net --publish --add-host --dns --upstream-proxy --net-connections --net-rate --net-budget --net-connect-timeout --net-idle-timeout --net-log --seccomp --seccomp-bpf --seccomp-allow --seccomp-strict --security-opt --allow-read --allow-write --allow-exec --allow-connect --allow-bind --landlock --landlock-abi --memory --memory-high --swap --cpus --cpu-weight --cpuset-cpus --cpuset-mems --pids-limit --require-budget --io-max --io-weight --hugetlb --cgroup-set --ulimit --timeout --cpu-time --idle-timeout --kill-after --oom-score-adj --interactive --tty --output-limit --report --audit --audit-sync --debug --explain-denials --summary --quiet --stats --detach --lifetime --idle-stop --lease --rm --to --json --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --profile)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -p)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --allow-degraded)
                    COMPREPLY=($(compgen -W "cpu memory pids keyring namespace-limits landlock io cpuset hugetlb rdma misc dmem udp host-id idmap proc outer-proc hostname namespaces" -- "${cur}"))
                    return 0
                    ;;
                --volume)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -v)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --mount)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tmpfs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --ro)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --rw)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --workspace)
                    COMPREPLY=()
                    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
                        compopt -o plusdirs
                    fi
                    return 0
                    ;;
                --rootfs)
                    COMPREPLY=()
                    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
                        compopt -o plusdirs
                    fi
                    return 0
                    ;;
                --toolchain)
                    COMPREPLY=($(compgen -W "python node rust java go auto" -- "${cur}"))
                    return 0
                    ;;
                --device)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scratch-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scratch-inodes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --env)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -e)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --env-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --workdir)
                    COMPREPLY=()
                    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
                        compopt -o plusdirs
                    fi
                    return 0
                    ;;
                -w)
                    COMPREPLY=()
                    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
                        compopt -o plusdirs
                    fi
                    return 0
                    ;;
                --umask)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --user)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -u)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --host-user)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cap-add)
                    COMPREPLY=($(compgen -W "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE" -- "${cur}"))
                    return 0
                    ;;
                --cap-drop)
                    COMPREPLY=($(compgen -W "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE" -- "${cur}"))
                    return 0
                    ;;
                --network)
                    COMPREPLY=($(compgen -W "none loopback egress host" -- "${cur}"))
                    return 0
                    ;;
                --hostname)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --label)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --allow-net)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --deny-net)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --publish)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --add-host)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --dns)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --upstream-proxy)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --net-connections)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --net-rate)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --net-budget)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --net-connect-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --net-idle-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --net-log)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --seccomp)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --seccomp-bpf)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --seccomp-allow)
                    COMPREPLY=($(compgen -W "debug sysv aio splice nested setuid-bits nettools" -- "${cur}"))
                    return 0
                    ;;
                --security-opt)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --allow-read)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --allow-write)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --allow-exec)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --allow-connect)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --allow-bind)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --landlock)
                    COMPREPLY=($(compgen -W "require auto off" -- "${cur}"))
                    return 0
                    ;;
                --landlock-abi)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --memory)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -m)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --memory-high)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --swap)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpus)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpu-weight)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpuset-cpus)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpuset-mems)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pids-limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --io-max)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --io-weight)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hugetlb)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cgroup-set)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --ulimit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cpu-time)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --idle-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kill-after)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --oom-score-adj)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --output-limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --report)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --audit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --stats)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --lifetime)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --idle-stop)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --lease)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --to)
                    COMPREPLY=($(compgen -W "read write execute" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
    esac
}


_stockade_or_session() {
    _stockade "$@"
    case "${COMP_WORDS[1]}" in
        exec|inspect|logs|attach|wait|stop|kill|pause|unpause|rm)
            case "$2" in
                -*) ;;
                *) COMPREPLY+=($(compgen -W "$(stockade ps -q 2>/dev/null)" -- "$2")) ;;
            esac ;;
        net)
            case "$2:${COMP_WORDS[2]}" in
                -*) ;;
                *:allow|*:deny|*:log) COMPREPLY+=($(compgen -W "$(stockade ps -q 2>/dev/null)" -- "$2")) ;;
            esac ;;
        run|plan|why|learn)
            case "$3" in
                -p|--profile) COMPREPLY+=($(compgen -W "default strict build nested" -- "$2")) ;;
                -u|--user) COMPREPLY+=($(compgen -W "root sandbox nobody" -- "$2")) ;;
                --seccomp) COMPREPLY+=($(compgen -W "default strict docker unconfined" -- "$2")) ;;
                --ulimit) COMPREPLY+=($(compgen -W "cpu= fsize= data= stack= core= rss= nproc= nofile= memlock= as= locks= sigpending= msgqueue= nice= rtprio= rttime=" -- "$2")) ;;
                --output-limit) COMPREPLY+=($(compgen -W "tail" -- "$2")) ;;
            esac ;;
        cp)
            case "$2" in
                -*) ;;
                *)
                    compopt -o nospace
                    COMPREPLY+=($(compgen -W "$(stockade ps -q 2>/dev/null | sed 's/$/:/')" -- "$2") $(compgen -f -- "$2")) ;;
            esac ;;
    esac
}

if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _stockade_or_session -o nosort -o bashdefault -o default stockade
else
    complete -F _stockade_or_session -o bashdefault -o default stockade
fi
