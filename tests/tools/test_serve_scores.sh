#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# /v1/completions with echo and logprobs returns the log-probabilities of a prompt's tokens: those
# of actorrun --logprobs, with --exact bit for bit, however a prompt is cut into ticks.
# lm-evaluation-harness scores by them, if SLUICE_LM_EVAL_PYTHON names a python3 that has it.
# labels: numbers
# needs: libevent pcre2
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

mkdir model
size=(llama --layers 2 --width 32 --heads 4 --kv-heads 2 --vocab 700 --positions 128)
ends 0 "$actorrun" --quiet --steps 20 --save model/ "${size[@]}" --tokenizer "$reference/tokenizers/smollm.json" \
  --data "$reference/text.txt" --context 64 --batch 4 --lr 1e-2 --warmup 0
cp "$reference/tokenizers/smollm.json" model/tokenizer.json
echo '{"eos_token": "<|endoftext|>", "tokenizer_class": "PreTrainedTokenizerFast"}' >model/tokenizer_config.json

# score TOKENS...: prints the log-probability of each token given those before it, as --logprobs has it.
score() {
  python3 -c 'import array, sys; array.array("H", map(int, sys.argv[1:])).tofile(open("row.u16", "wb"))' "$@"
  ends 0 "$actorrun" --exact --quiet --init model --steps 1 --logprobs row.jsonl llama --data row.u16 --context $(($# - 1)) --batch 1
  cat row.jsonl
}
read -ra tokens < <(python3 -c 'print(*[(i * i * 7 + 13 * i) % 690 + 3 for i in range(90)])')
score "${tokens[@]}" >whole.jsonl
score "${tokens[@]:0:2}" >two.jsonl

for options in "--exact" "--rows 16 --sequences 4" "--exact --stages 2 --rows 32" "--exact --sequences 2 --rows 7 --speculate ngram"; do
  [[ $options == --exact* ]] && how=exact || how=near
  # shellcheck disable=SC2086
  background "$bin/actorserve" --port 0 $options model
  until [[ -s out ]]; do kill -0 "$pid" || fail "the server has ended"; sleep 0.01; done
  python3 "$SLUICE_SOURCE/tests/support/serve_scores.py" "$(sed -E 's,.*:([0-9]+)/.*,\1,' out)" "${tokens[*]}" $how \
    >said 2>&1 || fail "with \"$options\": $(<said)"
  [[ $options == "--rows 16"* ]] || { kill -INT "$pid" && wait "$pid"; continue; }
  port=$(sed -E 's,.*:([0-9]+)/.*,\1,' out) served=$pid
done

python=${SLUICE_LM_EVAL_PYTHON-}
[[ $python ]] || { kill -INT "$served" && wait "$served"; exit 0; }
cat >task.yaml <<'EOT'
task: ours
dataset_path: json
dataset_kwargs: {data_files: {test: task.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: "{{answer}}"
target_delimiter: " "
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
EOT
python3 - <<'PY'
import json
with open("task.jsonl", "w") as f:
    for i in range(6):
        print(json.dumps({"question": "The house number %d is" % i, "choices": ["a house", "not there", "%d" % i], "answer": i % 3}), file=f)
PY
HF_HOME=$work/hf "$python" -m lm_eval run --model local-completions --model_args \
  "model=model,base_url=http://127.0.0.1:$port/v1/completions,tokenizer=model,tokenizer_backend=huggingface,num_concurrent=1" \
  --tasks ours --include_path . --output_path results --log_samples >lm_eval.txt 2>&1 || fail "lm-eval: $(tail -20 lm_eval.txt)"
kill -INT "$served" && wait "$served"
python3 "$SLUICE_SOURCE/tests/support/lm_eval_scores.py" results "$actorrun" >said 2>&1 || fail "lm-eval: $(<said)"
