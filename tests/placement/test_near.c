/* SPDX-License-Identifier: Apache-2.0 */
/* A worker that drives a GPU gets a core near it, and a separate one while there are enough. The
 * placement tells where the GPU is.
 * labels: unthreaded */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hwloc.h>
#include <sluice/placement.h>

#include "tests/support/test.h"

/* Two packages of four cores; GPUs are attached to the second (3b:00.0, 3c:00.0) and the first
 * (af:00.0). */
static const char bridge[] =
    "<object type=\"Bridge\" gp_index=\"%d\" bridge_type=\"0-1\" depth=\"0\" "
    "bridge_pci=\"0000:[%s]\">%s</object>";
static const char gpu[] =
    "<object type=\"PCIDev\" gp_index=\"%d\" pci_busid=\"0000:%s:00.0\" "
    "pci_type=\"0302 [10de:2330] [10de:16c1] a1\" pci_link_speed=\"0.000000\"/>";

/* Inserts objects at the end of package number `package` in a machine's XML. */
static char *plug(const char *xml, int package, const char *objects) {
  const char *at = xml;
  for (int i = 0; i <= package; i++) CHECK((at = strstr(at + 1, "type=\"Package\"")), "no package");
  int depth = 1;
  for (at = strchr(at, '>') + 1; depth; at++) {
    if (!strncmp(at, "<object", 7)) depth += strncmp(strchr(at, '>') - 1, "/>", 2) != 0;
    if (!strncmp(at, "</object>", 9) && !--depth) break;
  }
  char *out;
  CHECK(asprintf(&out, "%.*s%s%s", (int)(at - xml), xml, objects, at) > 0, "memory");
  return out;
}

static void write_machine(const char *path) {
  hwloc_topology_t topology;
  char *xml, *with_two, *all, first[1024], second[1024], one[400], two[400];
  int bytes;
  hwloc_topology_init(&topology);
  CHECK(!hwloc_topology_set_synthetic(topology, "pack:2 [numa] core:4 pu:1"), "synthetic");
  CHECK(!hwloc_topology_load(topology), "load");
  CHECK(!hwloc_topology_export_xmlbuffer(topology, &xml, &bytes, 0), "export");
  snprintf(one, sizeof one, gpu, 101, "3b");
  snprintf(two, sizeof two, gpu, 102, "3c");
  char both[800];
  snprintf(both, sizeof both, "%s%s", one, two);
  snprintf(second, sizeof second, bridge, 100, "3a-3f", both);
  snprintf(one, sizeof one, gpu, 111, "af");
  snprintf(first, sizeof first, bridge, 110, "ae-af", one);
  with_two = plug(xml, 1, second);
  all = plug(with_two, 0, first);
  FILE *file = fopen(path, "w");
  CHECK(file && fputs(all, file) > 0 && !fclose(file), "cannot write %s", path);
  free(all);
  free(with_two);
  hwloc_free_xmlbuffer(topology, xml);
  hwloc_topology_destroy(topology);
}

static void check_near(const sl_machine *machine, int n, const char *const *pci, const int *node) {
  sl_placement *p;
  CHECK(!sl_placement_create_near(machine, n, pci, &p), "%s", sl_detail());
  for (int d = 0; d < n; d++) {
    int core = sl_placement_core(p, d, 0);
    CHECK(node[d] < 0 || sl_machine_node(machine, core) == node[d],
          "device %d, whose GPU is at %s, is driven from node %d, not %d", d, pci[d],
          sl_machine_node(machine, core), node[d]);
    for (int other = 0; other < d && n <= 4; other++)
      CHECK(core != sl_placement_core(p, other, 0), "devices %d and %d have one core", other, d);
  }
  CHECK(sl_placement_shared(p) == (n > 4), "%d devices share cores", n);
  char *text = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&text, &bytes);
  sl_placement_print(p, out);
  fclose(out);
  CHECK(strstr(text, "cuda:0") && (!pci[0] || strstr(text, pci[0])), "not shown: %s", text);
  free(text);
  sl_placement_destroy(p);
}

int main(void) {
  char path[] = "/tmp/sluice-near-XXXXXX.xml";
  int fd = mkstemps(path, 4);
  CHECK(fd >= 0, "no temporary file");
  close(fd);
  write_machine(path);
  sl_machine *machine, *here;
  CHECK(!sl_machine_create(path, &machine), "%s", sl_detail());
  unlink(path);
  RUN(check_near, machine, 3, (const char *[]){"0000:3b:00.0", "0000:af:00.0", "0000:3c:00.0"},
      (int[]){1, 0, 1});
  RUN(check_near, machine, 4,
      (const char *[]){"0000:3B:00.0", "0000:3b:00.0", "0000:3b:00.0", "0000:3b:00.0"},
      (int[]){1, 1, 1, 1});
  RUN(check_near, machine, 6,
      (const char *[]){"0000:af:00.0", "0000:af:00.0", "0000:af:00.0", "0000:af:00.0",
                       "0000:af:00.0", "0000:3c:00.0"},
      (int[]){0, 0, 0, 0, 0, 1});
  RUN(check_near, machine, 2, (const char *[]){NULL, "0000:99:00.0"}, (int[]){-1, -1});
  CHECK(!sl_machine_create(NULL, &here), "%s", sl_detail());
  sl_placement *p;
  CHECK(!sl_placement_create_near(here, 1, (const char *[]){"0000:99:00.0"}, &p), "%s",
        sl_detail());
  CHECK(sl_placement_core(p, 0, 0) == 0, "a GPU that is not there is near no core");
  sl_placement_destroy(p);
  CHECK(sl_placement_create_near(here, 0, NULL, &p) == SL_E_USAGE, "no devices");
  sl_machine_destroy(here);
  sl_machine_destroy(machine);
  return 0;
}
