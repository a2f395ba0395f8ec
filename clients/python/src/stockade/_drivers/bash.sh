# The bash that stays in a sandbox; see python.py. Descriptor 0 is a socket. A request is an id and the code, each ended by a
# NUL byte.
exec {stockade_fd}<&0 0</dev/null
trap : INT
stockade_count=0
printf '{"ready":1}\n' >&"$stockade_fd"
while IFS= read -r -d '' -u "$stockade_fd" stockade_id && IFS= read -r -d '' -u "$stockade_fd" stockade_code; do
    stockade_count=$((stockade_count + 1))
    eval "$stockade_code"
    stockade_status=$?
    stockade_error=null
    if [ "$stockade_status" != 0 ]; then
        stockade_error="{\"name\":\"ExitStatus\",\"value\":\"$stockade_status\",\"traceback\":\"\"}"
    fi
    printf '{"done":%s,"error":%s,"count":%s}\n' "$stockade_id" "$stockade_error" "$stockade_count" >&"$stockade_fd"
done
