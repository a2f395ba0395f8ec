#!/bin/sh
# user-scope.sh COMMAND…: a sandbox with a memory limit, for an ordinary user. systemd gives the scope a cgroup of the user's own, in
# which stockade can make one for the run.
exec systemd-run --user --scope --quiet -p Delegate=yes stockade run -m 512M --pids-limit 100 -- "$@"
