# SPDX-License-Identifier: Apache-2.0
"""/v1/embeddings returns the embeddings of transformers (tests/reference/embeddings.json), by mean and by last token, also
with chunked prompts and over stages and devices. /rerank and /score use them.

labels: outside
needs: libevent zeromq
"""
from tool import PLACES, Server, actorrun, script

for pooling, folder, options in (("mean", "hf_llama", ""), ("last", "hf_llama", "--rows 5"),
                                 ("mean", "hf_qwen3", "--rows 4 --stages 2 --groups 3"), ("last", "hf_qwen3", "--tensor 2"),
                                 ("none", "hf_llama", "")):
    with Server(f"--pooling {pooling} {options} {{reference}}/{folder}") as server:
        script("serve_embeddings", server.port, PLACES["reference"] + "/embeddings.json", folder, pooling)

actorrun("--quiet --steps 5 --save small/ gpt --layers 1 --width 16 --heads 2 --context 64 --data {reference}/text.txt")
with Server("--pooling mean small/") as server:
    def ask(path, want=200, **fields):
        status, said, _ = server.client.ask("POST", path, fields)
        assert status == want, (path, fields, status, said)
        return said
    texts = ["zzzz", "the cat", "the hat"]
    found = ask("/v1/rerank", query="the cat", documents=texts, return_documents=True)["results"]
    scores = [each["relevance_score"] for each in found]
    assert scores == sorted(scores, reverse=True) and abs(scores[0] - 1) < 1e-6 and found[0]["index"] == 1, found
    assert [each["document"]["text"] for each in found] == [texts[each["index"]] for each in found], found
    top = ask("/rerank", query="the cat", documents=texts, top_n=1)["results"]
    assert [each["index"] for each in top] == [1] and "document" not in top[0], top
    by_index = {each["index"]: each["relevance_score"] for each in found}
    said = ask("/v1/score", text_1="the cat", text_2=texts)
    assert all(each["score"] == by_index[each["index"]] for each in said["data"]), (said, by_index)
    assert all(abs(each["score"] - 1) < 1e-6 for each in ask("/score", text_1=texts, text_2=texts)["data"])
    for path, fields in (("/v1/score", dict(text_1=["a", "b"], text_2=["c"])), ("/v1/rerank", dict(query="a")),
                         ("/v1/rerank", dict(query="a", documents=[])), ("/v1/rerank", dict(query="a", documents=[3]))):
        assert ask(path, 400, **fields)["error"]["param"], (path, fields)
