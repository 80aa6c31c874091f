/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serving/fleet.h"

#include <string.h>

#include "base/base.h"
#include "base/number.h"
#include "tools/serving/energy.h"

/* ---- --prefill ----------------------------------------------------------------------------- */

static sl_status fleet_wrong(const char *text) {
  return sl_fail(SL_E_USAGE,
                 "--prefill %s: must be a number of servers, and perhaps stages=N, tensor=N, "
                 "rows=N, sequences=N and kv=N of each, such as 2,tensor=4",
                 text);
}

/* Reads "name=N" of one of the fields and moves past it. */
static bool read_field(const char **at, fleet_prefill *p, int *rows, int *pages) {
  enum { MOST = 1 << 24 };
  const struct {
    const char *name;
    int *value;
  } fields[] = {{"stages=", &p->stages},
                {"tensor=", &p->tensor},
                {"sequences=", &p->sequences},
                {"rows=", rows},
                {"kv=", pages}};
  for (size_t i = 0; i < SLI_COUNT(fields); i++) {
    size_t n = strlen(fields[i].name);
    if (strncmp(*at, fields[i].name, n)) continue;
    *at += n;
    return sli_number_read(at, 1, MOST, fields[i].value);
  }
  return false;
}

sl_status fleet_read_prefill(const char *text, const sl_session_options *like, fleet_prefill *out) {
  enum { MOST = 1 << 12 };
  const char *at = text;
  int rows = (int)like->rows, pages = (int)like->pages;
  *out = (fleet_prefill){.stages = SLI_MAX(like->lower.parallel.stages, 1),
                         .tensor = SLI_MAX(like->lower.parallel.tensor, 1),
                         .sequences = like->sequences};
  bool fine = sli_number_read(&at, 1, MOST, &out->servers);
  while (fine && *at == ',') at++, fine = read_field(&at, out, &rows, &pages);
  out->rows = rows;
  out->pages = pages;
  return fine && !*at ? SL_OK : fleet_wrong(text);
}

/* ---- devices ------------------------------------------------------------------------------- */

sl_session_options fleet_prefill_options(const fleet_prefill *p, const sl_session_options *like) {
  sl_session_options o = *like;
  o.rows = p->rows;
  o.sequences = p->sequences;
  o.pages = p->pages;
  o.groups = 0;
  o.lower.parallel.stages = p->stages;
  o.lower.parallel.tensor = p->tensor;
  o.lower.devices.count = fleet_devices_of(&o);
  return o;
}

/* Returns the devices of each stage. */
static int ranks_of(const sl_session_options *o) {
  return SLI_MAX(o->lower.parallel.tensor, 1) * SLI_MAX(o->lower.parallel.sequence, 1);
}

int fleet_devices_of(const sl_session_options *o) {
  return SLI_MAX(o->lower.parallel.stages, 1) * ranks_of(o);
}

static int devices_of_all(const sl_servers *x) {
  return x->count ? x->count * fleet_devices_of(x->options) : 0;
}

int fleet_devices(const sl_fleet *f) {
  return devices_of_all(&f->servers) + devices_of_all(&f->prefill);
}

void fleet_set_link(sl_fleet *f) {
  const sl_hardware *h = f->servers.options->lower.simulation.hardware;
  if (!h || !f->prefill.count) return;
  bool near = fleet_devices(f) <= h->devices_per_host;
  const sl_hardware_link *link = near ? &h->host_link : &h->link;
  int ways = SLI_MIN(fleet_devices_of(f->servers.options), fleet_devices_of(f->prefill.options));
  f->link_seconds = link->seconds;
  f->link_bytes_per_second = ways * link->bytes_per_second;
}

/* ---- energy -------------------------------------------------------------------------------- */

/* Returns the joules of servers whose stages computed for `busy` seconds each. */
static double joules_of(const sl_servers *x, const double *busy, double seconds) {
  const sl_session_options *o = x->options;
  double sum = 0;
  int stages = SLI_MAX(o->lower.parallel.stages, 1);
  for (int i = 0; i < stages; i++)
    sum += energy_joules(o->lower.simulation.hardware, seconds, busy[i]);
  return sum * ranks_of(o) * x->count;
}

double fleet_joules(const sl_fleet *f, const sl_session_simulation *r) {
  int before = f->prefill.count ? SLI_MAX(f->prefill.options->lower.parallel.stages, 1) : 0;
  double sum = joules_of(&f->servers, r->busy + before, r->seconds);
  return f->prefill.count ? sum + joules_of(&f->prefill, r->busy, r->seconds) : sum;
}
