#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Models in C files: a name that a compiler would take for an option is rejected. The next process
# removes what a killed process left of a compilation, but nothing that is still in use.
# labels: unthreaded
set -u
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

cat >model.c <<'END'
#include <sluice/sluice.h>
static const sl_option options[] = {{0}};
static sl_status build(sl_graph *g, const sl_args *args) {
  (void)args;
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, 4), SL_CONSTANT(1), "w");
  sl_train(g, sl_mse(g, w, w), &(sl_optimizer){.lr = 1e-3f});
  return sl_graph_status(g);
}
SL_MODEL(small, "a parameter", options, build);
END
look() { ends "$1" "$actorrun" --help "${@:2}"; }
left() { find "$TMPDIR" -maxdepth 1 -type d -name 'sluice-*' | wc -l; }

# ---- names -------------------------------------------------------------------------------
echo "-DNOTHING --no-such-option" >r.c
mkdir @folder in
for name in @r.c ./@r.c in/@r.c ./-O7.c @folder/model.c; do
  cp model.c "$name"
  look 2 "$name"
  says "$name: compilers read a name that begins with @ or - as options; rename the file" err
done
look 0 ./@folder/model.c
rm @folder/model.c
look 2 @none.c
says "cannot open @none.c" err
TMPDIR=@folder look 0 model.c
[ -z "$(ls -A @folder)" ] || fail "the compiler's files are gone"
TMPDIR=none look 1 model.c
says "no folder for temporary files, none" err

# ---- leftovers ---------------------------------------------------------------------------
[ "$(left)" -eq 0 ] || fail "nothing is left of a compilation"
look 2 r.c
[ "$(left)" -eq 0 ] || fail "nothing is left of a failed one"

# A compiler that waits for a go-ahead.
cat >slow <<END
#!/bin/bash
echo \$\$ >"$work/begun.new" && mv "$work/begun.new" "$work/begun"
for i in \$(seq 300); do [ -e "$work/go" ] && break; sleep 0.1; done
exec cc "\$@"
END
chmod +x slow
begin() {
  rm -f begun go slow.out
  CC=$work/slow "$actorrun" --help model.c >slow.out 2>&1 &
  running=$!
  to_end+=("$running")
  for _ in $(seq 300); do [ -e begun ] && return; sleep 0.1; done
  fail "the compiler does not begin"
}
runs() { [ -e "/proc/$1" ] && ! grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null; }
begin
kill -9 $running
touch go
wait $running 2>/dev/null
for _ in $(seq 300); do runs "$(<begun)" || break; sleep 0.1; done # the compiler may write there until it ends
[ "$(left)" -eq 1 ] || fail "a killed process leaves its folder"
begin
[ "$(left)" -eq 1 ] || fail "the next one removes it"
look 0 model.c
[ "$(left)" -eq 1 ] || fail "a folder that is in use stays"
touch go
wait $running || fail "it compiles: $(cat slow.out)"
grep -q "a parameter" slow.out || fail "it is the model"
[ "$(left)" -eq 0 ] || fail "nothing is left"

# Folders of others, and links and files with similar names, are left alone.
mkdir elsewhere
touch elsewhere/kept
ln -s elsewhere "$TMPDIR/sluice-scratch-link"
touch "$TMPDIR/sluice-scratch-file"
look 0 model.c
[ -e elsewhere/kept ] && [ -e sluice-scratch-file ] || fail "only folders of its own are removed"
echo "all as it should be"
