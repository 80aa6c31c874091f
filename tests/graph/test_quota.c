/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how quotas are parsed: the documented forms are read, anything else is refused with its
 * text, and "act" names both "act.b" and "act.w".
 * labels: unthreaded */
#include "graph/compile/compile.h"
#include "graph/lower/lower.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/test.h"

static void reads(const char *text, const char *name, int count, const sl_quota *expected) {
  int n;
  sl_quota *read;
  CHECK(!sli_quota_read(text, &n, &read), "%s: %s", text, sl_detail());
  CHECK(n == count, "%s says %d quotas", text, n);
  for (int i = 0; i < n; i++)
    CHECK(!strcmp(read[i].name, name) && read[i].stage == expected[i].stage &&
              read[i].slots == expected[i].slots,
          "%s: number %d is %s@%d=%d", text, i, read[i].name, read[i].stage, read[i].slots);
  free(read);
}

static void refuses(const char *text, const char *why) {
  int n;
  sl_quota *read;
  CHECK(sli_quota_read(text, &n, &read) == SL_E_USAGE, "%s is read", text);
  CHECK(strstr(sl_detail(), text) && strstr(sl_detail(), why), "%s: %s", text, sl_detail());
}

static void texts(void) {
  reads("act=4", "act", 1, (sl_quota[]){{NULL, SL_NONE, 4}});
  reads("h2d@3=1", "h2d", 1, (sl_quota[]){{NULL, 3, 1}});
  reads("act.b=4,3,2", "act.b", 3, (sl_quota[]){{NULL, 0, 4}, {NULL, 1, 3}, {NULL, 2, 2}});
  reads("fwd@1=3,-,2", "fwd", 2, (sl_quota[]){{NULL, 1, 3}, {NULL, 3, 2}});
  refuses("act", "must be NAME=N");
  refuses("=3", "must be NAME=N");
  refuses("@1=3", "must be NAME=N");
  refuses("act.b@=2", "the stage must be a number");
  refuses("act.b@1x=2", "the stage must be a number");
  refuses("act.b@-2=2", "the stage must be a number");
  refuses("act.b@4294967297=2", "the stage must be a number");
  refuses("act.b@1=4294967298", "slots must be a number");
  refuses("act.b=", "slots must be a number");
  refuses("act.b=2,", "slots must be a number");
  refuses("act.b=2,,1", "slots must be a number");
  refuses("act.b=-", "slots must be a number");
  refuses("act.b=2 ", "slots must be a number");
  refuses("act.b=0", "at least one slot");
  refuses("act.b=-3", "at least one slot");
}

static void names(void) {
  sl_quota both = {"act", SL_NONE, 1}, one = {"act.b", 2, 1};
  CHECK(sli_quota_names(&both, "act.b", 0) && sli_quota_names(&both, "act.w", 7), "act is both");
  CHECK(!sli_quota_names(&both, "fwd", 0) && !sli_quota_names(&both, "active", 0), "and no other");
  CHECK(sli_quota_names(&one, "act.b", 2) && !sli_quota_names(&one, "act.b", 1) &&
            !sli_quota_names(&one, "act.w", 2),
        "act.b@2 is one");
}

int main(void) {
  RUN(texts);
  RUN(names);
  return 0;
}
