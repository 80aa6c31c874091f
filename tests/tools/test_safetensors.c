/* SPDX-License-Identifier: Apache-2.0 */
/* Weight files: written files read back, foreign types are converted, and any damage produces an
 * error message.
 * labels: random unthreaded */
#include "io/safetensors.h"

#include <glob.h>
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

static char path[64], temporary[96];

static void write_bytes(const void *bytes, size_t count) {
  FILE *file = fopen(path, "wb");
  CHECK(file && fwrite(bytes, 1, count, file) == count && fclose(file) == 0, "cannot write %s",
        path);
}

/* Writes a file with this header and `data_bytes` bytes 0, 1, 2, ... of data. */
static void write_file(const char *header, size_t data_bytes) {
  size_t n = strlen(header);
  unsigned char *bytes = sli_calloc(8 + n + data_bytes, 1);
  for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)((uint64_t)n >> 8 * i);
  memcpy(bytes + 8, header, n);
  for (size_t i = 0; i < data_bytes; i++) bytes[8 + n + i] = (unsigned char)i;
  write_bytes(bytes, 8 + n + data_bytes);
  free(bytes);
}

static void check_refused(const char *what, const char *word) {
  sli_safetensors *file = NULL;
  sl_status status = sli_safetensors_open(path, &file);
  CHECK(status == SL_E_INPUT, "%s is refused, not %s", what, sl_status_text(status));
  CHECK(strstr(sl_detail(), path), "%s: the text names the file: %s", what, sl_detail());
  CHECK(strstr(sl_detail(), word), "%s: the text has \"%s\": %s", what, word, sl_detail());
}

static void what_is_written_is_read_back(void) {
  float a[6] = {1, -2, 3.5f, 0, INFINITY, 1e-40f}, b = 7;
  sli_tensor_data tensors[] = {{"first.weight", 2, (int64_t[]){2, 3}, a, NULL},
                               {"a \"quoted\" name", 0, NULL, &b, NULL},
                               {"empty", 1, (int64_t[]){0}, NULL, NULL}};
  CHECK(!sli_safetensors_write(path, tensors, 3), "writing: %s", sl_detail());
  FILE *raw = fopen(path, "rb");
  unsigned char head[9] = {0};
  CHECK(raw && fread(head, 1, 9, raw) == 9 && fclose(raw) == 0, "the file has a head");
  CHECK(head[0] % 8 == 0 && head[8] == '{', "data start at a multiple of 8");
  sli_safetensors *file;
  CHECK(!sli_safetensors_open(path, &file), "reading: %s", sl_detail());
  CHECK(sli_safetensors_count(file) == 3, "there are 3 tensors");
  const sli_stored_tensor *t = sli_safetensors_find(file, "first.weight");
  CHECK(t && t->ndim == 2 && t->dim[0] == 2 && t->dim[1] == 3 && t->elements == 6, "the shape");
  float back[6];
  CHECK(!sli_safetensors_read(file, t, back) && !memcmp(a, back, sizeof a), "the values");
  t = sli_safetensors_find(file, "a \"quoted\" name");
  CHECK(t && t->ndim == 0 && !sli_safetensors_read(file, t, back) && back[0] == 7, "a scalar");
  CHECK(!sli_safetensors_find(file, "nobody"), "what is not there is not found");
  sli_safetensors_close(file);
}

/* ---- values that arrive one after another ---------------------------------------------- */

static const float pair[2][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}};
static const sli_tensor_data two[] = {{"a", 1, (int64_t[]){4}, pair[0], NULL},
                                      {"b", 2, (int64_t[]){2, 2}, pair[1], NULL}};

static sl_status give(void *ctx, int index, const float **out) {
  *out = pair[index];
  return index == *(int *)ctx ? sl_fail(SL_E_DEVICE, "no value %d", index) : SL_OK;
}

static void check_is_two(const char *what) {
  sli_safetensors *file;
  CHECK(!sli_safetensors_open(path, &file), "%s: %s", what, sl_detail());
  CHECK(sli_safetensors_count(file) == 2 && sli_safetensors_from(file, "aa") == 1 &&
            sli_safetensors_from(file, "c") == 2,
        "%s: the tensors are in order", what);
  for (int i = 0; i < 2; i++) {
    float back[4];
    CHECK(!sli_safetensors_read(file, sli_safetensors_at(file, i), back) &&
              !memcmp(back, pair[i], sizeof back),
          "%s: values of tensor %d", what, i);
  }
  sli_safetensors_close(file);
}

static void values_may_come_one_after_another(void) {
  sli_tensor_data asked[] = {two[0], two[1]};
  asked[1].data = NULL;
  int fails = 1;
  unlink(path);
  CHECK(
      sli_safetensors_write_each(path, asked, 2, give, &fails) == SL_E_DEVICE && access(path, F_OK),
      "nothing is written when a value cannot be had");
  fails = -1;
  CHECK(!sli_safetensors_write_each(path, asked, 2, give, &fails), "writing: %s", sl_detail());
  check_is_two("one after another");
}

static void parts_make_one_file(void) {
  char parts[80];
  snprintf(parts, sizeof parts, "%s.parts", path);
  unlink(path);
  sli_tensor_parts *first, *second;
  CHECK(sli_safetensors_open_parts(parts, two, 2, &first) == SL_E_IO && strstr(sl_detail(), parts),
        "one has to begin it: %s", sl_detail());
  CHECK(!sli_safetensors_begin_parts(parts, two, 2), "%s", sl_detail());
  CHECK(!sli_safetensors_open_parts(parts, two, 2, &first), "%s", sl_detail());
  CHECK(!sli_safetensors_open_parts(parts, two, 2, &second), "%s", sl_detail());
  sli_safetensors_write_part(first, 0, 0, 3, pair[0]);
  sli_safetensors_write_part(second, 1, 1, 3, pair[1] + 1);
  sli_safetensors_write_part(second, 0, 3, 1, pair[0] + 3);
  sli_safetensors_write_part(first, 1, 0, 1, pair[1]);
  CHECK(!sli_safetensors_close_parts(first) && !sli_safetensors_close_parts(second), "%s",
        sl_detail());
  CHECK(!sli_safetensors_end_parts(parts, path), "%s", sl_detail());
  check_is_two("parts");
}

static void half_types_are_converted(void) {
  write_file(
      "{\"h\":{\"dtype\":\"F16\",\"shape\":[6],\"data_offsets\":[0,12]},"
      "\"b\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[12,18]}}",
      18);
  uint16_t bits[9] = {0x3c00, 0xc000, 0x0001, 0x7bff, 0xfc00, 0x03ff, 0x3f80, 0xc040, 0x0001};
  FILE *file = fopen(path, "r+b");
  CHECK(file && fseek(file, -18, SEEK_END) == 0 && fwrite(bits, 1, 18, file) == 18 &&
            fclose(file) == 0,
        "patching");
  float want_h[6] = {1, -2, 0x1p-24f, 65504, -INFINITY, 0x3ffp-24f}, got[6];
  float want_b[3] = {1, -3, 0x1p-133f};
  sli_safetensors *f;
  CHECK(!sli_safetensors_open(path, &f), "opening: %s", sl_detail());
  CHECK(!sli_safetensors_read(f, sli_safetensors_find(f, "h"), got), "reading F16");
  for (int i = 0; i < 6; i++) CHECK(got[i] == want_h[i], "F16 %d: %g", i, (double)got[i]);
  CHECK(!sli_safetensors_read(f, sli_safetensors_find(f, "b"), got), "reading BF16");
  for (int i = 0; i < 3; i++) CHECK(got[i] == want_b[i], "BF16 %d: %g", i, (double)got[i]);
  sli_safetensors_close(f);
  write_file("{\"i\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8);
  CHECK(!sli_safetensors_open(path, &f), "integers may be in a file");
  CHECK(sli_safetensors_read(f, sli_safetensors_at(f, 0), got) == SL_E_INPUT &&
            strstr(sl_detail(), "I32"),
        "but are not read as numbers: %s", sl_detail());
  sli_safetensors_close(f);
}

static void each_damage_has_its_message(void) {
#define T(shape, begin, end) \
  "{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"
  static const struct {
    const char *what, *header;
    size_t data;
    const char *word;
  } cases[] = {
      {"a missing end", "{\"a\":" T("[4]", "0", "16") "}", 12, "truncated: tensor a"},
      {"an overlap", "{\"a\":" T("[2]", "0", "8") ",\"b\":" T("[2]", "4", "12") "}", 12,
       "a and b overlap"},
      {"a gap", "{\"a\":" T("[1]", "0", "4") ",\"b\":" T("[1]", "8", "12") "}", 12,
       "before tensor b"},
      {"bytes too many", "{\"a\":" T("[1]", "0", "4") "}", 12, "8 bytes at the end"},
      {"a wrong size", "{\"a\":" T("[3]", "0", "8") "}", 8, "tensor a is F32[3] but has 8 bytes"},
      {"a doubled name", "{\"a\":" T("[1]", "0", "4") ",\"a\":" T("[1]", "4", "8") "}", 8,
       "tensor a appears twice"},
      {"a negative size", "{\"a\":" T("[-1]", "0", "4") "}", 4, "impossible shape"},
      {"a fraction", "{\"a\":" T("[1.5]", "0", "4") "}", 4, "impossible shape"},
      {"a size that overflows", "{\"a\":" T("[4294967296,4294967296,4294967296]", "0", "0") "}", 0,
       "impossible shape"},
      {"bytes that overflow", "{\"a\":" T("[4611686018427387904]", "0", "0") "}", 0, "tensor a"},
      {"offsets backwards", "{\"a\":" T("[1]", "4", "0") "}", 4, "impossible data_offsets"},
      {"no dtype", "{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "no dtype"},
      {"no shape", "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "no shape"},
      {"no object", "{\"a\":3}", 0, "not an object"},
      {"no JSON", "{\"a\":", 0, "not a JSON object"},
      {"an array", "[]", 0, "not a JSON object"},
      {"more than JSON", "{} x", 0, "goes on"},
      {"nine dimensions", "{\"a\":" T("[1,1,1,1,1,1,1,1,1]", "0", "4") "}", 4, "more than 8"},
  };
#undef T
  for (size_t i = 0; i < SLI_COUNT(cases); i++) {
    write_file(cases[i].header, cases[i].data);
    check_refused(cases[i].what, cases[i].word);
  }
  write_bytes("1234", 4);
  check_refused("a tiny file", "only 4 bytes");
  write_bytes("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10);
  check_refused("an absurd header length", "header of 9223372036854775807");
  write_bytes("\x20\0\0\0\0\0\0\0{}", 10);
  check_refused("a header cut short", "truncated");
  unlink(path);
  check_refused("a missing file", "No such file");
}

/* Random bytes yield either a file or an error message. */
static void random_damage_never_crashes(void) {
  float values[64] = {0};
  sli_tensor_data tensors[] = {{"a", 2, (int64_t[]){4, 8}, values, NULL},
                               {"b.c", 1, (int64_t[]){32}, values, NULL}};
  CHECK(!sli_safetensors_write(path, tensors, 2), "writing: %s", sl_detail());
  unsigned char good[2048], bad[2048];
  FILE *raw = fopen(path, "rb");
  size_t count = raw ? fread(good, 1, sizeof good, raw) : 0;
  CHECK(count > 256 && fclose(raw) == 0, "the file was read");
  srand(1);
  int opened = 0, rounds = 4000 * (int)seeds_times();
  for (int round = 0; round < rounds; round++) {
    memcpy(bad, good, count);
    size_t n = rand() % 4 ? count : (size_t)rand() % count;
    for (int k = rand() % 4; k >= 0; k--)
      bad[(size_t)rand() % (count - 256 + 8)] = (unsigned char)rand();
    write_bytes(bad, n);
    sli_safetensors *file = NULL;
    if (sli_safetensors_open(path, &file)) continue;
    opened++;
    for (int i = 0; i < sli_safetensors_count(file); i++) {
      const sli_stored_tensor *t = sli_safetensors_at(file, i);
      float *out = sli_calloc(t->elements, sizeof *out);
      if (sli_safetensors_read(file, t, out)) CHECK(*sl_detail(), "a refusal has a text");
      free(out);
    }
    sli_safetensors_close(file);
  }
  CHECK(opened < rounds, "some damage is found");
}

static void a_full_disk_leaves_the_old_file(void) {
  float small[4] = {1, 2, 3, 4};
  static float large[1 << 16];
  sli_tensor_data old = {"old", 1, (int64_t[]){4}, small, NULL};
  sli_tensor_data new = {"new", 1, (int64_t[]){1 << 16}, large, NULL};
  CHECK(!sli_safetensors_write(path, &old, 1), "writing: %s", sl_detail());
  struct rlimit limit, none;
  getrlimit(RLIMIT_FSIZE, &none);
  limit = none;
  limit.rlim_cur = 4096;
  signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &limit);
  sl_status status = sli_safetensors_write(path, &new, 1);
  setrlimit(RLIMIT_FSIZE, &none);
  CHECK(status == SL_E_IO && strstr(sl_detail(), path), "it fails and says where: %s", sl_detail());
  sli_safetensors *file;
  CHECK(!sli_safetensors_open(path, &file) && sli_safetensors_find(file, "old"),
        "the old file is whole");
  sli_safetensors_close(file);
  glob_t left;
  CHECK(glob(temporary, 0, NULL, &left) == GLOB_NOMATCH, "no temporary is left");
  CHECK(sli_safetensors_write("/dev/full", &new, 1) == SL_E_IO &&
            strstr(sl_detail(), "No space left"),
        "a full device is said to be full: %s", sl_detail());
  CHECK(sli_safetensors_write("/nowhere/at/all", &old, 1) == SL_E_IO &&
            strstr(sl_detail(), "/nowhere/at/all"),
        "a missing folder is named: %s", sl_detail());
  CHECK(sli_safetensors_write("/", &old, 1) == SL_E_IO, "a folder is not written to");
}

static void links_and_modes_are_kept(void) {
  float value = 1;
  sli_tensor_data t = {"t", 1, (int64_t[]){1}, &value, NULL};
  char link[96];
  snprintf(link, sizeof link, "%s.link", path);
  CHECK(!sli_safetensors_write(path, &t, 1) && chmod(path, 0640) == 0, "writing");
  CHECK(symlink(path, link) == 0, "linking");
  CHECK(!sli_safetensors_write(link, &t, 1), "writing through a link: %s", sl_detail());
  struct stat info;
  CHECK(lstat(link, &info) == 0 && S_ISLNK(info.st_mode), "the link is still one");
  CHECK(stat(path, &info) == 0 && (info.st_mode & 0777) == 0640, "the mode is kept");
  unlink(link);
}

int main(void) {
  const char *folder = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"; /* the faster one */
  snprintf(path, sizeof path, "%s/sluice-test-%ld.safetensors", folder, (long)getpid());
  snprintf(temporary, sizeof temporary, "%s.tmp.*", path);
  RUN(what_is_written_is_read_back);
  RUN(values_may_come_one_after_another);
  RUN(parts_make_one_file);
  RUN(half_types_are_converted);
  RUN(each_damage_has_its_message);
  RUN(random_damage_never_crashes);
  RUN(a_full_disk_leaves_the_old_file);
  RUN(links_and_modes_are_kept);
  unlink(path);
  return 0;
}
