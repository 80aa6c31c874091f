/* SPDX-License-Identifier: Apache-2.0 */
/* Lookup of MODEL: a built-in, a shared object, or C source to be compiled. */
#include "tools/cli/model.h"

#include <sluice/pytorch.h>
#include <sluice/version.h>

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "io/file.h"
#include "models/models.h"
#include "base/tempdir.h"

extern char **environ;

static bool ends_with(const char *text, const char *end) {
  size_t n = strlen(text), m = strlen(end);
  return n > m && !strcmp(text + n - m, end);
}

/* ---- shared objects ------------------------------------------------------------------ */

static sl_status other_version(const char *shown, int abi) {
  enum { OLDEST = 100 }; /* 0.1.0; earlier models counted interface versions */
  if (abi < OLDEST)
    return sl_fail(SL_E_INPUT,
                   "%s was built for an earlier version than this program's, %s: rebuild it", shown,
                   sl_version());
  return sl_fail(SL_E_INPUT, "%s was built for Sluice %d.%d, and this program is %s: rebuild it",
                 shown, abi / 10000, abi / 100 % 100, sl_version());
}

static sl_status common_model_load(const char *path, const char *shown, const sl_model **out) {
  SLI_TRY(sli_file_probe(path));
  /* The loader would search its default folders for a name without a slash. */
  char *place = strchr(path, '/') ? sli_strdup(path) : sli_format("./%s", path);
  void *object = dlopen(place, RTLD_NOW | RTLD_LOCAL);
  free(place);
  if (!object) return sl_fail(SL_E_INPUT, "cannot load %s: %s", shown, dlerror());
  const sl_model *model = dlsym(object, "sl_model_export");
  if (!model)
    return sl_fail(SL_E_INPUT, "%s exports no model: add an SL_MODEL(...) at its end", shown);
  if (model->abi != SL_MODEL_ABI) return other_version(shown, model->abi);
  *out = model;
  return SL_OK;
}

/* ---- compiling ----------------------------------------------------------------------- */

enum { MAX_WORDS = 64 };

/* Finds the headers in `include` of a folder above the library or tool, both in a build tree and in
 * an installation. */
static sl_status include_folder(char **out) {
  Dl_info info;
  char place[PATH_MAX], *slash;
  if (!dladdr((const void *)sl_version, &info) || !realpath(info.dli_fname, place))
    return sl_fail(SL_E_IO, "cannot find the path of the library");
  while ((slash = strrchr(place, '/'))) {
    *slash = 0;
    char *folder = sli_format("%s/include", place),
         *probe = sli_format("%s/sluice/sluice.h", folder);
    bool there = access(probe, R_OK) == 0;
    free(probe);
    if (there) return *out = folder, SL_OK;
    free(folder);
  }
  return sl_fail(
      SL_E_INPUT,
      "cannot find the header sluice/sluice.h in an include folder above %s (Debian package libsluice-dev)",
      info.dli_fname);
}

/* Splits $CC, which may hold more than one word ("ccache gcc"). Modifies `text`. */
static int split_words(char *text, char **words) {
  int n = 0;
  for (char *word = strtok(text, " \t"); word && n < MAX_WORDS / 2; word = strtok(NULL, " \t"))
    words[n++] = word;
  return n;
}

/* Copies the environment with another TMPDIR. The caller frees the array and its first entry. */
static char **environment_in(const char *folder) {
  size_t n = 0, kept = 1;
  while (environ[n]) n++;
  char **out = sli_calloc(n + 2, sizeof *out);
  out[0] = sli_format("TMPDIR=%s", folder);
  for (size_t i = 0; i < n; i++)
    if (strncmp(environ[i], "TMPDIR=", 7)) out[kept++] = environ[i];
  return out;
}

/* Runs a program to its end, with temporary files in `folder`. *good is set if it exits with status
 * 0. This process ignores Ctrl-C meanwhile, because it still has to remove the folder. */
static sl_status run_program(char **words, const char *folder, bool *good) {
  struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
  sigaction(SIGINT, &ignore, &before);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGINT);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  char **environment = environment_in(folder);
  pid_t pid;
  int error = posix_spawnp(&pid, words[0], NULL, &attributes, words, environment), wait = 0;
  posix_spawnattr_destroy(&attributes);
  free(environment[0]);
  free(environment);
  if (!error)
    while (waitpid(pid, &wait, 0) < 0 && errno == EINTR) {}
  sigaction(SIGINT, &before, NULL);
  if (error)
    return sl_fail(SL_E_INPUT, "cannot run the compiler %s: %s (CC names another)", words[0],
                   strerror(error));
  *good = wait == 0;
  return SL_OK;
}

/* Refuses a name that begins with @. A compiler reads @FILE as a file of options, and passes the
 * base name to its subprograms, which do the same. */
static sl_status check_name(const char *source) {
  const char *slash = strrchr(source, '/'), *name = slash ? slash + 1 : source;
  SLI_TRY(sli_file_probe(source));
  if (!strchr("@-", *name) && *source != '@') return SL_OK;
  return sl_fail(SL_E_INPUT,
                 "%s: compilers read a name that begins with @ or - as options; rename the file",
                 source);
}

static sl_status compile(const char *source, const char *object, const char *folder) {
  char *include = NULL;
  sl_status status = include_folder(&include);
  if (status) return status;
  const char *cc = getenv("CC");
  char *text = sli_strdup(cc && *cc ? cc : "cc"), *flag = sli_format("-I%s", include);
  char *words[MAX_WORDS] = {0};
  int n = split_words(text, words);
  if (!n) words[n++] = "cc";
  char *rest[] = {"-std=gnu17",
                  "-O2",
                  "-g",
                  "-Wall",
                  "-Werror=implicit-function-declaration",
                  "-Werror=incompatible-pointer-types",
                  "-Werror=int-conversion",
                  "-fPIC",
                  "-shared",
                  flag,
                  "-o",
                  (char *)object,
                  (char *)source,
                  "-lm",
                  NULL};
  for (size_t i = 0; i < SLI_COUNT(rest); i++) words[n + (int)i] = rest[i];
  bool good = false;
  status = run_program(words, folder, &good);
  if (!status && !good) status = sl_fail(SL_E_INPUT, "compiling %s failed", source);
  free(flag);
  free(text);
  free(include);
  return status;
}

static sl_status compile_and_load(const char *source, const sl_model **out) {
  sli_tempdir place;
  sl_status status = check_name(source);
  if (!status) status = sli_tempdir_open(NULL, &place);
  if (status) return status;
  char *object = sli_tempdir_path(&place, "model.so");
  status = compile(source, object, place.folder);
  if (!status) status = common_model_load(object, source, out);
  free(object);
  sli_tempdir_close(&place); /* a loaded object stays loaded */
  return status;
}

/* ---- exported programs --------------------------------------------------------------- */

/* Programs stay open for the life of the process. */
static struct {
  sl_exported **items;
  size_t count, capacity;
} programs;

static sl_status open_exported(const char *path, const sl_model **out) {
  SLI_GROW(programs.items, programs.count, programs.capacity);
  sl_exported **program = &programs.items[programs.count];
  sl_status status = sl_exported_open(path, program);
  if (status) return status;
  programs.count++;
  *out = sl_exported_model(*program);
  return SL_OK;
}

/* ---- names --------------------------------------------------------------------------- */

/* Returns whether a word can only be the name of a file. */
static bool is_path(const char *word) { return strchr(word, '/') || strchr(word, '.'); }

static sl_status unknown_model(const char *word, const char *commands) {
  enum { MOST = 32 };
  const char *names[MOST + 1] = {0};
  char list[256] = "", *others = sli_strdup(commands ? commands : ""), *rest = NULL;
  size_t at = 0;
  int n = 0;
  for (; sli_models[n] && n < MOST; n++) {
    names[n] = sli_models[n]->name;
    at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", n ? ", " : "", names[n]);
  }
  for (char *c = strtok_r(others, " ", &rest); c && n < MOST; c = strtok_r(NULL, " ", &rest))
    names[n++] = c;
  const char *near = sli_nearest(names, word);
  sl_status status = SL_E_USAGE;
  if (is_path(word) && access(word, F_OK)) status = sl_fail(SL_E_INPUT, "%s: no such file", word);
  else if (near) sl_fail(status, "unknown model %s; did you mean %s?", word, near);
  else sl_fail(status, "unknown model %s: must be one of %s, or a FILE.c or FILE.so", word, list);
  free(others);
  return status;
}

static const sl_model *find_shipped(const char *word) {
  for (const sl_model *const *m = sli_models; *m; m++)
    if (!strcmp((*m)->name, word)) return *m;
  return NULL;
}

bool model_has_weights(const char *word) { return ends_with(word, ".pt2"); }

bool model_is_shipped(const char *word) { return find_shipped(word); }

sl_status model_find(const char *word, const char *commands, const sl_model **out) {
  if (ends_with(word, ".c")) return compile_and_load(word, out);
  if (ends_with(word, ".so")) return common_model_load(word, word, out);
  if (ends_with(word, ".pt2")) return open_exported(word, out);
  *out = find_shipped(word);
  return *out ? SL_OK : unknown_model(word, commands);
}
