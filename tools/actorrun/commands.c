/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/actorrun/commands.h"

#include <string.h>

#include "base/base.h"
#include "tools/actorrun/ctl/ctl.h"

enum { MOST_WORDS = 4 };

static const struct command {
  const char *name;
  int (*run)(int argc, char **argv); /* NULL: short for `words` */
  const char *words[MOST_WORDS];
} commands[] = {{"plan", NULL, {"--dry-run"}},
                {"sbp", NULL, {"--show-sbp"}},
                {"place", NULL, {"--show-placement"}},
                {"data", NULL, {"--show-data"}},
                {"generate", NULL, {"--steps", "0", "--generate", "256"}},
                {"train", NULL, {NULL}},
                {"status", status_main, {NULL}},
                {"ctl", client_main_ctl, {NULL}}};

static const struct command *find(int argc, char **argv) {
  for (size_t i = 0; i < SLI_COUNT(commands); i++)
    if (argc > 1 && !strcmp(argv[1], commands[i].name)) return &commands[i];
  return NULL;
}

bool commands_run(int argc, char **argv, int *exit_status) {
  const struct command *command = find(argc, argv);
  if (!command || !command->run) return false;
  *exit_status = command->run(argc - 2, argv + 2);
  return true;
}

char **commands_expand(int *argc, char **argv) {
  const struct command *command = find(*argc, argv);
  char **out = sli_calloc((size_t)*argc + MOST_WORDS + 1, sizeof *out);
  int n = 0;
  out[n++] = argv[0];
  for (int i = 0; command && i < MOST_WORDS && command->words[i]; i++)
    out[n++] = (char *)command->words[i];
  for (int i = command ? 2 : 1; i < *argc; i++) out[n++] = argv[i];
  *argc = n;
  return out;
}
