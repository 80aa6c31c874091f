/* SPDX-License-Identifier: Apache-2.0 */
/* Prints what a process learns about its job from the environment. */
#include <stdio.h>
#include <stdlib.h>

#include "comm/start/start.h"

int main(void) {
  sli_cluster c;
  if (sli_cluster_detect((const char *(*)(const char *))getenv, &c)) {
    fprintf(stderr, "%s\n", sl_detail());
    return 2;
  }
  printf("process %d of %d, local %d of %d, endpoint %s, job %s, key %s, starter %s\n", c.process,
         c.nprocesses, c.local, c.nlocal, c.endpoint, c.job, c.key, c.starter ? c.starter : "none");
  return 0;
}
