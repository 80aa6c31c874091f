/* SPDX-License-Identifier: Apache-2.0 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include <ctype.h>
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

/* ---- syntax common to Python and PCRE2 ------------------------------------------------------- */

/* Tests a character after a backslash. In brackets, \b has another meaning. */
static bool is_escape(char c, bool within) {
  return c && (!isalnum((unsigned char)c) || strchr(within ? "dDsSwW" : "dDsSwWbB", c));
}

/* Returns the length of a class, brackets included, or 0 if the two interpret it differently. */
static size_t class_length(const char *at) {
  size_t n = 1 + (at[1] == '^');
  if (at[n] == ']') n++;
  for (; at[n] && at[n] != ']'; n++) {
    if (at[n] == '[') return 0;
    if (at[n] == '\\' && !is_escape(at[++n], true)) return 0;
  }
  return at[n] ? n + 1 : 0;
}

/* Returns the length of the next syntax element, or 0 if the two may interpret it differently. */
static size_t part_length(const char *at) {
  static const char *const groups[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!"};
  if (*at == '\\') return is_escape(at[1], false) ? 2 : 0;
  if (*at == '[') return class_length(at);
  if (*at == '{') return isdigit((unsigned char)at[1]) ? 1 : 0;
  if (*at != '(' || !strchr("?*", at[1]) || !at[1]) return 1;
  for (size_t i = 0; i < SLI_COUNT(groups); i++)
    if (!strncmp(at, groups[i], strlen(groups[i]))) return strlen(groups[i]);
  return 0;
}

static bool is_plain(const char *expression) {
  for (size_t n; *expression; expression += n)
    if (!(n = part_length(expression))) return false;
  return true;
}

/* ---- matching -------------------------------------------------------------------------------- */

static sl_status match(const char *where, const char *expression, const pcre2_code *code,
                       const char *text, bool *out) {
  pcre2_match_data *data = pcre2_match_data_create_from_pattern(code, NULL);
  SLI_CHECK(data, "no memory to match %s", expression);
  int found = pcre2_match(code, (PCRE2_SPTR)text, strlen(text), 0, 0, data, NULL);
  pcre2_match_data_free(data);
  *out = found >= 0;
  if (found >= 0 || found == PCRE2_ERROR_NOMATCH) return SL_OK;
  return sl_fail(SL_E_INPUT, "%s: matching %.80s against %.80s took too long (error %d)", where,
                 expression, text, found);
}

sl_status sli_regex_is(const char *where, const char *expression, const char *text, bool *out) {
  if (!is_plain(expression))
    return sl_fail(SL_E_INPUT, "%s: the regular expression %.80s has parts that are not supported",
                   where, expression);
  int error;
  size_t place;
  pcre2_code *code = pcre2_compile((PCRE2_SPTR)expression, PCRE2_ZERO_TERMINATED,
                                   PCRE2_ANCHORED | PCRE2_ENDANCHORED, &error, &place, NULL);
  if (!code) {
    char why[128] = "";
    pcre2_get_error_message(error, (PCRE2_UCHAR *)why, sizeof why);
    return sl_fail(SL_E_INPUT, "%s: %.80s is not a regular expression: %s", where, expression, why);
  }
  sl_status status = match(where, expression, code, text, out);
  pcre2_code_free(code);
  return status;
}
