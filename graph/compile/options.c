/* SPDX-License-Identifier: Apache-2.0 */
/* Options of sl_lower: parses texts into enums and numbers; an invalid value is an error that names
 * it. */
#include "graph/compile/compile_inner.h"

#include <sluice/model.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

enum { MOST_STORE_EVERY = 1000000, MOST_BLOCKS = 1 << 20 };

bool sli_compile_searches(const sl_lower_options *o) {
  return o->schedule.name && !strcmp(o->schedule.name, "auto");
}

/* Checks links between GPUs, and collectives. Looks for the library only if there are several
 * processes, or devices that share a stage. */
static sl_status check_links(const sl_lower_options *o, sli_inputs *in) {
  sl_gpu_links links = o->devices.links;
  bool shared = SLI_MAX(o->parallel.data, 1) * SLI_MAX(o->parallel.sequence, 1) *
                    SLI_MAX(o->parallel.tensor, 1) >
                1;
  in->grid.collectives = in->kind->group && shared && links == SL_LINKS_DIRECT;
  if (!in->kind->direct || links == SL_LINKS_HOST) return SL_OK;
  if (o->parallel.processes < 2 && (!shared || links == SL_LINKS_CHANNELS)) return SL_OK;
  sl_status status = in->kind->direct();
  in->direct = !status && o->parallel.processes > 1;
  in->grid.collectives = !status && shared && links != SL_LINKS_CHANNELS;
  return links == SL_LINKS_DIRECT ? status : SL_OK;
}

/* Reads "device", "host" or "every:4". */
static sl_status read_update(sli_inputs *in) {
  const char *text = in->options->memory.homes.update;
  in->update_every = 1;
  if (!text || !strcmp(text, "device")) return SL_OK;
  const char *at = text + strlen("every:");
  bool every = !strncmp(text, "every:", strlen("every:")) &&
               sli_number_read(&at, 1, MOST_BLOCKS, &in->update_every) && !*at;
  if (!every && strcmp(text, "host"))
    return sl_fail(SL_E_USAGE, "update %s: must be device, host or every:K", text);
  if (!every) in->update_every = 0;
  if (in->kind->hosted) in->kind = in->kind->hosted;
  if (in->kind->copy) return SL_OK;
  return sl_fail(SL_E_USAGE, "update %s: %s devices cannot leave updates to the host", text,
                 in->kind->name);
}

/* Reads "activations=0.6". */
static sl_status read_offload(sli_inputs *in) {
  const char *text = in->options->memory.homes.offload, *name = "activations=";
  in->leaving = SL_NONE;
  if (!text) return SL_OK;
  char *end = NULL;
  bool named = !strncmp(text, name, strlen(name)) && text[strlen(name)];
  double share = named ? strtod(text + strlen(name), &end) : -1;
  if (!named || *end || !(share >= 0 && share <= 1))
    return sl_fail(SL_E_USAGE, "offload %s: must be activations=SHARE, with SHARE from 0 to 1",
                   text);
  if (in->k == 1)
    return sl_fail(SL_E_USAGE, "offload %s: needs sequences cut into pieces (--pieces K)", text);
  if (!sli_home_given(in->options, SLI_ROLE_ACT_B))
    return sl_fail(SL_E_USAGE, "offload %s: needs a home for activations (memory.homes act=HOME)",
                   text);
  const char *again = in->options->memory.recompute;
  if (again && strcmp(again, "none"))
    return sl_fail(
        SL_E_USAGE,
        "offload %s: cannot be combined with recompute %s: pieces that stay are recomputed anyway",
        text, again);
  in->leaving = (int)lround(share * in->k);
  return SL_OK;
}

static sl_status check_options(const sl_lower_options *o, sli_inputs *in) {
  in->kind = sli_kind_find(o->devices.kind);
  if (!in->kind) return sl_fail(SL_E_USAGE, "unknown device kind '%s'", o->devices.kind);
  sl_status status = read_update(in);
  if (!status) status = read_offload(in);
  if (!status) status = check_links(o, in);
  if (status) return status;
  in->p = o->parallel.stages ? o->parallel.stages : 1;
  if (in->p < 1 || o->schedule.chunks < 0)
    return sl_fail(SL_E_USAGE, "%d stages of %d chunks: both must be at least 1", in->p,
                   o->schedule.chunks);
  if (o->devices.threads < 0 || o->devices.count < 0)
    return sl_fail(SL_E_USAGE, "%d devices of %d threads: neither may be negative",
                   o->devices.count, o->devices.threads);
  if (o->parallel.data < 0 || o->parallel.sequence < 0 || o->parallel.tensor < 0 ||
      o->experts.parallel < 0)
    return sl_fail(SL_E_USAGE,
                   "grid of %d x %d x %d devices, %d of them with experts: none may be negative",
                   o->parallel.data, o->parallel.sequence, o->parallel.tensor, o->experts.parallel);
  if (o->store.every < 0 || o->store.every > INT32_MAX / ((int64_t)in->m * in->k) ||
      o->store.every > MOST_STORE_EVERY)
    return sl_fail(SL_E_USAGE,
                   "checkpoint every %lld steps: too many steps for %d microbatches of %d pieces",
                   (long long)o->store.every, in->m, in->k);
  if (o->schedule.backward && strcmp(o->schedule.backward, "split") &&
      strcmp(o->schedule.backward, "fused"))
    return sl_fail(SL_E_USAGE, "unknown backward '%s': must be fused or split",
                   o->schedule.backward);
  return SL_OK;
}

static sl_status read_paths(sli_inputs *in) {
  const char *file = in->options->schedule.paths;
  if (file && in->options->schedule.skip > 0)
    return sl_fail(SL_E_USAGE, "paths %s, skip %g: paths can be given or searched for, not both",
                   file, in->options->schedule.skip);
  if (in->options->schedule.swap && !(in->options->schedule.skip > 0))
    return sl_fail(SL_E_USAGE, "swap: needs skip, which searches for paths");
  return file ? sli_paths_read(file, in->m, &in->g->arena, &in->paths) : SL_OK;
}

/* Reads the result of an earlier search. */
static sl_status read_chosen(const sli_inputs *in, sli_pick *out) {
  sl_status status = sli_pick_read(in->options->schedule.chosen, &in->g->arena, out);
  if (status || !out->paths || out->paths->microbatches == in->m) return status;
  return sl_fail(SL_E_USAGE, "the chosen paths have %d microbatches, but a step has %d",
                 out->paths->microbatches, in->m);
}

/* Fails with an error that lists the schedules and the most similar name. */
static sl_status unknown_schedule(const char *word) {
  char list[512] = "", meant[SLI_MEANT_TEXT];
  size_t at = 0;
  const char *const *all = sl_schedule_names();
  for (size_t i = 0; all[i] && at < sizeof list; i++)
    at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", all[i]);
  return sl_fail(SL_E_USAGE, "unknown schedule '%s': must be one of %s%s", word, list,
                 sli_meant(meant, all, word));
}

sl_status sli_compile_pick(const sli_inputs *in, sli_pick *out) {
  const sl_lower_options *o = in->options;
  if (o->schedule.chosen && (sli_compile_searches(o) || o->schedule.skip > 0))
    return read_chosen(in, out);
  if (sli_compile_searches(o)) return SL_OK;
  const sli_schedule *row = sli_schedule_find(o->schedule.name ? o->schedule.name : "1f1b");
  if (!row) return unknown_schedule(o->schedule.name);
  int chunks = o->schedule.chunks ? o->schedule.chunks : sl_schedule_chunks(row->name);
  if (row->chunks_fixed && chunks != row->chunks)
    return sl_fail(SL_E_USAGE, "schedule %s: needs schedule.chunks %d, not %d", row->name,
                   row->chunks, chunks);
  *out = (sli_pick){.schedule = row,
                    .v = chunks,
                    .split = sli_schedule_splits(row, o->schedule.backward),
                    .paths = in->paths};
  return SL_OK;
}

/* Checks the number format of products, and whether the devices support it. */
static sl_status check_dtype(const sl_lower_options *o, sli_inputs *in) {
  if (o->numbers.dtype != SL_F32 && o->numbers.dtype != SL_BF16)
    return sl_fail(SL_E_USAGE, "numbers.dtype must be f32 or bf16, not %s",
                   sl_dtype_name(o->numbers.dtype));
  in->bf16 = o->numbers.dtype == SL_BF16 && in->kind->bf16 ? in->kind->bf16() : NULL;
  in->narrow = in->bf16 && in->kind->narrow;
  if (!in->bf16 || in->narrow || in->sharding != SLI_SHARD_PARAMETERS) return SL_OK;
  return sl_fail(
      SL_E_UNSUPPORTED,
      "bf16 products use weights packed once per step, but with memory.shard parameters no "
      "device holds them for a step; use memory.shard gradients or numbers.dtype fp32");
}

sl_status sli_compile_options(const sl_lower_options *o, sli_inputs *in) {
  sl_status status = check_options(o, in);
  if (!status) status = read_paths(in);
  if (!status) status = sli_compile_grid(in);
  if (!status) status = check_dtype(o, in);
  return status;
}
