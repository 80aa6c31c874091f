/* SPDX-License-Identifier: Apache-2.0 */
/* Formats of strings, as patterns. */
#include <string.h>

#include "text/grammar/schema.h"

#define YEAR "(000[1-9]|00[1-9]\\d|0[1-9]\\d\\d|[1-9]\\d{3})"
#define LEAP_YEAR "(\\d\\d(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
#define DATE                                                                   \
  "(" YEAR                                                                     \
  "-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|" \
  "02-(0[1-9]|1\\d|2[0-8]))|" LEAP_YEAR "-02-29)"
#define TIME "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d+)?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define HOST LABEL "(\\." LABEL ")*"
#define ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
#define BYTE "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4 BYTE "(\\." BYTE "){3}"
#define HEX "[0-9A-Fa-f]"
#define H16 HEX "{1,4}"
#define LAST32 "(" H16 ":" H16 "|" IPV4 ")"
#define IPV6                                                                                      \
  "((" H16 ":){6}" LAST32 "|::(" H16 ":){5}" LAST32 "|(" H16 ")?::(" H16 ":){4}" LAST32 "|((" H16 \
  ":){0,1}" H16 ")?::(" H16 ":){3}" LAST32 "|((" H16 ":){0,2}" H16 ")?::(" H16 ":){2}" LAST32     \
  "|((" H16 ":){0,3}" H16 ")?::" H16 ":" LAST32 "|((" H16 ":){0,4}" H16 ")?::" LAST32 "|((" H16   \
  ":){0,5}" H16 ")?::" H16 "|((" H16 ":){0,6}" H16 ")?::)"
#define CHARACTER "([A-Za-z0-9._~!$&'()*+,;=:@-]|%" HEX "{2})"

static const struct {
  const char *name, *pattern;
} formats[] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE "T" TIME},
    {"duration",
     "P(\\d+W|(\\d+Y(\\d+M(\\d+D)?)?|\\d+M(\\d+D)?|\\d+D)(T(\\d+H(\\d+M(\\d+S)?)?|\\d+M(\\d+S)?|"
     "\\d+S))?|T(\\d+H(\\d+M(\\d+S)?)?|\\d+M(\\d+S)?|\\d+S))"},
    {"email", ATOM "(\\." ATOM ")*@" HOST},
    {"hostname", HOST},
    {"ipv4", IPV4},
    {"ipv6", IPV6},
    {"uuid", HEX "{8}-" HEX "{4}-" HEX "{4}-" HEX "{4}-" HEX "{12}"},
    {"uri", "[A-Za-z][A-Za-z0-9+.-]*:(//" HOST "(:\\d{1,5})?(/" CHARACTER "*)*|" CHARACTER
            "+(/" CHARACTER "*)*)(\\?(" CHARACTER "|[/?])*)?(#(" CHARACTER "|[/?])*)?"}};

sli_chars *sli_format_chars(sli_grammar *g, const char *format) {
  for (size_t i = 0; i < SLI_COUNT(formats); i++)
    if (!strcmp(format, formats[i].name))
      return sli_chars_of_regex(g, NULL, formats[i].pattern, false);
  return NULL;
}
