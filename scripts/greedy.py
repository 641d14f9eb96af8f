"""Greedy tokens of a model and a digest of all logits on the way: the same on every machine.

python scripts/greedy.py MODEL [-n TOKENS]
"""

import argparse
import hashlib

import numpy as np

from intattention import LLM

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("model", help="a file, a folder or a name")
parser.add_argument("-n", type=int, default=8, help="tokens")
parser.add_argument("--prompt", default="Name the capital of France.")
args = parser.parse_args()

llm = LLM.load(args.model, ctx=256)
template = llm.tokenizer.chat_template
assert template is not None, "a model with a chat template is needed"
text = template.render([{"role": "user", "content": args.prompt}])
new = llm.tokenizer.encode(text, add_bos=False)
cache, digest, answer = llm.decoder.new_cache(256), hashlib.sha256(), list[int]()
for _ in range(args.n):
    logits = llm.decoder.forward(np.array(new, np.int32), cache, "last").reshape(-1)
    digest.update(logits.tobytes())
    new = [int(logits.argmax())]
    answer += new
print("tokens", *answer)
print("text", repr(llm.tokenizer.decode(answer)))
print("logits", digest.hexdigest())
