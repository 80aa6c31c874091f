/* Times and names as text. */
#include "tools/actortrace/actortrace.h"

char *format_ns(char *out, double ns) {
  static const struct unit {
    double ns;
    const char *name;
  } units[] = {{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}, {1, "ns"}};
  size_t u = 0;
  while (u + 1 < SLI_COUNT(units) && ns < units[u].ns * 0.99995) u++;
  snprintf(out, 32, "%.4g %s", ns / units[u].ns, units[u].name);
  return out;
}

void put_json(FILE *out, const char *text) {
  fputc('"', out);
  for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
    if (*c == '"' || *c == '\\') fprintf(out, "\\%c", *c);
    else if (*c < 0x20 || *c == '<' || *c == '>' || *c == '&' || *c == 0x7f)
      fprintf(out, "\\u%04x", *c);
    else fputc(*c, out);
  }
  fputc('"', out);
}
