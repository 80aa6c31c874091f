#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A job owns the port where its processes meet from the start, however many other programs request
# ports meanwhile. In a network namespace, if the test may create one, nearly all ephemeral ports
# are taken and the remaining ones constantly change hands.
# labels: outside
# needs: zeromq
set -euo pipefail
inside=${SLUICE_PORT_INSIDE-}
few_ports='echo 32768 33791 >/proc/sys/net/ipv4/ip_local_port_range'
if [[ ! $inside ]]; then
  for network in "unshare -n" "unshare -rn"; do
    $network sh -c "$few_ports" 2>/dev/null && SLUICE_PORT_INSIDE=1 exec $network bash "$0"
  done
else
  eval "$few_ports"
fi
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

# A bind to any port with SO_REUSEADDR gets an odd port in the lower half of the range: 256 ports
# here. In a shared network the script takes only a fraction of them.
cat >take.py <<'END'
import collections, fcntl, resource, socket, struct, sys
SIOCGIFFLAGS, SIOCSIFFLAGS, UP = 0x8913, 0x8914, 1
if sys.argv[1]:
    with socket.socket() as s:
        lo = fcntl.ioctl(s, SIOCGIFFLAGS, struct.pack("16sh14x", b"lo", 0))
        flags = struct.unpack("16sh14x", lo)[1]
        fcntl.ioctl(s, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | UP))
first, last = map(int, open("/proc/sys/net/ipv4/ip_local_port_range").read().split())
most = 240 if sys.argv[1] else (last - first + 1) // 16
limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
held = collections.deque()
while True:
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("127.0.0.1", 0))
    s.listen()
    held.append(s)
    if len(held) == most:
        print("taken", most, flush=True)
    if len(held) > most:
        held.popleft().close()
END
exec {taken}< <(exec python3 take.py "$inside" 2>&1)
to_end+=($!)
read -r first <&"$taken" || first="nothing was said"
[[ $first == taken* ]] || fail "no ports are taken: $first $(cat <&"$taken")"
echo "$first${inside:+ of 256}"

for _ in $(seq 5); do
  "$actorrun" -n 4 --stages 4 --microbatches 4 "${patient[@]}" --steps 1 --quiet gpt --layers 4 \
    --width 16 --heads 2 --context 16 --batch 8 --data "$reference/tokens.u16" 2>err ||
    fail "with few ports free: $(cat err)"
  kill -0 "${to_end[0]}" || fail "no ports are taken any more: $(cat <&"$taken")"
done
