/* SPDX-License-Identifier: Apache-2.0 */
/* Advice for a server that does not fit: the largest sizes with which it does. The server is
 * planned again with other sizes, which allocates nothing, so no number is estimated. */
#include "tools/actorserve/advice.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"

enum { SECONDS_MOST = 5 };

/* Sizes that an option sets. */
typedef enum size_name { PAGES, SEQUENCES, ROWS, CONTEXT, SIZES } size_name;

static const char *const formats[SIZES] = {"--quota kv=%lld", "--sequences %lld", "--rows %lld",
                                           "--context %lld"};
/* Advised values are multiples of these. */
static const int64_t units[SIZES] = {1, 1, 8, 64};

/* Values of sizes; 0: the session chooses. */
typedef struct sizes {
  int64_t of[SIZES];
  bool half; /* keys and values in bf16 */
} sizes;

/* A way to a smaller server: sizes that are set, and the one whose largest value is searched for.
 */
typedef struct remedy {
  sizes set;
  size_name search; /* SIZES: none */
} remedy;

static const remedy single[] = {{.search = PAGES},
                                {.search = SEQUENCES},
                                {.search = ROWS},
                                {.search = CONTEXT},
                                {.set = {.half = true}, .search = SIZES}};
static const remedy together[] = {
    {.set = {.of = {[ROWS] = 16}}, .search = SEQUENCES},
    {.set = {.of = {[ROWS] = 16}, .half = true}, .search = SEQUENCES},
    {.set = {.of = {[ROWS] = 8, [SEQUENCES] = 1}}, .search = CONTEXT},
    {.set = {.of = {[ROWS] = 8, [SEQUENCES] = 1}, .half = true}, .search = CONTEXT}};

typedef struct trial {
  const sl_session_options *options;
  sizes now; /* sizes in force */
  uint64_t until_ns;
  FILE *fits; /* remedies that fit, one after another */
  int nfits;
} trial;

static sl_session_options with(const sl_session_options *options, const sizes *x) {
  sl_session_options o = *options;
  if (x->of[PAGES]) o.pages = x->of[PAGES];
  if (x->of[SEQUENCES]) o.sequences = (int)x->of[SEQUENCES];
  if (x->of[ROWS]) o.rows = x->of[ROWS];
  if (x->of[CONTEXT]) o.context = x->of[CONTEXT];
  if (x->half) o.kv = SL_STORAGE_BF16;
  return o;
}

static sl_status check(const trial *t, const sizes *x) {
  sl_session_options o = with(t->options, x);
  sl_session_info about;
  return sl_session_check(&o, &about);
}

/* Sets the largest value of a size that fits, less than the one in force. Returns false if there is
 * none. A value that the session refuses for another reason is too small. */
static bool search(const trial *t, sizes *x, size_name name) {
  int64_t low = 1, high = (t->now.of[name] - 1) / units[name], found = 0;
  while (low <= high && sli_now_ns() < t->until_ns) {
    int64_t middle = low + (high - low) / 2;
    x->of[name] = middle * units[name];
    sl_status status = check(t, x);
    if (!status) found = middle;
    if (status == SL_E_BUDGET) high = middle - 1;
    else low = middle + 1;
  }
  x->of[name] = found * units[name];
  return found;
}

static void say(FILE *to, const sizes *x) {
  const char *before = "";
  for (int i = 0; i < SIZES; i++) {
    if (!x->of[i]) continue;
    fputs(before, to);
    fprintf(to, formats[i], (long long)x->of[i]);
    before = " ";
  }
  if (x->half) fprintf(to, "%s--kv bf16", before);
}

static void try_one(trial *t, const remedy *r) {
  sizes x = r->set;
  bool less = !x.half || (t->options->kv == SL_STORAGE_F32 && !t->options->lower.numbers.exact);
  for (int i = 0; i < SIZES; i++) less &= !x.of[i] || x.of[i] < t->now.of[i];
  if (!less) return;
  if (r->search == SIZES ? check(t, &x) : !search(t, &x, r->search)) return;
  if (t->nfits++) fputs(", ", t->fits);
  say(t->fits, &x);
}

/* Returns the sizes in force, regardless of the budget. */
static sl_status sizes_now(const sl_session_options *options, bool has_context, sizes *now) {
  sl_session_options o = *options;
  sl_session_info about;
  o.lower.devices.budget_bytes = 0;
  sl_status status = sl_session_check(&o, &about);
  if (status) return status;
  *now = (sizes){.of = {[PAGES] = about.pages,
                        [SEQUENCES] = about.sequences,
                        [ROWS] = about.rows,
                        [CONTEXT] = has_context ? about.context : 0}};
  return SL_OK;
}

void advice_add_sizes(const sl_session_options *options, bool has_context) {
  char *why = sli_strdup(sl_detail()), *text = NULL;
  size_t size;
  trial t = {.options = options, .until_ns = sli_now_ns() + SECONDS_MOST * UINT64_C(1000000000)};
  t.fits = sli_memory_stream(&text, &size);
  if (!sizes_now(options, has_context, &t.now)) {
    for (size_t i = 0; i < SLI_COUNT(single); i++) try_one(&t, &single[i]);
    for (size_t i = 0; i < SLI_COUNT(together) && !t.nfits; i++) try_one(&t, &together[i]);
  }
  fclose(t.fits);
  if (t.nfits) sl_fail(SL_E_BUDGET, "%s; these would fit: %s", why, text);
  else
    sl_fail(SL_E_BUDGET,
            "%s; no other sizes that were tried fit: more devices (--stages, --tensor) or "
            "--weights disk take less of each",
            why);
  free(text);
  free(why);
}
