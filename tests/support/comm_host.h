/* SPDX-License-Identifier: Apache-2.0 */
/* A job whose processes meet at an endpoint. */
#ifndef SLUICE_TESTS_SUPPORT_COMM_HOST_H
#define SLUICE_TESTS_SUPPORT_COMM_HOST_H

#include <netdb.h>
#include <unistd.h>

#include "tests/support/comm_node.h"
#include "tests/support/test.h"

enum { HOST_PROCESSES = 3, HOST_PATIENCE_MS = 20000 };

static inline sli_control_options comm_host_options(int process, const char *endpoint,
                                                    const char *key) {
  return (sli_control_options){.process = process,
                               .nprocesses = HOST_PROCESSES,
                               .endpoint = endpoint,
                               .job = "test",
                               .key = key,
                               .join_ms = HOST_PATIENCE_MS,
                               .lost_ms = 10000};
}

/* Returns true if this machine's name resolves to an address, which other processes need. */
static inline bool comm_host_has_address(void) {
  char name[80] = "";
  struct addrinfo *all;
  gethostname(name, sizeof name - 1);
  if (getaddrinfo(name, NULL, NULL, &all)) return false;
  freeaddrinfo(all);
  return true;
}

/* Lets three processes of a job meet at `endpoint` and reach each other. Returns false, with
 * sl_detail(), if this machine cannot be reached there. */
static inline bool comm_host_meets(const char *endpoint) {
  static node nodes[HOST_PROCESSES];
  char key[SLI_CONTROL_KEY_CHARS + 1];
  sli_control_make_key(key);
  sli_control_options options = comm_host_options(0, endpoint, key);
  if (node_open(&nodes[0], &options)) return false;
  for (int k = 1; k < HOST_PROCESSES; k++) {
    options = comm_host_options(k, sli_control_endpoint(nodes[0].control), key);
    CHECK(!node_open(&nodes[k], &options), "process %d opens: %s", k, sl_detail());
  }
  for (int k = 0; k < HOST_PROCESSES; k++)
    CHECK(!sli_control_join(nodes[k].control), "process %d joins: %s", k, sl_detail());
  node_send(&nodes[1], 2, 0);
  node_send(&nodes[2], 1, 0);
  for (int k = 1; k < HOST_PROCESSES; k++)
    CHECK(node_wait_numbers(&nodes[k], 1, HOST_PATIENCE_MS), "processes at %s reach %d", endpoint,
          k);
  for (int k = 0; k < HOST_PROCESSES; k++) node_close(&nodes[k]);
  return true;
}

#endif
