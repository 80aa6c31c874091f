/* SPDX-License-Identifier: Apache-2.0 */
/* Assignment of places to devices.
 *
 * A place is a stage along the pipeline and a rank in its grid. Ranks number the devices of a stage
 * in a fixed order, which is also the order of sums. Devices are numbered host by host and process
 * by process. --layout names the axes from innermost, between neighbouring devices, to outermost.
 * It does not change what a plan computes, only what exchanges along each axis cost. If links
 * differ, --assign changes which device takes which place. */
#include <string.h>

#include "graph/lower/lower.h"

/* True for axes with a separate name; factors of an axis share its name. */
static bool is_named(int axis) { return sli_axes[axis].parent == axis; }

static int find_axis(const char *name, size_t length) {
  for (int a = 0; a < SLI_AXES; a++)
    if (is_named(a) && strlen(sli_axes[a].name) == length &&
        !memcmp(sli_axes[a].name, name, length))
      return a;
  return -1;
}

/* Lists the axes: "tensor, sequence, data, stage". */
static const char *known_axes(const sli_inputs *in) {
  const char *all = "";
  for (int i = SLI_AXES - 1; i >= 0; i--)
    if (is_named(sli_nesting[i]))
      all = sli_arena_format(&in->g->arena, "%s%s%s", all, *all ? ", " : "",
                             sli_axes[sli_nesting[i]].name);
  return all;
}

/* Reads the named axes from the innermost on; named[axis]: its number in the list, from 1 on. */
static sl_status read_names(const sli_inputs *in, int named[SLI_AXES]) {
  const char *text = in->options->parallel.layout;
  int count = 0;
  size_t length;
  for (const char *at = text;; at += length + 1) {
    length = strcspn(at, ",");
    int axis = find_axis(at, length);
    if (axis < 0)
      return sl_fail(SL_E_USAGE, "layout %s: unknown axis '%.*s': must be one of %s", text,
                     (int)length, at, known_axes(in));
    if (named[axis])
      return sl_fail(SL_E_USAGE, "layout %s: axis %s is listed twice", text, sli_axes[axis].name);
    named[axis] = ++count;
    if (!at[length]) return SL_OK;
  }
}

static int size_along(const sli_inputs *in, int axis) {
  return axis == SLI_AXIS_STAGES ? in->p : sli_grid_size(&in->grid, sli_axis_factors(axis));
}

static sl_status check_missing(const sli_inputs *in, const int named[SLI_AXES]) {
  for (int a = 0; a < SLI_AXES; a++)
    if (is_named(a) && !named[a] && size_along(in, a) > 1)
      return sl_fail(SL_E_USAGE, "layout %s: axis %s is missing; %s %d has %d devices along it",
                     in->options->parallel.layout, sli_axes[a].name, sli_axes[a].option,
                     size_along(in, a), size_along(in, a));
  return SL_OK;
}

/* Orders the axes from outermost to innermost; axes with one device come first. */
static void nest(int nesting[SLI_AXES], const int named[SLI_AXES]) {
  int count = 0;
  for (int i = 0; i < SLI_AXES; i++)
    if (!named[sli_axes[sli_nesting[i]].parent]) nesting[count++] = sli_nesting[i];
  for (int n = SLI_AXES; n > 0; n--)
    for (int i = 0; i < SLI_AXES; i++)
      if (named[sli_axes[sli_nesting[i]].parent] == n) nesting[count++] = sli_nesting[i];
}

static int stride_of(const sli_inputs *in, int axis) {
  sli_grid all = in->grid;
  all.size[SLI_AXIS_STAGES] = in->p;
  return sli_grid_nested_stride(&all, in->layout.nesting, axis);
}

int sli_layout_number(const sli_inputs *in, int along, int rank) {
  int number = along * stride_of(in, SLI_AXIS_STAGES);
  for (int a = 0; a < SLI_AXES; a++)
    if (a != SLI_AXIS_STAGES)
      number += sli_rank_member(&in->grid, rank, 1u << a) * stride_of(in, a);
  return in->layout.assign ? in->layout.assign[number] : number;
}

/* Numbers the devices. If one device represents a stage, there is one per stage, regardless of the
 * layout. */
static void number_devices(sli_inputs *in) {
  size_t bytes = (size_t)in->devices * sizeof(int);
  in->device_at = sli_arena_alloc(&in->g->arena, bytes);
  in->place_of = sli_arena_alloc(&in->g->arena, bytes);
  for (int place = 0; place < in->devices; place++) {
    bool alike = in->grid.alike;
    int device = alike ? place : sli_layout_number(in, place / in->ranks, place % in->ranks);
    in->device_at[place] = device;
    in->place_of[device] = place;
  }
}

sl_status sli_lower_layout(sli_inputs *in) {
  int named[SLI_AXES] = {0};
  sl_status status = SL_OK;
  memcpy(in->layout.nesting, sli_nesting, sizeof in->layout.nesting);
  if (in->options->parallel.layout) {
    status = read_names(in, named);
    if (!status) status = check_missing(in, named);
    if (!status) nest(in->layout.nesting, named);
  }
  if (!status) status = sli_lower_read_assign(in);
  if (!status) number_devices(in);
  return status;
}
