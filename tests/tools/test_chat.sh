#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --chat generates the same text as --generate does from the rendered chat template, up to the mark
# that ends an answer. Unknown or misplaced input is rejected with an error that names it.
# labels: outside
# needs: pcre2
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

small=(--layers 1 --width 16 --heads 2 --vocab 700 --context 128)
ends 0 "$actorrun" --quiet --steps 10 --tokenizer "$reference/tokenizers/smollm.json" --save model/ llama \
  --data "$reference/text.txt" "${small[@]}" --lr 1e-2 --warmup 0
cp "$reference/tokenizers/smollm.json" model/tokenizer.json

# template NAME: gives the model the template of that name.
template() {
  python3 - "$reference/chats.json" "$1" >model/tokenizer_config.json <<'PY'
import json, sys
row = next(t for t in json.load(open(sys.argv[1]))["templates"] if t["name"] == sys.argv[2])
print(json.dumps({"bos_token": {"content": row["begin"]}, "eos_token": row["end"], "chat_template": row["template"]}))
PY
}
writes() { ends 0 "$actorrun" --quiet --init model --steps 0 --generate 6 --temperature 0 "$@" llama; }

# answered TEXT WORDS...: the output for WORDS has to equal what the model writes after TEXT.
answered() {
  writes --prompt "$1"
  cp out whole
  shift
  writes "$@"
  python3 - whole out <<'PY' || fail "$*: another answer than to the text"
import sys
whole, answer = (open(path, "rb").read() for path in sys.argv[1:])
sys.exit(not (whole.endswith(answer) and len(answer) > 1 and len(answer) < len(whole)))
PY
}
template chatml
answered $'<|im_start|>user\nHello 12<|im_end|>\n<|im_start|>assistant\n' --chat "Hello 12"
answered $'<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n' \
  --chat-system "Be brief." --chat a --chat b --chat c
answered $'<|user|>\nHello<|im_end|>\n<|assistant|>\n' --chat Hello --chat-template zephyr
printf '{{ messages[0].content | upper }}>' >own.jinja
answered "HELLO>" --chat Hello --chat-template own.jinja
template smollm2
answered $'<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n' \
  --chat Hi
python3 -c 'import json; print(json.load(open("model/tokenizer_config.json"))["chat_template"])' >model/chat_template.jinja
template llama3
writes --chat Hi
cp out first
rm model/chat_template.jinja
template smollm2
writes --chat Hi
cmp out first || fail "a template in a file of its own goes before"

# Custom templates are rendered; the error shows what a template says when it raises an exception.
python3 - <<'PY'
import json
config = json.load(open("model/tokenizer_config.json"))
config["pad_token"] = {"content": "<p>"}
config["chat_template"] = ("{{bos_token}}{{ pad_token }}{{ unk_token }}{% for m in messages %}{% if m.content == 'no' %}{{ raise_exception('not ' + m.content) }}{% endif %}"
                           "<{{ m.role[0] }}>{{ m.content | trim }}{% endfor %}<a>")
json.dump(config, open("model/tokenizer_config.json", "w"))
PY
begin=$(python3 -c 'import json; print(json.load(open("model/tokenizer_config.json"))["bos_token"]["content"])')
answered "$begin<p><s>brief<u>Hi<a>" --chat " Hi " --chat-system brief
ends 2 "$actorrun" --quiet --steps 0 --init model --generate 4 --chat no llama
grep -qF "chat template of the model: it says: not no" err || fail "what a template says is told"

# The answer ends at the template's end mark, here one that the model would write first.
template llama2
writes --chat Hello --generate 1
python3 - out <<'PY' || fail "the first token is a text"
import json, sys
config, text = json.load(open("model/tokenizer_config.json")), open(sys.argv[1]).read()[:-1]
config["eos_token"] = text
json.dump(config, open("model/tokenizer_config.json", "w"))
sys.exit(not text)
PY
writes --chat Hello
[[ $(<out) == "" ]] || fail "nothing is written behind the end: $(<out)"

# refused NAMED WORDS...: actorrun has to reject WORDS with an error that contains NAMED.
refused() {
  local named=$1
  shift
  ends 2 "$actorrun" --quiet --steps 0 "$@"
  grep -qF -- "$named" err || fail "the message names $named"
}
chat=(--init model --generate 4 --chat hi)
refused "--chat-template klingon: must be a file, or one of chatml, " "${chat[@]}" --chat-template klingon llama
refused "chat template mistral: it says: it has no system messages" "${chat[@]}" --chat-template mistral --chat-system x llama
template smollm2
refused "tokens leave no room for an answer in a context of 16" "${chat[@]}" llama --context 16
refused "--prompt: cannot be combined with --chat" "${chat[@]}" --prompt x llama
refused "--chat-system: needs --chat TEXT" --init model --generate 4 --chat-system x llama
refused "--chat: needs --generate N, the maximum length of the answer" --init model --chat hi llama
refused "give --tokenizer FILE" --init "$reference/hf_llama" --generate 4 --chat hi llama
sed -i "s/endif %}{{'<|im_start/endif %}{{ x | frobnicate }}{{'<|im_start/" model/tokenizer_config.json
refused "has a chat template that is not understood, line 1 of the template: filter \"frobnicate\" is not known; --chat-template NAME" \
  "${chat[@]}" llama
rm model/tokenizer_config.json
refused "has no chat template; --chat-template NAME" "${chat[@]}" llama
