/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/toml.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

namespace {

struct row {
  std::string key, text;
  const char *table;
  toml_kind kind;
  bool listed;
  int line;
};

int line_of(const toml::node &node) { return static_cast<int>(node.source().begin.line); }

row read_value(const toml::node &node) {
  row r{};
  r.kind = TOML_OTHER;
  r.line = line_of(node);
  char digits[40] = "";
  if (const auto *text = node.as_string()) {
    r.kind = TOML_TEXT;
    r.text = text->get();
  } else if (const auto *number = node.as_integer()) {
    r.kind = TOML_INT;
    r.text = std::to_string(number->get());
  } else if (const auto *real = node.as_floating_point()) {
    r.kind = TOML_FLOAT;
    snprintf(digits, sizeof digits, "%.17g", real->get());
    r.text = digits;
  } else if (const auto *flag = node.as_boolean()) {
    r.kind = TOML_FLAG;
    r.text = flag->get() ? "1" : "0";
  }
  return r;
}

void add(std::vector<row> &rows, const char *table, const toml::key &key, const toml::node &node,
         bool listed) {
  row r = read_value(node);
  r.table = table;
  r.key = std::string(key.str());
  r.listed = listed;
  r.line = r.line ? r.line : static_cast<int>(key.source().begin.line);
  rows.push_back(r);
}

void add_table(std::vector<row> &rows, const char *name, const toml::table &table) {
  for (const auto &[key, node] : table) {
    const toml::table *inner = name ? nullptr : node.as_table();
    const toml::array *array = node.as_array();
    if (inner) add_table(rows, key.data(), *inner);
    else if (array)
      for (const toml::node &item : *array) add(rows, name, key, item, true);
    else add(rows, name, key, node, false);
  }
}

} // namespace

sl_status toml_read(const char *path, const char *text, size_t bytes, toml_reader *read,
                    void *ctx) {
  toml::parse_result parsed = toml::parse(std::string_view(text, bytes));
  if (!parsed) {
    const toml::parse_error &error = parsed.error();
    return sl_fail(SL_E_INPUT, "%s:%d: %.200s", path, static_cast<int>(error.source().begin.line),
                   std::string(error.description()).c_str());
  }
  std::vector<row> rows;
  add_table(rows, nullptr, parsed.table());
  std::stable_sort(rows.begin(), rows.end(),
                   [](const row &a, const row &b) { return a.line < b.line; });
  sl_status status = SL_OK;
  for (size_t i = 0; i < rows.size() && !status; i++) {
    const row &r = rows[i];
    if (r.key.find('\0') != std::string::npos || r.text.find('\0') != std::string::npos)
      return sl_fail(SL_E_INPUT, "%s:%d: %s: the string has a zero byte", path, r.line,
                     r.key.c_str());
    const toml_value value = {r.table, r.key.c_str(), r.kind, r.text.c_str(), r.listed, r.line};
    status = read(ctx, &value);
  }
  return status;
}
