#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Links in a machine file: links of single pairs, links that the devices of a host share, and
# exchanges that slow down concurrent passes.
# labels: outside
set -u
. "$SLUICE_SOURCE/tests/support/tool.sh"

rate=1e6
machine() { # machine NAME FIELDS: writes a machine of four devices, two per host; only links between hosts take time
  cat >"$1.json" <<J
{"flops_per_second": {"f32": 1e12}, "flops_efficiency": 1, "bytes_per_second": 1e11, "bytes_efficiency": 1, "op_seconds": 0,
 "memory_bytes": 1e12, "link_seconds": 0, "link_bytes_per_second": $rate, "devices_per_host": 2, "host_link_seconds": 0,
 "host_link_bytes_per_second": 0$2}
J
}
gpt=(gpt --layers 4 --width 64 --heads 4 --context 32 --vocab 64 --batch 8)
takes() { # takes MACHINE OPTION...: prints the seconds of a step
  local machine=$1
  shift
  timeout -s KILL 60 "$actorrun" --clock virtual --machine "$machine.json" --steps 3 --quiet --report r.json "$@" "${gpt[@]}" \
    >out 2>err || fail "$machine: $*"
  python3 -c 'import json; print(json.load(open("r.json"))["step_seconds"])'
}
check() { python3 -c "import sys; sys.exit(not ($1))" || fail "$2: $1"; }

machine plain ''
machine far ', "links": [{"from": 1, "to": 0, "seconds": 1, "bytes_per_second": 1e12}]'
machine unused ', "links": [{"from": 1, "to": 3, "seconds": 1, "bytes_per_second": 1e12}]'
pipeline=(--devices timed:4 --stages 4 --microbatches 1)
plain=$(takes plain "${pipeline[@]}") far=$(takes far "${pipeline[@]}") unused=$(takes unused "${pipeline[@]}")
# Three transfers: the activation, its gradient, and the factor that the clip scales gradients by.
check "abs($far - $plain - 3) < 1e-3" "a link of its own"
check "$unused == $plain" "a pair that has nothing to say to each other"

# Both devices of the first stage send to the other host, over one shared link or over two.
machine one ', "links_per_host": 1'
machine two ', "links_per_host": 2'
shared=(--devices timed:4 --stages 2 --data-parallel 2 --microbatches 2)
plain=$(takes plain "${shared[@]}") one=$(takes one "${shared[@]}") two=$(takes two "${shared[@]}")
check "$two == $plain" "a link for each device"
check "1.8 * $plain < $one < 2.02 * $plain" "two devices share a link"

rate=1e10
machine plain ''
machine slow ', "slowdown_while_exchanging": 1.5'
tensors=(--devices timed:4 --stages 1 --tensor 4 --microbatches 4)
plain=$(takes plain "${tensors[@]}") slow=$(takes slow "${tensors[@]}")
check "$slow > $plain" "exchanges slow passes down"
check "$(takes slow --exchange inline "${tensors[@]}") == $(takes plain --exchange inline "${tensors[@]}")" \
  "in line there is nothing beside passes"
check "$(takes slow "${pipeline[@]}") == $(takes plain "${pipeline[@]}")" "without exchanges nothing is slower"
