/* SPDX-License-Identifier: Apache-2.0 */
/* Grammars in llama.cpp's notation accept exactly their texts, with empty and recursive rules;
 * wrong grammars are refused with the line.
 * labels: smoke */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "text/grammar/grammar.h"
#include "tests/support/test.h"

enum { BYTES = 256, END = BYTES, WORDS = BYTES / 32 + 1 };

static const char *byte_of(void *ctx, int32_t token, size_t *bytes) {
  static char text[1];
  (void)ctx;
  text[0] = (char)token;
  *bytes = token < BYTES;
  return text;
}

static bool has(const uint32_t *bits, int32_t token) { return bits[token / 32] >> token % 32 & 1; }

static bool takes(sli_grammar *g, const char *text) {
  uint32_t bits[WORDS];
  sli_guide *guide = sli_guide_create(g, &(int32_t){END}, 1);
  bool good = true, over = false;
  for (; good && *text; text++) {
    memset(bits, 0, sizeof bits);
    good = !over && sli_guide_allow(guide, bits) && has(bits, (unsigned char)*text);
    if (good) over = sli_guide_take(guide, (unsigned char)*text);
  }
  memset(bits, 0, sizeof bits);
  good = good && (over || (sli_guide_allow(guide, bits) && has(bits, END)));
  sli_guide_destroy(guide);
  return good;
}

static const char sums[] =
    "root  ::= sum \"=\" ws term \"\\n\"  # a comment\n"
    "sum   ::= term ([-+*/] term)*\n"
    "term  ::= ident | num | \"(\" ws sum \")\" ws\n"
    "ident ::= [a-z] [a-z0-9_]* ws\n"
    "num   ::= [0-9]+ ws\n"
    "ws    ::= ([ \\t] ws)?\n";
static const char list[] = "root ::= (\"- \" [^\\r\\n\\x0b\\u2028]+ \"\\n\"){2,3}";
static const char empty[] =
    "root ::= a b a\na ::= \"x\"*\nb ::= | \"(\" root \")\" |\n \"[\" \"x\"{0,2} \"]\"";

static const struct {
  const char *grammar, *text;
  bool takes;
} table[] = {{sums, "a +(3 *b_2)/4 =  x\n", true},
             {sums, "a=(1)\n", true},
             {sums, "a=\n", false},
             {sums, "(a=1\n", false},
             {sums, "A=1\n", false},
             {list, "- a\n- K\xc3\xb6ln \"x\"\n", true},
             {list, "- a\n", false},
             {list, "- a\n- b\n- c\n- d\n", false},
             {list, "- a\n- \xe2\x80\xa8\n", false},
             {empty, "", true},
             {empty, "xx", true},
             {empty, "x(x[xx]())x", false},
             {empty, "x(x(x[xx])xx)x", true},
             {empty, "[xxx]", false},
             {"root ::= \"a\\\"\\\\\\u00e4\" .{2}", "a\"\\\xc3\xa4\xc3\xa4z", true},
             {"root ::= \"a\\\"\\\\\\u00e4\" .{2}", "a\"\\\xc3\xa4z", false}};

static const struct {
  const char *grammar, *says;
} wrong[] = {{"root ::= \"a\n", "line 2: a string is not closed"},
             {"root ::= x\n", "no rule x"},
             {"a ::= \"x\"\n", "no rule root"},
             {"root ::= (\"a\"\n", "a bracket is not closed"},
             {"root ::= \"a\"\nroot ::= \"b\"\n", "line 2: the rule is defined twice"},
             {"root ::= \"a\" )", "line 1: expected a rule"},
             {"root ::= \"\\q\"", "unknown escape"},
             {"root ::= [a-z", "is not closed"},
             {"root ::= \"a\"{x}", "repetition"}};

/* The making of a grammar ends soon after nobody waits for it. */
static void it_can_be_stopped(const sli_token_trie *tokens) {
  const atomic_bool stop = true;
  sli_grammar *g = sli_grammar_create(NULL);
  sli_grammar_stop_at(g, &stop);
  CHECK(sli_grammar_seal(g, sli_grammar_gbnf(g, "root ::= \"a\"{1,900}"), tokens) == SL_E_STOPPED,
        "%s", sl_detail());
  sli_grammar_destroy(g);
}

int main(void) {
  sli_token_trie *tokens = sli_token_trie_create(BYTES + 1, byte_of, NULL);
  for (size_t i = 0; i < SLI_COUNT(table); i++) {
    sli_grammar *g = sli_grammar_create(NULL);
    sl_status status = sli_grammar_seal(g, sli_grammar_gbnf(g, table[i].grammar), tokens);
    CHECK(!status, "%s: %s", table[i].grammar, sl_detail());
    CHECK(takes(g, table[i].text) == table[i].takes, "%s\n  %s: %s", table[i].grammar,
          table[i].takes ? "does not take" : "takes", table[i].text);
    sli_grammar_destroy(g);
  }
  for (size_t i = 0; i < SLI_COUNT(wrong); i++) {
    sli_grammar *g = sli_grammar_create(NULL);
    sl_status status = sli_grammar_seal(g, sli_grammar_gbnf(g, wrong[i].grammar), tokens);
    CHECK(status == SL_E_USAGE && strstr(sl_detail(), wrong[i].says), "%s: %s", wrong[i].grammar,
          sl_detail());
    sli_grammar_destroy(g);
  }
  RUN(it_can_be_stopped, tokens);
  sli_token_trie_destroy(tokens);
  return 0;
}
